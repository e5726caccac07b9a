// A cluster for the tests of the coordinator's rules. The tests are the same for all clusters. They
// run on the cluster that is linked with them:
//
//   simulated_cluster.cc   the three cores in one thread, on a simulated network and in virtual
//   time;
//                          step bodies are scripts
//   embedded_cluster.cc    the cluster of StartEmbedded: one process, real threads, no network
//   served_cluster.cc      tasks as in processes of their own, with gRPC between them, but in one
//                          process, so that a test can hold a step at its gate
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

// An answer that comes later. Copies wait for the same answer. Thread-safe.
template <typename T>
class Pending {
 public:
  // `peek` returns the answer once it is there.
  explicit Pending(std::function<std::optional<T>()> peek) : peek_(std::move(peek)) {}
  bool ready() const { return peek_().has_value(); }
  T value() const { return *peek_(); }  // REQUIRES: ready

 private:
  std::function<std::optional<T>()> peek_;
};

// The other end of a Pending. Copies share one answer. Thread-safe.
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
  // Options of the coordinator. The cluster fills in addresses of tasks.
  CoordinatorOptions limits;
};

// A scheduled step: whether the coordinator accepted it, and its result as of RemoteValue::Fetch.
struct Scheduled {
  Pending<absl::Status> accepted;
  Pending<absl::StatusOr<Nest>> result;
};

// Used by one thread, the program's. Calls of the program run on their own, so that a test can look
// at one that blocks. The variable "counter" has one element on each parameter server. Steps and
// data are those of steps.h.
class ClusterUnderTest {
 public:
  virtual ~ClusterUnderTest() = default;

  // ---- the program ----
  virtual Scheduled Schedule(const std::string& step, Nest::List args) = 0;
  virtual Pending<absl::Status> Join() = 0;
  virtual Pending<absl::StatusOr<bool>> Done() = 0;
  // The value of "counter". Every step changes all its elements alike; Internal: they differ.
  virtual Pending<absl::StatusOr<int64_t>> Counter() = 0;
  // For calls that do not block.
  virtual BlockingCoordinator& coordinator() = 0;

  // ---- faults ----
  virtual void KillWorker(int index) = 0;   // at any moment of a step
  virtual void StartWorker(int index) = 0;  // a new life of a killed worker
  virtual void KillPs(int index) = 0;
  virtual void StartPs(int index) = 0;  // a new life, empty
  virtual void CutPs(int index) = 0;    // no task reaches it, until
  virtual void HealPs(int index) = 0;

  // ---- waiting ----
  // Waits until the condition holds. Returns false after a minute (of virtual time in the
  // simulation).
  virtual bool WaitUntil(const std::function<bool()>& condition) = 0;
  // Gives pending events the opportunity to happen: a second of virtual time in the simulation, a
  // call through the coordinator elsewhere.
  virtual void LetThingsHappen() = 0;
};

// Starts the cluster and waits until it accepts steps.
absl::StatusOr<std::unique_ptr<ClusterUnderTest>> MakeCluster(const ClusterOptions& options);

}  // namespace divvy::rules

#endif  // DIVVY_TESTS_COORDINATOR_CLUSTER_UNDER_TEST_H_
