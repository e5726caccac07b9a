// The coordinator, as `main` and tests get it.
#ifndef DIVVY_PYTHON_NATIVE_COORDINATOR_H_
#define DIVVY_PYTHON_NATIVE_COORDINATOR_H_

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <memory>

#include "strategy/coordinator.h"

namespace divvy::python {

namespace py = pybind11;

// What Python holds of a coordinator, which may outlive it. FailedPrecondition, from each call:
// the job has ended, or a step or a forked process makes the call.
class CoordinatorHandle {
 public:
  explicit CoordinatorHandle(Coordinator& coordinator)
      : coordinator_(&coordinator), process_(getpid()) {}
  // The coordinator, for a call named `call`. Throws. REQUIRES: the GIL is held.
  Coordinator& Get(const char* call) const;
  // The coordinator is about to be destroyed. REQUIRES: the GIL is held.
  void End() { coordinator_ = nullptr; }

 private:
  Coordinator* coordinator_;
  const pid_t process_;
};

void DefineCoordinator(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_COORDINATOR_H_
