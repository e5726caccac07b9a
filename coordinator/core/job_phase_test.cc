#include "coordinator/core/job_phase.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

using Name = JobPhase::Name;

TEST(JobPhaseTest, EachStateHasTheNameThatSnapshotsTell) {
  JobPhase phase;
  EXPECT_EQ(phase.name(), Name::kAttaching);
  phase.Enter(JobPhase::Choosing());
  EXPECT_EQ(phase.name(), Name::kChoosing);
  phase.Enter(JobPhase::Loading());
  EXPECT_EQ(phase.name(), Name::kLoading);
  phase.Enter(JobPhase::Replaying());
  EXPECT_EQ(phase.name(), Name::kReplaying);
  phase.Enter(JobPhase::Running());
  EXPECT_EQ(phase.name(), Name::kRunning);
  phase.Enter(JobPhase::Ending());
  EXPECT_EQ(phase.name(), Name::kEnding);
  phase.Enter(JobPhase::Over());
  EXPECT_EQ(phase.name(), Name::kOver);
  phase.Enter(JobPhase::Failed());
  EXPECT_EQ(phase.name(), Name::kFailed);
}

TEST(JobPhaseTest, AttachingAgainKeepsWhatIsUnderWayAndLeavingItDoesNot) {
  JobPhase phase;
  phase.Get<JobPhase::Attaching>()->looking = true;
  phase.Reattach();
  EXPECT_TRUE(phase.Get<JobPhase::Attaching>()->looking);
  phase.Enter(JobPhase::Loading());
  EXPECT_EQ(phase.Get<JobPhase::Attaching>(), nullptr);
  phase.Reattach();
  EXPECT_FALSE(phase.Get<JobPhase::Attaching>()->looking);
}

TEST(JobPhaseTest, TheExitCodeIsToldFromWhenTheEndIsDurable) {
  JobPhase phase;
  phase.Enter(JobPhase::Ending{3, nullptr});
  EXPECT_EQ(phase.exit_code(), std::nullopt);
  phase.Get<JobPhase::Ending>()->stored = true;
  EXPECT_EQ(phase.exit_code(), 3);
  EXPECT_FALSE(phase.IsFinal());
  phase.Enter(JobPhase::Failed{absl::DataLossError("gone"), phase.exit_code()});
  EXPECT_EQ(phase.exit_code(), 3);
  EXPECT_EQ(phase.error(), absl::DataLossError("gone"));
  EXPECT_TRUE(phase.IsFinal());
  phase.Enter(JobPhase::Over{3});
  EXPECT_EQ(phase.exit_code(), 3);
  EXPECT_EQ(phase.error(), absl::OkStatus());
}

}  // namespace
}  // namespace divvy
