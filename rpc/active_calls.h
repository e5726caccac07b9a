// Waits for the calls that still use an object before the object is destroyed.
#ifndef DIVVY_RPC_ACTIVE_CALLS_H_
#define DIVVY_RPC_ACTIVE_CALLS_H_

#include "base/mutex.h"

namespace divvy {

// Counts the calls that are inside an object, so that its owner can wait for the last one before it
// destroys the object. Thread-safe. Only Wait and CloseAndWait block.
//
//   if (!calls.Enter()) return;      // the object is being destroyed
//   ... use the object ...
//   calls.Leave();
class ActiveCalls {
 public:
  // False: closed. The caller must then not call Leave.
  bool Enter() {
    MutexLock lock(mu_);
    if (closed_) return false;
    ++inside_;
    return true;
  }
  // Call it once for each Enter that returned true. The object may be destroyed by the time it
  // returns.
  void Leave() {
    MutexLock lock(mu_);
    if (--inside_ == 0) empty_.NotifyAll();
  }
  // Blocks until no call is inside. New calls may still enter, also while it waits.
  void Wait() {
    MutexLock lock(mu_);
    empty_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return inside_ == 0; });
  }
  // Lets no further call enter, and blocks until no call is inside. REQUIRES: not called between
  // Enter and Leave.
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

#endif  // DIVVY_RPC_ACTIVE_CALLS_H_
