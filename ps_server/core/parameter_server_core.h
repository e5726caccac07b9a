// A whole parameter server without a network: holds shards, applies every commit once, and refuses
// what is fenced.
//
// An event-driven state machine (docs/architecture.md; protocol sections 3, 4, 6, 7): each method
// takes one request, changes state under one lock, never waits, and answers through `done`, which
// is called exactly once, from an outbox after the lock is gone (maybe on the caller's thread,
// maybe within the call). Work on values runs as block tasks on the Executor, so other requests,
// fences and crashes fall between any two blocks.
//
//   EMPTY  --Load EMPTY-->  READY  --Attach of a higher epoch-->  FROZEN  --Load KEEP, or any other
//   Load-->  READY EMPTY  --Load of a checkpoint-->  LOADING  --read-->  READY, or --damaged, or
//   Attach of a higher epoch-->  EMPTY
//
//   Attach, Load, Shutdown   in any state     CreateShards, DeleteShards, Pull, Commit, Sync,
//                            Snapshot   in READY, else NOT_READY
//
// Every request may arrive twice, late, or never: it states a wanted fact, and asked again it is
// answered the same and changes nothing. Refusals carry an ErrorDetail (cluster/error.h), where
// each Reason says what the sender does. Each method but Inspect and StateHash begins with the
// prelude (cluster/prelude.h), whose refusals are not said again below.
//
//   // EMPTY, and registers
//   auto core = ParameterServerCore::Start(options, executor, coordinator, [](int exit_code,
//   std::string why) { ... });
//   // the coordinator
//   (*core)->Attach(...);    (*core)->Load(...);    (*core)->CreateShards(...);
//   // a worker
//   (*core)->Commit(request, [](absl::StatusOr<CommitReply> reply) { ... });
//
// Memory: the shards (memory_limit_bytes); one buffer for each commit and reply under way, which
// whoever receives bounds (MemoryBudget); while a checkpoint is written, copies of what commits
// change (snapshot_buffer_bytes); and the applied entries that the horizon has not closed.
#ifndef DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_
#define DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/outbox.h"
#include "cluster/clients.h"
#include "cluster/messages.h"
#include "cluster/prelude.h"
#include "cluster/registrar.h"
#include "ps_server/core/applied_table.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/commit_queue.h"
#include "ps_server/core/server_end.h"
#include "ps_server/core/session_set.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/shard_set.h"
#include "tensor/tensor.h"

namespace divvy {

struct ParameterServerOptions {
  // Of the task.
  int index = 0;
  // Of this process life; not 0.
  Incarnation incarnation;
  // 0: that of the first Attach
  JobId job;
  // Where the coordinator can dial it; not empty.
  std::string address;
  // What its TF_CONFIG says, for the coordinator to compare; may be empty.
  ClusterView cluster;
  // version and commit of the binary, for messages; may be empty
  std::string build;
  // The largest commit it takes, told to all: --commit_buffer_bytes. 0: any.
  int64_t max_commit_bytes = 0;
  // A reply above it has no row twice (Pull). 0: any.
  int64_t max_pull_bytes = 0;
  // Of all shards together; a create beyond it is refused. > 0.
  int64_t memory_limit_bytes = std::numeric_limits<int64_t>::max();
  // whole rows up to this, at least one, are read and written as one. > 0
  int64_t block_bytes = 1 << 20;
  // Of the jitter of its waits.
  uint64_t seed = 1;
  // While not attached.
  absl::Duration register_every = absl::Seconds(2);
  // Nothing heard for so long: registers again.
  absl::Duration coordinator_silence = absl::Seconds(5);
  // What Drain waits for a Sync in which the coordinator can be told.
  absl::Duration drain_notice = absl::Seconds(2);
  // Where checkpoints are; null: this server keeps none. Outlives the core and its tasks.
  CheckpointFiles* checkpoint_files = nullptr;
  // Of a checkpoint's tensors are written and read at a time: what a reader needs. > 0.
  int64_t slice_bytes = 64 << 20;
  // copies of what commits change while a checkpoint is written; at it none begins, so one commit's
  // may come on top. > 0
  int64_t snapshot_buffer_bytes = int64_t{1} << 30;
  // For tests: Inspect() tells every id applied in the lineage. Grows without bound.
  bool record_history = false;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// What a parameter server holds, for status pages and tests. A copy of one moment, but for the
// shards' values, which are copied block by block.
struct ParameterServerSnapshot {
  struct Shard {
    std::string name;
    // commits applied to it
    uint64_t version = 0;
    // whole blocks; between two blocks of a running commit some have its writes and some have not
    Tensor value;
  };
  PsState state = PsState::kEmpty;
  JobId job;
  Epoch epoch, lineage;
  uint64_t layout_version = 0, layout_hash = 0;
  Horizon horizon;
  std::vector<SessionId> sessions;          // sorted
  std::vector<RememberedEntry> remembered;  // applied and not forgotten, by id
  std::map<EntryId, int> history;  // record_history: how often each id was applied in this lineage
  uint64_t applied_seq = 0;        // commits applied in this lineage
  int64_t memory_bytes = 0;        // of shards, those being made included
  size_t running = 0;              // commits that are being applied
  size_t queued = 0;               // commits that wait for a shard
  std::map<ShardKey, Shard> shards;
  // writes its part of a checkpoint
  bool saving = false;
  // asked to end, and not yet sure that the coordinator knows
  bool draining = false;
  bool shutting_down = false;
};

// Thread-safe. Give the last handle away and it is gone as a killed process is: block tasks under
// way stop at their next block, `done`s that wait are dropped.
class ParameterServerCore : public std::enable_shared_from_this<ParameterServerCore> {
 public:
  // Begins empty and registers with `coordinator` until attached, and again when nothing was heard
  // for a while (null: somebody else knows the address). `on_exit` is called once: a Shutdown has
  // been carried out, the coordinator said that the job is over, it refuses this task for ever
  // (registrar.h), or a Drain is complete (143). InvalidArgument: the options.
  // REQUIRES: `executor` outlives all handles.
  static absl::StatusOr<std::shared_ptr<ParameterServerCore>> Start(
      ParameterServerOptions options, Executor& executor,
      std::shared_ptr<CoordinatorClient> coordinator, OnExit on_exit);

  // Obeys `fence.epoch` if it is higher: no session may commit, READY becomes FROZEN. Answers when
  // no apply of an older epoch is running; what waits for a shard then is refused at its turn. So
  // the reply is the last word of all older epochs. A newer Attach meanwhile: STALE_EPOCH.
  void Call(PsAttachRequest request, ResultCallback<PsAttachReply> done);

  // kEmpty: forgets shards, entries and history, the lineage is the epoch. kKeep: keeps all;
  // INVALID if the state is not of the expected lineage and layout. kCheckpoint: forgets all, makes
  // the shards that the request names and reads their rows, whichever servers wrote them; answered
  // when that is done, or after half a second with how far it is: ask again. MEMORY_LIMIT;
  // CHECKPOINT_MISSING (or this server has no directory), CHECKPOINT_CORRUPT (or of another dtype
  // or shape), DISK; NOT_READY: its device failed, or another epoch has begun. After each it is
  // EMPTY, and may be told to load another, or the same again. Then READY with the given horizon.
  // When READY already: OK, nothing done. INVALID, too: a horizon that is not sorted, or while
  // another is being loaded.
  void Call(LoadRequest request, ResultCallback<LoadReply> done);

  // Takes in horizon and sessions if `seq` is above all seen in this epoch. Answers when no apply
  // of a session outside the set is running, and forgets closed ids before that. `applied` tells
  // those of the query that are applied and remembered. Session 0 is always in the set. INVALID: a
  // horizon that is not sorted.
  void Call(SyncRequest request, ResultCallback<SyncReply> done);

  // Writes this server's part of a checkpoint: all shards as they are when it is first asked for,
  // while commits go on. Answered at once, or (request.wait) when the part is on the disk, at the
  // latest after half a second. NOT_READY: commits are being applied just now, and it has not
  // begun. INVALID: a later checkpoint was asked for since. DISK: this part has failed, for good,
  // or the server has no directory. REQUIRES of the caller: no commit is under way when it is first
  // asked for, here or to another server, or the parts are of no one moment.
  void Call(SnapshotRequest request, ResultCallback<SnapshotReply> done);

  // Makes all shards or none; their first values are computed by block tasks. A slot's variable
  // exists or is made by the same request. MEMORY_LIMIT: they do not fit, nothing was made.
  // INVALID: another spec under the same key, an initializer that is not EvaluatedPerRow, fields
  // that contradict, or a variable that was deleted.
  void Call(CreateShardsRequest request, ResultCallback<LayoutReply> done);
  // Commits that wait for a deleted shard are refused with UNKNOWN_SHARD at their turn; a running
  // one ends unseen.
  void Call(DeleteShardsRequest request, ResultCallback<LayoutReply> done);

  // Each block is read whole, between two commits; blocks, shards and servers are no snapshot. Any
  // session may read, also one that may not commit. UNKNOWN_SHARD; INVALID for rows outside the
  // shard, a shard that is named whole twice, or a reply of more than max_pull_bytes and than all
  // shards that are named (few bytes of a request must not ask for much memory); ResourceExhausted
  // without a reason: no memory for the reply.
  void Call(PullRequest request, ResultCallback<PullReply> done);
  // The memory that its reply will take, for who reserves it before asking; Pull alone looks at the
  // rows themselves. 0: it will be refused, or takes none.
  int64_t PullReplyBytes(const PullRequest& request) const;

  // Applies all parts, once for `entry`. Checked in this order, at arrival and again when its turn
  // has come (the check that counts):
  //   prelude and READY; SESSION_FENCED: session not in the set; STEP_CLOSED: the horizon closes
  //   the entry; applied already: OK, duplicate; being applied or waiting: answered when that is
  //   settled, as a duplicate; INVALID: no entry or no participants; UNKNOWN_SHARD and BAD_COMMIT
  //   (commit_plan.h).
  // It then waits for its turn at every shard it writes. Commits queue at all their shards in one
  // step, so all shards see commits in one order and none waits in a circle.
  void Call(CommitRequest request, ResultCallback<CommitReply> done);

  // What Pull, and Commit, would say of a request before they look at anything but its fence: for
  // who reserves memory for it before all of it is there.
  absl::Status CheckPull(const Fence& fence) const;
  // `worker`: the index in the certificate of who commits, where it is a worker's; NOT_AUTHORIZED
  // if the session is of another worker.
  absl::Status CheckCommit(const Fence& fence, std::optional<int> worker) const;

  // Takes nothing new (NOT_READY), lets running applies end, answers, then calls on_exit.
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done);

  // The process was asked to end (SIGTERM): tells the coordinator in the next Sync reply (waits for
  // one at most drain_notice), then ends as by a Shutdown, with
  // 143. What it holds is lost with it.
  void Drain();

  enum class Detail : uint8_t { kAll, kWithoutValues };  // values are copied, block by block
  ParameterServerSnapshot Inspect(Detail detail = Detail::kAll) const;
  // Of all that requests can change: equal before and after a repeated or refused request.
  uint64_t StateHash() const;

 private:
  struct CommitRun;
  struct CreateRun;
  struct ReadRun;
  struct SnapshotRun;
  struct LoadRun;
  // A call whose answer is held back until no obsolete apply is running.
  template <typename Request, typename Reply>
  struct HeldCall {
    Request request;
    ResultCallback<Reply> done;
  };
  using HeldAttach = HeldCall<PsAttachRequest, PsAttachReply>;
  using HeldSync = HeldCall<SyncRequest, SyncReply>;
  using HeldCreate = HeldCall<CreateShardsRequest, LayoutReply>;

  ParameterServerCore(ParameterServerOptions options, Executor& executor, OnExit on_exit);
  void StartRegistrar(std::shared_ptr<CoordinatorClient> coordinator);
  void WatchCoordinator();
  void Look();

  PreludeState Prelude(bool state_allows) const DIVVY_REQUIRES(mu_);
  bool Ready() const DIVVY_REQUIRES(mu_) { return state_ == PsState::kReady && !end_.is_ending(); }
  absl::Status CheckCall(const Fence& fence, bool state_allows) const DIVVY_REQUIRES(mu_);
  // And notes that it was heard.
  absl::Status CheckFromCoordinator(const Fence& fence, bool state_allows) DIVVY_REQUIRES(mu_);
  void Heard() DIVVY_REQUIRES(mu_);
  absl::Status Refusal(Reason reason, absl::string_view why, EntryId entry = EntryId()) const
      DIVVY_REQUIRES(mu_);
  // An error of a part of the core, as this server says it.
  absl::Status Refusal(const absl::Status& error) const DIVVY_REQUIRES(mu_);
  template <typename Reply, typename Result>
  void Answer(const ResultCallback<Reply>& done, Result reply) DIVVY_REQUIRES(mu_) {
    outbox_.Add([done, reply = absl::StatusOr<Reply>(std::move(reply))]() mutable {
      done(std::move(reply));
    });
  }

  // Attach, Load, Sync, Shutdown.
  void BeginEpoch(const Fence& fence) DIVVY_REQUIRES(mu_);
  absl::Status CheckHorizon(const Horizon& horizon) const DIVVY_REQUIRES(mu_);
  absl::Status CheckLoad(const LoadRequest& request) const DIVVY_REQUIRES(mu_);
  void Clear() DIVVY_REQUIRES(mu_);
  void BecomeReady(const LoadRequest& request) DIVVY_REQUIRES(mu_);
  PsAttachReply AttachReplyNow() const DIVVY_REQUIRES(mu_);
  SyncReply SyncReplyNow(const SyncRequest& request) DIVVY_REQUIRES(mu_);
  bool ObsoleteRunning() const DIVVY_REQUIRES(mu_);
  void AnswerHeld() DIVVY_REQUIRES(mu_);
  void AnswerShutdowns() DIVVY_REQUIRES(mu_);
  void BeginShutdown(int exit_code, std::string why) DIVVY_REQUIRES(mu_);
  void CompleteDrain() DIVVY_REQUIRES(mu_);

  // Shards and reads.
  void EnterCreate(HeldCreate call) DIVVY_REQUIRES(mu_);
  void StartCreate(const std::shared_ptr<CreateRun>& run) DIVVY_REQUIRES(mu_);
  void FinishCreate(CreateRun& run) DIVVY_REQUIRES(mu_);
  absl::Status EndCreate(CreateRun& run) DIVVY_REQUIRES(mu_);
  void FinishRead(ReadRun& run);

  // Checkpoints.
  absl::Status CheckSnapshot(const SnapshotRequest& request) const DIVVY_REQUIRES(mu_);
  void BeginSnapshot(const SnapshotRequest& request) DIVVY_REQUIRES(mu_);
  void DropSnapshot() DIVVY_REQUIRES(mu_);
  void WriteSlice(const std::shared_ptr<SnapshotRun>& run) DIVVY_REQUIRES(mu_);
  void OnSliceWritten(const std::shared_ptr<SnapshotRun>& run, const absl::Status& status);
  void AnswerSnapshot(SnapshotRun& run) DIVVY_REQUIRES(mu_);
  void LoadCheckpoint(LoadRequest request, ResultCallback<LoadReply> done) DIVVY_REQUIRES(mu_);
  absl::Status BeginLoading(LoadRequest request) DIVVY_REQUIRES(mu_);
  void DropLoading() DIVVY_REQUIRES(mu_);
  void ReadSlice(const std::shared_ptr<LoadRun>& run) DIVVY_REQUIRES(mu_);
  bool IsCurrent(const std::shared_ptr<LoadRun>& run);
  void OnSliceRead(const std::shared_ptr<LoadRun>& run, const absl::Status& status);
  void AnswerLoading(LoadRun& run, const absl::Status& status) DIVVY_REQUIRES(mu_);
  void AnswerLater(std::function<void(ParameterServerCore&)> answer) DIVVY_REQUIRES(mu_);

  // Commits.
  bool MayStart() const DIVVY_REQUIRES(mu_);
  absl::Status CheckCommitter(const Fence& fence, EntryId entry) const DIVVY_REQUIRES(mu_);
  bool MayCommit(SessionId session) const DIVVY_REQUIRES(mu_);
  absl::Status CheckAdmissible(const CommitRequest& request) const DIVVY_REQUIRES(mu_);
  absl::Status CheckPlan(const CommitRun& run) const DIVVY_REQUIRES(mu_);
  bool MeetsItself(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  void Enter(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  void StartNext() DIVVY_REQUIRES(mu_);
  void StartOrRefuse(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  void SettleDuplicates(EntryId entry) DIVVY_REQUIRES(mu_);
  void FinishCommit(const std::shared_ptr<CommitRun>& run);

  const ParameterServerOptions options_;
  Executor& executor_;
  const OnExit on_exit_;
  // null without a coordinator client; set before anybody else has a handle
  std::shared_ptr<Registrar> registrar_;

  Outbox outbox_;
  // Lock order: mu_, then a block's lock (shard.h), then the registrar's.
  mutable Mutex mu_;
  JobId job_ DIVVY_GUARDED_BY(mu_);
  Epoch epoch_ DIVVY_GUARDED_BY(mu_);
  Incarnation coordinator_ DIVVY_GUARDED_BY(mu_);
  PsState state_ DIVVY_GUARDED_BY(mu_) = PsState::kEmpty;
  Epoch lineage_ DIVVY_GUARDED_BY(mu_);
  // The parts: none of them knows another, and the core alone calls them.
  SessionSet sessions_ DIVVY_GUARDED_BY(mu_);
  AppliedTable applied_ DIVVY_GUARDED_BY(mu_);
  ShardSet shards_ DIVVY_GUARDED_BY(mu_);
  CommitQueue<std::shared_ptr<CommitRun>> commits_ DIVVY_GUARDED_BY(mu_);
  ServerEnd end_ DIVVY_GUARDED_BY(mu_);
  // Calls that wait: creates for a shard that is being made, the others for commits that run.
  std::vector<HeldCreate> held_creates_ DIVVY_GUARDED_BY(mu_);
  std::vector<std::variant<HeldAttach, HeldSync>> held_ DIVVY_GUARDED_BY(mu_);
  std::vector<ResultCallback<ShutdownReply>> held_shutdowns_ DIVVY_GUARDED_BY(mu_);
  // The last that was asked for in this epoch; null: none.
  std::shared_ptr<SnapshotRun> snapshot_ DIVVY_GUARDED_BY(mu_);
  // In LOADING.
  std::shared_ptr<LoadRun> loading_ DIVVY_GUARDED_BY(mu_);
  // From the coordinator since the last look.
  bool heard_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_
