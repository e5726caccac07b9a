// std::mutex behind Clang's thread-safety annotations. Not the mutex of Abseil: the packaged Abseil
// is not instrumented, and ThreadSanitizer would then report races that are not there.
//
// Declare what a lock guards, and the compiler (clang, --config=clang) checks it:
//
//   Mutex mu_;
//   CondVar changed_;
//   int64_t applied_ DIVVY_GUARDED_BY(mu_) = 0;
//   // a method that is called with the lock held says so
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

// Not recursive: a thread that locks it twice waits for itself. REQUIRES: unlocked by the thread
// that locked it. MutexLock does both.
class DIVVY_CAPABILITY Mutex {
 public:
  void Lock() DIVVY_ACQUIRE() { mu_.lock(); }
  void Unlock() DIVVY_RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

// Holds a mutex while it lives. REQUIRES: the mutex outlives it.
class DIVVY_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mu) DIVVY_ACQUIRE(mu) : mu_(mu) { mu_.Lock(); }
  ~MutexLock() DIVVY_RELEASE() { mu_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mu_;
};

// A condition variable for Mutex. Only code that may block uses one (the blocking faces of the API,
// executors): a core never does. Thread-safe. Whoever changes what a `ready` looks at, under the
// mutex, notifies afterwards, with or without it. `ready` is asked again after each notice, so
// spurious ones do no harm.
class CondVar {
 public:
  // REQUIRES: `mu` is held. Returns when `ready()` holds; `ready` runs with `mu` held.
  template <typename Ready>
  void Wait(Mutex& mu, Ready ready) DIVVY_REQUIRES(mu) {
    std::unique_lock<std::mutex> lock(mu.mu_, std::adopt_lock);
    cv_.wait(lock, ready);
    lock.release();
  }

  // As Wait, but gives up after `timeout` of real time (not the Clock's: for code that no
  // simulation runs); of more than a hundred years, never. Zero or less: asks once. Returns whether
  // `ready()` held at the end.
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

  void NotifyOne() { cv_.notify_one(); }
  void NotifyAll() { cv_.notify_all(); }

 private:
  // std::condition_variable adds a timeout to a clock of 64 bits of nanoseconds, and what overflows
  // there is over at once.
  static constexpr absl::Duration kLongestWait = absl::Hours(24 * 365 * 100);

  std::condition_variable cv_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_MUTEX_H_
