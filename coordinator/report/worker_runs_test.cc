#include "coordinator/report/worker_runs.h"

#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

absl::Duration At(double seconds) { return absl::Seconds(seconds); }

TEST(WorkerRunsTest, AnIntervalHasTheRateOfEachWorkerAndTheMeanOfItsSteps) {
  WorkerRuns runs(At(1000));
  runs.Add({{0, {10, absl::Seconds(2)}}});
  runs.Add({{0, {10, absl::Seconds(4)}}, {2, {1, absl::Seconds(3)}}});
  EXPECT_THAT(runs.Take(At(1005), absl::ZeroDuration(), true),
              ElementsAre(Pair("worker/0", ElementsAre(Pair("step_seconds", DoubleEq(0.3)),
                                                       Pair("steps_per_second", DoubleEq(4)))),
                          Pair("worker/2", ElementsAre(Pair("step_seconds", DoubleEq(3)),
                                                       Pair("steps_per_second", DoubleEq(0.2))))));
}

TEST(WorkerRunsTest, AWorkerThatHasStoppedHasARateOfZeroWhileOthersTrain) {
  WorkerRuns runs(At(0));
  runs.Add({{0, {5, absl::Seconds(1)}}});
  runs.Take(At(5), absl::ZeroDuration(), true);
  EXPECT_THAT(runs.Take(At(10), absl::ZeroDuration(), true),
              ElementsAre(Pair("worker/0", ElementsAre(Pair("steps_per_second", 0)))));
  EXPECT_THAT(runs.Take(At(15), absl::ZeroDuration(), false), IsEmpty());
}

TEST(WorkerRunsTest, TheStepsOfAShortIntervalCountInTheNextOne) {
  WorkerRuns runs(At(0));
  runs.Add({{0, {1, absl::Seconds(1)}}});
  EXPECT_THAT(runs.Take(At(0.001), At(2.5), true), IsEmpty());
  runs.Add({{0, {9, absl::Seconds(9)}}});
  EXPECT_THAT(runs.Take(At(5), At(2.5), false),
              ElementsAre(Pair("worker/0",
                               ElementsAre(Pair("step_seconds", 1), Pair("steps_per_second", 2)))));
}

TEST(WorkerRunsTest, TimeInWhichNobodyTrainsIsInNoInterval) {
  WorkerRuns runs(At(0));
  EXPECT_THAT(runs.Take(At(3600), At(2.5), false), IsEmpty());
  runs.Add({{0, {10, absl::Seconds(5)}}});
  EXPECT_EQ(runs.Take(At(3605), At(2.5), true).at("worker/0").at("steps_per_second"), 2);
}

TEST(WorkerRunsTest, NoTimeIsNoInterval) {
  WorkerRuns runs(At(7));
  runs.Add({{0, {10, absl::Seconds(5)}}});
  EXPECT_THAT(runs.Take(At(7), absl::ZeroDuration(), true), IsEmpty());
}

TEST(WorkerRunsTest, TheFirst128WorkersHaveRuns) {
  WorkerRuns runs(At(0));
  std::map<int, WorkerSteps> steps;
  for (int worker = 0; worker < 130; ++worker) steps[worker] = {1, absl::Seconds(1)};
  runs.Add(steps);
  const WorkerRuns::Points points = runs.Take(At(1), absl::ZeroDuration(), true);
  EXPECT_EQ(points.size(), 128u);
  EXPECT_EQ(points.count("worker/127"), 1u);
}

}  // namespace
}  // namespace divvy
