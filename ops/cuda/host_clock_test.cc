// Tests times on a device with HostModel's figures: overlap, waits, and the order in which values
// arrive.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"

namespace divvy::internal {
namespace {

constexpr Device kGpu{Device::Kind::kGpu, 0};

// A device in use whose kernels take `kernel_us` each.
struct Timed {
  explicit Timed(double kernel_us, const cuda::TransferOptions& options = {})
      : backend(math, 0, options) {
    cuda::HostModel model;
    model.kernel = kernel_us;
    math.UseClock(model);
    math.keep_log = false;
    SetGpuMemory(&backend);
    SetGpuBackend(&backend);
  }
  ~Timed() {
    SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }
  double Took(const std::function<void()>& work) {
    const double before = math.now();
    work();
    return math.now() - before;
  }
  Tensor Relu(const Tensor& x) {
    Tensor y = *Tensor::Uninitialized(DType::kFloat32, x.shape(), kGpu);
    backend.Unary(UnaryOp::kRelu, x, y);
    return y;
  }
  cuda::HostMath math{1};
  GpuBackend backend;
};

Tensor Zeros(int64_t n) { return *Tensor::Zeros(DType::kFloat32, {n}); }

// The figure of bench/gpu: 1 if the shorter of the two costs nothing, 0 if they run one after the
// other.
double Hidden(double copy, double step, double both) {
  return (copy + step - both) / std::min(copy, step);
}

TEST(HostClockTest, ALargeCopyIsHiddenBehindTheKernelThatRunsMeanwhile) {
  Timed device(330);
  const Tensor small = *Zeros(4).To(kGpu), large = Zeros(4'000'000);  // 16 MB: 5 + 320 us
  ASSERT_TRUE(small.To(Device{}).ok());
  const double copy = device.Took([&] {
    ASSERT_TRUE(device.Relu(*large.To(kGpu)).Rows(0, 1)->To(Device{}).ok());
  }) - 330;
  const double step = device.Took([&] { ASSERT_TRUE(device.Relu(small).To(Device{}).ok()); });
  const double both = device.Took([&] {
    const Tensor there = *large.To(kGpu);
    const Tensor y = device.Relu(small);
    ASSERT_TRUE(y.To(Device{}).ok());
    ASSERT_TRUE(there.Rows(0, 1)->To(Device{}).ok());
  });
  EXPECT_GT(Hidden(copy, step, both), 0.9)
      << copy << " us of copy, " << step << " us of step, " << both << " us together";
}

// While a prefetched copy of 4 MB is in flight, a step uses its labels for the first time. The
// labels of the first batch wait for their use, and then follow the 4 MB, because no labels were
// ever used before.
TEST(HostClockTest, LargeIntegersThatTheGpuUsesDoNotComeBehindWhatIsToldAhead) {
  Timed device(30);
  const Tensor labels = *Tensor::Zeros(DType::kInt64, {20'000}), values = Zeros(1'000'000);
  ASSERT_TRUE(Zeros(4).To(kGpu)->To(Device{}).ok());
  const auto step = [&](Travel travel) {
    const auto batch = [&] {
      const TravelScope scope(travel);
      return *labels.To(kGpu);
    }();
    const Tensor ahead = *values.To(kGpu);
    const double took = device.Took([&] {
      Tensor y = *Tensor::Uninitialized(DType::kFloat32, labels.shape(), kGpu);
      device.backend.Cast(batch, y);
      EXPECT_TRUE(y.Rows(0, 1)->To(Device{}).ok());
    });
    EXPECT_TRUE(device.Relu(ahead).Rows(0, 1)->To(Device{}).ok());
    return took;
  };
  step(Travel::kNow);
  const double at_once = step(Travel::kNow), first = step(Travel::kIntegersWhenUsed),
               later = step(Travel::kIntegersWhenUsed);
  EXPECT_GT(first, at_once + 50);
  EXPECT_LT(later, at_once + 1) << at_once << " us when the labels travel at once, " << first
                                << " us in the first step when they wait for their use";
}

// One engine makes all copies to a device, so a small copy does not overtake a large one, although
// it has its own queue. So constants are passed as arguments of kernels.
TEST(HostClockTest, ASmallCopyComesBehindALargeOneAndAScalarNeedsNone) {
  Timed device(2);
  const Tensor there = *Zeros(4).To(kGpu);
  ASSERT_TRUE(there.To(Device{}).ok());
  const auto with = [&](const std::function<Tensor()>& scalar) {
    const Tensor large = *Zeros(4'000'000).To(kGpu);
    const double took = device.Took([&] {
      Tensor y = *Tensor::Uninitialized(DType::kFloat32, {4}, kGpu);
      device.backend.Binary(BinaryOp::kDivide, there, scalar(), y);
      EXPECT_TRUE(y.To(Device{}).ok());
    });
    EXPECT_TRUE(large.Rows(0, 1)->To(Device{}).ok());
    return took;
  };
  EXPECT_GT(with([] { return *Tensor::Scalar<float>(255).To(kGpu); }), 320);
  EXPECT_LT(with([] { return Tensor::Scalar<float>(255); }), 40);
}

TEST(HostClockTest, WhoLooksForFailuresBehindTheLastValueDoesNotWaitAgain) {
  Timed device(2);
  const Tensor there = *Zeros(4).To(kGpu);
  const Tensor y = device.Relu(there);
  EXPECT_GT(device.Took([&] { ASSERT_TRUE(y.To(Device{}).ok()); }), 15);
  EXPECT_EQ(device.Took([&] { EXPECT_EQ(device.backend.FindFailures(kGpu).count, 0); }), 0);
}

// The gradient of the last layer is complete first. It is copied to the host while the gradients of
// earlier layers are computed.
TEST(HostClockTest, GradientsComeDownWhileTheBackwardPassGoesOn) {
  constexpr int kLayers = 8;
  // 2 MB: 45 us, against two kernels of 30 us a layer
  constexpr int64_t kElements = 500'000;
  Timed device(30);
  MapReader reader({}, kGpu);
  std::vector<Tensor> weights;
  for (int i = 0; i < kLayers; ++i) weights.push_back(*Zeros(kElements).To(kGpu));
  for (const Tensor& there : weights) ASSERT_TRUE(there.Rows(0, 1)->To(Device{}).ok());
  const double began = device.math.now();
  double told = 0;
  std::vector<Tensor> all;
  const double both = device.Took([&] {
    GradientTape tape(reader);
    Var x = tape.Watch("w0", weights[0]);
    for (int i = 1; i < kLayers; ++i) x = x * tape.Watch("w" + std::to_string(i), weights[i]);
    const absl::StatusOr<Gradients> gradients = tape.GradientOfSum(x);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    told = device.math.now() - began;
    for (const auto& [name, gradient] : gradients->entries())
      all.push_back(std::get<Tensor>(gradient));
    ASSERT_TRUE(ToHost(all).ok());
  });
  const double copies = kLayers * (5 + 4 * kElements / 50e3),
               kernels = 30 * static_cast<double>(device.math.costs().kernels);
  EXPECT_LT(told, kernels) << "the host is ahead of the device";
  EXPECT_LT(both, kernels + copies / 2)
      << kernels << " us of kernels and " << copies << " us of copies, " << both << " us together";
}

}  // namespace
}  // namespace divvy::internal
