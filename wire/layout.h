// Conversions of variables, their shards and the layout.
#ifndef DIVVY_WIRE_LAYOUT_H_
#define DIVVY_WIRE_LAYOUT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "initializers/initializer.h"
#include "kernels/write_op.h"
#include "proto/divvy.pb.h"
#include "protocol/messages.h"
#include "variables/layout.h"

namespace divvy::wire {

// Pure, thread-safe. FromProto returns InvalidArgument with Reason::kInvalid, which names the
// field.

v1::ShardKey ToProto(ShardKey key);
absl::StatusOr<ShardKey> FromProto(const v1::ShardKey& key);

v1::WriteOp ToProto(WriteOp op);
absl::StatusOr<WriteOp> FromProto(v1::WriteOp op);

// REQUIRES: EvaluatedPerRow(initializer). Another initializer is sent as "not set", which the
// receiver refuses. Whether an initializer fits a variable is checked with its ShardSpec.
v1::Initializer ToProto(const Initializer& initializer);
absl::StatusOr<Initializer> FromProto(const v1::Initializer& initializer);

// FromProto checks that the rows lie within the whole, and checks names, types and the initializer.
v1::ShardSpec ToProto(const ShardSpec& spec);
absl::StatusOr<ShardSpec> FromProto(const v1::ShardSpec& spec);

// FromProto checks that the offsets cover the shape and match the list of ps, and that each slot
// names its optimizer.
v1::VariableLayout ToProto(const VariableLayout& variable);
absl::StatusOr<VariableLayout> FromProto(const v1::VariableLayout& variable);

// ToProto REQUIRES a layout that is not null. FromProto returns a layout that is not null and has
// the hash that was sent.
v1::Layout ToProto(const std::shared_ptr<const Layout>& layout);
absl::StatusOr<std::shared_ptr<const Layout>> FromProto(const v1::Layout& layout);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_LAYOUT_H_
