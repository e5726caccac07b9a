// The durable state of a coordinator: its rows, and the interface to the place where they are kept.
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
#include "initializers/initializer.h"
#include "protocol/ids.h"
#include "protocol/job_state.h"
#include "variables/layout.h"

namespace divvy {

// No coordinator can count 2^48 starts and rewinds. A larger epoch is an error of its sender, or a
// damaged row.
constexpr Epoch kGreatestEpoch{uint64_t{1} << 48};
// Whether a coordinator may have begun this epoch and can still begin another above it. Pure.
inline bool CanBe(Epoch epoch) { return epoch < kGreatestEpoch; }

// The one row of the job. Its content is durable before any task hears of it.
struct JobRow {
  enum class State : uint8_t { kNew, kRunning, kComplete, kFailed };
  JobId job;
  State state = State::kNew;
  // The last epoch that has begun.
  Epoch epoch;
  // The epoch in which the state of the ps was last loaded or cleared.
  Epoch lineage;
  // Entry ids below this one are given or lost. A restarted coordinator begins with it.
  uint64_t id_block_end = 1;
  // The same for variable ids.
  uint32_t next_variable_id = 1;
  // The same for the serials of checkpoints.
  uint64_t next_serial = 1;
  // In kComplete and kFailed: the exit code of the job.
  int32_t exit_code = 0;
};

// A variable of the layout. The row is written when every ps has made its shards, before the
// program or a worker hears of the variable.
struct VariableRow {
  // With its placement and its optimizers' slots.
  VariableLayout layout;
  // Makes its first values. An initializer that is not EvaluatedPerRow is stored as Zeros, because
  // its values are a direct write of their own.
  Initializer initializer = Zeros();
};

// A checkpoint. The row is written before its first file. If the row and the checkpoint's directory
// differ, the directory is right.
struct CheckpointRow {
  enum class State : uint8_t { kWriting, kCommitted };
  CheckpointId id;
  State state = State::kWriting;
  int64_t finished_steps = 0;
  // The size of the checkpoint's files; 0 while it is being written.
  uint64_t bytes = 0;
};

// The part of a running job's state that no parameter server has. Together with the rows of
// variables it is everything that the next coordinator needs to continue with what the servers hold
// (adoption.h). The row is written with each change of the layout. After any other change of its
// content it is written before the next step begins.
struct StateRow {
  enum class Held : uint8_t {
    // The servers and this row hold everything.
    kAll,
    // Not written any more. A pass over leased data is under way, and its position is not stored.
    kLeasedData,
    // A variable exists whose first values are still being written.
    kFirstValues
  };
  Held held = Held::kAll;
  // `lineage` is the lineage of the servers that the row describes. `layout` has a version and no
  // variables, because variables have rows of their own. finished_steps and next_ordinal are those
  // at the time of writing, without open steps. The cut and the passes under way are empty, and
  // `checkpoint` names none. REQUIRES: job and lineage are not 0.
  JobState state;
};

// The whole content of a store.
struct StoredJob {
  JobRow job;
  // Nullopt: the job's servers have loaded nothing yet, or an older version wrote the store.
  std::optional<StateRow> state;
  // By id, rising.
  std::vector<VariableRow> variables;
  // By id, rising.
  std::vector<CheckpointRow> checkpoints;
};

// Rows that change together: all of them or none. A row that is put replaces the row of the same
// id. Deleting a missing row does nothing. REQUIRES: no id is both put and deleted, or put twice.
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

// Changes `job` as `change` says. Pure.
void Apply(const StoreChange& change, StoredJob& job);

// Keeps the rows. Thread-safe.
//
// Changes take effect in the order of the Put calls. A change whose `done` gets OK is durable,
// together with every earlier change that got OK: any later Load finds it, whatever crashes. A
// change that fails has no effect, with one exception. If the device fails while a change is being
// made durable, nobody knows whether the change is durable. This change and all later ones then
// fail with that error. The next Load from this storage finds the failed change either whole or not
// at all, and none of the later ones.
class Store {
 public:
  // Does what Close does.
  virtual ~Store() = default;

  // Returns all rows. If there are none, returns a new job's (kNew, job id 0, nothing else). May
  // block: call it before the coordinator serves. DataLoss: the content cannot be trusted; the
  // message names the damage and the remedy, and no part of the content is returned.
  virtual absl::StatusOr<StoredJob> Load() = 0;

  // Makes `change` durable, then calls `done` from a task of the executor, not from within Put.
  // Does not block. `done` gets OK or one of:
  //   ResourceExhausted   no space: later changes are still tried. Or the device has failed: later
  //                       changes fail, too
  //   DataLoss            the content turned out to be damaged: nothing more is written
  //   FailedPrecondition  the store is closed
  virtual void Put(StoreChange change, std::function<void(absl::Status)> done) = 0;

  // Waits for the changes given to Put, then releases the storage so that another store can open
  // it. Later calls fail with FailedPrecondition; a second Close does nothing. Blocks.
  virtual void Close() = 0;

  // Checks that the whole content can be read and is unchanged since it was written. Errors: those
  // of Load. After DataLoss nothing more is written, and every later Put fails with that error.
  // Blocks; changes put meanwhile wait.
  virtual absl::Status Scrub() = 0;
};

// Keeps the rows for the life of the object: for embedded mode, and for a job without a state
// directory. A second coordinator on the same MemoryStore finds the job of the first. Close does
// nothing, because there is nothing to release.
class MemoryStore : public Store {
 public:
  // Begins with `job`. REQUIRES: `executor` outlives every `done`.
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
