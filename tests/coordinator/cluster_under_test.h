// A cluster under the tests of the coordinator's rules. The tests are one text; what they run on is
// whichever of these is linked with them:
//
//   simulated_cluster.cc   the three cores in one thread, over a network and in a time that are
//                          simulated; step bodies are scripts
//   embedded_cluster.cc    the cluster of StartEmbedded: one process, real threads, no network
//   served_cluster.cc      the tasks as processes have them, gRPC between them; in one process, so
//                          that a test can hold a step at its gate
#ifndef DIVVY_TESTS_COORDINATOR_CLUSTER_UNDER_TEST_H_
#define DIVVY_TESTS_COORDINATOR_CLUSTER_UNDER_TEST_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/core/blocking_coordinator.h"
#include "coordinator/core/coordinator_core.h"
#include "strategy/step.h"
#include "tensor/nest.h"

namespace divvy::rules {

// An answer that comes later. Copies wait for the same one. Thread-safe.
template <typename T>
class Pending {
 public:
  // `peek` gives the answer once it is there.
  explicit Pending(std::function<std::optional<T>()> peek) : peek_(std::move(peek)) {}
  bool ready() const { return peek_().has_value(); }
  T value() const { return *peek_(); }  // REQUIRES: ready

 private:
  std::function<std::optional<T>()> peek_;
};

// The other end of a Pending. Thread-safe; copies are one.
template <typename T>
class Promise {
 public:
  void Set(T value) const {
    MutexLock lock(kept_->mu);
    kept_->value = std::move(value);
  }
  Pending<T> pending() const {
    return Pending<T>([kept = kept_] {
      MutexLock lock(kept->mu);
      return kept->value;
    });
  }

 private:
  struct Kept {
    Mutex mu;
    std::optional<T> value DIVVY_GUARDED_BY(mu);
  };
  std::shared_ptr<Kept> kept_ = std::make_shared<Kept>();
};

struct ClusterOptions {
  int num_ps = 1, num_workers = 1;
  // Of the coordinator; what names tasks is filled in.
  CoordinatorOptions limits;
};

// A step that was scheduled: whether it was taken, and what came of it. As RemoteValue::Fetch gives
// it.
struct Scheduled {
  Pending<absl::Status> accepted;
  Pending<absl::StatusOr<Nest>> result;
};

// To be used by one thread, which is the program's. Calls of the program begin and go on by
// themselves, so that a test can look at one that blocks. The variable "counter" has an element on
// each parameter server; steps and data: steps.h.
class ClusterUnderTest {
 public:
  virtual ~ClusterUnderTest() = default;

  // ---- the program ----
  virtual Scheduled Schedule(const std::string& step, Nest::List args) = 0;
  virtual Pending<absl::Status> Join() = 0;
  virtual Pending<absl::StatusOr<bool>> Done() = 0;
  // "counter" as it stands. Internal: its elements, which every step changes alike, differ.
  virtual Pending<absl::StatusOr<int64_t>> Counter() = 0;
  // For what does not block.
  virtual BlockingCoordinator& coordinator() = 0;

  // ---- misfortunes ----
  virtual void KillWorker(int index) = 0;   // in the middle of whatever it does
  virtual void StartWorker(int index) = 0;  // another life of one that was killed
  virtual void KillPs(int index) = 0;
  virtual void StartPs(int index) = 0;  // another life, empty
  virtual void CutPs(int index) = 0;    // nobody reaches it, until
  virtual void HealPs(int index) = 0;

  // ---- waiting ----
  // Until the condition holds. False: not within a minute (of virtual time, where time is).
  virtual bool WaitUntil(const std::function<bool()>& condition) = 0;
  // Gives what would happen by itself the opportunity: a second where time is virtual, a call
  // through the coordinator elsewhere.
  virtual void LetThingsHappen() = 0;
};

// Starts it and waits until it takes steps.
absl::StatusOr<std::unique_ptr<ClusterUnderTest>> MakeCluster(const ClusterOptions& options);

}  // namespace divvy::rules

#endif  // DIVVY_TESTS_COORDINATOR_CLUSTER_UNDER_TEST_H_
