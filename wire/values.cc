#include "wire/values.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/status.h"
#include "wire/text.h"

namespace divvy::wire {
namespace {

// Values are copied in the byte order of the machine.
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

// ---- in -----------------------------------------------------------------------------------------

// Reading a bool that is neither 0 nor 1 is undefined behaviour.
absl::Status CheckBools(const std::string& content) {
  const auto bad = std::find_if(content.begin(), content.end(),
                                [](char byte) { return byte != 0 && byte != 1; });
  return bad == content.end()
             ? absl::OkStatus()
             : Invalid("content", absl::StrCat("has a bool that is neither 0 nor 1 at ",
                                               bad - content.begin()));
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
  const auto read = [depth_left](const v1::Value& child) {
    return NestFromProto(child, depth_left);
  };
  ASSIGN_OR_RETURN(Nest::List list, ReadAll("list", from.elements(), read));
  return Nest(std::move(list));
}

absl::StatusOr<Nest> DictFromProto(const v1::Value::Dict& from, int depth_left) {
  Nest::Dict dict;
  for (const auto& [key, child] : from.entries()) {
    ASSIGN_OR_RETURN(Nest nest, In(absl::StrCat("dict[\"", Escaped(key, kMaxNameBytes), "\"]"),
                                   NestFromProto(child, depth_left)));
    dict.emplace(key, std::move(nest));
  }
  return Nest(std::move(dict));
}

absl::StatusOr<Nest> FailedFromProto(const v1::Status& error) {
  const absl::Status status = FromProto(error);
  if (status.ok()) return Invalid("", "is OK");
  return Nest::Failed(status);
}

template <typename T>
absl::StatusOr<Nest> Leaf(absl::StatusOr<T> value) {
  RETURN_IF_ERROR(value.status());
  return Nest(*std::move(value));
}

absl::StatusOr<Nest> NestFromProto(const v1::Value& value, int depth_left) {
  // An error may lie one level deeper: it replaces a value that was too deep.
  if (depth_left == 0 && !value.has_error())
    return Invalid("", absl::StrCat("is more than ", kMaxNestDepth, " deep"));
  switch (value.kind_case()) {
    case v1::Value::kTensor: return Leaf(In("tensor", FromProto(value.tensor())));
    case v1::Value::kText: return Nest(value.text());
    case v1::Value::kSlices: return Leaf(In("slices", SlicesFromProto(value.slices())));
    case v1::Value::kHandle: return Nest(PerWorkerHandle{value.handle()});
    case v1::Value::kList: return ListFromProto(value.list(), depth_left - 1);
    case v1::Value::kDict: return DictFromProto(value.dict(), depth_left - 1);
    case v1::Value::kError: return In("error", FailedFromProto(value.error()));
    case v1::Value::KIND_NOT_SET: break;
  }
  return Invalid("", "has no kind, or one of a newer protocol");
}

// ---- out ----------------------------------------------------------------------------------------

void ErrorToProto(const absl::Status& error, v1::Value& out) {
  *out.mutable_error() = ToProto(error);
}

void CannotTravel(absl::string_view why, v1::Value& out) {
  ErrorToProto(absl::InvalidArgumentError(absl::StrCat("a value cannot be sent: ", why)), out);
}

void TensorToProto(const Tensor& tensor, v1::Value& out) {
  if (!IsOnCpu(tensor))
    return CannotTravel(
        absl::StrCat("a tensor is on ", tensor.device().ToString(), ". Use To(Device()) first"),
        out);
  *out.mutable_tensor() = ToProto(tensor);
}

void SlicesToProto(const IndexedSlices& slices, v1::Value& out) {
  if (!IsOnCpu(slices.ids) || !IsOnCpu(slices.rows))
    return CannotTravel("indexed slices are not on the CPU. Use To(Device()) first", out);
  *out.mutable_slices()->mutable_ids() = ToProto(slices.ids);
  *out.mutable_slices()->mutable_rows() = ToProto(slices.rows);
  out.mutable_slices()->set_num_rows(slices.num_rows);
}

void NestToProto(const Nest& nest, int depth_left, v1::Value& out);

void ListToProto(const Nest::List& list, int depth_left, v1::Value::List& out) {
  for (const Nest& child : list) NestToProto(child, depth_left, *out.add_elements());
}

void DictToProto(const Nest::Dict& dict, int depth_left, v1::Value& out) {
  // protobuf would refuse the whole message for one such key.
  const auto bad = std::find_if(dict.begin(), dict.end(),
                                [](const auto& entry) { return !IsUtf8(entry.first); });
  if (bad != dict.end())
    return CannotTravel(absl::StrCat("the key \"", Escaped(bad->first, kMaxNameBytes),
                                     "\" is not UTF-8. Rename it"),
                        out);
  auto& entries = *out.mutable_dict()->mutable_entries();
  for (const auto& [key, child] : dict) NestToProto(child, depth_left, entries[key]);
}

void NestToProto(const Nest& nest, int depth_left, v1::Value& out) {
  if (depth_left == 0)
    return CannotTravel(absl::StrCat("it has more than ", kMaxNestDepth,
                                     " lists and dicts within each other. Make it flatter"),
                        out);
  switch (nest.kind()) {
    case Nest::Kind::kFailed: return ErrorToProto(nest.status(), out);
    case Nest::Kind::kTensor: return TensorToProto(*nest.tensor(), out);
    case Nest::Kind::kIndexedSlices: return SlicesToProto(*nest.indexed_slices(), out);
    case Nest::Kind::kText: out.set_text(*nest.text()); return;
    case Nest::Kind::kHandle: out.set_handle(nest.handle()->id); return;
    case Nest::Kind::kList: return ListToProto(*nest.list(), depth_left - 1, *out.mutable_list());
    case Nest::Kind::kDict: return DictToProto(*nest.dict(), depth_left - 1, out);
  }
}

}  // namespace

v1::DType ToProto(DType dtype) { return kDTypes.ToWire(dtype); }
absl::StatusOr<DType> FromProto(v1::DType dtype) { return kDTypes.ToDomain(dtype); }

void ToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* out) {
  out->Assign(shape.dims().begin(), shape.dims().end());
}

absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& dims,
                                     DType dtype) {
  if (dims.size() > Shape::kMaxRank)
    return Invalid(
        "", absl::StrCat("has ", dims.size(), " dimensions, more than ", int{Shape::kMaxRank}));
  for (int i = 0; i < dims.size(); ++i)
    RETURN_IF_ERROR(CheckNotNegative(absl::StrCat("[", i, "]"), dims[i]));
  const Shape shape(absl::MakeConstSpan(dims.data(), dims.size()));
  int64_t bytes;
  if (!shape.status().ok() ||
      __builtin_mul_overflow(shape.num_elements(), DTypeSize(dtype), &bytes))
    return Invalid("", "means more than 2^63 bytes");
  return shape;
}

v1::TensorValue ToProto(const Tensor& tensor) {
  v1::TensorValue out;
  out.set_dtype(ToProto(tensor.dtype()));
  ToProto(tensor.shape(), out.mutable_shape());
  if (tensor.size_bytes() > 0) out.set_content(tensor.data(), tensor.size_bytes());
  return out;
}

absl::StatusOr<Tensor> FromProto(const v1::TensorValue& tensor) {
  DIVVY_ASSIGN_OR_RETURN(const DType dtype, In("dtype", FromProto(tensor.dtype())));
  ASSIGN_OR_RETURN(const Shape shape, In("shape", ShapeFromProto(tensor.shape(), dtype)));
  const int64_t bytes = shape.num_elements() * DTypeSize(dtype);
  if (static_cast<int64_t>(tensor.content().size()) != bytes) {
    return Invalid("content",
                   absl::StrCat("has ", tensor.content().size(), " bytes, and ", DTypeName(dtype),
                                " ", shape.ToString(), " has ", bytes));
  }
  if (dtype == DType::kBool) RETURN_IF_ERROR(CheckBools(tensor.content()));
  ASSIGN_OR_RETURN(Tensor out, Tensor::Uninitialized(dtype, shape));
  if (bytes > 0) std::memcpy(out.fresh_data<char>(), tensor.content().data(), bytes);
  return out;
}

void ToProto(const Nest& nest, v1::Value* out) {
  out->Clear();
  NestToProto(nest, kMaxNestDepth, *out);
}

absl::StatusOr<Nest> FromProto(const v1::Value& value) {
  return NestFromProto(value, kMaxNestDepth);
}

}  // namespace divvy::wire
