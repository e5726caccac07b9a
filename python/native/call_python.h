// Calls of the program's Python functions by threads of Divvy.
#ifndef DIVVY_PYTHON_NATIVE_CALL_PYTHON_H_
#define DIVVY_PYTHON_NATIVE_CALL_PYTHON_H_

#include <pybind11/pybind11.h>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "python/native/errors.h"
#include "python/native/forks.h"
#include "python/native/thread_states.h"
#include "python/native/values.h"

namespace divvy::python {

namespace py = pybind11;

// Calls fn() with the GIL, and makes a status of an exception. A process that fn() forks never
// comes back from here. `what` names the function of the program. Blocks until the GIL is free.
template <typename Result, typename Fn>
absl::StatusOr<Result> CallPython(absl::string_view what, Fn&& fn) {
  KeepThreadState();
  const py::gil_scoped_acquire gil;
  const ForkGuard fork(what);
  try {
    FreeReturnedArrays();
    return fn();
  } catch (py::error_already_set& error) {
    fork.EndChild(error.what());
    return StatusOf(error);
  } catch (const py::builtin_exception& error) {
    fork.EndChild(error.what());
    error.set_error();
    py::error_already_set raised;
    return StatusOf(raised);
  }
}

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_CALL_PYTHON_H_
