#include "bench/gpu/copies.h"

#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"

namespace divvy::bench {
namespace {

constexpr Device kGpu{Device::Kind::kGpu, 0};

TEST(AwaitCopiesTest, CopiesUseTheMemoryOfThoseBeforeTheWait) {
  constexpr int kCopies = 50;
  cuda::HostMath math(1, cuda::HostQueues::Manner::kLate);
  cuda::TransferOptions options;
  options.keeps_memory = true;
  internal::GpuBackend backend(math, 0, options);
  SetGpuMemory(&backend);
  internal::SetGpuBackend(&backend);
  const Tensor large = *Tensor::Zeros(DType::kFloat32, Shape{100'000});
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < kCopies; ++i) ASSERT_TRUE(large.To(kGpu).ok());
    ASSERT_TRUE(AwaitCopies(kGpu).ok());
  }
  EXPECT_EQ(math.costs().uploads, 4 * (kCopies + 1));
  EXPECT_LE(math.costs().allocations, kCopies + 10)
      << "those of the first round, and some small allocations";
  internal::SetGpuBackend(nullptr);
  SetGpuMemory(nullptr);
}

}  // namespace
}  // namespace divvy::bench
