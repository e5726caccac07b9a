#include "wire/layout.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/optimizer.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

using Fan = VarianceScaling::Fan;
using Distribution = VarianceScaling::Distribution;

constexpr EnumTable<WriteOp, v1::WriteOp, 11> kWriteOps = {{
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
}};

constexpr EnumTable<Fan, v1::Initializer::VarianceScaling::Fan, 3> kFans = {{
    {Fan::kIn, v1::Initializer::VarianceScaling::FAN_IN},
    {Fan::kOut, v1::Initializer::VarianceScaling::FAN_OUT},
    {Fan::kAverage, v1::Initializer::VarianceScaling::FAN_AVERAGE},
}};

constexpr EnumTable<Distribution, v1::Initializer::VarianceScaling::Distribution, 2> kDistributions = {{
    {Distribution::kUniform, v1::Initializer::VarianceScaling::UNIFORM},
    {Distribution::kTruncatedNormal, v1::Initializer::VarianceScaling::TRUNCATED_NORMAL},
}};

// Zero means kNone here: a variable without an aggregation is complete.
constexpr EnumTable<VariableAggregation, v1::Aggregation, 4> kAggregations = {{
    {VariableAggregation::kNone, v1::AGGREGATION_NONE},
    {VariableAggregation::kSum, v1::AGGREGATION_SUM},
    {VariableAggregation::kMean, v1::AGGREGATION_MEAN},
    {VariableAggregation::kOnlyFirstReplica, v1::AGGREGATION_ONLY_FIRST_REPLICA},
}};

constexpr EnumTable<SlotSpec::Kind, v1::SlotSpec::Kind, 3> kSlotKinds = {{
    {SlotSpec::Kind::kValues, v1::SlotSpec::SLOT_VALUES},
    {SlotSpec::Kind::kRowCounts, v1::SlotSpec::SLOT_ROW_COUNTS},
    {SlotSpec::Kind::kRowValues, v1::SlotSpec::SLOT_ROW_VALUES},
}};

// ---- initializers -----------------------------------------------------------------------------------------------------------------------------------

template <typename Law>
void SetNormal(const Law& law, v1::Initializer::RandomNormal& out) {
  out.set_mean(law.mean);
  out.set_stddev(law.stddev);
  out.set_seed(law.seed);
}

struct SetInitializer {
  v1::Initializer& out;
  void operator()(const Constant& law) { out.mutable_constant()->set_value(law.value); }
  void operator()(const RandomUniform& law) {
    v1::Initializer::RandomUniform& to = *out.mutable_random_uniform();
    to.set_low(law.low);
    to.set_high(law.high);
    to.set_seed(law.seed);
  }
  void operator()(const RandomNormal& law) { SetNormal(law, *out.mutable_random_normal()); }
  void operator()(const TruncatedNormal& law) { SetNormal(law, *out.mutable_truncated_normal()); }
  void operator()(const VarianceScaling& law) {
    v1::Initializer::VarianceScaling& to = *out.mutable_variance_scaling();
    to.set_fan(kFans.ToWire(law.fan));
    to.set_distribution(kDistributions.ToWire(law.distribution));
    to.set_scale(law.scale);
    to.set_seed(law.seed);
  }
  void operator()(const Identity& law) { out.mutable_identity()->set_gain(law.gain); }
  template <typename MadeElsewhere>
  void operator()(const MadeElsewhere&) {}
};

absl::StatusOr<Initializer> ScalingFromProto(const v1::Initializer::VarianceScaling& from) {
  VarianceScaling law;
  ASSIGN_OR_RETURN(law.fan, In("fan", kFans.ToDomain(from.fan())));
  ASSIGN_OR_RETURN(law.distribution, In("distribution", kDistributions.ToDomain(from.distribution())));
  law.scale = from.scale();
  law.seed = from.seed();
  return Initializer(law);
}

// ---- shards -----------------------------------------------------------------------------------------------------------------------------------------

// Rows [first, first + shape[0]) of the whole, every other dimension the same.
absl::Status CheckWithin(const ShardSpec& spec) {
  if (spec.shape.rank() != spec.full_shape.rank()) return Invalid("shape", "has another rank than full_shape");
  const int64_t rows = spec.shape.rows(), all = spec.full_shape.rows();
  if (spec.first_row < 0 || rows > all || spec.first_row > all - rows) {
    return Invalid("first_row", absl::StrCat("is ", spec.first_row, ": ", rows, " rows from there are not within ", all));
  }
  for (int axis = 1; axis < spec.shape.rank(); ++axis) {
    if (spec.shape.dim(axis) != spec.full_shape.dim(axis)) return Invalid(absl::StrCat("shape[", axis, "]"), "differs from full_shape's");
  }
  return absl::OkStatus();
}

// ---- layouts ----------------------------------------------------------------------------------------------------------------------------------------

absl::Status CheckOffsets(const VariableLayout& variable) {
  const int64_t rows = variable.spec.shape.rows();
  const std::vector<int64_t>& offsets = variable.offsets;
  if (variable.ps.empty() || variable.ps.size() > size_t{kMaxShards})
    return Invalid("ps", absl::StrCat("names ", variable.ps.size(), " shards, not 1 to 65536"));
  if (offsets.size() != variable.ps.size() + 1) return Invalid("offsets", absl::StrCat("has ", offsets.size(), " for ", variable.ps.size(), " shards"));
  if (offsets.front() != 0 || offsets.back() != rows) return Invalid("offsets", absl::StrCat("do not go from 0 to ", rows));
  if (!std::is_sorted(offsets.begin(), offsets.end())) return Invalid("offsets", "fall");
  return absl::OkStatus();
}

absl::StatusOr<int> PsIndex(uint32_t index) {
  RETURN_IF_ERROR(CheckIndex("", index));
  return static_cast<int>(index);
}

absl::StatusOr<SlotSpec> SlotFromProto(const v1::SlotSpec& from) {
  SlotSpec slot;
  RETURN_IF_ERROR(CheckName("name", from.name()));
  RETURN_IF_ERROR(CheckName("optimizer", from.optimizer()));
  RETURN_IF_ERROR(CheckFinite("initial_value", from.initial_value()));
  ASSIGN_OR_RETURN(slot.kind, In("kind", kSlotKinds.ToDomain(from.kind())));
  slot.name = from.name();
  slot.initial_value = from.initial_value();
  return slot;
}

absl::Status ReadSlots(const v1::VariableLayout& from, VariableLayout& to) {
  constexpr int kMaxSlots = 255;
  if (from.slots_size() > kMaxSlots) return Invalid("slots", absl::StrCat("are ", from.slots_size(), ", more than ", kMaxSlots));
  ASSIGN_OR_RETURN(to.slots, ReadAll("slots", from.slots(), SlotFromProto));
  for (const v1::SlotSpec& slot : from.slots()) to.slot_optimizers.push_back(slot.optimizer());
  return absl::OkStatus();
}

absl::Status ReadSpec(const v1::VariableLayout& from, VariableSpec& to) {
  RETURN_IF_ERROR(CheckName("name", from.name()));
  to.name = from.name();
  DIVVY_WIRE_READ_ENUM(to.dtype, from, dtype);
  ASSIGN_OR_RETURN(to.shape, In("shape", ShapeFromProto(from.shape(), to.dtype)));
  ASSIGN_OR_RETURN(to.aggregation, In("aggregation", kAggregations.ToDomain(from.aggregation())));
  if (from.has_optimizer()) {
    DIVVY_WIRE_READ(to.optimizer, from, optimizer);
  }
  return AsInvalid(Validate(to));
}

}  // namespace

v1::ShardKey ToProto(ShardKey key) {
  v1::ShardKey out;
  out.set_variable(key.variable.value());
  out.set_slot(key.slot);
  out.set_part(key.part);
  return out;
}

absl::StatusOr<ShardKey> FromProto(const v1::ShardKey& key) {
  RETURN_IF_ERROR(CheckRange("slot", key.slot(), 0, 255));
  RETURN_IF_ERROR(CheckRange("part", key.part(), 0, 65535));
  return ShardKey{VariableId(key.variable()), static_cast<uint8_t>(key.slot()), static_cast<uint16_t>(key.part())};
}

v1::WriteOp ToProto(WriteOp op) { return kWriteOps.ToWire(op); }
absl::StatusOr<WriteOp> FromProto(v1::WriteOp op) { return kWriteOps.ToDomain(op); }

v1::Initializer ToProto(const Initializer& initializer) {
  v1::Initializer out;
  std::visit(SetInitializer{out}, initializer);
  return out;
}

absl::StatusOr<Initializer> FromProto(const v1::Initializer& initializer) {
  switch (initializer.kind_case()) {
    case v1::Initializer::kConstant: return Initializer(Constant{initializer.constant().value()});
    case v1::Initializer::kRandomUniform: {
      const v1::Initializer::RandomUniform& law = initializer.random_uniform();
      return Initializer(RandomUniform{law.low(), law.high(), law.seed()});
    }
    case v1::Initializer::kRandomNormal: {
      const v1::Initializer::RandomNormal& law = initializer.random_normal();
      return Initializer(RandomNormal{law.mean(), law.stddev(), law.seed()});
    }
    case v1::Initializer::kTruncatedNormal: {
      const v1::Initializer::RandomNormal& law = initializer.truncated_normal();
      return Initializer(TruncatedNormal{law.mean(), law.stddev(), law.seed()});
    }
    case v1::Initializer::kVarianceScaling: return In("variance_scaling", ScalingFromProto(initializer.variance_scaling()));
    case v1::Initializer::kIdentity: return Initializer(Identity{initializer.identity().gain()});
    case v1::Initializer::KIND_NOT_SET: break;
  }
  return Invalid("", "has no kind, or one of a newer protocol");
}

v1::ShardSpec ToProto(const ShardSpec& spec) {
  v1::ShardSpec out;
  *out.mutable_key() = ToProto(spec.key);
  out.set_name(spec.name);
  out.set_dtype(ToProto(spec.dtype));
  ToProto(spec.shape, out.mutable_shape());
  ToProto(spec.full_shape, out.mutable_full_shape());
  out.set_first_row(spec.first_row);
  *out.mutable_initializer() = ToProto(spec.initializer);
  return out;
}

absl::StatusOr<ShardSpec> FromProto(const v1::ShardSpec& spec) {
  ShardSpec out;
  DIVVY_WIRE_READ(out.key, spec, key);
  RETURN_IF_ERROR(CheckName("name", spec.name()));
  out.name = spec.name();
  DIVVY_WIRE_READ_ENUM(out.dtype, spec, dtype);
  ASSIGN_OR_RETURN(out.shape, In("shape", ShapeFromProto(spec.shape(), out.dtype)));
  ASSIGN_OR_RETURN(out.full_shape, In("full_shape", ShapeFromProto(spec.full_shape(), out.dtype)));
  out.first_row = spec.first_row();
  RETURN_IF_ERROR(CheckWithin(out));
  DIVVY_WIRE_READ(out.initializer, spec, initializer);
  RETURN_IF_ERROR(In("initializer", AsInvalid(Validate(out.initializer, out.full_shape, out.dtype))));
  return out;
}

v1::VariableLayout ToProto(const VariableLayout& variable) {
  v1::VariableLayout out;
  out.set_id(variable.id.value());
  out.set_name(variable.spec.name);
  out.set_dtype(ToProto(variable.spec.dtype));
  ToProto(variable.spec.shape, out.mutable_shape());
  out.set_aggregation(kAggregations.ToWire(variable.spec.aggregation));
  if (variable.spec.optimizer) *out.mutable_optimizer() = ToProto(*variable.spec.optimizer);
  out.mutable_offsets()->Assign(variable.offsets.begin(), variable.offsets.end());
  out.mutable_ps()->Assign(variable.ps.begin(), variable.ps.end());
  for (size_t i = 0; i < variable.slots.size(); ++i) {
    v1::SlotSpec& slot = *out.add_slots();
    slot.set_name(variable.slots[i].name);
    slot.set_kind(kSlotKinds.ToWire(variable.slots[i].kind));
    slot.set_initial_value(variable.slots[i].initial_value);
    slot.set_optimizer(variable.slot_optimizers[i]);
  }
  return out;
}

absl::StatusOr<VariableLayout> FromProto(const v1::VariableLayout& variable) {
  VariableLayout out;
  out.id = VariableId(variable.id());
  RETURN_IF_ERROR(ReadSpec(variable, out.spec));
  out.offsets.assign(variable.offsets().begin(), variable.offsets().end());
  ASSIGN_OR_RETURN(out.ps, ReadAll("ps", variable.ps(), PsIndex));
  RETURN_IF_ERROR(CheckOffsets(out));
  RETURN_IF_ERROR(ReadSlots(variable, out));
  return out;
}

void ToProto(const Layout& layout, v1::Layout* out) {
  out->Clear();
  out->set_version(layout.version());
  out->set_hash(layout.hash());
  for (const auto& [id, variable] : layout.variables()) *out->add_variables() = ToProto(variable);
}

absl::StatusOr<std::shared_ptr<const Layout>> FromProto(const v1::Layout& layout) {
  RETURN_IF_ERROR(CheckCount("variables", layout.variables_size()));
  const auto read = [](const v1::VariableLayout& variable) { return FromProto(variable); };
  ASSIGN_OR_RETURN(std::vector<VariableLayout> list, ReadAll("variables", layout.variables(), read));
  std::map<VariableId, VariableLayout> variables;
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string field = Element("variables", i);
    if (!variables.empty() && !(variables.rbegin()->first < list[i].id)) return Invalid(field + ".id", "does not rise");
    if (!names.insert(list[i].spec.name).second) return Invalid(field + ".name", "is another variable's too");
    const VariableId id = list[i].id;
    variables.emplace_hint(variables.end(), id, std::move(list[i]));
  }
  std::shared_ptr<const Layout> out = Layout::Received(layout.version(), std::move(variables));
  if (out->hash() != layout.hash())
    return Invalid("hash", absl::StrCat("is ", absl::Hex(layout.hash()), ", and these variables have ", absl::Hex(out->hash())));
  return out;
}

}  // namespace divvy::wire
