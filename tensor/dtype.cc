#include "tensor/dtype.h"

#include "base/half.h"

namespace divvy {
namespace {

struct DTypeRow {
  DType dtype;
  const char* name;
  int64_t size;
};
constexpr DTypeRow kDTypes[] = {
    {DType::kBool, "bool", 1},
    {DType::kInt8, "int8", 1},
    {DType::kUInt8, "uint8", 1},
    {DType::kInt32, "int32", 4},
    {DType::kInt64, "int64", 8},
    {DType::kFloat16, "float16", 2},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kFloat32, "float32", 4},
    {DType::kFloat64, "float64", 8},
    {DType::kComplex64, "complex64", 8},
    {DType::kComplex128, "complex128", 16},
    {DType::kString, "string", 0},
};

}  // namespace

absl::string_view DTypeName(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }

std::optional<DType> ParseDType(absl::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (name == row.name) return row.dtype;
  }
  return std::nullopt;
}

int64_t DTypeSize(DType dtype) { return kDTypes[static_cast<int>(dtype)].size; }

bool IsFloating(DType dtype) { return dtype >= DType::kFloat16 && dtype <= DType::kFloat64; }

bool IsInteger(DType dtype) { return dtype >= DType::kInt8 && dtype <= DType::kInt64; }

Half Half::FromFloat(float value) { return {HalfBits::FromFloat(value).bits}; }
float Half::ToFloat() const { return HalfBits{bits}.ToFloat(); }
BFloat16 BFloat16::FromFloat(float value) { return {BFloat16Bits::FromFloat(value).bits}; }
float BFloat16::ToFloat() const { return BFloat16Bits{bits}.ToFloat(); }

}  // namespace divvy
