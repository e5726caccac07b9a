// Virtual time, one thread, one seed: the Executor and Clock of simulations and of the cores' unit
// tests.
#ifndef DIVVY_BASE_TESTING_SIM_EXECUTOR_H_
#define DIVVY_BASE_TESTING_SIM_EXECUTOR_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"

namespace divvy {

// A clock that changes only when Advance or AdvanceTo is called. Not thread-safe.
class SimClock : public Clock {
 public:
  absl::Duration Elapsed() const override { return elapsed_; }
  absl::Time WallTime() const override { return absl::UnixEpoch() + elapsed_; }
  void Advance(absl::Duration by) { elapsed_ += by; }
  void AdvanceTo(absl::Duration elapsed) { elapsed_ = std::max(elapsed_, elapsed); }

 private:
  absl::Duration elapsed_;
};

// Keeps all tasks and timers in one queue, in the order of virtual time. The seed chooses the order
// of tasks that are due at the same time, as threads might run in any order. The same seed and the
// same calls give the same run. All tasks run on the caller's thread, within RunOne, RunUntilIdle
// and RunFor. Not thread-safe.
class SimExecutor : public Executor {
 public:
  explicit SimExecutor(uint64_t seed) : random_(seed) {}

  void Post(Task task) override { PostAfter(absl::ZeroDuration(), std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override {
    tasks_.emplace(
        Key(clock_.Elapsed() + std::max(delay, absl::ZeroDuration()), random_.Next(), next_++),
        std::move(task));
  }
  // Nothing blocks in a simulation, so these are tasks like any other.
  void PostBlocking(std::string name, Task task) override {
    ++threads_;
    holds_threads_ ? held_.push_back(std::move(task)) : Post(std::move(task));
  }

  // From now on tasks of PostBlocking wait until ReleaseThreads, as if their threads got no
  // processor.
  void HoldThreads() { holds_threads_ = true; }
  void ReleaseThreads() {
    holds_threads_ = false;
    for (Task& task : std::exchange(held_, {})) Post(std::move(task));
  }
  // The number of calls of PostBlocking.
  int threads() const { return threads_; }

  // Runs the next task, moving the clock to its time. False: there is none.
  bool RunOne() {
    if (tasks_.empty()) return false;
    auto next = tasks_.extract(tasks_.begin());
    clock_.AdvanceTo(std::get<0>(next.key()));
    next.mapped()();
    return true;
  }
  void RunUntilIdle() {
    while (RunOne()) {
    }
  }
  // Runs the tasks that are due within `length` of virtual time, and then sets the clock to the end
  // of that time.
  void RunFor(absl::Duration length) {
    const absl::Duration end = clock_.Elapsed() + length;
    while (!tasks_.empty() && std::get<0>(tasks_.begin()->first) <= end) RunOne();
    clock_.AdvanceTo(end);
  }
  size_t pending() const { return tasks_.size(); }
  SimClock& clock() { return clock_; }

 private:
  // The time when it is due; a random number that orders tasks of the same time; the number of the
  // call.
  using Key = std::tuple<absl::Duration, uint64_t, uint64_t>;
  SimClock clock_;
  bool holds_threads_ = false;
  int threads_ = 0;
  std::vector<Task> held_;
  Random random_;
  uint64_t next_ = 0;
  std::map<Key, Task> tasks_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_SIM_EXECUTOR_H_
