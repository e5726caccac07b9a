#include "wire/layout.h"

#include "wire/fields.h"

namespace divvy::wire {
namespace {

constexpr EnumTable<WriteOp, v1::WriteOp, 12> kWriteOps = {{
    {WriteOp::kAssign, v1::ASSIGN},
    {WriteOp::kAdd, v1::ADD},
    {WriteOp::kSub, v1::SUB},
    {WriteOp::kScatterUpdate, v1::SCATTER_UPDATE},
    {WriteOp::kScatterAdd, v1::SCATTER_ADD},
    {WriteOp::kScatterSub, v1::SCATTER_SUB},
    {WriteOp::kScatterMul, v1::SCATTER_MUL},
    {WriteOp::kScatterDiv, v1::SCATTER_DIV},
    {WriteOp::kScatterMin, v1::SCATTER_MIN},
    {WriteOp::kScatterMax, v1::SCATTER_MAX},
    {WriteOp::kGradient, v1::GRADIENT},
    {WriteOp::kEvict, v1::EVICT},
}};

}  // namespace

v1::WriteOp ToProto(WriteOp op) { return kWriteOps.ToWire(op); }
absl::StatusOr<WriteOp> FromProto(v1::WriteOp op) { return kWriteOps.ToDomain(op); }

v1::ShardKey ToProto(ShardKey key) { return Encoded<v1::ShardKey>(key); }
absl::StatusOr<ShardKey> FromProto(const v1::ShardKey& key) { return Decoded<ShardKey>(key); }

DIVVY_WIRE_CONVERSIONS(Initializer)
DIVVY_WIRE_CONVERSIONS(ShardSpec)
DIVVY_WIRE_CONVERSIONS(VariableLayout)

v1::Layout ToProto(const std::shared_ptr<const Layout>& layout) {
  return Encoded<v1::Layout>(layout);
}
absl::StatusOr<std::shared_ptr<const Layout>> FromProto(const v1::Layout& layout) {
  return Decoded<std::shared_ptr<const Layout>>(layout);
}

}  // namespace divvy::wire
