// Prefetched values are copied to the GPU while the previous step computes. Measures the time
// saved, by the model of a clock, and tests what happens to the copies when the step does not take
// them.
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/ops.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "tensor/device_memory.h"
#include "variables/layout.h"
#include "worker/core/step_transaction.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/testing/step_runner_fixture.h"
#include "worker/core/thread_step_runner.h"

namespace divvy {
namespace {

// 4 MB.
constexpr int64_t kRows = 1000, kColumns = 1000;
// A copy of the 4 MB takes 85 us.
constexpr double kKernelUs = 30, kCopyUs = 5 + 4.0 * kRows * kColumns / 50e3;
constexpr int kKernels = 10;

// Called by a step's function after it has told the GPU to compute, and before it waits for the
// result.
std::function<void()>& Meanwhile() {
  static auto* const meanwhile = new std::function<void()>();
  return *meanwhile;
}

absl::StatusOr<Tensor> Compute(ReplicaContext& replica) {
  std::vector<ReadRequest> requests = {{"large", std::nullopt, Tensor()},
                                       {"small", std::nullopt, Tensor()}};
  RETURN_IF_ERROR(replica.Read(absl::MakeSpan(requests)));
  Var y = Var(requests[0].value) * Var(requests[1].value);
  for (int i = 0; i < kKernels; ++i) y = y * 1.0f;
  ASSIGN_OR_RETURN(Tensor sum, ReduceSum(y).Value());
  if (replica.replica_id_in_sync_group() == 0 && Meanwhile()) std::exchange(Meanwhile(), nullptr)();
  return sum.To(Device{});
}

absl::StatusOr<float> ComputeStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const auto sums, worker.strategy().Run(Compute));
  float total = 0;
  for (const Tensor& sum : sums.values()) total += *sum.scalar<float>();
  return total;
}
const Step kCompute("copies_test/compute", ComputeStep);

absl::StatusOr<float> AssignAndComputeStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const Variable small, worker.strategy().FindVariable("small"));
  ASSIGN_OR_RETURN(const Tensor three, Tensor::Copy<float>({1, 1}, {3}));
  RETURN_IF_ERROR(small.Assign(three));
  return ComputeStep(worker);
}
const Step kAssignAndCompute("copies_test/assign_and_compute", AssignAndComputeStep);

absl::Status ReadNothing(WorkerContext&) { return absl::OkStatus(); }
const Step kReadNothing("copies_test/read_nothing", ReadNothing);

// Copies are made by the thread that has the values, so the test knows when they happen.
class CopyingExecutor : public Executor {
 public:
  void Post(Task task) override { threads_.Post(std::move(task)); }
  void PostAfter(absl::Duration delay, Task task) override {
    threads_.PostAfter(delay, std::move(task));
  }
  void PostBlocking(std::string name, Task task) override {
    if (name == "copy ahead") return task();
    threads_.PostBlocking(std::move(name), std::move(task));
  }
  void Stop() { threads_.Stop(); }
  // Waits until all posted tasks have run and been destroyed.
  void Settle() {
    Box<bool> done;
    threads_.Post([&] { done.Put(true); });
    done.Take();
  }

 private:
  ThreadPoolExecutor threads_{1};
};

cuda::TransferOptions Keeping(bool keeps_memory) {
  cuda::TransferOptions options;
  options.keeps_memory = keeps_memory;
  return options;
}

// A worker with GPUs that the host plays. The parameter is whether they keep memory that is freed.
// All elements of "large" are 1, and "small" is 2.
class CopiesAheadStepTest : public ::testing::TestWithParam<bool> {
 protected:
  explicit CopiesAheadStepTest(int devices = 1)
      : math_(devices), ps_(executor_, 1), inputs_(executor_) {
    cuda::HostModel model;
    model.kernel = kKernelUs;
    math_.UseClock(model);
    math_.keep_log = false;
    SetGpuMemory(&gpu_);
    internal::SetGpuBackend(&gpu_);
    layout_ = Layout::Empty()
                  ->With(Variable(1, "large", kRows, kColumns))
                  ->With(Variable(2, "small", 1, 1));
    ThreadStepRunnerOptions options;
    options.replica_devices.clear();
    for (int i = 0; i < devices; ++i) options.replica_devices.push_back({Device::Kind::kGpu, i});
    runner_ = std::make_unique<ThreadStepRunner>(std::move(options), executor_, inputs_);
  }
  ~CopiesAheadStepTest() override {
    next_ = nullptr;
    executor_.Stop();
    runner_ = nullptr;
    internal::SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }
  static VariableLayout Variable(uint32_t id, std::string name, int64_t rows, int64_t width) {
    VariableLayout variable;
    variable.id = VariableId(id);
    variable.spec.name = std::move(name);
    variable.spec.shape = {rows, width};
    variable.offsets = {0, rows};
    variable.ps = {0};
    return variable;
  }

  // Sets new values first, as each pull brings tensors of its own.
  std::shared_ptr<WorkerTransaction> MakeTransaction() {
    ps_[0].Set({VariableId(1), 0, 0},
               *Tensor::Copy<float>({kRows, kColumns}, std::vector<float>(kRows * kColumns, 1)));
    ps_[0].Set({VariableId(2), 0, 0}, *Tensor::Copy<float>({1, 1}, {2}));
    auto links = std::make_shared<SessionLinks>();
    links->ps[0] = {ps_.client(0), ps_.view()[0].incarnation};
    return std::make_shared<WorkerTransaction>(
        WorkerTransaction::Options{links, layout_, false, false, 1, nullptr}, executor_,
        Clock::Real());
  }
  // Pulls the values of the next step, which are copied when they arrive.
  void PullNext(const std::string& function = "copies_test/compute") {
    next_ = MakeTransaction();
    next_->Prefetch({"large", "small"}, /*ahead=*/true);
    Box<bool> came;
    next_->TellAhead([&](const std::vector<WholeValue>& values) {
      runner_->CopyAhead(function, values);
      came.Put(true);
    });
    EXPECT_TRUE(came.Take());
    executor_.Settle();
    ps_[0].Set({VariableId(1), 0, 0}, Tensor());  // now only the transaction holds them
    ps_[0].Set({VariableId(2), 0, 0}, Tensor());
  }
  struct Ran {
    absl::StatusOr<float> sum = 0;
    double us = 0;        // by the clock
    int64_t uploads = 0;  // until the step ended
  };
  // Runs a step, with the prefetched values if PullNext was called.
  Ran Run(std::string function = "copies_test/compute") {
    StepCall call;
    call.step = EntryId(1);
    call.ordinal = 0;
    call.function = std::move(function);
    call.args = Nest(Nest::List());
    auto transaction = std::exchange(next_, nullptr);
    if (transaction == nullptr) transaction = MakeTransaction();
    const double began = math_.now();
    const int64_t uploads = math_.costs().uploads;
    Box<absl::StatusOr<Nest>> done;
    runner_->Start(call, transaction, [&](StepEnd end) { done.Put(std::move(end.result)); });
    const absl::StatusOr<Nest> value = done.Take();
    transaction->Finish();
    Ran ran{0, math_.now() - began, math_.costs().uploads - uploads};
    if (!value.ok()) ran.sum = value.status();
    if (value.ok() && value->kind() == Nest::Kind::kTensor)
      ran.sum = *value->tensor()->scalar<float>();
    return ran;
  }
  // Device memory that tensors use.
  int64_t BytesInUse(int device = 0) {
    // The memory of completed copies is freed by the next use of the GPU.
    const Tensor there = *Tensor::Vector<float>({1}).To({Device::Kind::kGpu, device});
    return gpu_.bytes_in_use(device) - 4;
  }

  cuda::HostMath math_;
  // With a limit, the backend counts the memory of tensors.
  internal::GpuBackend gpu_{math_, int64_t{1} << 50, Keeping(GetParam())};
  CopyingExecutor executor_;
  FakeParameterServers ps_;
  DataInputOpener inputs_;
  std::shared_ptr<const Layout> layout_;
  std::unique_ptr<ThreadStepRunner> runner_;
  std::shared_ptr<WorkerTransaction> next_;
};

INSTANTIATE_TEST_SUITE_P(KeepsMemory, CopiesAheadStepTest, ::testing::Bool());

constexpr float kSum = 2.0f * kRows * kColumns;

// The ceilings: the next step waits for none of its copies, and the step that runs meanwhile takes
// only the host's time to enqueue them longer.
TEST_P(CopiesAheadStepTest, TheCopiesOfTheNextStepCostNothingBesideTheKernelsOfThisOne) {
  ASSERT_TRUE(Run().sum.ok());
  const Ran plain = Run();
  EXPECT_EQ(plain.uploads, 2);
  Meanwhile() = [&] { PullNext(); };
  const Ran before = Run(), ahead = Run();
  ASSERT_TRUE(ahead.sum.ok()) << ahead.sum.status();
  EXPECT_EQ(*ahead.sum, kSum);
  EXPECT_EQ(before.uploads, 4) << "the step's own copies and those of the next step";
  EXPECT_EQ(ahead.uploads, 0);
  const double kernels = (kKernels + 2) * kKernelUs;
  RecordProperty("exposed_copy_us_in_the_step", std::to_string(plain.us - kernels));
  EXPECT_GT(plain.us - ahead.us, 0.9 * kCopyUs)
      << plain.us << " us with copies in the step, " << ahead.us << " us with copies ahead";
  EXPECT_LT(before.us - plain.us, 10)
      << before.us << " us during the copies of the next step, " << plain.us << " us without";
  std::printf(
      "a step of %.0f us of kernels: %.1f us with its copies, %.1f us with copies ahead; the step "
      "beside them %.1f us\n",
      kernels, plain.us, ahead.us, before.us);
}

TEST_P(CopiesAheadStepTest, WhatTheFunctionDidNotReadOnAGpuIsNotCopied) {
  PullNext();
  EXPECT_EQ(math_.costs().uploads, 0) << "it has not run yet";
  ASSERT_TRUE(Run().sum.ok());
  ASSERT_TRUE(Run("copies_test/read_nothing").sum.ok());
  const int64_t uploads = math_.costs().uploads;
  PullNext("copies_test/read_nothing");
  EXPECT_EQ(math_.costs().uploads, uploads);
}

TEST_P(CopiesAheadStepTest, AStepThatIsDroppedOrCancelledFreesItsCopies) {
  ASSERT_TRUE(Run().sum.ok());
  ASSERT_EQ(BytesInUse(), 0);
  for (const bool cancel : {false, true}) {
    PullNext();
    EXPECT_GT(BytesInUse(), 4 * kRows * kColumns);
    if (cancel) next_->Cancel();
    if (!cancel) next_ = nullptr;
    EXPECT_EQ(BytesInUse(), 0);
  }
}

TEST_P(CopiesAheadStepTest, AStepThatHasTakenThemFreesThemAtItsEnd) {
  ASSERT_TRUE(Run().sum.ok());
  PullNext();
  ASSERT_TRUE(Run().sum.ok());
  EXPECT_EQ(BytesInUse(), 0);
}

TEST_P(CopiesAheadStepTest, WhatTheStepHasAssignedItReadsWhateverWasCopied) {
  ASSERT_TRUE(Run("copies_test/assign_and_compute").sum.ok());
  PullNext("copies_test/assign_and_compute");
  const Ran ran = Run("copies_test/assign_and_compute");
  ASSERT_TRUE(ran.sum.ok()) << ran.sum.status();
  EXPECT_EQ(*ran.sum, 3.0f * kRows * kColumns);
  EXPECT_EQ(ran.uploads, 1) << "the copy of the assigned value";
}

// Two cases: there is no room for the copies, and the copies have taken the room that the previous
// step needs.
TEST_P(CopiesAheadStepTest, WhereMemoryIsShortTheStepCopiesForItselfAndNobodyFails) {
  ASSERT_TRUE(Run().sum.ok());
  constexpr size_t kValue = size_t{4} * kRows * kColumns;
  gpu_.Trim(0);
  math_.free_bytes = 0;
  PullNext();
  math_.free_bytes = 5 * kValue;
  Ran ran = Run();
  ASSERT_TRUE(ran.sum.ok()) << ran.sum.status();
  EXPECT_EQ(ran.uploads, 2);

  PullNext();
  auto next = std::exchange(next_, nullptr);
  math_.free_bytes = 3 * kValue + kValue / 2;  // a step alone needs three at once
  ran = Run();
  ASSERT_TRUE(ran.sum.ok()) << ran.sum.status();
  next_ = std::move(next);
  ran = Run();
  ASSERT_TRUE(ran.sum.ok()) << ran.sum.status();
  EXPECT_EQ(*ran.sum, kSum);
  EXPECT_EQ(ran.uploads, 2);
}

class TwoGpusCopiesAheadTest : public CopiesAheadStepTest {
 protected:
  TwoGpusCopiesAheadTest() : CopiesAheadStepTest(2) {}
};

INSTANTIATE_TEST_SUITE_P(KeepsMemory, TwoGpusCopiesAheadTest, ::testing::Bool());

TEST_P(TwoGpusCopiesAheadTest, EachReplicasGpuGetsItsOwn) {
  ASSERT_TRUE(Run().sum.ok());
  PullNext();
  for (const int device : {0, 1}) EXPECT_GT(BytesInUse(device), 4 * kRows * kColumns);
  const Ran ran = Run();
  ASSERT_TRUE(ran.sum.ok()) << ran.sum.status();
  EXPECT_EQ(*ran.sum, 2 * kSum);
  EXPECT_EQ(ran.uploads, 0);
  for (const int device : {0, 1}) EXPECT_EQ(BytesInUse(device), 0);
}

}  // namespace
}  // namespace divvy
