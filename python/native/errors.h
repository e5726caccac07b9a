// From a Status to a Python exception and back. Exceptions are Python's way of reporting errors, so
// this folder throws and catches them, unlike the rest of Divvy.
#ifndef DIVVY_PYTHON_NATIVE_ERRORS_H_
#define DIVVY_PYTHON_NATIVE_ERRORS_H_

#include <pybind11/pybind11.h>

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy::python {

namespace py = pybind11;

// Throws the divvy.Error of `status`: an instance of the class of its code (divvy/_errors.py). It
// carries the status, with its reason. REQUIRES: the GIL is held; `status` is not OK.
[[noreturn]] void Raise(const absl::Status& status);
// Throws unless `status` is OK. REQUIRES: the GIL is held.
inline void Check(const absl::Status& status) {
  if (!status.ok()) Raise(status);
}
// The value, or throws. REQUIRES: the GIL is held.
template <typename T>
T ValueOf(absl::StatusOr<T> value) {
  if (!value.ok()) Raise(value.status());
  return *std::move(value);
}

// Calls `fn`, which may block, without the GIL.
template <typename Fn>
auto WithoutGil(Fn&& fn) {
  const py::gil_scoped_release release;
  return fn();
}

// The status of an exception that Python code raised. A divvy.Error gives the status that it
// carries. Other classes give the code that suits them (ValueError: InvalidArgument, ...), or
// Unknown. The message has the exception and its traceback, 8 KiB at most, unless the status steers
// Divvy itself: the end of data, or a step that is cancelled or run again. REQUIRES: the GIL is
// held.
absl::Status StatusOf(py::error_already_set& error);

void DefineErrors(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_ERRORS_H_
