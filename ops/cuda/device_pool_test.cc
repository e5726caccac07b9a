#include "ops/cuda/device_pool.h"

#include <vector>

#include "gtest/gtest.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "tensor/tensor.h"

namespace divvy::cuda {
namespace {

TEST(DevicePoolTest, WhatIsGivenBackIsUsedAgainAndTheDeviceIsNotAsked) {
  HostMath math(1);
  DevicePool pool(math, 0);
  void* const first = pool.Take(Queue::kCompute, 1000, 0);
  pool.Return(first, 1);
  EXPECT_EQ(pool.Take(Queue::kCompute, 1024, 0), first) << "of the same class";
  EXPECT_NE(pool.Take(Queue::kCompute, 1000, 0), first) << "it is taken";
  EXPECT_EQ(math.costs().allocations, 2);
  pool.Return(first, 2);
  EXPECT_NE(pool.Take(Queue::kCompute, 3000, 0), first) << "of another class";
}

TEST(DevicePoolTest, AtMostANinthOfABlockIsUnused) {
  HostMath math(1);
  DevicePool pool(math, 0);
  for (const size_t bytes : {600, 5'000, 100'000, 1'000'001, 123'456'789}) {
    const size_t before = math.bytes_in_use(0);
    pool.Return(pool.Take(Queue::kCompute, bytes, 0), 1);
    EXPECT_GE(math.bytes_in_use(0) - before, bytes);
    EXPECT_LE(static_cast<double>(math.bytes_in_use(0) - before),
              static_cast<double>(bytes) * 9 / 8);
    pool.Trim();
    EXPECT_EQ(math.bytes_in_use(0), before);
  }
}

TEST(DevicePoolTest, AnotherQueueGetsItOnlyWhenTheComputationHasComeThere) {
  HostMath math(1);
  DevicePool pool(math, 0);
  void* const block = pool.Take(Queue::kCompute, 1000, 0);
  pool.Return(block, 5);
  void* const other = pool.Take(Queue::kIn, 1000, 4);
  EXPECT_NE(other, block) << "a kernel may still read it";
  EXPECT_EQ(pool.Take(Queue::kIn, 1000, 5), block);
  pool.Return(block, 9);
  EXPECT_EQ(pool.Take(Queue::kCompute, 1000, 5), block) << "issued after that kernel";
}

TEST(DevicePoolTest, WhereTheDeviceHasNoMoreWhatIsKeptIsGivenBackFirst) {
  HostMath math(1);
  DevicePool pool(math, 0);
  math.free_bytes = 10'000;
  pool.Return(pool.Take(Queue::kCompute, 8'000, 0), 1);
  EXPECT_EQ(pool.kept_bytes(), 8'192u);
  EXPECT_NE(pool.Take(Queue::kCompute, 4'000, 0), nullptr);
  EXPECT_EQ(pool.kept_bytes(), 0u);
  EXPECT_EQ(pool.Take(Queue::kCompute, 9'000, 0), nullptr);
}

TEST(HostMemoryTest, OneTensorHasAtMostAnEighthOfWhatMayBePinned) {
  HostMath math(1);
  TransferOptions options;
  options.host_bytes = 800'000;
  internal::GpuBackend backend(math, 0, options);
  const Device gpu{Device::Kind::kGpu, 0};
  for (const int64_t bytes : {90'000, 100'001}) {  // only sizes that were copied before are pinned
    const std::vector<char> travels(bytes);
    backend.Free(gpu, *backend.Upload(gpu, travels.data(), bytes, nullptr));
  }
  void* const some = backend.AllocateHost(90'000);
  EXPECT_NE(some, nullptr);
  EXPECT_EQ(backend.AllocateHost(100'001), nullptr) << "such a tensor is not pinned";
  backend.FreeHost(some);
}

// A convolution needs memory for its windows, and gets it from the device, not from the cache.
TEST(DevicePoolTest, WhatAnOperationNeedsOnTheWayIsNotMissingSinceItIsKeptForTensors) {
  HostMath math(1);
  TransferOptions options;
  options.keeps_memory = true;
  internal::GpuBackend backend(math, 0, options);
  SetGpuMemory(&backend);
  {
    const Device gpu{Device::Kind::kGpu, 0};
    math.free_bytes = 1'000'000;
    // Freed at once, and cached.
    ASSERT_TRUE(Tensor::Uninitialized(DType::kFloat32, {200'000}, gpu).ok());
    EXPECT_GT(math.bytes_in_use(0), 800'000u);
    void* const scratch = math.AllocateScratch(0, 500'000);
    EXPECT_NE(scratch, nullptr);
    if (scratch != nullptr) math.Free(0, scratch);
  }
  SetGpuMemory(nullptr);
}

}  // namespace
}  // namespace divvy::cuda
