#include "worker/service/worker_status.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(WorkerStatusTest, NamesTheJobOfTheCoordinatorItObeys) {
  WorkerSnapshot snapshot;
  EXPECT_EQ(WorkerTaskStatus(WorkerOptions(), snapshot).job_id(), 0u);
  snapshot.job = JobId(7);
  EXPECT_EQ(WorkerTaskStatus(WorkerOptions(), snapshot).job_id(), 7u);
}

}  // namespace
}  // namespace divvy
