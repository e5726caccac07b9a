#include "worker/service/worker_status.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(WorkerStatusTest, NamesTheJobOfTheCoordinatorItObeys) {
  WorkerSnapshot snapshot;
  EXPECT_EQ(WorkerTaskStatus(WorkerOptions(), snapshot, {}).job_id(), 0u);
  snapshot.job = JobId(7);
  EXPECT_EQ(WorkerTaskStatus(WorkerOptions(), snapshot, {}).job_id(), 7u);
}

TEST(WorkerStatusTest, NamesTheStepThatRuns) {
  WorkerSnapshot snapshot;
  snapshot.live = EntryId(9);
  snapshot.live_function = "train";
  EXPECT_FALSE(WorkerTaskStatus(WorkerOptions(), snapshot, {}).worker().has_live_ordinal());
  snapshot.live_ordinal = 4;
  const v1::TaskStatus status = WorkerTaskStatus(WorkerOptions(), snapshot, {});
  EXPECT_EQ(status.worker().live_function(), "train");
  EXPECT_EQ(status.worker().live_ordinal(), 4);
}

TEST(WorkerStatusTest, TellsWhereEachReplicaComputes) {
  const v1::TaskStatus status = WorkerTaskStatus(
      WorkerOptions(), WorkerSnapshot(), {{"GPU:0", "a card", 100, 30}, Describe(Device())});
  ASSERT_EQ(status.worker().devices_size(), 2);
  EXPECT_EQ(status.worker().devices(0).ShortDebugString(),
            R"(device: "GPU:0" name: "a card" memory_limit_bytes: 100 memory_bytes: 30)");
  EXPECT_EQ(status.worker().devices(1).ShortDebugString(), R"(device: "CPU:0")");
}

}  // namespace
}  // namespace divvy
