// Where a thread waits for one value that another thread gives.
#ifndef DIVVY_BASE_COMPLETION_H_
#define DIVVY_BASE_COMPLETION_H_

#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Holds at most one value. Thread-safe; share it by pointer between the one that waits and the one
// that answers. A core never waits here: only calls that may block do.
template <typename T>
class Completion {
 public:
  // The first value counts; later ones are dropped. Never blocks.
  void Set(T value) {
    MutexLock lock(mu_);
    if (value_) return;
    value_ = std::move(value);
    arrived_.NotifyAll();
  }
  // Blocks until there is a value, for at most `timeout`. Nullopt: none within that time. The value
  // stays here.
  std::optional<T> Wait(absl::Duration timeout = absl::InfiniteDuration()) {
    MutexLock lock(mu_);
    arrived_.WaitFor(mu_, timeout, [this]() DIVVY_REQUIRES(mu_) { return value_.has_value(); });
    return value_;
  }
  // Blocks until there is a value, and moves it out. REQUIRES: nobody else takes or looks at it.
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
