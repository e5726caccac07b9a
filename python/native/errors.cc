#include "python/native/errors.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "protocol/error.h"
#include "python/native/modules.h"

namespace divvy::python {
namespace {

// A status that an exception carries, so that its reason survives the way through Python.
struct CarriedStatus {
  absl::Status status;
};

// `status` with another message.
absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  absl::Status changed(status.code(), message);
  status.ForEachPayload([&changed](absl::string_view url, const absl::Cord& payload) {
    changed.SetPayload(url, payload);
  });
  return changed;
}

// Whether Divvy acts on the status, so that no person reads it.
bool Steers(const absl::Status& status) {
  return IsEndOfData(status) || status.code() == absl::StatusCode::kCancelled ||
         status.code() == absl::StatusCode::kAborted;
}

// The message as the program wrote it. The wire escapes control characters, newlines included, so a
// traceback arrives in one line. A message that has a newline did not come from the wire.
std::string WithNewlines(absl::string_view message) {
  if (absl::StrContains(message, '\n')) return std::string(message);
  return absl::StrReplaceAll(message, {{"\\x0a", "\n"}});
}

}  // namespace

void Raise(const absl::Status& status) {
  const std::string message = WithNewlines(status.message());
  const py::object error = Module("_errors").attr("make")(
      absl::StatusCodeToString(status.code()),
      py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace")),
      CarriedStatus{status});
  PyErr_SetObject(py::type::handle_of(error).ptr(), error.ptr());
  throw py::error_already_set();
}

absl::Status StatusOf(py::error_already_set& error) {
  error.restore();
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != nullptr) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  const py::object exception = py::reinterpret_steal<py::object>(value);
  absl::Status carried;
  if (py::hasattr(exception, "_status")) {
    const py::object status = exception.attr("_status");
    if (py::isinstance<CarriedStatus>(status)) carried = status.cast<CarriedStatus&>().status;
  }
  if (!carried.ok() && Steers(carried)) return carried;
  const py::tuple described = Module("_errors").attr("describe")(exception);
  const auto text = described[1].cast<std::string>();
  if (!carried.ok()) return WithMessage(carried, text);
  return absl::Status(static_cast<absl::StatusCode>(described[0].cast<int>()), text);
}

void DefineErrors(py::module_& module) { py::class_<CarriedStatus>(module, "Status"); }

}  // namespace divvy::python
