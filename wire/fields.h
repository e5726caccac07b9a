// Describes each message of the unary calls, of the Steps stream and of the job state once: the
// field of each member, and what a decoder refuses. codec.h explains the descriptions. messages.h,
// steps.h, layout.h, optimizer.h and job_state.h have the conversions that are made from them.
// Tensors, values, statuses and the headers of the data streams are converted by hand (values.cc,
// status.cc, data_frames.cc). Used in wire/ only.
#ifndef DIVVY_WIRE_FIELDS_H_
#define DIVVY_WIRE_FIELDS_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "initializers/initializer.h"
#include "optimizers/optimizer.h"
#include "proto/divvy.pb.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "variables/layout.h"
#include "variables/variable_spec.h"
#include "wire/codec.h"

namespace divvy::wire {

#define F(field) DIVVY_WIRE_FIELD(field)

// ---- enums --------------------------------------------------------------------------------------

inline constexpr EnumTable<EntryKind, v1::EntryKind, 2> kEntryKinds = {{
    {EntryKind::kStep, v1::ENTRY_STEP},
    {EntryKind::kWrite, v1::ENTRY_WRITE},
}};
inline constexpr EnumTable<PsState, v1::PsAttachReply::State, 4> kPsStates = {{
    {PsState::kEmpty, v1::PsAttachReply::EMPTY},
    {PsState::kLoading, v1::PsAttachReply::LOADING},
    {PsState::kReady, v1::PsAttachReply::READY},
    {PsState::kFrozen, v1::PsAttachReply::FROZEN},
}};
inline constexpr EnumTable<LoadRequest::From, v1::LoadRequest::From, 3> kFroms = {{
    {LoadRequest::From::kEmpty, v1::LoadRequest::FROM_EMPTY},
    {LoadRequest::From::kKeep, v1::LoadRequest::FROM_KEEP},
    {LoadRequest::From::kCheckpoint, v1::LoadRequest::FROM_CHECKPOINT},
}};
inline constexpr EnumTable<StepOutcome, v1::Report::Outcome, 5> kOutcomes = {{
    {StepOutcome::kOk, v1::Report::OK},
    {StepOutcome::kFailed, v1::Report::FAILED},
    {StepOutcome::kSystem, v1::Report::SYSTEM},
    {StepOutcome::kCancelled, v1::Report::CANCELLED},
    {StepOutcome::kEndOfData, v1::Report::END_OF_DATA_REACHED},
}};
inline constexpr EnumTable<VarianceScaling::Fan, v1::Initializer::VarianceScaling::Fan, 3> kFans = {
    {
        {VarianceScaling::Fan::kIn, v1::Initializer::VarianceScaling::FAN_IN},
        {VarianceScaling::Fan::kOut, v1::Initializer::VarianceScaling::FAN_OUT},
        {VarianceScaling::Fan::kAverage, v1::Initializer::VarianceScaling::FAN_AVERAGE},
    }};
inline constexpr EnumTable<VarianceScaling::Distribution,
                           v1::Initializer::VarianceScaling::Distribution, 2>
    kDistributions = {{
        {VarianceScaling::Distribution::kUniform, v1::Initializer::VarianceScaling::UNIFORM},
        {VarianceScaling::Distribution::kTruncatedNormal,
         v1::Initializer::VarianceScaling::TRUNCATED_NORMAL},
    }};
// Zero means kNone here, because a variable without an aggregation is complete.
inline constexpr EnumTable<VariableAggregation, v1::Aggregation, 4> kAggregations = {{
    {VariableAggregation::kNone, v1::AGGREGATION_NONE},
    {VariableAggregation::kSum, v1::AGGREGATION_SUM},
    {VariableAggregation::kMean, v1::AGGREGATION_MEAN},
    {VariableAggregation::kOnlyFirstReplica, v1::AGGREGATION_ONLY_FIRST_REPLICA},
}};
// Zero means kExact, for the same reason.
inline constexpr EnumTable<WireFormat, v1::WireFormat, 3> kWireFormats = {{
    {WireFormat::kExact, v1::WIRE_EXACT},
    {WireFormat::kBFloat16, v1::WIRE_BFLOAT16},
    {WireFormat::kBFloat16Random, v1::WIRE_BFLOAT16_RANDOM},
}};
// Zero means kInitialValue, for the same reason.
inline constexpr EnumTable<TableOptions::Absent, v1::TableOptions::Absent, 2> kAbsents = {{
    {TableOptions::Absent::kInitialValue, v1::TableOptions::ABSENT_INITIAL_VALUE},
    {TableOptions::Absent::kZeros, v1::TableOptions::ABSENT_ZEROS},
}};
// Zero means kRefuse.
inline constexpr EnumTable<TableOptions::Full, v1::TableOptions::Full, 2> kFulls = {{
    {TableOptions::Full::kRefuse, v1::TableOptions::FULL_REFUSE},
    {TableOptions::Full::kFail, v1::TableOptions::FULL_FAIL},
}};
inline constexpr EnumTable<SlotSpec::Kind, v1::SlotSpec::Kind, 3> kSlotKinds = {{
    {SlotSpec::Kind::kValues, v1::SlotSpec::SLOT_VALUES},
    {SlotSpec::Kind::kRowCounts, v1::SlotSpec::SLOT_ROW_COUNTS},
    {SlotSpec::Kind::kRowValues, v1::SlotSpec::SLOT_ROW_VALUES},
}};
inline constexpr EnumTable<OptimizerKind, v1::OptimizerKind, 8> kOptimizerKinds = {{
    {OptimizerKind::kSgd, v1::SGD},
    {OptimizerKind::kMomentum, v1::MOMENTUM},
    {OptimizerKind::kAdagrad, v1::ADAGRAD},
    {OptimizerKind::kRowwiseAdagrad, v1::ROWWISE_ADAGRAD},
    {OptimizerKind::kAdam, v1::ADAM},
    {OptimizerKind::kRmsProp, v1::RMS_PROP},
    {OptimizerKind::kFtrl, v1::FTRL},
    {OptimizerKind::kGroupFtrl, v1::GROUP_FTRL},
}};

// ---- checks of several fields, in fields.cc -----------------------------------------------------

absl::Status CheckOpen(const Horizon& horizon);
absl::Status CheckRises(const View& view);
absl::Status CheckSize(const SavedSlice& slice);
absl::Status CheckWithin(const ShardSpec& spec);
absl::Status CheckInitializer(const ShardSpec& spec);
absl::Status CheckOffsets(const VariableLayout& variable);

// ---- common -------------------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit,
            // The request check refuses zeros, each with its own reason.
            Fence& fence) {
  visit(F(job_id), fence.job);
  visit(F(epoch), fence.epoch);
  visit(F(coordinator_incarnation), fence.coordinator);
  visit(F(session), fence.session);
  visit(F(target_incarnation), fence.target);
}

template <typename Visitor>
void Fields(Visitor& visit, ProtocolRange& range) {
  visit(F(oldest), range.oldest);
  visit(F(newest), range.newest);
  visit.AfterReading([&range]() -> absl::Status {
    // absent
    if (range.oldest == 0) range.oldest = 1;
    if (range.newest == 0) range.newest = 1;
    if (range.oldest <= range.newest) return absl::OkStatus();
    return Invalid("oldest", absl::StrCat("is ", range.oldest, ", above newest ", range.newest));
  });
}

template <typename Visitor>
void Fields(Visitor& visit, InputLease& lease) {
  visit(F(iterator), lease.iterator);
  visit(F(first), lease.first, NotNegative());
  visit(F(count), lease.count);
  visit.AfterReading([&lease] {
    return CheckRange("count", lease.count, 0, std::numeric_limits<int64_t>::max() - lease.first);
  });
}

template <typename Visitor>
void Fields(Visitor& visit, RememberedEntry& entry) {
  visit(F(id), entry.id);
  visit(F(participants), entry.participants, Index());
  visit(F(kind), entry.kind, kEntryKinds);
  visit(F(inputs), entry.inputs);
}

// Unread positions of a pass: `count` positions from `first` on.
struct UnreadRange {
  int64_t first = 0, count = 0;
};
template <typename Visitor>
void Fields(Visitor& visit, UnreadRange& range) {
  visit(F(first), range.first);
  visit(F(count), range.count);
}
std::vector<UnreadRange> UnreadOf(const PassProgress& pass);
// Checks that the ranges rise, do not overlap, and lie below `next`.
absl::Status SetUnread(const std::vector<UnreadRange>& ranges, PassProgress& pass);

// Positions are at most 2^53, so adding to one does not overflow.
inline constexpr Range kPosition{0, int64_t{1} << 53};

template <typename Visitor>
void Fields(Visitor& visit, PassProgress& pass) {
  visit(F(iterator), pass.iterator);
  visit(F(in_loop), pass.in_loop);
  visit(F(of_program), pass.of_program);
  visit(F(is_series), pass.is_series);
  visit(F(finished), pass.finished, kPosition);
  visit(F(next), pass.next, kPosition);
  visit.Via(F(unread), pass, UnreadOf, SetUnread);
  visit(F(end), pass.end, kPosition);
  visit(F(end_is_exact), pass.end_is_exact);
}

template <typename Visitor>
void Fields(Visitor& visit, Horizon& horizon) {
  visit(F(next), horizon.next);
  visit(F(open), horizon.open, Rising());
  visit.AfterReading([&horizon] { return CheckOpen(horizon); });
  visit(F(finished_steps), horizon.finished_steps);
  visit(F(passes), horizon.passes);
}

// ---- registration -------------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, ProgramDescription& program) {
  // Signatures of steps: names of templates are long.
  constexpr Text kSignature{64 << 10};
  visit.Map(F(steps), program.steps, Name(), kSignature, Counted());
  visit(F(flags), program.flags, Counted(), ForEach{Name()});
  visit(F(build), program.build, NameOrEmpty());
}

// One task of a RegisterRequest's cluster.
struct ClusterTask {
  std::string job;
  int index = 0;
  std::string address;
};
template <typename Visitor>
void Fields(Visitor& visit, ClusterTask& task) {
  visit(F(job), task.job, Name());
  visit(F(index), task.index, Index());
  visit(F(address), task.address, Name());
}
std::vector<ClusterTask> TasksOf(const ClusterView& cluster);
absl::Status SetTasks(std::vector<ClusterTask> tasks, ClusterView& cluster);

template <typename Visitor>
void Fields(Visitor& visit, RegisterRequest& request) {
  visit(F(job), request.role);
  visit.AfterReading([&request] {
    const bool registers = request.role == Role::kPs || request.role == Role::kWorker;
    return registers ? absl::OkStatus() : Invalid("job", "is neither ps nor worker");
  });
  visit(F(index), request.index, Index());
  visit(F(incarnation), request.incarnation, NotZero());
  visit(F(address), request.address, Name());
  visit(F(replicas), request.replicas, Range{1, kMaxIndex});
  visit.Via(F(cluster), request.cluster, TasksOf, SetTasks, Counted());
  visit(F(protocol), request.protocol, MayBeAbsent());
  visit(F(build), request.build, NameOrEmpty());
  visit(F(program), request.program, MayBeAbsent());
  visit(F(without_checkpoints), request.without_checkpoints);
}

inline constexpr Range kExitCode{0, 255};

template <typename Visitor>
void Fields(Visitor& visit, RegisterReply& reply) {
  visit(F(job_id), reply.job);
  visit(F(epoch), reply.epoch);
  visit(F(over), reply.over, kExitCode);
}

// ---- optimizers ---------------------------------------------------------------------------------

template <typename Visitor, typename Decay>
void DecayFields(Visitor& visit, Decay& decay) {
  visit(F(initial), decay.initial);
  visit(F(decay_steps), decay.decay_steps);
  visit(F(rate), decay.rate);
  visit(F(staircase), decay.staircase);
}
template <typename Visitor>
void Fields(Visitor& visit, ExponentialDecay& decay) {
  DecayFields(visit, decay);
}
template <typename Visitor>
void Fields(Visitor& visit, InverseTimeDecay& decay) {
  DecayFields(visit, decay);
}
template <typename Visitor>
void Fields(Visitor& visit, PolynomialDecay& decay) {
  visit(F(initial), decay.initial);
  visit(F(decay_steps), decay.decay_steps);
  visit(F(final_rate), decay.final_rate);
  visit(F(power), decay.power);
}
template <typename Visitor>
void Fields(Visitor& visit, CosineDecay& decay) {
  visit(F(initial), decay.initial);
  visit(F(decay_steps), decay.decay_steps);
  visit(F(final_fraction), decay.final_fraction);
  visit(F(warmup_steps), decay.warmup_steps);
  visit(F(warmup_target), decay.warmup_target);
}
template <typename Visitor>
void Fields(Visitor& visit, PiecewiseConstant& pieces) {
  visit(F(boundaries), pieces.boundaries);
  visit(F(values), pieces.values);
}
template <typename Visitor>
void Fields(Visitor& visit, LearningRate& rate) {
  visit.OneOf(rate, F(constant), F(exponential), F(inverse_time), F(polynomial), F(cosine),
              F(piecewise));
  visit.AfterReading([&rate] { return AsInvalid(Validate(rate)); });
}

// An optimizer's fields lie beside its kind in the message.
template <typename Visitor>
void Fields(Visitor& visit, Sgd& sgd) {
  visit(F(learning_rate), sgd.learning_rate);
}
template <typename Visitor>
void Fields(Visitor& visit, Momentum& momentum) {
  visit(F(learning_rate), momentum.learning_rate);
  visit(F(momentum), momentum.momentum);
  visit(F(nesterov), momentum.nesterov);
}
template <typename Visitor, typename AnyAdagrad>
void AdagradFields(Visitor& visit, AnyAdagrad& adagrad) {
  visit(F(learning_rate), adagrad.learning_rate);
  visit(F(initial_accumulator), adagrad.initial_accumulator);
  visit(F(epsilon), adagrad.epsilon);
}
template <typename Visitor>
void Fields(Visitor& visit, Adagrad& adagrad) {
  AdagradFields(visit, adagrad);
}
template <typename Visitor>
void Fields(Visitor& visit, RowwiseAdagrad& adagrad) {
  AdagradFields(visit, adagrad);
}
template <typename Visitor>
void Fields(Visitor& visit, Adam& adam) {
  visit(F(learning_rate), adam.learning_rate);
  visit(F(beta1), adam.beta1);
  visit(F(beta2), adam.beta2);
  visit(F(epsilon), adam.epsilon);
  visit(F(weight_decay), adam.weight_decay);
  visit(F(amsgrad), adam.amsgrad);
}
template <typename Visitor>
void Fields(Visitor& visit, RmsProp& rms_prop) {
  visit(F(learning_rate), rms_prop.learning_rate);
  visit(F(rho), rms_prop.rho);
  visit(F(momentum), rms_prop.momentum);
  visit(F(epsilon), rms_prop.epsilon);
  visit(F(centered), rms_prop.centered);
}
template <typename Visitor, typename AnyFtrl>
void FtrlFields(Visitor& visit, AnyFtrl& ftrl) {
  visit(F(learning_rate), ftrl.learning_rate);
  visit(F(l1), ftrl.l1);
  visit(F(l2), ftrl.l2);
  visit(F(learning_rate_power), ftrl.learning_rate_power);
  visit(F(initial_accumulator), ftrl.initial_accumulator);
  visit(F(beta), ftrl.beta);
  visit(F(l2_shrinkage), ftrl.l2_shrinkage);
}
template <typename Visitor>
void Fields(Visitor& visit, Ftrl& ftrl) {
  FtrlFields(visit, ftrl);
}
template <typename Visitor>
void Fields(Visitor& visit, GroupFtrl& ftrl) {
  FtrlFields(visit, ftrl);
  visit(F(l21), ftrl.l21);
}
// An optimizer of this kind, with default values.
Optimizer OptimizerOf(OptimizerKind kind);

template <typename Visitor>
void Fields(Visitor& visit, Optimizer& optimizer) {
  OptimizerKind kind = KindOf(optimizer);
  visit(F(kind), kind, kOptimizerKinds);
  // This changes the optimizer only in a decoder: an encoder has the kind of its own optimizer.
  if (kind != KindOf(optimizer)) optimizer = OptimizerOf(kind);
  std::visit([&visit](auto& options) { Fields(visit, options); }, optimizer);
  visit.AfterReading([&optimizer] { return AsInvalid(Validate(optimizer)); });
}

template <typename Visitor>
void Fields(Visitor& visit, OptimizerStep& step) {
  visit(F(kind), step.kind, kOptimizerKinds);
  visit(F(learning_rate), step.learning_rate);
  visit(F(momentum), step.momentum);
  visit(F(nesterov), step.nesterov);
  visit(F(epsilon), step.epsilon);
  visit(F(beta1), step.beta1);
  visit(F(beta2), step.beta2);
  visit(F(weight_decay), step.weight_decay);
  visit(F(amsgrad), step.amsgrad);
  visit(F(rho), step.rho);
  visit(F(centered), step.centered);
  visit(F(l1), step.l1);
  visit(F(l2), step.l2);
  visit(F(learning_rate_power), step.learning_rate_power);
  visit(F(beta), step.beta);
  visit(F(l2_shrinkage), step.l2_shrinkage);
  visit(F(l21), step.l21);
  visit.AfterReading([&step] { return AsInvalid(Validate(step)); });
}

// ---- variables ----------------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, Constant& law) {
  visit(F(value), law.value);
}
template <typename Visitor>
void Fields(Visitor& visit, RandomUniform& law) {
  visit(F(low), law.low);
  visit(F(high), law.high);
  visit(F(seed), law.seed);
}
template <typename Visitor, typename Normal>
void NormalFields(Visitor& visit, Normal& law) {
  visit(F(mean), law.mean);
  visit(F(stddev), law.stddev);
  visit(F(seed), law.seed);
}
template <typename Visitor>
void Fields(Visitor& visit, RandomNormal& law) {
  NormalFields(visit, law);
}
template <typename Visitor>
void Fields(Visitor& visit, TruncatedNormal& law) {
  NormalFields(visit, law);
}
template <typename Visitor>
void Fields(Visitor& visit, VarianceScaling& law) {
  visit(F(fan), law.fan, kFans);
  visit(F(distribution), law.distribution, kDistributions);
  visit(F(scale), law.scale);
  visit(F(seed), law.seed);
}
template <typename Visitor>
void Fields(Visitor& visit, Identity& law) {
  visit(F(gain), law.gain);
}
// An initializer that a ps cannot evaluate for its own rows (Orthogonal, FromRows, Tensor) has no
// field: its values are made elsewhere and written.
template <typename Visitor>
void Fields(Visitor& visit, Initializer& law) {
  visit.OneOf(law, F(constant), F(random_uniform), F(random_normal), F(truncated_normal),
              F(variance_scaling), F(identity), NeverSent(), NeverSent(), NeverSent());
}

template <typename Visitor>
void Fields(Visitor& visit, ShardKey& key) {
  visit(F(variable), key.variable);
  visit(F(slot), key.slot, Range{0, 255});
  visit(F(part), key.part, Index());
}

template <typename Visitor>
void Fields(Visitor&, AdmitAlways&) {}
template <typename Visitor>
void Fields(Visitor& visit, AdmitAfter& rule) {
  visit(F(steps), rule.steps);
  visit(F(counter_bytes), rule.counter_bytes);
}
template <typename Visitor>
void Fields(Visitor& visit, AdmitWithProbability& rule) {
  visit(F(probability), rule.probability);
}
template <typename Visitor>
void Fields(Visitor&, EvictNever&) {}
template <typename Visitor>
void Fields(Visitor& visit, EvictUnusedFor& rule) {
  visit(F(duration_ns), rule.duration);
}
template <typename Visitor>
void Fields(Visitor& visit, EvictBelowNorm& rule) {
  visit(F(norm), rule.norm);
}
template <typename Visitor>
void Fields(Visitor&, EvictLeastUsed&) {}
template <typename Visitor>
void Fields(Visitor&, EvictLeastRecent&) {}
template <typename Visitor>
void Fields(Visitor& visit, TableOptions& options) {
  visit.OneOf(options.admission, F(admit_always), F(admit_after), F(admit_with_probability));
  visit.OneOf(options.eviction, F(evict_never), F(evict_unused_for), F(evict_below_norm),
              F(evict_least_used), F(evict_least_recent));
  visit(F(absent), options.absent, kAbsents);
  visit(F(max_rows), options.max_rows);
  visit(F(full), options.full, kFulls);
  visit.AfterReading([&options] { return AsInvalid(Validate(options)); });
}

template <typename Visitor>
void Fields(Visitor& visit, ShardSpec& spec) {
  visit(F(key), spec.key);
  visit(F(name), spec.name, Name());
  visit(F(dtype), spec.dtype);
  visit(F(shape), spec.shape, OfType{spec.dtype});
  visit(F(full_shape), spec.full_shape, OfType{spec.dtype});
  visit(F(first_row), spec.first_row);
  visit.AfterReading([&spec] { return CheckWithin(spec); });
  visit(F(initializer), spec.initializer);
  visit.AfterReading([&spec] { return CheckInitializer(spec); });
  visit(F(table), spec.table);
  visit(F(optimizer), spec.optimizer);
}

// A slot, and the optimizer that it belongs to.
struct OwnedSlot {
  SlotSpec slot;
  std::string optimizer;
};
template <typename Visitor>
void Fields(Visitor& visit, OwnedSlot& owned) {
  visit(F(name), owned.slot.name, Name());
  visit(F(optimizer), owned.optimizer, Name());
  visit(F(initial_value), owned.slot.initial_value, Finite());
  visit(F(kind), owned.slot.kind, kSlotKinds);
}
std::vector<OwnedSlot> SlotsOf(const VariableLayout& variable);
absl::Status SetSlots(std::vector<OwnedSlot> slots, VariableLayout& variable);

template <typename Visitor>
void Fields(Visitor& visit, VariableLayout& variable) {
  VariableSpec& spec = variable.spec;
  visit(F(id), variable.id);
  visit(F(name), spec.name, Name());
  visit(F(dtype), spec.dtype);
  visit(F(shape), spec.shape, OfType{spec.dtype});
  visit(F(aggregation), spec.aggregation, kAggregations);
  visit(F(wire), spec.wire, kWireFormats);
  visit(F(optimizer), spec.optimizer);
  visit(F(table), spec.table);
  if (spec.table) visit(F(initializer), spec.initializer);
  visit.AfterReading([&spec] { return AsInvalid(Validate(spec)); });
  visit(F(offsets), variable.offsets);
  visit(F(ps), variable.ps, ForEach{Index()});
  visit.AfterReading([&variable] { return CheckOffsets(variable); });
  visit.Via(F(slots), variable, SlotsOf, SetSlots, Counted{255});
}

// Makes the layout from received values. Its hash must be `hash`.
absl::Status SetLayout(uint64_t version, uint64_t hash, std::vector<VariableLayout> variables,
                       std::shared_ptr<const Layout>& layout);

// An encoder has a layout; a decoder has none yet.
template <typename Visitor>
void Fields(Visitor& visit, std::shared_ptr<const Layout>& layout) {
  uint64_t version = layout == nullptr ? 0 : layout->version();
  uint64_t hash = layout == nullptr ? 0 : layout->hash();
  std::vector<VariableLayout> variables;
  visit(F(version), version);
  visit(F(hash), hash);
  if constexpr (Visitor::kReads) {
    visit(F(variables), variables, Counted());
  } else {
    visit.Each(F(variables), layout->variables(),
               [](const auto& entry) -> const VariableLayout& { return entry.second; });
  }
  visit.AfterReading([&] { return SetLayout(version, hash, std::move(variables), layout); });
}

// ---- parameter server ---------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, PsAttachRequest& request) {
  visit(F(fence), request.fence);
  visit(F(protocol), request.protocol, MayBeAbsent());
  visit(F(index), request.index, Index());
}

template <typename Visitor>
void Fields(Visitor& visit, PsAttachReply& reply) {
  visit(F(incarnation), reply.incarnation, NotZero());
  visit(F(state), reply.state, kPsStates);
  visit(F(lineage), reply.lineage);
  visit(F(layout_version), reply.layout_version);
  visit(F(layout_hash), reply.layout_hash);
  visit(F(horizon), reply.horizon);
  visit(F(remembered), reply.remembered);
  visit(F(memory_bytes), reply.memory_bytes, NotNegative());
  visit(F(max_commit_bytes), reply.max_commit_bytes, NotNegative());
  visit(F(without_checkpoints), reply.without_checkpoints);
}

template <typename Visitor>
void Fields(Visitor& visit, CheckpointId& checkpoint) {
  visit(F(epoch), checkpoint.epoch, NotZero());
  visit(F(serial), checkpoint.serial);
}

template <typename Visitor>
void Fields(Visitor& visit, LoadRequest& request) {
  visit(F(fence), request.fence);
  visit(F(from), request.from, kFroms);
  visit(F(expected_lineage), request.expected_lineage);
  visit(F(layout_version), request.layout_version);
  visit(F(layout_hash), request.layout_hash);
  visit(F(horizon), request.horizon);
  if (request.from == LoadRequest::From::kCheckpoint) visit(F(checkpoint), request.checkpoint);
  visit(F(job_seed), request.job_seed);
  visit(F(shards), request.shards, Counted());
}

template <typename Visitor>
void Fields(Visitor& visit, LoadReply& reply) {
  visit(F(layout_hash), reply.layout_hash);
  visit(F(loading), reply.loading);
  visit(F(loaded_bytes), reply.loaded_bytes, NotNegative());
  visit(F(total_bytes), reply.total_bytes, NotNegative());
}

template <typename Visitor>
void Fields(Visitor& visit, SnapshotRequest& request) {
  // The names of a checkpoint's files have five digits.
  constexpr int kMaxDataFiles = 100'000;
  visit(F(fence), request.fence);
  visit(F(checkpoint), request.checkpoint);
  visit(F(file), request.file, Index());
  visit(F(num_files), request.num_files);
  visit.AfterReading([&request] {
    return CheckRange("num_files", request.num_files, request.file + 1, kMaxDataFiles);
  });
  visit(F(wait), request.wait);
}

template <typename Visitor>
void Fields(Visitor& visit, SavedSlice& slice) {
  visit(F(tensor), slice.tensor, Name());
  visit(F(dtype), slice.dtype);
  visit(F(full_shape), slice.full_shape, OfType{slice.dtype});
  visit(F(first_row), slice.first_row);
  visit(F(rows), slice.rows);
  visit(F(offset), slice.offset);
  visit(F(size_bytes), slice.size_bytes);
  visit(F(masked_crc), slice.masked_crc);
  visit(F(first_bucket), slice.first_bucket, NotNegative());
  visit.AfterReading([&slice] { return CheckSize(slice); });
}

template <typename Visitor>
void Fields(Visitor& visit, SnapshotReply& reply) {
  visit(F(done), reply.done);
  visit(F(written_bytes), reply.written_bytes, NotNegative());
  visit(F(slices), reply.slices);
  visit(F(total_bytes), reply.total_bytes, NotNegative());
}

template <typename Visitor>
void Fields(Visitor& visit, SyncRequest& request) {
  visit(F(fence), request.fence);
  visit(F(seq), request.seq);
  visit(F(horizon), request.horizon);
  visit(F(sessions), request.sessions, Rising());
  visit(F(query), request.query);
  visit(F(workers), request.workers, ForEach{Index()});
  visit.AfterReading([&request] {
    const bool fits = request.workers.empty() || request.workers.size() == request.sessions.size();
    return fits ? absl::OkStatus() : Invalid("workers", "there is one for each session, or none");
  });
}

template <typename Visitor>
void Fields(Visitor& visit, TablePartStats& stats) {
  visit(F(rows), stats.rows, NotNegative());
  visit(F(waiting), stats.waiting, NotNegative());
  visit(F(bytes), stats.bytes, NotNegative());
  visit(F(admitted), stats.admitted, NotNegative());
  visit(F(refused), stats.refused, NotNegative());
  visit(F(evicted), stats.evicted, NotNegative());
}
template <typename Visitor>
void Fields(Visitor& visit, SyncReply::Table& table) {
  visit(F(shard), table.shard);
  visit(F(stats), table.stats);
}
template <typename Visitor>
void Fields(Visitor& visit, SyncReply::Load& load) {
  visit(F(shard), load.shard);
  visit(F(bytes), load.bytes);
  visit.AfterReading([&load] {
    return load.bytes.size() == static_cast<size_t>(SyncReply::Load::kParts)
               ? absl::OkStatus()
               : Invalid("bytes", "there are 16");
  });
}

template <typename Visitor>
void Fields(Visitor& visit, SyncReply& reply) {
  visit(F(seq), reply.seq);
  visit(F(applied), reply.applied);
  visit(F(applied_seq), reply.applied_seq);
  visit(F(memory_bytes), reply.memory_bytes, NotNegative());
  visit(F(draining), reply.draining);
  visit(F(tables), reply.tables);
  visit(F(loads), reply.loads);
  visit(F(memory_limit_bytes), reply.memory_limit_bytes, NotNegative());
}

template <typename Visitor>
void Fields(Visitor& visit, CreateShardsRequest& request) {
  visit(F(fence), request.fence);
  visit(F(layout_version), request.layout_version);
  visit(F(layout_hash), request.layout_hash);
  visit(F(job_seed), request.job_seed);
  visit(F(shards), request.shards, Counted());
}

template <typename Visitor>
void Fields(Visitor& visit, DeleteShardsRequest& request) {
  visit(F(fence), request.fence);
  visit(F(layout_version), request.layout_version);
  visit(F(layout_hash), request.layout_hash);
  visit(F(shards), request.shards, Counted());
}

template <typename Visitor>
void Fields(Visitor& visit, LayoutReply& reply) {
  visit(F(layout_version), reply.layout_version);
}

template <typename Visitor>
void Fields(Visitor& visit, ShutdownRequest& request) {
  visit(F(fence), request.fence);
  visit(F(exit_code), request.exit_code, kExitCode);
}

template <typename Visitor>
void Fields(Visitor&, ShutdownReply&) {}

// ---- worker -------------------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, PsAddress& ps) {
  visit(F(index), ps.index, Index());
  visit(F(address), ps.address, Name());
  visit(F(incarnation), ps.incarnation);
  visit(F(max_commit_bytes), ps.max_commit_bytes, NotNegative());
}

template <typename Visitor>
void Fields(Visitor& visit, WorkerAttachRequest& request) {
  visit(F(fence), request.fence);
  visit(F(view), request.view, Counted());
  visit.AfterReading([&request] { return CheckRises(request.view); });
  visit(F(layout), request.layout);
  visit(F(job_seed), request.job_seed);
  visit.Map(F(program_flags), request.program_flags, Name(), Anything(), Counted());
  visit(F(protocol), request.protocol, MayBeAbsent());
  visit(F(index), request.index, Index());
}

template <typename Visitor>
void Fields(Visitor& visit, WorkerAttachReply& reply) {
  visit(F(incarnation), reply.incarnation, NotZero());
  visit(F(replicas), reply.replicas, Range{1, kMaxIndex});
  visit(F(slots), reply.slots, Range{1, kMaxIndex});
  visit(F(program), reply.program, MayBeAbsent());
}

// ---- the Steps stream: coordinator to worker ----------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, LayoutUpdate& update) {
  Fields(visit, update.layout);
}

template <typename Visitor>
void Fields(Visitor& visit, Dispatch& dispatch) {
  visit(F(step), dispatch.step);
  visit(F(attempt), dispatch.attempt, NotZero());
  visit(F(ordinal), dispatch.ordinal, NotNegative());
  visit(F(function), dispatch.function, Name());
  visit(F(args), dispatch.args);
  visit(F(inputs), dispatch.inputs, Counted());
  visit(F(learning_rate_scale), dispatch.learning_rate_scale, Finite());
  visit(F(tick), dispatch.tick);
  visit(F(trace_over_ns), dispatch.trace_over);
  visit(F(want_gradients), dispatch.want_gradients);
}

template <typename Visitor>
void Fields(Visitor& visit, CancelSteps& cancel) {
  visit(F(steps), cancel.steps);
}

template <typename Visitor>
void Fields(Visitor& visit, MakeResource& make) {
  visit(F(iterator), make.iterator);
  visit(F(source), make.source, Name());
  visit(F(args), make.args);
  visit(F(seed), make.seed);
  visit(F(leased), make.leased);
  visit(F(num_workers), make.num_workers, Range{1, kMaxIndex + 1});
}

template <typename Visitor>
void Fields(Visitor& visit, DropResource& drop) {
  visit(F(iterator), drop.iterator);
}
template <typename Visitor>
void Fields(Visitor& visit, Hold& hold) {
  visit(F(number), hold.number);
}
template <typename Visitor>
void Fields(Visitor& visit, Release& release) {
  visit(F(number), release.number);
}

// ---- the Steps stream: worker to coordinator ----------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, EndedInput& end) {
  visit(F(iterator), end.iterator);
  visit(F(position), end.position, NotNegative());
}

template <typename Visitor>
void Fields(Visitor& visit, StepTrace::Call& call) {
  visit(F(commit), call.commit);
  visit(F(ps), call.ps, Index());
  visit(F(since_ns), call.since);
  visit(F(took_ns), call.took);
  visit(F(served_ns), call.served);
  visit(F(retries), call.retries);
}
template <typename Visitor>
void Fields(Visitor& visit, StepTrace& trace) {
  visit(F(began_ns), trace.began);
  visit(F(computed_ns), trace.computed);
  visit(F(committed_ns), trace.committed);
  visit(F(reported_ns), trace.reported);
  visit(F(calls), trace.calls, Counted{StepTrace::kMostCalls});
  visit(F(left_out), trace.left_out);
}

template <typename Visitor>
void Fields(Visitor& visit, GradientHistogram& gradient) {
  visit(F(variable), gradient.variable, Name());
  visit(F(low), gradient.values.low, Finite());
  visit(F(high), gradient.values.high, Finite());
  visit(F(counts), gradient.values.counts);
  visit.AfterReading([&gradient] {
    if (gradient.values.counts.size() > static_cast<size_t>(kHistogramBuckets))
      return Invalid("counts", "there are at most 30");
    return gradient.values.low <= gradient.values.high ? absl::OkStatus()
                                                       : Invalid("high", "is below low");
  });
}

template <typename Visitor>
void Fields(Visitor& visit, Report& report) {
  visit(F(step), report.step);
  visit(F(attempt), report.attempt);
  visit(F(outcome), report.outcome, kOutcomes);
  if (report.outcome == StepOutcome::kOk) visit(F(value), report.value);
  visit(F(error), report.error);
  visit.AfterReading([&report] {
    const bool needs_error =
        report.outcome == StepOutcome::kFailed || report.outcome == StepOutcome::kSystem;
    return needs_error && report.error.ok() ? Invalid("error", "is missing") : absl::OkStatus();
  });
  visit(F(participants), report.participants, Counted(), ForEach{Index()});
  visit(F(staleness), report.staleness);
  visit(F(ended), report.ended, Counted());
  visit(F(took_ns), report.took);
  visit(F(trace), report.trace);
  visit(F(gradients), report.gradients, Counted{GradientHistogram::kMost});
}

template <typename Visitor>
void Fields(Visitor& visit, ElementDigest& digest) {
  visit(F(exact), digest.exact);
  visit(F(projection), digest.projection, Finite());
  visit(F(magnitude), digest.magnitude, Finite());
}

template <typename Visitor>
void Fields(Visitor& visit, ResourceReady& ready) {
  visit(F(iterator), ready.iterator);
  visit(F(error), ready.error);
  visit(F(elements), ready.elements, NotNegative());
  visit(F(first), ready.first);
}

template <typename Visitor>
void Fields(Visitor& visit, std::pair<std::string, Optimizer>& slots) {
  visit(F(variable), slots.first, Name());
  visit(F(optimizer), slots.second);
}
template <typename Visitor>
void Fields(Visitor& visit, NeedSlots& need) {
  visit(F(step), need.step);
  visit(F(slots), need.slots, Counted());
}

template <typename Visitor>
void Fields(Visitor& visit, Pong& pong) {
  visit(F(running), pong.running, NotNegative());
  visit(F(committing), pong.committing, NotNegative());
  visit(F(blocked_on_ps), pong.blocked_on_ps, Index());
  visit(F(blocked_for_ns), pong.blocked_for);
}

template <typename Visitor>
void Fields(Visitor& visit, Held& held) {
  visit(F(number), held.number);
}

// ---- the Steps stream: its frames ---------------------------------------------------------------

template <typename Visitor>
void MessageOf(Visitor& visit, std::optional<ToWorker>& message) {
  visit.OneOf(message, F(layout), F(dispatch), F(cancel), F(make), F(drop), F(ping), F(hold),
              F(release));
}
template <typename Visitor>
void MessageOf(Visitor& visit, std::optional<FromWorker>& message) {
  visit.OneOf(message, F(report), F(resource_ready), F(need_slots), F(pong), F(draining), F(held));
}
template <typename Visitor, typename Message>
void Fields(Visitor& visit, StreamFrame<Message>& frame) {
  visit(F(session), frame.session);
  visit(F(resume), frame.resume);
  visit(F(acknowledged), frame.acknowledged);
  visit(F(number), frame.number);
  visit.AfterReading([&frame] {
    return frame.resume && frame.number != 0 ? Invalid("resume", "comes with a message")
                                             : absl::OkStatus();
  });
  MessageOf(visit, frame.message);
  visit.AfterReading([&frame] {
    if (frame.resume && frame.message) return Invalid("resume", "comes with a message");
    if (frame.message && frame.number == 0)
      return Invalid("number", "is 0, and there is a message");
    if (!frame.message && frame.number != 0)
      return Invalid("message", "is not set, or of a newer protocol");
    return absl::OkStatus();
  });
}

// ---- checkpoints --------------------------------------------------------------------------------

template <typename Visitor>
void Fields(Visitor& visit, DataPass& pass) {
  visit(F(source), pass.source, Name());
  visit(F(args), pass.args);
  visit(F(seed), pass.seed);
  Fields(visit, static_cast<PassProgress&>(pass));
}

template <typename Visitor>
void Fields(Visitor& visit, JobState& state) {
  visit(F(job_id), state.job, NotZero());
  visit(F(checkpoint), state.checkpoint);
  visit(F(lineage), state.lineage);
  visit(F(layout), state.layout);
  visit(F(cut), state.cut);
  visit(F(finished_steps), state.finished_steps, NotNegative());
  visit(F(finished_reads), state.finished_reads, NotNegative());
  visit(F(next_ordinal), state.next_ordinal, NotNegative());
  visit(F(epochs), state.epochs, NotNegative());
  visit(F(tick), state.tick);
  visit.Map(F(passes), state.passes, Text{kMaxNameBytes}, NotNegative());
  visit(F(data), state.data);
  visit(F(program_state), state.program_state);
  visit(F(servers), state.servers);
}

#undef F

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_FIELDS_H_
