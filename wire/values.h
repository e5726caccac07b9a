// Conversions of tensors and of trees of them: a step's arguments and value. Parameters travel on
// the data streams (data_frames.h).
#ifndef DIVVY_WIRE_VALUES_H_
#define DIVVY_WIRE_VALUES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "proto/divvy.pb.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy::wire {

// All functions here are pure and thread-safe. FromProto returns InvalidArgument with
// Reason::kInvalid, which names the field. It allocates no more than the message's own size.

// DT_NONE for a dtype that tensors cannot have.
v1::DType ToProto(DType dtype);
absl::StatusOr<DType> FromProto(v1::DType dtype);

// ShapeFromProto accepts at most 8 dimensions, none negative, and fewer than 2^63 elements and
// bytes of `dtype`.
void ToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* out);
absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& dims,
                                     DType dtype);

// REQUIRES: the tensor lies on the CPU.
v1::TensorValue ToProto(const Tensor& tensor);
absl::StatusOr<Tensor> FromProto(const v1::TensorValue& tensor);

// The deepest nesting of lists and dicts; a leaf alone has depth 1. protobuf parses at most 100
// nested messages, and a dict takes three of them.
constexpr int kMaxNestDepth = 24;

// ToProto accepts any value. A failed Nest is sent as its error. A value that cannot be sent
// becomes an InvalidArgument error: a list or dict deeper than kMaxNestDepth, a dict with a key
// that is not UTF-8, a tensor that is not on the CPU. The receiver gets a failed Nest, and a step
// that has it as an argument fails with that error.
void ToProto(const Nest& nest, v1::Value* out);
absl::StatusOr<Nest> FromProto(const v1::Value& value);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_VALUES_H_
