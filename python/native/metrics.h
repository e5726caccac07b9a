// Statistics that steps return.
#ifndef DIVVY_PYTHON_NATIVE_METRICS_H_
#define DIVVY_PYTHON_NATIVE_METRICS_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

void DefineMetrics(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_METRICS_H_
