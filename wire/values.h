// Tensors and trees of them: a step's arguments and value. (Parameters travel on the data streams
// instead: data_frames.h.)
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
// Reason::kInvalid, naming the field, and allocates no more than the message's own size.

v1::DType ToProto(DType dtype);  // DT_NONE for a type that tensors do not hold
absl::StatusOr<DType> FromProto(v1::DType dtype);

// At most 8 dimensions, none negative, fewer than 2^63 elements and, of `dtype`, bytes.
void ToProto(const Shape& shape, google::protobuf::RepeatedField<int64_t>* out);
absl::StatusOr<Shape> ShapeFromProto(const google::protobuf::RepeatedField<int64_t>& dims,
                                     DType dtype);

// REQUIRES: on the CPU.
v1::TensorValue ToProto(const Tensor& tensor);
absl::StatusOr<Tensor> FromProto(const v1::TensorValue& tensor);

// Lists and dicts within each other; a leaf by itself is 1 deep. protobuf parses 100 messages
// within each other, and a dict takes three of them.
constexpr int kMaxNestDepth = 24;

// Total: what has failed travels as its error. So does, with InvalidArgument for the value's
// author, what cannot travel: a list or dict beyond kMaxNestDepth, a dict with a key that is no
// UTF-8, a tensor that is not on the CPU. It arrives as a failed Nest, and a step that is given it
// fails with that error.
void ToProto(const Nest& nest, v1::Value* out);
absl::StatusOr<Nest> FromProto(const v1::Value& value);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_VALUES_H_
