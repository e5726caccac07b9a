// Start, epochs, sessions, the end, and inspection. Commits are in commits.cc, shards and reads in
// shards_and_reads.cc, checkpoints in checkpoints.cc.
#include "ps_server/core/parameter_server_core.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/failpoint.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"
#include "variables/table_parts.h"

namespace divvy {
namespace {

// More would make each Sync of a large job long, and a load that so many shards share is even.
constexpr size_t kMostLoads = 256;

// The shards that were used most since the last call, with their use so far.
std::vector<SyncReply::Load> LoadsOf(const ShardTable& shards) {
  struct Used {
    uint64_t since = 0;
    SyncReply::Load load;
  };
  std::vector<Used> used;
  for (const auto& [key, shard] : shards) {
    if (key.slot != 0) continue;
    Used one{0, {key, shard->used_bytes()}};
    const uint64_t all = std::accumulate(one.load.bytes.begin(), one.load.bytes.end(), uint64_t{0});
    one.since = all - std::exchange(shard->told_use, all);
    if (all > 0) used.push_back(std::move(one));
  }
  if (used.size() > kMostLoads) {
    const auto is_busier = [](const Used& a, const Used& b) { return a.since > b.since; };
    std::nth_element(used.begin(), used.begin() + kMostLoads, used.end(), is_busier);
    used.resize(kMostLoads);
  }
  std::vector<SyncReply::Load> loads;
  for (Used& one : used) loads.push_back(std::move(one.load));
  return loads;
}

}  // namespace

absl::Status ParameterServerOptions::Validate() const {
  std::vector<std::string> problems;
  if (index < 0) problems.push_back(absl::StrCat("index is ", index, ", and must not be negative"));
  if (incarnation.value() == 0) problems.push_back("incarnation is 0; draw a random one");
  if (address.empty())
    problems.push_back("address is empty; name where the coordinator can dial this task");
  if (memory_limit_bytes <= 0)
    problems.push_back(
        absl::StrCat("memory_limit_bytes is ", memory_limit_bytes, ", and must be above 0"));
  if (block_bytes <= 0)
    problems.push_back(absl::StrCat("block_bytes is ", block_bytes, ", and must be above 0"));
  if (at_once_bytes < 0)
    problems.push_back(
        absl::StrCat("at_once_bytes is ", at_once_bytes, ", and must not be negative"));
  if (register_every <= absl::ZeroDuration()) problems.push_back("register_every must be above 0");
  if (coordinator_silence <= absl::ZeroDuration())
    problems.push_back("coordinator_silence must be above 0");
  if (drain_notice <= absl::ZeroDuration()) problems.push_back("drain_notice must be above 0");
  if (slice_bytes <= 0)
    problems.push_back(absl::StrCat("slice_bytes is ", slice_bytes, ", and must be above 0"));
  if (!(snapshot_share > 0 && snapshot_share <= 1))
    problems.push_back(
        absl::StrCat("snapshot_share is ", snapshot_share, ", and must be above 0 and at most 1"));
  if (snapshot_buffer_bytes <= 0)
    problems.push_back(
        absl::StrCat("snapshot_buffer_bytes is ", snapshot_buffer_bytes, ", and must be above 0"));
  if (max_pull_bytes < 0)
    problems.push_back(
        absl::StrCat("max_pull_bytes is ", max_pull_bytes, ", and must not be negative"));
  if (max_commit_bytes < 0)
    problems.push_back(
        absl::StrCat("max_commit_bytes is ", max_commit_bytes, ", and must not be negative"));
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("options of a parameter server: ", absl::StrJoin(problems, "; ")));
}

absl::StatusOr<std::shared_ptr<ParameterServerCore>> ParameterServerCore::Start(
    ParameterServerOptions options, Executor& executor,
    std::shared_ptr<CoordinatorClient> coordinator, OnExit on_exit) {
  RETURN_IF_ERROR(options.Validate());
  std::shared_ptr<ParameterServerCore> core(
      new ParameterServerCore(std::move(options), executor, std::move(on_exit)));
  if (coordinator != nullptr) core->StartRegistrar(std::move(coordinator));
  return core;
}

ParameterServerCore::ParameterServerCore(ParameterServerOptions options, Executor& executor,
                                         OnExit on_exit)
    : options_(std::move(options)),
      executor_(executor),
      on_exit_(std::move(on_exit)),
      job_(options_.job),
      applied_(options_.record_history ? AppliedTable::Keep::kHistory
                                       : AppliedTable::Keep::kUnclosed),
      shards_(options_.memory_limit_bytes, options_.block_bytes) {}

void ParameterServerCore::StartRegistrar(std::shared_ptr<CoordinatorClient> coordinator) {
  Registrar::Options options;
  options.request = {Role::kPs, options_.index,   options_.incarnation, options_.address,
                     1,         options_.cluster, kOwnProtocol,         options_.build};
  options.request.without_checkpoints = options_.checkpoint_files == nullptr;
  options.every = options_.register_every;
  options.seed = options_.seed;
  registrar_ = Registrar::Create(std::move(options), std::move(coordinator), executor_,
                                 [weak = weak_from_this()](int exit_code, std::string why) {
                                   const auto self = weak.lock();
                                   if (self == nullptr) return;
                                   CoreLock lock(self->mu_, self->outbox_);
                                   self->BeginShutdown(exit_code, std::move(why));
                                 });
  registrar_->OnDetached();
  WatchCoordinator();
}

void ParameterServerCore::WatchCoordinator() {
  executor_.PostAfter(options_.coordinator_silence, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Look();
  });
}

// A coordinator sends Sync every second. If it was not heard since the last look, it may have been
// replaced by one at another address that does not know this task.
void ParameterServerCore::Look() {
  bool heard = false;
  {
    MutexLock lock(mu_);
    if (end_.is_ending()) return;
    std::swap(heard, heard_);
  }
  if (!heard) registrar_->OnDetached();
  WatchCoordinator();
}

void ParameterServerCore::Heard() {
  heard_ = true;
  if (registrar_ != nullptr) registrar_->OnAttached();
}

ReceiverState ParameterServerCore::Receiver(bool state_allows) const {
  return {Role::kPs, options_.index, options_.incarnation, job_,
          epoch_,    coordinator_,   state_allows};
}

absl::Status ParameterServerCore::CheckCall(const Fence& fence, bool state_allows) const {
  return CheckRequest(fence, Receiver(state_allows), CallKind::kOther);
}

absl::Status ParameterServerCore::CheckFromCoordinator(const Fence& fence, bool state_allows) {
  RETURN_IF_ERROR(CheckCall(fence, state_allows));
  Heard();
  return absl::OkStatus();
}

absl::Status ParameterServerCore::Refusal(Reason reason, absl::string_view why,
                                          EntryId entry) const {
  ErrorDetail detail;
  detail.reason = reason;
  detail.role = Role::kPs;
  detail.index = options_.index;
  detail.epoch = epoch_;
  detail.entry = entry;
  return MakeError(detail, absl::StrCat("ps ", options_.index, ": ", why));
}

absl::Status ParameterServerCore::Refusal(const absl::Status& error) const {
  return Refusal(ReasonOf(error), error.message());
}

absl::Status ParameterServerCore::CheckHorizon(const Horizon& horizon) const {
  const bool sorted = std::is_sorted(horizon.open.begin(), horizon.open.end());
  if (sorted && (horizon.open.empty() || horizon.open.back() < horizon.next))
    return absl::OkStatus();
  return Refusal(Reason::kInvalid, "a horizon's open ids must be sorted and below its next id");
}

// ---- Attach -------------------------------------------------------------------------------------

void ParameterServerCore::Call(PsAttachRequest request, ResultCallback<PsAttachReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckRequest(request.fence, Receiver(true), CallKind::kAttach);
  if (status.ok()) status = CheckProtocol(request.protocol, Receiver(true));
  if (status.ok()) status = CheckIndex(request.index, Receiver(true));
  if (status.ok() && end_.is_ending()) status = Refusal(Reason::kNotReady, "it is shutting down");
  if (!status.ok()) return Answer(done, std::move(status));
  Heard();
  if (request.fence.epoch > epoch_) BeginEpoch(request.fence);
  held_.push_back(HeldAttach{std::move(request), std::move(done)});
  AnswerHeld();
}

void ParameterServerCore::BeginEpoch(const Fence& fence) {
  job_ = fence.job;
  epoch_ = fence.epoch;
  coordinator_ = fence.coordinator;
  sessions_.Clear();
  HitFailpoint(Failpoint::kAttachEpochTaken);
  DropSnapshot();
  DropLoading();
  if (state_ == PsState::kReady) state_ = PsState::kFrozen;
  // Commits that waited for the memory of a snapshot are refused now.
  StartNext();
  outbox_.Add([this] { RunStarted(); });
}

PsAttachReply ParameterServerCore::AttachReplyNow() const {
  PsAttachReply reply;
  reply.incarnation = options_.incarnation;
  reply.state = state_;
  reply.lineage = lineage_;
  reply.layout_version = shards_.layout_version();
  reply.layout_hash = shards_.layout_hash();
  reply.horizon = applied_.horizon();
  reply.remembered = applied_.Applied();
  reply.memory_bytes = shards_.bytes();
  reply.max_commit_bytes = options_.max_commit_bytes;
  reply.without_checkpoints = options_.checkpoint_files == nullptr;
  return reply;
}

// ---- Load ---------------------------------------------------------------------------------------

void ParameterServerCore::Call(LoadRequest request, ResultCallback<LoadReply> done) {
  CoreLock lock(mu_, outbox_);
  // While a commit of an older epoch still runs, no Attach of this epoch has been answered, so this
  // Load has overtaken its Attach.
  absl::Status status =
      CheckFromCoordinator(request.fence, !end_.is_ending() && !ObsoleteRunning());
  const bool asked_again = status.ok() && state_ == PsState::kReady;
  if (status.ok() && !asked_again) status = CheckLoad(request);
  if (!status.ok()) return Answer(done, std::move(status));
  if (!asked_again) {
    if (request.from == LoadRequest::From::kCheckpoint)
      return LoadCheckpoint(std::move(request), std::move(done));
    if (request.from == LoadRequest::From::kEmpty) Clear();
    BecomeReady(request);
  }
  Answer(done, LoadReply{false, 0, shards_.layout_hash()});
}

void ParameterServerCore::BecomeReady(const LoadRequest& request) {
  applied_.TakeHorizon(request.horizon);
  applied_.ForgetClosed();
  shards_.SetLayout(request.layout_version, request.layout_hash);
  state_ = PsState::kReady;
}

absl::Status ParameterServerCore::CheckLoad(const LoadRequest& request) const {
  RETURN_IF_ERROR(CheckHorizon(request.horizon));
  if (request.from == LoadRequest::From::kCheckpoint) return absl::OkStatus();
  if (state_ == PsState::kLoading)
    return Refusal(Reason::kInvalid, "it is already loading a checkpoint in this epoch");
  if (request.from == LoadRequest::From::kEmpty) return absl::OkStatus();
  if (state_ != PsState::kFrozen)
    return Refusal(Reason::kInvalid, "it holds no state to keep; load EMPTY or a checkpoint");
  if (request.expected_lineage != lineage_ || request.layout_hash != shards_.layout_hash()) {
    return Refusal(Reason::kInvalid,
                   absl::StrCat("its state is of lineage ", lineage_.value(), " and layout ",
                                absl::Hex(shards_.layout_hash()), ", and not of lineage ",
                                request.expected_lineage.value(), " and layout ",
                                absl::Hex(request.layout_hash), "; load EMPTY"));
  }
  return absl::OkStatus();
}

void ParameterServerCore::Clear() {
  outbox_.Add([dead = shards_.Clear()] {});  // freed outside the lock
  applied_.Clear();
  lineage_ = epoch_;
}

// ---- Sync ---------------------------------------------------------------------------------------

void ParameterServerCore::Call(SyncRequest request, ResultCallback<SyncReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckFromCoordinator(request.fence, state_ == PsState::kReady);
  if (status.ok()) status = CheckHorizon(request.horizon);
  if (!status.ok()) return Answer(done, std::move(status));
  if (sessions_.Take(request)) applied_.TakeHorizon(request.horizon);
  HitFailpoint(Failpoint::kSyncBeforeWait);
  held_.push_back(HeldSync{std::move(request), std::move(done)});
  AnswerHeld();
}

SyncReply ParameterServerCore::SyncReplyNow(const SyncRequest& request) {
  applied_.ForgetClosed();
  const bool draining = end_.is_draining();
  SyncReply reply{request.seq, applied_.Applied(request.query), applied_.applied_seq(),
                  shards_.bytes(), draining || end_.is_ending()};
  for (const std::shared_ptr<Shard>& part : shards_.parts_of_tables())
    reply.tables.push_back({part->spec().key, part->table()->stats()});
  reply.loads = LoadsOf(*shards_.table());
  reply.memory_limit_bytes = options_.memory_limit_bytes;
  if (draining) end_.CompleteDrain();  // the drain ends after this answer
  return reply;
}

void ParameterServerCore::AnswerHeld() {
  if (held_.empty() || ObsoleteRunning()) return;
  std::vector<std::variant<HeldAttach, HeldSync>> held;
  held.swap(held_);
  for (const auto& call : held) {
    if (const auto* attach = std::get_if<HeldAttach>(&call)) {
      const absl::Status status =
          CheckRequest(attach->request.fence, Receiver(true), CallKind::kAttach);
      if (status.ok())
        Answer(attach->done, AttachReplyNow());
      else
        Answer(attach->done, status);
    } else if (const auto* sync = std::get_if<HeldSync>(&call)) {
      HitFailpoint(Failpoint::kSyncAfterWait);
      const absl::Status status = CheckCall(sync->request.fence, state_ == PsState::kReady);
      if (status.ok())
        Answer(sync->done, SyncReplyNow(sync->request));
      else
        Answer(sync->done, status);
    }
  }
  AnswerShutdowns();  // a drain ends once the coordinator has been told
}

// ---- Shutdown -----------------------------------------------------------------------------------

void ParameterServerCore::Call(ShutdownRequest request, ResultCallback<ShutdownReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckFromCoordinator(request.fence, true);
  if (!status.ok()) return Answer(done, std::move(status));
  held_shutdowns_.push_back(std::move(done));
  BeginShutdown(request.exit_code, "");
}

void ParameterServerCore::BeginShutdown(int exit_code, std::string why) {
  end_.Begin(exit_code, std::move(why));
  AnswerShutdowns();
}

void ParameterServerCore::Drain() {
  CoreLock lock(mu_, outbox_);
  if (!end_.StartDrain()) return;
  if (state_ != PsState::kReady) return CompleteDrain();  // no job depends on its values
  outbox_.Add([this, weak = weak_from_this()] {
    executor_.PostAfter(options_.drain_notice, [weak] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      CoreLock lock(self->mu_, self->outbox_);
      self->CompleteDrain();
    });
  });
}

void ParameterServerCore::CompleteDrain() {
  end_.CompleteDrain();
  AnswerShutdowns();
}

void ParameterServerCore::AnswerShutdowns() {
  if (!end_.is_ending() || !commits_.running().empty()) return;
  for (const auto& done : std::exchange(held_shutdowns_, {})) Answer(done, ShutdownReply());
  const std::optional<ServerEnd::Exit> exit = end_.TakeExit();
  if (exit && on_exit_)
    outbox_.Add([on_exit = on_exit_, exit = *exit] { on_exit(exit.code, exit.why); });
}

std::vector<std::shared_ptr<TableShard>> ParameterServerCore::PartsOfTable(
    absl::string_view name) const {
  std::vector<std::shared_ptr<TableShard>> parts;
  MutexLock lock(mu_);
  for (const std::shared_ptr<Shard>& part : shards_.parts_of_tables()) {
    if (part->spec().name == name) parts.emplace_back(part, part->table());
  }
  return parts;
}

// ---- Inspection ---------------------------------------------------------------------------------

namespace {

TableImage RowsOf(TableShard& table) {
  TableImage image;
  for (int64_t segment = 0; segment < table.segments(); ++segment) {
    SegmentRows rows;
    table.With(segment, [&rows](const TableSegment& of) { rows = of.Copy(); });
    TableImage of_segment;
    Append(table.format(), std::move(rows), of_segment);
    Append(std::move(of_segment), image);
  }
  return image;
}

template <typename Add>
void AddRows(const TableImage& rows, const Add& add) {
  const auto add_column = [&add](const auto& column) {
    add(HashText(absl::string_view(reinterpret_cast<const char*>(column.data()),
                                   column.size() * sizeof(column[0]))));
  };
  for (const auto* column : {&rows.keys, &rows.counts, &rows.ticks, &rows.waiting.keys,
                             &rows.waiting.counts, &rows.waiting.ticks})
    add_column(*column);
  add_column(rows.values);
  for (const std::vector<char>& slot : rows.slots) add_column(slot);
  add_column(rows.filter);
}

}  // namespace

ParameterServerSnapshot ParameterServerCore::Inspect(Detail detail) const {
  ParameterServerSnapshot snapshot;
  MutexLock lock(mu_);
  snapshot.state = state_;
  snapshot.job = job_;
  snapshot.epoch = epoch_;
  snapshot.lineage = lineage_;
  snapshot.layout_version = shards_.layout_version();
  snapshot.layout_hash = shards_.layout_hash();
  snapshot.horizon = applied_.horizon();
  snapshot.sessions = sessions_.sessions();
  snapshot.remembered = applied_.Applied();
  snapshot.history = applied_.history();
  snapshot.applied_seq = applied_.applied_seq();
  snapshot.memory_bytes = shards_.bytes() + shards_.bytes_being_made();
  snapshot.slot_bytes = shards_.slot_bytes();
  snapshot.table_bytes = shards_.table_bytes();
  snapshot.parameter_bytes = shards_.bytes() - snapshot.slot_bytes - snapshot.table_bytes;
  snapshot.fenced_sessions = sessions_.num_fenced();
  snapshot.running = commits_.running().size();
  snapshot.queued = commits_.waiting();
  snapshot.saving = snapshot_ != nullptr && !snapshot_->over;
  snapshot.draining = end_.is_draining();
  snapshot.shutting_down = end_.is_ending();
  for (const auto& [key, shard] : *shards_.table()) {
    ParameterServerSnapshot::Shard& seen = snapshot.shards[key];
    seen.name = shard->spec().name;
    seen.version = shard->version;
    if (detail != Detail::kAll) continue;
    seen.value = shard->Copy().value_or(Tensor());
    if (shard->table() != nullptr) seen.rows = RowsOf(*shard->table());
  }
  for (const std::shared_ptr<Shard>& part : shards_.parts_of_tables())
    snapshot.tables[part->spec().name] += part->table()->stats();
  return snapshot;
}

uint64_t ParameterServerCore::StateHash() const {
  const ParameterServerSnapshot now = Inspect();
  uint64_t hash = static_cast<uint64_t>(now.state);
  const auto add = [&hash](uint64_t value) { hash = MixSeeds(hash, value); };
  for (uint64_t value : {now.job.value(), now.epoch.value(), now.lineage.value(),
                         now.layout_version, now.layout_hash, now.applied_seq})
    add(value);
  for (uint64_t value : {now.horizon.next.value(), now.horizon.finished_steps,
                         uint64_t{now.shutting_down} + 2 * uint64_t{now.draining}})
    add(value);
  for (EntryId id : now.horizon.open) add(id.value());
  for (SessionId session : now.sessions) add(session.value());
  for (const RememberedEntry& entry : now.remembered)
    add(MixSeeds(entry.id.value(), static_cast<uint64_t>(entry.participants)));
  for (const auto& [key, shard] : now.shards) {
    add(MixSeeds(key.packed(), shard.version));
    add(HashText(absl::string_view(shard.value.data_as<char>(),
                                   static_cast<size_t>(shard.value.size_bytes()))));
    if (shard.rows) AddRows(*shard.rows, add);
  }
  return hash;
}

}  // namespace divvy
