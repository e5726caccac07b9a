#include "ops/cpu/parallel.h"

#include <atomic>
#include <cfenv>
#include <memory>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/process.h"

namespace divvy::internal {
namespace {

std::atomic<int>& Threads() {
  static std::atomic<int> threads{std::max(1, NumCores())};
  return threads;
}

// Never destroyed: its threads may compute until the process ends.
ThreadPoolExecutor& Helpers() {
  static auto* const helpers = new ThreadPoolExecutor(std::max(1, NumCores() - 1));
  return *helpers;
}

// What the threads of one loop share. A helper may come when the loop is over, and then finds no
// slice; so it holds this, and only a thread that has taken a slice touches `loop.body`.
struct SharedLoop {
  explicit SharedLoop(const SliceLoop& of)
      : loop(of), slices((of.n + of.slice - 1) / of.slice), left(slices) {
    std::fegetenv(&environment);
  }

  // Runs slices until none is left to take.
  void Run() {
    int64_t done = 0;
    for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < slices; ++done) {
      const int64_t begin = i * loop.slice;
      loop.run(loop.body, begin, std::min(begin + loop.slice, loop.n));
    }
    if (done == 0 || left.fetch_sub(done, std::memory_order_acq_rel) != done) return;
    MutexLock lock(mu);
    all_done.NotifyAll();
  }

  void Help() {
    if (next.load(std::memory_order_relaxed) >= slices) return;
    std::fenv_t own;
    std::fegetenv(&own);
    std::fesetenv(&environment);
    Run();
    std::fesetenv(&own);
  }

  // The last slices of the others mostly end within a few microseconds, so a short look is cheaper
  // than sleep.
  void Wait() {
    constexpr int kLooks = 2000;
    for (int i = 0; i < kLooks; ++i) {
      if (Done()) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    MutexLock lock(mu);
    all_done.Wait(mu, [this] { return Done(); });
  }
  bool Done() const { return left.load(std::memory_order_acquire) == 0; }

  const SliceLoop loop;
  const int64_t slices;
  std::fenv_t environment;
  std::atomic<int64_t> next{0};
  std::atomic<int64_t> left;
  Mutex mu;
  CondVar all_done;
};

}  // namespace

int ComputeThreads() { return Threads().load(std::memory_order_relaxed); }

void SetComputeThreads(int threads) { Threads().store(threads, std::memory_order_relaxed); }

void RunSlices(const SliceLoop& loop, int threads) {
  const auto shared = std::make_shared<SharedLoop>(loop);
  const int64_t helpers = std::min<int64_t>(threads, shared->slices) - 1;
  for (int64_t i = 0; i < helpers; ++i) Helpers().Post([shared] { shared->Help(); });
  shared->Run();
  shared->Wait();
}

}  // namespace divvy::internal
