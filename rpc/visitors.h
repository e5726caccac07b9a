// Who is still inside something that is about to go.
#ifndef DIVVY_RPC_VISITORS_H_
#define DIVVY_RPC_VISITORS_H_

#include "base/mutex.h"

namespace divvy {

// Counts those inside, so that whoever takes the place down can wait for the last. Thread-safe.
//
//   if (!visitors.Enter()) return;      // it is being taken down
//   ... use it ...
//   visitors.Leave();
class Visitors {
 public:
  // False: closed; then there is no Leave.
  bool Enter() {
    MutexLock lock(mu_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  // Once for each Enter that was true. What is being taken down may be gone when it returns.
  void Leave() {
    MutexLock lock(mu_);
    if (--inside_ == 0) empty_.NotifyAll();
  }
  // Blocks until nobody is inside, though others may come meanwhile.
  void Wait() {
    MutexLock lock(mu_);
    empty_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return inside_ == 0; });
  }
  // Nobody enters any more; blocks until nobody is inside. REQUIRES: not called from inside.
  void CloseAndWait() {
    {
      MutexLock lock(mu_);
      closed_ = true;
    }
    Wait();
  }

 private:
  Mutex mu_;
  CondVar empty_;
  bool closed_ DIVVY_GUARDED_BY(mu_) = false;
  int inside_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_RPC_VISITORS_H_
