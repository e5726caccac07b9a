// Emulates the threads of a block with threads of the host, so that tests find races and uneven
// barriers of kernels without a GPU.
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

// Runs blocks in one of these orders:
//
//   kTogether  All threads run at the same time. ThreadSanitizer then reports accesses of two
//              threads to the same memory without a barrier in between. (It considers an exchange
//              within a warp a barrier of that warp, which a GPU does not promise.)
//   kRising    One thread runs at a time, until it waits for others or ends; then the lowest thread
//              that can run continues.
//   kFalling   As kRising, with the highest thread.
//   kAny       As kRising, with a thread that is drawn from a seed.
//
// A race has different results in the last three.
//
// In all orders it is an error if threads wait for others that will never come, because these have
// ended or wait at another place. `tell` gets the text once for each Run; the text lives as long as
// this object. From then on nobody waits in that Run, and its results are meaningless.
//
// Run may be called from several threads; one call waits for the other.
class HostThreads : public HostBlock {
 public:
  enum class Order { kTogether, kRising, kFalling, kAny };

  HostThreads(Order order, uint64_t seed, std::function<void(const char*)> tell)
      : order_(order), tell_(std::move(tell)), random_(seed) {}

  void Run(int threads, const std::function<void(int)>& work) override;
  void Meet(int thread, const char* place) override { Arrive(thread, all_, place); }
  // REQUIRES: the number of threads of the block is a multiple of a warp's.
  double Exchange(int thread, double own, int distance) override;
  // A kernel may have at most four places. Memory that nobody has written is NaN. REQUIRES: `count`
  // <= kMostShared.
  double* Shared(const char* place, int count) override;

 private:
  static constexpr int kMostShared = 2048;
  // The state of one thread. The plain fields are written by the thread, or by another one while it
  // waits.
  struct Seat {
    std::atomic<const char*> place{nullptr};  // where it waits; null: it runs
    double given = 0, received = 0;
    bool can_run = false;  // one at a time
    Mutex mu;
    CondVar changed;
    bool may_go DIVVY_GUARDED_BY(mu) = false;
  };
  // A group of threads that wait for each other.
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
  // The state of the current Run. Fields without a lock change while at most one thread runs, or
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
