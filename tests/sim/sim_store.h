// The store of a simulated coordinator: a change takes a while to be durable, and a process that is
// killed forgets what was not.
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

// Not thread-safe, as the simulation is not.
class SimStore : public Store {
 public:
  SimStore(NodeExecutor& executor, uint64_t seed, StoredJob stored);

  absl::StatusOr<StoredJob> Load() override { return state_->durable; }
  void Put(StoreChange change, std::function<void(absl::Status)> done) override;
  void Close() override {}
  absl::Status Scrub() override { return absl::OkStatus(); }

  // Its disk fails: the change that is being written, or the next one, and all that follow are
  // refused. That one is durable, or not.
  void Break() { state_->broken = true; }
  bool broken() const { return state_->broken; }

  // Another process has taken the state directory, and its lock: nothing that this one has not been
  // told of is done any more, and it hears of nothing.
  void TakeAway() { state_->taken = true; }

  // What another process finds if this one dies now: what was done, and the first few of the
  // changes that were on their way.
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
    bool broken = false, refused = false;  // it fails; it has
    bool taken = false;
  };
  static void StartWriting(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the task that writes
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_STORE_H_
