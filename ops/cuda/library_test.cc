// Tests the built libdivvy_cuda.so: it loads, exports its function and has kernels for this
// machine's GPU. Without a GPU it reports so in CUDA's words. If DIVVY_REQUIRE_GPU is set
// (ops/cuda/testing/gpu_place.cc), there must be one.
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpus.h"
#include "ops/ops.h"

namespace divvy {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(CudaLibraryTest, CountsItsDevicesOrSaysWhyThereIsNone) {
  const char* const path = std::getenv("DIVVY_CUDA_LIBRARY");
  const absl::StatusOr<cuda::DeviceMath*> math =
      internal::LoadDeviceMath(path == nullptr ? "" : path);
  if (math.ok()) {
    EXPECT_GT((*math)->num_devices(), 0);
    return;
  }
  ASSERT_EQ(std::getenv("DIVVY_REQUIRE_GPU"), nullptr) << math.status();
  EXPECT_EQ(math.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(math.status().message()),
              AnyOf(HasSubstr("no CUDA-capable device"), HasSubstr("driver"),
                    HasSubstr("CUDA finds no device")));
}

TEST(CudaLibraryTest, AutoGoesOnWithoutADeviceAndSaysWhy) {
  const absl::StatusOr<Gpus> gpus = OpenGpus({{GpuChoice::Kind::kAuto, {}}});
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ(gpus->devices.empty(), !gpus->why_none.empty());
}

// A library that was built for another kind of GPU loads and counts its devices; its first kernel
// fails.
TEST(CudaLibraryTest, RunsAKernel) {
  const absl::StatusOr<Gpus> gpus = OpenGpus({{GpuChoice::Kind::kAuto, {}}});
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  if (gpus->devices.empty()) {
    ASSERT_EQ(std::getenv("DIVVY_REQUIRE_GPU"), nullptr) << gpus->why_none;
    GTEST_SKIP() << gpus->why_none;
  }
  const absl::StatusOr<Tensor> there = Tensor::Vector<float>({-1, 2}).To(gpus->devices[0]);
  ASSERT_TRUE(there.ok()) << there.status();
  const absl::StatusOr<Tensor> y = Relu(Var(*there)).Value();
  ASSERT_TRUE(y.ok()) << y.status();
  const absl::StatusOr<Tensor> here = y->To(Device{});
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_TRUE(BitwiseEqual(*here, Tensor::Vector<float>({0, 2}))) << here->ToString();
}

}  // namespace
}  // namespace divvy
