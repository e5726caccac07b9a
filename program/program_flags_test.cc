#include "program/program_flags.h"

#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gtest/gtest.h"

ABSL_FLAG(int, test_rows, 3, "of the test's program");
ABSL_FLAG(std::string, test_name, "a", "of the test's program");

namespace divvy {
namespace {

using Values = std::map<std::string, std::string>;

class ProgramFlagsTest : public testing::Test {
 private:
  absl::FlagSaver saver_;
};

TEST_F(ProgramFlagsTest, OnlyFlagsThatWereChangedTravel) {
  EXPECT_EQ(ChangedProgramFlags(), Values());
  absl::SetFlag(&FLAGS_test_rows, 7);
  EXPECT_EQ(ChangedProgramFlags(), (Values{{"test_rows", "7"}}));
}

TEST_F(ProgramFlagsTest, AWorkerTakesTheValuesOfTheCoordinatorAndForgetsItsOwn) {
  absl::SetFlag(&FLAGS_test_name, "mine");
  ASSERT_TRUE(SetProgramFlags({{"test_rows", "9"}}).ok());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_rows), 9);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "a");
}

TEST_F(ProgramFlagsTest, AFlagThatIsNotHereMeansAnotherProgramAndChangesNothing) {
  const absl::Status status = SetProgramFlags({{"test_rows", "9"}, {"hidden_units", "5"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "runs another program than the coordinator: it has no flag --hidden_units. Deploy one "
            "binary to all tasks");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_rows), 3);
}

TEST_F(ProgramFlagsTest, AValueThatAFlagDoesNotTakeIsNamed) {
  const absl::Status status = SetProgramFlags({{"test_rows", "many"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(status.message()).find("--test_rows"), std::string::npos);
}

}  // namespace
}  // namespace divvy
