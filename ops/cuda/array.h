// A tensor as the library of a device sees it: an address and plain numbers, without any other type
// of Divvy.
#ifndef DIVVY_OPS_CUDA_ARRAY_H_
#define DIVVY_OPS_CUDA_ARRAY_H_

#include <cstddef>
#include <cstdint>

namespace divvy::cuda {

// The element types, with the same numbers as DType (tensor/dtype.h).
enum class Element : uint8_t {
  kBool,
  kInt8,
  kUInt8,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64
};

constexpr int64_t SizeOf(Element element) {
  switch (element) {
    case Element::kBool:
    case Element::kInt8:
    case Element::kUInt8: return 1;
    case Element::kFloat16:
    case Element::kBFloat16: return 2;
    case Element::kInt32:
    case Element::kFloat32: return 4;
    default: return 8;
  }
}

// A dense, row-major array in the memory of a device.
struct Array {
  static constexpr int kMaxRank = 8;

  // May be null where a method allows it: the array then has one element, `value`.
  void* data = nullptr;
  double value = 0;
  Element element = Element::kFloat32;
  int num_dims = 0;
  int64_t dims[kMaxRank] = {};

  int rank() const { return num_dims; }
  int64_t dim(int axis) const { return dims[axis < 0 ? axis + num_dims : axis]; }
  int64_t size() const { return SizeFrom(0); }
  // The number of elements of one row (a slice along axis 0). REQUIRES: rank() > 0.
  int64_t row_size() const { return SizeFrom(1); }
  size_t size_bytes() const { return static_cast<size_t>(size() * SizeOf(element)); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }

 private:
  int64_t SizeFrom(int axis) const {
    int64_t elements = 1;
    for (; axis < num_dims; ++axis) elements *= dims[axis];
    return elements;
  }
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_ARRAY_H_
