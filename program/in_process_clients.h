// The clients of embedded mode: the three cores of one process, joined without a network.
#ifndef DIVVY_PROGRAM_IN_PROCESS_CLIENTS_H_
#define DIVVY_PROGRAM_IN_PROCESS_CLIENTS_H_

#include <map>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/clients.h"
#include "coordinator/core/coordinator_core.h"
#include "ps_server/core/parameter_server_core.h"
#include "worker/core/worker_core.h"

namespace divvy {

// A directory of the cores in this process, by address, and the clients that reach them. Every call
// and every answer is a task of the Executor: a core is never called from within another. A core
// that is not there (any more) answers Unavailable, as a refused connection would. Thread-safe.
// Holds its cores weakly: who made them owns them.
class InProcessNetwork : public Dialer {
 public:
  // REQUIRES: `executor` outlives this and every client.
  explicit InProcessNetwork(Executor& executor) : executor_(executor) {}

  void Add(const std::string& address, std::weak_ptr<ParameterServerCore> ps);
  void Add(const std::string& address, std::weak_ptr<WorkerCore> worker);
  void SetCoordinator(std::weak_ptr<CoordinatorCore> coordinator);

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  // REQUIRES: not used after this.
  std::shared_ptr<CoordinatorClient> coordinator();

  // For the clients: null where there is no such core.
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
