#include "coordinator/core/data_agreement.h"

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(DataAgreementTest, TheLastBitOfFloatsIsNoDifference) {
  EXPECT_FALSE(Differ({7, 100.0, 1000}, {7, 100.0, 1000}));
  EXPECT_FALSE(Differ({7, 100.0, 1000}, {7, 100.0001, 1000.0001}));
  EXPECT_TRUE(Differ({7, 100.0, 1000}, {7, 101.0, 1000}));
  EXPECT_TRUE(Differ({7, 100.0, 1000}, {8, 100.0, 1000}));
  EXPECT_TRUE(Differ({7, 1, 1}, {7, 0, 0}));
}

TEST(DataAgreementTest, TheErrorNamesTheSourceTheWorkersAndWhatToDo) {
  const absl::Status status = CheckSameData("ratings", {4, {1, 0, 0}}, {0, {2, 0, 0}});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "data source \"ratings\" differs between workers (position 0: worker 0 and worker 4 read")) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "shuffle with input.seed, and shard nothing")) << status;
}

TEST(DataAgreementTest, AWorkerThatOpensItAnewIsComparedWithItself) {
  const absl::Status status = CheckSameData("ratings", {4, {1, 0, 0}}, {4, {2, 0, 0}});
  EXPECT_TRUE(absl::StrContains(status.message(), "worker 4, opened twice, reads")) << status;
}

TEST(DataAgreementTest, EachWorkerIsComparedAndADifferenceToldOnce) {
  DataAgreement agreement;
  EXPECT_TRUE(agreement.Note("s", {0, {1, 0, 0}}).ok());
  EXPECT_TRUE(agreement.Note("s", {1, {1, 0, 0}}).ok());
  EXPECT_FALSE(agreement.Note("s", {2, {9, 0, 0}}).ok());
  EXPECT_TRUE(agreement.Note("s", {3, {9, 0, 0}}).ok());
}

}  // namespace
}  // namespace divvy
