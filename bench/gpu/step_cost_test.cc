// The number of kernels, copies, allocations and waits of one training step on a GPU. Each of these
// costs microseconds, whatever its size. They are counted on a device that the host simulates, with
// the models, batches and variables of bench/gpu. The expected numbers are the current costs: a
// change that lowers a cost must lower the number, and a change that raises a cost fails here.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/log.h"
#include "bench/gpu/train_work.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "tensor/device_memory.h"
#include "variables/layout.h"
#include "worker/core/data_input_opener.h"
#include "worker/core/step_transaction.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/testing/step_runner_fixture.h"
#include "worker/core/thread_step_runner.h"

namespace divvy::bench {
namespace {

// Only the last step is counted: by then the backend keeps memory, and knows the streams.
constexpr int kSteps = 4;

const TrainModel& ModelOf(int number) {
  static const std::vector<TrainModel>& models = *new std::vector<TrainModel>(TrainModels(kSteps));
  return models[static_cast<size_t>(number)];
}

const TrainWork& WorkOf(const TrainModel& model, int64_t batch) {
  for (const TrainWork& work : model.works) {
    if (work.batch == batch) return work;
  }
  DIVVY_CHECK(false && "bench/gpu has no such batch");
  return model.works[0];
}

// ---- a worker with one GPU ----------------------------------------------------------------------

// A model's variables on one parameter server; each is zero and has an optimizer.
std::shared_ptr<const Layout> LayoutOf(const Model& model) {
  std::shared_ptr<const Layout> layout = Layout::Empty();
  uint32_t id = 0;
  for (const VariableSpec& spec : model.variables()) {
    VariableLayout variable;
    variable.id = VariableId(++id);
    variable.spec = spec;
    variable.spec.optimizer = Sgd{0.1};
    variable.offsets = {0, spec.shape.dim(0)};
    variable.ps = {0};
    layout = layout->With(std::move(variable));
  }
  return layout;
}

class StepCostTest : public ::testing::Test {
 protected:
  StepCostTest() : executor_(4), ps_(executor_, 1), inputs_(executor_) {
    math_.keep_log = false;
    SetGpuMemory(&gpu_);
    internal::SetGpuBackend(&gpu_);
    ThreadStepRunnerOptions options;
    options.replica_devices = {Device{Device::Kind::kGpu, 0}};
    runner_ = std::make_unique<ThreadStepRunner>(std::move(options), executor_, inputs_);
  }
  ~StepCostTest() override {
    executor_.Stop();
    runner_ = nullptr;
    internal::SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }

  // The costs of the last of kSteps steps, including the costs of freeing its values.
  cuda::HostCosts CostOfStep(const TrainModel& trained, int64_t batch) {
    const Model& model = trained.model;
    layout_ = LayoutOf(model);
    ps_.Make(*layout_);
    Open(WorkOf(trained, batch).data);
    cuda::HostCosts before;
    for (int i = 0; i < kSteps; ++i) {
      before = math_.costs();
      const absl::Status status = RunStep(model, i);
      EXPECT_TRUE(status.ok()) << status;
    }
    const cuda::HostCosts after = math_.costs();
    return {after.kernels - before.kernels, after.uploads - before.uploads,
            after.allocations - before.allocations, after.waits - before.waits};
  }

 private:
  // The options that OpenGpus sets.
  static cuda::TransferOptions KeepingMemory() {
    cuda::TransferOptions options;
    options.keeps_memory = true;
    return options;
  }
  void Open(const BoundDataSource& data) {
    Box<absl::Status> opened;
    inputs_.Open({ResourceId(1), std::string(data.name()), data.args(), 7, true}, 0, 1, 1,
                 [&](const absl::StatusOr<OpenedInput>& input) { opened.Put(input.status()); });
    const absl::Status status = opened.Take();
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::Status RunStep(const Model& model, int number) {
    auto links = std::make_shared<SessionLinks>();
    for (const PsAddress& ps : ps_.view())
      links->ps[ps.index] = {ps_.client(ps.index), ps.incarnation};
    StepCall call;
    call.step = EntryId(static_cast<uint64_t>(number) + 1);
    call.ordinal = number;
    call.function = model.name() + "/train";
    call.args = Nest(Nest::List{Nest(PerWorkerHandle{1}), Nest(model.name()),
                                NestCodec<std::optional<double>>::Encode(std::nullopt)});
    call.inputs = {{ResourceId(1), number, 1}};
    const auto transaction = std::make_shared<WorkerTransaction>(
        WorkerTransaction::Options{links, layout_, false, false, 1, nullptr}, executor_,
        Clock::Real());
    Box<absl::Status> done;
    runner_->Start(call, transaction, [&](StepEnd end) { done.Put(end.result.status()); });
    const absl::Status status = done.Take();
    transaction->Finish();
    return status;
  }

  cuda::HostMath math_{1};
  // Outlives data and variables, which are in its pinned memory.
  internal::GpuBackend gpu_{math_, 0, KeepingMemory()};
  ThreadPoolExecutor executor_;
  FakeParameterServers ps_;
  DataInputOpener inputs_;
  std::shared_ptr<const Layout> layout_;
  std::unique_ptr<ThreadStepRunner> runner_;
};

TEST_F(StepCostTest, APerceptronsStep) {
  const cuda::HostCosts cost = CostOfStep(ModelOf(0), 64);
  EXPECT_EQ(cost.kernels, 14);
  EXPECT_EQ(cost.uploads, 3);
  EXPECT_EQ(cost.allocations, 0);
  EXPECT_EQ(cost.waits, 1);
}

TEST_F(StepCostTest, ADlrmsStep) {
  const cuda::HostCosts cost = CostOfStep(ModelOf(1), 1024);
  EXPECT_EQ(cost.kernels, 42);
  EXPECT_EQ(cost.uploads, 5);
  EXPECT_EQ(cost.allocations, 0);
  EXPECT_EQ(cost.waits, 2);
}

}  // namespace
}  // namespace divvy::bench
