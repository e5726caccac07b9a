#include "coordinator/core/step_samples.h"

namespace divvy {
namespace {

uint64_t Rounded(uint64_t staleness) {
  int dropped = 0;
  while (staleness >> dropped >= 128) ++dropped;
  return staleness >> dropped << dropped;
}

}  // namespace

bool StepSamples::Ask(EntryId step, uint32_t attempt) {
  if (asks_left_ == 0 || asked_) return false;
  --asks_left_;
  asked_ = Attempt(step, attempt);
  return true;
}

void StepSamples::OnEnd(EntryId step, uint32_t attempt) {
  if (asked_ == Attempt(step, attempt)) asked_.reset();
}

void StepSamples::Note(int worker, int64_t step, const Report& report) {
  if (!kept_) return;
  WorkerSteps& own = workers_[worker];
  ++own.steps;
  own.took += report.took;
  // A step without a commit has no staleness.
  if (!report.participants.empty()) ++staleness_[Rounded(report.staleness)];
  if (report.gradients.empty() || asked_ != Attempt(report.step, report.attempt)) return;
  gradients_ = {step, report.gradients};
  asks_left_ = 0;
}

}  // namespace divvy
