// Checkpoints and exports as arrays.
#ifndef DIVVY_PYTHON_NATIVE_LOAD_H_
#define DIVVY_PYTHON_NATIVE_LOAD_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

void DefineLoad(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_LOAD_H_
