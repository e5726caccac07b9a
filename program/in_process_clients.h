// The clients of embedded mode: they connect the three cores of one process without a network.
#ifndef DIVVY_PROGRAM_IN_PROCESS_CLIENTS_H_
#define DIVVY_PROGRAM_IN_PROCESS_CLIENTS_H_

#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "coordinator/core/coordinator_core.h"
#include "protocol/clients.h"
#include "ps_server/core/parameter_server_core.h"
#include "worker/core/worker_core.h"

namespace divvy {

// The cores of this process by address, and the clients that reach them. Every call and every
// answer is a task of the Executor, so a core is never called from within another one. A call to a
// core that does not exist (any more) returns Unavailable, like a refused connection. Holds the
// cores weakly; their makers own them. Thread-safe; no method blocks.
class InProcessNetwork : public Dialer {
 public:
  // REQUIRES: `executor` outlives this object and every client.
  explicit InProcessNetwork(Executor& executor) : executor_(executor) {}

  // Adds a core, or replaces the one at this address. A null core makes the address unreachable.
  void Add(const std::string& address, std::weak_ptr<ParameterServerCore> ps);
  void Add(const std::string& address, std::weak_ptr<WorkerCore> worker);
  void SetCoordinator(std::weak_ptr<CoordinatorCore> coordinator);

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  // The client of the coordinator. REQUIRES: the client is not used after this object is destroyed.
  std::shared_ptr<CoordinatorClient> coordinator();

  // For the clients. Null: there is no such core.
  std::shared_ptr<ParameterServerCore> FindPs(const std::string& address);
  std::shared_ptr<WorkerCore> FindWorker(const std::string& address);
  std::shared_ptr<CoordinatorCore> FindCoordinator();
  Executor& executor() { return executor_; }

 private:
  class ToCoordinator;

  Executor& executor_;
  Mutex mu_;
  std::map<std::string, std::weak_ptr<ParameterServerCore>> ps_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, std::weak_ptr<WorkerCore>> workers_ DIVVY_GUARDED_BY(mu_);
  std::weak_ptr<CoordinatorCore> coordinator_ DIVVY_GUARDED_BY(mu_);
  std::shared_ptr<CoordinatorClient> to_coordinator_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_IN_PROCESS_CLIENTS_H_
