#include "python/native/values.h"

#include <pybind11/stl.h>

#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "python/native/errors.h"
#include "python/native/modules.h"
#include "strategy/metrics.h"

namespace divvy::python {
namespace {

// Arrays that no tensor borrows any more. Never destroyed.
struct ReturnedArrays {
  Mutex mu;
  std::vector<PyObject*> arrays DIVVY_GUARDED_BY(mu);
};
ReturnedArrays& Returned() {
  static ReturnedArrays* const returned = new ReturnedArrays();
  return *returned;
}

// Not of a subclass, such as numpy.ma's, whose data may mean something else.
bool IsPlainArray(py::handle value) {
  return Py_TYPE(value.ptr()) == py::detail::npy_api::get().PyArray_Type_;
}

std::string TypeName(py::handle value) {
  return py::str(py::type::handle_of(value).attr("__name__")).cast<std::string>();
}

// Not py::dtype::itemsize(): Debian's pybind11 reads it from where NumPy 1 had it.
int64_t ItemSize(const py::dtype& dtype) { return dtype.attr("itemsize").cast<int64_t>(); }

std::optional<DType> KnownDType(const py::dtype& dtype) {
  switch (dtype.kind()) {
    case 'b': return DType::kBool;
    case 'i':
      switch (ItemSize(dtype)) {
        case 1: return DType::kInt8;
        case 4: return DType::kInt32;
        case 8: return DType::kInt64;
      }
      return std::nullopt;
    case 'u': return ItemSize(dtype) == 1 ? std::optional(DType::kUInt8) : std::nullopt;
    case 'f':
      switch (ItemSize(dtype)) {
        case 2: return DType::kFloat16;
        case 4: return DType::kFloat32;
        case 8: return DType::kFloat64;
      }
      return std::nullopt;
  }
  if (py::str(dtype.attr("name")).cast<std::string>() == "bfloat16") return DType::kBFloat16;
  return std::nullopt;
}

Shape ShapeOf(const py::array& array, const std::string& what) {
  const std::vector<int64_t> dims(array.shape(), array.shape() + array.ndim());
  Shape shape(absl::MakeConstSpan(dims));
  if (!shape.status().ok())
    throw py::type_error(absl::StrCat(what, ": ", shape.status().message()));
  return shape;
}

Tensor Borrowed(const py::array& array, DType dtype, const Shape& shape) {
  // A chief lends arrays, too, and no step of it would ever free them.
  FreeReturnedArrays();
  PyObject* const held = array.inc_ref().ptr();
  absl::StatusOr<Tensor> tensor = Tensor::Borrow(dtype, shape, array.data(), Device(), [held] {
    MutexLock lock(Returned().mu);
    Returned().arrays.push_back(held);
  });
  if (!tensor.ok()) {
    array.dec_ref();
    Raise(tensor.status());
  }
  return *std::move(tensor);
}

constexpr char kOwner[] = "divvy.Tensor";  // the name of the capsules that own arrays of ArrayOf

// The tensor of which `array` has all elements, if ArrayOf made the array or it is a view of such a
// one: NumPy lets nobody make these writable. Nullopt: the values must be copied. A part would keep
// the whole in memory, uncounted.
std::optional<Tensor> Shared(const py::array& array, DType dtype, const Shape& shape) {
  if (array.writeable()) return std::nullopt;
  py::object owner = array.base();
  while (owner && py::isinstance<py::array>(owner))
    owner = py::reinterpret_borrow<py::array>(owner).base();
  if (!owner || PyCapsule_IsValid(owner.ptr(), kOwner) == 0) return std::nullopt;
  const auto& tensor = *static_cast<const Tensor*>(PyCapsule_GetPointer(owner.ptr(), kOwner));
  // The addresses differ if somebody has given the array other memory (ndarray.__setstate__).
  if (array.data() != tensor.data() || dtype != tensor.dtype() ||
      shape.num_elements() != tensor.shape().num_elements())
    return std::nullopt;
  return ValueOf(tensor.Reshape(shape));
}

// A view of another type may have bytes that are no bool.
void MakeBools(bool* values, int64_t n) {
  auto* const bytes = reinterpret_cast<unsigned char*>(values);
  for (int64_t i = 0; i < n; ++i) bytes[i] = bytes[i] != 0;
}

Tensor OfArray(py::array array, const std::string& what, Passing passing) {
  const std::optional<DType> dtype = KnownDType(array.dtype());
  if (!dtype) {
    throw py::type_error(absl::StrCat(
        what, " has dtype ", py::str(array.dtype()).cast<std::string>(),
        ", which no tensor holds: convert it by .astype to bool, int8, uint8, int32, int64, "
        "float16, bfloat16, float32 or float64"));
  }
  // Contiguous, aligned, and in the byte order of this machine.
  if (!(array.flags() & py::array::c_style) || !(array.flags() & 0x0100) ||
      !array.dtype().attr("isnative").cast<bool>()) {
    array = py::reinterpret_borrow<py::array>(Module("_values").attr("contiguous")(array));
    if (*dtype != DType::kBool) passing = Passing::kBorrowed;  // nobody else has this copy
  }
  const Shape shape = ShapeOf(array, what);
  if (std::optional<Tensor> shared = Shared(array, *dtype, shape)) return *std::move(shared);
  if (passing == Passing::kBorrowed && *dtype != DType::kBool && array.size() > 0)
    return Borrowed(array, *dtype, shape);
  Tensor tensor = ValueOf(Tensor::Uninitialized(*dtype, shape));
  if (tensor.size_bytes() > 0)
    std::memcpy(tensor.fresh_data<char>(), array.data(), static_cast<size_t>(tensor.size_bytes()));
  if (*dtype == DType::kBool) MakeBools(tensor.fresh_data<bool>(), shape.num_elements());
  return tensor;
}

py::dtype NumpyDType(DType dtype) { return py::dtype(std::string(DTypeName(dtype))); }

Tensor BFloat16AsFloat(const Tensor& tensor) {
  Tensor floats = ValueOf(Tensor::Uninitialized(DType::kFloat32, tensor.shape()));
  const auto* const from = tensor.data_as<BFloat16>();
  auto* const to = floats.fresh_data<float>();
  for (int64_t i = 0; i < tensor.shape().num_elements(); ++i) to[i] = from[i].ToFloat();
  return floats;
}

std::string TextOf(py::handle text, const std::string& path) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) {
    PyErr_Clear();
    throw py::type_error(
        absl::StrCat(path, " is a text with a lone surrogate, which has no UTF-8"));
  }
  return std::string(data, static_cast<size_t>(size));
}

Nest NestOfDict(const py::dict& dict, const std::string& path, int depth);
Nest NestAt(py::handle value, const std::string& path, int depth);

constexpr int kMostDepth = 20;  // wire/values.h allows 24, of which a step takes some

Nest NestOfDict(const py::dict& dict, const std::string& path, int depth) {
  Nest::Dict nest;
  for (const auto& [key, child] : dict) {
    if (!py::isinstance<py::str>(key))
      throw py::type_error(absl::StrCat(path, " is a dict with the key ",
                                        py::repr(key).cast<std::string>(),
                                        ": only texts are keys of what travels"));
    const std::string text = TextOf(key, path);
    nest.emplace(text, NestAt(child, absl::StrCat(path, "['", text, "']"), depth + 1));
  }
  return Nest(std::move(nest));
}

Nest NestAt(py::handle value, const std::string& path, int depth) {
  if (depth > kMostDepth)
    throw py::type_error(absl::StrCat(path.substr(0, 200), "... is nested more than ", kMostDepth,
                                      " deep, or contains itself"));
  if (IsPlainArray(value)) return Nest(TensorOf(value, path));
  if (py::isinstance<py::str>(value)) return Nest(TextOf(value, path));
  if (py::isinstance<py::dict>(value))
    return NestOfDict(py::reinterpret_borrow<py::dict>(value), path, depth);
  if (py::isinstance<py::list>(value) || PyTuple_CheckExact(value.ptr()) ||
      (py::isinstance<py::tuple>(value) && !py::hasattr(value, "_divvy_slices"))) {
    Nest::List list;
    for (const py::handle child : value)
      list.push_back(NestAt(child, absl::StrCat(path, "[", list.size(), "]"), depth + 1));
    return Nest(std::move(list));
  }
  if (py::isinstance<Metric>(value)) return NestCodec<Metric>::Encode(value.cast<Metric&>());
  if (py::hasattr(value, "_divvy_slices")) {
    const py::tuple slices = value.attr("_divvy_slices")();
    return Nest(IndexedSlices{TensorOf(slices[0], path + ".ids"),
                              TensorOf(slices[1], path + ".rows"), slices[2].cast<int64_t>()});
  }
  return Nest(TensorOf(value, path));
}

bool IsMetric(const Nest& nest) {
  const Nest::Dict* const dict = nest.dict();
  return dict != nullptr && dict->size() == 2 && dict->count("kind") == 1 &&
         dict->count("sums") == 1 && nest["kind"].kind() == Nest::Kind::kText;
}

}  // namespace

void FreeReturnedArrays() {
  std::vector<PyObject*> arrays;
  {
    MutexLock lock(Returned().mu);
    arrays.swap(Returned().arrays);
  }
  for (PyObject* const array : arrays) Py_DECREF(array);
}

Tensor TensorOf(py::handle value, const std::string& what, Passing passing) {
  if (IsPlainArray(value)) return OfArray(py::reinterpret_borrow<py::array>(value), what, passing);
  if (PyBool_Check(value.ptr())) return Tensor::Scalar<bool>(value.ptr() == Py_True);
  if (PyLong_Check(value.ptr())) {
    const int64_t number = PyLong_AsLongLong(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      throw py::type_error(absl::StrCat(what, " is an int of more than 64 bits"));
    }
    return Tensor::Scalar<int64_t>(number);
  }
  if (PyFloat_CheckExact(value.ptr())) return Tensor::Scalar<double>(PyFloat_AsDouble(value.ptr()));
  const py::object array = Module("_values").attr("as_array")(value, what);
  if (array.is_none()) {
    throw py::type_error(absl::StrCat(
        what, " is a ", TypeName(value),
        ", which cannot travel: use numbers, texts, NumPy arrays, and dicts and lists of these"));
  }
  // as_array made it for this call, or it shares the memory of `value`.
  return OfArray(py::reinterpret_borrow<py::array>(array), what, passing);
}

Tensor TensorOf(py::handle value, DType dtype, const std::string& what, Passing passing) {
  const bool is_array = py::isinstance<py::array>(value) || py::hasattr(value, "__dlpack__") ||
                        py::hasattr(value, "detach") || py::hasattr(value, "__array__");
  if (is_array) return TensorOf(value, what, passing);
  const py::object array =
      Module("_values").attr("numbers_as")(value, std::string(DTypeName(dtype)), what);
  return OfArray(py::reinterpret_borrow<py::array>(array), what, Passing::kCopied);
}

py::array ArrayOf(const Tensor& given) {
  Tensor tensor = ValueOf(WithoutGil([&] { return given.To(Device()); }));
  py::object dtype;
  if (tensor.dtype() == DType::kBFloat16) {
    dtype = Module("_values").attr("bfloat16")();
    if (dtype.is_none()) tensor = BFloat16AsFloat(tensor);
  }
  if (!dtype || dtype.is_none()) dtype = NumpyDType(tensor.dtype());
  const auto dims = tensor.shape().dims();
  const std::vector<py::ssize_t> shape(dims.begin(), dims.end());
  // Given here for the same reason as ItemSize.
  std::vector<py::ssize_t> strides(shape.size(), DTypeSize(tensor.dtype()));
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  auto held = std::make_unique<Tensor>(tensor);
  const py::capsule owner(held.release(), kOwner, [](PyObject* capsule) {
    delete static_cast<Tensor*>(PyCapsule_GetPointer(capsule, kOwner));
  });
  py::array array(py::reinterpret_borrow<py::dtype>(dtype), shape, strides, tensor.data(), owner);
  py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

Nest NestOf(py::handle value, const std::string& path) { return NestAt(value, path, 0); }

py::object ObjectOf(const Nest& nest) {
  switch (nest.kind()) {
    case Nest::Kind::kFailed: Raise(nest.status());
    case Nest::Kind::kTensor: {
      const Tensor tensor = *nest.tensor();
      if (tensor.shape().rank() > 0) return ArrayOf(tensor);
      if (tensor.dtype() == DType::kBool) return py::bool_(*tensor.scalar<bool>());
      if (tensor.dtype() == DType::kInt64) return py::int_(*tensor.scalar<int64_t>());
      if (tensor.dtype() == DType::kFloat64) return py::float_(*tensor.scalar<double>());
      return ArrayOf(tensor)[py::tuple()];
    }
    case Nest::Kind::kText: {
      const std::string text = *nest.text();
      return py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(
          text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape"));
    }
    case Nest::Kind::kList: {
      py::list list;
      for (const Nest& child : *nest.list()) list.append(ObjectOf(child));
      return std::move(list);
    }
    case Nest::Kind::kDict: {
      if (IsMetric(nest)) {
        if (absl::StatusOr<Metric> metric = NestCodec<Metric>::Decode(nest); metric.ok())
          return py::cast(*std::move(metric));
      }
      py::dict dict;
      for (const auto& [key, child] : *nest.dict()) dict[py::str(key)] = ObjectOf(child);
      return std::move(dict);
    }
    case Nest::Kind::kIndexedSlices: {
      const IndexedSlices slices = *nest.indexed_slices();
      return Module("_values").attr("IndexedSlices")(ArrayOf(slices.ids), ArrayOf(slices.rows),
                                                     slices.num_rows);
    }
    case Nest::Kind::kHandle: throw py::type_error("an iterator is no value");
  }
  return py::none();
}

DType DTypeOfObject(py::handle value) {
  const auto name = Module("_values").attr("dtype_name")(value).cast<std::string>();
  const std::optional<DType> dtype = ParseDType(name);
  if (!dtype || DTypeSize(*dtype) == 0 || *dtype > DType::kFloat64)
    throw py::type_error(
        absl::StrCat("dtype ", name,
                     ": a variable has bool, int8, uint8, int32, int64, float16, bfloat16, "
                     "float32 or float64"));
  return *dtype;
}

void DefineValues(py::module_& module) {
  module.def(
      "round_trip", [](const py::object& value) { return ObjectOf(NestOf(value, "value")); },
      py::arg("value"), "What a value is after it has travelled: what a step gets of an argument.");
}

}  // namespace divvy::python
