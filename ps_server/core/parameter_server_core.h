// A complete parameter server without a network. It holds shards, applies each commit once, and
// refuses requests that are fenced.
//
// The core is an event-driven state machine (docs/internals/architecture.md; protocol sections 3,
// 4, 6, 7). Each method takes one request, changes state under one lock, and never waits. It
// answers through `done`, which is called exactly once, from an outbox, after the lock is released.
// That may happen on the caller's thread and within the call. Work on values runs as block tasks on
// the Executor, so other requests, fences and crashes can fall between any two blocks.
//
//   EMPTY           --Load EMPTY-->                   READY
//   READY           --Attach of a higher epoch-->     FROZEN
//   FROZEN          --Load KEEP, or Load EMPTY-->     READY
//   EMPTY, FROZEN   --Load of a checkpoint-->         LOADING
//   LOADING         --all is read-->                  READY
//   LOADING         --error, or Attach of a higher epoch-->  EMPTY
//
//   In any state:    Attach, Load, Shutdown
//   In READY only:   CreateShards, DeleteShards, Pull, Commit, Sync, Snapshot; else NOT_READY
//
// Every request may arrive twice, late, or never. A request states a wanted fact; a repeated
// request gets the same answer and changes nothing. Refusals carry an ErrorDetail
// (protocol/error.h), which documents for each Reason what the sender does. Each method except
// Inspect and StateHash begins with the request check (protocol/request_check.h). The comments
// below do not repeat its refusals.
//
//   // EMPTY, and registers
//   auto core = ParameterServerCore::Start(options, executor, coordinator,
//                                          [](int exit_code, std::string why) { ... });
//   // the coordinator
//   (*core)->Attach(...);    (*core)->Load(...);    (*core)->CreateShards(...);
//   // a worker
//   (*core)->Commit(request, [](absl::StatusOr<CommitReply> reply) { ... });
//
// The core uses memory for the shards (memory_limit_bytes; a large dense shard may take twice its
// size while it is pulled and written, see Shard), for one buffer for each commit and reply in
// flight (bounded by the server's MemoryBudget), for copies of the rows that commits
// change while a checkpoint is written (snapshot_buffer_bytes), and for the applied entries that
// the horizon has not closed.
#ifndef DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_
#define DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_

#include <cstdint>
#include <deque>
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
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/outbox.h"
#include "protocol/clients.h"
#include "protocol/messages.h"
#include "protocol/registrar.h"
#include "protocol/request_check.h"
#include "ps_server/core/applied_table.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/commit_queue.h"
#include "ps_server/core/server_end.h"
#include "ps_server/core/session_set.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/shard_set.h"
#include "ps_server/core/table/table_image.h"
#include "tensor/tensor.h"

namespace divvy {

struct ParameterServerOptions {
  // The index of this task among the parameter servers.
  int index = 0;
  // Identifies this life of the process; not 0.
  Incarnation incarnation;
  // 0: the job of the first Attach.
  JobId job;
  // Where the coordinator can dial it; not empty.
  std::string address;
  // The cluster in this task's TF_CONFIG, which the coordinator compares with its own; may be
  // empty.
  ClusterView cluster;
  // Version and commit of the binary, for messages; may be empty.
  std::string build;
  // The largest commit that this server accepts (--commit_buffer_bytes), in bytes. Attach replies
  // tell it to the coordinator. 0: any.
  int64_t max_commit_bytes = 0;
  // The largest reply to a Pull, in bytes. A larger one is allowed only up to the size of the
  // shards that the pull names. 0: any.
  int64_t max_pull_bytes = 0;
  // The limit for all shards together, in bytes. A create beyond it is refused. > 0.
  int64_t memory_limit_bytes = std::numeric_limits<int64_t>::max();
  // The size of a block in bytes: as many whole rows as fit, at least one. A block is read and
  // written as one. > 0.
  int64_t block_bytes = 1 << 20;
  // Reads, commits and creations of at most this many bytes run on the thread that brings them,
  // because waking another thread takes longer. Larger ones run in tasks, several at the same time.
  // >= 0.
  int64_t at_once_bytes = 64 << 10;
  // A whole shard of at least so many bytes is lent to a pull that allows it (PullPart::may_lend).
  // A smaller one costs less to copy.
  int64_t least_lent_bytes = 64 << 10;
  // Seed of the jitter in waits before retries.
  uint64_t seed = 1;
  // The interval of registrations while no coordinator is attached.
  absl::Duration register_every = absl::Seconds(2);
  // Registers again after hearing nothing from the coordinator for this long.
  absl::Duration coordinator_silence = absl::Seconds(5);
  // The longest that Drain waits for a Sync whose reply can inform the coordinator.
  absl::Duration drain_notice = absl::Seconds(2);
  // Reads and writes checkpoints. Null: this server keeps none. REQUIRES: outlives the core and its
  // tasks.
  CheckpointFiles* checkpoint_files = nullptr;
  // How many bytes of a checkpoint's tensors are written or read at a time; the buffer of a reader
  // is this large. > 0.
  int64_t slice_bytes = 16 << 20;
  // The share of the time in which a checkpoint is written while commits are applied. After each
  // slice the writer pauses accordingly, so that steps keep their speed. It does not pause while
  // commits wait for snapshot_buffer_bytes, nor after snapshot_pacing of writing one checkpoint. In
  // (0, 1].
  double snapshot_share = 0.1;
  absl::Duration snapshot_pacing = absl::Seconds(30);
  // Times the writing of slices. REQUIRES: outlives the core and its tasks.
  Clock* clock = &Clock::Real();
  // The memory for copies of the rows that commits change while a checkpoint is written. No commit
  // begins at or above this limit, so the copies of one commit may exceed it. > 0.
  int64_t snapshot_buffer_bytes = int64_t{1} << 30;
  // For tests: Inspect() reports every id applied in the lineage. Grows without bound.
  bool record_history = false;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// What a parameter server holds, for status pages and tests. All fields are of one moment, except
// the shards' values, which are copied block by block.
struct ParameterServerSnapshot {
  struct Shard {
    std::string name;
    // The number of commits applied to this shard.
    uint64_t version = 0;
    // Each block is whole. While a commit runs, some blocks have its writes and others do not.
    Tensor value;
    // Of a table: its rows, counts and filters. Each segment is whole, as a block is.
    std::optional<TableImage> rows = {};
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
  int64_t memory_bytes = 0;        // of shards, with those being made
  // Its parts. What is missing takes shards that are being made.
  int64_t parameter_bytes = 0, slot_bytes = 0, table_bytes = 0;
  // Sessions that have lost the right to commit, in the life of this process.
  int64_t fenced_sessions = 0;
  size_t running = 0;  // commits that are being applied
  size_t queued = 0;   // commits that wait for a shard
  std::map<ShardKey, Shard> shards;
  // By name: the sums over the parts of the table that lie here.
  std::map<std::string, TablePartStats> tables;
  // This server is writing its part of a checkpoint.
  bool saving = false;
  // Asked to end (Drain), and waiting until the coordinator has been told.
  bool draining = false;
  bool shutting_down = false;
};

// Thread-safe. Destroying the last handle stops the core like a killed process: running block tasks
// stop at their next block, and pending `done` callbacks are dropped.
class ParameterServerCore : public std::enable_shared_from_this<ParameterServerCore> {
 public:
  // Starts empty and registers with `coordinator` until attached. It registers again when it has
  // heard nothing for coordinator_silence. A null `coordinator` means that it never registers,
  // because another component knows its address.
  //
  // `on_exit` is called once, in one of these cases: a Shutdown has been carried out; the
  // coordinator said that the job is over; the coordinator refuses this task for good
  // (registrar.h); a Drain is complete (143). InvalidArgument: the options are invalid. REQUIRES:
  // `executor` outlives all handles.
  static absl::StatusOr<std::shared_ptr<ParameterServerCore>> Start(
      ParameterServerOptions options, Executor& executor,
      std::shared_ptr<CoordinatorClient> coordinator, OnExit on_exit);

  // Takes `fence.epoch` if it is higher. From then on no session may commit, and READY becomes
  // FROZEN. Answers when no apply of an older epoch is running. Commits that wait for a shard at
  // that time are refused at their turn, so after the reply nothing of an older epoch changes this
  // server. STALE_EPOCH: a newer Attach arrived meanwhile.
  void Call(PsAttachRequest request, ResultCallback<PsAttachReply> done);

  // Gives the server its state for the epoch and makes it READY with the given horizon. If it is
  // READY already, answers OK and does nothing.
  //
  // - kEmpty: forgets shards, entries and history. The lineage becomes the epoch.
  // - kKeep: keeps everything. INVALID: the state is not of the expected lineage and layout.
  // - kCheckpoint: forgets all, makes the shards that the request names, and reads their rows,
  //   whichever servers wrote them. Answers when all is read, or after half a second with the
  //   progress so far; the caller then asks again. Errors: MEMORY_LIMIT; CHECKPOINT_MISSING (also:
  //   this server has no checkpoint directory); CHECKPOINT_CORRUPT (also: a tensor has another
  //   dtype or shape); DISK; NOT_READY (its device failed, or another epoch began). After each of
  //   them, except a missing directory (nothing has changed), the server is EMPTY, and accepts a
  //   Load of the same or another checkpoint.
  //
  // INVALID, for each kind: the horizon is not sorted, or the server is loading something else.
  void Call(LoadRequest request, ResultCallback<LoadReply> done);

  // Takes the horizon and the sessions of the request if its `seq` is the highest in this epoch.
  // Answers when no apply of a session outside the set is running, and forgets closed ids just
  // before. The reply's `applied` lists the ids of the query that are applied and remembered.
  // Session 0 is always in the set. INVALID: the horizon is not sorted.
  void Call(SyncRequest request, ResultCallback<SyncReply> done);

  // Writes this server's part of a checkpoint: all shards as they are at the first request for it.
  // Commits continue meanwhile. Answers at once, or with request.wait when the part is on the disk,
  // but at the latest after half a second. NOT_READY: commits are being applied, so the part has
  // not begun; ask again. INVALID: a later checkpoint was requested since. DISK: this part has
  // failed for good, or the server has no checkpoint directory. REQUIRES of the caller: at the
  // first request no commit is in flight at this or any other server. Otherwise the parts are not
  // of one moment.
  void Call(SnapshotRequest request, ResultCallback<SnapshotReply> done);

  // Makes all shards of the request or none. Block tasks compute the initial values. The variable
  // of a slot must exist or be made by the same request. A part of a table that exists goes on with
  // the options of the request. MEMORY_LIMIT: the shards do not fit; nothing was made or changed.
  // INVALID: a key exists with another spec, an initializer is not EvaluatedPerRow, fields
  // contradict each other, or a variable was deleted.
  void Call(CreateShardsRequest request, ResultCallback<LayoutReply> done);
  // Deletes shards; those that do not exist are skipped. Commits that wait for a deleted shard are
  // refused with UNKNOWN_SHARD at their turn. A commit that is running on it completes, and its
  // writes are discarded with the shard.
  void Call(DeleteShardsRequest request, ResultCallback<LayoutReply> done);

  // Reads rows. Each block is read whole, between two commits; different blocks, shards and servers
  // may show different moments. Any session may read, also one that may not commit. UNKNOWN_SHARD:
  // a shard does not exist. INVALID: rows outside the shard; a shard named whole twice; or a reply
  // that is larger than both max_pull_bytes and all shards named, because a small request must not
  // take much memory. ResourceExhausted without a Reason: no memory for the reply.
  void Call(PullRequest request, ResultCallback<PullReply> done);
  // The memory in bytes that the reply will take, for a caller that reserves it before calling
  // Pull. Only Pull checks the rows themselves. 0: the pull will be refused, or its reply takes no
  // memory.
  int64_t PullReplyBytes(const PullRequest& request) const;

  // Applies all parts, once for `entry`. The checks run in this order, at arrival and again when
  // the commit's turn has come; the second run decides:
  //   request check and READY
  //   SESSION_FENCED           the session is not in the set
  //   STEP_CLOSED              the horizon closes the entry
  //   OK, duplicate            the entry is applied already; if it is being applied or waits, the
  //                            answer comes when that is settled, as a duplicate
  //   INVALID                  no entry or no participants
  //   UNKNOWN_SHARD, BAD_COMMIT  see commit_plan.h
  // The commit then waits for its turn at every shard that it writes. A commit enters the queues of
  // all its shards in one step. So all shards see commits in one order, and no commits wait for
  // each other in a circle.
  void Call(CommitRequest request, ResultCallback<CommitReply> done);

  // The checks that Pull and Commit make of a fence before they look at the rest of the request.
  // For a caller that reserves memory for a request before all of it has arrived.
  absl::Status CheckPull(const Fence& fence) const;
  // `worker` is the index in the sender's certificate, if that is a worker's. NOT_AUTHORIZED: the
  // session belongs to another worker.
  absl::Status CheckCommit(const Fence& fence, std::optional<int> worker) const;

  // Refuses new requests (NOT_READY), lets running applies end, answers, then calls on_exit.
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done);

  // Ends the server after SIGTERM. The next Sync reply informs the coordinator; the server waits
  // for one at most drain_notice. Then it ends as after a Shutdown, with exit code 143. The values
  // that it holds are lost.
  void Drain();

  // The parts of the dynamic table that lie here, in the order of their buckets. Empty: there is no
  // such table. They may be deleted from the server meanwhile.
  std::vector<std::shared_ptr<TableShard>> PartsOfTable(absl::string_view name) const;

  enum class Detail : uint8_t { kAll, kWithoutValues };  // values and rows are copied
  ParameterServerSnapshot Inspect(Detail detail = Detail::kAll) const;
  // A hash of all state that requests can change. It is equal before and after a repeated or
  // refused request.
  uint64_t StateHash() const;

 private:
  struct CommitRun;
  struct CreateRun;
  struct ReadRun;
  struct SnapshotRun;
  struct LoadRun;
  // A call whose answer waits until no obsolete apply is running.
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

  ReceiverState Receiver(bool state_allows) const DIVVY_REQUIRES(mu_);
  bool Ready() const DIVVY_REQUIRES(mu_) { return state_ == PsState::kReady && !end_.is_ending(); }
  absl::Status CheckCall(const Fence& fence, bool state_allows) const DIVVY_REQUIRES(mu_);
  // As CheckCall, for a call of the coordinator; also notes that the coordinator was heard.
  absl::Status CheckFromCoordinator(const Fence& fence, bool state_allows) DIVVY_REQUIRES(mu_);
  void Heard() DIVVY_REQUIRES(mu_);
  absl::Status Refusal(Reason reason, absl::string_view why, EntryId entry = EntryId()) const
      DIVVY_REQUIRES(mu_);
  // Turns an error of a part of the core into this server's refusal.
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
  void WriteSliceAfter(absl::Duration pause, const std::shared_ptr<SnapshotRun>& run)
      DIVVY_REQUIRES(mu_);
  void OnPauseOver(const std::shared_ptr<SnapshotRun>& run);
  void EndPause(const std::shared_ptr<SnapshotRun>& run) DIVVY_REQUIRES(mu_);
  void WriteSlice(const std::shared_ptr<SnapshotRun>& run);
  absl::Duration PauseAfter(SnapshotRun& run, absl::Duration took) const DIVVY_REQUIRES(mu_);
  void OnSliceWritten(const std::shared_ptr<SnapshotRun>& run, const absl::Status& status,
                      absl::Duration took);
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
  bool IsDuplicate(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  void Enter(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  // Gives their turn to commits whose turn has come. The caller sees to it that RunStarted follows
  // without the lock.
  void StartNext() DIVVY_REQUIRES(mu_);
  // Applies the commits that have their turn: small ones within the call.
  void RunStarted() DIVVY_EXCLUDES(mu_);
  // Null: no commit has its turn and is not applied by anybody.
  std::shared_ptr<CommitRun> TakeStarted() DIVVY_EXCLUDES(mu_);
  void StartOrRefuse(const std::shared_ptr<CommitRun>& run) DIVVY_REQUIRES(mu_);
  void SettleDuplicates(EntryId entry) DIVVY_REQUIRES(mu_);
  void FinishCommit(const std::shared_ptr<CommitRun>& run);

  const ParameterServerOptions options_;
  Executor& executor_;
  const OnExit on_exit_;
  // Null without a coordinator client. Set before another thread has a handle.
  std::shared_ptr<Registrar> registrar_;

  Outbox outbox_;
  // Lock order: mu_, then a block's lock (shard.h), then the registrar's.
  mutable Mutex mu_;
  JobId job_ DIVVY_GUARDED_BY(mu_);
  Epoch epoch_ DIVVY_GUARDED_BY(mu_);
  Incarnation coordinator_ DIVVY_GUARDED_BY(mu_);
  PsState state_ DIVVY_GUARDED_BY(mu_) = PsState::kEmpty;
  Epoch lineage_ DIVVY_GUARDED_BY(mu_);
  // The parts of the core. They do not know each other; only the core calls them.
  SessionSet sessions_ DIVVY_GUARDED_BY(mu_);
  AppliedTable applied_ DIVVY_GUARDED_BY(mu_);
  ShardSet shards_ DIVVY_GUARDED_BY(mu_);
  CommitQueue<std::shared_ptr<CommitRun>> commits_ DIVVY_GUARDED_BY(mu_);
  // Commits that have their turn and that no thread applies yet.
  std::deque<std::shared_ptr<CommitRun>> started_ DIVVY_GUARDED_BY(mu_);
  ServerEnd end_ DIVVY_GUARDED_BY(mu_);
  // Held calls. Creates wait for shards that are being made; the others wait for running commits.
  std::vector<HeldCreate> held_creates_ DIVVY_GUARDED_BY(mu_);
  std::vector<std::variant<HeldAttach, HeldSync>> held_ DIVVY_GUARDED_BY(mu_);
  std::vector<ResultCallback<ShutdownReply>> held_shutdowns_ DIVVY_GUARDED_BY(mu_);
  // The last checkpoint part requested in this epoch; null: none.
  std::shared_ptr<SnapshotRun> snapshot_ DIVVY_GUARDED_BY(mu_);
  // The load in progress; set in LOADING only.
  std::shared_ptr<LoadRun> loading_ DIVVY_GUARDED_BY(mu_);
  // Whether the coordinator was heard since the last Look.
  bool heard_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_PARAMETER_SERVER_CORE_H_
