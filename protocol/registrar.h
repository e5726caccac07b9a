// Keeps telling the coordinator where a task can be reached, until it is attached.
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

// How a worker or ps learns that its process is to end. `why`: one line for a person; empty where
// the job has simply ended.
using OnExit = std::function<void(int exit_code, std::string why)>;

// Of a worker or a parameter server. Detached: Register every 2 s, after a failure by Backoff.
// Attached: silent. One call at a time.
//
//   auto registrar = Registrar::Create(options, coordinator, executor, [](int exit_code,
//   std::string why) { ... }); registrar->OnDetached();   // begins registrar->OnAttached();   //
//   an Attach came: enough
//
// Thread-safe; no method waits. Register is called from within OnDetached and from tasks of the
// executor, under no lock of the registrar (the caller may hold its own: a client never calls back
// from within a call). Give the last handle away and it ends: an answer under way and a timer find
// it gone.
class Registrar : public std::enable_shared_from_this<Registrar> {
 public:
  struct Options {
    RegisterRequest request;                  // sent as it is
    absl::Duration every = absl::Seconds(2);  // after an answer
    uint64_t seed = 1;                        // of the jitter
  };
  // `on_over` is called once at most, by a task of the executor: the coordinator says that the job
  // has ended, with this exit code; or it refuses the task for ever (77: NOT_AUTHORIZED; 78:
  // WRONG_JOB, VERSION_MISMATCH, CLUSTER_MISMATCH, DUPLICATE_TASK) and says why. Nothing is sent
  // after it. Any other refusal is for now.
  // REQUIRES: `executor` outlives the registrar.
  static std::shared_ptr<Registrar> Create(Options options,
                                           std::shared_ptr<CoordinatorClient> coordinator,
                                           Executor& executor, OnExit on_over);

  // Both may be told again and again; only a change does something.
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
  // Counts the changes; odd: detached. Timers and answers of an earlier one are void.
  uint64_t generation_ DIVVY_GUARDED_BY(mu_) = 0;
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  Backoff backoff_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_REGISTRAR_H_
