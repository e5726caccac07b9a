#include "tensor/dtype.h"

#include <cmath>
#include <cstring>

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

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

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

Half Half::FromFloat(float value) {
  const uint32_t bits = BitsOf(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};   // NaN
  if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};  // rounds to infinity
  if (magnitude < 0x38800000u) {                                                 // subnormal: adding 0.5 aligns and rounds the mantissa
    return {static_cast<uint16_t>(sign | (BitsOf(FromBits(magnitude) + 0.5f) - BitsOf(0.5f)))};
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

float Half::ToFloat() const {
  const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) return FromBits(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude < 0x400u) return std::copysign(static_cast<float>(magnitude) * 0x1.0p-24f, FromBits(sign));
  return FromBits(sign | ((magnitude << 13) + 0x38000000u));
}

BFloat16 BFloat16::FromFloat(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};  // NaN stays one
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

float BFloat16::ToFloat() const { return FromBits(static_cast<uint32_t>(bits) << 16); }

}  // namespace divvy
