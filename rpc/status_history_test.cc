#include "rpc/status_history.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::DoubleNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Finding = v1::TaskStatus::Finding;

// The time of sample i.
absl::Duration At(int i) { return absl::Hours(7) + i * StatusHistory::kEvery; }

v1::TaskStatus Ps(int index, int64_t memory, int64_t rows, uint64_t incarnation = 1,
                  int64_t row_bytes = 10) {
  v1::TaskStatus status;
  status.set_job(v1::PS);
  status.set_index(index);
  status.set_incarnation(incarnation);
  status.set_state("ready");
  status.mutable_ps()->set_memory_bytes(memory);
  status.mutable_ps()->set_memory_limit_bytes(1000);
  status.mutable_ps()->set_pull_rows(rows);
  status.mutable_ps()->set_push_bytes(rows * row_bytes);
  return status;
}

v1::TaskStatus Worker(int index, double median, double busy = 0, double waited = 0,
                      int64_t reported = 0) {
  v1::TaskStatus status;
  status.set_job(v1::WORKER);
  status.set_index(index);
  status.set_state("running");
  const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
  status.mutable_worker()->set_reported(reported);
  status.mutable_worker()->set_step_p50_ns(ns(median));
  status.mutable_worker()->set_busy_ns(ns(busy));
  status.mutable_worker()->set_input_wait_ns(ns(waited));
  return status;
}

v1::TaskStatus Chief(std::vector<v1::TaskStatus> tasks, int64_t steps = 0) {
  v1::TaskStatus status;
  status.set_job(v1::CHIEF);
  status.set_state("running");
  status.mutable_coordinator()->set_finished_steps(steps);
  for (v1::TaskStatus& task : tasks) *status.mutable_coordinator()->add_tasks() = std::move(task);
  return status;
}

TEST(StatusHistoryTest, WithoutSamplesNothingIsTold) {
  const StatusHistory history;
  v1::TaskStatus status = Ps(0, 100, 100);
  history.Complete(At(0), status);
  EXPECT_THAT(status.findings(), IsEmpty());
  EXPECT_EQ(status.state_ns(), 0);
  EXPECT_EQ(status.ps().rows_per_second(), 0);
  EXPECT_THAT(history.Pictures(), IsEmpty());
}

TEST(StatusHistoryTest, RatesAreThoseOfTheLast30Seconds) {
  StatusHistory history;
  for (int i = 0; i < 20; ++i) history.Add(At(i), Ps(0, 10, i < 10 ? 0 : (i - 10) * 50));
  v1::TaskStatus status = Ps(0, 10, 500);
  history.Complete(At(20), status);
  EXPECT_THAT(status.ps().rows_per_second(), DoubleNear(10, 1e-9));
  EXPECT_THAT(status.ps().bytes_per_second(), DoubleNear(100, 1e-9));
}

TEST(StatusHistoryTest, AStateIsAsOldAsItsFirstSample) {
  StatusHistory history;
  v1::TaskStatus status = Ps(0, 10, 0);
  status.set_state("loading");
  history.Add(At(0), status);
  status.set_state("ready");
  history.Add(At(1), status);
  history.Add(At(2), status);
  history.Complete(At(3), status);
  EXPECT_EQ(status.state_ns(), absl::ToInt64Nanoseconds(absl::Seconds(10)));
  status.set_state("frozen");
  status.set_state_ns(0);
  history.Complete(At(3), status);
  EXPECT_EQ(status.state_ns(), 0) << "it is newer than the samples";
}

TEST(StatusHistoryTest, GrowingMemoryHasAForecast) {
  StatusHistory history;
  v1::TaskStatus status;
  for (int i = 0; i < 12; ++i) {
    status = Ps(3, 400 + 25 * i, 0);
    history.Add(At(i), status);
  }
  history.Complete(At(12), status);
  ASSERT_THAT(status.findings(), SizeIs(1));
  EXPECT_EQ(status.findings(0).kind(), Finding::MEMORY_FORECAST);
  EXPECT_EQ(status.findings(0).index(), 3);
  EXPECT_THAT(status.findings(0).value(), DoubleNear((1000 - 675) / 5.0, 1e-6));
  EXPECT_EQ(status.findings(0).text(), "memory is full in 1 min 5 s at this rate");
}

TEST(StatusHistoryTest, WhatALoadAddsToMemoryIsNoGrowth) {
  StatusHistory history;
  v1::TaskStatus status;
  const auto add = [&](int i, const char* state, int64_t memory) {
    status = Ps(3, memory, 0);
    status.set_state(state);
    history.Add(At(i), status);
    history.Complete(At(i), status);
  };
  for (int i = 0; i < 12; ++i) add(i, "loading", 25 * i);
  EXPECT_THAT(status.findings(), IsEmpty());
  for (int i = 12; i < 20; ++i) add(i, "ready", 300);
  EXPECT_THAT(status.findings(), IsEmpty());
  for (int i = 20; i < 40; ++i) add(i, "ready", 300 + 25 * (i - 20));
  EXPECT_THAT(status.findings(), SizeIs(1));
}

TEST(StatusHistoryTest, ATaskThatWasStartedAgainBeginsAnew) {
  StatusHistory history;
  for (int i = 0; i < 12; ++i) history.Add(At(i), Ps(0, 400 + 25 * i, 100 * i));
  v1::TaskStatus again = Ps(0, 100, 5, /*incarnation=*/2);
  history.Complete(At(12), again);
  EXPECT_THAT(again.findings(), IsEmpty());
  history.Add(At(12), again);
  history.Complete(At(13), again);
  EXPECT_EQ(again.ps().rows_per_second(), 0);
  EXPECT_EQ(again.state_ns(), absl::ToInt64Nanoseconds(StatusHistory::kEvery));
}

TEST(StatusHistoryTest, ATaskThatMissesAnAnswerKeepsItsSamples) {
  StatusHistory history;
  for (int i = 0; i < 8; ++i) history.Add(At(i), Chief({Ps(0, 10, 50 * i)}));
  v1::TaskStatus away;
  away.set_job(v1::PS);
  away.set_state("no answer");
  history.Add(At(8), Chief({away}));
  v1::TaskStatus status = Chief({away});
  history.Complete(At(9), status);
  EXPECT_EQ(status.coordinator().tasks(0).state_ns(),
            absl::ToInt64Nanoseconds(StatusHistory::kEvery));
  status = Chief({Ps(0, 10, 450)});
  history.Add(At(9), status);
  history.Complete(At(9), status);
  EXPECT_THAT(status.coordinator().tasks(0).ps().rows_per_second(), DoubleNear(10, 1e-9));
}

TEST(StatusHistoryTest, TheCoordinatorComparesItsTasks) {
  StatusHistory history;
  v1::TaskStatus status;
  for (int i = 0; i < 10; ++i) {
    status = Chief(
        {Ps(0, 10, 100 * i), Ps(1, 10, 100 * i), Ps(2, 10, 1400 * i, 1, /*row_bytes=*/100'000),
         Ps(3, 10, 100 * i), Worker(0, 0.1, 0, 0, 3 * i), Worker(1, 0.1, 0, 0, 3 * i),
         Worker(2, 0.4, 0, 0, 3 * i)},
        50 * i);
    history.Add(At(i), status);
  }
  v1::PsStatus& hot = *status.mutable_coordinator()->mutable_tasks(2)->mutable_ps();
  hot.set_busiest_variable("user/factors");
  hot.set_busiest_share(0.714);
  history.Complete(At(10), status);
  EXPECT_THAT(status.coordinator().steps_per_second(), DoubleNear(10, 1e-9));
  ASSERT_THAT(status.findings(), SizeIs(2));
  EXPECT_EQ(status.findings(0).kind(), Finding::HOT_PS);
  EXPECT_EQ(status.findings(0).index(), 2);
  EXPECT_EQ(status.findings(0).text(),
            "hot: 3.3 x the mean of rows, 71 % of its load in variable user/factors");
  EXPECT_EQ(status.findings(1).kind(), Finding::STRAGGLER);
  EXPECT_EQ(status.findings(1).job(), v1::WORKER);
  EXPECT_EQ(status.findings(1).index(), 2);
  EXPECT_THAT(status.findings(1).value(), DoubleNear(4, 1e-9));
}

TEST(StatusHistoryTest, TasksThatHaveLittleToDoAreNotCompared) {
  StatusHistory history;
  v1::TaskStatus status;
  for (int i = 0; i < 10; ++i) {
    // The second ps has 14 times the rows of the first, and 2800 bytes a second.
    status = Chief({Ps(0, 10, 100 * i), Ps(1, 10, 1400 * i), Worker(0, 0.1, 0, 0, 2 * i),
                    Worker(1, 0.1, 0, 0, 2 * i), Worker(2, 0.4, 0, 0, 2 * i)});
    history.Add(At(i), status);
  }
  history.Complete(At(10), status);
  EXPECT_THAT(status.findings(), IsEmpty());
}

TEST(StatusHistoryTest, StepsThatAreRestoredOrReplayedAreInNoRate) {
  StatusHistory history;
  v1::TaskStatus status;
  const auto add = [&](int i, const char* state, int64_t steps) {
    status = Chief({}, steps);
    status.set_state(state);
    history.Add(At(i), status);
  };
  for (int i = 0; i < 4; ++i) add(i, "attaching", 0);
  add(4, "loading", 100'000);
  for (int i = 5; i < 10; ++i) add(i, "running", 100'000 + 50 * (i - 5));
  history.Complete(At(9), status);
  // Samples 3 to 9: 200 steps in 30 s.
  EXPECT_THAT(status.coordinator().steps_per_second(), DoubleNear(200 / 30.0, 1e-9));
  add(10, "replaying", 100'050);
  add(11, "running", 100'250);
  add(12, "running", 100'300);
  const auto pictures = history.Pictures();
  ASSERT_THAT(pictures[0].points, SizeIs(12));
  for (const TimedValue& point : pictures[0].points) EXPECT_LE(point.value, 10);
  EXPECT_EQ(pictures[0].points[9].value, 0) << "it replays";
  EXPECT_EQ(pictures[0].points[10].value, 0) << "these steps were counted before";
  EXPECT_EQ(pictures[0].points[11].value, 10);
}

TEST(StatusHistoryTest, AMissedAnswerIsNoLeapOfTheRowsOfAll) {
  StatusHistory history;
  v1::TaskStatus away;
  away.set_job(v1::PS);
  away.set_index(1);
  away.set_state("no answer");
  for (int i = 0; i < 10; ++i)
    history.Add(At(i), Chief({Ps(0, 10, 50 * i), i == 5 ? away : Ps(1, 10, 1'000'000 + 50 * i)}));
  const auto pictures = history.Pictures();
  ASSERT_THAT(pictures, SizeIs(4));
  ASSERT_THAT(pictures[3].points, SizeIs(9));
  for (int i = 1; i < 10; ++i) {
    // Sample 6 has the rows of two intervals of the second ps.
    EXPECT_EQ(pictures[3].points[i - 1].value, i == 5 ? 10 : i == 6 ? 30 : 20) << i;
  }
}

TEST(StatusHistoryTest, AShortWaitForDataIsNoFinding) {
  StatusHistory history;
  v1::TaskStatus status;
  for (int i = 0; i < 30; ++i) {
    // Two threads wait from sample 20 on.
    status = Worker(0, 0.1, 10.0 * i, 10.0 * std::max(0, i - 20));
    history.Add(At(i), status);
  }
  history.Complete(At(30), status);
  EXPECT_EQ(status.worker().input_wait_share(), 1) << "of the last 30 s";
  EXPECT_THAT(status.findings(), IsEmpty());
  EXPECT_EQ(history.Pictures()[2].points.back().value, 1) << "2 s of waits in a second";
}

TEST(StatusHistoryTest, AWorkerThatWaitsForItsDataIsTold) {
  StatusHistory history;
  v1::TaskStatus status;
  for (int i = 0; i < 10; ++i) {
    status = Worker(0, 0.1, 5.0 * i, 4.0 * i);
    history.Add(At(i), status);
  }
  history.Complete(At(10), status);
  EXPECT_THAT(status.worker().input_wait_share(), DoubleNear(0.8, 1e-9));
  ASSERT_THAT(status.findings(), SizeIs(1));
  EXPECT_EQ(status.findings(0).kind(), Finding::INPUT_BOUND);
  EXPECT_EQ(status.findings(0).text(), "steps wait for their data 80 % of the time");
}

TEST(StatusHistoryTest, TasksThatAreGoneAreForgotten) {
  StatusHistory history;
  for (int i = 0; i < 3; ++i) history.Add(At(i), Chief({Ps(0, 10, 1000 * i)}));
  history.Add(At(3), Chief({}));
  v1::TaskStatus status = Chief({Ps(0, 10, 5000)});
  history.Complete(At(4), status);
  EXPECT_EQ(status.coordinator().tasks(0).ps().rows_per_second(), 0);
}

TEST(StatusHistoryTest, PicturesHaveTenMinutes) {
  StatusHistory history;
  for (int i = 0; i < 300; ++i) history.Add(At(i), Chief({}, i < 200 ? 0 : 5 * (i - 200)));
  const auto pictures = history.Pictures();
  ASSERT_THAT(pictures, SizeIs(4));
  EXPECT_EQ(pictures[0].title, "steps/s");
  ASSERT_THAT(pictures[0].points, SizeIs(StatusHistory::kMost - 1));
  EXPECT_EQ(pictures[0].points.front().value, 0);
  EXPECT_EQ(pictures[0].points.back().value, 1);
  EXPECT_THAT(pictures[2].points, IsEmpty()) << "there is no loss";
}

}  // namespace
}  // namespace divvy
