#include "tests/sim/sim_store.h"

#include <utility>

#include "absl/time/time.h"

namespace divvy::sim {

SimStore::SimStore(NodeExecutor& executor, uint64_t seed, StoredJob stored)
    : state_(std::make_shared<State>(State{executor, Random(seed), std::move(stored), {}})) {}

void SimStore::Put(StoreChange change, std::function<void(absl::Status)> done) {
  if (!state_->executor.alive()) return;  // killed before it sent the change
  state_->writes.push_back({std::move(change), std::move(done)});
  if (state_->writes.size() == 1) StartWriting(state_);
}

void SimStore::StartWriting(const std::shared_ptr<State>& state) {
  const bool slow = state->random.Chance(0.03);  // a busy disk
  const absl::Duration takes =
      (slow ? absl::Milliseconds(400) : absl::Milliseconds(2)) * state->random.Uniform();
  state->executor.PostAfter(takes, [state] {
    if (state->taken) return;
    const Write write = std::move(state->writes.front());
    state->writes.pop_front();
    const bool refused = state->broken;
    if (!refused || (!state->refused && state->random.Chance(0.5)))
      Apply(write.change, state->durable);
    state->refused |= refused;
    if (!state->writes.empty()) StartWriting(state);
    write.done(refused ? absl::ResourceExhaustedError(
                             "the store's disk has failed: make room, or move --state_dir")
                       : absl::OkStatus());
  });
}

StoredJob SimStore::LeftBehind() const {
  StoredJob left = state_->durable;
  Random random = state_->random;
  const uint64_t arrived = state_->refused ? 0 : random.Below(state_->writes.size() + 1);
  for (uint64_t i = 0; i < arrived; ++i) Apply(state_->writes[i].change, left);
  return left;
}

}  // namespace divvy::sim
