// The store of a simulated coordinator: a change takes a while to be durable, and a process that is killed forgets what was not.
#ifndef DIVVY_TESTS_SIM_SIM_STORE_H_
#define DIVVY_TESTS_SIM_SIM_STORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/executor.h"
#include "base/random.h"
#include "coordinator/core/store.h"

namespace divvy::sim {

// Not thread-safe, as the simulation is not. REQUIRES: the executor drops a killed process' tasks.
class SimStore : public Store {
 public:
  SimStore(Executor& executor, uint64_t seed, StoredJob stored);

  absl::StatusOr<StoredJob> Load() override { return state_->durable; }
  void Put(StoreChange change, std::function<void(absl::Status)> done) override;
  void Close() override {}
  absl::Status Scrub() override { return absl::OkStatus(); }

  // What another process finds if this one dies now: what was done, and the first few of the changes that were on their way.
  StoredJob LeftBehind() const;

 private:
  struct Write {
    StoreChange change;
    std::function<void(absl::Status)> done;
  };
  struct State {
    Executor& executor;
    Random random;
    StoredJob durable;
    std::deque<Write> writes;  // the first is being written
  };
  static void StartWriting(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;  // shared with the task that writes
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_STORE_H_
