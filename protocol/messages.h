// The messages between the three roles, as plain values: the protocol's calls
// (docs/internals/protocol.md) without their encoding. Tensors in a message are shared handles; no
// code writes to them again. The tensors of pulls and commits lie on the CPU.
//
// Messages are not validated on construction. wire/ validates each message that it decodes as far
// as that needs no state: ranges, order, names, sizes that must agree. So a receiver relies on the
// comments beside the fields, and checks only what depends on its own state.
//
// A request states a wanted fact, not a change. It may arrive twice, late, or never. A receiver
// answers a repeated request as it answered the first (docs/internals/protocol.md, section 4).
#ifndef DIVVY_PROTOCOL_MESSAGES_H_
#define DIVVY_PROTOCOL_MESSAGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/value_histogram.h"
#include "optimizers/optimizer.h"
#include "protocol/error.h"
#include "protocol/horizon.h"
#include "protocol/ids.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"
#include "variables/layout.h"
#include "variables/shard_transfer.h"
#include "variables/table_stats.h"
#include "variables/variable_spec.h"

namespace divvy {

// The first member of every request but RegisterRequest: the sender, its generation, and the
// incarnation of the receiver that is meant. Receivers check it first (request_check.h).
struct Fence {
  JobId job;
  Epoch epoch;
  // The incarnation of the coordinator that made the epoch.
  Incarnation coordinator;
  // Set in data requests. The coordinator's own session is 0.
  SessionId session;
  // 0: not known yet, allowed in Attach only.
  Incarnation target;
};

// The versions of the protocol that a process speaks. Two processes work together if their ranges
// overlap. The receiver of Register and Attach checks this before anything else (VERSION_MISMATCH).
// REQUIRES: oldest <= newest.
struct ProtocolRange {
  uint32_t oldest = 1, newest = 1;
  bool Meets(ProtocolRange other) const { return oldest <= other.newest && other.oldest <= newest; }
};
constexpr ProtocolRange kOwnProtocol{3, 3};

// Role name -> index -> address: the cluster as one task knows it. The coordinator's own view may
// be empty, and a ps may know only itself.
using ClusterView = std::map<std::string, std::map<int, std::string>>;

// ---- registration -------------------------------------------------------------------------------

// What all processes of a job must agree on about their program. Empty members are not compared.
struct ProgramDescription {
  // step name -> signature of its types, as the compiler writes it (RegisteredStep::signature)
  std::map<std::string, std::string> steps = {};
  // the names of the program's own flags
  std::set<std::string> flags = {};
  // Identifies the file that holds the program. A different one causes a warning, never a refusal.
  std::string build = {};
};

// A worker or ps repeats this until it is attached. The coordinator only remembers the request.
struct RegisterRequest {
  // kWorker or kPs
  Role role = Role::kWorker;
  int index = 0;
  Incarnation incarnation;
  // The address at which the coordinator can dial the task.
  std::string address;
  // Worker: the number of its replicas.
  int replicas = 1;
  // The cluster in the task's own TF_CONFIG. If it contradicts the coordinator's, the task is
  // refused (CLUSTER_MISMATCH).
  ClusterView cluster = {};
  ProtocolRange protocol = kOwnProtocol;
  // version and commit of the binary, for log messages; may be empty
  std::string build = {};
  // Worker: the program that it runs. If it contradicts the coordinator's, the worker is refused
  // (CLUSTER_MISMATCH).
  ProgramDescription program = {};
  // ps: it has no directory for checkpoints. If the job keeps checkpoints, the ps is refused
  // (CLUSTER_MISMATCH).
  bool without_checkpoints = false;
};
struct RegisterReply {
  // the coordinator's job
  JobId job;
  // The coordinator's epoch. It is information only: a task obeys an epoch only after an Attach.
  Epoch epoch;
  // The job has ended: the task exits with this code.
  std::optional<int> over;
};

// ---- parameter server ---------------------------------------------------------------------------

enum class PsState : uint8_t {
  // The ps holds nothing.
  kEmpty,
  // The ps reads a checkpoint.
  kLoading,
  // The ps serves.
  kReady,
  // The ps holds the values of an older epoch. It serves nothing before the next Load.
  kFrozen,
};
enum class EntryKind : uint8_t {
  // a training step
  kStep,
  // a direct write of the program
  kWrite,
};

// A step's positions in a leased dataset: elements [first, first + count) of a pass. A count of 0
// means that the data had ended before the step was dispatched.
struct InputLease {
  ResourceId iterator;
  int64_t first = 0, count = 0;
  friend bool operator==(const InputLease& a, const InputLease& b) {
    return a.iterator == b.iterator && a.first == b.first && a.count == b.count;
  }
};

// An applied entry that the ps still remembers.
struct RememberedEntry {
  EntryId id;
  // The number of ps that the entry commits to, as its commit said.
  int participants = 0;
  EntryKind kind = EntryKind::kStep;
  // the leased positions that the step has read, as its commit said
  std::vector<InputLease> inputs = {};
};

// Puts the ps into `fence.epoch`. The ps removes all sessions, finishes the commits that it is
// applying, and from then on applies nothing of an older epoch. READY becomes FROZEN.
struct PsAttachRequest {
  Fence fence;
  ProtocolRange protocol = kOwnProtocol;
  // The index by which the coordinator knows the ps. Absent: not said.
  std::optional<int> index = {};
};
struct PsAttachReply {
  Incarnation incarnation;
  PsState state = PsState::kEmpty;
  // the epoch in which the values were last loaded or cleared
  Epoch lineage;
  // of the last layout that the ps received
  uint64_t layout_version = 0, layout_hash = 0;
  // the last horizon that the ps received
  Horizon horizon;
  // all applied entries that the ps has not forgotten, by id
  std::vector<RememberedEntry> remembered;
  // the memory of its shards
  int64_t memory_bytes = 0;
  // the largest commit that the ps accepts; 0: no limit
  int64_t max_commit_bytes = 0;
  // as in RegisterRequest
  bool without_checkpoints = false;
};

// A shard to create: rows [first_row, first_row + rows) of a variable or slot.
struct ShardSpec {
  ShardKey key;
  // The name of the whole variable, or "<variable>/<optimizer>/<slot>".
  std::string name;
  DType dtype = DType::kFloat32;
  // the shape of this shard
  Shape shape;
  Shape full_shape;
  int64_t first_row = 0;
  // The ps evaluates it for its own rows (REQUIRES: EvaluatedPerRow).
  Initializer initializer;
  // Set for a part of a dynamic table. Its rows are buckets: `shape` is [buckets, width].
  std::optional<TableOptions> table = {};
  // Of a table: what applies gradients to it; its slots lie in the rows.
  std::optional<Optimizer> optimizer = {};
};

// Sets the state that the epoch begins with. Acts once in an epoch: if the ps is READY, a repeated
// request does nothing and gets OK. To read a checkpoint takes long, so the ps replies with its
// progress within half a second, and the coordinator asks again.
struct LoadRequest {
  enum class From : uint8_t {
    // Drop everything.
    kEmpty,
    // Keep everything. The ps must be FROZEN.
    kKeep,
    // Drop everything, then read `shards` from `checkpoint`.
    kCheckpoint,
  };
  Fence fence;
  From from = From::kEmpty;
  // kKeep: refused if the values have another lineage.
  Epoch expected_lineage;
  uint64_t layout_version = 0, layout_hash = 0;
  Horizon horizon;
  // kCheckpoint: the checkpoint to read
  CheckpointId checkpoint;
  // kCheckpoint: as in CreateShardsRequest
  uint64_t job_seed = 0;
  // kCheckpoint: all shards of this ps; their initializers have no meaning here
  std::vector<ShardSpec> shards;
};
struct LoadReply {
  // The ps is not READY yet: the coordinator asks again.
  bool loading = false;
  // bytes read so far
  int64_t loaded_bytes = 0;
  uint64_t layout_hash = 0;
  // bytes that there are to read; 0: not said
  int64_t total_bytes = 0;
};

// Rows of a tensor in a data file of a checkpoint.
struct SavedSlice {
  std::string tensor;
  DType dtype = DType::kFloat32;
  Shape full_shape;
  int64_t first_row = 0, rows = 0;
  // in the file
  uint64_t offset = 0, size_bytes = 0;
  // the CRC32C of the bytes, masked as in TFRecord
  uint32_t masked_crc = 0;
  // Set for rows of a dynamic table, whose place is known only when all parts are written: they
  // follow the rows of all slices with smaller first buckets. first_row is 0, and full_shape has
  // the rows of this slice.
  std::optional<int64_t> first_bucket = {};
};

// Writes the part of a checkpoint that this ps has: its shards as they are when the first request
// for this checkpoint arrives. Commits continue meanwhile. A repeated request returns the state of
// that part. A request for a checkpoint older than another requested one is refused, because the
// older one has been given up.
struct SnapshotRequest {
  Fence fence;
  CheckpointId checkpoint;
  // This part is data file number `file` of `num_files`.
  int file = 0, num_files = 1;
  // The ps may delay the reply until the part is written, by half a second at most.
  bool wait = false;
};
struct SnapshotReply {
  // The part is written and synced. False: the shards are marked, so later commits do not change
  // it.
  bool done = false;
  // so far
  int64_t written_bytes = 0;
  // if done: all slices of the file, in its order
  std::vector<SavedSlice> slices;
  // bytes that there are to write; 0: not said
  int64_t total_bytes = 0;
};

// States the wanted horizon and sessions. The ps replies when no commit of a removed session is
// being applied; then it forgets the closed ids. A request whose number is not above all earlier
// ones changes nothing. So a reply is a fence: a session that is not in `sessions` will never
// commit to this ps again in this epoch.
struct SyncRequest {
  Fence fence;
  uint64_t seq = 0;
  Horizon horizon;
  // All sessions that may commit; sorted.
  std::vector<SessionId> sessions;
  // Entries to look up: the reply has those that the ps has applied.
  std::vector<EntryId> query;
  // The worker index of each session, in the order of `sessions`. Empty: not known.
  std::vector<int> workers;
};
struct SyncReply {
  // A table of which the ps has a part.
  struct Table {
    ShardKey shard;
    TablePartStats stats;
  };
  // How much a shard of slot 0 is used: the bytes of its rows that were read or written since it
  // was made or loaded, and something for each row that was named.
  struct Load {
    // Equal parts of the rows.
    static constexpr int kParts = 16;
    ShardKey shard;
    // [kParts] of each part of the rows
    std::vector<uint64_t> bytes;
  };
  // The number of the request. It acknowledges all requests with lower numbers too.
  uint64_t seq = 0;
  // The entries of the query that the ps has applied.
  std::vector<RememberedEntry> applied;
  // commits applied in this lineage
  uint64_t applied_seq = 0;
  // The memory of the ps' shards.
  int64_t memory_bytes = 0;
  // The process was asked to end, so its values will be lost.
  bool draining = false;
  // Its parts of dynamic tables.
  std::vector<Table> tables = {};
  // Its shards that were used most since the last answer, at most 256.
  std::vector<Load> loads = {};
  // What its shards may take together; 0: not known.
  int64_t memory_limit_bytes = 0;
};

// Creates shards. The ps checks the memory for all of them, then creates all. A shard that exists
// already is OK if it was made from an equal spec, else INVALID. A part of a dynamic table that
// exists already takes the options of the spec.
struct CreateShardsRequest {
  Fence fence;
  // the layout that has the shards
  uint64_t layout_version = 0, layout_hash = 0;
  // the seed from which initial values are made (InitializerContext)
  uint64_t job_seed = 0;
  // A slot comes with its variable or after it.
  std::vector<ShardSpec> shards;
};
// Deletes shards. Shards that do not exist are ignored. Deleted ids are never used again.
struct DeleteShardsRequest {
  Fence fence;
  uint64_t layout_version = 0, layout_hash = 0;
  std::vector<ShardKey> shards;
};
struct LayoutReply {
  uint64_t layout_version = 0;
};

// Memory for the values of a pull. For one thread.
class PullTarget {
 public:
  virtual ~PullTarget() = default;
  // The memory for the values of the next part, in the order of the parts. ResourceExhausted: there
  // is no room for them.
  virtual absl::StatusOr<Tensor> Next(DType dtype, Shape shape) = 0;
};
struct PullRequest {
  Fence fence;
  // Each shard is read whole by at most one part.
  std::vector<PullPart> parts;
  // Where the ps puts the values. Null: into memory of its own. Not sent: each end of a connection
  // has its own target, or none.
  std::shared_ptr<PullTarget> target = nullptr;
  // The step that reads. 0: no step reads, or not said. For people only: it decides nothing.
  EntryId step = {};
};
// All writes of one entry to one ps. The ps applies all of them or none, and each entry id once,
// however often the request arrives and from whichever worker.
struct CommitRequest {
  Fence fence;
  EntryId entry;
  // For log messages only: it decides nothing.
  uint32_t attempt = 0;
  EntryKind kind = EntryKind::kStep;
  // The number of ps that the entry commits to, at least 1. All commits of one entry have the same
  // number.
  int participants = 1;
  // At least one.
  std::vector<CommitPart> parts;
  // The leased positions that the step has read. The ps remembers them with the id: if the
  // coordinator is lost, only the parameter servers know how far a pass has got.
  std::vector<InputLease> inputs = {};
  // The rows of tables that it names were used at this time (Dispatch::tick).
  uint32_t tick = 0;
};
struct CommitReply {
  // The entry had been applied before, and this payload was dropped.
  bool duplicate = false;
  // commits applied in this lineage when the ps replied
  uint64_t applied_seq = 0;
  // The version of each part's shard after the commit. Empty for a duplicate.
  std::vector<uint64_t> versions;
  // From the whole request until the reply was known; 0: not said. For people only.
  absl::Duration served = {};
};

// Ends a worker or ps. The task accepts nothing new, finishes the commits in flight, replies, then
// exits with the code.
struct ShutdownRequest {
  Fence fence;
  int exit_code = 0;
};
struct ShutdownReply {};

// ---- worker -------------------------------------------------------------------------------------

// The address of one parameter server. A worker learns the addresses only from the coordinator.
struct PsAddress {
  int index = 0;
  std::string address;
  Incarnation incarnation;
  // A step with a larger commit fails before anything is sent. 0: no limit.
  int64_t max_commit_bytes = 0;
};
using View = std::vector<PsAddress>;

// Begins a session. The worker drops all that an older session left, including its commits in
// flight: the ps have fenced that session.
struct WorkerAttachRequest {
  // `fence.session` is the new session.
  Fence fence;
  View view;
  std::shared_ptr<const Layout> layout;
  uint64_t job_seed = 0;
  // The program's own flags, as the coordinator was started with them: name -> value.
  std::map<std::string, std::string> program_flags;
  ProtocolRange protocol = kOwnProtocol;
  // The index by which the coordinator knows the worker. Absent: not said.
  std::optional<int> index = {};
};
struct WorkerAttachReply {
  Incarnation incarnation;
  int replicas = 1;
  // steps that the worker takes at once
  int slots = 1;
  // as in RegisterRequest
  ProgramDescription program = {};
};

// Messages of the coordinator to a worker.
struct LayoutUpdate {
  // Always sent before a dispatch that needs it.
  std::shared_ptr<const Layout> layout;
};
// Runs a step. The worker begins the steps of a session in the order of their dispatch.
struct Dispatch {
  EntryId step;
  // From 1. It names the run in logs and reports.
  uint32_t attempt = 1;
  // The number of training steps first dispatched before this one. Absent: the step is read-only.
  std::optional<int64_t> ordinal;
  // the name of a Step
  std::string function;
  // A list. Iterators are PerWorkerHandle leaves.
  Nest args;
  // The positions for the leased iterators among `args`.
  std::vector<InputLease> inputs;
  // the value of Coordinator::SetLearningRateScale at the step's first dispatch
  double learning_rate_scale = 1;
  // the time of the step's first dispatch, in minutes of the coordinator's clock, never going back.
  // Rows of tables that the step writes are dated by it.
  uint32_t tick = 0;
  // The report is to have a StepTrace if Report::took is at least this. Absent: it need not.
  std::optional<absl::Duration> trace_over = {};
  // The report is to have Report::gradients. A worker may leave them out.
  bool want_gradients = false;
};
struct CancelSteps {
  // Steps among these that have not begun to commit report CANCELLED.
  std::vector<EntryId> steps;
};
// Opens an iterator on this worker. The worker answers with ResourceReady. Steps that name the
// iterator wait for it.
struct MakeResource {
  ResourceId iterator;
  // the name of a DataSource
  std::string source;
  // The arguments of the data source: a list.
  Nest args;
  // Leased: InputContext::seed. Not leased: the worker makes that seed from this one and its index.
  uint64_t seed = 0;
  bool leased = true;
  // InputContext::num_workers, the same for every worker's part of this iterator
  int num_workers = 1;
};
// Closes an iterator. An unknown iterator is ignored.
struct DropResource {
  ResourceId iterator;
};
// The worker answers with Pong.
struct Ping {};
// From now on no step begins to commit. The worker answers with Held{number} when no commit is in
// flight. Release or the end of the session ends the hold. It has no timer, so no clock can let a
// commit into the cut.
struct Hold {
  uint64_t number = 0;
};
struct Release {
  // The number of the hold. A hold with another number continues.
  uint64_t number = 0;
};
using ToWorker = std::variant<LayoutUpdate, Dispatch, CancelSteps, MakeResource, DropResource, Ping,
                              Hold, Release>;

// Messages of a worker to the coordinator.
enum class StepOutcome : uint8_t {
  kOk,
  // The step function returned an error, or a check before the commit failed.
  kFailed,
  // The failure is not the step's fault: a lost input, a missing resource. The step runs again.
  kSystem,
  kCancelled,
  // No element exists at the leased positions, or the worker's own data has ended.
  kEndOfData,
};
// An iterator that had no element for a step, or fewer than it asked for.
struct EndedInput {
  ResourceId iterator;
  // Leased data: no elements exist from this position on. Absent: the worker's own data has ended.
  std::optional<int64_t> position;
  friend bool operator==(const EndedInput& a, const EndedInput& b) {
    return a.iterator == b.iterator && a.position == b.position;
  }
};
// Where the time of a step went, as its worker saw it. The clocks of hosts differ, so all times
// count from the arrival of the Dispatch at the worker.
struct StepTrace {
  // Enough for the parameter servers of most jobs; a bound, because a step may pull often.
  static constexpr size_t kMostCalls = 64;
  // A pull or a commit, to one ps.
  struct Call {
    bool commit = false;
    int ps = 0;
    // when it was sent first
    absl::Duration since = {};
    // until it was answered, with all retries
    absl::Duration took = {};
    // The part of it in which the ps had the last try, as the ps says; 0: not said.
    absl::Duration served = {};
    uint32_t retries = 0;
  };
  // When the function began. Until then the step waited for the steps before it.
  absl::Duration began = {};
  // when the function had returned
  absl::Duration computed = {};
  // When the commits were sent; 0: it sent none.
  absl::Duration committed = {};
  absl::Duration reported = {};
  // The calls that took longest, at most kMostCalls, in the order in which they were sent. If a
  // kind (pulls, commits) has calls enough, half of the places are its own. Prefetched pulls are
  // pulls.
  std::vector<Call> calls = {};
  // how many more there were
  uint32_t left_out = 0;
};
// How the values of the gradient of one variable are distributed in one step.
struct GradientHistogram {
  // At most so many are in a report.
  static constexpr int kMost = 256;
  std::string variable;
  // at most kHistogramBuckets of them; low and high are finite
  ValueHistogram values;
};
struct Report {
  EntryId step;
  uint32_t attempt = 1;
  StepOutcome outcome = StepOutcome::kOk;
  // set for kOk
  Nest value;
  // set for kFailed and kSystem
  absl::Status error;
  // The indices of the ps that the step committed to. A failed step has them too if some ps had
  // applied it.
  std::vector<int> participants;
  // the greatest (version at commit - version pulled) over the step's shards
  uint64_t staleness = 0;
  // Set for kOk too, if the function has handled the end of the data itself.
  std::vector<EndedInput> ended = {};
  // From the start of its function to this report; 0: not said.
  absl::Duration took = {};
  // For people only: it decides nothing. Absent: it was not asked for.
  std::optional<StepTrace> trace = {};
  // kOk, if the dispatch wanted them: of each variable whose gradient the step has staged.
  std::vector<GradientHistogram> gradients = {};
};
// A digest of some elements of a dataset. With it the coordinator compares whether two workers read
// the same data. Floating values are compared by a projection, because another kind of processor
// may compute them with another last bit.
struct ElementDigest {
  // A hash of dtypes, shapes, and all values except floating ones.
  uint64_t exact = 0;
  // the sum of the floating values, each with a weight in [-1, 1) that depends on its place
  double projection = 0;
  // the sum of the absolute floating values
  double magnitude = 0;
};
struct ResourceReady {
  ResourceId iterator;
  // Not OK: the iterator could not be opened, and the steps that use it fail with this error.
  absl::Status error;
  // The number of elements of a whole pass, if it is known.
  std::optional<int64_t> elements;
  // Leased data: the digest of a list of its first elements. Absent: there is none.
  std::optional<ElementDigest> first = {};
};
struct NeedSlots {
  EntryId step;
  // variable -> optimizer. The coordinator creates the slots as a change of the layout, and answers
  // with LayoutUpdate.
  std::vector<std::pair<std::string, Optimizer>> slots;
};
struct Pong {
  int running = 0, committing = 0;
  // the ps that the worker waits for
  std::optional<int> blocked_on_ps;
  // how long it has waited for that ps
  absl::Duration blocked_for;
};
// The process was asked to end: it finishes the steps that it has, and wants no more.
struct Draining {};
struct Held {
  // the number of the Hold
  uint64_t number = 0;
};
using FromWorker = std::variant<Report, ResourceReady, NeedSlots, Pong, Draining, Held>;

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_MESSAGES_H_
