// Completion: lets a thread wait for one value from another thread.
#ifndef DIVVY_BASE_COMPLETION_H_
#define DIVVY_BASE_COMPLETION_H_

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Holds at most one value. Thread-safe; the waiting thread and the answering thread share it by
// pointer. A core never waits for one: only calls that may block do.
template <typename T>
class Completion {
 public:
  // Sets the value. Only the first call counts; later values are dropped. Never blocks.
  void Set(T value) {
    MutexLock lock(mu_);
    if (value_) return;
    value_ = std::move(value);
    arrived_.NotifyAll();
  }
  // Blocks until there is a value, for at most `timeout`. Returns a copy. nullopt: there was none
  // within that time.
  std::optional<T> Wait(absl::Duration timeout = absl::InfiniteDuration()) {
    MutexLock lock(mu_);
    arrived_.WaitFor(mu_, timeout, [this]() DIVVY_REQUIRES(mu_) { return value_.has_value(); });
    return value_;
  }
  // Blocks until there is a value, and moves it out. REQUIRES: no other call of Wait, Take or Peek
  // runs at the same time or later.
  T Take() {
    MutexLock lock(mu_);
    arrived_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return value_.has_value(); });
    return *std::move(value_);
  }
  // The value, if there is one. Never blocks.
  std::optional<T> Peek() { return Wait(absl::ZeroDuration()); }

 private:
  Mutex mu_;
  CondVar arrived_;
  std::optional<T> value_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_COMPLETION_H_
