// divvy.run, and clusters in this process for tests.
#ifndef DIVVY_PYTHON_NATIVE_PROGRAM_H_
#define DIVVY_PYTHON_NATIVE_PROGRAM_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

void DefineProgram(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_PROGRAM_H_
