// The threads of a block on threads of the host, so that races and uneven barriers of kernels are
// found where there is no GPU.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_THREADS_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_THREADS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "ops/cuda/parallel.h"

namespace divvy::cuda {

// Plays blocks in one of these orders:
//   kTogether  all threads run at the same time. ThreadSanitizer then reports what two of them do
//   to the same memory without a barrier between. (It sees an
//              exchange within a warp as a barrier of that warp, which a GPU does not promise.)
//   kRising    one thread runs at a time, until it waits for others or ends; then the lowest of
//              those that can run
//   kFalling   the same with the highest
//   kAny       the same with one drawn from a seed
// A race comes out differently in these three.
//
// Threads that wait for others that will never come are an error, in all orders: some have ended,
// or wait at another place. `tell` gets the text, which lives as long as this object, once for each
// Run. From then on nobody waits in that Run, and its results mean nothing.
//
// Run may be called from several threads: one call waits for the other.
class HostThreads : public HostBlock {
 public:
  enum class Order { kTogether, kRising, kFalling, kAny };

  HostThreads(Order order, uint64_t seed, std::function<void(const char*)> tell)
      : order_(order), tell_(std::move(tell)), random_(seed) {}

  void Run(int threads, const std::function<void(int)>& work) override;
  void Meet(int thread, const char* place) override { Arrive(thread, all_, place); }
  // REQUIRES: the threads of the block are a multiple of a warp's.
  double Exchange(int thread, double own, int distance) override;
  // Of at most four places in a kernel. What nobody has written is no number. REQUIRES: `count` <=
  // kMostShared.
  double* Shared(const char* place, int count) override;

 private:
  static constexpr int kMostShared = 2048;
  // Of one thread. A plain field is written by the thread, or by another one while it waits.
  struct Seat {
    std::atomic<const char*> place{nullptr};  // where it waits; null: it runs
    double given = 0, received = 0;
    bool can_run = false;  // one at a time
    Mutex mu;
    CondVar changed;
    bool may_go DIVVY_GUARDED_BY(mu) = false;
  };
  // Threads that wait for each other.
  struct Group {
    int first = 0, count = 0, distance = 0;  // an exchange's distance
    std::atomic<int> come{0};
  };

  struct SharedArray {
    std::atomic<const char*> place{nullptr};  // whose it is
    std::vector<double> numbers;
  };

  void Prepare(int threads);
  void Live(int thread, const std::function<void(int)>& work);
  void Arrive(int thread, Group& group, const char* place);
  bool AreAtOnePlace(const Group& group) const;
  void LetGo(Group& group, int thread, bool in_turns);
  void StopRunning(bool in_turns);
  void RunNext();
  void Break();
  std::string WhereAllAre() const;
  void Go(int thread);
  void AwaitGo(int thread);
  bool in_turns() const { return order_ != Order::kTogether || is_broken_; }

  const Order order_;
  const std::function<void(const char*)> tell_;
  Mutex one_run_;
  // Of the run that is under way. What has no lock is changed while at most one thread runs, or
  // before all do.
  Random random_;
  std::vector<std::unique_ptr<Seat>> seats_;
  Group all_;
  std::vector<std::unique_ptr<Group>> warps_;
  std::atomic<int> running_{0};  // kTogether
  bool is_broken_ = false;
  const std::string* wrong_ = nullptr;
  std::set<std::string> told_;
  SharedArray shared_[4];
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_THREADS_H_
