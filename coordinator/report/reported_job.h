// The job whose progress a Reporter shows.
#ifndef DIVVY_COORDINATOR_REPORT_REPORTED_JOB_H_
#define DIVVY_COORDINATOR_REPORT_REPORTED_JOB_H_

#include <cstdint>
#include <map>
#include <memory>

#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/core/step_samples.h"
#include "coordinator/report/histogram_recorder.h"

namespace divvy {

// The calls of CoordinatorCore with the same names. Thread-safe. No method blocks.
class ReportedJob : public HistogramSource {
 public:
  virtual CoordinatorSnapshot Snapshot() const = 0;
  // Epochs of training that are complete.
  virtual int64_t epoch() const = 0;
  virtual uint64_t TakeMaxStaleness() = 0;
  // Nothing is taken of steps before this call.
  virtual void SampleSteps() = 0;
  virtual std::map<int, WorkerSteps> TakeWorkerSteps() = 0;
};

// The job of a coordinator.
std::shared_ptr<ReportedJob> JobOf(std::shared_ptr<CoordinatorCore> core);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_REPORTED_JOB_H_
