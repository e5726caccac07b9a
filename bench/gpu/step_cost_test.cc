// What one training step tells a GPU: kernels, copies, allocations and waits, each of which costs microseconds whatever its size. Counted on a device that the
// host plays, in a step whose model, batch and variables are those of bench/gpu. The budgets are what the step costs now: whoever lowers a cost lowers its
// budget, and whoever raises one sees it here.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "cluster/layout.h"
#include "data/dataset.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "tensor/device_memory.h"
#include "train/model.h"
#include "worker/core/data_input_opener.h"
#include "worker/core/step_transaction.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/thread_step_runner.h"

namespace divvy {
namespace {

constexpr uint64_t kSeed = 20261123;
constexpr int kSteps = 4;  // of which the last is counted: by then memory is kept and streams are known
constexpr int64_t kMlpBatch = 64, kDlrmBatch = 1024;

template <typename T, typename Draw>
Tensor Filled(const Shape& shape, Draw draw) {
  std::vector<T> values(shape.num_elements());
  for (T& value : values) value = draw();
  return *Tensor::Copy<T>(shape, values);
}

// ---- the models of bench/gpu ---------------------------------------------------------------------------------------------------------------------------

const Mlp kMlp("cost_mlp", {784, 512, 10});

ModelOutput MlpForward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 255.0f;
  return {SoftmaxCrossEntropy(kMlp(tape, pixels), batch["label"]), {}};
}
const Model kMlpModel("cost_mlp", {kMlp}, MlpForward);

absl::StatusOr<Dataset> Images(const InputContext&) {
  Random random(kSeed);
  const int64_t n = kMlpBatch * kSteps;
  Tensor images = Filled<uint8_t>({n, 784}, [&] { return static_cast<uint8_t>(random.Below(256)); });
  Tensor labels = Filled<int64_t>({n}, [&] { return static_cast<int64_t>(random.Below(10)); });
  return Dataset::FromTensors({{"image", std::move(images)}, {"label", std::move(labels)}}).Batch(kMlpBatch);
}
const DataSource kImages("cost/images", Images);

constexpr int64_t kCounts = 13, kFields = 26, kRows = 26'000, kWidth = 16, kPairs = (kFields + 1) * kFields / 2;
const Embedding kCategories("cost_categories", kRows, kWidth);
const Mlp kBottom("cost_bottom", {kCounts, 64, kWidth});
const Mlp kTop("cost_top", {kWidth + kPairs, 64, 1});

ModelOutput DlrmForward(GradientTape& tape, const Nest& batch) {
  Var categories = kCategories(tape, batch["row"]);
  Var counts = Relu(kBottom(tape, Log(batch["dense"] + 1.0f)));
  Var pairs = DotInteraction(Concat({Reshape(counts, {-1, 1, kWidth}), categories}, 1));
  Var logits = Reshape(kTop(tape, Concat({counts, pairs}, 1)), {-1});
  return {SigmoidCrossEntropy(logits, batch["label"]), {}};
}
const Model kDlrmModel("cost_dlrm", {kCategories, kBottom, kTop}, DlrmForward);

absl::StatusOr<Dataset> Clicks(const InputContext&) {
  Random random(kSeed);
  const int64_t n = kDlrmBatch * kSteps;
  Tensor dense = Filled<float>({n, kCounts}, [&] { return static_cast<float>(random.Uniform()); });
  Tensor rows = Filled<int64_t>({n, kFields}, [&] { return static_cast<int64_t>(random.Below(kRows)); });
  Tensor labels = Filled<float>({n}, [&] { return random.Chance(0.5) ? 1.0f : 0.0f; });
  return Dataset::FromTensors({{"dense", std::move(dense)}, {"row", std::move(rows)}, {"label", std::move(labels)}}).Batch(kDlrmBatch);
}
const DataSource kClicks("cost/clicks", Clicks);

// What another thread will say.
class Answer {
 public:
  void Give(absl::Status status) {
    MutexLock lock(mu_);
    status_ = std::move(status);
    given_.NotifyAll();
  }
  absl::Status Wait() {
    MutexLock lock(mu_);
    given_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return status_.has_value(); });
    return *status_;
  }

 private:
  Mutex mu_;
  CondVar given_;
  std::optional<absl::Status> status_ DIVVY_GUARDED_BY(mu_);
};

// ---- a worker with one GPU -----------------------------------------------------------------------------------------------------------------------------

// A model's variables on one server, zeros, each with an optimizer.
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

  // What the last of kSteps steps has cost, all told: what its values cost to free is in it.
  cuda::HostCosts CostOfStep(const Model& model, const BoundDataSource& data) {
    layout_ = LayoutOf(model);
    ps_.Make(*layout_);
    Open(data);
    cuda::HostCosts before;
    for (int i = 0; i < kSteps; ++i) {
      before = math_.costs();
      const absl::Status status = RunStep(model, i);
      EXPECT_TRUE(status.ok()) << status;
    }
    const cuda::HostCosts after = math_.costs();
    return {after.kernels - before.kernels, after.uploads - before.uploads, after.allocations - before.allocations, after.waits - before.waits};
  }

 private:
  // As OpenGpus asks for.
  static cuda::TransferOptions KeepingMemory() {
    cuda::TransferOptions options;
    options.keeps_memory = true;
    return options;
  }
  void Open(const BoundDataSource& data) {
    Answer opened;
    inputs_.Open({ResourceId(1), std::string(data.name()), data.args(), 7, true}, 0, 1, 1,
                 [&](const absl::StatusOr<OpenedInput>& input) { opened.Give(input.status()); });
    const absl::Status status = opened.Wait();
    EXPECT_TRUE(status.ok()) << status;
  }
  absl::Status RunStep(const Model& model, int number) {
    auto links = std::make_shared<SessionLinks>();
    for (const PsAddress& ps : ps_.view()) links->ps[ps.index] = {ps_.client(ps.index), ps.incarnation};
    StepCall call;
    call.step = EntryId(static_cast<uint64_t>(number) + 1);
    call.ordinal = number;
    call.function = model.name() + "/train";
    call.args = Nest(Nest::List{Nest(PerWorkerHandle{1}), Nest(model.name()), NestCodec<std::optional<double>>::Encode(std::nullopt)});
    call.inputs = {{ResourceId(1), number, 1}};
    const auto transaction =
        std::make_shared<WorkerTransaction>(WorkerTransaction::Options{links, layout_, false, false, 1, nullptr}, executor_, Clock::Real());
    Answer done;
    runner_->Start(call, transaction, [&](StepEnd end) { done.Give(end.result.status()); });
    const absl::Status status = done.Wait();
    transaction->Finish();
    return status;
  }

  cuda::HostMath math_{1};
  internal::GpuBackend gpu_{math_, 0, KeepingMemory()};  // outlives data and variables, which lie in its pinned memory
  ThreadPoolExecutor executor_;
  FakeParameterServers ps_;
  DataInputOpener inputs_;
  std::shared_ptr<const Layout> layout_;
  std::unique_ptr<ThreadStepRunner> runner_;
};

TEST_F(StepCostTest, APerceptronsStep) {
  const cuda::HostCosts cost = CostOfStep(kMlpModel, kImages());
  EXPECT_EQ(cost.kernels, 14);
  EXPECT_EQ(cost.uploads, 3);
  EXPECT_EQ(cost.allocations, 0);
  EXPECT_EQ(cost.waits, 1);
}

TEST_F(StepCostTest, ADlrmsStep) {
  const cuda::HostCosts cost = CostOfStep(kDlrmModel, kClicks());
  EXPECT_EQ(cost.kernels, 42);
  EXPECT_EQ(cost.uploads, 6);
  EXPECT_EQ(cost.allocations, 0);
  EXPECT_EQ(cost.waits, 2);
}

}  // namespace
}  // namespace divvy
