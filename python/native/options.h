// Optimizers, initializers, the rules of tables, and the specs of variables.
#ifndef DIVVY_PYTHON_NATIVE_OPTIONS_H_
#define DIVVY_PYTHON_NATIVE_OPTIONS_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

void DefineOptimizers(py::module_& module);
void DefineInitializers(py::module_& module);
void DefineSpecs(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_OPTIONS_H_
