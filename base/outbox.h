// How a core speaks without waiting: what it decides under its lock is carried out after the lock
// is gone, in the order decided.
//
//   void Core::OnMessage(Message m) {
//     CoreLock lock(mu_, outbox_);
//     ...                                    // state changes
//     outbox_.Add([reply] { done(reply); }); // runs when `lock` is gone; may call this core again
//   }
#ifndef DIVVY_BASE_OUTBOX_H_
#define DIVVY_BASE_OUTBOX_H_

#include <deque>
#include <utility>

#include "base/executor.h"
#include "base/mutex.h"

namespace divvy {

// A queue of effects. Thread-safe. Effects run one at a time, in the order added, never while Add's
// caller holds its own lock if it drains after unlocking (CoreLock does). An effect may add others,
// also by calling back into the core: they run after it. Whoever drains first runs them, so an
// effect of one thread may run on another: it does not block. What is not drained when the outbox
// goes is dropped. REQUIRES: the outbox outlives Drain, whatever its effects let go of.
class Outbox {
 public:
  void Add(Task effect) {
    MutexLock lock(mu_);
    effects_.push_back(std::move(effect));
  }

  // Runs what has been added. If another thread (or a caller further up this stack) is already
  // draining, it runs the rest instead.
  void Drain() {
    mu_.Lock();
    if (draining_) return mu_.Unlock();
    draining_ = true;
    while (!effects_.empty()) {
      Task effect = std::move(effects_.front());
      effects_.pop_front();
      mu_.Unlock();
      effect();
      effect = nullptr;  // what it captured is released outside the lock
      mu_.Lock();
    }
    draining_ = false;
    mu_.Unlock();
  }

 private:
  Mutex mu_;
  std::deque<Task> effects_ DIVVY_GUARDED_BY(mu_);
  bool draining_ DIVVY_GUARDED_BY(mu_) = false;
};

// Holds a core's mutex; releases it, then drains the core's outbox.
class DIVVY_SCOPED_CAPABILITY CoreLock {
 public:
  CoreLock(Mutex& mu, Outbox& outbox) DIVVY_ACQUIRE(mu) : mu_(mu), outbox_(outbox) { mu_.Lock(); }
  ~CoreLock() DIVVY_RELEASE() {
    mu_.Unlock();
    outbox_.Drain();
  }
  CoreLock(const CoreLock&) = delete;
  CoreLock& operator=(const CoreLock&) = delete;

 private:
  Mutex& mu_;
  Outbox& outbox_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_OUTBOX_H_
