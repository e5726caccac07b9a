// Tests the errors of a device that is lost, and of one with a passing failure, on a device that is
// emulated on the host.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"

namespace divvy::internal {
namespace {

using ::testing::HasSubstr;

constexpr char kIllegal[] = "an illegal memory access was encountered";

class LostDeviceTest : public ::testing::Test {
 protected:
  LostDeviceTest() { SetGpuMemory(&gpu_); }
  ~LostDeviceTest() override { SetGpuMemory(nullptr); }
  static std::string TextOf(const absl::Status& status) { return std::string(status.message()); }

  const Device device_{Device::Kind::kGpu, 0};
  cuda::HostMath math_{2};
  GpuBackend gpu_{math_};
};

TEST_F(LostDeviceTest, ALostDeviceIsUnavailableFromThenOnAndSaysWhyAndWhatToDo) {
  const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(device_);
  EXPECT_TRUE(gpu_.FindFailures(device_).lost.ok());
  math_.Lose(0, kIllegal);
  for (int i = 0; i < 3; ++i) {
    const absl::Status lost = there.To(Device{}).status();
    EXPECT_EQ(lost.code(), absl::StatusCode::kUnavailable) << lost;
    EXPECT_THAT(
        TextOf(lost),
        HasSubstr("GPU:0 (host device 0) is lost: an illegal memory access was encountered."));
    EXPECT_THAT(TextOf(lost), HasSubstr("start the process again"));
  }
  EXPECT_EQ(gpu_.SumsOfSquares({there}).status().code(), absl::StatusCode::kUnavailable);
  const DeviceFailures failures = gpu_.FindFailures(device_);
  EXPECT_EQ(failures.lost.code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(failures.count, 0);
  EXPECT_TRUE(gpu_.FindFailures({Device::Kind::kGpu, 1}).lost.ok())
      << "the other device still works";
}

TEST_F(LostDeviceTest, WhatWentWrongFirstIsWhatIsToldOfTheLoss) {
  const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(device_);
  math_.Note(0, "a launch failed");
  math_.Lose(0, kIllegal);
  EXPECT_THAT(TextOf(there.To(Device{}).status()), HasSubstr("is lost: a launch failed."));
  EXPECT_THAT(TextOf(there.To(Device{}).status()), HasSubstr("is lost: a launch failed."));
}

TEST_F(LostDeviceTest, AnErrorThatPassesIsNoLoss) {
  const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(device_);
  math_.Note(0, "a launch failed");
  EXPECT_EQ(there.To(Device{}).status(),
            absl::InternalError("GPU:0 (host device 0): a launch failed"));
  EXPECT_TRUE(there.To(Device{}).ok());
  EXPECT_TRUE(gpu_.FindFailures(device_).lost.ok());
}

TEST_F(LostDeviceTest, ALostDeviceIsNotShortOfMemory) {
  const Tensor here = Tensor::Vector<float>({1, 2, 3});
  math_.Lose(0, kIllegal);
  const absl::Status uploaded = here.To(device_).status();
  EXPECT_EQ(uploaded.code(), absl::StatusCode::kUnavailable) << uploaded;
  EXPECT_THAT(TextOf(uploaded), HasSubstr("is lost"));
  EXPECT_EQ(Tensor::Uninitialized(DType::kFloat32, {4}, device_).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST_F(LostDeviceTest, AnErrorWhileMemoryIsTakenIsToldInsteadOfAShortage) {
  math_.free_bytes = 0;
  math_.Note(0, "operation not supported");
  const absl::Status first = Tensor::Vector<float>({1, 2, 3}).To(device_).status();
  EXPECT_EQ(first, absl::InternalError("GPU:0 (host device 0): operation not supported"));
  EXPECT_EQ(gpu_.FindFailures(device_).count, 1);
  const absl::Status second = Tensor::Vector<float>({1, 2, 3}).To(device_).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted) << second;
  math_.Note(0, cuda::kOutOfMemory);
  EXPECT_THAT(TextOf(Tensor::Vector<float>({1, 2, 3}).To(device_).status()),
              HasSubstr("has no memory for 12 bytes more"));
}

}  // namespace
}  // namespace divvy::internal
