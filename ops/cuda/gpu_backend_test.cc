// Tests the backend around the kernels, on a GPU that is emulated on the host: order, memory,
// errors. backend_test.cc compares the results of the kernels.
#include "ops/cuda/gpu_backend.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/testing/backend_comparison.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/fused.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"

namespace divvy::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Device kGpu{Device::Kind::kGpu, 0};

struct OneHostDevice {
  OneHostDevice() {
    SetGpuMemory(&gpu_);
    SetGpuBackend(&gpu_);
  }
  ~OneHostDevice() {
    SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }
  cuda::HostMath math_{1};
  GpuBackend gpu_{math_};
};

class GpuBackendTest : public ::testing::Test,
                       protected OneHostDevice,
                       protected BackendComparison {
 protected:
  GpuBackendTest() : BackendComparison(kGpu, gpu_) {
    RecordProperty("seed", static_cast<int>(kSeed));
  }
};

TEST_F(GpuBackendTest, ASumAndTheFunctionAfterItAreOneKernel) {
  const Tensor x = *Values(DType::kFloat32, Shape{4, 3}).To(kGpu),
               row = *Values(DType::kFloat32, Shape{3}).To(kGpu);
  math_.log.clear();
  EXPECT_EQ(AddThen(UnaryOp::kSigmoid, x, row).status(), absl::OkStatus());
  EXPECT_EQ(std::count(math_.log.begin(), math_.log.end(), "0 kernels"), 1);
}

TEST_F(GpuBackendTest, ConvolutionsAreTheSameInBlocksOfAnySize) {
  for (int i = 0; i < kTimes; ++i) {
    math_.most_window_elements = i % 2 == 0 ? 200 : 1;  // in blocks that cut images, line by line
    CompareConvolutionAndPool(kTypes[i % 4]);
  }
}

TEST_F(GpuBackendTest, AKernelsGradientInFloat16IsRoundedOnce) {
  math_.most_window_elements = 1;
  Window2D w;
  w.batch = 1, w.in_height = w.out_height = 7, w.in_width = w.out_width = 1, w.channels = 1,
  w.height = w.width = w.stride = 1;
  const Tensor x = Cast(
      *Tensor::Vector<double>({1001, 1001, 1001, 1001, 1001, 1001, 1001}).Reshape({1, 7, 1, 1}),
      DType::kFloat16);
  const Tensor ones =
      Cast(*Tensor::Vector<double>({1, 1, 1, 1, 1, 1, 1}).Reshape({1, 7, 1, 1}), DType::kFloat16);
  Tensor dkernel = *Tensor::Uninitialized(DType::kFloat16, Shape{1, 1, 1, 1}, kGpu);
  gpu_.Conv2DKernelGradient(w, *x.To(kGpu), *ones.To(kGpu), dkernel);
  // The sum is 7007, which rounds to 7008. Rounded at each step it would be 7004.
  EXPECT_EQ(AsDoubles(*dkernel.To(Device{})).values<double>()->at(0), 7008);
}

// Added one by one in float32, the three rows sum to 0. In double they sum to 1.
TEST_F(GpuBackendTest, ADeterministicScatterSumsInDouble) {
  const Tensor ids = Tensor::Vector<int64_t>({0, 0, 0}),
               rows = Tensor::Vector<float>({1, 1e8F, -1e8F});
  const auto scattered = [&] {
    return *Computed(
        {ids, rows}, DType::kFloat32, Shape{1},
        [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });
  };
  EXPECT_EQ(scattered().values<float>()->at(0), 0);
  math_.Configure({/*tf32=*/false, /*deterministic=*/true});
  EXPECT_EQ(scattered().values<float>()->at(0), 1);
}

TEST_F(GpuBackendTest, ScatteringIsTheSameInEveryOrderWhereItMustBe) {
  math_.Configure({/*tf32=*/false, /*deterministic=*/true});
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t rows = 1 + random_.Below(9), n = 1 + random_.Below(300),
                  width = 1 + random_.Below(9);
    Compare("scatter", {Ids(n, rows), Values(dtype, Shape{n, width})}, dtype, Shape{rows, width},
            [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });
  }
}

TEST_F(GpuBackendTest, AGlobalNormOfManyGradientsIsWaitedForOnce) {
  Gradients gradients;
  for (const char* name : {"a", "b", "c"})
    gradients.Set(name, *Tensor::Vector<float>({2, 4, 4}).To(kGpu));
  gradients.Set("here", Tensor::Vector<float>({6}));
  math_.log.clear();
  EXPECT_EQ(*gradients.GlobalNorm(), 12);
  EXPECT_EQ(
      std::count_if(math_.log.begin(), math_.log.end(),
                    [](const std::string& line) { return line.find("out") != std::string::npos; }),
      1);
}

TEST_F(GpuBackendTest, AnIdOrALabelOutOfRangeIsToldWhenAValueComesBackAndOnlyOnce) {
  const Tensor x = Values(DType::kFloat32, Shape{3, 2});
  const Tensor ids = *Tensor::Vector<int64_t>({0, 7, 9}).To(kGpu);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
  ASSERT_TRUE(gpu_.GatherRows(*x.To(kGpu), ids, y).ok());
  const absl::Status told = y.To(Device{}).status();
  EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      told.message(),
      "Gather: id 7 at 1 is outside [0, 3), the rows of float32 [3, 2], on GPU:0 (host device 0)");
  EXPECT_TRUE(y.To(Device{}).ok());

  Tensor loss = *Tensor::Uninitialized(DType::kFloat32, Shape{3}, kGpu),
         softmax = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
  ASSERT_TRUE(gpu_.SoftmaxCrossEntropy(*x.To(kGpu), *Tensor::Vector<int64_t>({0, 1, -1}).To(kGpu),
                                       loss, softmax)
                  .ok());
  EXPECT_EQ(loss.To(Device{}).status().message(),
            "SoftmaxCrossEntropy: label -1 of example 2 is outside [0, 2): the logits, float32 [3, "
            "2], have 2 classes, on GPU:0 (host device 0)");
}

TEST_F(GpuBackendTest, ALabelThatIsNoProbabilityIsToldInTheWordsOfTheCpu) {
  const Tensor x = Values(DType::kFloat32, Shape{3, 2});
  for (const float wrong : {-1.0f, 2.0f, NAN}) {
    const Tensor labels = *Tensor::Copy<float>(Shape{3, 2}, {0, 1, 0.5f, 0.5f, wrong, 0});
    Tensor here = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}),
           there = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
    const absl::Status sigmoid = cpu_.SigmoidCrossEntropy(x, labels, here);
    EXPECT_THAT(std::string(sigmoid.message()), HasSubstr("of example 2 is outside [0, 1]"));
    ASSERT_TRUE(gpu_.SigmoidCrossEntropy(*x.To(kGpu), *labels.To(kGpu), there).ok());
    EXPECT_EQ(there.To(Device{}).status(), absl::InvalidArgumentError(absl::StrCat(
                                               sigmoid.message(), ", on GPU:0 (host device 0)")));

    Tensor loss = *Tensor::Uninitialized(DType::kFloat32, Shape{3}),
           loss_there = *Tensor::Uninitialized(DType::kFloat32, Shape{3}, kGpu);
    const absl::Status softmax = cpu_.SoftmaxCrossEntropy(x, labels, loss, here);
    EXPECT_THAT(std::string(softmax.message()),
                HasSubstr("of example 2, class 0, is outside [0, 1]"));
    ASSERT_TRUE(gpu_.SoftmaxCrossEntropy(*x.To(kGpu), *labels.To(kGpu), loss_there, there).ok());
    EXPECT_EQ(
        loss_there.To(Device{}).status(),
        absl::InvalidArgumentError(absl::StrCat(softmax.message(), ", on GPU:0 (host device 0)")));
  }
}

TEST_F(GpuBackendTest, MemoryIsTheDevicesAndGivenBackWithTheLastHandle) {
  {
    const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(kGpu);
    EXPECT_EQ(there.device(), kGpu);
    EXPECT_EQ(math_.bytes_in_use(0), 12u);
    EXPECT_EQ(there.values<float>().status().message(),
              "the tensor is on GPU:0: use To(Device()) first");
    EXPECT_TRUE(BitwiseEqual(*there.To(Device{}), Tensor::Vector<float>({1, 2, 3})));
  }
  EXPECT_EQ(math_.bytes_in_use(0), 0u);
  // To the device.
  EXPECT_THAT(math_.log,
              ElementsAre("0 allocate 12", "0 in small: copy 12", "0 in small: record",
                          "0 compute: wait", "0 compute: record", "0 out: wait", "0 out: copy 12",
                          absl::StrCat("0 out: copy ", sizeof(cuda::Fault)),
                          "0 out: record",  // and back, with the device's fault
                          "0 free"));
}

TEST_F(GpuBackendTest, MemoryMissingOnTheWayIsToldWithTheNextValueAndTheDeviceGoesOn) {
  Window2D w;
  w.batch = 1, w.in_height = w.in_width = w.out_height = w.out_width = 8, w.channels = 1,
  w.height = w.width = w.stride = 1;
  const Tensor x = *Values(DType::kFloat32, Shape{1, 8, 8, 1}).To(kGpu),
               kernel = *Values(DType::kFloat32, Shape{1, 1, 1, 1}).To(kGpu);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{1, 8, 8, 1}, kGpu);
  math_.free_bytes = math_.bytes_in_use(0) + 100;
  gpu_.Conv2D(w, x, kernel, y);
  EXPECT_EQ(
      y.To(Device{}).status(),
      absl::ResourceExhaustedError(
          "GPU:0 (host device 0) has no memory for the intermediate values of a computation: make "
          "the batch smaller, or leave the GPU to one process"));
  math_.free_bytes = 1 << 20;
  gpu_.Conv2D(w, x, kernel, y);
  EXPECT_TRUE(y.To(Device{}).ok());
}

TEST_F(GpuBackendTest, WhatGoesWrongIsToldOnceByWhoeverWaitsNext) {
  const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(kGpu);
  math_.Note(0, "a launch failed");
  math_.Note(0, "and then another");
  EXPECT_EQ(gpu_.SumsOfSquares({there}).status(),
            absl::InternalError("GPU:0 (host device 0): a launch failed"));
  EXPECT_EQ(gpu_.SumsOfSquares({there})->at(0), 14);
  Gradients gradients;
  gradients.Set("w", there);
  math_.Note(0, "a launch failed");
  EXPECT_EQ(gradients.ClipByGlobalNorm(1).code(), absl::StatusCode::kInternal);
  math_.free_bytes = 0;
  EXPECT_EQ(gradients.GlobalNorm().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GpuBackendTest, AFailureIsCountedWhoeverItWasToldTo) {
  const Tensor x = *Values(DType::kFloat32, Shape{3, 2}).To(kGpu);
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 0);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{1, 2}, kGpu);
  ASSERT_TRUE(gpu_.GatherRows(x, *Tensor::Vector<int64_t>({7}).To(kGpu), y).ok());
  EXPECT_FALSE(x.To(Device{}).ok());  // the failure of another value
  EXPECT_TRUE(y.To(Device{}).ok());
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 1);
  EXPECT_EQ(gpu_.FindFailures(kGpu).last,
            absl::InvalidArgumentError("Gather: id 7 at 0 is outside [0, 3), the rows of float32 "
                                       "[3, 2], on GPU:0 (host device 0)"));
  math_.Note(0, "a launch failed");
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 2);
}

TEST_F(GpuBackendTest, WhatADeviceCannotIsSaidWithItsName) {
  const Tensor x = Tensor::Vector<float>({1, 2, 3});
  const absl::Status nowhere = x.To({Device::Kind::kGpu, 4}).status();
  EXPECT_EQ(nowhere.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(nowhere.message(), "there is no GPU:4: this process uses 1 GPUs");
  math_.free_bytes = 8;
  const absl::Status full = x.To(kGpu).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("GPU:0 (host device 0) has no memory for 12 bytes more"));
  math_.free_bytes = 1000;
  const Tensor there = *x.To(kGpu);
  math_.error = "an illegal memory access was encountered";
  EXPECT_EQ(there.To(Device{}).status().message(),
            "GPU:0 (host device 0): an illegal memory access was encountered");
}

}  // namespace
}  // namespace divvy::internal
