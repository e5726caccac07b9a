#include "coordinator/service/chief_task.h"

#include "coordinator/service/coordinator_status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChiefTaskTest, OptionsThatMakeNoSenseAreRefusedBeforeAnythingIsMade) {
  for (const int replicas : {0, -1}) {
    ChiefTaskOptions options;
    options.replicas_per_worker = replicas;
    options.state_dir = "/dev/null/never";  // comes later
    const absl::Status refused = ChiefTask::Start(options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("--replicas_per_worker is "), HasSubstr("--num_ps")));
  }
}

TEST(CoordinatorStatusTest, NamesTheJobAndTheEpoch) {
  CoordinatorSnapshot snapshot;
  snapshot.job = JobId(7);
  snapshot.epoch_id = Epoch(3);
  const v1::TaskStatus status = CoordinatorTaskStatus(CoordinatorOptions(), snapshot);
  EXPECT_EQ(status.job_id(), 7u);
  EXPECT_EQ(status.epoch(), 3u);
}

}  // namespace
}  // namespace divvy
