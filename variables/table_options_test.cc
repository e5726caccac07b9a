#include "variables/table_options.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TableOptions With(Admission admission) {
  TableOptions options;
  options.admission = admission;
  return options;
}
TableOptions With(Eviction eviction) {
  TableOptions options;
  options.eviction = eviction;
  return options;
}
std::string ErrorOf(const TableOptions& options) {
  const absl::Status status = Validate(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(TableOptions, GoodOnes) {
  EXPECT_TRUE(Validate(TableOptions()).ok());
  EXPECT_TRUE(Validate(With(AdmitAfter{1})).ok());
  EXPECT_TRUE(Validate(With(AdmitAfter{255, 1 << 20})).ok());
  EXPECT_TRUE(Validate(With(AdmitWithProbability{1})).ok());
  EXPECT_TRUE(Validate(With(EvictUnusedFor{absl::Minutes(1)})).ok());
  EXPECT_TRUE(Validate(With(EvictBelowNorm{0.1f})).ok());
}

TEST(TableOptions, EachBadOneNamesTheFix) {
  EXPECT_THAT(ErrorOf(With(AdmitAfter{0})), HasSubstr("at least 1"));
  EXPECT_THAT(ErrorOf(With(AdmitAfter{2, 1000})),
              AllOf(HasSubstr("at least 1048576 and at most"), HasSubstr("or 0 for")));
  EXPECT_THAT(ErrorOf(With(AdmitAfter{256, 1 << 20})), HasSubstr("set counter_bytes to 0"));
  EXPECT_THAT(ErrorOf(With(AdmitWithProbability{0})), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(ErrorOf(With(AdmitWithProbability{std::numeric_limits<double>::quiet_NaN()})),
              HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(ErrorOf(With(EvictUnusedFor{absl::Seconds(59)})), HasSubstr("at least 1 minute"));
  EXPECT_THAT(ErrorOf(With(EvictUnusedFor{absl::Seconds(90)})), HasSubstr("whole minutes"));
  EXPECT_THAT(ErrorOf(With(EvictBelowNorm{std::numeric_limits<float>::infinity()})),
              HasSubstr("finite"));
  EXPECT_THAT(ErrorOf(With(AdmitAfter{std::numeric_limits<int64_t>::max()})),
              HasSubstr("at most 2147483648"));
  EXPECT_THAT(ErrorOf(With(EvictBelowNorm{0})), HasSubstr("must be above 0"));
  EXPECT_THAT(ErrorOf(With(EvictLeastUsed{})), HasSubstr("set max_rows"));
  EXPECT_THAT(ErrorOf(With(EvictLeastRecent{})), HasSubstr("set max_rows"));
  TableOptions negative;
  negative.max_rows = -1;
  EXPECT_THAT(ErrorOf(negative), HasSubstr("0 for no limit"));
}

}  // namespace
}  // namespace divvy
