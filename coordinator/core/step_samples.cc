#include "coordinator/core/step_samples.h"

namespace divvy {
namespace {

uint64_t Rounded(uint64_t staleness) {
  int dropped = 0;
  while (staleness >> dropped >= 128) ++dropped;
  return staleness >> dropped << dropped;
}

}  // namespace

void StepSamples::Note(int worker, int64_t step, const Report& report) {
  if (!kept_) return;
  WorkerSteps& own = workers_[worker];
  ++own.steps;
  own.took += report.took;
  // A step without a commit has no staleness.
  if (!report.participants.empty()) ++staleness_[Rounded(report.staleness)];
  if (!report.gradients.empty()) gradients_ = {step, report.gradients};
}

}  // namespace divvy
