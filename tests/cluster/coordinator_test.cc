// The coordinator's contract on a whole cluster in this process, with real threads: the rules and
// tests of TensorFlow's ClusterCoordinator, made exact.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/embedded.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

// ---- steps; tests control them by globals, because all workers are in this process ----

const VariableSpec kCounter{"counter", {}, Zeros(), {}, DType::kInt64};

// A gate that holds steps until a test opens it.
class Gate {
 public:
  void Close() {
    MutexLock lock(mu_);
    open_ = false;
    waiting_ = 0;
  }
  void Open() {
    MutexLock lock(mu_);
    open_ = true;
    changed_.NotifyAll();
  }
  void Pass() {
    MutexLock lock(mu_);
    ++waiting_;
    changed_.NotifyAll();
    changed_.Wait(mu_, [this] { return open_; });
  }
  bool IsWaitedFor() {
    MutexLock lock(mu_);
    return waiting_ > 0;
  }
  void AwaitWaiting(int count) {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this, count] { return waiting_ >= count; });
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool open_ = true;
  int waiting_ = 0;
};
Gate& gate() {
  static Gate* const gate = new Gate;
  return *gate;
}

absl::Status Add(WorkerContext& worker, int64_t amount) {
  ASSIGN_OR_RETURN(Variable counter, worker.strategy().FindVariable("counter"));
  return counter.AssignAdd(Tensor::Scalar<int64_t>(amount));
}
const Step kAdd("test/add", Add);

absl::Status AddThenFail(WorkerContext& worker, std::string message) {
  RETURN_IF_ERROR(Add(worker, 1'000'000));
  return absl::InvalidArgumentError(message);
}
const Step kAddThenFail("test/add_then_fail", AddThenFail);

absl::Status Throws(WorkerContext& worker) { throw std::runtime_error("thrown in a step"); }
const Step kThrows("test/throws", Throws);

absl::Status SaysUnavailable(WorkerContext& worker) {
  return absl::UnavailableError("the step's own");
}
const Step kSaysUnavailable("test/says_unavailable", SaysUnavailable);

absl::StatusOr<std::pair<std::string, int64_t>> Echo(WorkerContext& worker, std::string text,
                                                     int64_t number) {
  return std::pair(text, number + 1);
}
const Step kEcho("test/echo", Echo);

absl::Status WaitAtGate(WorkerContext& worker, int64_t amount) {
  gate().Pass();
  return Add(worker, amount);
}
const Step kWaitAtGate("test/wait_at_gate", WaitAtGate);

absl::Status FailAtGate(WorkerContext& worker, std::string message) {
  gate().Pass();
  return absl::InvalidArgumentError(message);
}
const Step kFailAtGate("test/fail_at_gate", FailAtGate);

absl::Status WritesReadOnly(WorkerContext& worker) { return Add(worker, 1); }
const Step kWritesReadOnly("test/writes_read_only", WritesReadOnly, StepKind::kReadOnly);

absl::StatusOr<int64_t> ReadsItsOwnAdd(WorkerContext& worker) {
  ASSIGN_OR_RETURN(Variable counter, worker.strategy().FindVariable("counter"));
  RETURN_IF_ERROR(counter.AssignAdd(Tensor::Scalar<int64_t>(5)));
  ASSIGN_OR_RETURN(Tensor value, counter.Read());
  return value.scalar<int64_t>();
}
const Step kReadsItsOwnAdd("test/reads_its_own_add", ReadsItsOwnAdd);

absl::StatusOr<Metrics> CountsBatches(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  return Metrics{{"batches", Metric::Mean(1, batch.size())}};
}
const Step kCountsBatches("test/counts_batches", CountsBatches, StepKind::kReadOnly);

absl::StatusOr<Metrics> CountsExamples(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  int64_t sum = 0, examples = 0;
  for (int i = 0; i < batch.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor x, batch[i]["x"].tensor());
    ASSIGN_OR_RETURN(absl::Span<const int64_t> values, x.values<int64_t>());
    for (const int64_t value : values) sum += value;
    examples += static_cast<int64_t>(values.size());
  }
  RETURN_IF_ERROR(Add(worker, sum));
  return Metrics{{"x", Metric::Mean(static_cast<double>(sum), static_cast<double>(examples))}};
}
const Step kCountsExamples("test/counts_examples", CountsExamples);

absl::StatusOr<Metrics> CountsExamplesAtGate(WorkerContext& worker, Iterator batches) {
  gate().Pass();
  return CountsExamples(worker, batches);
}
const Step kCountsExamplesAtGate("test/counts_examples_at_gate", CountsExamplesAtGate);

absl::StatusOr<Metrics> FailsAtGateWithData(WorkerContext& worker, Iterator batches) {
  RETURN_IF_ERROR(worker.Next(batches).status());
  gate().Pass();
  return absl::InvalidArgumentError("behind the gate");
}
const Step kFailsAtGateWithData("test/fails_at_gate_with_data", FailsAtGateWithData);

// Adds to the counter, then to a row outside the table.
absl::Status ScattersOutside(WorkerContext& worker) {
  RETURN_IF_ERROR(Add(worker, 1'000'000));
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable("table"));
  return table.ScatterRows(Variable::Scatter::kAdd, {Tensor::Vector<int64_t>({9}),
                                                     *Tensor::Zeros(DType::kFloat32, {1, 2}), 7});
}
const Step kScattersOutside("test/scatters_outside", ScattersOutside);

std::optional<Variable>& captured() {
  static std::optional<Variable>* const variable = new std::optional<Variable>;
  return *variable;
}
absl::Status AddsToCaptured(WorkerContext&) {
  return captured()->AssignAdd(Tensor::Scalar<int64_t>(1));
}
const Step kAddsToCaptured("test/adds_to_captured", AddsToCaptured);

absl::Status ReadsUnknownVariable(WorkerContext& worker) {
  return worker.strategy().FindVariable("cuonter").status();
}
const Step kReadsUnknownVariable("test/reads_unknown_variable", ReadsUnknownVariable);

// The numbers 0, 1, ... n - 1 in batches of 3.
absl::StatusOr<Dataset> Numbers(const InputContext& input, int64_t n) {
  std::vector<int64_t> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = i;
  return Dataset::FromTensorSlices({{"x", Tensor::Vector<int64_t>(absl::MakeConstSpan(numbers))}})
      .Shuffle(100, input.seed)
      .Batch(3);
}
const DataSource kNumbers("test/numbers", Numbers);
const DataSource kNumbersForEach("test/numbers_for_each", Numbers,
                                 InputOptions{AutoShardPolicy::kOff});
const DataSource kNumbersInParts("test/numbers_in_parts", Numbers,
                                 InputOptions{AutoShardPolicy::kData});

// TensorFlow's idioms for sharding data by worker. With leased data they are a mistake: each worker
// would have other elements.
absl::StatusOr<Dataset> ShardedNumbers(const InputContext& input, int64_t n) {
  ASSIGN_OR_RETURN(const Dataset numbers, Numbers(input, n));
  return numbers.Shard(input.num_workers, input.worker_index);
}
const DataSource kShardedNumbers("test/sharded_numbers", ShardedNumbers);
const DataSource kShardedForEach("test/sharded_for_each", ShardedNumbers,
                                 InputOptions{AutoShardPolicy::kOff});

absl::StatusOr<Dataset> RandomNumbers(const InputContext& input, int64_t n) {
  ASSIGN_OR_RETURN(const Dataset numbers, Numbers(input, n));
  return numbers.Shuffle(40, EntropySeed());
}
const DataSource kRandomNumbers("test/random_numbers", RandomNumbers);

// Only the first batch is the same on every worker.
absl::StatusOr<Dataset> SameAtFirst(const InputContext& input, int64_t n) {
  std::vector<int64_t> numbers(n);
  for (int64_t i = 0; i < n; ++i) numbers[i] = i < 3 ? i : i + input.worker_index;
  return Dataset::FromTensorSlices({{"x", Tensor::Vector<int64_t>(absl::MakeConstSpan(numbers))}})
      .Batch(3);
}
const DataSource kSameAtFirst("test/same_at_first", SameAtFirst);

absl::StatusOr<Dataset> GlobalNumbers(const InputContext& input, int64_t n) {
  ASSIGN_OR_RETURN(const Dataset numbers, Numbers(input, n));
  return Strategy::Current().DistributeDataset(numbers);
}
const DataSource kGlobalNumbers("test/global_numbers", GlobalNumbers);

absl::StatusOr<Dataset> BrokenData(const InputContext& input) {
  return absl::DataLossError("the file is broken");
}
const DataSource kBrokenData("test/broken", BrokenData);

// ---- the cluster ----

constexpr int64_t kBytesPerPack = 1234;

absl::StatusOr<int64_t> BytesPerPack(WorkerContext& worker) {
  return worker.strategy().parts().communication.bytes_per_pack;
}
const Step kReadsBytesPerPack("test/bytes_per_pack", BytesPerPack, StepKind::kReadOnly);

class CoordinatorTest : public ::testing::Test {
 protected:
  void Start(int ps, int workers, int replicas = 1) {
    EmbeddedSetup setup;
    setup.options.num_ps = ps;
    setup.options.num_workers = workers;
    setup.options.replicas_per_worker = replicas;
    setup.coordinator.core.durability = durability_;
    setup.options.strategy.communication.bytes_per_pack = kBytesPerPack;
    auto cluster = EmbeddedCluster::Start(setup);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    ASSERT_TRUE(coordinator().strategy().CreateVariable(kCounter).ok());
  }
  void TearDown() override { gate().Open(); }
  // Closes the gate, and repeats a call of a loop that times out until a step of it waits there. A
  // loop may time out before its first step has begun.
  void TimeOutAtGate(const std::function<absl::Status(const LoopOptions&)>& run) {
    gate().Close();
    do ASSERT_EQ(run({{}, absl::Milliseconds(20)}).code(), absl::StatusCode::kDeadlineExceeded);
    while (!gate().IsWaitedFor());
  }
  Coordinator& coordinator() { return cluster_->coordinator(); }
  int64_t Counter() {
    return *coordinator().strategy().FindVariable("counter")->Read()->scalar<int64_t>();
  }

  std::unique_ptr<EmbeddedCluster> cluster_;
  Durability durability_ = Durability::kReplay;
};

TEST_F(CoordinatorTest, EveryScheduledStepCountsOnce) {
  Start(2, 2);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(coordinator().Schedule(kAdd, 1).ok());
  ASSERT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 300);
  EXPECT_EQ(coordinator().step(), 300);
  EXPECT_TRUE(*coordinator().Done());
}

// One worker may read a whole pass before the other one has opened its iterator. So there are
// several passes.
TEST_F(CoordinatorTest, ADataSourceThatDiffersBetweenWorkersEndsTheRun) {
  Start(1, 2);
  for (const DataSource<int64_t>* const source :
       {&kShardedNumbers, &kRandomNumbers, &kSameAtFirst}) {
    absl::Status run;
    for (int pass = 0; pass < 200 && run.ok(); ++pass)
      run = coordinator().RunEpoch(kCountsExamples, (*source)(300)).status();
    EXPECT_EQ(run.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(
        std::string(run.message()),
        HasSubstr(absl::StrCat("data source \"", source->name(),
                               "\" differs between workers (the first elements of worker 0 and ")));
    EXPECT_THAT(std::string(run.message()),
                HasSubstr("shuffle with input.seed, and shard nothing"));
  }
}

TEST_F(CoordinatorTest, DataThatIsTheSameOnEveryWorkerOrNotLeasedIsNotObjectedTo) {
  Start(1, 2);
  for (const DataSource<int64_t>* const source : {&kNumbers, &kShardedForEach}) {
    for (int pass = 0; pass < 5; ++pass) {
      const auto run = coordinator().RunEpoch(kCountsExamples, (*source)(300));
      ASSERT_TRUE(run.ok()) << run.status();
    }
  }
}

TEST_F(CoordinatorTest, JoinWithNothingScheduledReturnsAtOnce) {
  Start(1, 1);
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_TRUE(*coordinator().Done());
}

TEST_F(CoordinatorTest, ResultsOfManyTypesAreFetched) {
  Start(1, 2);
  auto value = coordinator().Schedule(kEcho, std::string("text"), 41);
  ASSERT_TRUE(value.ok());
  const auto fetched = value->Fetch();
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->first, "text");
  EXPECT_EQ(fetched->second, 42);
  EXPECT_EQ(value->state(), RemoteState::kReady);
  const auto nothing = coordinator().Schedule(kAdd, 1);
  EXPECT_TRUE(nothing->Fetch().ok());
}

TEST_F(CoordinatorTest, FetchGivesUpAfterItsTimeoutAndMayBeCalledAgain) {
  Start(1, 1);
  gate().Close();
  const auto value = coordinator().Schedule(kWaitAtGate, 1);
  EXPECT_EQ(value->Fetch(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(value->state(), RemoteState::kNotReady);
  EXPECT_FALSE(*coordinator().Done());
  EXPECT_EQ(coordinator().Join(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
  gate().Open();
  EXPECT_TRUE(value->Fetch().ok());
  EXPECT_TRUE(coordinator().Join().ok());
}

TEST_F(CoordinatorTest, AJoinThatIsCalledAgainAfterItsTimeoutRaisesTheError) {
  Start(1, 1);
  gate().Close();
  ASSERT_TRUE(coordinator().Schedule(kFailAtGate, std::string("no")).ok());
  EXPECT_EQ(coordinator().Join(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
  ThreadPoolExecutor opener(1);
  opener.Post([] { gate().Open(); });
  EXPECT_THAT(std::string(coordinator().Join().message()), HasSubstr("no"));
  EXPECT_TRUE(coordinator().Join().ok());
}

// A program may poll for days.
TEST_F(CoordinatorTest, AJoinThatIsPolledLeavesOneWaiterHoweverOften) {
  Start(1, 1);
  gate().Close();
  ASSERT_TRUE(coordinator().Schedule(kWaitAtGate, 1).ok());
  for (int i = 0; i < 500; ++i)
    ASSERT_EQ(coordinator().Join(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cluster_->Sizes().at("joins"), 1);
  gate().Open();
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(cluster_->Sizes().at("joins"), 0);
}

// Memory that stops its first reader until LetGoOn, or for ten seconds. So a test sees which tasks
// wait for that reader. After that, all may read and write the memory. Only one object at a time.
class StoppingMemory {
 public:
  explicit StoppingMemory(size_t bytes) : bytes_(bytes) {
    DIVVY_CHECK(pipe(reached_) == 0 && pipe(go_on_) == 0);
    memory_ = mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    DIVVY_CHECK(memory_ != MAP_FAILED);
    current_ = this;
    struct sigaction action = {};
    action.sa_handler = [](int) { current_->Stop(); };
    sigaction(SIGSEGV, &action, &before_);
  }
  ~StoppingMemory() {
    sigaction(SIGSEGV, &before_, nullptr);
    munmap(memory_, bytes_);
    for (const int end : {reached_[0], reached_[1], go_on_[0], go_on_[1]}) close(end);
  }
  StoppingMemory(const StoppingMemory&) = delete;

  const void* data() const { return memory_; }
  // Waits until a reader has come; false after a timeout.
  bool AwaitReader() const { return Await(reached_[0]); }
  void LetGoOn() const { DIVVY_CHECK(write(go_on_[1], "", 1) == 1); }
  bool was_let_go_on() const { return was_let_go_on_; }

 private:
  static bool Await(int pipe) {
    pollfd event{pipe, POLLIN, 0};
    return poll(&event, 1, /*milliseconds=*/10'000) == 1;
  }
  // Runs in the signal handler, so it makes system calls only.
  void Stop() {
    if (write(reached_[1], "", 1) == 1) was_let_go_on_ = Await(go_on_[0]);
    mprotect(memory_, bytes_, PROT_READ | PROT_WRITE);
  }

  static StoppingMemory* current_;
  const size_t bytes_;
  void* memory_ = nullptr;
  int reached_[2], go_on_[2];
  struct sigaction before_;
  std::atomic<bool> was_let_go_on_{false};
};
StoppingMemory* StoppingMemory::current_ = nullptr;

// Cutting gigabytes into commits takes seconds. If a worker waited for an answer that long, it
// would count as lost.
TEST_F(CoordinatorTest, StepsGoOnWhileTheProgramsOwnWriteIsPlanned) {
  Start(2, 1);
  VariableSpec spec{"table", {4, 1}, Zeros()};
  spec.partitioner = FixedShardsPartitioner{2};
  const auto table = coordinator().strategy().CreateVariable(spec);
  ASSERT_TRUE(table.ok()) << table.status();
  const StoppingMemory memory(4 * sizeof(float));
  absl::Status written = absl::UnknownError("no answer");
  Gate done;
  ThreadPoolExecutor writer(1);
  writer.Post([&] {
    const Tensor rows = *Tensor::Borrow(DType::kFloat32, {4, 1}, memory.data(), Device{}, [] {});
    // The ids alternate between the two shards, so both copy.
    written = table->ScatterRows(Variable::Scatter::kAdd,
                                 {Tensor::Vector<int64_t>({3, 0, 2, 1}), rows, 4});
    done.Pass();
  });
  ASSERT_TRUE(memory.AwaitReader());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(coordinator().Schedule(kAdd, 1)->Fetch().ok());
  memory.LetGoOn();
  done.AwaitWaiting(1);
  EXPECT_TRUE(written.ok()) << written;
  EXPECT_TRUE(memory.was_let_go_on()) << "the steps waited for the write's plan";
}

TEST(CoordinatorGoneTest, WhatItGaveOutAnswersAndNeitherHangsNorReachesAnything) {
  absl::StatusOr<Variable> variable = absl::UnknownError("");
  std::optional<PerWorkerDataset> dataset;
  std::optional<Iterator> iterator;
  absl::StatusOr<RemoteValue<void>> queued = absl::UnknownError("");
  gate().Close();
  {
    EmbeddedOptions options;
    options.num_workers = 1;
    const auto coordinator = StartEmbedded(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    variable = (*coordinator)->strategy().CreateVariable(kCounter);
    dataset = *(*coordinator)->CreatePerWorkerDataset(kNumbers(10));
    iterator = dataset->MakeIterator();
    for (int i = 0; i < 10; ++i) queued = (*coordinator)->Schedule(kWaitAtGate, 1);
    gate().AwaitWaiting(1);
    gate().Open();
  }
  EXPECT_EQ(variable->Read().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(variable->Assign(Tensor::Scalar<int64_t>(1)).message()),
              HasSubstr("the coordinator is gone"));
  EXPECT_NE(queued->Fetch(absl::Seconds(30)).code(), absl::StatusCode::kDeadlineExceeded);
  dataset->MakeIterator();
  iterator.reset();
}

TEST_F(CoordinatorTest, AFailedStepLeavesNoTraceAndIsRaisedOnce) {
  Start(2, 2);
  const auto failed = coordinator().Schedule(kAddThenFail, std::string("not today"));
  ASSERT_TRUE(failed.ok());
  const absl::Status raised = coordinator().Join();
  EXPECT_EQ(raised.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(raised.message()), HasSubstr("not today"));
  EXPECT_EQ(failed->Fetch().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Counter(), 0);
  EXPECT_TRUE(coordinator().Join().ok());  // usable again; the same error is not raised twice
  ASSERT_TRUE(coordinator().Schedule(kAdd, 1).ok());
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 1);
}

TEST_F(CoordinatorTest, TwoFailingStepsRaiseOneError) {
  Start(1, 2);
  ASSERT_TRUE(coordinator().Schedule(kAddThenFail, std::string("one")).ok());
  // Schedule may raise the first step's error instead.
  const bool both_run = coordinator().Schedule(kAddThenFail, std::string("two")).ok();
  EXPECT_EQ(coordinator().Join().ok(), !both_run);
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 0);
}

TEST_F(CoordinatorTest, AnErrorCancelsWhatIsQueued) {
  Start(1, 1);
  gate().Close();
  const auto running = coordinator().Schedule(kWaitAtGate, 1);
  gate().AwaitWaiting(1);
  ASSERT_TRUE(coordinator().Schedule(kAddThenFail, std::string("no")).ok());
  std::vector<RemoteValue<void>> queued;
  for (int i = 0; i < 20; ++i) queued.push_back(*coordinator().Schedule(kWaitAtGate, 1));
  gate().Open();
  EXPECT_FALSE(coordinator().Join().ok());
  int cancelled = 0;
  for (const auto& value : queued) cancelled += value.state() == RemoteState::kCancelled;
  EXPECT_GT(cancelled, 0);
  EXPECT_EQ(Counter(), 1 + 20 - cancelled);  // a cancelled step is in no variable
}

TEST_F(CoordinatorTest, ScheduleRaisesAnEarlierError) {
  Start(1, 1);
  const auto failed = coordinator().Schedule(kAddThenFail, std::string("no"));
  EXPECT_FALSE(failed->Fetch().ok());
  EXPECT_EQ(coordinator().Schedule(kAdd, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(coordinator().Schedule(kAdd, 1).ok());
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 1);
}

TEST_F(CoordinatorTest, AStepThatThrowsFailsWithWhatItThrew) {
  Start(1, 1);
  const auto thrown = coordinator().Schedule(kThrows);
  EXPECT_EQ(thrown->Fetch().code(), absl::StatusCode::kUnknown);
  EXPECT_THAT(std::string(thrown->Fetch().message()), HasSubstr("thrown in a step"));
  EXPECT_FALSE(coordinator().Join().ok());
}

TEST_F(CoordinatorTest, AStepsOwnUnavailableIsItsErrorAndNotALostWorker) {
  Start(1, 2);
  const auto value = coordinator().Schedule(kSaysUnavailable);
  EXPECT_EQ(value->Fetch().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(coordinator().Join().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(coordinator().Schedule(kAdd, 1)->Fetch().ok());
}

TEST_F(CoordinatorTest, AReadOnlyStepMayNotWrite) {
  Start(1, 1);
  const auto value = coordinator().Schedule(kWritesReadOnly);
  EXPECT_EQ(value->Fetch().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_FALSE(coordinator().Join().ok());
  EXPECT_EQ(coordinator().step(), 0);
}

TEST_F(CoordinatorTest, AStepSeesItsOwnWritesBeforeTheyAreCommitted) {
  Start(2, 1);
  EXPECT_EQ(*coordinator().Schedule(kReadsItsOwnAdd)->Fetch(), 5);
  EXPECT_EQ(*coordinator().Schedule(kReadsItsOwnAdd)->Fetch(), 10);
}

TEST_F(CoordinatorTest, StepsAreScheduledFromSeveralThreads) {
  Start(2, 2);
  ThreadPoolExecutor threads(4);
  std::atomic<int> left{4};
  Gate done;
  done.Close();
  for (int t = 0; t < 4; ++t) {
    threads.PostBlocking("schedules", [&] {
      for (int i = 0; i < 50; ++i) EXPECT_TRUE(coordinator().Schedule(kAdd, 1).ok());
      EXPECT_TRUE(coordinator().Join().ok());
      if (--left == 0) done.Open();
    });
  }
  done.Pass();
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 200);
}

TEST_F(CoordinatorTest, AKilledWorkerCostsNothing) {
  Start(2, 2);
  gate().Close();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(coordinator().Schedule(kWaitAtGate, 1).ok());
  gate().AwaitWaiting(2);
  cluster_->KillWorker(0);  // in the middle of a step
  gate().Open();
  ASSERT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 100);
}

TEST_F(CoordinatorTest, AWorkerThatComesBackTakesStepsAgain) {
  Start(1, 1);
  for (int life = 0; life < 3; ++life) {
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(coordinator().Schedule(kAdd, 1).ok());
    ASSERT_TRUE(cluster_->RestartWorker(0).ok());
  }
  ASSERT_TRUE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 60);
}

TEST_F(CoordinatorTest, ParameterServersThatAreLostAgainAndAgainCostNoElementOfAPass) {
  Start(2, 2);
  for (int pass = 0; pass < 3; ++pass) {
    ASSERT_TRUE(cluster_->RestartPs(pass % 2).ok());  // noticed after the pass has begun
    const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbers(1'000));
    ASSERT_TRUE(metrics.ok()) << metrics.status();
    EXPECT_EQ(metrics->at("x").count(), 1'000);
    EXPECT_EQ(Counter(), 499'500 * (pass + 1)) << "each element is in the variables once";
  }
}

TEST_F(CoordinatorTest, ALostParameterServerIsUnavailableByName) {
  durability_ = Durability::kCheckpoint;
  Start(2, 1);
  ASSERT_TRUE(coordinator().Schedule(kAdd, 1)->Fetch().ok());
  ASSERT_TRUE(cluster_->RestartPs(1).ok());
  absl::Status status;
  // The loss is reported within seconds.
  while (status.ok()) status = coordinator().Schedule(kAdd, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ps 1"));
  EXPECT_EQ(coordinator().Join().code(), absl::StatusCode::kUnavailable);
}

// ---- data ----

TEST_F(CoordinatorTest, RunEpochVisitsEachElementOnce) {
  Start(2, 2);
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbers(100));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 100);
  EXPECT_EQ(metrics->at("x").value(), 49.5);
  EXPECT_EQ(Counter(), 4950);
  EXPECT_EQ(coordinator().epoch(), 1);
  EXPECT_EQ(coordinator().step(), 34);
}

TEST_F(CoordinatorTest, RunEpochVisitsEachElementOnceWhenAWorkerIsKilled) {
  Start(2, 2);
  ThreadPoolExecutor threads(1);
  threads.PostBlocking("kills", [this] { cluster_->KillWorker(1); });
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbers(3000));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 3000);
  EXPECT_EQ(Counter(), 3000 * 2999 / 2);
}

TEST_F(CoordinatorTest, WithSeveralReplicasAStepTakesABatchForEach) {
  Start(1, 1, /*replicas=*/2);
  // Batches of 3, 3 | 3, 1.
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbers(10));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 10);
  EXPECT_EQ(coordinator().step(), 2);
}

TEST_F(CoordinatorTest, RunUntilGoesOnPassAfterPass) {
  Start(1, 2);
  const auto metrics = coordinator().RunUntil(25, kCountsExamples, kNumbers(30));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(coordinator().step(), 25);
  EXPECT_EQ(metrics->at("x").count(), 75);
}

TEST_F(CoordinatorTest, RunUntilGoesOnWhereTheLastOneStopped) {
  Start(1, 2);
  ASSERT_TRUE(coordinator().RunUntil(4, kCountsExamples, kNumbers(30)).ok());
  ASSERT_TRUE(coordinator().RunEpoch(kCountsBatches, kNumbers(30)).ok());  // like a validation
  ASSERT_TRUE(coordinator().RunUntil(10, kCountsExamples, kNumbers(30)).ok());
  EXPECT_EQ(Counter(), 435) << "each element once";
  ASSERT_TRUE(coordinator().RunUntil(20, kCountsExamples, kNumbers(30)).ok());
  EXPECT_EQ(Counter(), 2 * 435) << "the next pass";
  ASSERT_TRUE(coordinator().RunUntil(25, kCountsExamples, kNumbers(30)).ok());
  ASSERT_TRUE(coordinator().RunUntil(26, kCountsExamples, kNumbers(3)).ok());
  EXPECT_EQ(coordinator().step(), 26);
  const int64_t before = Counter();
  ASSERT_TRUE(coordinator().RunUntil(36, kCountsExamples, kNumbers(30)).ok());
  EXPECT_EQ(Counter(), before + 435) << "other data came between: a pass from the beginning";
}

const LoopOptions kAtOnce{/*observer=*/{}, /*timeout=*/absl::ZeroDuration()};

TEST_F(CoordinatorTest, ARunEpochThatTimesOutCountsAsNoEpochAndIsRunAgain) {
  Start(1, 2);
  absl::Status late;
  TimeOutAtGate([&](const LoopOptions& options) {
    return late = coordinator().RunEpoch(options, kCountsExamplesAtGate, kNumbers(100)).status();
  });
  EXPECT_THAT(std::string(late.message()), HasSubstr("test/counts_examples_at_gate"));
  gate().Open();
  ASSERT_TRUE(coordinator().Join().ok());
  const int64_t steps = coordinator().step(), counted = Counter();
  EXPECT_EQ(coordinator().epoch(), 0);
  EXPECT_LE(steps, 2 * 4) << "the loop went on after its timeout";
  const auto metrics = coordinator().RunEpoch(kCountsExamplesAtGate, kNumbers(100));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 100) << "the pass begins again";
  EXPECT_EQ(Counter() - counted, 99 * 100 / 2);
  EXPECT_EQ(coordinator().epoch(), 1);
}

TEST_F(CoordinatorTest, ARunUntilThatTimesOutGoesOnWhereItWasInterrupted) {
  Start(1, 2);
  TimeOutAtGate([&](const LoopOptions& options) {
    return coordinator().RunUntil(options, 10, kCountsExamplesAtGate, kNumbers(30)).status();
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(
        coordinator().RunUntil(kAtOnce, 10, kCountsExamplesAtGate, kNumbers(30)).status().code(),
        absl::StatusCode::kDeadlineExceeded)
        << "its steps still run";
  }
  EXPECT_EQ(cluster_->Sizes().at("runs"), 1) << "no loop begins before the first is over";
  gate().Open();
  ASSERT_TRUE(coordinator().RunUntil(10, kCountsExamplesAtGate, kNumbers(30)).ok());
  EXPECT_EQ(coordinator().step(), 10);
  EXPECT_EQ(Counter(), 435) << "each element once";
  EXPECT_TRUE(coordinator().RunUntil(kAtOnce, 10, kCountsExamplesAtGate, kNumbers(30)).ok())
      << "what is done needs no time";
}

TEST_F(CoordinatorTest, TheErrorOfALoopThatTimedOutIsRaisedOnceByALaterCall) {
  Start(1, 1);
  TimeOutAtGate([&](const LoopOptions& options) {
    return coordinator().RunEpoch(options, kFailsAtGateWithData, kNumbers(30)).status();
  });
  gate().Open();
  EXPECT_EQ(coordinator().RunEpoch(kCountsExamples, kNumbers(30)).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(coordinator().RunEpoch(kCountsExamples, kNumbers(30)).ok());
  EXPECT_EQ(Counter(), 435);
}

TEST_F(CoordinatorTest, AJoinBehindALoopThatTimedOutRaisesItsErrorAndNoOtherCallDoes) {
  Start(1, 1);
  TimeOutAtGate([&](const LoopOptions& options) {
    return coordinator().RunEpoch(options, kFailsAtGateWithData, kNumbers(30)).status();
  });
  EXPECT_EQ(coordinator().Join(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  gate().Open();
  EXPECT_EQ(coordinator().Join().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(coordinator().Join().ok());
  EXPECT_TRUE(coordinator().RunEpoch(kCountsExamples, kNumbers(30)).ok());
}

TEST_F(CoordinatorTest, WithPolicyOffEveryWorkerSeesEverything) {
  Start(1, 2);
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbersForEach(30));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 60);
}

TEST_F(CoordinatorTest, WithPolicyDataEachWorkerSeesItsPart) {
  Start(1, 2);
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbersInParts(31));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 31);
  EXPECT_EQ(metrics->at("x").value(), 15);
  EXPECT_EQ(coordinator().step(), 6 + 5);
}

TEST_F(CoordinatorTest, ADistributedDatasetIsVisitedOnceInGlobalBatches) {
  Start(1, 2, /*replicas=*/2);
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kGlobalNumbers(31));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("x").count(), 31);
  EXPECT_EQ(coordinator().step(), 11);
}

TEST_F(CoordinatorTest, AnEmptyDatasetIsAnEpochWithoutSteps) {
  Start(1, 2);
  const auto metrics = coordinator().RunEpoch(kCountsExamples, kNumbers(0));
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_TRUE(metrics->empty());
  EXPECT_EQ(coordinator().epoch(), 1);
  EXPECT_EQ(coordinator().RunUntil(5, kCountsExamples, kNumbers(0)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorTest, ABrokenSourceIsTheErrorOfTheStepsThatUseIt) {
  Start(1, 2);
  const auto dataset = coordinator().CreatePerWorkerDataset(kBrokenData());
  ASSERT_TRUE(dataset.ok());
  const Iterator iterator = dataset->MakeIterator();
  EXPECT_TRUE(coordinator().Join().ok());  // no error before a step uses the source
  EXPECT_EQ(coordinator().RunEpoch(kCountsExamples, kBrokenData()).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_TRUE(coordinator().Schedule(kAdd, 1)->Fetch().ok());
}

TEST_F(CoordinatorTest, CommunicationOptionsOfTheStrategyReachTheWorkers) {
  Start(1, 1);
  EXPECT_EQ(coordinator().strategy().parts().communication.bytes_per_pack, kBytesPerPack);
  EXPECT_EQ(*coordinator().Schedule(kReadsBytesPerPack)->Fetch(), kBytesPerPack);
}

TEST_F(CoordinatorTest, TheElementSpecOfPerWorkerDataIsToldBeforeAnythingIsRead) {
  Start(1, 1, /*replicas=*/2);
  for (const BoundDataSource& source : {kNumbers(10), kGlobalNumbers(10)}) {
    // In a scope too, as a program has it.
    const StrategyScope scope = coordinator().strategy().Scope();
    const auto specs = coordinator().CreatePerWorkerDataset(source)->ElementSpec();
    ASSERT_TRUE(specs.ok()) << specs.status();
    ASSERT_EQ(specs->size(), 1);
    EXPECT_EQ(specs->at("x").dtype, DType::kInt64);
    EXPECT_EQ(specs->at("x").shape, Shape({-1})) << source.name();
  }
  EXPECT_EQ(coordinator().CreatePerWorkerDataset(kBrokenData())->ElementSpec().status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(cluster_->Sizes().at("iterators"), 0);
}

TEST_F(CoordinatorTest, AnIteratorIsAnArgumentOfSchedule) {
  Start(1, 2);
  const auto dataset = coordinator().CreatePerWorkerDataset(kNumbers(9));
  ASSERT_TRUE(dataset.ok());
  const Iterator iterator = dataset->MakeIterator();
  double examples = 0;
  for (int i = 0; i < 3; ++i)
    examples += coordinator().Schedule(kCountsExamples, iterator)->Fetch()->at("x").count();
  EXPECT_EQ(examples, 9);
  const auto over = coordinator().Schedule(kCountsExamples, iterator);
  EXPECT_EQ(over->Fetch().status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(coordinator().Join().ok());  // the end of data is no error
}

// ---- variables ----

TEST_F(CoordinatorTest, VariablesAreReadAndWrittenFromTheProgram) {
  Start(3, 1);
  VariableSpec spec{"table", {7, 2}, Constant{2}};
  spec.partitioner = FixedShardsPartitioner{3};
  const auto table = coordinator().strategy().CreateVariable(spec);
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->shard_offsets(), ::testing::ElementsAre(0, 3, 5, 7));
  const Tensor ids = Tensor::Vector<int64_t>({6, 0, 6});
  ASSERT_TRUE(table
                  ->ScatterRows(
                      Variable::Scatter::kAdd,
                      {ids, *Tensor::Copy<float>({3, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}), 7})
                  .ok());
  EXPECT_THAT(*table->Rows(Tensor::Vector<int64_t>({6, 0, 1}))->values<float>(),
              ::testing::ElementsAre(8, 10, 5, 6, 2, 2));
  EXPECT_EQ(table->Read()->shape(), (Shape{7, 2}));
  EXPECT_EQ(table->Assign(Tensor::Scalar<float>(1)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table->Rows(Tensor::Vector<int64_t>({7})).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(CoordinatorTest, AnIdOutsideTheVariableFailsTheStepAndLeavesNoTrace) {
  Start(2, 1);
  ASSERT_TRUE(coordinator().strategy().CreateVariable({"table", {7, 2}}).ok());
  const absl::Status failed = coordinator().Schedule(kScattersOutside)->Fetch();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("9"));
  EXPECT_FALSE(coordinator().Join().ok());
  EXPECT_EQ(Counter(), 0);
}

TEST_F(CoordinatorTest, AnUnknownVariableInAStepIsToldWithTheStepTheWorkerAndTheNamesNearIt) {
  Start(1, 1);
  const absl::Status failed = coordinator().Schedule(kReadsUnknownVariable)->Fetch();
  EXPECT_EQ(failed.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(failed.message()),
              HasSubstr("step test/reads_unknown_variable 0, worker 0"));
  EXPECT_THAT(std::string(failed.message()), HasSubstr("counter"));
}

TEST_F(CoordinatorTest, APartitionerThatMakesNoSenseIsRefusedAndNothingIsCreated) {
  Start(2, 1);
  VariableSpec spec{"cut", {8, 4}};
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{2, 2}, {0, 1}, {}, {-1, 1}, {2}}) {
    spec.partitioner = [counts](const Shape&, DType) { return counts; };
    EXPECT_EQ(coordinator().strategy().CreateVariable(spec).status().code(),
              absl::StatusCode::kInvalidArgument)
        << ::testing::PrintToString(counts);
  }
  spec.partitioner = FixedShardsPartitioner{0};
  EXPECT_EQ(coordinator().strategy().CreateVariable(spec).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator().strategy().FindVariable("cut").status().code(),
            absl::StatusCode::kNotFound);
  spec.partitioner = FixedShardsPartitioner{2};
  EXPECT_TRUE(coordinator().strategy().CreateVariable(spec).ok());  // the name is free
}

TEST_F(CoordinatorTest, ANameIsTakenOnce) {
  Start(1, 1);
  EXPECT_EQ(coordinator().strategy().CreateVariable(kCounter).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(CoordinatorTest, AVariableOfAnotherClusterIsRefusedInAScopeAndInAStep) {
  Start(1, 1);
  const auto other = StartEmbedded();
  ASSERT_TRUE(other.ok()) << other.status();
  captured() = *(*other)->strategy().CreateVariable(kCounter);
  {
    auto scope = coordinator().strategy().Scope();
    EXPECT_EQ(captured()->AssignAdd(Tensor::Scalar<int64_t>(1)).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  const absl::Status failed = coordinator().Schedule(kAddsToCaptured)->Fetch();
  EXPECT_EQ(failed.code(), absl::StatusCode::kFailedPrecondition) << failed;
  EXPECT_THAT(std::string(failed.message()), HasSubstr("strategies do not mix"));
  EXPECT_EQ(*captured()->Read()->scalar<int64_t>(), 0);
  EXPECT_EQ(Counter(), 0);
  captured() = coordinator().strategy().FindVariable("counter").value();
  EXPECT_FALSE(coordinator().Join().ok());
  // A variable of the same job may be used.
  EXPECT_TRUE(coordinator().Schedule(kAddsToCaptured)->Fetch().ok());
  EXPECT_EQ(Counter(), 1);
  captured().reset();
}

TEST_F(CoordinatorTest, AnUnknownVariableNamesThoseNearIt) {
  Start(1, 1);
  const auto found = coordinator().strategy().FindVariable("countr");
  EXPECT_EQ(found.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(found.status().message()), HasSubstr("counter"));
}

TEST_F(CoordinatorTest, InitialValuesDoNotDependOnTheSharding) {
  std::vector<Tensor> values;
  for (const int shards : {1, 2, 3}) {
    Start(3, 1);
    VariableSpec spec{"kernel", {10, 4}, GlorotUniform()};
    spec.partitioner = FixedShardsPartitioner{shards};
    values.push_back(*coordinator().strategy().CreateVariable(spec)->Read());
  }
  EXPECT_TRUE(BitwiseEqual(values[0], values[1]));
  EXPECT_TRUE(BitwiseEqual(values[0], values[2]));
}

TEST_F(CoordinatorTest, InitialValuesMadeOnTheCoordinatorAreSent) {
  Start(2, 1);
  VariableSpec spec{
      "rows", {5, 2}, FromRows{[](int64_t first, int64_t count) -> absl::StatusOr<Tensor> {
        std::vector<float> values;
        for (int64_t i = first; i < first + count; ++i)
          values.insert(values.end(), {static_cast<float>(i), static_cast<float>(-i)});
        return Tensor::Copy<float>({count, 2}, values);
      }}};
  spec.partitioner = FixedShardsPartitioner{2};
  EXPECT_THAT(*coordinator()
                   .strategy()
                   .CreateVariable(spec)
                   ->Rows(Tensor::Vector<int64_t>({4, 2}))
                   ->values<float>(),
              ::testing::ElementsAre(4, -4, 2, -2));
}

TEST_F(CoordinatorTest, AVariableWhoseInitialValueCannotBeMadeLeavesItsNameFree) {
  Start(2, 1);
  const VariableSpec bad{"rows", {4}, FromRows{[](int64_t, int64_t) -> absl::StatusOr<Tensor> {
                           return absl::DataLossError("no file");
                         }}};
  EXPECT_THAT(std::string(coordinator().strategy().CreateVariable(bad).status().message()),
              HasSubstr("no file"));
  EXPECT_EQ(coordinator().strategy().FindVariable("rows").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(coordinator().strategy().CreateVariable({"rows", {4}}).ok());
}

TEST_F(CoordinatorTest, ALargeInitialTensorIsSentInBlocksAndArrivesWhole) {
  Start(2, 1);
  constexpr int64_t kRows = 5'000, kWidth = 1'000;  // 20 MB
  Tensor value = *Tensor::Uninitialized(DType::kFloat32, {kRows, kWidth});
  for (int64_t i = 0; i < kRows * kWidth; ++i) value.fresh_data<float>()[i] = static_cast<float>(i);
  VariableSpec spec{"large", {kRows, kWidth}, value};
  spec.partitioner = FixedShardsPartitioner{3};
  const absl::StatusOr<Variable> large = coordinator().strategy().CreateVariable(spec);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(BitwiseEqual(*large->Read(), value));
}

TEST_F(CoordinatorTest, AReportUnderANameThatNoRunCanHaveIsRefused) {
  Start(1, 1);
  for (const char* name : {"", "a b", "a//b", ".."})
    EXPECT_EQ(coordinator().Report(name, 1, {}).code(), absl::StatusCode::kInvalidArgument) << name;
  EXPECT_TRUE(coordinator().Report("validation/by_hand", 1, {}).ok());
}

TEST(StartEmbeddedTest, OptionsOutOfRangeAreRefusedAllAtOnce) {
  EmbeddedOptions options;
  options.num_ps = 0;
  options.num_workers = -1;
  const auto coordinator = StartEmbedded(options);
  ASSERT_EQ(coordinator.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(coordinator.status().message()), HasSubstr("num_ps"));
  EXPECT_THAT(std::string(coordinator.status().message()), HasSubstr("num_workers"));
}

TEST(StartEmbeddedTest, AHundredStepsCountToAHundred) {
  const auto coordinator = StartEmbedded();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ASSERT_TRUE((*coordinator)->strategy().CreateVariable(kCounter).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*coordinator)->Schedule(kAdd, 1).ok());
  ASSERT_TRUE((*coordinator)->Join().ok());
  EXPECT_EQ(*(*coordinator)->strategy().FindVariable("counter")->Read()->scalar<int64_t>(), 100);
}

TEST(StartEmbeddedTest, ACoordinatorMayGoWhileStepsRun) {
  gate().Open();
  const auto coordinator = StartEmbedded();
  ASSERT_TRUE((*coordinator)->strategy().CreateVariable(kCounter).ok());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE((*coordinator)->Schedule(kAdd, 1).ok());
}

}  // namespace
}  // namespace divvy
