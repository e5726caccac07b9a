#include "task/no_coordinator_note.h"

#include "base/testing/captured_log.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(NoCoordinatorNoteTest, IsSaidAtOnceAndEachMinuteUntilTheTaskIsAttached) {
  const CapturedLog log;
  SimExecutor executor(1);
  bool waits = true;
  WarnOfNoCoordinator(executor, "ps 1", [&waits] { return waits; });
  executor.RunFor(absl::Seconds(59));
  ASSERT_EQ(log.texts().size(), 1u);
  EXPECT_THAT(
      log.texts()[0],
      testing::HasSubstr("ps 1: its cluster has no chief and there is no --coordinator_address"));
  executor.RunFor(absl::Minutes(2));
  EXPECT_EQ(log.texts().size(), 3u);
  waits = false;
  executor.RunFor(absl::Minutes(5));
  EXPECT_EQ(log.texts().size(), 3u);
}

}  // namespace
}  // namespace divvy
