// Tests the order of copies and computations, on emulated devices that run operations as late as
// possible, or at times that a seed chooses.
#include "ops/cuda/transfers.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/testing/captured_log.h"
#include "base/testing/on_threads.h"
#include "base/trace_range.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/cuda/testing/tensor_program.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"

namespace divvy::internal {
namespace {

using cuda::HostMath;
using cuda::HostQueues;
using cuda::Queue;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Manner = HostQueues::Manner;

constexpr Device Gpu(int index) { return {Device::Kind::kGpu, index}; }

// Devices that are in use as long as this object lives.
struct Devices {
  Devices(int n, Manner manner, uint64_t seed = 1, const cuda::TransferOptions& options = {})
      : math(n, manner, seed), backend(math, 0, options) {
    SetGpuMemory(&backend);
    SetGpuBackend(&backend);
  }
  ~Devices() {
    SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }
  HostMath math;
  GpuBackend backend;
};

Tensor Added(const Devices& devices, const Tensor& a, const Tensor& b) {
  Tensor sum = *Tensor::Uninitialized(DType::kFloat32, a.shape(), a.device());
  devices.backend.Binary(BinaryOp::kAdd, a, b, sum);
  return sum;
}

// Whether an emulated device has written to the tensor.
bool IsComputed(const Tensor& there) {
  uint32_t bits;
  std::memcpy(&bits, there.data(), sizeof(bits));
  return bits != 0xA5A5A5A5;
}

// Frees the cached memory, as happens when a device has no other memory.
void GiveBackWhatIsKept(Devices& devices) {
  devices.math.free_bytes = 0;
  for (int i = 0; i < 2; ++i)
    EXPECT_FALSE(Tensor::Uninitialized(DType::kFloat32, {int64_t{1} << 30}, Gpu(i)).ok());
}

TEST(TransfersTest, WhateverTheOrderThatEventsAllowTheValuesAreRight) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    for (const Manner manner : {Manner::kAtOnce, Manner::kLate, Manner::kAnyTime}) {
      SCOPED_TRACE("seed " + std::to_string(seed) + " in manner " +
                   std::to_string(static_cast<int>(manner)));
      cuda::TransferOptions options;
      // Small limits, which are soon reached.
      if (seed % 3 == 0) options = {size_t{800} << 10, size_t{5} << 20};
      options.keeps_memory = seed % 2 == 0;
      Devices devices(2, manner, seed, options);
      if (seed % 7 == 0) devices.math.pinned_bytes = 0;
      TensorProgram(devices.backend, 2, seed).Run(150);
      if (options.keeps_memory) GiveBackWhatIsKept(devices);
      devices.math.FinishAll();
      EXPECT_EQ(devices.math.bytes_in_use(0) + devices.math.bytes_in_use(1), 0u);
      EXPECT_THAT(devices.math.log, Not(Contains(HasSubstr("has not"))));
      ASSERT_FALSE(::testing::Test::HasFailure());
    }
  }
}

TEST(TransfersTest, AValueComesDownWhileWhatWasToldLaterHasNotBegun) {
  Devices devices(1, Manner::kLate);
  const Tensor x = *Filled(100, 2).To(Gpu(0));
  const Tensor first = Added(devices, x, x);
  first.MarkWritten();
  const Tensor second = Added(devices, first, first);
  EXPECT_TRUE(AllAre((*ToHost({first}))[0], 4));
  EXPECT_FALSE(IsComputed(second));
  EXPECT_TRUE(AllAre(*second.To(Device{}), 8));  // not marked, so it waits for all operations
}

TEST(TransfersTest, ValuesComeInTheOrderInWhichTheyAreComputed) {
  Devices devices(1, Manner::kAtOnce);
  const Tensor early = *Filled(3, 1).To(Gpu(0)), late = *Filled(4, 1).To(Gpu(0));
  early.MarkWritten();
  late.MarkWritten();
  devices.math.log.clear();
  ASSERT_TRUE(ToHost({late, Tensor(), early}).ok());
  EXPECT_THAT(devices.math.log,
              ElementsAre("0 out: wait", "0 out: copy 12", "0 out: wait", "0 out: copy 16",
                          absl::StrCat("0 out: copy ", sizeof(cuda::Fault)), "0 out: record"));
}

TEST(TransfersTest, AnUploadNeedNotWaitForTheComputation) {
  Devices devices(1, Manner::kLate);
  const Tensor x = *Filled(100, 2).To(Gpu(0));
  const Tensor sum = Added(devices, x, x);
  const Tensor next = *Filled(100, 3).To(Gpu(0));
  const cuda::Event arrived = devices.math.Record(0, Queue::kInSmall);
  devices.math.Await(0, arrived);
  devices.math.Release(arrived);
  // The memory of an emulated device is the host's, so the test may read it.
  EXPECT_EQ(*next.data_as<float>(), 3);
  EXPECT_FALSE(IsComputed(sum));
}

TEST(TransfersTest, WhatIsComputedWithASmallValueNeedNotWaitForALargeOneBeforeIt) {
  Devices devices(1, Manner::kLate);
  const Tensor large = *Filled(1'500'000, 1).To(Gpu(0)), small = *Filled(3, 2).To(Gpu(0));
  EXPECT_TRUE(AllAre(*Added(devices, small, small).To(Device{}), 4));
  EXPECT_FALSE(IsComputed(large));
  EXPECT_TRUE(AllAre(*Added(devices, large, large).To(Device{}), 2)) << "it waits for its own copy";
}

TEST(TransfersTest, ALargeValueComesDownOrAcrossBeforeAnybodyHasComputedWithIt) {
  Devices devices(2, Manner::kLate);
  const Tensor first = *Filled(50'000, 3).To(Gpu(0)), second = *Filled(50'000, 4).To(Gpu(0)),
               third = *Filled(50'000, 5).To(Gpu(0));
  first.MarkWritten();
  second.MarkWritten();
  EXPECT_TRUE(AllAre(*first.To(Device{}), 3));
  EXPECT_TRUE(AllAre(*second.To(Gpu(1))->To(Device{}), 4));
  EXPECT_FALSE(IsComputed(third));
}

TEST(TransfersTest, ALargeValueThatIsUsedAfterItWasMarkedComesDownAllTheSame) {
  Devices devices(1, Manner::kLate);
  const Tensor large = *Filled(50'000, 3).To(Gpu(0));
  large.MarkWritten();
  const Tensor sum = Added(devices, large, large);
  EXPECT_TRUE(AllAre(*large.To(Device{}), 3));
  EXPECT_FALSE(IsComputed(sum));
}

TEST(TransfersTest, ALargeValueThatNobodyUsesIsFreedWhenItHasCome) {
  Devices devices(1, Manner::kLate);
  ASSERT_TRUE(Filled(50'000, 3).To(Gpu(0)).ok());
  devices.math.FinishAll();
  EXPECT_EQ(devices.math.bytes_in_use(0), 0u);
  EXPECT_THAT(devices.math.log, Not(Contains(HasSubstr("has not"))));
}

// Such as a dataset, or the tables of a parameter server in the same process.
TEST(TransfersTest, WhatNeverTravelsIsNotPinned) {
  Devices devices(1, Manner::kLate);
  const Tensor stays = Filled(50'000, 7);
  EXPECT_EQ(devices.math.pinned_in_use(), 0u);
  const Tensor there = *Filled(50'000, 7).To(Gpu(0));
  devices.math.FinishAll();
  const size_t staging = devices.math.pinned_in_use();
  const Tensor batch = Filled(50'100, 8), smaller = Filled(30'000, 8);
  EXPECT_EQ(devices.math.pinned_in_use(), staging + 229'376)
      << "only the batch, whose size was copied before";
  const Tensor sum = Added(devices, there, *Filled(50'000, 1).To(Gpu(0)));
  EXPECT_TRUE(AllAre(*sum.To(Device{}), 8));
  Tensor large = *Tensor::Uninitialized(DType::kFloat32, {90'000}, Gpu(0));
  ASSERT_TRUE(large.To(Device{}).ok());
  const size_t before = devices.math.pinned_in_use();
  ASSERT_TRUE(large.To(Device{}).ok());
  EXPECT_EQ(devices.math.pinned_in_use(), before + 393'216)
      << "a size that came from the device before is pinned";
}

TEST(TransfersTest, ThatPinnedMemoryIsUsedUpIsLoggedOnce) {
  CapturedLog log;
  cuda::TransferOptions options;
  options.host_bytes = 2'000'000;
  Devices devices(1, Manner::kLate, 1, options);
  ASSERT_TRUE(Filled(50'000, 7).To(Gpu(0)).ok());
  std::vector<Tensor> held;
  for (int i = 0; i < 8; ++i) held.push_back(Filled(50'000, 7));
  EXPECT_EQ(log.lines().size(), 0u);
  for (int i = 0; i < 8; ++i) held.push_back(Filled(50'000, 7));
  EXPECT_THAT(log.lines(),
              ElementsAre("Wpinned memory is used up: its "
                          "limit is 2000000 bytes, and a tensor of 200000 bytes gets none. Such "
                          "tensors are copied once more on their way to or from a GPU, and steps "
                          "are slower. Make batches or --pipeline_depth smaller"));
}

TEST(TransfersTest, PinnedMemoryIsReadFromWhereItLiesAndKeptUntilTheDeviceHasRead) {
  Devices devices(1, Manner::kLate);
  ASSERT_TRUE(Filled(50'000, 7).To(Gpu(0)).ok());  // from now on tensors of this size are pinned
  devices.math.FinishAll();
  Tensor here = Filled(50'000, 7);
  const void* const where = here.data();
  const size_t pinned = devices.math.pinned_in_use();
  const Tensor there = *here.To(Gpu(0));
  EXPECT_EQ(devices.math.pinned_in_use(), pinned);  // nothing was staged
  here = Tensor();
  EXPECT_NE(Filled(50'000, 8).data(), where);
  devices.math.FinishAll();
  // When the host uses the device, it notices that the copy is done.
  const Tensor another = *Tensor::Vector<float>({1}).To(Gpu(0));
  std::vector<Tensor> both = {Filled(50'000, 9), Filled(50'000, 9)};
  EXPECT_TRUE(both[0].data() == where || both[1].data() == where);
  EXPECT_TRUE(AllAre(*there.To(Device{}), 7));
}

TEST(TransfersTest, IdsThatCameFromTheCpuAreReadThere) {
  Devices devices(2, Manner::kLate);
  const Tensor ids = Tensor::Vector<int64_t>({4, 2, 4}), there = *ids.To(Gpu(0)),
               across = *there.Rows(1, 3)->To(Gpu(1));
  devices.math.log.clear();
  EXPECT_EQ(there.To(Device{})->data(), ids.data());
  EXPECT_EQ(across.To(Device{})->data_as<int64_t>(), ids.data_as<int64_t>() + 1);
  EXPECT_THAT(*across.Rows(1, 2)->To(Device{})->values<int64_t>(), ElementsAre(4));
  MapReader table({{"table", Filled(6, 1)}});
  GradientTape tape(table);
  EXPECT_TRUE(tape.Lookup("table", Var(there)).Value().ok());
  EXPECT_THAT(devices.math.log, Not(Contains(HasSubstr("out"))));
}

Tensor Integers(int64_t n, int64_t value) {
  return Tensor::Vector<int64_t>(std::vector<int64_t>(static_cast<size_t>(n), value));
}

// Copies integers in the way of a batch's integers.
Tensor ToWhenUsed(const Tensor& integers, Device device) {
  const TravelScope scope(Travel::kIntegersWhenUsed);
  return *integers.To(device);
}

TEST(TransfersTest, LargeIntegersOfABatchTravelWhenTheyAreFirstUsedAndNotAgain) {
  constexpr int64_t kN = 30'000;
  Devices devices(1, Manner::kLate);
  const Tensor ids = ToWhenUsed(Integers(kN, 2), Gpu(0)),
               table = *Tensor::Copy<float>({3, 1}, {10, 11, 12})->To(Gpu(0));
  const int64_t uploads = devices.math.costs().uploads;
  EXPECT_EQ(uploads, 1) << "the table";
  for (int i = 0; i < 2; ++i) {
    Tensor rows = *Tensor::Uninitialized(DType::kFloat32, {kN, 1}, Gpu(0));
    ASSERT_TRUE(devices.backend.GatherRows(table, ids, rows).ok());
    EXPECT_EQ(devices.math.costs().uploads, uploads + 1);
    EXPECT_TRUE(AllAre(*rows.To(Device{}), 12));
  }
  EXPECT_THAT(devices.math.log, Not(Contains(HasSubstr("has not"))));
}

TEST(TransfersTest, IntegersTravelAtOnceThatAreSmallOrOfASizeThatIsUsedOrOfNoBatch) {
  Devices devices(1, Manner::kLate);
  int64_t uploads = 0;
  const auto travelled = [&] {
    return devices.math.costs().uploads - std::exchange(uploads, devices.math.costs().uploads);
  };
  const Tensor small = ToWhenUsed(Integers(8'000, 2), Gpu(0));
  EXPECT_EQ(travelled(), 1);
  EXPECT_THAT(devices.math.log, Contains("0 in small: copy 64000"));
  const Tensor of_no_batch = *Integers(30'000, 2).To(Gpu(0));
  EXPECT_EQ(travelled(), 1);
  const Tensor ids = ToWhenUsed(Integers(30'000, 2), Gpu(0)),
               unused = ToWhenUsed(Integers(60'000, 2), Gpu(0));
  EXPECT_EQ(travelled(), 0);
  Tensor used = *Tensor::Uninitialized(DType::kFloat32, ids.shape(), Gpu(0));
  devices.backend.Cast(ids, used);
  EXPECT_EQ(travelled(), 1);
  const Tensor next = ToWhenUsed(Integers(30'000, 3), Gpu(0));
  EXPECT_EQ(travelled(), 1) << "with its batch";
  const Tensor next_unused = ToWhenUsed(Integers(60'000, 3), Gpu(0));
  EXPECT_EQ(travelled(), 0);
}

TEST(TransfersTest, IntegersThatNobodyUsesDoNotTravelAndLetGoOfWhereTheyCameFrom) {
  for (const bool keeps_memory : {false, true}) {
    cuda::TransferOptions options;
    options.keeps_memory = keeps_memory;
    Devices devices(1, Manner::kLate, 1, options);
    bool is_held = true;
    {
      const std::shared_ptr<const void> owner(&is_held, [](bool* held) { *held = false; });
      const std::vector<int64_t> values(20'000, 1);
      void* const data = *devices.backend.UploadWhenUsed(
          Gpu(0), values.data(), 8 * static_cast<int64_t>(values.size()), owner);
      devices.backend.Free(Gpu(0), data);
    }
    EXPECT_FALSE(is_held);
    devices.math.FinishAll();
    EXPECT_EQ(devices.math.costs().uploads, 0);
    if (!keeps_memory) {
      EXPECT_EQ(devices.math.bytes_in_use(0), 0u);
    }
    EXPECT_THAT(devices.math.log, Not(Contains(HasSubstr("has not"))));
  }
}

TEST(TransfersTest, IntegersThatSeveralThreadsUseAtOnceTravelOnce) {
  for (int round = 0; round < 50; ++round) {
    Devices devices(1, Manner::kAtOnce);
    const Tensor ids = ToWhenUsed(Integers(20'000, round), Gpu(0));
    EXPECT_EQ(devices.math.costs().uploads, 0);
    std::atomic<int> wrong{0};
    OnThreads(4, [&](int) {
      Tensor used = *Tensor::Uninitialized(DType::kFloat32, ids.shape(), Gpu(0));
      devices.backend.Cast(ids, used);
      if (!AllAre(*used.To(Device{}), static_cast<float>(round))) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(devices.math.costs().uploads, 1);
  }
}

// The owner is released when the integers have been sent. Its code then uses the device itself.
TEST(TransfersTest, NoLockIsHeldWhenTheOwnerOfWhatWasSentGoes) {
  Devices devices(1, Manner::kAtOnce);
  constexpr int64_t kN = 20'000, kBytes = 8 * kN;
  const std::vector<int64_t> values(kN, 3);
  const Tensor others = ToWhenUsed(Integers(kN, 4), Gpu(0));
  Tensor used = *Tensor::Uninitialized(DType::kFloat32, others.shape(), Gpu(0)),
         copy = *Tensor::Uninitialized(DType::kInt64, {kN}, Gpu(0));
  bool is_gone = false;
  std::shared_ptr<const void> owner(values.data(), [&](const void*) {
    devices.backend.Cast(others, used);
    is_gone = true;
  });
  void* const data =
      *devices.backend.UploadWhenUsed(Gpu(0), values.data(), kBytes, std::move(owner));
  devices.backend.CopyBlocks(Gpu(0), data, kBytes, copy.fresh_data<void>(), kBytes, kBytes, 1);
  EXPECT_TRUE(is_gone);
  EXPECT_TRUE(AllAre(*used.To(Device{}), 4));
  EXPECT_EQ((*copy.To(Device{})->values<int64_t>())[kN - 1], 3);
  devices.backend.Free(Gpu(0), data);
}

TEST(TransfersTest, AValueThatIsLargerThanWhatMayBePinnedTravelsInPieces) {
  Devices devices(1, Manner::kLate, 1, {0, size_t{8} << 20});
  const Tensor there = *Filled(5'000'000, 7).To(Gpu(0));
  // A piece of 4 MiB that is used in turns, and the last piece of 3.5 MiB.
  EXPECT_EQ(devices.math.pinned_in_use(), 7'864'320u);
  EXPECT_TRUE(AllAre(*there.To(Device{}), 7));
}

TEST(TransfersTest, WhatADeviceFindsWrongIsToldWithTheValuesThatItWasFoundBefore) {
  Devices devices(1, Manner::kLate);
  const Tensor table = *Filled(3, 1).To(Gpu(0)), right = *Tensor::Vector<int64_t>({0}).To(Gpu(0)),
               wrong = *Tensor::Vector<int64_t>({5}).To(Gpu(0));
  Tensor good = *Tensor::Uninitialized(DType::kFloat32, Shape{1}, Gpu(0)),
         bad = *Tensor::Uninitialized(DType::kFloat32, Shape{1}, Gpu(0));
  ASSERT_TRUE(devices.backend.GatherRows(table, right, good).ok());
  good.MarkWritten();
  ASSERT_TRUE(devices.backend.GatherRows(table, wrong, bad).ok());
  bad.MarkWritten();
  EXPECT_TRUE(ToHost({good}).ok());
  EXPECT_EQ(ToHost({good, bad}).status(),
            absl::InvalidArgumentError("Gather: id 5 at 0 is outside [0, 3), the rows of float32 "
                                       "[3], on GPU:0 (host device 0)"));
  EXPECT_TRUE(ToHost({good, bad}).ok());
  devices.math.error = "an illegal memory access was encountered";
  EXPECT_EQ(ToHost({good}).status(),
            absl::InternalError("GPU:0 (host device 0): an illegal memory access was encountered"));
}

// Makes the device gather row 5 of a table with 3 rows.
Tensor WrongRow(Devices& devices, Device device) {
  const Tensor table = *Filled(3, 1).To(device), wrong = *Tensor::Vector<int64_t>({5}).To(device);
  Tensor row = *Tensor::Uninitialized(DType::kFloat32, Shape{1}, device);
  EXPECT_TRUE(devices.backend.GatherRows(table, wrong, row).ok());
  row.MarkWritten();
  return row;
}

TEST(TransfersTest, WhatSeveralDevicesFindWrongIsToldForEach) {
  Devices devices(2, Manner::kLate);
  const Tensor first = WrongRow(devices, Gpu(0)), second = WrongRow(devices, Gpu(1));
  EXPECT_THAT(std::string(ToHost({first, second}).status().message()), HasSubstr("on GPU:0"));
  for (const int i : {0, 1}) {
    const DeviceFailures failures = devices.backend.FindFailures(Gpu(i));
    EXPECT_EQ(failures.count, 1) << i;
    EXPECT_THAT(std::string(failures.last.message()), HasSubstr("on " + Gpu(i).ToString()));
  }
}

TEST(TransfersTest, ADeviceThatIsLostIsToldBeforeWhatAnotherFindsWrong) {
  Devices devices(2, Manner::kLate);
  const Tensor first = WrongRow(devices, Gpu(0)), second = WrongRow(devices, Gpu(1));
  devices.math.Lose(1, "an illegal memory access was encountered");
  const absl::Status told = ToHost({first, second}).status();
  EXPECT_EQ(told.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(told.message()), HasSubstr("GPU:1 (host device 1) is lost"));
  EXPECT_EQ(devices.backend.FindFailures(Gpu(0)).count, 1);
}

// A device on which a thread takes a failure long before it returns it: it waits until another
// thread has asked too, if one does.
class SlowlyTold : public HostMath {
 public:
  SlowlyTold() : HostMath(1, Manner::kLate) { keep_log = false; }
  cuda::Fault TakeFault(int device) override {
    const cuda::Fault fault = HostMath::TakeFault(device);
    LetOthersLook();
    return fault;
  }
  const char* Await(int device, cuda::Event event) override {
    const char* const error = HostMath::Await(device, event);
    ++looks_;
    if (error != nullptr) LetOthersLook();
    return error;
  }

 private:
  void LetOthersLook() {
    const int64_t now = looks_;
    for (int i = 0; i < 10'000 && looks_ == now; ++i) std::this_thread::yield();
    for (int i = 0; i < 300; ++i) std::this_thread::yield();
  }
  std::atomic<int64_t> looks_{0};
};

TEST(TransfersTest, WhoLooksForFailuresFindsThoseThatAnotherThreadHasTakenAndNotYetTold) {
  SlowlyTold math;
  GpuBackend backend(math);
  SetGpuMemory(&backend);
  std::atomic<int> missed{0};
  OnThreads(4, [&](int thread) {
    const Tensor table = *Filled(3, 1).To(Gpu(0)), wrong = *Tensor::Vector<int64_t>({5}).To(Gpu(0));
    for (int i = 0; i < 50; ++i) {
      Tensor row = *Tensor::Uninitialized(DType::kFloat32, Shape{1}, Gpu(0));
      const int64_t before = backend.FindFailures(Gpu(0)).count;
      EXPECT_TRUE(backend.GatherRows(table, wrong, row).ok());
      if (thread % 2 == 0) math.Note(0, "a launch failed");
      // Meanwhile another thread may take the failure.
      for (int turn = 0; turn < 100 * thread; ++turn) std::this_thread::yield();
      if (backend.FindFailures(Gpu(0)).count == before) ++missed;
    }
  });
  EXPECT_EQ(missed, 0);
  SetGpuMemory(nullptr);
}

TEST(TransfersTest, AnErrorThatAnUploadMeetsIsToldWithTheNextValues) {
  Devices devices(1, Manner::kLate, 1, {0, size_t{8} << 20});
  const Tensor good = *Filled(3, 1).To(Gpu(0));
  devices.math.Note(0, "a launch failed");
  const Tensor large = *Filled(5'000'000, 7).To(Gpu(0));  // waits for pinned memory
  EXPECT_EQ(ToHost({good}).status(), absl::InternalError("GPU:0 (host device 0): a launch failed"));
  EXPECT_TRUE(ToHost({good}).ok());
}

TEST(TransfersTest, TheGradientsOfTheLastLayerComeDownBeforeTheFirstIsPassedBack) {
  Devices devices(1, Manner::kLate);
  MapReader none;
  GradientTape tape(none);
  const Var first = tape.Watch("first", *Filled(100, 1).To(Gpu(0))),
            last = tape.Watch("last", *Filled(100, 2).To(Gpu(0)));
  const Gradients gradients =
      *tape.Gradient(ReduceSum(Tanh(first * Var(*Filled(100, 1).To(Gpu(0)))) * last));
  const Tensor of_first = std::get<Tensor>(gradients.entries().at("first")),
               of_last = std::get<Tensor>(gradients.entries().at("last"));
  EXPECT_NEAR((*ToHost({of_last}))[0].values<float>()->at(0), 0.76159, 1e-4);
  EXPECT_FALSE(IsComputed(of_first));
  EXPECT_NEAR((*ToHost({of_first, of_last}))[0].values<float>()->at(0), 0.83995, 1e-4);
}

// Devices that pause between the parts of a collective, and record a copy between devices at that
// moment.
class SlowToMeet : public HostMath {
 public:
  SlowToMeet() : HostMath(2) {}
  bool AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                 cuda::Element element, int64_t n) override {
    is_between_ = true;
    for (int i = 0; i < 50 && !was_disturbed_; ++i) std::this_thread::yield();
    is_between_ = false;
    return HostMath::AllReduce(devices, count, from, to, element, n);
  }
  void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                  size_t bytes) override {
    ++copies_;
    if (is_between_) was_disturbed_ = true;
    HostMath::CopyAcross(device, queue, to, from_device, from, bytes);
  }
  bool was_disturbed() const { return was_disturbed_; }
  int copies() const { return copies_; }

 private:
  std::atomic<bool> is_between_{false}, was_disturbed_{false};
  std::atomic<int> copies_{0};
};

// Two workers of an embedded cluster may share GPUs. A copy that is issued between the two parts
// would wait for the first part, and the second part would wait for the copy.
TEST(TransfersTest, NoCopyAcrossComesBetweenThePartsOfACollective) {
  SlowToMeet math;
  math.keep_log = false;
  math.all_reduces = true;
  GpuBackend backend(math);
  SetGpuMemory(&backend);
  {
    const std::vector<Tensor> values = {*Filled(4, 1).To(Gpu(0)), *Filled(4, 2).To(Gpu(1))};
    std::atomic<bool> done{false};
    ThreadPoolExecutor copies(1);
    copies.Post([&] {
      while (!done) EXPECT_TRUE(values[0].To(Gpu(1)).ok());
    });
    for (int i = 0; i < 20 || math.copies() == 0; ++i)
      EXPECT_EQ(backend.AllReduce(values)->size(), 2);
    done = true;
    copies.Stop();
  }
  EXPECT_FALSE(math.was_disturbed());
  SetGpuMemory(nullptr);
}

TEST(PinnedPoolTest, KeepsWhatIsReturnedAndPinsNoMoreThanItMay) {
  HostMath math(1);
  {
    cuda::PinnedPool pool(math, 100'000);
    char* const a = static_cast<char*>(pool.Take(40'000));
    EXPECT_EQ(math.pinned_in_use(), 40'960u);  // five quarters of 32 KiB
    EXPECT_TRUE(pool.Owns(a) && pool.Owns(a + 40'959));
    EXPECT_FALSE(pool.Owns(a + 40'960) || pool.Owns(a - 1));
    void* const b = pool.Take(40'000);
    EXPECT_EQ(pool.Take(40'000), nullptr);
    pool.Return(a);
    EXPECT_FALSE(pool.Owns(a));
    EXPECT_EQ(pool.Take(39'000), a);
    pool.Return(b);
    // Blocks of the other class are unpinned for it.
    EXPECT_NE(pool.Take(50'000), nullptr);
    EXPECT_EQ(math.pinned_in_use(), 40'960u + 57'344u);
    pool.Return(a);
    EXPECT_EQ(pool.Take(100'001), nullptr);
    // Nothing was unpinned for a block that does not fit.
    EXPECT_EQ(math.pinned_in_use(), 40'960u + 57'344u);
  }
}

TEST(TraceRangeTest, CopiesAreSeenWhereSomebodyLooks) {
  class Names : public TraceSink {
   public:
    void Begin(const char* name) override { seen.push_back(name); }
    void End() override { seen.push_back("end"); }
    std::vector<std::string> seen;
  };
  Names names;
  Devices devices(1, Manner::kAtOnce);
  const Tensor unseen = *Filled(3, 1).To(Gpu(0));
  SetTraceSink(&names);
  const Tensor seen = *Filled(3, 1).To(Gpu(0));
  ASSERT_TRUE(ToHost({seen}).ok());
  SetTraceSink(nullptr);
  EXPECT_THAT(names.seen, ElementsAre("copy to a device", "end", "copy to the host", "end"));
}

// The tests above rely on this: a device that runs as late as possible reveals a missing wait.
TEST(HostQueuesTest, AMissingWaitIsSeen) {
  HostMath math(1, Manner::kLate);
  const float value = 3;
  float result = 0;
  auto* const pinned = static_cast<float*>(math.AllocatePinned(sizeof(float)));
  *pinned = value;
  void* const there = math.AllocateFor(0, Queue::kIn, sizeof(float));
  math.Copy(0, Queue::kIn, there, pinned, sizeof(float));
  math.CopyOut(0, &result, there, sizeof(float));
  EXPECT_NE(result, value);
  EXPECT_THAT(math.log, Contains(HasSubstr("has not")));
  math.log.clear();
  const cuda::Event copied = math.Record(0, Queue::kIn);
  EXPECT_FALSE(math.HasCompleted(copied));
  math.Wait(0, Queue::kCompute, copied);
  math.Release(copied);
  math.CopyOut(0, &result, there, sizeof(float));
  EXPECT_EQ(result, value);
  EXPECT_THAT(math.log, ElementsAre("0 in: record", "0 compute: wait", "0 out 4"));
}

}  // namespace
}  // namespace divvy::internal
