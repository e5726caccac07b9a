// Python functions as registered steps.
#ifndef DIVVY_PYTHON_NATIVE_STEPS_H_
#define DIVVY_PYTHON_NATIVE_STEPS_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

// Beside the function's own arguments, a Python step has one more at the end: whether a loop
// (run_epoch, run_until) runs it, whose result must be Metrics.
void DefineSteps(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_STEPS_H_
