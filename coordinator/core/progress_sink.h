// Who is told what a person wants to see.
#ifndef DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_
#define DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_

#include <cstdint>
#include <string>

#include "cluster/layout.h"
#include "strategy/metrics.h"
#include "strategy/step.h"

namespace divvy {

// Called by BlockingCoordinator on whatever thread it happens. Thread-safe; does not block for
// long.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // A loop of steps begins. `layout`: the variables that exist by now.
  virtual void OnLoopBegin(const Layout& layout, StepKind kind) = 0;
  // A step of the loop has finished; once for each, however often it was tried.
  virtual void OnStep(const Metrics& metrics) = 0;
  virtual void OnLoopEnd() = 0;
  // The program reports `metrics` of training step `step` under the name `run`.
  virtual void OnReport(const std::string& run, int64_t step, const Metrics& metrics) = 0;
  // The program means to train so many epochs.
  virtual void OnGoal(int64_t epochs) = 0;
  // Coordinator::event_directory.
  virtual std::string event_directory() const = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_
