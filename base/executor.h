// Where work runs. Threads and timers enter here and nowhere else.
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

// A piece of work. REQUIRES: it throws nothing. It is let go on the thread that ran it; one that is
// dropped (Stop) without having run on the thread that drops it, so what it holds must bear that.
using Task = std::function<void()>;

// Thread-safe; no method blocks. A task may call any method of the executor it runs on. In a live
// process a ThreadPoolExecutor, in tests and the simulation one thread with a virtual clock
// (base/testing).
class Executor {
 public:
  virtual ~Executor() = default;

  // Runs `task` soon, on some thread. Tasks may run at the same time and in any order
  // (SerialExecutor gives an order). REQUIRES of the task: it does not block.
  virtual void Post(Task task) = 0;

  // As Post, not before `delay` has passed on the Clock. A timer cannot be taken back: its task
  // asks whether it is still wanted. It holds what it captures until then: capture weakly what
  // should be able to go before.
  virtual void PostAfter(absl::Duration delay, Task task) = 0;

  // Runs `task`, which may block, on a thread named `name` (of which the kernel shows 15 letters)
  // that is its own until it returns. Any number of them at once.
  virtual void PostBlocking(std::string name, Task task) = 0;

  // As PostBlocking, for long work behind what is urgent: where processors are short its thread
  // gives way to the others (a live process: 10 is added to its nice value).
  virtual void PostBackground(std::string name, Task task) {
    PostBlocking(std::move(name), std::move(task));
  }
};

// The executor of a live process: `num_threads` threads for Post, one for the timers, and for
// PostBlocking and PostBackground as many as are busy at once (idle ones are used again).
class ThreadPoolExecutor : public Executor {
 public:
  // REQUIRES: num_threads >= 1, or nothing that is posted runs.
  explicit ThreadPoolExecutor(int num_threads);
  ~ThreadPoolExecutor() override;  // Stop()

  void Post(Task task) override;
  void PostAfter(absl::Duration delay, Task task) override;
  void PostBlocking(std::string name, Task task) override;
  void PostBackground(std::string name, Task task) override;

  // Drops what has not begun, timers included, waits for what runs, and joins all threads: blocks.
  // Later posts are dropped. A second call does nothing. REQUIRES: not called from a task of this
  // executor, nor by two threads at once.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs the tasks given to it one at a time and in order, on `executor`. Thread-safe. May be
// destroyed while tasks wait: they still run, in order. If the executor is stopped, those that wait
// are dropped.
class SerialExecutor {
 public:
  // REQUIRES: `executor` outlives every task posted.
  explicit SerialExecutor(Executor& executor);
  // Does not block, and never runs `task` within the call. REQUIRES of the task, as of
  // Executor::Post: it does not block.
  void Post(Task task);

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_EXECUTOR_H_
