#include "python/native/job.h"

#include "absl/strings/str_cat.h"
#include "python/native/step_scope.h"

namespace divvy::python {
namespace {

thread_local Coordinator* current_program = nullptr;

}  // namespace

ProgramScope::ProgramScope(Coordinator& coordinator) { current_program = &coordinator; }

ProgramScope::~ProgramScope() { Forget(); }

void ProgramScope::Forget() { current_program = nullptr; }

bool InProgram() { return current_program != nullptr && StepScope::Current() == nullptr; }

absl::StatusOr<Strategy*> StrategyHere(absl::string_view call) {
  if (StepScope* const step = StepScope::Current()) return &step->worker().strategy();
  if (current_program != nullptr) return &current_program->strategy();
  return absl::FailedPreconditionError(
      absl::StrCat(call,
                   ": this thread runs neither main nor a step. Variables are reached on the "
                   "thread of main, of a step, or of `with divvy.testing.cluster()`: hand the "
                   "values to other threads"));
}

}  // namespace divvy::python
