// Something that others hold before it exists.
#ifndef DIVVY_BASE_LATE_H_
#define DIVVY_BASE_LATE_H_

#include <memory>
#include <utility>

#include "base/mutex.h"

namespace divvy {

// A handle that is empty until it is set, once. A server must listen before its core can be made
// (the core tells others the port), and its calls may come before that: they find nothing here and
// answer that they are not ready. Thread-safe; never blocks.
template <typename T>
class Late {
 public:
  void Set(std::shared_ptr<T> value) {  // REQUIRES: once, and not null
    MutexLock lock(mu_);
    value_ = std::move(value);
  }
  std::shared_ptr<T> Get() const {  // null: not yet
    MutexLock lock(mu_);
    return value_;
  }

 private:
  mutable Mutex mu_;
  std::shared_ptr<T> value_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_LATE_H_
