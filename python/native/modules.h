// Modules of the package divvy that C++ calls.
#ifndef DIVVY_PYTHON_NATIVE_MODULES_H_
#define DIVVY_PYTHON_NATIVE_MODULES_H_

#include <pybind11/pybind11.h>

#include <string>

namespace divvy::python {

// The module "divvy.NAME". It is imported once and kept: an import by name takes longer than most
// calls, and a record of a dataset needs several. Throws the exception of the import. REQUIRES: the
// GIL is held.
pybind11::handle Module(const std::string& name);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_MODULES_H_
