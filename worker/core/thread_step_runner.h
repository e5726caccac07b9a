// Step functions in a process of a cluster: each runs on a thread that may block.
#ifndef DIVVY_WORKER_CORE_THREAD_STEP_RUNNER_H_
#define DIVVY_WORKER_CORE_THREAD_STEP_RUNNER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/cluster_resolver.h"
#include "strategy/local_objects.h"
#include "strategy/per_replica.h"
#include "strategy/variable_store.h"
#include "worker/core/data_input_opener.h"
#include "worker/core/step_runner.h"
#include "worker/core/worker_metrics.h"

namespace divvy {

struct ThreadStepRunnerOptions {
  int worker_index = 0;
  // The device of each replica. REQUIRES: not empty.
  std::vector<Device> replica_devices = {Device{}};
  // The source of the step's Strategy for questions about the cluster; may be null.
  std::shared_ptr<const ClusterResolver> resolver;
  // StrategyOptions::communication.
  CommunicationOptions communication = {};
  // Where the time in functions and in waits for data is noted. Null: nowhere. REQUIRES: outlives
  // the runner and its steps.
  WorkerMetrics* metrics = nullptr;
};

// The StepRunner of a worker: finds the function in the StepRegistry and calls it with a Strategy
// of its own over the transaction. In a worker, reads, collectives and data block on this runner's
// threads and nowhere else. Thread-safe.
//
// Objects that steps keep (WorkerContext::Local) live as long as the runner. No object is used by
// two steps at once: if a step of an ended session still runs, it keeps its objects, and a step
// that runs beside it gets others.
class ThreadStepRunner : public StepRunner {
 public:
  // REQUIRES: `executor` and `inputs` outlive this and every step started.
  ThreadStepRunner(ThreadStepRunnerOptions options, Executor& executor, DataInputOpener& inputs);
  ~ThreadStepRunner() override;

  void Start(StepCall call, std::shared_ptr<StepTransaction> transaction,
             std::function<void(StepEnd)> done) override;
  void CopyAhead(const std::string& function, const std::vector<WholeValue>& values) override;

 private:
  struct Kept;
  std::shared_ptr<const ThreadStepRunnerOptions> options_;
  Executor& executor_;
  DataInputOpener& inputs_;
  std::shared_ptr<Kept> kept_;
};

// The variables as a step function sees them: blocking calls over its transaction. Create returns
// FailedPrecondition. Thread-safe.
std::shared_ptr<VariableStore> MakeTransactionStore(std::shared_ptr<StepTransaction> transaction);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_THREAD_STEP_RUNNER_H_
