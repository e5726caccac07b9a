// Registers a task with the coordinator, again and again until the coordinator attaches the task.
#ifndef DIVVY_PROTOCOL_REGISTRAR_H_
#define DIVVY_PROTOCOL_REGISTRAR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "protocol/backoff.h"
#include "protocol/clients.h"
#include "protocol/messages.h"

namespace divvy {

// Called when a worker or ps is to end its process. `why` is one line for a person; it is empty if
// the job has simply ended.
using OnExit = std::function<void(int exit_code, std::string why)>;

// Registers a worker or a parameter server. While the task is detached, it calls Register: 2 s
// after each answer, and after a failure when Backoff says so. While the task is attached, it sends
// nothing. At most one call is in flight.
//
//   auto registrar = Registrar::Create(options, coordinator, executor,
//                                      [](int exit_code, std::string why) { ... });
//   registrar->OnDetached();  // starts to register
//   registrar->OnAttached();  // an Attach has arrived: stops
//
// Thread-safe; no method blocks. The registrar calls Register from within OnDetached and from tasks
// of the executor, and holds no lock of its own then. The caller of OnDetached may hold a lock,
// because a client never calls back from within a call. When its last handle is destroyed, the
// registrar stops: it ignores the answer in flight and its timer.
class Registrar : public std::enable_shared_from_this<Registrar> {
 public:
  struct Options {
    // Sent unchanged.
    RegisterRequest request;
    // The wait after an answer.
    absl::Duration every = absl::Seconds(2);
    // The seed of the backoff's jitter.
    uint64_t seed = 1;
  };
  // `on_over` is called at most once, by a task of the executor. Either the coordinator says that
  // the job has ended, with this exit code, or it refuses the task for good and says why (77:
  // NOT_AUTHORIZED; 78: WRONG_JOB, VERSION_MISMATCH, CLUSTER_MISMATCH, DUPLICATE_TASK). The
  // registrar sends nothing after that. After any other refusal it retries. REQUIRES: `executor`
  // outlives the registrar.
  static std::shared_ptr<Registrar> Create(Options options,
                                           std::shared_ptr<CoordinatorClient> coordinator,
                                           Executor& executor, OnExit on_over);

  // Repeated calls do nothing: only a change between the two states has an effect.
  void OnAttached();
  void OnDetached();

 private:
  Registrar(Options options, std::shared_ptr<CoordinatorClient> coordinator, Executor& executor,
            OnExit on_over);
  void Send(uint64_t generation);
  void OnReply(uint64_t generation, const absl::StatusOr<RegisterReply>& reply);
  void SendAfter(absl::Duration delay, uint64_t generation);

  const Options options_;
  const std::shared_ptr<CoordinatorClient> coordinator_;
  Executor& executor_;
  const OnExit on_over_;
  Mutex mu_;
  // The number of changes; odd: detached. A timer or an answer of an earlier generation is ignored.
  uint64_t generation_ DIVVY_GUARDED_BY(mu_) = 0;
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  Backoff backoff_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_REGISTRAR_H_
