#include "wire/messages.h"

#include <limits>

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "wire/decode.h"
#include "wire/layout.h"
#include "wire/pass_progress.h"
#include "wire/status.h"
#include "wire/text.h"
#include "wire/values.h"

namespace divvy::wire {
namespace {

constexpr int kMaxExitCode = 255;

constexpr EnumTable<EntryKind, v1::EntryKind, 2> kEntryKinds = {{{EntryKind::kStep, v1::ENTRY_STEP}, {EntryKind::kWrite, v1::ENTRY_WRITE}}};

constexpr EnumTable<PsState, v1::PsAttachReply::State, 4> kPsStates = {{
    {PsState::kEmpty, v1::PsAttachReply::EMPTY},
    {PsState::kLoading, v1::PsAttachReply::LOADING},
    {PsState::kReady, v1::PsAttachReply::READY},
    {PsState::kFrozen, v1::PsAttachReply::FROZEN},
}};

constexpr EnumTable<LoadRequest::From, v1::LoadRequest::From, 3> kFroms = {{
    {LoadRequest::From::kEmpty, v1::LoadRequest::FROM_EMPTY},
    {LoadRequest::From::kKeep, v1::LoadRequest::FROM_KEEP},
    {LoadRequest::From::kCheckpoint, v1::LoadRequest::FROM_CHECKPOINT},
}};

constexpr int kMaxDataFiles = 100'000;  // of a checkpoint: their names have five digits

constexpr size_t kMaxSignatureBytes = 64 << 10;  // of a step: templates are wordy

constexpr auto kReadShard = [](const v1::ShardSpec& shard) { return FromProto(shard); };
constexpr auto kReadEntry = [](const v1::RememberedEntry& entry) { return FromProto(entry); };

// The values of ids, in a repeated field.
template <typename Ids, typename Repeated>
void SetIds(const Ids& ids, Repeated* out) {
  out->Reserve(static_cast<int>(ids.size()));
  for (const auto id : ids) out->Add(id.value());
}

template <typename Repeated>
void SetEntries(const std::vector<RememberedEntry>& entries, Repeated* out) {
  for (const RememberedEntry& entry : entries) *out->Add() = ToProto(entry);
}

// Absent: version 1.
absl::StatusOr<ProtocolRange> RangeOf(bool present, const v1::ProtocolRange& range) { return present ? FromProto(range) : ProtocolRange{1, 1}; }

absl::Status CheckTask(const v1::ClusterTask& task) {
  RETURN_IF_ERROR(CheckName("job", task.job()));
  RETURN_IF_ERROR(CheckIndex("index", task.index()));
  return CheckName("address", task.address());
}

absl::StatusOr<ClusterView> ReadCluster(const v1::RegisterRequest& request) {
  RETURN_IF_ERROR(CheckCount("cluster", request.cluster_size()));
  ClusterView cluster;
  for (int i = 0; i < request.cluster_size(); ++i) {
    const v1::ClusterTask& task = request.cluster(i);
    RETURN_IF_ERROR(In(Element("cluster", i), CheckTask(task)));
    if (!cluster[task.job()].emplace(task.index(), task.address()).second) return Invalid(Element("cluster", i), "names a task a second time");
  }
  return cluster;
}

absl::StatusOr<JobName> ReadTaskJob(v1::Job job) {
  ASSIGN_OR_RETURN(const JobName name, FromProto(job));
  if (name != JobName::kPs && name != JobName::kWorker) return Invalid("", "is neither ps nor worker");
  return name;
}

absl::StatusOr<View> ReadView(const v1::WorkerAttachRequest& request) {
  RETURN_IF_ERROR(CheckCount("view", request.view_size()));
  ASSIGN_OR_RETURN(View view, ReadAll("view", request.view(), [](const v1::PsAddress& address) { return FromProto(address); }));
  for (size_t i = 1; i < view.size(); ++i) {
    if (view[i].index <= view[i - 1].index) return Invalid(Element("view", i) + ".index", "does not rise");
  }
  return view;
}

}  // namespace

// ---- common -----------------------------------------------------------------------------------------------------------------------------------------

v1::Fence ToProto(const Fence& fence) {
  v1::Fence out;
  out.set_job_id(fence.job.value());
  out.set_epoch(fence.epoch.value());
  out.set_coordinator_incarnation(fence.coordinator.value());
  out.set_session(fence.session.value());
  out.set_target_incarnation(fence.target.value());
  return out;
}

absl::StatusOr<Fence> FromProto(const v1::Fence& fence) {
  // Zeros are the prelude's to refuse, each with its own reason.
  return Fence{JobId(fence.job_id()), Epoch(fence.epoch()), Incarnation(fence.coordinator_incarnation()), SessionId(fence.session()),
               Incarnation(fence.target_incarnation())};
}

v1::ProtocolRange ToProto(const ProtocolRange& range) {
  v1::ProtocolRange out;
  out.set_oldest(range.oldest);
  out.set_newest(range.newest);
  return out;
}

absl::StatusOr<ProtocolRange> FromProto(const v1::ProtocolRange& range) {
  const ProtocolRange out{range.oldest() == 0 ? 1 : range.oldest(), range.newest() == 0 ? 1 : range.newest()};
  if (out.oldest > out.newest) return Invalid("oldest", absl::StrCat("is ", out.oldest, ", above newest ", out.newest));
  return out;
}

v1::EntryKind ToProto(EntryKind kind) { return kEntryKinds.ToWire(kind); }
absl::StatusOr<EntryKind> FromProto(v1::EntryKind kind) { return kEntryKinds.ToDomain(kind); }

v1::Horizon ToProto(const Horizon& horizon) {
  v1::Horizon out;
  out.set_next(horizon.next.value());
  SetIds(horizon.open, out.mutable_open());
  out.set_finished_steps(horizon.finished_steps);
  for (const PassProgress& pass : horizon.passes) SetProgress(pass, *out.add_passes());
  return out;
}

absl::StatusOr<Horizon> FromProto(const v1::Horizon& horizon) {
  Horizon out{EntryId(horizon.next()), IdsOf<EntryId>(horizon.open()), horizon.finished_steps()};
  RETURN_IF_ERROR(CheckRising("open", out.open));
  if (!out.open.empty() && out.open.back() >= out.next) return Invalid("open", absl::StrCat("names ", out.open.back().value(), ", not below next"));
  const auto read = [](const v1::PassProgress& pass) -> absl::StatusOr<PassProgress> {
    PassProgress progress;
    RETURN_IF_ERROR(ReadProgress(pass, progress));
    return progress;
  };
  ASSIGN_OR_RETURN(out.passes, ReadAll("passes", horizon.passes(), read));
  return out;
}

v1::InputLease ToProto(const InputLease& lease) {
  v1::InputLease out;
  out.set_iterator(lease.iterator.value());
  out.set_first(lease.first);
  out.set_count(lease.count);
  return out;
}

absl::StatusOr<InputLease> FromProto(const v1::InputLease& from) {
  RETURN_IF_ERROR(CheckNotNegative("first", from.first()));
  RETURN_IF_ERROR(CheckRange("count", from.count(), 0, std::numeric_limits<int64_t>::max() - from.first()));
  return InputLease{ResourceId(from.iterator()), from.first(), from.count()};
}

v1::RememberedEntry ToProto(const RememberedEntry& entry) {
  v1::RememberedEntry out;
  out.set_id(entry.id.value());
  out.set_participants(static_cast<uint32_t>(entry.participants));
  out.set_kind(ToProto(entry.kind));
  for (const InputLease& lease : entry.inputs) *out.add_inputs() = ToProto(lease);
  return out;
}

absl::StatusOr<RememberedEntry> FromProto(const v1::RememberedEntry& entry) {
  RememberedEntry out;
  out.id = EntryId(entry.id());
  RETURN_IF_ERROR(CheckIndex("participants", entry.participants()));
  out.participants = static_cast<int>(entry.participants());
  DIVVY_WIRE_READ_ENUM(out.kind, entry, kind);
  ASSIGN_OR_RETURN(out.inputs, ReadAll("inputs", entry.inputs(), [](const v1::InputLease& lease) { return FromProto(lease); }));
  return out;
}

// ---- registration -----------------------------------------------------------------------------------------------------------------------------------

v1::ProgramDescription ToProto(const ProgramDescription& program) {
  v1::ProgramDescription out;
  for (const auto& [name, signature] : program.steps) (*out.mutable_steps())[Escaped(name, kMaxNameBytes)] = Escaped(signature, kMaxSignatureBytes);
  for (const std::string& flag : program.flags) out.add_flags(Escaped(flag, kMaxNameBytes));
  out.set_build(Escaped(program.build, kMaxNameBytes));
  return out;
}

absl::StatusOr<ProgramDescription> FromProto(const v1::ProgramDescription& program) {
  ProgramDescription out;
  RETURN_IF_ERROR(CheckCount("steps", static_cast<int>(program.steps().size())));
  RETURN_IF_ERROR(CheckCount("flags", program.flags_size()));
  for (const auto& [name, signature] : program.steps()) {
    RETURN_IF_ERROR(CheckName("steps", name));
    if (Escaped(signature, kMaxSignatureBytes) != signature) return Invalid("steps", "has a signature that is too long, or has control characters");
    out.steps.emplace(name, signature);
  }
  for (const std::string& flag : program.flags()) {
    RETURN_IF_ERROR(CheckName("flags", flag));
    out.flags.insert(flag);
  }
  if (!program.build().empty()) RETURN_IF_ERROR(CheckName("build", program.build()));
  out.build = program.build();
  return out;
}

v1::RegisterRequest ToProto(const RegisterRequest& request) {
  v1::RegisterRequest out;
  out.set_job(ToProto(request.job));
  out.set_index(request.index);
  out.set_incarnation(request.incarnation.value());
  out.set_address(Escaped(request.address, kMaxNameBytes));
  out.set_replicas(request.replicas);
  for (const auto& [job, tasks] : request.cluster) {
    for (const auto& [index, address] : tasks) {
      v1::ClusterTask& task = *out.add_cluster();
      task.set_job(Escaped(job, kMaxNameBytes));
      task.set_index(index);
      task.set_address(Escaped(address, kMaxNameBytes));
    }
  }
  *out.mutable_protocol() = ToProto(request.protocol);
  out.set_build(Escaped(request.build, kMaxNameBytes));
  *out.mutable_program() = ToProto(request.program);
  out.set_without_checkpoints(request.without_checkpoints);
  return out;
}

absl::StatusOr<RegisterRequest> FromProto(const v1::RegisterRequest& request) {
  RegisterRequest out;
  ASSIGN_OR_RETURN(out.job, In("job", ReadTaskJob(request.job())));
  RETURN_IF_ERROR(CheckIndex("index", request.index()));
  out.index = request.index();
  if (request.incarnation() == 0) return Invalid("incarnation", "is 0");
  out.incarnation = Incarnation(request.incarnation());
  RETURN_IF_ERROR(CheckName("address", request.address()));
  out.address = request.address();
  RETURN_IF_ERROR(CheckRange("replicas", request.replicas(), 1, kMaxIndex));
  out.replicas = request.replicas();
  ASSIGN_OR_RETURN(out.cluster, ReadCluster(request));
  ASSIGN_OR_RETURN(out.protocol, In("protocol", RangeOf(request.has_protocol(), request.protocol())));
  if (!request.build().empty()) RETURN_IF_ERROR(CheckName("build", request.build()));
  out.build = request.build();
  ASSIGN_OR_RETURN(out.program, In("program", FromProto(request.program())));  // absent: empty
  out.without_checkpoints = request.without_checkpoints();
  return out;
}

v1::RegisterReply ToProto(const RegisterReply& reply) {
  v1::RegisterReply out;
  out.set_job_id(reply.job.value());
  out.set_epoch(reply.epoch.value());
  if (reply.over) out.set_over(*reply.over);
  return out;
}

absl::StatusOr<RegisterReply> FromProto(const v1::RegisterReply& reply) {
  RegisterReply out;
  out.job = JobId(reply.job_id());
  out.epoch = Epoch(reply.epoch());
  if (reply.has_over()) {
    RETURN_IF_ERROR(CheckRange("over", reply.over(), 0, kMaxExitCode));
    out.over = reply.over();
  }
  return out;
}

// ---- parameter server -------------------------------------------------------------------------------------------------------------------------------

v1::PsAttachRequest ToProto(const PsAttachRequest& request) {
  v1::PsAttachRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  *out.mutable_protocol() = ToProto(request.protocol);
  return out;
}

absl::StatusOr<PsAttachRequest> FromProto(const v1::PsAttachRequest& request) {
  PsAttachRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  ASSIGN_OR_RETURN(out.protocol, In("protocol", RangeOf(request.has_protocol(), request.protocol())));
  return out;
}

v1::PsAttachReply ToProto(const PsAttachReply& reply) {
  v1::PsAttachReply out;
  out.set_incarnation(reply.incarnation.value());
  out.set_state(kPsStates.ToWire(reply.state));
  out.set_lineage(reply.lineage.value());
  out.set_layout_version(reply.layout_version);
  out.set_layout_hash(reply.layout_hash);
  *out.mutable_horizon() = ToProto(reply.horizon);
  SetEntries(reply.remembered, out.mutable_remembered());
  out.set_memory_bytes(reply.memory_bytes);
  out.set_max_commit_bytes(reply.max_commit_bytes);
  out.set_without_checkpoints(reply.without_checkpoints);
  return out;
}

absl::StatusOr<PsAttachReply> FromProto(const v1::PsAttachReply& reply) {
  PsAttachReply out;
  if (reply.incarnation() == 0) return Invalid("incarnation", "is 0");
  out.incarnation = Incarnation(reply.incarnation());
  ASSIGN_OR_RETURN(out.state, In("state", kPsStates.ToDomain(reply.state())));
  out.lineage = Epoch(reply.lineage());
  out.layout_version = reply.layout_version();
  out.layout_hash = reply.layout_hash();
  DIVVY_WIRE_READ(out.horizon, reply, horizon);
  ASSIGN_OR_RETURN(out.remembered, ReadAll("remembered", reply.remembered(), kReadEntry));
  RETURN_IF_ERROR(CheckNotNegative("memory_bytes", reply.memory_bytes()));
  RETURN_IF_ERROR(CheckNotNegative("max_commit_bytes", reply.max_commit_bytes()));
  out.memory_bytes = reply.memory_bytes();
  out.max_commit_bytes = reply.max_commit_bytes();
  out.without_checkpoints = reply.without_checkpoints();
  return out;
}

v1::LoadRequest ToProto(const LoadRequest& request) {
  v1::LoadRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  out.set_from(kFroms.ToWire(request.from));
  out.set_expected_lineage(request.expected_lineage.value());
  out.set_layout_version(request.layout_version);
  out.set_layout_hash(request.layout_hash);
  *out.mutable_horizon() = ToProto(request.horizon);
  if (request.from == LoadRequest::From::kCheckpoint) *out.mutable_checkpoint() = ToProto(request.checkpoint);
  out.set_job_seed(request.job_seed);
  for (const ShardSpec& shard : request.shards) *out.add_shards() = ToProto(shard);
  return out;
}

absl::StatusOr<LoadRequest> FromProto(const v1::LoadRequest& request) {
  LoadRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  ASSIGN_OR_RETURN(out.from, In("from", kFroms.ToDomain(request.from())));
  out.expected_lineage = Epoch(request.expected_lineage());
  out.layout_version = request.layout_version();
  out.layout_hash = request.layout_hash();
  DIVVY_WIRE_READ(out.horizon, request, horizon);
  if (out.from == LoadRequest::From::kCheckpoint) {
    DIVVY_WIRE_READ(out.checkpoint, request, checkpoint);
  }
  out.job_seed = request.job_seed();
  RETURN_IF_ERROR(CheckCount("shards", request.shards_size()));
  ASSIGN_OR_RETURN(out.shards, ReadAll("shards", request.shards(), kReadShard));
  return out;
}

v1::LoadReply ToProto(const LoadReply& reply) {
  v1::LoadReply out;
  out.set_layout_hash(reply.layout_hash);
  out.set_loading(reply.loading);
  out.set_loaded_bytes(reply.loaded_bytes);
  return out;
}

absl::StatusOr<LoadReply> FromProto(const v1::LoadReply& reply) {
  RETURN_IF_ERROR(CheckNotNegative("loaded_bytes", reply.loaded_bytes()));
  return LoadReply{reply.loading(), reply.loaded_bytes(), reply.layout_hash()};
}

v1::CheckpointId ToProto(const CheckpointId& checkpoint) {
  v1::CheckpointId out;
  out.set_epoch(checkpoint.epoch.value());
  out.set_serial(checkpoint.serial);
  return out;
}

absl::StatusOr<CheckpointId> FromProto(const v1::CheckpointId& checkpoint) {
  if (checkpoint.epoch() == 0) return Invalid("epoch", "is 0");
  return CheckpointId{Epoch(checkpoint.epoch()), checkpoint.serial()};
}

v1::SnapshotRequest ToProto(const SnapshotRequest& request) {
  v1::SnapshotRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  *out.mutable_checkpoint() = ToProto(request.checkpoint);
  out.set_file(request.file);
  out.set_num_files(request.num_files);
  out.set_wait(request.wait);
  return out;
}

absl::StatusOr<SnapshotRequest> FromProto(const v1::SnapshotRequest& request) {
  SnapshotRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  DIVVY_WIRE_READ(out.checkpoint, request, checkpoint);
  RETURN_IF_ERROR(CheckIndex("file", request.file()));
  RETURN_IF_ERROR(CheckRange("num_files", request.num_files(), request.file() + 1, kMaxDataFiles));
  out.file = request.file();
  out.num_files = request.num_files();
  out.wait = request.wait();
  return out;
}

v1::SavedSlice ToProto(const SavedSlice& slice) {
  v1::SavedSlice out;
  out.set_tensor(slice.tensor);
  out.set_dtype(ToProto(slice.dtype));
  ToProto(slice.full_shape, out.mutable_full_shape());
  out.set_first_row(slice.first_row);
  out.set_rows(slice.rows);
  out.set_offset(slice.offset);
  out.set_size_bytes(slice.size_bytes);
  out.set_masked_crc(slice.masked_crc);
  return out;
}

absl::StatusOr<SavedSlice> FromProto(const v1::SavedSlice& slice) {
  SavedSlice out;
  RETURN_IF_ERROR(CheckName("tensor", slice.tensor()));
  out.tensor = slice.tensor();
  DIVVY_WIRE_READ_ENUM(out.dtype, slice, dtype);
  ASSIGN_OR_RETURN(out.full_shape, In("full_shape", ShapeFromProto(slice.full_shape(), out.dtype)));
  const int64_t all_rows = out.full_shape.rows();
  RETURN_IF_ERROR(CheckRange("first_row", slice.first_row(), 0, all_rows));
  RETURN_IF_ERROR(CheckRange("rows", slice.rows(), 0, all_rows - slice.first_row()));
  const int64_t bytes = slice.rows() * out.full_shape.row_elements() * DTypeSize(out.dtype);
  if (slice.size_bytes() != static_cast<uint64_t>(bytes)) return Invalid("size_bytes", absl::StrCat("is ", slice.size_bytes(), ", and the rows take ", bytes));
  out.first_row = slice.first_row();
  out.rows = slice.rows();
  out.offset = slice.offset();
  out.size_bytes = slice.size_bytes();
  out.masked_crc = slice.masked_crc();
  return out;
}

v1::SnapshotReply ToProto(const SnapshotReply& reply) {
  v1::SnapshotReply out;
  out.set_done(reply.done);
  out.set_written_bytes(reply.written_bytes);
  for (const SavedSlice& slice : reply.slices) *out.add_slices() = ToProto(slice);
  return out;
}

absl::StatusOr<SnapshotReply> FromProto(const v1::SnapshotReply& reply) {
  SnapshotReply out;
  out.done = reply.done();
  RETURN_IF_ERROR(CheckNotNegative("written_bytes", reply.written_bytes()));
  out.written_bytes = reply.written_bytes();
  ASSIGN_OR_RETURN(out.slices, ReadAll("slices", reply.slices(), [](const v1::SavedSlice& slice) { return FromProto(slice); }));
  return out;
}

v1::SyncRequest ToProto(const SyncRequest& request) {
  v1::SyncRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  out.set_seq(request.seq);
  *out.mutable_horizon() = ToProto(request.horizon);
  SetIds(request.sessions, out.mutable_sessions());
  SetIds(request.query, out.mutable_query());
  out.mutable_workers()->Assign(request.workers.begin(), request.workers.end());
  return out;
}

absl::StatusOr<SyncRequest> FromProto(const v1::SyncRequest& request) {
  SyncRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  out.seq = request.seq();
  DIVVY_WIRE_READ(out.horizon, request, horizon);
  out.sessions = IdsOf<SessionId>(request.sessions());
  RETURN_IF_ERROR(CheckRising("sessions", out.sessions));
  out.query = IdsOf<EntryId>(request.query());
  out.workers.assign(request.workers().begin(), request.workers().end());
  if (!out.workers.empty() && out.workers.size() != out.sessions.size()) return Invalid("workers", "there is one for each session, or none");
  for (const int worker : out.workers) RETURN_IF_ERROR(CheckIndex("workers", worker));
  return out;
}

v1::SyncReply ToProto(const SyncReply& reply) {
  v1::SyncReply out;
  out.set_seq(reply.seq);
  SetEntries(reply.applied, out.mutable_applied());
  out.set_applied_seq(reply.applied_seq);
  out.set_memory_bytes(reply.memory_bytes);
  out.set_draining(reply.draining);
  return out;
}

absl::StatusOr<SyncReply> FromProto(const v1::SyncReply& reply) {
  SyncReply out;
  out.seq = reply.seq();
  ASSIGN_OR_RETURN(out.applied, ReadAll("applied", reply.applied(), kReadEntry));
  out.applied_seq = reply.applied_seq();
  RETURN_IF_ERROR(CheckNotNegative("memory_bytes", reply.memory_bytes()));
  out.memory_bytes = reply.memory_bytes();
  out.draining = reply.draining();
  return out;
}

v1::CreateShardsRequest ToProto(const CreateShardsRequest& request) {
  v1::CreateShardsRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  out.set_layout_version(request.layout_version);
  out.set_layout_hash(request.layout_hash);
  out.set_job_seed(request.job_seed);
  for (const ShardSpec& shard : request.shards) *out.add_shards() = ToProto(shard);
  return out;
}

absl::StatusOr<CreateShardsRequest> FromProto(const v1::CreateShardsRequest& request) {
  CreateShardsRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  out.layout_version = request.layout_version();
  out.layout_hash = request.layout_hash();
  out.job_seed = request.job_seed();
  RETURN_IF_ERROR(CheckCount("shards", request.shards_size()));
  ASSIGN_OR_RETURN(out.shards, ReadAll("shards", request.shards(), kReadShard));
  return out;
}

v1::DeleteShardsRequest ToProto(const DeleteShardsRequest& request) {
  v1::DeleteShardsRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  out.set_layout_version(request.layout_version);
  out.set_layout_hash(request.layout_hash);
  for (const ShardKey& shard : request.shards) *out.add_shards() = ToProto(shard);
  return out;
}

absl::StatusOr<DeleteShardsRequest> FromProto(const v1::DeleteShardsRequest& request) {
  DeleteShardsRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  out.layout_version = request.layout_version();
  out.layout_hash = request.layout_hash();
  RETURN_IF_ERROR(CheckCount("shards", request.shards_size()));
  ASSIGN_OR_RETURN(out.shards, ReadAll("shards", request.shards(), [](const v1::ShardKey& key) { return FromProto(key); }));
  return out;
}

v1::LayoutReply ToProto(const LayoutReply& reply) {
  v1::LayoutReply out;
  out.set_layout_version(reply.layout_version);
  return out;
}

absl::StatusOr<LayoutReply> FromProto(const v1::LayoutReply& reply) { return LayoutReply{reply.layout_version()}; }

v1::ShutdownRequest ToProto(const ShutdownRequest& request) {
  v1::ShutdownRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  out.set_exit_code(request.exit_code);
  return out;
}

absl::StatusOr<ShutdownRequest> FromProto(const v1::ShutdownRequest& request) {
  ShutdownRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  RETURN_IF_ERROR(CheckRange("exit_code", request.exit_code(), 0, kMaxExitCode));
  out.exit_code = request.exit_code();
  return out;
}

v1::ShutdownReply ToProto(const ShutdownReply&) { return {}; }
absl::StatusOr<ShutdownReply> FromProto(const v1::ShutdownReply&) { return ShutdownReply(); }

// ---- worker -----------------------------------------------------------------------------------------------------------------------------------------

namespace {

template <typename Request>
absl::StatusOr<Incarnation> TargetOf(const Request& request) {
  if (request.target_incarnation() == 0) return Invalid("target_incarnation", "is 0: Admin.GetStatus tells it");
  return Incarnation(request.target_incarnation());
}

}  // namespace

absl::StatusOr<Incarnation> FromProto(const v1::RequestCheckpointRequest& request) { return TargetOf(request); }
absl::StatusOr<Incarnation> FromProto(const v1::DrainRequest& request) { return TargetOf(request); }
absl::StatusOr<Incarnation> FromProto(const v1::ResizeRequest& request) { return TargetOf(request); }

v1::PsAddress ToProto(const PsAddress& address) {
  v1::PsAddress out;
  out.set_index(address.index);
  out.set_address(Escaped(address.address, kMaxNameBytes));
  out.set_incarnation(address.incarnation.value());
  out.set_max_commit_bytes(address.max_commit_bytes);
  return out;
}

absl::StatusOr<PsAddress> FromProto(const v1::PsAddress& address) {
  RETURN_IF_ERROR(CheckIndex("index", address.index()));
  RETURN_IF_ERROR(CheckName("address", address.address()));
  RETURN_IF_ERROR(CheckNotNegative("max_commit_bytes", address.max_commit_bytes()));
  return PsAddress{address.index(), address.address(), Incarnation(address.incarnation()), address.max_commit_bytes()};
}

v1::WorkerAttachRequest ToProto(const WorkerAttachRequest& request) {
  v1::WorkerAttachRequest out;
  *out.mutable_fence() = ToProto(request.fence);
  for (const PsAddress& ps : request.view) *out.add_view() = ToProto(ps);
  if (request.layout != nullptr) ToProto(*request.layout, out.mutable_layout());
  out.set_job_seed(request.job_seed);
  for (const auto& [name, value] : request.program_flags) (*out.mutable_program_flags())[Escaped(name, kMaxNameBytes)] = value;
  *out.mutable_protocol() = ToProto(request.protocol);
  return out;
}

absl::StatusOr<WorkerAttachRequest> FromProto(const v1::WorkerAttachRequest& request) {
  WorkerAttachRequest out;
  DIVVY_WIRE_READ(out.fence, request, fence);
  ASSIGN_OR_RETURN(out.view, ReadView(request));
  DIVVY_WIRE_READ(out.layout, request, layout);
  out.job_seed = request.job_seed();
  for (const auto& [name, value] : request.program_flags()) {
    RETURN_IF_ERROR(CheckName("program_flags", name));
    out.program_flags.emplace(name, value);
  }
  ASSIGN_OR_RETURN(out.protocol, In("protocol", RangeOf(request.has_protocol(), request.protocol())));
  return out;
}

v1::WorkerAttachReply ToProto(const WorkerAttachReply& reply) {
  v1::WorkerAttachReply out;
  out.set_incarnation(reply.incarnation.value());
  out.set_replicas(reply.replicas);
  out.set_slots(reply.slots);
  *out.mutable_program() = ToProto(reply.program);
  return out;
}

absl::StatusOr<WorkerAttachReply> FromProto(const v1::WorkerAttachReply& reply) {
  if (reply.incarnation() == 0) return Invalid("incarnation", "is 0");
  RETURN_IF_ERROR(CheckRange("replicas", reply.replicas(), 1, kMaxIndex));
  RETURN_IF_ERROR(CheckRange("slots", reply.slots(), 1, kMaxIndex));
  WorkerAttachReply out{Incarnation(reply.incarnation()), reply.replicas(), reply.slots()};
  ASSIGN_OR_RETURN(out.program, In("program", FromProto(reply.program())));  // absent: empty
  return out;
}

}  // namespace divvy::wire
