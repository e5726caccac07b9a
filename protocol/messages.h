// What the three roles say to each other, as plain values: the protocol's calls
// (docs/internals/protocol.md) without their encoding. Tensors in a message are shared handles that
// nobody writes to again; those of pulls and commits lie on the CPU.
//
// A message is as good as its sender: nothing is checked when one is made. What comes over a wire
// has been checked as far as no state is needed (wire/: ranges, order, names, sizes that fit each
// other), so a receiver relies on what stands beside each field, and checks itself what only its
// state can tell. Each request says a wanted fact, not a change: it may arrive twice, late, or
// never, and asked again it is answered the same (docs/internals/protocol.md, section 4).
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
#include "optimizers/optimizer.h"
#include "protocol/error.h"
#include "protocol/horizon.h"
#include "protocol/ids.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"
#include "variables/layout.h"
#include "variables/shard_transfer.h"
#include "variables/variable_spec.h"

namespace divvy {

// Ahead of every request but Register: who speaks, in which generation, to which life of the
// receiver. Checked first (request_check.h).
struct Fence {
  JobId job;
  Epoch epoch;
  Incarnation coordinator;  // the coordinator's life that made the epoch
  SessionId session;        // of data requests; the coordinator's own is 0
  Incarnation target;       // 0: not known yet, allowed in Attach alone
};

// The versions of the protocol a process speaks; two processes work together where their ranges
// meet. Checked at Register and Attach, before anything else of the request is looked at
// (VERSION_MISMATCH). REQUIRES: oldest <= newest.
struct ProtocolRange {
  uint32_t oldest = 1, newest = 1;
  bool Meets(ProtocolRange other) const { return oldest <= other.newest && other.oldest <= newest; }
};
constexpr ProtocolRange kOwnProtocol{1, 1};

// job -> index -> address, as one task knows the cluster: the chief may know nobody, a ps only
// itself.
using ClusterView = std::map<std::string, std::map<int, std::string>>;

// ---- registration -------------------------------------------------------------------------------

// The program that a process runs, as far as all processes of a job must agree on it. Empty members
// are not compared.
struct ProgramDescription {
  // name -> signature of its types, as the compiler writes it (RegisteredStep::signature)
  std::map<std::string, std::string> steps = {};
  // names of the program's own flags
  std::set<std::string> flags = {};
  // identifies the file that holds the program; another one is worth a warning, nothing more
  std::string build = {};
};

// "Here I am": repeated by a worker or ps until it is attached. Remembered, nothing else.
struct RegisterRequest {
  Role role = Role::kWorker;  // or kPs
  int index = 0;
  Incarnation incarnation;
  // Where it can be dialled.
  std::string address;
  // Of a worker.
  int replicas = 1;
  // What its TF_CONFIG says: where it contradicts the coordinator's, the task is refused
  // (CLUSTER_MISMATCH).
  ClusterView cluster;
  ProtocolRange protocol = kOwnProtocol;
  // version and commit of the binary, for messages; may be empty
  std::string build = {};
  // Of a worker: where it contradicts the coordinator's, the worker is refused (CLUSTER_MISMATCH).
  ProgramDescription program = {};
  // Of a ps: it has no directory for them, and is refused where the job keeps checkpoints
  // (CLUSTER_MISMATCH).
  bool without_checkpoints = false;
};
struct RegisterReply {
  JobId job;                // of the coordinator
  Epoch epoch;              // that it is in; the task obeys an Attach alone
  std::optional<int> over;  // the job has ended: exit with this code
};

// ---- parameter server ---------------------------------------------------------------------------

enum class PsState : uint8_t {
  kEmpty,    // holds nothing
  kLoading,  // reads a checkpoint
  kReady,    // serves
  kFrozen,   // holds what an older epoch left, and serves nothing before the next Load
};
enum class EntryKind : uint8_t {
  kStep,   // a training step
  kWrite,  // a direct write of the program
};

// A worker's positions in a leased dataset: elements [first, first + count) of its pass. None
// (count 0): the data had ended before the step was dispatched.
struct InputLease {
  ResourceId iterator;
  int64_t first = 0, count = 0;
  friend bool operator==(const InputLease& a, const InputLease& b) {
    return a.iterator == b.iterator && a.first == b.first && a.count == b.count;
  }
};

// An applied id that the ps still remembers.
struct RememberedEntry {
  EntryId id;
  // How many ps the entry commits to, as its commit said.
  int participants = 0;
  EntryKind kind = EntryKind::kStep;
  // leased positions that the step has read, as its commit said
  std::vector<InputLease> inputs = {};
};

// Puts the ps into `fence.epoch`: no session is left, what runs is finished first, nothing of an
// older epoch is applied any more. READY becomes FROZEN.
struct PsAttachRequest {
  Fence fence;
  ProtocolRange protocol = kOwnProtocol;
};
struct PsAttachReply {
  Incarnation incarnation;
  PsState state = PsState::kEmpty;
  Epoch lineage;                                 // in which its state was last loaded or cleared
  uint64_t layout_version = 0, layout_hash = 0;  // the last it was told of
  Horizon horizon;                               // the last it took in
  std::vector<RememberedEntry> remembered;  // all applied entries that it has not forgotten, by id
  int64_t memory_bytes = 0;                 // of shards held
  int64_t max_commit_bytes = 0;             // the largest commit it takes; 0: any
  bool without_checkpoints = false;         // as in RegisterRequest
};

// One shard to make: rows [first_row, first_row + rows) of a variable or slot.
struct ShardSpec {
  ShardKey key;
  // Of the whole variable, or "<variable>/<optimizer>/<slot>".
  std::string name;
  DType dtype = DType::kFloat32;
  Shape shape;  // of this shard
  Shape full_shape;
  int64_t first_row = 0;
  // evaluated by the ps for its own rows (REQUIRES: EvaluatedPerRow)
  Initializer initializer;
};

// Sets the state the epoch begins with. Acts once in an epoch; asked again when READY: OK, nothing
// done. Reading a checkpoint takes long: the reply says how far it is, at the latest half a second
// after the request, and the coordinator asks again.
struct LoadRequest {
  enum class From : uint8_t {
    kEmpty,       // forgets all
    kKeep,        // FROZEN: keeps all
    kCheckpoint,  // forgets all, and reads `shards`
  };
  Fence fence;
  From from = From::kEmpty;
  Epoch expected_lineage;  // kKeep: refused if the state is of another
  uint64_t layout_version = 0, layout_hash = 0;
  Horizon horizon;
  // kCheckpoint: where the values are
  CheckpointId checkpoint;
  // kCheckpoint, as CreateShardsRequest's
  uint64_t job_seed = 0;
  // kCheckpoint: what this ps holds of it; their initializers mean nothing
  std::vector<ShardSpec> shards;
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

// Writes this ps' part of a checkpoint: its shards as they are when it is first asked for it;
// commits go on meanwhile. Asked again for the same checkpoint: what has become of it. One that is
// older than another asked for is refused: it has been given up.
struct SnapshotRequest {
  Fence fence;
  CheckpointId checkpoint;
  // The part is data file `file` of so many.
  int file = 0, num_files = 1;
  // The reply may wait for the end, at most half a second.
  bool wait = false;
};
struct SnapshotReply {
  bool done = false;               // written and synced; else: marked
  int64_t written_bytes = 0;       // so far
  std::vector<SavedSlice> slices;  // done: all that the file holds, in its order
};

// States what is wanted: this horizon, these sessions. The reply comes when no apply of a removed
// session is running; closed ids are then forgotten. A request with a number not above one already
// seen changes nothing. So a reply is a fence: whoever is not in `sessions` will never commit here
// again in this epoch.
struct SyncRequest {
  Fence fence;
  uint64_t seq = 0;
  Horizon horizon;
  // All that may commit; sorted.
  std::vector<SessionId> sessions;
  // "did you apply these?"
  std::vector<EntryId> query;
  // Of each session, in their order, whose it is; empty: not known.
  std::vector<int> workers;
};
struct SyncReply {
  // Of the request: all with lower numbers are acknowledged, too.
  uint64_t seq = 0;
  // Those of the query it has.
  std::vector<RememberedEntry> applied;
  // commits applied in this lineage
  uint64_t applied_seq = 0;
  // Of shards held.
  int64_t memory_bytes = 0;
  // Its process was asked to end: what it holds will be lost.
  bool draining = false;
};

// Checks the memory for all, then makes all. A shard that exists already: OK if made from an equal
// spec, else INVALID.
struct CreateShardsRequest {
  Fence fence;
  uint64_t layout_version = 0, layout_hash = 0;  // of the layout that has them
  uint64_t job_seed = 0;                         // first values follow from it (InitializerContext)
  std::vector<ShardSpec> shards;                 // a slot with, or after, its variable
};
// Absent ones: OK. Their ids are never used again.
struct DeleteShardsRequest {
  Fence fence;
  uint64_t layout_version = 0, layout_hash = 0;
  std::vector<ShardKey> shards;
};
struct LayoutReply {
  uint64_t layout_version = 0;
};

struct PullRequest {
  Fence fence;
  std::vector<PullPart> parts;  // a shard whole once at most
};
// All writes of one entry to one ps: all of them or none, once for its id, however often it comes
// and from whichever worker.
struct CommitRequest {
  Fence fence;
  EntryId entry;
  uint32_t attempt = 0;  // for messages: it decides nothing
  EntryKind kind = EntryKind::kStep;
  // ps that the entry commits to, >= 1: the same in each of its commits
  int participants = 1;
  // At least one.
  std::vector<CommitPart> parts;
  // Leased positions that the step has read. The ps remembers them with the id: where a pass stands
  // after the coordinator was lost is in the servers alone.
  std::vector<InputLease> inputs = {};
};
struct CommitReply {
  // It had been applied before; this payload was dropped.
  bool duplicate = false;
  // commits applied in this lineage, when this was answered
  uint64_t applied_seq = 0;
  // Of each part's shard after the commit; empty for a duplicate.
  std::vector<uint64_t> versions;
};

// Ends a worker or ps: it takes nothing new, ends what is being applied or committed, answers, then
// exits with the code.
struct ShutdownRequest {
  Fence fence;
  int exit_code = 0;
};
struct ShutdownReply {};

// ---- worker -------------------------------------------------------------------------------------

// Where the parameter servers are, by index. A worker knows them from here alone.
struct PsAddress {
  int index = 0;
  std::string address;
  Incarnation incarnation;
  // A step with a larger commit fails before anything is sent; 0: any.
  int64_t max_commit_bytes = 0;
};
using View = std::vector<PsAddress>;

// Begins a session. What an older one left is dropped, commits under way included (they are
// fenced).
struct WorkerAttachRequest {
  Fence fence;  // `session` is the new one
  View view;
  std::shared_ptr<const Layout> layout;
  uint64_t job_seed = 0;
  // Of the program, as the coordinator was started with: name -> value.
  std::map<std::string, std::string> program_flags;
  ProtocolRange protocol = kOwnProtocol;
};
struct WorkerAttachReply {
  Incarnation incarnation;
  int replicas = 1;
  int slots = 1;                    // steps it runs at once
  ProgramDescription program = {};  // as in RegisterRequest
};

// coordinator -> worker
struct LayoutUpdate {
  std::shared_ptr<const Layout> layout;  // always ahead of a dispatch that needs it
};
// Runs a step. Steps of a session are run in the order of their dispatch, one after another.
struct Dispatch {
  EntryId step;
  // From 1; names a run in logs and reports.
  uint32_t attempt = 1;
  // number of training steps first dispatched before; absent: read-only
  std::optional<int64_t> ordinal;
  // name of a Step
  std::string function;
  // A list; iterators are PerWorkerHandle leaves.
  Nest args;
  // Of leased iterators among them.
  std::vector<InputLease> inputs;
  // Coordinator::SetLearningRateScale, when it was first dispatched
  double learning_rate_scale = 1;
};
struct CancelSteps {
  // Those that have not begun to commit report CANCELLED.
  std::vector<EntryId> steps;
};
// Opens an iterator on this worker; answered by ResourceReady. Steps that name it wait for it.
struct MakeResource {
  ResourceId iterator;
  // name of a DataSource
  std::string source;
  // Of it: a list.
  Nest args;
  // InputContext::seed, or (not leased) what it is made from together with the worker's index
  uint64_t seed = 0;
  bool leased = true;
  // InputContext::num_workers: the same for every worker's part of this iterator
  int num_workers = 1;
};
// Closes it. Unknown ones: nothing happens.
struct DropResource {
  ResourceId iterator;
};
struct Ping {};  // answered by Pong
// From now on no step begins to commit; answered by Held{number} when none is committing. Ended by
// Release, or with the session: a hold has no timer of its own, so no clock can tear what is cut
// meanwhile.
struct Hold {
  uint64_t number = 0;
};
struct Release {
  uint64_t number = 0;  // of the hold; another is not ended by it
};
using ToWorker = std::variant<LayoutUpdate, Dispatch, CancelSteps, MakeResource, DropResource, Ping,
                              Hold, Release>;

// worker -> coordinator
enum class StepOutcome : uint8_t {
  kOk,
  // The step function's error, or a check before the commit.
  kFailed,
  // Not the step's fault: a lost input, a missing resource. Run again.
  kSystem,
  kCancelled,
  // No element at its leased positions, or at the end of the worker's own data.
  kEndOfData,
};
// An iterator that had no element for a step, or fewer than it asked for.
struct EndedInput {
  ResourceId iterator;
  // Of leased data: there is nothing from here on. Absent: the worker's own data has ended.
  std::optional<int64_t> position;
  friend bool operator==(const EndedInput& a, const EndedInput& b) {
    return a.iterator == b.iterator && a.position == b.position;
  }
};
struct Report {
  EntryId step;
  uint32_t attempt = 1;
  StepOutcome outcome = StepOutcome::kOk;
  // kOk
  Nest value;
  // kFailed, kSystem
  absl::Status error;
  // ps indices it committed to; also of a failed one some ps of which had applied it
  std::vector<int> participants;
  // greatest (version at commit - version pulled) over its shards
  uint64_t staleness = 0;
  // Also where the function has handled the end itself (kOk).
  std::vector<EndedInput> ended = {};
  // From the start of its function to this report; 0: not said.
  absl::Duration took = {};
};
// What some elements of a dataset look like, for the coordinator to tell whether two workers read
// the same. Floating values are compared by a projection: another kind of processor may compute
// them with another last bit.
struct ElementDigest {
  // Of dtypes, shapes, and all values but floating ones.
  uint64_t exact = 0;
  // sum of the floating values, each with a weight in [-1, 1) that depends on its place
  double projection = 0;
  // sum of their absolute values
  double magnitude = 0;
};
struct ResourceReady {
  ResourceId iterator;
  // It could not be made: the steps that use it fail with this.
  absl::Status error;
  // Of a whole pass, where known.
  std::optional<int64_t> elements;
  // Of leased data: of the list of its first elements, where there is one.
  std::optional<ElementDigest> first;
};
struct NeedSlots {
  EntryId step;
  // variable -> optimizer: made as a layout change, answered by LayoutUpdate
  std::vector<std::pair<std::string, Optimizer>> slots;
};
struct Pong {
  int running = 0, committing = 0;
  std::optional<int> blocked_on_ps;  // waits for this ps ...
  absl::Duration blocked_for;        // ... since so long
};
// Its process was asked to end: it finishes what it has been given, and wants no more.
struct Draining {};
struct Held {
  uint64_t number = 0;  // of the Hold
};
using FromWorker = std::variant<Report, ResourceReady, NeedSlots, Pong, Draining, Held>;

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_MESSAGES_H_
