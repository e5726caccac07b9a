#include "tensor/copies_ahead.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/testing/on_threads.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "tensor/device_memory.h"

namespace divvy::internal {
namespace {

constexpr Device kGpu{Device::Kind::kGpu, 0}, kOther{Device::Kind::kGpu, 1};

// Any limit makes the backend count the bytes of tensors.
constexpr int64_t kNoLimit = int64_t{1} << 50;

cuda::TransferOptions Keeping(bool keeps_memory) {
  cuda::TransferOptions options;
  options.keeps_memory = keeps_memory;
  return options;
}

// The parameter: whether freed memory is cached.
class CopiesAheadTest : public ::testing::TestWithParam<bool> {
 protected:
  CopiesAheadTest() { SetGpuMemory(&backend_); }
  ~CopiesAheadTest() override { SetGpuMemory(nullptr); }

  static Tensor Values(float first, int64_t n = 100'000) {
    std::vector<float> values(static_cast<size_t>(n));
    for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
    return *Tensor::Copy<float>({n}, values);
  }
  static void Copy(const std::vector<CopyWanted>& wanted) { PromiseCopies(wanted)(); }
  // Uses the device, because the owner of a copied value is only released at the next use.
  void UseDevice(Device device = kGpu) {
    const absl::StatusOr<Tensor> there = Tensor::Vector<float>({1}).To(device);
    ASSERT_TRUE(there.ok() && there->To(Device{}).ok());
  }

  cuda::HostMath math_{2};
  GpuBackend backend_{math_, kNoLimit, Keeping(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(KeepsMemory, CopiesAheadTest, ::testing::Bool());

TEST_P(CopiesAheadTest, ACopyIsFoundOnItsDeviceAsOftenAsItIsWanted) {
  const Tensor large = Values(1), small = Values(2, 3), unasked = Values(3);
  Copy({{large, {kGpu, kOther}}, {small, {kGpu}}});
  const int64_t uploads = math_.costs().uploads;
  EXPECT_EQ(uploads, 3);
  for (int i = 0; i < 2; ++i) {
    for (const auto& [value, device] :
         {std::pair(large, kGpu), std::pair(large, kOther), std::pair(small, kGpu)}) {
      const std::optional<Tensor> copy = FindCopyAhead(value, device);
      ASSERT_TRUE(copy.has_value());
      EXPECT_EQ(copy->device(), device);
      EXPECT_TRUE(BitwiseEqual(*copy->To(Device{}), value));
    }
  }
  EXPECT_EQ(FindCopyAhead(small, kOther), std::nullopt);
  EXPECT_EQ(FindCopyAhead(unasked, kGpu), std::nullopt);
  EXPECT_EQ(FindCopyAhead(*large.Rows(0, 10), kGpu), std::nullopt) << "a part of it";
  EXPECT_EQ(math_.costs().uploads, uploads);
}

TEST_P(CopiesAheadTest, WhoeverAsksBeforeTheCopyIsBegunIsQuicker) {
  const Tensor value = Values(1);
  const std::function<void()> make = PromiseCopies({{value, {kGpu}}});
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  make();
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  EXPECT_EQ(math_.costs().uploads, 0);
}

TEST_P(CopiesAheadTest, TheCopiesGoWithTheValuesAndWithTheWord) {
  for (const bool drop : {false, true}) {
    {
      const Tensor value = Values(1);
      Copy({{value, {kGpu}}});
      EXPECT_GT(backend_.bytes_in_use(0), 0);
      if (drop) {
        DropCopiesAhead(kOther);
        EXPECT_TRUE(FindCopyAhead(value, kGpu).has_value());
        EXPECT_TRUE(DropCopiesAhead(kGpu));
        EXPECT_FALSE(DropCopiesAhead(kGpu));
        EXPECT_EQ(backend_.bytes_in_use(0), 0);
        EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
      }
    }
    UseDevice();
    EXPECT_EQ(backend_.bytes_in_use(0), 0);
  }
}

TEST_P(CopiesAheadTest, IntegersAndValuesWithoutBytesAreLeftOut) {
  {
    const Tensor ids = Tensor::Vector<int64_t>({1, 2, 3}), empty = Values(0, 0);
    Copy({{ids, {kGpu}}, {empty, {kGpu}}});
    EXPECT_EQ(FindCopyAhead(ids, kGpu), std::nullopt);
    EXPECT_EQ(FindCopyAhead(empty, kGpu), std::nullopt);
  }
  EXPECT_EQ(math_.costs().uploads, 0);
}

TEST_P(CopiesAheadTest, AValueThatIsChangedHasNoCopy) {
  Tensor value = Values(1);
  Copy({{value, {kGpu}}});
  UseDevice();
  value.mutable_values<float>()->at(0) = 7;
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
}

TEST_P(CopiesAheadTest, WhereThereIsNoMemoryThereIsNoCopyAndNoFailure) {
  const Tensor value = Values(1);
  math_.free_bytes = 1000;
  Copy({{value, {kGpu}}});
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  EXPECT_EQ(backend_.FindFailures(kGpu).count, 0);
}

TEST_P(CopiesAheadTest, MemoryThatIsWantedNowIsTakenFromCopies) {
  const Tensor value = Values(1);
  Copy({{value, {kGpu}}});
  UseDevice();
  math_.free_bytes = 500'000;
  EXPECT_TRUE(Tensor::Uninitialized(DType::kFloat32, {100'000}, kGpu).ok());
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  EXPECT_EQ(Tensor::Uninitialized(DType::kFloat32, {200'000}, kGpu).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_P(CopiesAheadTest, AKernelsScratchMemoryIsTakenFromCopiesToo) {
  const Tensor value = Values(1);
  Copy({{value, {kGpu}}});
  UseDevice();
  math_.free_bytes = 500'000;
  void* const scratch = math_.AllocateScratch(0, 300'000);
  EXPECT_NE(scratch, nullptr);
  EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  if (scratch != nullptr) math_.Free(0, scratch);
}

TEST_P(CopiesAheadTest, WhereMemoryRunsOutTheCopiesThatWereMadeStayAndNothingIsGivenUp) {
  // Its memory may be cached.
  ASSERT_TRUE(Tensor::Uninitialized(DType::kFloat32, {10'000}, kGpu).ok());
  const Tensor small = Values(1, 3), first = Values(2), second = Values(3),
               before = Values(4, 20'000);
  Copy({{before, {kGpu}}});
  math_.free_bytes = 700'000;
  const size_t in_use = math_.bytes_in_use(0);
  Copy({{first, {kGpu}}, {small, {kGpu}}, {second, {kGpu}}});
  EXPECT_GT(math_.bytes_in_use(0), in_use + 400'000)
      << "no cached memory was returned to the device";
  for (const Tensor& value : {before, small, first}) {
    const std::optional<Tensor> copy = FindCopyAhead(value, kGpu);
    ASSERT_TRUE(copy.has_value()) << value.ToString();
    EXPECT_TRUE(BitwiseEqual(*copy->To(Device{}), value));
  }
  EXPECT_EQ(FindCopyAhead(second, kGpu), std::nullopt);
}

// A device whose first large copy pauses until an allocation has failed.
class PausingMath : public cuda::HostMath {
 public:
  using HostMath::HostMath;
  void Copy(int device, cuda::Queue queue, void* to, const void* from, size_t bytes) override {
    if (queue == cuda::Queue::kIn) {
      MutexLock lock(mu_);
      has_begun_ = true;
      changed_.NotifyAll();
      changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return was_refused_; });
    }
    HostMath::Copy(device, queue, to, from, bytes);
  }
  void* AllocateFor(int device, cuda::Queue queue, size_t bytes) override {
    void* const data = HostMath::AllocateFor(device, queue, bytes);
    if (data != nullptr) return data;
    MutexLock lock(mu_);
    was_refused_ = true;
    changed_.NotifyAll();
    return nullptr;
  }
  void AwaitCopy() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return has_begun_; });
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool has_begun_ DIVVY_GUARDED_BY(mu_) = false;
  bool was_refused_ DIVVY_GUARDED_BY(mu_) = false;
};

class CopiesUnderWayTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(KeepsMemory, CopiesUnderWayTest, ::testing::Bool());

// Memory does not suffice for the step and the copy in flight, but it suffices for the step alone.
TEST_P(CopiesUnderWayTest, GiveWayToMemoryThatIsWantedNow) {
  for (const bool is_scratch : {false, true}) {
    PausingMath math(1);
    GpuBackend backend(math, 0, Keeping(GetParam()));
    SetGpuMemory(&backend);
    math.free_bytes = 950'000;
    {
      const Tensor first = *Tensor::Zeros(DType::kFloat32, {100'000}),
                   second = *Tensor::Zeros(DType::kFloat32, {100'000});
      const std::function<void()> make = PromiseCopies({{first, {kGpu}}, {second, {kGpu}}});
      OnThreads(2, [&](int thread) {
        if (thread == 0) return make();
        math.AwaitCopy();
        if (is_scratch) {
          void* const scratch = math.AllocateScratch(0, 600'000);
          EXPECT_NE(scratch, nullptr);
          if (scratch != nullptr) math.Free(0, scratch);
        } else {
          const absl::StatusOr<Tensor> wanted =
              Tensor::Uninitialized(DType::kFloat32, {150'000}, kGpu);
          EXPECT_TRUE(wanted.ok()) << wanted.status();
        }
      });
      EXPECT_EQ(FindCopyAhead(first, kGpu), std::nullopt);
      EXPECT_EQ(FindCopyAhead(second, kGpu), std::nullopt);
    }
    SetGpuMemory(nullptr);
  }
}

// A device that calls `crowd` when memory is first freed, so that another copy can take the memory
// at once.
class CrowdedMath : public cuda::HostMath {
 public:
  using HostMath::HostMath;
  void Free(int device, void* data) override {
    HostMath::Free(device, data);
    if (crowd != nullptr) std::exchange(crowd, nullptr)();
  }
  std::function<void()> crowd;
};

TEST(CopiesBeginTest, WhatACopyTakesThatBeginsAfterTheOthersWereDroppedIsTakenFromItToo) {
  CrowdedMath math(1);
  GpuBackend backend(math);
  SetGpuMemory(&backend);
  {
    const Tensor first = *Tensor::Zeros(DType::kFloat32, {100'000}),
                 second = *Tensor::Zeros(DType::kFloat32, {100'000});
    PromiseCopies({{first, {kGpu}}})();
    math.free_bytes = 500'000;
    bool is_copied = false;
    math.crowd = [&] {
      PromiseCopies({{second, {kGpu}}})();
      is_copied = FindCopyAhead(second, kGpu).has_value();
    };
    const absl::StatusOr<Tensor> wanted = Tensor::Uninitialized(DType::kFloat32, {100'000}, kGpu);
    EXPECT_TRUE(wanted.ok()) << wanted.status();
    EXPECT_TRUE(is_copied);
    EXPECT_EQ(FindCopyAhead(second, kGpu), std::nullopt);
  }
  SetGpuMemory(nullptr);
}

TEST(CopiesAheadLimitTest, SoIsMemoryBeyondTheLimit) {
  cuda::HostMath math(1);
  GpuBackend backend(math, 500'000);
  SetGpuMemory(&backend);
  {
    const Tensor value = *Tensor::Zeros(DType::kFloat32, {100'000});
    PromiseCopies({{value, {kGpu}}})();
    EXPECT_EQ(backend.bytes_in_use(0), 400'000);
    EXPECT_TRUE(value.To(kGpu).ok());
    EXPECT_EQ(FindCopyAhead(value, kGpu), std::nullopt);
  }
  SetGpuMemory(nullptr);
}

// Threads make, find and drop copies concurrently. A copy that is found is always right.
TEST_P(CopiesAheadTest, ThreadsMayMakeFindAndDropAtOnce) {
  for (int round = 0; round < 200; ++round) {
    const Tensor value = Values(static_cast<float>(round), 20'000);
    const std::function<void()> make = PromiseCopies({{value, {kGpu}}});
    std::atomic<int> wrong{0};
    OnThreads(4, [&](int thread) {
      if (thread == 0) return make();
      if (thread == 1 && round % 2 == 0) return static_cast<void>(DropCopiesAhead(kGpu));
      const std::optional<Tensor> copy = FindCopyAhead(value, kGpu);
      if (copy && !BitwiseEqual(*copy->To(Device{}), value)) ++wrong;
    });
    EXPECT_EQ(wrong, 0) << "round " << round;
  }
  UseDevice();
  EXPECT_EQ(backend_.bytes_in_use(0), 0);
}

}  // namespace
}  // namespace divvy::internal
