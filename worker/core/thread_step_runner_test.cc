#include "worker/core/thread_step_runner.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/crash_report.h"
#include "base/sanitizer.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "protocol/error.h"
#include "strategy/replica_context.h"
#include "strategy/step.h"
#include "tensor/device_memory.h"
#include "worker/core/testing/step_runner_fixture.h"

namespace divvy {
namespace {

using Floats = std::vector<float>;
Tensor Matrix(int64_t rows, int64_t width, const Floats& values) {
  return *Tensor::Copy<float>(Shape{rows, width}, values);
}
Floats Flat(const Tensor& tensor) {
  return Floats(tensor.values<float>()->begin(), tensor.values<float>()->end());
}

// ---- the step functions -------------------------------------------------------------------------

absl::StatusOr<double> ReadTwice(WorkerContext& worker) {
  ASSIGN_OR_RETURN(auto sums,
                   worker.strategy().Run([](ReplicaContext& replica) -> absl::StatusOr<double> {
                     ReadRequest request{"w", std::nullopt, Tensor()};
                     RETURN_IF_ERROR(replica.Read(absl::MakeSpan(&request, 1)));
                     double sum = 0;
                     for (const float value : Flat(request.value)) sum += value;
                     return sum + 100 * request.num_rows;
                   }));
  double total = 0;
  for (const double sum : sums.values()) total += sum;
  return total;
}
const Step kReadTwice("thread_test/read_twice", ReadTwice);

absl::Status AssignThenRead(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const Variable variable, worker.strategy().FindVariable("w"));
  RETURN_IF_ERROR(variable.Assign(Matrix(4, 1, {5, 6, 7, 8})));
  ASSIGN_OR_RETURN(const Tensor value, variable.Read());
  return Flat(value) == Floats({5, 6, 7, 8}) ? absl::OkStatus()
                                             : absl::InternalError(value.ToString());
}
const Step kAssignThenRead("thread_test/assign_then_read", AssignThenRead);

absl::Status CreateInStep(WorkerContext& worker) {
  return worker.strategy().CreateVariable({"new", Shape{2}}).status();
}
const Step kCreateInStep("thread_test/create", CreateInStep);

absl::Status FindUnknown(WorkerContext& worker) {
  return worker.strategy().FindVariable("ww").status();
}
const Step kFindUnknown("thread_test/find_unknown", FindUnknown);

absl::Status Throw(WorkerContext&) { throw std::runtime_error("thrown by the step"); }
const Step kThrow("thread_test/throw", Throw);

absl::Status Crash(WorkerContext&) {
  raise(SIGSEGV);
  return absl::OkStatus();
}
const Step kCrash("thread_test/crash", Crash);

absl::StatusOr<int64_t> CountInLocal(WorkerContext& worker) {
  return ++worker.Local<int64_t>("count", [] { return std::make_unique<int64_t>(0); });
}
const Step kCountInLocal("thread_test/count", CountInLocal);

Box<bool>& HasBegun() {
  static Box<bool>& box = *new Box<bool>();
  return box;
}
Box<bool>& MayEnd() {
  static Box<bool>& box = *new Box<bool>();
  return box;
}
absl::Status WaitToEnd(WorkerContext& worker) {
  HasBegun().Put(true);
  MayEnd().Take();
  return worker.cancelled() ? absl::CancelledError("stopped") : absl::OkStatus();
}
const Step kWaitToEnd("thread_test/wait", WaitToEnd);

// The first column of each replica's batch, "-" for an empty one; "end" if there is no batch.
std::string Show(const std::optional<PerReplica<Nest>>& batches) {
  if (!batches) return "end";
  std::string text;
  for (const Nest& batch : batches->values()) {
    const Floats values = Flat(*batch.tensor());
    absl::StrAppend(&text, text.empty() ? "" : "|", values.empty() ? "-" : "");
    for (const float value : values) absl::StrAppend(&text, static_cast<int>(value));
  }
  return text;
}
absl::StatusOr<std::string> TakeBatches(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(const auto elements, worker.NextOrEnd(batches));
  return Show(elements);
}
const Step kTakeBatches("thread_test/take", TakeBatches);

absl::StatusOr<std::string> TakeOrFail(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(const auto elements, worker.Next(batches));
  return Show(elements);
}
const Step kTakeOrFail("thread_test/take_or_fail", TakeOrFail);

absl::StatusOr<std::string> TakeTwice(WorkerContext& worker, Iterator batches) {
  RETURN_IF_ERROR(worker.Next(batches));
  ASSIGN_OR_RETURN(const auto elements, worker.Next(batches));
  return Show(elements);
}
const Step kTakeTwice("thread_test/take_twice", TakeTwice);

absl::Status SwallowErrors(WorkerContext& worker, Iterator batches) {
  worker.Next(batches).status().IgnoreError();
  return absl::OkStatus();
}
const Step kSwallowErrors("thread_test/swallow", SwallowErrors);

// ---- the data: batches of one element, 0, 1, 2 ... ----------------------------------------------

absl::StatusOr<Dataset> Numbers(const InputContext& input, int64_t n) {
  if (n < 0) return absl::InvalidArgumentError("fewer than none");
  Floats values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i + 10 * input.worker_index));
  return Dataset::FromTensorSlices(Nest(Tensor::Vector<float>(absl::MakeConstSpan(values))))
      .Batch(1);
}
const DataSource kNumbers("thread_test/numbers", Numbers);

absl::StatusOr<Dataset> Throwing(const InputContext&) {
  throw std::runtime_error("thrown by the source");
}
const DataSource kThrowing("thread_test/throwing", Throwing);

Box<uint64_t>& SeedSeen() {
  static Box<uint64_t>& box = *new Box<uint64_t>();
  return box;
}
absl::StatusOr<Dataset> Seeded(const InputContext& input) {
  SeedSeen().Put(input.seed);
  return Dataset::FromTensorSlices(Nest(Tensor::Vector<float>({1})));
}
const DataSource kSeeded("thread_test/seeded", Seeded);

// Global batches of 4, for any number of replicas.
absl::StatusOr<Dataset> Global(const InputContext& input) {
  Strategy& strategy = Strategy::Current();
  if (strategy.num_replicas_in_sync() != input.num_replicas_in_sync)
    return absl::InternalError("the strategy is not the worker's");
  if (CreateVariable(VariableSpec()).ok()) return absl::InternalError("a variable was created");
  ASSIGN_OR_RETURN(const Dataset numbers, Numbers(input, 6));
  return strategy.DistributeDataset(
      numbers.Map([](const Nest& row) { return row.tensor()->Reshape({}); }).Batch(4));
}
const DataSource kGlobal("thread_test/global", Global);

// ---- the fixture --------------------------------------------------------------------------------

class ThreadStepRunnerTest : public StepRunnerFixture {
 protected:
  std::string Take(const std::string& function, uint64_t id, std::optional<int64_t> first = {},
                   int64_t count = 1) {
    std::vector<InputLease> leases;
    if (first) leases.push_back({ResourceId(id), *first, count});
    const absl::StatusOr<Nest> value = Run(function, {Nest(PerWorkerHandle{id})}, leases);
    return value.ok() ? *value->text()
                      : std::string(absl::StatusCodeToString(value.status().code()));
  }
};

// ---- a GPU that fails ---------------------------------------------------------------------------

// Makes a value on the step's GPU, and returns OK whether that succeeds or not.
absl::Status UseGpuAndSwallow(WorkerContext&) {
  const absl::StatusOr<Tensor> there =
      Tensor::Vector<float>({1, 2, 3}).To(Device{Device::Kind::kGpu, 0});
  if (there.ok()) there->To(Device{}).status().IgnoreError();
  return absl::OkStatus();
}
const Step kUseGpuAndSwallow("thread_test/use_gpu", UseGpuAndSwallow);

class GpuStepTest : public ThreadStepRunnerTest {
 protected:
  GpuStepTest() {
    SetGpuMemory(&gpu_);
    UseDevices({Device{Device::Kind::kGpu, 0}});
  }
  ~GpuStepTest() override { SetGpuMemory(nullptr); }

  cuda::HostMath math_{1};
  internal::GpuBackend gpu_{math_};
};

TEST_F(GpuStepTest, ALostGpuIsNotTheStepsErrorWhateverTheFunctionMadeOfIt) {
  EXPECT_TRUE(Run("thread_test/use_gpu").ok());
  math_.Lose(0, "an illegal memory access was encountered");
  for (int i = 0; i < 2; ++i) {
    const absl::Status lost = Run("thread_test/use_gpu").status();
    EXPECT_EQ(ReasonOf(lost), Reason::kDeviceLost) << lost;
    EXPECT_TRUE(absl::StrContains(
        lost.message(), "GPU:0 (host device 0) is lost: an illegal memory access was encountered"))
        << lost;
  }
}

TEST_F(GpuStepTest, AnErrorThatPassesIsTheStepsOwn) {
  EXPECT_TRUE(Run("thread_test/use_gpu").ok());
  math_.Note(0, "a launch failed");
  const absl::Status failed = Run("thread_test/use_gpu").status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal) << failed;
  EXPECT_EQ(ReasonOf(failed), Reason::kNone);
  EXPECT_TRUE(Run("thread_test/use_gpu").ok());
}

// ---- functions and variables --------------------------------------------------------------------

TEST_F(ThreadStepRunnerTest, WhatSeveralReplicasReadWholeTravelsOnce) {
  UseReplicas(3);
  const absl::StatusOr<Nest> value = Run("thread_test/read_twice");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value->tensor()->scalar<double>(), 3 * (3 + 4 + 400));
  EXPECT_EQ(ps_[0].pulls().size(), 1u);
  EXPECT_EQ(ps_[1].pulls().size(), 1u);
}

TEST_F(ThreadStepRunnerTest, WritesAreStagedInTheTransactionAndSeenByTheStep) {
  const absl::StatusOr<Nest> value = Run("thread_test/assign_then_read");
  EXPECT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(transaction_->Finish().writes.size(), 1u);
}

TEST_F(ThreadStepRunnerTest, AFunctionThatIsNotRegisteredIsNotFound) {
  EXPECT_EQ(Run("thread_test/none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ThreadStepRunnerTest, AFunctionThatThrowsFailsWithWhatItThrew) {
  const absl::Status status = Run("thread_test/throw").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnknown);
  EXPECT_TRUE(absl::StrContains(status.message(), "thrown by the step")) << status;
}

#ifndef DIVVY_SANITIZER  // sanitizers report crashes by themselves
using ThreadStepRunnerDeathTest = ThreadStepRunnerTest;
TEST_F(ThreadStepRunnerDeathTest, AStepThatCrashesIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto crash = [this] {
    ReportCrashes("thread_step_runner_test");
    (void)Run("thread_test/crash");
  };
  EXPECT_EXIT(crash(), testing::KilledBySignal(SIGSEGV),
              "\\*\\*\\* SIGSEGV in step \"thread_test/crash\":\n");
}
#endif

TEST_F(ThreadStepRunnerTest, VariablesAreNotCreatedInAStepAndUnknownOnesAreNotFound) {
  EXPECT_EQ(Run("thread_test/create").status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Run("thread_test/find_unknown").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ThreadStepRunnerTest, ACancelWakesAStepThatWaitsForAPs) {
  UseReplicas(2);
  ps_[0].Hold();
  const Result result = Begin("thread_test/read_twice");
  transaction_->Cancel();
  EXPECT_EQ(result->Take().status().code(), absl::StatusCode::kCancelled);
  ps_[0].Release();
}

TEST_F(ThreadStepRunnerTest, ObjectsAreKeptBetweenStepsAndNeverSharedWithOneThatStillRuns) {
  EXPECT_EQ(*Run("thread_test/count")->tensor()->scalar<int64_t>(), 1);
  EXPECT_EQ(*Run("thread_test/count")->tensor()->scalar<int64_t>(), 2);
  const Result waiting = Begin("thread_test/wait");
  HasBegun().Take();
  const std::shared_ptr<WorkerTransaction> of_the_waiting = transaction_;
  EXPECT_EQ(*Run("thread_test/count")->tensor()->scalar<int64_t>(), 1)
      << "the running step uses the other objects";
  of_the_waiting->Cancel();
  MayEnd().Put(true);
  EXPECT_EQ(waiting->Take().status().code(), absl::StatusCode::kCancelled);
}

// ---- threads ------------------------------------------------------------------------------------

absl::StatusOr<int64_t> ThreadOfStep(WorkerContext&) {
  return static_cast<int64_t>(pthread_self());
}
const Step kThreadOfStep("thread_test/thread", ThreadOfStep);

TEST_F(ThreadStepRunnerTest, AStepThatIsStartedAtTheEndOfAnotherRunsOnItsThread) {
  StepCall call;
  call.step = EntryId(1);
  call.ordinal = 0;
  call.function = "thread_test/thread";
  call.args = Nest(Nest::List());
  std::vector<int64_t> threads;
  Box<bool> all;
  std::function<void(StepEnd)> next = [&](StepEnd end) {
    threads.push_back(*end.result->tensor()->scalar<int64_t>());
    if (threads.size() == 5) return all.Put(true);
    runner_->Start(call, MakeTransaction(), next);
  };
  runner_->Start(call, MakeTransaction(), next);
  all.Take();
  EXPECT_EQ(threads, std::vector<int64_t>(5, threads[0]));
}

TEST_F(ThreadStepRunnerTest, TwoStepsThatAreStartedAtTheEndOfAnotherBothRun) {
  Box<bool> first, second;
  StepCall call;
  call.step = EntryId(1);
  call.ordinal = 0;
  call.function = "thread_test/thread";
  call.args = Nest(Nest::List());
  runner_->Start(call, MakeTransaction(), [&](StepEnd) {
    runner_->Start(call, MakeTransaction(), [&](StepEnd) { first.Put(true); });
    runner_->Start(call, MakeTransaction(), [&](StepEnd) { second.Put(true); });
  });
  EXPECT_TRUE(first.Take());
  EXPECT_TRUE(second.Take());
}

// ---- data ---------------------------------------------------------------------------------------

TEST_F(ThreadStepRunnerTest, OpeningTellsTheElementsOfAPass) {
  EXPECT_EQ(**Open(1, kNumbers(5)), 5);
  EXPECT_EQ(Open(2, kNumbers(-1)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(3, BoundDataSource("thread_test/none", Nest())).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(absl::StrContains(Open(4, kThrowing()).status().message(), "thrown by the source"));
}

TEST_F(ThreadStepRunnerTest, ALeasedStepReadsAtItsPositionsForwardAndBack) {
  ASSERT_TRUE(Open(1, kNumbers(9)).ok());
  EXPECT_EQ(Take("thread_test/take", 1, 3), "23");
  EXPECT_EQ(Take("thread_test/take", 1, 4), "24");
  EXPECT_EQ(Take("thread_test/take", 1, 0), "20");
  EXPECT_EQ(Take("thread_test/take", 1, 8), "28");
  EXPECT_EQ(Take("thread_test/take", 1, 8), "28")
      << "a step that is run again reads the same elements";
}

TEST_F(ThreadStepRunnerTest, EachReplicaGetsAnElementAndEmptyBatchesFillUpTheLast) {
  UseReplicas(2);
  ASSERT_TRUE(Open(1, kNumbers(3)).ok());
  EXPECT_EQ(Take("thread_test/take", 1, 0, 2), "20|21");
  EXPECT_EQ(Take("thread_test/take", 1, 2, 2), "22|-");
  EXPECT_EQ(Take("thread_test/take", 1, 2, 1), "22|-") << "a lease that the coordinator cut short";
  EXPECT_EQ(Take("thread_test/take", 1, 4, 2), "end");
}

TEST_F(ThreadStepRunnerTest, ADataSourceRunsInTheScopeOfItsWorkersStrategy) {
  UseReplicas(2);
  const auto opened = Open(1, kGlobal());
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(Take("thread_test/take", 1, 0, 2), "2021|2223");
  EXPECT_EQ(Take("thread_test/take", 1, 2, 2), "24|25");
  EXPECT_EQ(Take("thread_test/take", 1, 4, 2), "end");
}

TEST_F(ThreadStepRunnerTest, AnIteratorOfTheWorkersOwnJustReadsOn) {
  ASSERT_TRUE(Open(1, kNumbers(2), /*leased=*/false).ok());
  EXPECT_EQ(Take("thread_test/take", 1), "20");
  EXPECT_EQ(Take("thread_test/take", 1), "21");
  EXPECT_EQ(Take("thread_test/take", 1), "end");
  EXPECT_EQ(Take("thread_test/take", 1), "end");
}

TEST_F(ThreadStepRunnerTest, NextTurnsTheEndIntoATypedError) {
  ASSERT_TRUE(Open(1, kNumbers(0)).ok());
  const absl::StatusOr<Nest> value =
      Run("thread_test/take_or_fail", {Nest(PerWorkerHandle{1})}, {{ResourceId(1), 0, 1}});
  EXPECT_TRUE(IsEndOfData(value.status())) << value.status();
}

TEST_F(ThreadStepRunnerTest, ALeasedStepCallsNextOnce) {
  ASSERT_TRUE(Open(1, kNumbers(9)).ok());
  EXPECT_EQ(Take("thread_test/take_twice", 1, 0), "FAILED_PRECONDITION");
  ASSERT_TRUE(Open(2, kNumbers(9), /*leased=*/false).ok());
  EXPECT_EQ(Take("thread_test/take_twice", 2), "21");
}

TEST_F(ThreadStepRunnerTest, AStepWhoseIteratorIsGoneIsRunAgainWhateverItMadeOfIt) {
  const auto swallow = [&] {
    return Run("thread_test/swallow", {Nest(PerWorkerHandle{1})}, {{ResourceId(1), 0, 1}}).status();
  };
  EXPECT_EQ(ReasonOf(swallow()), Reason::kInputAborted) << "never opened";
  ASSERT_TRUE(Open(1, kNumbers(9)).ok());
  EXPECT_TRUE(swallow().ok());
  inputs_.Close(ResourceId(1));
  EXPECT_EQ(ReasonOf(swallow()), Reason::kInputAborted) << "closed";
  ASSERT_TRUE(Open(1, kNumbers(9)).ok());
  EXPECT_TRUE(swallow().ok()) << "opened again";
}

TEST_F(ThreadStepRunnerTest, TheErrorOfASourceReachesTheStepsThatUseIt) {
  EXPECT_FALSE(Open(1, kNumbers(-1)).ok());
  const absl::Status status = Run("thread_test/take", {Nest(PerWorkerHandle{1})}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "fewer than none")) << status;
}

TEST_F(ThreadStepRunnerTest, TheSeedIsTheResourcesWhereLeasedAndTheWorkersOwnWhereNot) {
  ASSERT_TRUE(Open(1, kSeeded()).ok());
  EXPECT_EQ(SeedSeen().Take(), 7u);
  ASSERT_TRUE(Open(2, kSeeded(), /*leased=*/false).ok());
  EXPECT_NE(SeedSeen().Take(), 7u);
}

// ---- with the core ------------------------------------------------------------------------------

// The coordinator's end of a stream, on threads: every frame in either direction is a task of its
// own queue.
class ThreadedEnd : public StreamConnection<FromWorker>,
                    public std::enable_shared_from_this<ThreadedEnd> {
 public:
  ThreadedEnd(Executor& executor, SessionId session)
      : to_worker_(executor), to_coordinator_(executor), stream_(session) {}
  void Connect(WorkerCore& core) {
    listener_ = core.Accept(shared_from_this());
    MutexLock lock(mu_);
    Post(stream_.Connect());
  }
  void Tell(ToWorker message) {
    MutexLock lock(mu_);
    if (auto frame = stream_.Send(std::move(message))) Post(*std::move(frame));
  }
  void Send(StreamFrame<FromWorker> frame) override {
    to_coordinator_.Post([self = shared_from_this(), frame = std::move(frame)]() mutable {
      self->OnFrame(std::move(frame));
    });
  }
  void Close() override {}
  std::vector<Report> WaitForReports(size_t n) {
    MutexLock lock(mu_);
    more_.Wait(mu_, [&]() DIVVY_REQUIRES(mu_) { return reports_.size() >= n; });
    return reports_;
  }

 private:
  void Post(StreamFrame<ToWorker> frame) {
    to_worker_.Post([listener = listener_, frame = std::move(frame)]() mutable {
      listener->OnFrame(std::move(frame));
    });
  }
  void OnFrame(StreamFrame<FromWorker> frame) {
    MutexLock lock(mu_);
    std::vector<StreamFrame<ToWorker>> resend;
    std::optional<FromWorker> message;
    ASSERT_TRUE(stream_.Receive(std::move(frame), resend, message).ok());
    for (auto& kept : resend) Post(std::move(kept));
    if (!message || !std::holds_alternative<Report>(*message)) return;
    reports_.push_back(std::get<Report>(*std::move(message)));
    more_.NotifyAll();
  }

  SerialExecutor to_worker_, to_coordinator_;
  std::shared_ptr<StreamListener<ToWorker>> listener_;
  Mutex mu_;
  CondVar more_;
  ResumableStream<ToWorker, FromWorker> stream_ DIVVY_GUARDED_BY(mu_);
  std::vector<Report> reports_ DIVVY_GUARDED_BY(mu_);
};

TEST_F(ThreadStepRunnerTest, AWorkerOfThreadsRunsStepsOneAfterAnotherAndCommitsEachOnce) {
  UseReplicas(2);
  WorkerOptions options;
  options.incarnation = Incarnation(5);
  options.address = "worker0";
  options.replicas = 2;
  const auto core = *WorkerCore::Start(options, executor_, Clock::Real(), *runner_, inputs_, ps_,
                                       nullptr, nullptr);
  WorkerAttachRequest attach;
  attach.fence = {JobId(9), Epoch(1), Incarnation(1), SessionId(1), Incarnation(0)};
  attach.view = ps_.view();
  attach.layout = layout_;
  core->Call(attach, [](absl::StatusOr<WorkerAttachReply> reply) {
    ASSERT_TRUE(reply.ok()) << reply.status();
  });
  const auto end = std::make_shared<ThreadedEnd>(executor_, SessionId(1));
  end->Connect(*core);
  end->Tell(MakeResource{ResourceId(1), "thread_test/numbers", kNumbers(1000).args(), 0, true});
  constexpr int kSteps = 60;
  for (int i = 0; i < kSteps; ++i) {
    Dispatch dispatch;
    dispatch.step = EntryId(i + 1);
    dispatch.ordinal = i;
    dispatch.function = i % 3 == 0   ? "thread_test/assign_then_read"
                        : i % 3 == 1 ? "thread_test/read_twice"
                                     : "thread_test/take";
    if (i % 3 == 2) {
      dispatch.args = Nest(Nest::List{Nest(PerWorkerHandle{1})});
      dispatch.inputs = {{ResourceId(1), 2 * i, 2}};
    } else {
      dispatch.args = Nest(Nest::List{});
    }
    end->Tell(dispatch);
  }
  const std::vector<Report> reports = end->WaitForReports(kSteps);
  for (int i = 0; i < kSteps; ++i) {
    EXPECT_EQ(reports[i].step, EntryId(i + 1));
    EXPECT_EQ(reports[i].outcome, StepOutcome::kOk) << reports[i].error;
    if (i % 3 == 1) {
      EXPECT_EQ(*reports[i].value.tensor()->scalar<double>(), 2 * (5 + 6 + 7 + 8 + 400))
          << "it sees the writes of the previous step";
    } else if (i % 3 == 2) {
      EXPECT_EQ(*reports[i].value.text(), absl::StrCat(2 * i, "|", 2 * i + 1));
    }
  }
  EXPECT_EQ(ps_[0].applied().size(), kSteps / 3u);
  EXPECT_EQ(ps_[0].commits().size(), kSteps / 3u);
}

}  // namespace
}  // namespace divvy
