// Values between Python and C++: NumPy arrays and tensors, nests of Python and Nest.
#ifndef DIVVY_PYTHON_NATIVE_VALUES_H_
#define DIVVY_PYTHON_NATIVE_VALUES_H_

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy::python {

namespace py = pybind11;

// All functions REQUIRE the GIL, and throw Python's exceptions.

// How an array becomes a tensor.
//   kCopied    its values are copied, so the program may change the array afterwards
//   kBorrowed  no copy if the array is contiguous: the caller promises that nobody changes it
// An array that ArrayOf made is never copied, whatever its shape is now: nobody may change it.
enum class Passing { kCopied, kBorrowed };

// The tensor of a number, a NumPy array, or anything that divvy._values.as_array makes an array of
// (a PyTorch tensor, an object with __dlpack__ or __array__). A Python number becomes bool, int64
// or float64. TypeError, which begins with `what`: another object, or a dtype that tensors lack.
Tensor TensorOf(py::handle value, const std::string& what, Passing passing = Passing::kCopied);
// As TensorOf, for a variable of this dtype: Python's numbers, and lists of them, take that dtype.
Tensor TensorOf(py::handle value, DType dtype, const std::string& what,
                Passing passing = Passing::kCopied);
// A read-only array over the tensor's memory, which lives as long as the array. A bfloat16 tensor
// becomes an array of ml_dtypes.bfloat16 where that package is, and of float32 otherwise.
py::array ArrayOf(const Tensor& tensor);

// The Nest of a value that travels: numbers, text, arrays, dicts with text as keys, lists, tuples,
// Metrics and IndexedSlices. TypeError, which names the leaf ("argument 'x'['ids'][2]"): anything
// else, None included.
Nest NestOf(py::handle value, const std::string& path);
// The inverse. A tuple has become a list. A tensor of rank 0 becomes a Python number if it is
// bool, int64 or float64, otherwise a NumPy scalar.
py::object ObjectOf(const Nest& nest);

// The dtype that `value` names: a text, or anything that numpy.dtype takes. TypeError: it is none
// of Divvy's.
DType DTypeOfObject(py::handle value);

// Frees the arrays whose borrowed tensors are gone. Threads without the GIL drop tensors, and only
// the GIL's holder may free an array.
void FreeReturnedArrays();

void DefineValues(py::module_& module);

}  // namespace divvy::python

#endif  // DIVVY_PYTHON_NATIVE_VALUES_H_
