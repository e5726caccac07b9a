// The element types of tensors.
#ifndef DIVVY_TENSOR_DTYPE_H_
#define DIVVY_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace divvy {

// Tensors hold all of these but the last three. Partitioners know the last three too, since they
// compute sizes from a dtype.
enum class DType : uint8_t {
  kBool,
  kInt8,
  kUInt8,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kString
};

// All functions here are pure and thread-safe. REQUIRES: the DType is one of the enumerators above.
// Code that reads a dtype from outside checks this.

// The name of tf.DType: "float32", "bool", ... The view is valid forever.
absl::string_view DTypeName(DType dtype);
// The inverse of DTypeName; case matters. nullopt: no type has this name.
std::optional<DType> ParseDType(absl::string_view name);

// The number of bytes of one element. A bool has 1. 0 for kString, whose elements have no fixed
// size.
int64_t DTypeSize(DType dtype);
bool IsFloating(DType dtype);  // float16, bfloat16, float32, float64
bool IsInteger(DType dtype);   // int8, uint8, int32, int64; not bool

// IEEE half and bfloat16 are storage formats: convert them to float to compute. FromFloat rounds to
// nearest, ties to even. A value that is too large becomes infinity (for a half: from 65520 on). A
// value that is too small becomes a denormal number or 0. A NaN stays a NaN. ToFloat is exact.
struct Half {
  uint16_t bits = 0;
  static Half FromFloat(float value);
  float ToFloat() const;
};
struct BFloat16 {
  uint16_t bits = 0;
  static BFloat16 FromFloat(float value);
  float ToFloat() const;
};

// The DType of a C++ type: bool, int8_t, uint8_t, int32_t, int64_t, Half, BFloat16, float or
// double. Use it as DTypeOf<float>::value. Another type does not compile.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUInt8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<Half> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::kBFloat16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};

// Calls `visit(T{})` with the C++ type T of `dtype`. Returns `otherwise` for a type that tensors do
// not hold. The result of `visit` must convert to the type of `otherwise`. `otherwise` is evaluated
// on every call, so keep its message short.
//
//   DispatchDType(
//       dtype, [&](auto t) { using T = decltype(t); ...; return OkStatus(); },
//       InvalidArgumentError(...));
template <typename Visit, typename Result>
Result DispatchDType(DType dtype, Visit&& visit, Result otherwise) {
  switch (dtype) {
    case DType::kBool: return visit(bool{});
    case DType::kInt8: return visit(int8_t{});
    case DType::kUInt8: return visit(uint8_t{});
    case DType::kInt32: return visit(int32_t{});
    case DType::kInt64: return visit(int64_t{});
    case DType::kFloat16: return visit(Half{});
    case DType::kBFloat16: return visit(BFloat16{});
    case DType::kFloat32: return visit(float{});
    case DType::kFloat64: return visit(double{});
    default: return otherwise;
  }
}

}  // namespace divvy

#endif  // DIVVY_TENSOR_DTYPE_H_
