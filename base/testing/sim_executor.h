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

// Stands still until it is told to go on. Not thread-safe.
class SimClock : public Clock {
 public:
  absl::Duration Elapsed() const override { return elapsed_; }
  absl::Time WallTime() const override { return absl::UnixEpoch() + elapsed_; }
  void Advance(absl::Duration by) { elapsed_ += by; }
  void AdvanceTo(absl::Duration elapsed) { elapsed_ = std::max(elapsed_, elapsed); }

 private:
  absl::Duration elapsed_;
};

// All tasks and timers in one queue, by virtual time. Tasks that are due at the same time run in an
// order that the seed chooses, as threads might. The same seed and the same calls give the same
// run. Everything happens on the caller's thread, within RunOne and its kin; not thread-safe.
class SimExecutor : public Executor {
 public:
  explicit SimExecutor(uint64_t seed) : random_(seed) {}

  void Post(Task task) override { PostAfter(absl::ZeroDuration(), std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override {
    tasks_.emplace(
        Key(clock_.Elapsed() + std::max(delay, absl::ZeroDuration()), random_.Next(), next_++),
        std::move(task));
  }
  void PostBlocking(std::string name, Task task) override {  // nothing blocks here
    ++threads_;
    holds_threads_ ? held_.push_back(std::move(task)) : Post(std::move(task));
  }

  // From now on the tasks of PostBlocking do not begin, as if their threads got no processor, until
  // they are released.
  void HoldThreads() { holds_threads_ = true; }
  void ReleaseThreads() {
    holds_threads_ = false;
    for (Task& task : std::exchange(held_, {})) Post(std::move(task));
  }
  int threads() const { return threads_; }  // calls of PostBlocking

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
  // Runs what is due within `length` of virtual time, and leaves the clock at its end.
  void RunFor(absl::Duration length) {
    const absl::Duration end = clock_.Elapsed() + length;
    while (!tasks_.empty() && std::get<0>(tasks_.begin()->first) <= end) RunOne();
    clock_.AdvanceTo(end);
  }
  size_t pending() const { return tasks_.size(); }
  SimClock& clock() { return clock_; }

 private:
  // due, the seed's choice among equals, order of posting
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
