// Batches that are prefetched and copied to devices before their steps. The devices are played by
// the host, and do their work as late as they may.
#include "worker/core/data_input_opener.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "protocol/error.h"
#include "strategy/step.h"
#include "worker/core/element_digest.h"
#include "worker/core/step_transaction.h"
#include "worker/core/testing/fake_parameter_servers.h"
#include "worker/core/thread_step_runner.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr Device Gpu(int index) { return {Device::Kind::kGpu, index}; }

// A list of events that threads append to.
template <typename T>
class Seen {
 public:
  void Add(T one) {
    MutexLock lock(mu_);
    all_.push_back(std::move(one));
    more_.NotifyAll();
  }
  // Waits until there are `n`; false after 20 seconds.
  bool WaitFor(size_t n) {
    MutexLock lock(mu_);
    return more_.WaitFor(mu_, absl::Seconds(20),
                         [&]() DIVVY_REQUIRES(mu_) { return all_.size() >= n; });
  }
  std::vector<T> all() {
    MutexLock lock(mu_);
    return all_;
  }
  void Clear() {
    MutexLock lock(mu_);
    all_.clear();
  }

 private:
  Mutex mu_;
  CondVar more_;
  std::vector<T> all_ DIVVY_GUARDED_BY(mu_);
};

// The numbers that have been read from any dataset, and the devices that copies were made to.
Seen<int>& Reads() {
  static auto& seen = *new Seen<int>();
  return seen;
}
Seen<int>& Uploads() {
  static auto& seen = *new Seen<int>();
  return seen;
}

class WatchedGpus : public internal::GpuBackend {
 public:
  using GpuBackend::GpuBackend;
  absl::StatusOr<void*> Upload(Device device, const void* from, int64_t bytes,
                               std::shared_ptr<const void> owner) override {
    absl::StatusOr<void*> there = GpuBackend::Upload(device, from, bytes, std::move(owner));
    Uploads().Add(device.index);
    return there;
  }
};

// ---- the data: batches of one number, 0, 1, 2 ... -----------------------------------------------

absl::StatusOr<Dataset> Numbers(const InputContext&, int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return Dataset::FromTensorSlices(Nest(Tensor::Vector<float>(values)))
      .Batch(1)
      .Map([](const Nest& batch) {
        Reads().Add(static_cast<int>(*batch.tensor()->data_as<float>()));
        return batch.tensor();
      });
}
const DataSource kNumbers("input_test/numbers", Numbers,
                          InputOptions{AutoShardPolicy::kLease, /*fetch_to_device=*/true,
                                       /*prefetch_per_replica=*/0});
const DataSource kOnTheCpu("input_test/on_the_cpu", Numbers,
                           InputOptions{AutoShardPolicy::kLease, /*fetch_to_device=*/false,
                                        /*prefetch_per_replica=*/0});

const DataSource kReadAhead("input_test/read_ahead", Numbers,
                            InputOptions{AutoShardPolicy::kLease, /*fetch_to_device=*/false,
                                         /*prefetch_per_replica=*/2});

absl::StatusOr<Dataset> WithoutOne(const InputContext& input, int64_t n) {
  ASSIGN_OR_RETURN(const Dataset numbers, Numbers(input, n));
  return numbers.Map([](const Nest& number) -> absl::StatusOr<Nest> {
    if (*number.tensor()->data_as<float>() == 1) return absl::DataLossError("number 1 is damaged");
    return number;
  });
}
const DataSource kDamaged("input_test/damaged", WithoutOne,
                          InputOptions{AutoShardPolicy::kLease, /*fetch_to_device=*/false,
                                       /*prefetch_per_replica=*/1});

// ---- the step functions -------------------------------------------------------------------------

// Whether a device has written to the tensor.
bool IsComputed(const Tensor& there) {
  uint32_t bits;
  std::memcpy(&bits, there.data(), sizeof(bits));
  return bits != 0xA5A5A5A5;
}

// Computes with its batch, and does not end before the next step's batch is being copied to the
// device. Then the first computation must still be outstanding.
absl::StatusOr<std::string> ComputeUntilTheNextBatchComes(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(const PerReplica<Nest> elements, worker.Next(batches));
  ASSIGN_OR_RETURN(const Tensor x, elements[0].tensor());
  ASSIGN_OR_RETURN(Tensor sum, Tensor::Uninitialized(DType::kFloat32, x.shape(), x.device()));
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::BackendFor(x.device()));
  backend->Binary(internal::BinaryOp::kAdd, x, x, sum);
  if (!Uploads().WaitFor(2)) return std::string("the next batch did not come");
  if (IsComputed(sum)) return std::string("the device was waited for");
  ASSIGN_OR_RETURN(const Tensor here, sum.To(Device{}));
  return std::to_string(here.data_as<float>()[0]);
}
const Step kCompute("input_test/compute", ComputeUntilTheNextBatchComes);

// The device of replica 0's batch, and the number in it.
absl::StatusOr<std::string> TakeBatch(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(const PerReplica<Nest> elements, worker.Next(batches));
  ASSIGN_OR_RETURN(const Tensor x, elements[0].tensor());
  ASSIGN_OR_RETURN(const Tensor here, x.To(Device{}));
  return x.device().ToString() + " " + std::to_string(static_cast<int>(here.data_as<float>()[0]));
}
const Step kTake("input_test/take", TakeBatch);

std::atomic<cuda::HostMath*> failing{nullptr};
// Returns OK when the next step's batch is being copied to a device that fails.
absl::Status Fail(WorkerContext& worker, Iterator batches) {
  RETURN_IF_ERROR(worker.Next(batches).status());
  const bool told = Uploads().WaitFor(2);
  failing.load()->Note(0, "a copy failed");
  return told ? absl::OkStatus() : absl::DeadlineExceededError("the next batch did not come");
}
const Step kFail("input_test/fail", Fail);

// ---- the fixture --------------------------------------------------------------------------------

class ReadAheadTest : public ::testing::Test {
 protected:
  ReadAheadTest() { UseDevices({Gpu(0), Gpu(1)}); }
  ~ReadAheadTest() override {
    executor_.Stop();
    runner_.reset();
    inputs_.reset();
    internal::SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }

  void UseDevices(std::vector<Device> devices) {
    SetGpuMemory(&gpus_);
    internal::SetGpuBackend(&gpus_);
    failing = &math_;
    inputs_ = std::make_unique<DataInputOpener>(executor_, devices);
    runner_ = std::make_unique<ThreadStepRunner>(
        ThreadStepRunnerOptions{0, std::move(devices), nullptr}, executor_, *inputs_);
    Reads().Clear();
    Uploads().Clear();
  }
  void Open(const BoundDataSource& source, bool leased = true) {
    Seen<absl::Status> opened;
    inputs_->Open({kIterator, std::string(source.name()), source.args(), 7, leased}, 0, 1, 2,
                  [&](absl::StatusOr<OpenedInput> input) {
                    if (input.ok()) input_ = *input;
                    opened.Add(input.status());
                  });
    ASSERT_TRUE(opened.WaitFor(1));
    ASSERT_TRUE(opened.all()[0].ok()) << opened.all()[0];
  }
  void ReadAhead(int64_t first, int64_t count) { inputs_->ReadAhead({kIterator, first, count}); }
  void Forget(int64_t first, int64_t count) { inputs_->ForgetAhead({kIterator, first, count}); }
  // "GPU:0 4" for each element.
  std::vector<std::string> Read(int64_t first, int64_t count) {
    std::vector<std::string> read;
    const absl::StatusOr<std::vector<Nest>> elements = inputs_->Read(kIterator, first, count);
    EXPECT_TRUE(elements.ok()) << elements.status();
    for (const Nest& element : elements.value_or(std::vector<Nest>())) {
      const Tensor there = *element.tensor();
      read.push_back(there.device().ToString() + " " +
                     std::to_string(static_cast<int>(there.To(Device{})->data_as<float>()[0])));
    }
    return read;
  }
  using Result = std::shared_ptr<Seen<absl::StatusOr<Nest>>>;
  Result Begin(const std::string& function, int64_t first) {
    StepCall call;
    call.step = EntryId(static_cast<uint64_t>(first) + 1);
    call.ordinal = first;
    call.function = function;
    call.args = Nest(Nest::List{Nest(PerWorkerHandle{kIterator.value()})});
    call.inputs = {{kIterator, first, 1}};
    auto links = std::make_shared<SessionLinks>();
    const auto transaction = std::make_shared<WorkerTransaction>(
        WorkerTransaction::Options{links, Layout::Empty(), false, false, 1, nullptr}, executor_,
        Clock::Real());
    auto result = std::make_shared<Seen<absl::StatusOr<Nest>>>();
    runner_->Start(call, transaction,
                   [result](StepEnd end) { result->Add(std::move(end.result)); });
    return result;
  }
  static std::string Text(const Result& result) {
    if (!result->WaitFor(1)) return "no end";
    const absl::StatusOr<Nest> value = result->all()[0];
    return value.ok() ? value->text().value_or("") : std::string(value.status().message());
  }
  std::string Run(const std::string& function, int64_t first) {
    return Text(Begin(function, first));
  }

  static constexpr ResourceId kIterator{1};
  OpenedInput input_;  // of the last Open
  cuda::HostMath math_{2, cuda::HostQueues::Manner::kLate};
  WatchedGpus gpus_{math_};
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<DataInputOpener> inputs_;
  std::unique_ptr<ThreadStepRunner> runner_;
};

Nest ListOf(const std::vector<float>& numbers) {
  Nest::List list;
  for (const float number : numbers) list.push_back(Nest(Tensor::Vector<float>({number})));
  return Nest(list);
}

// ---- which elements are read, and when ----------------------------------------------------------

TEST_F(ReadAheadTest, OfLeasedDataTheFirstElementIsReadAtOnceDigestedAndKeptForItsStep) {
  Open(kNumbers(int64_t{9}));
  ASSERT_TRUE(input_.first.has_value());
  EXPECT_EQ(input_.first->exact, DigestOf(ListOf({0})).exact);
  EXPECT_EQ(input_.elements, 9);
  EXPECT_THAT(Read(0, 1), ElementsAre("CPU:0 0"));
  EXPECT_THAT(Read(1, 1), ElementsAre("CPU:0 1"));
  EXPECT_THAT(Reads().all(), ElementsAre(0, 1));
}

TEST_F(ReadAheadTest, WhatIsReadAheadInAnyCaseIsDigestedTooUpToThreeElements) {
  Open(kReadAhead(int64_t{9}));
  ASSERT_TRUE(input_.first.has_value());
  EXPECT_EQ(input_.first->projection, DigestOf(ListOf({0, 1, 2})).projection);
  EXPECT_NE(input_.first->projection, DigestOf(ListOf({0, 1, 3})).projection);
  EXPECT_THAT(Read(0, 4), ElementsAre("CPU:0 0", "CPU:0 1", "CPU:0 2", "CPU:0 3"));
  const std::vector<int> read = Reads().all();
  for (const int number : {0, 1, 2})
    EXPECT_EQ(std::count(read.begin(), read.end(), number), 1) << number << " was read again";
  Open(kReadAhead(int64_t{2}));
  EXPECT_EQ(input_.first->projection, DigestOf(ListOf({0, 1})).projection);
  EXPECT_THAT(Read(0, 4), ElementsAre("CPU:0 0", "CPU:0 1"));
}

TEST_F(ReadAheadTest, AWorkerThatBeginsAmongTheFirstElementsReadsNoneTwice) {
  for (const int first : {0, 1, 2}) {
    Reads().Clear();
    Open(kReadAhead(int64_t{9}));
    EXPECT_THAT(Read(first, 1), ElementsAre(absl::StrCat("CPU:0 ", first)));
    EXPECT_THAT(Read(first + 1, 1), ElementsAre(absl::StrCat("CPU:0 ", first + 1)));
    const std::vector<int> read = Reads().all();
    for (const int number : {0, 1, 2})
      EXPECT_EQ(std::count(read.begin(), read.end(), number), 1)
          << number << ", beginning with " << first;
  }
}

TEST_F(ReadAheadTest, AnErrorAmongTheFirstElementsIsThatOfTheStepThatReadsIt) {
  Open(kDamaged(int64_t{9}));
  EXPECT_FALSE(input_.first.has_value());
  EXPECT_THAT(Read(0, 1), ElementsAre("CPU:0 0"));
  EXPECT_EQ(inputs_->Read(kIterator, 1, 1).status().message(), "number 1 is damaged");
  EXPECT_THAT(Read(2, 2), ElementsAre("CPU:0 2", "CPU:0 3"));
}

TEST_F(ReadAheadTest, AWorkerThatBeginsElsewhereGoesThereAndMayComeBack) {
  Open(kNumbers(int64_t{9}));
  EXPECT_THAT(Read(5, 1), ElementsAre("CPU:0 5"));
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
}

TEST_F(ReadAheadTest, DataThatIsNotLeasedOrHasNoElementHasNoDigest) {
  Open(kNumbers(int64_t{9}), /*leased=*/false);
  EXPECT_FALSE(input_.first.has_value());
  EXPECT_THAT(Reads().all(), IsEmpty());
  Open(kNumbers(int64_t{0}));
  EXPECT_FALSE(input_.first.has_value());
  EXPECT_THAT(Read(0, 1), IsEmpty());
}

TEST_F(ReadAheadTest, WhatIsReadAheadLiesOnTheReplicasDevices) {
  Open(kNumbers(int64_t{9}));
  ReadAhead(0, 2);
  ASSERT_TRUE(Reads().WaitFor(2));
  EXPECT_THAT(Read(0, 2), ElementsAre("GPU:0 0", "GPU:1 1"));
  EXPECT_THAT(Read(2, 2), ElementsAre("CPU:0 2", "CPU:0 3"));
}

TEST_F(ReadAheadTest, PositionsWaitForThoseBeforeThemSoThatNobodyGoesBack) {
  Open(kNumbers(int64_t{9}));
  ReadAhead(4, 2);
  ReadAhead(2, 2);
  EXPECT_THAT(Reads().all(), ElementsAre(0))
      << "the first element is read of every leased iterator";
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
  ASSERT_TRUE(Reads().WaitFor(6));
  EXPECT_THAT(Read(2, 2), ElementsAre("GPU:0 2", "GPU:1 3"));
  EXPECT_THAT(Read(4, 2), ElementsAre("GPU:0 4", "GPU:1 5"));
  EXPECT_THAT(Reads().all(), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(ReadAheadTest, WhatIsForgottenIsReadAgainAtItsPosition) {
  Open(kNumbers(int64_t{9}));
  ReadAhead(0, 2);
  ASSERT_TRUE(Reads().WaitFor(2));
  Forget(0, 2);
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
  Forget(2, 2);
  EXPECT_THAT(Read(2, 2), ElementsAre("CPU:0 2", "CPU:0 3"));
  EXPECT_THAT(Reads().all(), ElementsAre(0, 1, 0, 1, 2, 3));
}

TEST_F(ReadAheadTest, AStepThatIsRunAgainReadsTheSame) {
  Open(kNumbers(int64_t{9}));
  ReadAhead(0, 2);
  ASSERT_TRUE(Reads().WaitFor(2));
  EXPECT_THAT(Read(0, 2), ElementsAre("GPU:0 0", "GPU:1 1"));
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
}

TEST_F(ReadAheadTest, TheEndOfTheDataIsWhereItIs) {
  Open(kNumbers(int64_t{3}));
  ReadAhead(0, 2);
  ReadAhead(2, 2);
  ReadAhead(3, 2);
  ASSERT_TRUE(Reads().WaitFor(3));
  EXPECT_THAT(Read(0, 2), ElementsAre("GPU:0 0", "GPU:1 1"));
  EXPECT_THAT(Read(2, 2), ElementsAre("GPU:0 2"));
  EXPECT_THAT(Read(3, 2), IsEmpty());
}

TEST_F(ReadAheadTest, WhatIsReadAheadOfAClosedIteratorIsGone) {
  Open(kNumbers(int64_t{9}));
  ReadAhead(0, 2);
  ASSERT_TRUE(Reads().WaitFor(2));
  inputs_->Close(kIterator);
  EXPECT_EQ(ReasonOf(inputs_->Read(kIterator, 0, 2).status()), Reason::kInputAborted);
  ReadAhead(2, 2);
  Open(kNumbers(int64_t{9}));
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
}

TEST_F(ReadAheadTest, ABatchThatFindsNoRoomOnTheDeviceIsBroughtThereByItsStep) {
  Open(kNumbers(int64_t{9}));
  math_.free_bytes = 0;
  ReadAhead(0, 1);
  ASSERT_TRUE(Uploads().WaitFor(1));
  EXPECT_THAT(Read(0, 1), ElementsAre("CPU:0 0"));
}

TEST_F(ReadAheadTest, NothingIsReadAheadForReplicasOnTheCpuNorWhereTheDataStaysThere) {
  Open(kOnTheCpu(int64_t{9}));
  ReadAhead(0, 2);
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
  UseDevices({Device{}, Device{}});
  Open(kNumbers(int64_t{9}));
  ReadAhead(0, 2);
  EXPECT_THAT(Read(0, 2), ElementsAre("CPU:0 0", "CPU:0 1"));
  EXPECT_THAT(Uploads().all(), IsEmpty());
}

// ---- prefetching while a step computes ----------------------------------------------------------

TEST_F(ReadAheadTest, TheNextBatchIsToldToTheDeviceBeforeWhatTheStepComputesIsWaitedFor) {
  UseDevices({Gpu(0)});
  Open(kNumbers(int64_t{9}));
  ReadAhead(6, 1);
  ASSERT_TRUE(inputs_->Read(kIterator, 4, 1).ok());
  EXPECT_EQ(Run("input_test/compute", 5), "10.000000");
  EXPECT_EQ(Run("input_test/take", 6), "GPU:0 6");
  EXPECT_THAT(Reads().all(), ElementsAre(0, 4, 5, 6))
      << "the batch of the second step was read once";
}

TEST_F(ReadAheadTest, ABatchThatWasOnItsWayWhenADeviceFailedIsBroughtThereAgain) {
  UseDevices({Gpu(0)});
  Open(kNumbers(int64_t{9}));
  ReadAhead(1, 1);
  EXPECT_EQ(Run("input_test/fail", 0), "GPU:0 (host device 0): a copy failed");
  EXPECT_EQ(Run("input_test/take", 1), "GPU:0 1");
  EXPECT_THAT(Reads().all(), ElementsAre(0, 1, 1));
}

TEST_F(ReadAheadTest, ACopyThatFailsAfterTheStepBeforeFailsTheStepWhoseBatchItIs) {
  UseDevices({Gpu(0)});
  Open(kNumbers(int64_t{9}));
  EXPECT_EQ(Run("input_test/take", 0), "GPU:0 0");
  ReadAhead(1, 1);
  ASSERT_TRUE(Uploads().WaitFor(2));
  math_.Note(0, "a copy failed");
  EXPECT_EQ(Run("input_test/take", 1), "GPU:0 (host device 0): a copy failed");
  EXPECT_EQ(Run("input_test/take", 2), "GPU:0 2");
}

}  // namespace
}  // namespace divvy
