#include "coordinator/core/model_match.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ModelMatchTest, TheSameVariablesAreNothingToTellOf) {
  const ModelMatch match = MatchModel({"a", "b"}, {"b", "a"});
  EXPECT_TRUE(CheckSameModel(match, "ckpt-1-2").ok());
  EXPECT_EQ(DescribeMatch(match, "ckpt-1-2"), "");
}

TEST(ModelMatchTest, AnotherModelIsRefusedWithNamesOfBoth) {
  const absl::Status refused = CheckSameModel(
      MatchModel({"w", "b"}, {"deep/0", "deep/1", "deep/2", "deep/3", "deep/4", "deep/5"}),
      "ckpt-1-2");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ckpt-1-2"));
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("deep/0, deep/1, deep/2, deep/3 and 2 more"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("b, w"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--checkpoint_dir"));
}

TEST(ModelMatchTest, ARenamedLayerIsToldWithBothNames) {
  const ModelMatch match = MatchModel({"new/kernel", "bias"}, {"old/kernel", "bias"});
  EXPECT_TRUE(CheckSameModel(match, "ckpt-1-2").ok());
  EXPECT_EQ(DescribeMatch(match, "ckpt-1-2"),
            "ckpt-1-2: 1 variable of the program not in it, with initial values: new/kernel; 1 "
            "variable in it that the program has not created: old/kernel");
}

// A program may restore first, and then create the variables that its own state names.
TEST(ModelMatchTest, AProgramThatHasDeclaredNothingYetIsNotRefused) {
  const ModelMatch match = MatchModel({}, {"table/0", "table/1"});
  EXPECT_TRUE(CheckSameModel(match, "ckpt-1-2").ok());
  EXPECT_THAT(DescribeMatch(match, "ckpt-1-2"),
              HasSubstr("2 variables in it that the program has not created"));
  EXPECT_TRUE(CheckSameModel(MatchModel({"a"}, {}), "ckpt-1-2").ok())
      << "a checkpoint of a job that had no variables yet";
  EXPECT_THAT(DescribeMatch(MatchModel({"a"}, {}), "ckpt-1-2"), Not(HasSubstr("not created")));
}

}  // namespace
}  // namespace divvy
