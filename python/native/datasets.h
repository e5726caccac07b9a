// Datasets, and Python's objects and generators as data.
#ifndef DIVVY_PYTHON_NATIVE_DATASETS_H_
#define DIVVY_PYTHON_NATIVE_DATASETS_H_

#include <pybind11/pybind11.h>

namespace divvy::python {

namespace py = pybind11;

// Also registers the data sources of Python programs: one for each way of sharing the data among
// workers. Their argument is a recipe (divvy/_datasets.py), which each worker follows to make the
// dataset.
void DefineDatasets(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_DATASETS_H_
