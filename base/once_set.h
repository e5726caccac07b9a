// A handle that others may hold before its value exists.
#ifndef DIVVY_BASE_ONCE_SET_H_
#define DIVVY_BASE_ONCE_SET_H_

#include <memory>
#include <utility>

#include "base/mutex.h"

namespace divvy {

// A shared handle that is empty until Set and again after Reset. Use: a server must listen before
// its core can be made, because the core reports the port to others. A call that arrives before the
// core finds the handle empty and answers that the task is not ready. Thread-safe; never blocks.
template <typename T>
class OnceSet {
 public:
  // REQUIRES: called once; `value` is not null.
  void Set(std::shared_ptr<T> value) {
    MutexLock lock(mu_);
    value_ = std::move(value);
  }
  // Releases the value. For an owner that destroys what the value uses. Callers that already have
  // the value keep it.
  void Reset() {
    std::shared_ptr<T> value;  // destroyed after the lock: its destructor may call Get
    MutexLock lock(mu_);
    value.swap(value_);
  }
  // The value. Null: not set yet, or reset.
  std::shared_ptr<T> Get() const {
    MutexLock lock(mu_);
    return value_;
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<T> value_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_ONCE_SET_H_
