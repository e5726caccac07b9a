// Receives the progress of a job, for display and event files.
#ifndef DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_
#define DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_

#include <cstdint>
#include <string>

#include "strategy/metrics.h"
#include "strategy/step.h"
#include "variables/layout.h"

namespace divvy {

// BlockingCoordinator calls it on the thread where the event happens; OnStep comes from a
// completion of the core. Thread-safe. A call must not block for long.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // A loop of steps begins. `layout`: the variables that exist so far.
  virtual void OnLoopBegin(const Layout& layout, StepKind kind) = 0;
  // A step of the loop has finished. Called once for each step, however many attempts it took.
  virtual void OnStep(const Metrics& metrics) = 0;
  // The loop is over, successfully or not. After a timeout, OnStep may still be called for its
  // running steps.
  virtual void OnLoopEnd() = 0;
  // The program reports `metrics` of training step `step` under the name `run`.
  virtual void OnReport(const std::string& run, int64_t step, const Metrics& metrics) = 0;
  // The program intends to train so many epochs.
  virtual void OnGoal(int64_t epochs) = 0;
  // The program has returned, successfully, and all steps are finished. The job ends when this call
  // returns. Until then variables may be read. May block for some seconds.
  virtual void OnEnd() {}
  // Coordinator::event_directory. Empty: no event files are written.
  virtual std::string event_directory() const = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_PROGRESS_SINK_H_
