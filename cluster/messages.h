// What the three roles say to each other, as plain values: the protocol's calls (docs/architecture.md) without their encoding. Tensors in a message are
// shared handles that nobody writes to again.
#ifndef DIVVY_CLUSTER_MESSAGES_H_
#define DIVVY_CLUSTER_MESSAGES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cluster/error.h"
#include "cluster/horizon.h"
#include "cluster/ids.h"
#include "cluster/layout.h"
#include "cluster/variable_spec.h"
#include "optimizers/optimizer.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy {

// Ahead of every request but Register: who speaks, in which generation, to which life of the receiver. Checked first (prelude.h).
struct Fence {
  JobId job;
  Epoch epoch;
  Incarnation coordinator;  // the coordinator's life that made the epoch
  SessionId session;        // of data requests; the coordinator's own is 0
  Incarnation target;       // 0: not known yet, allowed in Attach alone
};

// The versions of the protocol a process speaks; two processes work together where their ranges meet. Checked at Register and Attach, before anything else of
// the request is looked at.
struct ProtocolRange {
  uint32_t oldest = 1, newest = 1;
  bool Meets(ProtocolRange other) const { return oldest <= other.newest && other.oldest <= newest; }
};
constexpr ProtocolRange kOwnProtocol{1, 1};

// job -> index -> address, as one task knows the cluster: the chief may know nobody, a ps only itself.
using ClusterView = std::map<std::string, std::map<int, std::string>>;

// ---- registration ------------------------------------------------------------------------------------------------------------------------------------

// "Here I am": repeated by a worker or ps until it is attached. Remembered, nothing else.
struct RegisterRequest {
  JobName job = JobName::kNone;  // kPs or kWorker
  int index = 0;
  Incarnation incarnation;
  std::string address;  // where it can be dialled
  int replicas = 1;     // of a worker
  ClusterView cluster;  // what its TF_CONFIG says: where it contradicts the coordinator's, the task is refused (CLUSTER_MISMATCH)
  ProtocolRange protocol = kOwnProtocol;
  std::string build;  // version and commit of the binary, for messages; may be empty
};
struct RegisterReply {
  JobId job;
  Epoch epoch;
  std::optional<int> over;  // the job has ended: exit with this code
};

// ---- parameter server --------------------------------------------------------------------------------------------------------------------------------

enum class PsState : uint8_t { kEmpty, kLoading, kReady, kFrozen };
enum class EntryKind : uint8_t { kStep, kWrite };

// An applied id that the ps still remembers.
struct RememberedEntry {
  EntryId id;
  int participants = 0;  // how many ps the entry commits to, as its commit said
  EntryKind kind = EntryKind::kStep;
};

// Puts the ps into `fence.epoch`: no session is left, what runs is finished first, nothing of an older epoch is applied any more. READY becomes FROZEN.
struct PsAttachRequest {
  Fence fence;
  ProtocolRange protocol = kOwnProtocol;
};
struct PsAttachReply {
  Incarnation incarnation;
  PsState state = PsState::kEmpty;
  Epoch lineage;  // in which its state was last loaded or cleared
  uint64_t layout_version = 0, layout_hash = 0;
  Horizon horizon;
  std::vector<RememberedEntry> remembered;
  int64_t memory_bytes = 0;      // of shards held
  int64_t max_commit_bytes = 0;  // the largest commit it takes; 0: any
};

// One shard to make: rows [first_row, first_row + rows) of a variable or slot.
struct ShardSpec {
  ShardKey key;
  std::string name;  // of the whole variable, or "<variable>/<optimizer>/<slot>"
  DType dtype = DType::kFloat32;
  Shape shape;  // of this shard
  Shape full_shape;
  int64_t first_row = 0;
  Initializer initializer;  // evaluated by the ps for its own rows (REQUIRES: EvaluatedPerRow)
};

// Sets the state the epoch begins with. Acts once in an epoch; asked again when READY: OK, nothing done. Reading a checkpoint takes long: the reply says how
// far it is, at the latest half a second after the request, and the coordinator asks again.
struct LoadRequest {
  enum class From : uint8_t { kEmpty, kKeep, kCheckpoint };
  Fence fence;
  From from = From::kEmpty;
  Epoch expected_lineage;  // kKeep: refused if the state is of another
  uint64_t layout_version = 0, layout_hash = 0;
  Horizon horizon;
  CheckpointId checkpoint;        // kCheckpoint: where the values are
  uint64_t job_seed = 0;          // kCheckpoint, as CreateShardsRequest's
  std::vector<ShardSpec> shards;  // kCheckpoint: what this ps holds of it; their initializers mean nothing
};
struct LoadReply {
  bool loading = false;      // not READY yet: ask again
  int64_t loaded_bytes = 0;  // so far
  uint64_t layout_hash = 0;
};

// Rows of a tensor as they stand in a data file of a checkpoint.
struct SavedSlice {
  std::string tensor;
  DType dtype = DType::kFloat32;
  Shape full_shape;
  int64_t first_row = 0, rows = 0;
  uint64_t offset = 0, size_bytes = 0;  // in the file
  uint32_t masked_crc = 0;              // of its bytes, masked as TFRecord's
};

// Writes this ps' part of a checkpoint: its shards as they are when it is first asked for it; commits go on meanwhile. Asked again for the same checkpoint:
// what has become of it. One that is older than another asked for is refused: it has been given up.
struct SnapshotRequest {
  Fence fence;
  CheckpointId checkpoint;
  int file = 0, num_files = 1;  // the part is data file `file` of so many
  bool wait = false;            // the reply may wait for the end, at most half a second
};
struct SnapshotReply {
  bool done = false;               // written and synced; else: marked
  int64_t written_bytes = 0;       // so far
  std::vector<SavedSlice> slices;  // done: all that the file holds, in its order
};

// States what is wanted: this horizon, these sessions. The reply comes when no apply of a removed session is running; closed ids are then forgotten. A request
// with a number not above one already seen changes nothing.
struct SyncRequest {
  Fence fence;
  uint64_t seq = 0;
  Horizon horizon;
  std::vector<SessionId> sessions;  // all that may commit; sorted
  std::vector<EntryId> query;       // "did you apply these?"
};
struct SyncReply {
  uint64_t seq = 0;
  std::vector<RememberedEntry> applied;  // those of the query it has
  uint64_t applied_seq = 0;              // commits applied in this lineage
  int64_t memory_bytes = 0;
  bool draining = false;
};

// Checks the memory for all, then makes all. A shard that exists already: OK if made from an equal spec, else INVALID.
struct CreateShardsRequest {
  Fence fence;
  uint64_t layout_version = 0, layout_hash = 0;  // of the layout that has them
  uint64_t job_seed = 0;
  std::vector<ShardSpec> shards;
};
// Absent ones: OK.
struct DeleteShardsRequest {
  Fence fence;
  uint64_t layout_version = 0, layout_hash = 0;
  std::vector<ShardKey> shards;
};
struct LayoutReply {
  uint64_t layout_version = 0;
};

// Rows of one shard: all of them, or those at `rows` (int64 [n], local to the shard, any order, repeats allowed).
struct PullPart {
  ShardKey shard;
  std::optional<Tensor> rows;
};
struct PullRequest {
  Fence fence;
  std::vector<PullPart> parts;
};
struct PullPartReply {
  Tensor values;         // [rows, ...] of the part
  uint64_t version = 0;  // of the shard when the reading began
  bool torn = false;     // a commit landed while it was read: each block is whole, the shard is not
};
struct PullReply {
  std::vector<PullPartReply> parts;  // as requested
};

// One write to one shard. Parts of one variable apply in the order given.
struct CommitPart {
  ShardKey shard;  // slot 0
  WriteOp op = WriteOp::kAssign;
  std::optional<Tensor> rows;              // int64 [n], local to the shard: scatters and sparse gradients (there unique and rising)
  Tensor values;                           // [rows, ...] or [n, ...]
  std::optional<OptimizerStep> optimizer;  // kGradient
  std::vector<uint8_t> slots;              // kGradient: slot numbers, in the order of SlotsOf
};

// All writes of one entry to one ps: all of them or none, once for its id.
struct CommitRequest {
  Fence fence;
  EntryId entry;
  uint32_t attempt = 0;
  EntryKind kind = EntryKind::kStep;
  int participants = 1;
  std::vector<CommitPart> parts;
};
struct CommitReply {
  bool duplicate = false;  // it had been applied before; this payload was dropped
  uint64_t applied_seq = 0;
  std::vector<uint64_t> versions;  // of each part's shard after the commit; empty for a duplicate
};

// Ends a worker or ps: it drains, then exits with the code.
struct ShutdownRequest {
  Fence fence;
  int exit_code = 0;
};
struct ShutdownReply {};

// ---- worker ------------------------------------------------------------------------------------------------------------------------------------------

// Where the parameter servers are, by index. A worker knows them from here alone.
struct PsAddress {
  int index = 0;
  std::string address;
  Incarnation incarnation;
  int64_t max_commit_bytes = 0;  // a step with a larger commit fails before anything is sent; 0: any
};
using View = std::vector<PsAddress>;

// Begins a session. What an older one left is dropped, commits under way included (they are fenced).
struct WorkerAttachRequest {
  Fence fence;  // `session` is the new one
  View view;
  std::shared_ptr<const Layout> layout;
  uint64_t job_seed = 0;
  std::map<std::string, std::string> program_flags;  // of the program, as the coordinator was started with: name -> value
  ProtocolRange protocol = kOwnProtocol;
};
struct WorkerAttachReply {
  Incarnation incarnation;
  int replicas = 1;
  int slots = 1;  // steps it runs at once
};

// A worker's positions in a leased dataset: elements [first, first + count) of pass `pass`.
struct InputLease {
  ResourceId iterator;
  int64_t first = 0, count = 0;
  friend bool operator==(const InputLease& a, const InputLease& b) { return a.iterator == b.iterator && a.first == b.first && a.count == b.count; }
};

// coordinator -> worker
struct LayoutUpdate {
  std::shared_ptr<const Layout> layout;  // always ahead of a dispatch that needs it
};
struct Dispatch {
  EntryId step;
  uint32_t attempt = 1;
  std::optional<int64_t> ordinal;  // number of training steps first dispatched before; absent: read-only
  std::string function;
  Nest args;
  std::vector<InputLease> inputs;
  double learning_rate_scale = 1;
};
struct CancelSteps {
  std::vector<EntryId> steps;  // those that have not begun to commit report CANCELLED
};
struct MakeResource {
  ResourceId iterator;
  std::string source;  // name of a DataSource
  Nest args;
  uint64_t seed = 0;  // InputContext::seed, or (not leased) what it is made from together with the worker's index
  bool leased = true;
  int num_workers = 1;  // InputContext::num_workers: the same for every worker's part of this iterator
};
struct DropResource {
  ResourceId iterator;
};
struct Ping {};
// From now on no step begins to commit; answered by Held{number} when none is committing. Ended by Release, or with the session: a hold has no timer of its
// own, so no clock can tear what is cut meanwhile.
struct Hold {
  uint64_t number = 0;
};
struct Release {
  uint64_t number = 0;  // of the hold; another is not ended by it
};
using ToWorker = std::variant<LayoutUpdate, Dispatch, CancelSteps, MakeResource, DropResource, Ping, Hold, Release>;

// worker -> coordinator
enum class StepOutcome : uint8_t {
  kOk,
  kFailed,  // the step function's error, or a check before the commit
  kSystem,  // not the step's fault: a lost input, a missing resource. Run again
  kCancelled,
  kEndOfData,  // no element at its leased positions, or at the end of the worker's own data
};
struct Report {
  EntryId step;
  uint32_t attempt = 1;
  StepOutcome outcome = StepOutcome::kOk;
  Nest value;                     // kOk
  absl::Status error;             // kFailed, kSystem
  std::vector<int> participants;  // ps indices it committed to; also of a failed one some ps of which had applied it
  uint64_t staleness = 0;         // greatest (version at commit - version pulled) over its shards
};
struct ResourceReady {
  ResourceId iterator;
  absl::Status error;               // it could not be made: the steps that use it fail with this
  std::optional<int64_t> elements;  // of a whole pass, where known
};
struct NeedSlots {
  EntryId step;
  std::vector<std::pair<std::string, Optimizer>> slots;  // variable -> optimizer: made as a layout change, answered by LayoutUpdate
};
struct Pong {
  int running = 0, committing = 0;
  std::optional<int> blocked_on_ps;  // waits for this ps ...
  absl::Duration blocked_for;        // ... since so long
};
struct Draining {};
struct Held {
  uint64_t number = 0;
};
using FromWorker = std::variant<Report, ResourceReady, NeedSlots, Pong, Draining, Held>;

}  // namespace divvy

#endif  // DIVVY_CLUSTER_MESSAGES_H_
