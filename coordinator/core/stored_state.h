// What the store knows of the job, and what it has to be told.
//
// A coordinator that starts again finds the servers with their values, and the store with the rest.
// So the store has each change before anything is given an id that stands on it.
#ifndef DIVVY_COORDINATOR_CORE_STORED_STATE_H_
#define DIVVY_COORDINATOR_CORE_STORED_STATE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "cluster/job_state.h"
#include "coordinator/core/adoption.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/server_set.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/store.h"

namespace divvy {

// Makes the changes; the coordinator puts them into the store. Calls StepQueue, Passes and
// ServerSet, to ask. Not thread-safe: the coordinator's lock guards it.
class StoredState {
 public:
  // `stored`: as this life of the coordinator found the store. `row`: the job's, of this life.
  // REQUIRES: the references outlive it.
  StoredState(const StoredJob& stored, JobRow row, const StepQueue& steps, const Passes& passes,
              const ServerSet& servers);

  // The job's numbers. What is changed here is durable when the coordinator has put it.
  JobRow& row() { return row_; }
  const JobRow& row() const { return row_; }

  // ---- what is the program's ----

  void SetProgramState(std::string bytes);
  // Goes on from a state.
  void TakeUp(std::string program_state) { program_state_ = std::move(program_state); }
  const std::string& program_state() const { return program_state_; }
  // Variables are about to be created whose first values the program writes later. `change`: +1 or
  // -1.
  void ExpectValues(int change) { expected_values_ += change; }
  bool awaits_values() const { return expected_values_ > 0; }

  // ---- what the store is told ----

  // What a StateRow depends on beside the layout.
  StoredMark MarkNow() const;
  StateRow RowNow(const Layout& layout) const;
  // The job's row and all else, when the servers' state is a new one, or has become this life's.
  StoreChange Whole(const Layout& layout);
  // One variable of `layout`, and that this is the layout now.
  StoreChange With(const VariableLayout& variable, const Layout& layout);
  // What has changed since the store was told. Nullopt: nothing, or a change is on its way, or the
  // store does not speak of what the servers hold now. NotePut says that the change is durable.
  std::optional<StoreChange> TakeChange(const Layout& layout);
  void NotePut() { is_putting_ = false; }
  // The servers go back: the store does not speak of what they hold until Whole.
  void Forget() { is_told_ = false; }
  // Whether the store speaks of what the servers hold now.
  bool is_told() const { return is_told_; }
  // Whether the store knows all that an entry that is given an id now stands on.
  bool IsStored() const { return !is_putting_ && MarkNow() == told_; }

 private:
  const StepQueue& steps_;
  const Passes& passes_;
  const ServerSet& servers_;
  JobRow row_;
  std::string program_state_;
  uint64_t program_states_ = 0;  // that were given
  int expected_values_ = 0;
  std::set<VariableId> rows_;  // of variables that the store may have
  bool is_told_ = false;
  StoredMark told_;  // by the last StateRow
  bool is_putting_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STORED_STATE_H_
