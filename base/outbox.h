// Lets a core act without waiting under its lock. Effects that the core decides on under its lock
// run after the lock is released, in the order of the decisions.
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

// A queue of effects. Thread-safe.
//
// Effects run one at a time, in the order added. They run without the core's lock if the core
// drains after unlocking, as CoreLock does. An effect may add others, also by calling back into the
// core; they run after it. The first thread that drains runs the effects, so an effect added by one
// thread may run on another. REQUIRES: effects do not block. Effects that are not drained when the
// outbox is destroyed are dropped. REQUIRES: the outbox outlives Drain, even if an effect releases
// the last handle to its owner.
class Outbox {
 public:
  // Queues `effect` for the next Drain. May be called with the core's lock held. Never runs it.
  void Add(Task effect) {
    MutexLock lock(mu_);
    effects_.push_back(std::move(effect));
  }

  // Runs the effects added so far. If another thread, or a caller further up this stack, is
  // draining already, returns at once and leaves them to it.
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

// Holds a core's mutex. The destructor releases it, then drains the core's outbox. REQUIRES: both
// outlive it.
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
