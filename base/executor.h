// Executors run the work of all roles. Roles get threads and timers only here.
#ifndef DIVVY_BASE_EXECUTOR_H_
#define DIVVY_BASE_EXECUTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// A piece of work. REQUIRES: it does not throw. A task that has run is destroyed on the thread that
// ran it. A task that Stop drops is destroyed on the thread that calls Stop, so its captures must
// allow that.
using Task = std::function<void()>;

// Runs tasks and timers. Thread-safe; no method blocks. A task may call any method of its executor.
// A live process uses ThreadPoolExecutor; tests and the simulation use a single thread with a
// virtual clock (base/testing).
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` soon, on some thread. Tasks may run at the same time and in any order; use
  // SerialExecutor for an order. REQUIRES: `task` does not block.
  virtual void Post(Task task) = 0;

  // As Post, but not before `delay` has passed on the Clock. A timer cannot be cancelled, so its
  // task must check whether it is still wanted. The timer holds the task's captures until it runs:
  // capture objects weakly that may be destroyed earlier.
  virtual void PostAfter(absl::Duration delay, Task task) = 0;

  // Runs `task`, which may block, on a thread that it has to itself until it returns. Any number of
  // these may run at once. `name` names the thread; the kernel shows the first 15 characters.
  virtual void PostBlocking(std::string name, Task task) = 0;

  // As PostBlocking, for long work that is not urgent. Its thread yields to the others where
  // processors are short (a live process adds 10 to the thread's nice value).
  virtual void PostBackground(std::string name, Task task) {
    PostBlocking(std::move(name), std::move(task));
  }
};

// The executor of a live process. It has `num_threads` threads for Post and one for the timers.
// PostBlocking and PostBackground use as many threads as they have tasks at once, and reuse idle
// ones. Once a second it returns to the system what MemoryPool has kept unused for so long.
class ThreadPoolExecutor : public Executor {
 public:
  // REQUIRES: num_threads >= 1; otherwise posted tasks never run.
  explicit ThreadPoolExecutor(int num_threads);
  ~ThreadPoolExecutor() override;  // Stop()

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;
  void PostBlocking(std::string name, Task task) override;
  void PostBackground(std::string name, Task task) override;

  // Drops tasks and timers that have not begun, waits for running tasks, and joins all threads.
  // Blocks. Later posts are dropped. A second call does nothing. REQUIRES: called neither from a
  // task of this executor, nor by two threads at once.
  void Stop();

 private:
  struct State;
  void TrimMemory();

  std::unique_ptr<State> state_;
};

// Runs its tasks on `executor`, one at a time and in the order posted. Thread-safe. It may be
// destroyed while tasks wait: they still run, in order. If the executor is stopped, waiting tasks
// are dropped.
class SerialExecutor {
 public:
  // REQUIRES: `executor` outlives every task posted.
  explicit SerialExecutor(Executor& executor);
  // Queues `task`. Does not block, and never runs `task` within the call. REQUIRES: `task` does not
  // block (as for Executor::Post).
  void Post(Task task);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_EXECUTOR_H_
