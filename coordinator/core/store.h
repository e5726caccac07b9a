// What a coordinator must not forget.
#ifndef DIVVY_COORDINATOR_CORE_STORE_H_
#define DIVVY_COORDINATOR_CORE_STORE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/ids.h"
#include "cluster/job_state.h"
#include "cluster/layout.h"
#include "initializers/initializer.h"

namespace divvy {

// A count of 2^48 starts and rewinds is of no coordinator: such a number is an error of whoever
// says it.
constexpr Epoch kGreatestEpoch{uint64_t{1} << 48};
// Whether a coordinator may have begun it: the next one begins another above it. Pure.
inline bool CanBe(Epoch epoch) { return epoch < kGreatestEpoch; }

// The one row of a job. What is in it was durable before anybody was told.
struct JobRow {
  enum class State : uint8_t { kNew, kRunning, kComplete, kFailed };
  JobId job;
  State state = State::kNew;
  // The last one begun.
  Epoch epoch;
  // In which the ps' state was last loaded or cleared.
  Epoch lineage;
  // entry ids below are given or lost: a restart begins here
  uint64_t id_block_end = 1;
  // likewise
  uint32_t next_variable_id = 1;
  // likewise, of checkpoints
  uint64_t next_serial = 1;
  // kComplete and kFailed: what the job ended with
  int32_t exit_code = 0;
};

// A variable that is part of the layout: written when every ps has made its shards, before the
// program or a worker hears of it. kCreating and kDeleting are changes under way, which no
// coordinator of this version leaves behind: an adoption with such a row is refused.
struct VariableRow {
  enum class State : uint8_t { kCreating, kLive, kDeleting };
  // With its placement and its optimizers' slots.
  VariableLayout layout;
  // Of its first values. One that is not EvaluatedPerRow is kept as Zeros: its values are a direct
  // write of their own.
  Initializer initializer = Zeros();
  State state = State::kCreating;
};

// A checkpoint, written before its first file is. Where this and the checkpoint's directory differ,
// the directory is right.
struct CheckpointRow {
  enum class State : uint8_t { kWriting, kCommitted };
  CheckpointId id;
  State state = State::kWriting;
  int64_t finished_steps = 0;
  uint64_t bytes = 0;  // of its files; 0 while it is being written
};

// What a coordinator knows of a running job, and no parameter server does. With the rows of the
// variables it is all that a successor needs to go on with what the servers hold (adoption.h).
// Written with each change of the layout, and before the first step begins after any other change
// of it.
struct StateRow {
  enum class Held : uint8_t {
    // The servers, and this row, hold all there is.
    kAll,
    // Not written any more: a pass over leased data is under way, and nothing says where it stands.
    kLeasedData,
    // A variable exists whose first values are still being brought.
    kFirstValues
  };
  Held held = Held::kAll;
  // `lineage` is that of the servers it speaks of; `layout` has a version and no variables: those
  // are rows of their own. finished_steps and next_ordinal are of the moment of writing, open steps
  // left out. The cut, and passes under way, are empty; `checkpoint` names none. REQUIRES: job and
  // lineage are not 0.
  JobState state;
};

// All that a store holds.
struct StoredJob {
  JobRow job;
  // None: of a job whose servers have loaded nothing yet, or of an older version.
  std::optional<StateRow> state;
  // By id, rising.
  std::vector<VariableRow> variables;
  // By id, rising.
  std::vector<CheckpointRow> checkpoints;
};

// Rows that change together: all of them, or none. A row put replaces the one of its id; deleting
// one that is not there does nothing. REQUIRES: no id is both put and deleted, or put twice.
//
//   store.Put({row}, done);                          // the job's row alone
//   StoreChange change;
//   change.job = row;
//   change.put_variables = {{layout, initializer}};  // together with it
struct StoreChange {
  std::optional<JobRow> job = {};
  std::vector<VariableRow> put_variables = {};
  std::vector<VariableId> deleted_variables = {};
  std::vector<CheckpointRow> put_checkpoints = {};
  std::vector<CheckpointId> deleted_checkpoints = {};
  std::optional<StateRow> state = {};
};

// `job` as it is after `change`.
void Apply(const StoreChange& change, StoredJob& job);

// Where the rows are kept. Thread-safe.
//
// Changes take effect in the order they are given. One whose `done` is OK is durable, with all
// before it that were OK: any later Load finds it, whatever crashes. One that fails took no effect,
// with one exception: if the device fails while a change is made durable, nobody can say whether it
// was. Such a change, and every later one, fails with that error; the next Load on this state finds
// the failed one whole or not at all, and none of the later ones.
class Store {
 public:
  virtual ~Store() = default;  // as Close

  // All rows; a new job's (kNew, job id 0, nothing else) if there are none. May block: for a start,
  // before the coordinator serves. DataLoss: what is kept cannot be trusted; names it and the
  // remedy. No part of it is returned.
  virtual absl::StatusOr<StoredJob> Load() = 0;

  // Makes `change` durable, then calls `done`, not from within. Does not block.
  //   ResourceExhausted   no space: later changes are tried, too; or the device has failed: they
  //                       are not
  //   DataLoss            what is kept turned out to be damaged: nothing more is written
  //   FailedPrecondition  closed
  virtual void Put(StoreChange change, std::function<void(absl::Status)> done) = 0;

  // Waits for the changes given to Put, then lets go of what is held, for another to open. Later
  // calls fail with FailedPrecondition; a second Close does nothing. Blocks.
  virtual void Close() = 0;

  // Whether all that is kept can be read and is what was written; errors as Load's. After DataLoss
  // nothing more is written: every later Put fails with it. Blocks, and what is put meanwhile
  // waits.
  virtual absl::Status Scrub() = 0;
};

// Keeps the rows for the life of the object: for embedded mode, and where no state directory is
// given. A coordinator that comes after another on the same MemoryStore finds its job again. Not
// closed by Close: there is nothing to let go of.
class MemoryStore : public Store {
 public:
  // Holds `job` at first. REQUIRES: `executor` outlives every `done`.
  explicit MemoryStore(Executor& executor, StoredJob job = {})
      : executor_(executor), job_(std::move(job)) {}
  absl::StatusOr<StoredJob> Load() override;
  void Put(StoreChange change, std::function<void(absl::Status)> done) override;
  void Close() override {}
  absl::Status Scrub() override { return absl::OkStatus(); }

 private:
  Executor& executor_;
  Mutex mu_;
  StoredJob job_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STORE_H_
