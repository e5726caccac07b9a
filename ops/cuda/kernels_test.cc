// Compares kernels with plain loops, on a device that is emulated on the host. Only kernels that
// sum or access memory in a way of their own.
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"

namespace divvy::internal {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kSeed = 20261123;
constexpr Device kGpu{Device::Kind::kGpu, 0};

class KernelsTest : public ::testing::Test {
 protected:
  KernelsTest() { SetGpuMemory(&gpu_); }
  ~KernelsTest() override { SetGpuMemory(nullptr); }
  Tensor Drawn(const Shape& shape) {
    Tensor x = *Tensor::Uninitialized(DType::kFloat32, shape);
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      x.fresh_data<float>()[i] = static_cast<float>(random_.Uniform() - 0.5);
    return x;
  }
  static Tensor New(const Shape& shape) {
    return *Tensor::Uninitialized(DType::kFloat32, shape, kGpu);
  }
  static std::vector<float> Values(const Tensor& x) {
    const Tensor here = *x.To(Device{});
    return {here.data_as<float>(), here.data_as<float>() + here.shape().num_elements()};
  }
  int64_t KernelsOf(const std::function<void()>& work) {
    const int64_t before = math_.costs().kernels;
    work();
    return math_.costs().kernels - before;
  }

  Random random_{kSeed};
  cuda::HostMath math_{1};
  GpuBackend gpu_{math_};
  CpuBackend cpu_;
};

TEST_F(KernelsTest, ABiasGradientIsOneKernelUpToFourThousandRows) {
  for (const auto& [rows, columns, kernels] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {1, 3, 1}, {64, 512, 1}, {4096, 10, 1}, {4097, 10, 2}}) {
    const Tensor x = Drawn({rows, columns}), there = *x.To(kGpu);
    Tensor sums = New({columns});
    EXPECT_EQ(KernelsOf([&] { gpu_.SumTo(there, 2, sums); }), kernels) << rows;
    const std::vector<float> found = Values(sums);
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += x.data_as<float>()[row * columns + column];
      ASSERT_NEAR(found[column], 2 * sum, 1e-5) << rows << " rows, column " << column;
    }
  }
}

TEST_F(KernelsTest, ASumOfNeighboursIsOneKernelWhereItIsShort) {
  const Tensor x = Drawn({3, 1000}), there = *x.To(kGpu);
  Tensor sums = New({3, 1});
  EXPECT_EQ(KernelsOf([&] { gpu_.SumTo(there, 1, sums); }), 1);
  for (int64_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (int64_t i = 0; i < 1000; ++i) sum += x.data_as<float>()[row * 1000 + i];
    EXPECT_NEAR(Values(sums)[row], sum, 1e-5);
  }
}

TEST_F(KernelsTest, AnActivationsGradientAndItsBiasAreOneKernelAndHaveTheBitsOfTwo) {
  for (const int64_t rows : {1, 70, 5000}) {
    const Tensor kept = *Drawn({rows, 33}).To(kGpu), gradient = *Drawn({rows, 33}).To(kGpu);
    Tensor dx = New({rows, 33}), sums = New({33}), dx_alone = New({rows, 33}),
           sums_alone = New({33});
    EXPECT_EQ(
        KernelsOf([&] { gpu_.UnaryGradientAndSums(UnaryOp::kRelu, kept, gradient, dx, sums); }),
        rows > 4096 ? 3 : 1);
    gpu_.UnaryGradient(UnaryOp::kRelu, kept, gradient, dx_alone);
    gpu_.SumTo(dx_alone, 1, sums_alone);
    EXPECT_EQ(Values(dx), Values(dx_alone));
    EXPECT_EQ(Values(sums), Values(sums_alone));
  }
}

TEST_F(KernelsTest, AScalarOfTheCpuGoesAlongWithTheKernel) {
  const Tensor x = Drawn({5, 7}), there = *x.To(kGpu);
  const int64_t uploads = math_.costs().uploads;
  Tensor y = New({5, 7});
  gpu_.Binary(BinaryOp::kDivide, there, Tensor::Scalar<float>(255), y);
  EXPECT_EQ(Values(y)[8], x.data_as<float>()[8] / 255.0f);
  gpu_.Binary(BinaryOp::kSubtract, Tensor::Scalar<float>(1), there, y);
  EXPECT_EQ(Values(y)[8], 1 - x.data_as<float>()[8]);
  gpu_.Broadcast(Tensor::Scalar<float>(3), 0.5, y);
  EXPECT_EQ(Values(y), std::vector<float>(35, 1.5f));
  EXPECT_EQ(math_.costs().uploads, uploads);
}

// 2048 + 1 + a little. A float cannot hold the little, and 2049 is halfway between two float16
// numbers.
TEST_F(KernelsTest, ASumThatIsNarrowIsRoundedOnce) {
  Tensor x = *Tensor::Uninitialized(DType::kFloat16, {3});
  x.fresh_data<Half>()[0] = Half::FromFloat(2048), x.fresh_data<Half>()[1] = Half::FromFloat(1),
  x.fresh_data<Half>()[2] = Half::FromFloat(0x1p-24f);
  Tensor y = *Tensor::Uninitialized(DType::kFloat16, Shape(), kGpu);
  gpu_.SumTo(*x.To(kGpu), 1, y);
  EXPECT_EQ(y.To(Device{})->data_as<Half>()->ToFloat(), 2050);
}

TEST_F(KernelsTest, ADoubleIsRoundedToANarrowTypeAsIfItWereAFloatOfAllItsBits) {
  for (int i = 0; i < 20'000; ++i) {
    const double value =
        std::ldexp(random_.Uniform() - 0.5, static_cast<int>(random_.Below(54)) - 40);
    const float odd = cuda::RoundedToOdd(value);
    if (static_cast<double>(odd) == value) continue;
    EXPECT_EQ(BitsOfFloat(odd) & 1u, 1u);
    EXPECT_LT(std::abs(static_cast<double>(odd) - value), std::ldexp(std::abs(value), -22));
    // The right float16 is the one that is nearest to the exact value.
    const double half = Half::FromFloat(odd).ToFloat(),
                 step = std::ldexp(1.0, std::max(std::ilogb(value), -14) - 10);
    EXPECT_LE(std::abs(half - value), step / 2 * (1 + 1e-12)) << value;
  }
}

TEST_F(KernelsTest, TrianglesOfEverySizeAreThoseOfTheCpu) {
  for (const int64_t f : {1, 2, 3, 27, 33, 64}) {
    const Tensor x = Drawn({3, f, f});
    const int64_t elements = f * (f - 1) / 2;
    Tensor here = *Tensor::Uninitialized(DType::kFloat32, {3, elements}),
           there = New({3, elements});
    cpu_.LowerTriangles(x, here);
    gpu_.LowerTriangles(*x.To(kGpu), there);
    EXPECT_EQ(Values(there), Values(here)) << f;
    Tensor back = *Tensor::Uninitialized(DType::kFloat32, {3, f, f}), back_there = New({3, f, f});
    cpu_.SymmetricFromTriangles(here, back);
    gpu_.SymmetricFromTriangles(there, back_there);
    EXPECT_EQ(Values(back_there), Values(back)) << f;
  }
}

// ---- DIVVY_GPU_SYNC -----------------------------------------------------------------------------

TEST(SynchronousTest, AnErrorNamesTheOperationWithDtypesAndShapesAndTheDevice) {
  for (const bool synchronous : {true, false}) {
    cuda::HostMath math(1);
    GpuBackend gpu(math, 0, {}, synchronous);
    SetGpuMemory(&gpu);
    {
      const Tensor a = *(*Tensor::Zeros(DType::kFloat32, {64, 784})).To(kGpu),
                   b = *(*Tensor::Zeros(DType::kFloat32, {784, 512})).To(kGpu);
      Tensor c = *Tensor::Uninitialized(DType::kFloat32, {64, 512}, kGpu),
             d = *Tensor::Uninitialized(DType::kFloat32, {64, 512}, kGpu);
      MatMulArgs args;
      args.m = 64, args.k = 784, args.n = 512;
      math.FailFrom(2, "an illegal memory access was encountered");
      gpu.Unary(UnaryOp::kRelu, d, d);  // well
      gpu.MatMul(args, a, b, c);
      gpu.Unary(UnaryOp::kRelu, c, d);  // fails, as every later operation
      const absl::Status failed = d.To(Device{}).status();
      const std::string operation =
          "GPU:0 (host device 0) is lost: MatMul of float32 [64, 784], float32 [784, 512] to "
          "float32 [64, 512]: an illegal memory";
      EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
      if (synchronous) {
        EXPECT_THAT(std::string(failed.message()), HasSubstr(operation));
      } else {
        EXPECT_THAT(std::string(failed.message()), HasSubstr("is lost: an illegal memory"));
      }
    }
    SetGpuMemory(nullptr);
  }
}

// ---- waits --------------------------------------------------------------------------------------

TEST_F(KernelsTest, WhoLooksForFailuresBehindTheLastValueWaitsForNothing) {
  const Tensor x = *Drawn({4}).To(kGpu);
  Tensor y = New({4});
  gpu_.Unary(UnaryOp::kRelu, x, y);
  ASSERT_TRUE(y.To(Device{}).ok());
  const int64_t waits = math_.costs().waits;
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 0);
  EXPECT_EQ(math_.costs().waits, waits);
  Tensor row = New({1, 4});
  ASSERT_TRUE(
      gpu_.GatherRows(*x.Reshape({1, 4}), *Tensor::Vector<int64_t>({7}).To(kGpu), row).ok());
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 1) << "the failure of the later operation";
  EXPECT_EQ(math_.costs().waits, waits + 2) << "for the later operation, and for the fault";
}

}  // namespace
}  // namespace divvy::internal
