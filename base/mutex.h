// std::mutex with Clang's thread-safety annotations. Divvy does not use absl::Mutex because
// packaged builds of Abseil are not instrumented: ThreadSanitizer would report races that do not
// exist.
//
// Declare what a lock guards; the compiler checks it (clang, --config=clang):
//
//   Mutex mu_;
//   CondVar changed_;
//   int64_t applied_ DIVVY_GUARDED_BY(mu_) = 0;
//   // a method that must be called with the lock held declares it
//   int64_t AppliedNow() const DIVVY_REQUIRES(mu_);
//
//   MutexLock lock(mu_);
//   changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return applied_ > 0; });
#ifndef DIVVY_BASE_MUTEX_H_
#define DIVVY_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/time/time.h"

#if defined(__clang__)
#define DIVVY_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DIVVY_THREAD_ANNOTATION(x)
#endif
#define DIVVY_CAPABILITY DIVVY_THREAD_ANNOTATION(capability("mutex"))
#define DIVVY_SCOPED_CAPABILITY DIVVY_THREAD_ANNOTATION(scoped_lockable)
#define DIVVY_GUARDED_BY(x) DIVVY_THREAD_ANNOTATION(guarded_by(x))
#define DIVVY_REQUIRES(...) DIVVY_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define DIVVY_EXCLUDES(...) DIVVY_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define DIVVY_ACQUIRE(...) DIVVY_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define DIVVY_RELEASE(...) DIVVY_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define DIVVY_NO_THREAD_SAFETY_ANALYSIS DIVVY_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace divvy {

// A mutual-exclusion lock. Not recursive: a thread that locks it twice deadlocks. Lock blocks until
// the mutex is free. REQUIRES: the thread that locked it unlocks it. Prefer MutexLock, which does
// both.
class DIVVY_CAPABILITY Mutex {
 public:
  void Lock() DIVVY_ACQUIRE() { mu_.lock(); }
  void Unlock() DIVVY_RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Locks a mutex on construction and unlocks it on destruction. REQUIRES: the mutex outlives it.
class DIVVY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) DIVVY_ACQUIRE(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() DIVVY_RELEASE() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// A condition variable for Mutex. Thread-safe. Only code that may block uses one (the blocking part
// of the API, executors); a core never does. A thread that changes what a `ready` reads does so
// under the mutex and then notifies, with or without the mutex. `ready` is evaluated again after
// each notification, so spurious ones are harmless.
class CondVar {
 public:
  // Blocks until `ready()` is true, and returns with `mu` held. `ready` runs with `mu` held.
  // REQUIRES: `mu` is held.
  template <typename Ready>
  void Wait(Mutex& mu, Ready ready) DIVVY_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock, ready);
    lock.release();
  }

  // As Wait, but gives up after `timeout`. Returns whether `ready()` was true at the end. The
  // timeout is real time, not time of a Clock, so simulated code must not use it. A timeout of zero
  // or less evaluates `ready` once; one of more than a hundred years never expires.
  template <typename Ready>
  bool WaitFor(Mutex& mu, absl::Duration timeout, Ready ready) DIVVY_REQUIRES(mu) {
    if (timeout > kLongestWait) {
      Wait(mu, ready);
      return true;
    }
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    const bool met = cv_.wait_for(lock, absl::ToChronoNanoseconds(timeout), ready);
    lock.release();
    return met;
  }

  // Wake one waiting thread, or all of them. Never block.
  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  // std::condition_variable adds the timeout to a 64-bit clock of nanoseconds. A sum that overflows
  // would expire at once.
  static constexpr absl::Duration kLongestWait = absl::Hours(24 * 365 * 100);

  std::condition_variable cv_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_MUTEX_H_
