#include "wire/values.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/text.h"

namespace divvy::wire {
namespace {

// Values are copied as they lie in memory.
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire is little-endian");

constexpr EnumTable<DType, v1::DType, 9> kDTypes = {{
    {DType::kBool, v1::DT_BOOL},
    {DType::kInt8, v1::DT_INT8},
    {DType::kUInt8, v1::DT_UINT8},
    {DType::kInt32, v1::DT_INT32},
    {DType::kInt64, v1::DT_INT64},
    {DType::kFloat16, v1::DT_FLOAT16},
    {DType::kBFloat16, v1::DT_BFLOAT16},
    {DType::kFloat32, v1::DT_FLOAT32},
    {DType::kFloat64, v1::DT_FLOAT64},
}};

bool IsOnCpu(const Tensor& tensor) { return tensor.device().kind == Device::Kind::kCpu; }

// A bool of another value than 0 and 1 is undefined behaviour to read.
absl::Status CheckBools(const std::string& content) {
  const auto bad = std::find_if(content.begin(), content.end(), [](char byte) { return byte != 0 && byte != 1; });
  return bad == content.end() ? absl::OkStatus() : Invalid("content", absl::StrCat("has a bool that is neither 0 nor 1 at ", bad - content.begin()));
}

absl::StatusOr<IndexedSlices> SlicesFromProto(const v1::Value::IndexedSlices& from) {
  IndexedSlices slices;
  DIVVY_WIRE_READ(slices.ids, from, ids);
  DIVVY_WIRE_READ(slices.rows, from, rows);
  slices.num_rows = from.num_rows();
  RETURN_IF_ERROR(AsInvalid(Validate(slices)));
  return slices;
}

absl::StatusOr<Nest> NestFromProto(const v1::Value& value, int depth_left);

absl::StatusOr<Nest> ListFromProto(const v1::Value::List& from, int depth_left) {
  const auto read = [depth_left](const v1::Value& child) { return NestFromProto(child, depth_left); };
  ASSIGN_OR_RETURN(Nest::List list, ReadAll("list", from.elements(), read));
  return Nest(std::move(list));
}

absl::StatusOr<Nest> DictFromProto(const v1::Value::Dict& from, int depth_left) {
  Nest::Dict dict;
  for (const auto& [key, child] : from.entries()) {
    ASSIGN_OR_RETURN(Nest nest, In(absl::StrCat("dict[\"", Escaped(key, kMaxNameBytes), "\"]"), NestFromProto(child, depth_left)));
    dict.emplace(key, std::move(nest));
  }
  return Nest(std::move(dict));
}

template <typename T>
absl::StatusOr<Nest> Leaf(absl::StatusOr<T> value) {
  RETURN_IF_ERROR(value.status());
  return Nest(*std::move(value));
}

absl::StatusOr<Nest> NestFromProto(const v1::Value& value, int depth_left) {
  if (depth_left == 0) return Invalid("", absl::StrCat("is more than ", kMaxNestDepth, " deep"));
  switch (value.kind_case()) {
    case v1::Value::kTensor: return Leaf(In("tensor", FromProto(value.tensor())));
    case v1::Value::kText: return Nest(value.text());
    case v1::Value::kSlices: return Leaf(In("slices", SlicesFromProto(value.slices())));
    case v1::Value::kHandle: return Nest(PerWorkerHandle{value.handle()});
    case v1::Value::kList: return ListFromProto(value.list(), depth_left - 1);
    case v1::Value::kDict: return DictFromProto(value.dict(), depth_left - 1);
    case v1::Value::KIND_NOT_SET: break;
  }
  return Invalid("", "has no kind, or one of a newer protocol");
}

void SlicesToProto(const IndexedSlices& slices, v1::Value::IndexedSlices& out) {
  *out.mutable_ids() = ToProto(slices.ids);
  *out.mutable_rows() = ToProto(slices.rows);
  out.set_num_rows(slices.num_rows);
}

void NestToProto(const Nest& nest, int depth_left, v1::Value& out);

void ListToProto(const Nest::List& list, int depth_left, v1::Value::List& out) {
  for (const Nest& child : list) NestToProto(child, depth_left, *out.add_elements());
}

void DictToProto(const Nest::Dict& dict, int depth_left, v1::Value& out) {
  v1::Value::Dict& encoded = *out.mutable_dict();
  for (const auto& [key, child] : dict) {
    if (!IsUtf8(key)) return out.clear_dict();   // it would spoil the whole message
    NestToProto(child, depth_left, (*encoded.mutable_entries())[key]);
  }
}

void NestToProto(const Nest& nest, int depth_left, v1::Value& out) {
  if (depth_left == 0) return;
  switch (nest.kind()) {
    case Nest::Kind::kFailed: return;
    case Nest::Kind::kTensor: *out.mutable_tensor() = ToProto(*nest.tensor()); return;
    case Nest::Kind::kIndexedSlices: return SlicesToProto(*nest.indexed_slices(), *out.mutable_slices());
    case Nest::Kind::kText: out.set_text(*nest.text()); return;
    case Nest::Kind::kHandle: out.set_handle(nest.handle()->id); return;
    case Nest::Kind::kList: return ListToProto(*nest.list(), depth_left - 1, *out.mutable_list());
    case Nest::Kind::kDict: return DictToProto(*nest.dict(), depth_left - 1, out);
  }
}

absl::Status CheckTensorTravels(const Tensor& tensor) {
  if (IsOnCpu(tensor)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a tensor on ", tensor.device().ToString(), " cannot travel: use To(Device()) first"));
}

absl::Status CheckNestTravels(const Nest& nest, int depth_left);

absl::Status CheckDictTravels(const Nest::Dict& dict, int depth_left) {
  for (const auto& [key, child] : dict) {
    if (!IsUtf8(key)) return absl::InvalidArgumentError(absl::StrCat("the key \"", Escaped(key), "\" is not UTF-8; rename it"));
    RETURN_IF_ERROR(CheckNestTravels(child, depth_left));
  }
  return absl::OkStatus();
}

absl::Status CheckNestTravels(const Nest& nest, int depth_left) {
  RETURN_IF_ERROR(nest.status());
  if (depth_left == 0) {
    return absl::InvalidArgumentError(absl::StrCat("the value has more than ", kMaxNestDepth, " lists and dicts within each other; make it flatter"));
  }
  if (nest.kind() == Nest::Kind::kTensor) return CheckTensorTravels(*nest.tensor());
  if (nest.kind() == Nest::Kind::kIndexedSlices) {
    RETURN_IF_ERROR(CheckTensorTravels(nest.indexed_slices()->ids));
    return CheckTensorTravels(nest.indexed_slices()->rows);
  }
  if (nest.dict() != nullptr) return CheckDictTravels(*nest.dict(), depth_left - 1);
  if (nest.list() == nullptr) return absl::OkStatus();
  for (const Nest& child : *nest.list()) RETURN_IF_ERROR(CheckNestTravels(child, depth_left - 1));
  return absl::OkStatus();
}

}  // namespace

v1::DType ToProto(DType dtype) { return kDTypes.ToWire(dtype); }
absl::StatusOr<DType> FromProto(v1::DType dtype) { return kDTypes.ToDomain(dtype); }

void ToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* out) { out->Assign(shape.dims().begin(), shape.dims().end()); }

absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& dims, DType dtype) {
  if (dims.size() > Shape::kMaxRank) return Invalid("", absl::StrCat("has ", dims.size(), " dimensions, more than ", int{Shape::kMaxRank}));
  for (int i = 0; i < dims.size(); ++i) RETURN_IF_ERROR(CheckNotNegative(absl::StrCat("[", i, "]"), dims[i]));
  const Shape shape(absl::MakeConstSpan(dims.data(), dims.size()));
  int64_t bytes;
  if (!shape.status().ok() || __builtin_mul_overflow(shape.num_elements(), DTypeSize(dtype), &bytes)) return Invalid("", "means more than 2^63 bytes");
  return shape;
}

v1::TensorValue ToProto(const Tensor& tensor) {
  v1::TensorValue out;
  out.set_dtype(ToProto(tensor.dtype()));
  ToProto(tensor.shape(), out.mutable_shape());
  if (tensor.size_bytes() > 0 && IsOnCpu(tensor)) out.set_content(tensor.data(), tensor.size_bytes());
  return out;
}

absl::StatusOr<Tensor> FromProto(const v1::TensorValue& tensor) {
  DIVVY_ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(tensor.dtype())));
  ASSIGN_OR_RETURN(const Shape shape, In("shape", ShapeFromProto(tensor.shape(), dtype)));
  const int64_t bytes = shape.num_elements() * DTypeSize(dtype);
  if (static_cast<int64_t>(tensor.content().size()) != bytes) {
    return Invalid("content", absl::StrCat("has ", tensor.content().size(), " bytes, and ", DTypeName(dtype), " ", shape.ToString(), " has ", bytes));
  }
  if (dtype == DType::kBool) RETURN_IF_ERROR(CheckBools(tensor.content()));
  ASSIGN_OR_RETURN(Tensor out, Tensor::Uninitialized(dtype, shape));
  if (bytes > 0) std::memcpy(out.fresh_data<char>(), tensor.content().data(), bytes);
  return out;
}

absl::Status CheckTravels(const Nest& nest) { return CheckNestTravels(nest, kMaxNestDepth); }

void ToProto(const Nest& nest, v1::Value* out) {
  out->Clear();
  NestToProto(nest, kMaxNestDepth, *out);
}

absl::StatusOr<Nest> FromProto(const v1::Value& value) { return NestFromProto(value, kMaxNestDepth); }

}  // namespace divvy::wire
