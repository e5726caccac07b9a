// How fast each worker is, for event files.
#ifndef DIVVY_COORDINATOR_REPORT_WORKER_RUNS_H_
#define DIVVY_COORDINATOR_REPORT_WORKER_RUNS_H_

#include <map>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "coordinator/core/step_samples.h"

namespace divvy {

// Not thread-safe.
class WorkerRuns {
 public:
  // Workers with a higher index have no run of their own: each run is an open file.
  static constexpr int kMost = 128;
  // Run -> name of the series -> value.
  using Points = std::map<std::string, std::map<std::string, double>>;

  // The first interval begins at `now`.
  explicit WorkerRuns(absl::Duration now) : since_(now) {}

  // These steps have finished in the interval.
  void Add(const std::map<int, WorkerSteps>& steps);
  // Ends the interval: the points "worker/0" -> "steps_per_second" and "step_seconds" (the mean
  // time of a step; missing if there was none), of each worker that has ever finished a step.
  //
  // A rate of a few milliseconds says little. So if the interval is shorter than `shortest`, there
  // are no points, and it goes on. Unless `trains`, an interval without steps has no points either.
  Points Take(absl::Duration now, absl::Duration shortest, bool trains);

 private:
  absl::Duration since_;
  std::map<int, WorkerSteps> steps_;
  // Workers that have ever finished a step.
  std::set<int> seen_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_WORKER_RUNS_H_
