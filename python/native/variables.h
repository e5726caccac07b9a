// Variables and tables, in steps and in the program.
#ifndef DIVVY_PYTHON_NATIVE_VARIABLES_H_
#define DIVVY_PYTHON_NATIVE_VARIABLES_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

void DefineVariables(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_VARIABLES_H_
