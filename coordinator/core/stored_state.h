// Keeps track of what the store knows about the job, and makes the changes that the store needs.
//
// A restarted coordinator finds the values on the servers and everything else in the store. So each
// change is in the store before an entry that depends on the change gets an id.
#ifndef DIVVY_COORDINATOR_CORE_STORED_STATE_H_
#define DIVVY_COORDINATOR_CORE_STORED_STATE_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "coordinator/core/adoption.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/server_set.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/store.h"
#include "protocol/job_state.h"

namespace divvy {

// Makes the changes; the coordinator puts them into the store. Reads StepQueue, Passes and
// ServerSet. Never blocks. Not thread-safe: the coordinator's lock guards it.
class StoredState {
 public:
  // `stored`: the store's content when this life of the coordinator began. `row`: the job's row of
  // this life. REQUIRES: the references outlive it.
  StoredState(const StoredJob& stored, JobRow row, const StepQueue& steps, const Passes& passes,
              const ServerSet& servers);

  // The job's row. A change of it is durable only after the coordinator has put it.
  JobRow& row() { return row_; }
  const JobRow& row() const { return row_; }

  // ---- the program's part ----

  // Sets the program's own bytes, which are saved with the state of the job.
  void SetProgramState(std::string bytes);
  // Continues from a restored state.
  void RestoreState(std::string program_state) { program_state_ = std::move(program_state); }
  const std::string& program_state() const { return program_state_; }
  // Counts variables whose first values the program writes later. `change`: +1 or -1.
  void ExpectValues(int change) { expected_values_ += change; }
  bool awaits_values() const { return expected_values_ > 0; }

  // ---- changes for the store ----

  // Everything that a StateRow depends on besides the layout.
  StoredMark MarkNow() const;
  // The state's row, as it is now.
  StateRow RowNow(const Layout& layout) const;
  // The job's row and everything else: for a new state of the servers, or for an adopted one.
  StoreChange Whole(const Layout& layout);
  // One variable of `layout`, together with `layout` as the current one.
  StoreChange With(const VariableLayout& variable, const Layout& layout);
  // Everything that has changed since the last StoreChange. Call NotePut when the result is
  // durable. Nullopt: nothing has changed, a change is being stored, or the store does not describe
  // what the servers hold now.
  std::optional<StoreChange> TakeChange(const Layout& layout);
  void NotePut() { is_putting_ = false; }
  // The servers rewind. Until the next Whole, the store does not describe the state that they hold.
  void Forget() { is_told_ = false; }
  // Whether the store describes what the servers hold now.
  bool is_told() const { return is_told_; }
  // Whether an entry may get its id now: the store has everything that the entry depends on.
  bool IsStored() const { return !is_putting_ && MarkNow() == told_; }

 private:
  const StepQueue& steps_;
  const Passes& passes_;
  const ServerSet& servers_;
  JobRow row_;
  std::string program_state_;
  // How often SetProgramState was called.
  uint64_t program_states_ = 0;
  int expected_values_ = 0;
  // Variables that may have a row in the store.
  std::set<VariableId> rows_;
  bool is_told_ = false;
  // The mark of the last StateRow.
  StoredMark told_;
  bool is_putting_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STORED_STATE_H_
