// libdivvy_cuda.so as nvcc and the linker made it: that it loads, opens its door, and where there is no GPU says so in CUDA's own words. Where one is required
// (DIVVY_REQUIRE_GPU, ops/cuda/testing/gpu_place.cc) there is one.
#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpus.h"

namespace divvy {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(CudaLibraryTest, CountsItsDevicesOrSaysWhyThereIsNone) {
  const char* const path = std::getenv("DIVVY_CUDA_LIBRARY");
  const absl::StatusOr<cuda::DeviceMath*> math = internal::LoadDeviceMath(path == nullptr ? "" : path);
  if (math.ok()) {
    EXPECT_GT((*math)->num_devices(), 0);
    return;
  }
  ASSERT_EQ(std::getenv("DIVVY_REQUIRE_GPU"), nullptr) << math.status();
  EXPECT_EQ(math.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(math.status().message()), AnyOf(HasSubstr("no CUDA-capable device"), HasSubstr("driver"), HasSubstr("CUDA finds no device")));
}

TEST(CudaLibraryTest, AutoGoesOnWithoutADeviceAndSaysWhy) {
  const absl::StatusOr<Gpus> gpus = OpenGpus({{GpuChoice::Kind::kAuto, {}}});
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ(gpus->devices.empty(), !gpus->why_none.empty());
}

}  // namespace
}  // namespace divvy
