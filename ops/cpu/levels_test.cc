// What the CPU backend computes has the same bits at every level of base/vector_level.h and with
// any number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/vector_level.h"
#include "gtest/gtest.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/parallel.h"

namespace divvy::internal {
namespace {

constexpr uint64_t kSeed = 41;

// Ordinary numbers, and where `odd`, NaN, infinities, zeros, denormals and large ones among them.
Tensor Numbers(Random& random, const Shape& shape, bool odd) {
  using Limits = std::numeric_limits<float>;
  const float odd_ones[] = {Limits::quiet_NaN(),
                            Limits::infinity(),
                            -Limits::infinity(),
                            0.0f,
                            -0.0f,
                            Limits::min() / 8,
                            -3e-41f,
                            1e-20f,
                            Limits::max(),
                            100.0f};
  std::vector<float> numbers(shape.num_elements());
  for (float& number : numbers) {
    number = static_cast<float>(random.Uniform() * 8 - 4);
    if (odd && random.Chance(0.05)) number = odd_ones[random.Below(std::size(odd_ones))];
  }
  return Tensor::Copy<float>(shape, numbers).value();
}

Tensor New(const Shape& shape) { return Tensor::Uninitialized(DType::kFloat32, shape).value(); }

// The bits, except that one NaN is as good as another: IEEE 754 leaves open which operand's NaN an
// operation returns.
std::vector<uint32_t> BitsOf(const Tensor& tensor) {
  std::vector<uint32_t> bits(tensor.shape().num_elements());
  if (!bits.empty()) std::memcpy(bits.data(), tensor.data(), tensor.size_bytes());
  for (uint32_t& value : bits) {
    if ((value & 0x7FFFFFFF) > 0x7F800000) value = 0x7FC00000;
  }
  return bits;
}

// Runs `compute` at each level and with several numbers of threads.
void ExpectSameBits(const std::string& name, const std::function<Tensor()>& compute) {
  SCOPED_TRACE(name);
  const VectorLevel best = BestVectorLevel();
  SetVectorLevel(VectorLevel::kBase);
  SetComputeThreads(1);
  const std::vector<uint32_t> expected = BitsOf(compute());
  for (const VectorLevel level : {VectorLevel::kBase, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    for (const int threads : {1, 2, 5}) {
      SetVectorLevel(std::min(level, best));
      SetComputeThreads(threads);
      EXPECT_TRUE(BitsOf(compute()) == expected)
          << VectorLevelName(level) << ", " << threads << " threads";
    }
  }
  SetVectorLevel(best);
  SetComputeThreads(1);
}

const Shape kShapes[] = {{1}, {0}, {7}, {3, 61}, {37, 250}, {131, 1027}, {2, 70001}};

class LevelsTest : public ::testing::TestWithParam<bool> {
 protected:
  Random random_{kSeed};
  const CpuBackend backend_{};
};
INSTANTIATE_TEST_SUITE_P(OrdinaryAndOdd, LevelsTest, ::testing::Bool());

TEST_P(LevelsTest, UnaryOperationsAndTheirGradients) {
  for (const Shape& shape : kShapes) {
    const Tensor x = Numbers(random_, shape, GetParam()), g = Numbers(random_, shape, GetParam());
    for (int i = 0; i <= static_cast<int>(UnaryOp::kSoftplus); ++i) {
      const auto op = static_cast<UnaryOp>(i);
      const std::string name = "unary " + std::to_string(i) + " " + shape.ToString();
      ExpectSameBits(name, [&] {
        Tensor y = New(shape);
        return backend_.Unary(op, x, y), y;
      });
      ExpectSameBits("gradient of " + name, [&] {
        Tensor y = New(shape);
        return backend_.UnaryGradient(op, x, g, y), y;
      });
    }
  }
}

TEST_P(LevelsTest, BinaryOperations) {
  for (const Shape& shape : kShapes) {
    const Tensor a = Numbers(random_, shape, GetParam()), b = Numbers(random_, shape, GetParam()),
                 row = Numbers(random_, {shape.dim(-1)}, GetParam());
    for (int i = 0; i <= static_cast<int>(BinaryOp::kPowerByExponent); ++i) {
      for (const Tensor& other : {b, row}) {
        ExpectSameBits("binary " + std::to_string(i) + " " + shape.ToString(), [&] {
          Tensor y = New(shape);
          return backend_.Binary(static_cast<BinaryOp>(i), a, other, y), y;
        });
      }
    }
  }
}

TEST_P(LevelsTest, Reductions) {
  for (const Shape& shape : kShapes) {
    const Tensor x = Numbers(random_, shape, GetParam());
    std::vector<Shape> results = {{}, {shape.dim(-1)}};
    if (shape.rank() == 2) results.push_back({shape.dim(0), 1});
    for (const Shape& result : results) {
      ExpectSameBits("sum " + shape.ToString() + " to " + result.ToString(), [&] {
        Tensor y = New(result);
        return backend_.SumTo(x, 0.5, y), y;
      });
      ExpectSameBits("max " + shape.ToString() + " to " + result.ToString(), [&] {
        Tensor y = New(result);
        return backend_.MaxTo(x, y), y;
      });
    }
  }
}

TEST_P(LevelsTest, RowsAreNormalized) {
  for (const Shape& shape : kShapes) {
    const Tensor x = Numbers(random_, shape, GetParam()), g = Numbers(random_, shape, GetParam());
    for (const Norm norm : {Norm::kLayer, Norm::kL2}) {
      ExpectSameBits("norm " + shape.ToString(), [&] {
        Tensor y = New(shape);
        return backend_.Normalize(norm, 1e-3, x, y), y;
      });
      ExpectSameBits("gradient of norm " + shape.ToString(), [&] {
        Tensor y = New(shape);
        return backend_.NormalizeGradient(norm, 1e-3, x, g, y), y;
      });
    }
    ExpectSameBits("softmax " + shape.ToString(), [&] {
      Tensor y = New(shape);
      return backend_.Softmax(x, y), y;
    });
    ExpectSameBits("gradient of softmax " + shape.ToString(), [&] {
      Tensor y = New(shape);
      return backend_.SoftmaxGradient(x, g, y), y;
    });
    ExpectSameBits("dropout " + shape.ToString(), [&] {
      Tensor y = New(shape);
      return backend_.Dropout(17, 0.3, x, y), y;
    });
    if (shape.rank() != 2) continue;
    ExpectSameBits("clip " + shape.ToString(), [&] {
      Tensor y = New(shape);
      return backend_.ClipRows(x, 2, y), y;
    });
    ExpectSameBits("gradient of clip " + shape.ToString(), [&] {
      Tensor y = New(shape);
      return backend_.ClipRowsGradient(x, 2, g, y), y;
    });
  }
}

TEST(LevelsTest, LossesAndTheirGradients) {
  const CpuBackend backend;
  Random random(kSeed);
  for (const Shape& shape : {Shape{3, 61}, Shape{131, 1027}}) {
    const Tensor x = Numbers(random, shape, false);
    std::vector<int64_t> numbers(shape.dim(0), 5);
    const Tensor labels = Tensor::Vector<int64_t>(numbers),
                 g = Numbers(random, {shape.dim(0)}, false);
    ExpectSameBits("loss " + shape.ToString(), [&] {
      Tensor loss = New({shape.dim(0)}), softmax = New(shape);
      EXPECT_TRUE(backend.SoftmaxCrossEntropy(x, labels, loss, softmax).ok());
      return loss;
    });
    ExpectSameBits("gradient of the loss " + shape.ToString(), [&] {
      Tensor loss = New({shape.dim(0)}), softmax = New(shape);
      EXPECT_TRUE(backend.SoftmaxCrossEntropy(x, labels, loss, softmax).ok());
      backend.SoftmaxCrossEntropyGradient(labels, g, softmax);
      return softmax;
    });
  }
}

// Of images with few channels: by a matrix of windows, and directly with vectors of two sizes.
// These round differently. The direct ways give the same bits for any number of threads.
TEST(LevelsTest, ConvolutionsDifferByRoundingOnly) {
  const CpuBackend backend;
  Random random(kSeed);
  Window2D w;
  w.batch = 3, w.in_height = 20, w.in_width = 33, w.channels = 3, w.height = w.width = 5;
  w.top = w.left = 2, w.out_height = 20, w.out_width = 33;
  for (const int64_t outputs : {9, 40}) {
    const Tensor x = Numbers(random, {3, 20, 33, 3}, false),
                 kernel = Numbers(random, {5, 5, 3, outputs}, false),
                 g = Numbers(random, {3, 20, 33, outputs}, false);
    std::vector<Tensor> expected;
    const VectorLevel best = BestVectorLevel();
    for (const VectorLevel any : {VectorLevel::kBase, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
      const VectorLevel level = std::min(any, best);
      std::vector<Tensor> on_one;
      for (const int threads : {1, 2, 5}) {
        SetVectorLevel(level);
        SetComputeThreads(threads);
        const std::vector<Tensor> results = {New(g.shape()), New(x.shape()), New(kernel.shape())};
        Tensor y = results[0], dx = results[1], dkernel = results[2];
        backend.Conv2D(w, x, kernel, y);
        backend.Conv2DInputGradient(w, kernel, g, dx);
        backend.Conv2DKernelGradient(w, x, g, dkernel);
        const std::vector<Tensor> got = {y, dx, dkernel};
        if (expected.empty()) expected = got;
        if (threads == 1) on_one = got;
        for (const size_t direct : {0, 2}) {
          EXPECT_TRUE(level == VectorLevel::kBase || BitsOf(got[direct]) == BitsOf(on_one[direct]))
              << VectorLevelName(level) << ", " << threads << " threads, result " << direct;
        }
        for (size_t i = 0; i < got.size(); ++i) {
          // The sums have 75 to 1,980 terms of up to 16.
          for (int64_t k = 0; k < got[i].shape().num_elements(); ++k)
            ASSERT_NEAR(got[i].data_as<float>()[k], expected[i].data_as<float>()[k], 0.02)
                << VectorLevelName(level) << ", " << threads << " threads, result " << i;
        }
      }
    }
    SetVectorLevel(best);
    SetComputeThreads(1);
  }
}

TEST(PermuteTest, MovesEveryElementOfAnySize) {
  const CpuBackend backend;
  const int64_t a = 3, b = 130, c = 197;
  std::vector<float> values(a * b * c);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const Tensor floats = Tensor::Copy<float>({a, b, c}, values).value();
  for (const DType dtype : {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kInt64}) {
    Tensor x = Tensor::Uninitialized(dtype, {a, b, c}).value(),
           y = Tensor::Uninitialized(dtype, {c, a, b}).value();
    backend.Cast(floats, x);
    for (const int threads : {1, 3}) {
      SetComputeThreads(threads);
      backend.Permute(x, {2, 0, 1}, y);
      const int64_t bytes = DTypeSize(dtype);
      const char* const from = static_cast<const char*>(x.data());
      const char* const to = static_cast<const char*>(y.data());
      for (int64_t i = 0; i < a * b; ++i) {
        for (int64_t j = 0; j < c; ++j) {
          ASSERT_EQ(std::memcmp(to + (j * a * b + i) * bytes, from + (i * c + j) * bytes, bytes), 0)
              << DTypeName(dtype) << " " << i << " " << j;
        }
      }
    }
  }
  SetComputeThreads(1);
}

TEST(InSlicesTest, CoverTheRangeOnce) {
  SetComputeThreads(4);
  for (const int64_t n : {0, 1, 100, 2'000'000}) {
    std::vector<int> seen(n);
    int* const at = seen.data();
    InSlices<float>(n, 1, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++at[i];
    });
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), n);
  }
  SetComputeThreads(1);
}

}  // namespace
}  // namespace divvy::internal
