// The coordinator of the job that this process runs, for the module-level objects of a program.
#ifndef DIVVY_PYTHON_NATIVE_JOB_H_
#define DIVVY_PYTHON_NATIVE_JOB_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "strategy/coordinator.h"

namespace divvy::python {

// Marks that this thread runs the program of `coordinator`: `main`, or the body of a test with a
// cluster. Destroyed on the same thread. There is one at a time in a process, so a second one is
// not current until the first is gone.
class ProgramScope {
 public:
  explicit ProgramScope(Coordinator& coordinator);
  ~ProgramScope();
  ProgramScope(const ProgramScope&) = delete;
  ProgramScope& operator=(const ProgramScope&) = delete;

  // This thread runs no program any more: it is that of a forked process.
  static void Forget();
};

// The strategy through which this thread reaches variables: its step's, or the program's.
// FailedPrecondition: the thread runs neither. A thread that a step has started must not reach
// variables, since a write of it would belong to no step.
absl::StatusOr<Strategy*> StrategyHere(absl::string_view call);
// Whether this thread runs the program.
bool InProgram();

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_JOB_H_
