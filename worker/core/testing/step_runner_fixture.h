// A ThreadStepRunner with data and two fake parameter servers, for tests.
#ifndef DIVVY_WORKER_CORE_TESTING_STEP_RUNNER_FIXTURE_H_
#define DIVVY_WORKER_CORE_TESTING_STEP_RUNNER_FIXTURE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "data/dataset.h"
#include "gtest/gtest.h"
#include "worker/core/step_transaction.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/thread_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy {

// One value, handed from one thread to another: Take blocks until Put. Thread-safe.
template <typename T>
class Box {
 public:
  void Put(T value) {
    MutexLock lock(mu_);
    value_ = std::move(value);
    put_.NotifyAll();
  }
  T Take() {
    MutexLock lock(mu_);
    put_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return value_.has_value(); });
    T value = *std::move(value_);
    value_.reset();
    return value;
  }

 private:
  Mutex mu_;
  CondVar put_;
  std::optional<T> value_ DIVVY_GUARDED_BY(mu_);
};

// Worker 2. Variable "w" is [4, 1], two rows on each parameter server: 0, 0, 3, 4.
class StepRunnerFixture : public ::testing::Test {
 protected:
  explicit StepRunnerFixture(std::vector<Device> replica_devices = {Device()})
      : executor_(2), ps_(executor_, 2), inputs_(executor_) {
    layout_ = Layout::Empty()->With(MakeVariable(1, "w", 4, 1, {0, 1}));
    ps_.Make(*layout_);
    ps_[1].Set({VariableId(1), 0, 1}, *Tensor::Copy<float>(Shape{2, 1}, {3, 4}));
    UseDevices(std::move(replica_devices));
  }
  ~StepRunnerFixture() override { executor_.Stop(); }

  // One replica on each device.
  void UseDevices(std::vector<Device> replica_devices) {
    ThreadStepRunnerOptions options;
    options.worker_index = 2;
    replicas_ = static_cast<int>(replica_devices.size());
    options.replica_devices = std::move(replica_devices);
    runner_ = std::make_unique<ThreadStepRunner>(std::move(options), executor_, inputs_);
  }
  void UseReplicas(int replicas) { UseDevices(std::vector<Device>(static_cast<size_t>(replicas))); }
  std::shared_ptr<WorkerTransaction> MakeTransaction() {
    auto links = std::make_shared<SessionLinks>();
    for (const PsAddress& ps : ps_.view())
      links->ps[ps.index] = {ps_.client(ps.index), ps.incarnation};
    return std::make_shared<WorkerTransaction>(
        WorkerTransaction::Options{links, layout_, false, false, 1, nullptr}, executor_,
        Clock::Real());
  }

  // Begins a step. The caller looks at the writes that `transaction` has staged.
  using Result = std::shared_ptr<Box<absl::StatusOr<Nest>>>;
  Result BeginWith(const std::shared_ptr<WorkerTransaction>& transaction, std::string function,
                   std::vector<Nest> args = {}, std::vector<InputLease> leases = {}) {
    StepCall call;
    call.step = EntryId(1);
    call.ordinal = 0;
    call.function = std::move(function);
    call.args = Nest(Nest::List(args.begin(), args.end()));
    call.inputs = std::move(leases);
    auto result = std::make_shared<Box<absl::StatusOr<Nest>>>();
    runner_->Start(call, transaction,
                   [result](StepEnd end) { result->Put(std::move(end.result)); });
    return result;
  }
  Result Begin(std::string function, std::vector<Nest> args = {},
               std::vector<InputLease> leases = {}) {
    transaction_ = MakeTransaction();
    return BeginWith(transaction_, std::move(function), std::move(args), std::move(leases));
  }
  absl::StatusOr<Nest> Run(std::string function, std::vector<Nest> args = {},
                           std::vector<InputLease> leases = {}) {
    return Begin(std::move(function), std::move(args), std::move(leases))->Take();
  }

  // Opens the data as iterator `id`, and returns the number of elements, if it is known.
  absl::StatusOr<std::optional<int64_t>> Open(uint64_t id, const BoundDataSource& source,
                                              bool leased = true) {
    Box<absl::StatusOr<std::optional<int64_t>>> opened;
    inputs_.Open({ResourceId(id), std::string(source.name()), source.args(), 7, leased}, 2, 3,
                 replicas_, [&](const absl::StatusOr<OpenedInput>& input) {
                   if (input.ok()) return opened.Put(input->elements);
                   opened.Put(input.status());
                 });
    return opened.Take();
  }

  ThreadPoolExecutor executor_;
  FakeParameterServers ps_;
  DataInputOpener inputs_;
  std::shared_ptr<const Layout> layout_;
  int replicas_ = 1;
  std::unique_ptr<ThreadStepRunner> runner_;
  std::shared_ptr<WorkerTransaction> transaction_;  // of the step that was begun last
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_TESTING_STEP_RUNNER_FIXTURE_H_
