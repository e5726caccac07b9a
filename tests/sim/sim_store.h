// The store of a simulated coordinator. A change takes a while to become durable. A killed process
// loses the changes that are not durable.
#ifndef DIVVY_TESTS_SIM_SIM_STORE_H_
#define DIVVY_TESTS_SIM_SIM_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/random.h"
#include "coordinator/core/store.h"
#include "tests/sim/sim_network.h"

namespace divvy::sim {

// Not thread-safe: the simulation has one thread.
class SimStore : public Store {
 public:
  SimStore(NodeExecutor& executor, uint64_t seed, StoredJob stored);

  absl::StatusOr<StoredJob> Load() override { return state_->durable; }
  void Put(StoreChange change, std::function<void(absl::Status)> done) override;
  void Close() override {}
  absl::Status Scrub() override { return absl::OkStatus(); }

  // Makes its disk fail. The change that is being written (or the next one) and all later changes
  // are refused. That first change may be durable all the same.
  void Break() { state_->broken = true; }
  bool broken() const { return state_->broken; }

  // Another process has taken the state directory and its lock. Changes that have not been
  // acknowledged yet are dropped, and their callers get no answer.
  void TakeAway() { state_->taken = true; }

  // What another process finds if this one dies now: the durable changes, and a random number of
  // the first changes in flight.
  StoredJob LeftBehind() const;

 private:
  struct Write {
    StoreChange change;
    std::function<void(absl::Status)> done;
  };
  struct State {
    NodeExecutor& executor;
    Random random;
    StoredJob durable;
    std::deque<Write> writes;              // the first is being written
    bool broken = false, refused = false;  // the disk fails; a change has been refused
    bool taken = false;
  };
  static void StartWriting(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the task that writes
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_STORE_H_
