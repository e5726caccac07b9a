// Element types of tensors.
#ifndef DIVVY_TENSOR_DTYPE_H_
#define DIVVY_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace divvy {

// Tensors hold all but the last three, which only partitioners know (for their sizes).
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

// All functions here are pure and thread-safe. REQUIRES: a DType that has a name above (what came
// from outside has been checked where it was read).

// "float32", "bool", ...: the names of tf.DType. Valid forever.
absl::string_view DTypeName(DType dtype);
// The inverse, letter by letter. Nullopt: no type of these is called so.
std::optional<DType> ParseDType(absl::string_view name);

// Bytes of one element (bool: 1); 0 for kString, whose elements have no fixed size.
int64_t DTypeSize(DType dtype);
bool IsFloating(DType dtype);  // the four real floating types
bool IsInteger(DType dtype);   // int8 to int64; not bool

// IEEE half and bfloat16 as storage: convert to float to compute. FromFloat rounds to nearest, ties
// to even; what is too large becomes infinity (a half: from 65520 on), what is too small a denormal
// number or 0, NaN stays NaN. ToFloat is exact.
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

// The DType of a C++ type: bool, int8_t, uint8_t, int32_t, int64_t, Half, BFloat16, float, double.
// No other type compiles: DTypeOf<float>::value.
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

// Calls `visit(T{})` with the C++ type of `dtype`; returns `otherwise` for a type tensors do not
// hold. `visit` returns what converts to the type of `otherwise`, which is made whether it is
// needed or not: keep a message there short.
//   DispatchDType(dtype, [&](auto t) { using T = decltype(t); ...; return OkStatus(); },
//   InvalidArgumentError(...));
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
