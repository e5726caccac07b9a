#include "coordinator/report/worker_runs.h"

#include "absl/strings/str_cat.h"

namespace divvy {

void WorkerRuns::Add(const std::map<int, WorkerSteps>& steps) {
  for (const auto& [index, more] : steps) {
    WorkerSteps& own = steps_[index];
    own.steps += more.steps;
    own.took += more.took;
    seen_.insert(index);
  }
}

WorkerRuns::Points WorkerRuns::Take(absl::Duration now, absl::Duration shortest, bool trains) {
  Points points;
  const absl::Duration length = now - since_;
  const bool nobody_trains = steps_.empty() && !trains;
  if (!nobody_trains && (length <= absl::ZeroDuration() || length < shortest)) return points;
  since_ = now;
  if (nobody_trains) return points;
  for (const int index : seen_) {
    if (index >= kMost) break;
    const WorkerSteps& own = steps_[index];
    const double count = static_cast<double>(own.steps);
    std::map<std::string, double>& run = points[absl::StrCat("worker/", index)];
    run["steps_per_second"] = count / absl::ToDoubleSeconds(length);
    if (own.steps > 0) run["step_seconds"] = absl::ToDoubleSeconds(own.took) / count;
  }
  steps_.clear();
  return points;
}

}  // namespace divvy
