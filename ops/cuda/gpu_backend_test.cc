// A device's kernels against the CPU's arithmetic, on random shapes. Here they run as the host's compiler makes them; on a machine with a GPU, there.
#include "ops/cuda/gpu_backend.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/backends.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/fused.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"

namespace divvy::internal {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Device kGpu{Device::Kind::kGpu, 0};

class GpuBackendTest : public ::testing::Test {
 protected:
  GpuBackendTest() {
    RecordProperty("seed", static_cast<int>(kSeed));
    SetGpuMemory(&gpu_);
    SetGpuBackend(&gpu_);
  }
  ~GpuBackendTest() override {
    SetGpuBackend(nullptr);
    SetGpuMemory(nullptr);
  }

  // Of rank 1 to `max_rank`, each extent 1 to 9.
  Shape AnyShape(int min_rank, int max_rank) {
    std::vector<int64_t> dims(min_rank + random_.Below(max_rank - min_rank + 1));
    for (int64_t& dim : dims) dim = 1 + static_cast<int64_t>(random_.Below(9));
    return Shape(dims);
  }
  // A shape that broadcasts to `full`.
  Shape Stretchable(const Shape& full) {
    std::vector<int64_t> dims(full.dims().begin() + static_cast<std::ptrdiff_t>(random_.Below(full.rank() + 1)), full.dims().end());
    for (int64_t& dim : dims) dim = random_.Chance(0.4) ? 1 : dim;
    return Shape(dims);
  }
  Tensor Values(DType dtype, const Shape& shape, double low = -2, double high = 2) {
    Tensor values = *Tensor::Uninitialized(DType::kFloat64, shape);
    for (int64_t i = 0; i < shape.num_elements(); ++i) values.fresh_data<double>()[i] = low + (high - low) * random_.Uniform();
    return Cast(values, dtype);
  }
  Tensor Ids(int64_t n, int64_t limit) {
    Tensor ids = *Tensor::Uninitialized(DType::kInt64, Shape{n});
    for (int64_t i = 0; i < n; ++i) ids.fresh_data<int64_t>()[i] = static_cast<int64_t>(random_.Below(limit));
    return ids;
  }

  // Runs `compute(backend, inputs, result)` on a device in `dtype` and on the CPU in float64, from the same numbers, and compares the results of this shape.
  using Compute = std::function<void(const Backend&, const std::vector<Tensor>&, Tensor&)>;
  void Compare(const std::string& what, const std::vector<Tensor>& inputs, DType dtype, const Shape& shape, const Compute& compute, double slack = 1) {
    SCOPED_TRACE(absl::StrCat(what, " -> ", DTypeName(dtype), " ", shape.ToString()));
    std::vector<Tensor> wide;
    for (const Tensor& input : inputs) wide.push_back(IsFloating(input.dtype()) ? AsDoubles(input) : input);
    Tensor expected = *Tensor::Uninitialized(DType::kFloat64, shape);
    compute(cpu_, wide, expected);
    const absl::StatusOr<Tensor> result = Computed(inputs, dtype, shape, compute);
    ASSERT_TRUE(result.ok()) << result.status();
    ExpectNear(*result, expected, slack * Tolerance(dtype));
  }
  // For what only moves or converts elements: the same bits on both.
  void CompareBits(const std::string& what, const std::vector<Tensor>& inputs, DType dtype, const Shape& shape, const Compute& compute) {
    SCOPED_TRACE(absl::StrCat(what, " -> ", DTypeName(dtype), " ", shape.ToString()));
    Tensor expected = *Tensor::Uninitialized(dtype, shape);
    compute(cpu_, inputs, expected);
    const absl::StatusOr<Tensor> result = Computed(inputs, dtype, shape, compute);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(BitwiseEqual(*result, expected));
  }
  absl::StatusOr<Tensor> Computed(const std::vector<Tensor>& inputs, DType dtype, const Shape& shape, const Compute& compute) {
    std::vector<Tensor> there;
    for (const Tensor& input : inputs) there.push_back(*input.To(kGpu));
    Tensor computed = *Tensor::Uninitialized(dtype, shape, kGpu);
    compute(gpu_, there, computed);
    return computed.To(Device{});
  }
  // Some units in the last place, above 1 relative.
  static double Tolerance(DType dtype) {
    switch (dtype) {
      case DType::kFloat16: return 2e-3;
      case DType::kBFloat16: return 1.6e-2;
      case DType::kFloat32: return 2e-5;
      default: return 1e-11;
    }
  }
  void ExpectNear(const Tensor& result, const Tensor& expected, double tolerance) {
    const Tensor a = AsDoubles(result);
    for (int64_t i = 0; i < expected.shape().num_elements(); ++i) {
      const double x = a.data_as<double>()[i], y = expected.data_as<double>()[i];
      if (std::isnan(x) && std::isnan(y)) continue;
      ASSERT_NEAR(x, y, tolerance * std::max(1.0, std::abs(y))) << "element " << i << " of " << expected.ToString();
    }
  }
  Tensor Cast(const Tensor& x, DType dtype) {
    Tensor y = *Tensor::Uninitialized(dtype, x.shape());
    cpu_.Cast(x, y);
    return y;
  }
  Tensor AsDoubles(const Tensor& x) { return Cast(x, DType::kFloat64); }

  static constexpr uint64_t kSeed = 20261121;
  Random random_{kSeed};
  const CpuBackend cpu_;
  cuda::HostMath math_{1};
  GpuBackend gpu_{math_};
};

constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16};
constexpr int kTimes = 24;

TEST_F(GpuBackendTest, FunctionsOfOneElementAndTheirGradients) {
  for (const DType dtype : kTypes) {
    for (int op = 0; op <= static_cast<int>(UnaryOp::kSoftplus); ++op) {
      const auto unary = static_cast<UnaryOp>(op);
      const Shape shape = AnyShape(1, 3);
      const Tensor x = Values(dtype, shape, 0.1, 3), g = Values(dtype, shape);
      Compare("unary", {x}, dtype, shape, [&](const Backend& b, const auto& in, Tensor& y) { b.Unary(unary, in[0], y); });
      Compare("its gradient", {x, g}, dtype, shape, [&](const Backend& b, const auto& in, Tensor& y) { b.UnaryGradient(unary, in[0], in[1], y); });
    }
  }
}

TEST_F(GpuBackendTest, FunctionsOfTwoElementsAreBroadcast) {
  for (int i = 0; i < kTimes; ++i) {
    for (int op = 0; op <= static_cast<int>(BinaryOp::kPowerByExponent); ++op) {
      const DType dtype = kTypes[i % 4];
      const Shape shape = AnyShape(1, 4);
      const Tensor a = Values(dtype, random_.Chance(0.5) ? shape : Stretchable(shape), 0.5, 2), b = Values(dtype, Stretchable(shape), 0.5, 2);
      Compare("binary", {a, b}, dtype, shape,
              [&](const Backend& backend, const auto& in, Tensor& y) { backend.Binary(static_cast<BinaryOp>(op), in[0], in[1], y); });
      Compare("broadcast", {b}, dtype, shape, [&](const Backend& backend, const auto& in, Tensor& y) { backend.Broadcast(in[0], 0.75, y); });
    }
  }
}

TEST_F(GpuBackendTest, FunctionsAfterASumAreBroadcast) {
  for (int i = 0; i < kTimes; ++i) {
    for (const UnaryOp op : {UnaryOp::kExp, UnaryOp::kSqrt, UnaryOp::kRelu, UnaryOp::kSigmoid, UnaryOp::kTanh}) {
      const DType dtype = kTypes[i % 4];
      const Shape shape = AnyShape(1, 4);
      const double low = op == UnaryOp::kSqrt ? 0.5 : -2;
      const Tensor a = Values(dtype, random_.Chance(0.5) ? shape : Stretchable(shape), low), b = Values(dtype, Stretchable(shape), low);
      Compare("add then", {a, b}, dtype, shape, [&](const Backend& backend, const auto& in, Tensor& y) { backend.AddThen(op, in[0], in[1], y); });
    }
  }
}

// A thread takes 16 bytes at once where they lie so: not at the end of an odd number, nor in what begins in the middle of another tensor.
TEST_F(GpuBackendTest, ElementsAreTheSameHoweverManyThereAreAndWhereverTheyBegin) {
  for (const DType dtype : kTypes) {
    for (int64_t n = 0; n <= 35; ++n) {
      const int64_t start = n % 3 == 0 ? 0 : n % 3 == 1 ? 8 : static_cast<int64_t>(random_.Below(9));
      const Tensor x = Values(dtype, Shape{start + n}, 0.5, 2), z = Values(dtype, Shape{n}, 0.5, 2);
      const auto part = [&](const std::vector<Tensor>& in) { return *in[0].Rows(start, start + n); };
      SCOPED_TRACE(absl::StrCat("from ", start));
      Compare("unary", {x}, dtype, z.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.Unary(UnaryOp::kSquare, part(in), y); });
      Compare("gradient", {x, z}, dtype, z.shape(),
              [&](const Backend& b, const auto& in, Tensor& y) { b.UnaryGradient(UnaryOp::kSquare, part(in), in[1], y); });
      Compare("binary", {x, z}, dtype, z.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.Binary(BinaryOp::kDivide, part(in), in[1], y); });
      Compare("scaled", {x}, dtype, z.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.Broadcast(part(in), 3, y); });
    }
  }
}

TEST_F(GpuBackendTest, RowsAndColumnsOfEveryWidthAreBroadcast) {
  for (const DType dtype : kTypes) {
    for (int64_t width = 1; width <= 25; ++width) {
      const int64_t start = width % 3 == 0 ? static_cast<int64_t>(random_.Below(9)) : 0;
      const Tensor x = Values(dtype, Shape{3, width}, 0.5, 2), row = Values(dtype, Shape{start + width}, 0.5, 2), column = Values(dtype, Shape{3, 1}, 0.5, 2);
      const auto part = [&](const std::vector<Tensor>& in) { return *in[1].Rows(start, start + width); };
      SCOPED_TRACE(absl::StrCat("from ", start));
      Compare("row", {x, row}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.Binary(BinaryOp::kSubtract, in[0], part(in), y); });
      Compare("sum", {x, row}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.AddThen(UnaryOp::kTanh, part(in), in[0], y); });
      Compare("column", {x, column}, dtype, x.shape(), [](const Backend& b, const auto& in, Tensor& y) { b.Binary(BinaryOp::kDivide, in[1], in[0], y); });
      Compare("both", {column, row}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) { b.Binary(BinaryOp::kDivide, in[0], part(in), y); });
    }
  }
}

// 16 + 1/32 has more digits than bfloat16; its exponential is 3% more than that of 16, and bfloat16 tells 0.4% apart.
TEST_F(GpuBackendTest, TheSumOfNarrowNumbersIsNotRoundedBeforeTheFunctionAfterIt) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const double large = dtype == DType::kFloat16 ? 8 : 16, small = dtype == DType::kFloat16 ? 0x1p-8 : 0x1p-5;
    const Tensor a = Cast(Tensor::Vector<double>({large}), dtype), b = Cast(Tensor::Vector<double>({small}), dtype);
    const absl::StatusOr<Tensor> y =
        Computed({a, b}, dtype, Shape{1}, [](const Backend& backend, const auto& in, Tensor& y) { backend.AddThen(UnaryOp::kExp, in[0], in[1], y); });
    EXPECT_TRUE(BitwiseEqual(*y, Cast(Tensor::Vector<double>({std::exp(large + small)}), dtype))) << DTypeName(dtype);
    EXPECT_FALSE(BitwiseEqual(*y, Cast(Tensor::Vector<double>({std::exp(large)}), dtype))) << DTypeName(dtype);
  }
}

TEST_F(GpuBackendTest, ASumAndTheFunctionAfterItAreOneKernel) {
  const Tensor x = *Values(DType::kFloat32, Shape{4, 3}).To(kGpu), row = *Values(DType::kFloat32, Shape{3}).To(kGpu);
  math_.log.clear();
  EXPECT_EQ(AddThen(UnaryOp::kSigmoid, x, row).status(), absl::OkStatus());
  EXPECT_EQ(std::count(math_.log.begin(), math_.log.end(), "0 kernels"), 1);
}

TEST_F(GpuBackendTest, SumsAndMaximaOverAnyAxes) {
  for (int i = 0; i < 4 * kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const Shape full = i % 8 < 4 ? Shape{200 + static_cast<int64_t>(random_.Below(100)), 1 + static_cast<int64_t>(random_.Below(9))} : AnyShape(1, 4);
    const Shape to = Stretchable(full);
    const Tensor x = Values(dtype, full);
    const double squares = cpu_.SumsOfSquares({AsDoubles(x)})->at(0);
    Compare("sum", {x}, dtype, to, [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.5, y); });
    Compare("max", {x}, dtype, to, [](const Backend& b, const auto& in, Tensor& y) { b.MaxTo(in[0], y); });
    const Tensor there = *x.To(kGpu);
    EXPECT_THAT(*gpu_.SumsOfSquares({there, *Values(dtype, Shape{0}).To(kGpu), there}),
                ElementsAre(DoubleNear(squares, 1e-6 * (1 + squares)), 0, DoubleNear(squares, 1e-6 * (1 + squares))));
  }
}

TEST_F(GpuBackendTest, SumsOfFewLongRowsAreTakenInParts) {
  for (const DType dtype : kTypes) {
    const Tensor x = Values(dtype, Shape{3, 20'000});
    Compare("rows", {x}, dtype, Shape{3, 1}, [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.001, y); });
    Compare("all", {x}, dtype, Shape{1, 1}, [](const Backend& b, const auto& in, Tensor& y) { b.SumTo(in[0], 0.001, y); });
  }
}

TEST_F(GpuBackendTest, AKernelsGradientInFloat16IsRoundedOnce) {
  math_.most_window_elements = 1;
  Window2D w;
  w.batch = 1, w.in_height = w.out_height = 7, w.in_width = w.out_width = 1, w.channels = 1, w.height = w.width = w.stride = 1;
  const Tensor x = Cast(*Tensor::Vector<double>({1001, 1001, 1001, 1001, 1001, 1001, 1001}).Reshape({1, 7, 1, 1}), DType::kFloat16);
  const Tensor ones = Cast(*Tensor::Vector<double>({1, 1, 1, 1, 1, 1, 1}).Reshape({1, 7, 1, 1}), DType::kFloat16);
  Tensor dkernel = *Tensor::Uninitialized(DType::kFloat16, Shape{1, 1, 1, 1}, kGpu);
  gpu_.Conv2DKernelGradient(w, *x.To(kGpu), *ones.To(kGpu), dkernel);
  EXPECT_EQ(AsDoubles(*dkernel.To(Device{})).values<double>()->at(0), 7008);  // 7007; rounded at each step it is 7004
}

TEST_F(GpuBackendTest, DropoutDropsTheSameElements) {
  for (const DType dtype : kTypes) {
    const Tensor x = Values(dtype, Shape{7, 9}, 1, 2);
    Compare("dropout", {x}, dtype, x.shape(), [](const Backend& b, const auto& in, Tensor& y) { b.Dropout(77, 0.3, in[0], y); });
  }
}

TEST_F(GpuBackendTest, ProductsOfMatrices) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    MatMulArgs args;
    args.a_transposed = random_.Chance(0.5), args.b_transposed = random_.Chance(0.5);
    args.batch = 1 + random_.Below(3), args.m = 1 + random_.Below(9), args.n = 1 + random_.Below(9), args.k = 1 + random_.Below(9);
    const Tensor a = Values(dtype, Shape{args.batch * args.m * args.k}), b = Values(dtype, Shape{args.batch * args.k * args.n});
    Compare("product", {a, b}, dtype, Shape{args.batch, args.m, args.n},
            [&](const Backend& backend, const auto& in, Tensor& y) { backend.MatMul(args, in[0], in[1], y); });
  }
}

TEST_F(GpuBackendTest, ProductsKeepAllBitsOfTheirFactorsUnlessTf32IsAskedFor) {
  EXPECT_FALSE(cuda::DeviceOptions().tf32);
  const Tensor fine = Tensor::Vector<float>({1 + 0x1p-23f}), one = Tensor::Vector<float>({1});
  const absl::StatusOr<Tensor> product = Computed({fine, one}, DType::kFloat32, Shape{1}, [](const Backend& b, const auto& in, Tensor& y) {
    b.MatMul({false, false, 1, 1, 1, 1}, in[0], in[1], y);
  });
  EXPECT_TRUE(BitwiseEqual(*product, fine));
}

TEST_F(GpuBackendTest, SoftmaxNormsAndClippedRowsWithTheirGradients) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const Shape shape = AnyShape(2, 3);
    const Tensor x = Values(dtype, shape, -5, 5), g = Values(dtype, shape);
    Compare("softmax", {x}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) { b.Softmax(in[0], y); });
    Compare("its gradient", {x, g}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) { b.SoftmaxGradient(in[0], in[1], y); });
    for (const Norm norm : {Norm::kLayer, Norm::kL2}) {
      const double epsilon = random_.Chance(0.2) ? 1e6 : 1e-5;
      Compare("norm", {x}, dtype, shape, [&](const Backend& b, const auto& in, Tensor& y) { b.Normalize(norm, epsilon, in[0], y); });
      Compare(
          "its gradient", {x, g}, dtype, shape, [&](const Backend& b, const auto& in, Tensor& y) { b.NormalizeGradient(norm, epsilon, in[0], in[1], y); }, 5);
    }
    Compare("clipped", {x}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) { b.ClipRows(in[0], 6, y); });
    Compare("its gradient", {x, g}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) { b.ClipRowsGradient(in[0], 6, in[1], y); });
  }
}

TEST_F(GpuBackendTest, LossesByClassAndByProbability) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t examples = 1 + random_.Below(9), classes = 1 + random_.Below(9);
    const Tensor x = Values(dtype, Shape{examples, classes}, -5, 5), g = Values(dtype, Shape{examples});
    for (const Tensor& labels : {Ids(examples, classes), Values(dtype, Shape{examples, classes}, 0, 1)}) {
      Compare("loss", {x, labels}, dtype, Shape{examples}, [&](const Backend& b, const auto& in, Tensor& y) {
        Tensor softmax = *Tensor::Uninitialized(y.dtype(), x.shape(), in[0].device());
        EXPECT_TRUE(b.SoftmaxCrossEntropy(in[0], in[1], y, softmax).ok());
      });
      Compare("its gradient", {x, labels, g}, dtype, x.shape(), [&](const Backend& b, const auto& in, Tensor& y) {
        Tensor loss = *Tensor::Uninitialized(y.dtype(), g.shape(), in[0].device());
        EXPECT_TRUE(b.SoftmaxCrossEntropy(in[0], in[1], loss, y).ok());
        b.SoftmaxCrossEntropyGradient(in[1], in[2], y);
      });
    }
    const Tensor z = Values(dtype, x.shape(), 0, 1), gz = Values(dtype, x.shape());
    Compare("sigmoid loss", {x, z}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) { EXPECT_TRUE(b.SigmoidCrossEntropy(in[0], in[1], y).ok()); });
    Compare("its gradient", {x, z, gz}, dtype, x.shape(),
            [](const Backend& b, const auto& in, Tensor& y) { b.SigmoidCrossEntropyGradient(in[0], in[1], in[2], y); });
  }
}

TEST_F(GpuBackendTest, ConvolutionsAndPools) {
  for (int i = 0; i < kTimes; ++i) {
    math_.most_window_elements = i % 3 == 0 ? 1 << 26 : i % 3 == 1 ? 200 : 1;  // all at once, in blocks that cut images, line by line
    const DType dtype = kTypes[i % 4];
    Window2D w;
    w.batch = 1 + random_.Below(3), w.in_height = 3 + random_.Below(6), w.in_width = 3 + random_.Below(6), w.channels = 1 + random_.Below(3);
    w.height = 1 + random_.Below(3), w.width = 1 + random_.Below(3), w.stride = 1 + random_.Below(2);
    w.top = random_.Below(w.height), w.left = random_.Below(w.width);
    w.out_height = (w.in_height + w.top - w.height) / w.stride + 1, w.out_width = (w.in_width + w.left - w.width) / w.stride + 1;
    const int64_t outputs = 1 + random_.Below(4);
    const Shape in{w.batch, w.in_height, w.in_width, w.channels}, kernel{w.height, w.width, w.channels, outputs},
        out{w.batch, w.out_height, w.out_width, outputs};
    const Tensor x = Values(dtype, in), k = Values(dtype, kernel), g = Values(dtype, out);
    Compare("convolution", {x, k}, dtype, out, [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2D(w, t[0], t[1], y); });
    Compare(
        "gradient of x", {k, g}, dtype, in, [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2DInputGradient(w, t[0], t[1], y); }, 4);
    Compare(
        "gradient of the kernel", {x, g}, dtype, kernel, [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2DKernelGradient(w, t[0], t[1], y); }, 5);

    const Shape pooled{w.batch, w.out_height, w.out_width, w.channels};
    const Tensor coarse = Cast(Values(DType::kInt8, in), dtype);  // few values: equals are frequent
    Tensor largest = *Tensor::Uninitialized(DType::kFloat64, pooled);
    cpu_.MaxPool(w, AsDoubles(coarse), largest);
    Compare("pool", {coarse}, dtype, pooled, [&](const Backend& b, const auto& t, Tensor& y) { b.MaxPool(w, t[0], y); });
    Compare("its gradient", {coarse, Cast(largest, dtype), Values(dtype, pooled)}, dtype, in,
            [&](const Backend& b, const auto& t, Tensor& y) { b.MaxPoolGradient(w, t[0], t[1], t[2], y); });
  }
}

TEST_F(GpuBackendTest, CastsBetweenAllTypes) {
  for (const DType from :
       {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
    for (const DType to :
         {DType::kBool, DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64, DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64}) {
      const Tensor x = Values(from, Shape{40}, -300, 300);
      CompareBits("cast", {x}, to, x.shape(), [](const Backend& b, const auto& in, Tensor& y) { b.Cast(in[0], y); });
    }
  }
}

TEST_F(GpuBackendTest, PermutationsAndBlocksOfAnyType) {
  for (int i = 0; i < 2 * kTimes; ++i) {
    const DType dtype = std::vector<DType>{DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64}[i % 4];
    const Shape shape = AnyShape(1, 4);
    std::vector<int> axes(shape.rank());
    std::vector<int64_t> dims;
    for (int axis = 0; axis < shape.rank(); ++axis) axes[axis] = axis;
    for (size_t axis = axes.size(); axis > 1; --axis) std::swap(axes[axis - 1], axes[random_.Below(axis)]);
    for (const int axis : axes) dims.push_back(shape.dim(axis));
    const Tensor x = Values(dtype, shape, -100, 100);
    CompareBits("permute", {x}, dtype, Shape(dims), [&](const Backend& b, const auto& in, Tensor& y) { b.Permute(in[0], axes, y); });
    CompareBits("blocks", {x}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) {
      const int64_t rows = in[0].shape().dim(0), bytes = in[0].size_bytes() / rows;
      b.CopyBlocks(y.device(), in[0].data(), bytes, y.fresh_data<char>(), bytes, bytes, rows);
    });
  }
}

TEST_F(GpuBackendTest, RowsByNumberListsOfRowsAndTriangles) {
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t rows = 1 + random_.Below(9), n = 1 + random_.Below(20), width = 1 + random_.Below(9), lists = 1 + random_.Below(5);
    const Tensor x = Values(dtype, Shape{rows, width}), ids = Ids(n, rows), g = Values(dtype, Shape{n, width});
    Compare("gather", {x, ids}, dtype, g.shape(), [](const Backend& b, const auto& in, Tensor& y) { EXPECT_TRUE(b.GatherRows(in[0], in[1], y).ok()); });
    Compare("scatter", {ids, g}, dtype, x.shape(), [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });

    std::vector<int64_t> splits{0};
    for (int64_t list = 1; list < lists; ++list) splits.push_back(splits.back() + static_cast<int64_t>(random_.Below(n - splits.back() + 1)));
    splits.push_back(n);
    const Tensor weights = Values(dtype, Shape{n}), divisors = Values(dtype, Shape{lists}, 0.5, 2);
    const auto list_of = [&](const std::vector<Tensor>& in) { return i % 3 == 0 ? RowLists{in[0], {}, {}} : RowLists{in[0], in[1], in[2]}; };
    const Tensor ends = *Tensor::Copy<int64_t>(Shape{lists + 1}, splits);
    Compare("combine", {ends, weights, divisors, g}, dtype, Shape{lists, width},
            [&](const Backend& b, const auto& in, Tensor& y) { b.CombineRows(list_of(in), in[3], y); });
    Compare("spread", {ends, weights, divisors, Values(dtype, Shape{lists, width})}, dtype, g.shape(),
            [&](const Backend& b, const auto& in, Tensor& y) { b.SpreadRows(list_of(in), in[3], y); });

    const int64_t batch = 1 + random_.Below(3), f = 2 + random_.Below(7);
    const Shape square{batch, f, f}, triangle{batch, f * (f - 1) / 2};
    Compare("triangles", {Values(dtype, square)}, dtype, triangle, [](const Backend& b, const auto& in, Tensor& y) { b.LowerTriangles(in[0], y); });
    Compare("symmetric", {Values(dtype, triangle)}, dtype, square, [](const Backend& b, const auto& in, Tensor& y) { b.SymmetricFromTriangles(in[0], y); });
  }
}

// Ids at random, few, one, rising and falling; up to so many that all steps of the sort and sums across windows happen.
TEST_F(GpuBackendTest, DuplicatesAreSummedInTheOrderInWhichTheyStand) {
  int turn = 0;
  for (const int64_t n : {0, 1, 2, 63, 64, 65, 129, 1000, 5000, 100000}) {
    for (const int64_t limit : {1, 3, 70, 1000000}) {
      const DType dtype = kTypes[++turn % 4];
      const int64_t width = n > 10000 ? 2 : 1 + static_cast<int64_t>(random_.Below(9));
      Tensor ids = Ids(n, limit);
      if (turn % 5 == 0) std::sort(ids.fresh_data<int64_t>(), ids.fresh_data<int64_t>() + n);
      if (turn % 5 == 1) std::sort(ids.fresh_data<int64_t>(), ids.fresh_data<int64_t>() + n, std::greater<int64_t>());
      SCOPED_TRACE(absl::StrCat(n, " ids below ", limit, ", ", DTypeName(dtype)));
      const Tensor rows = Values(dtype, Shape{n, width});
      const absl::StatusOr<IndexedSlices> expected = cpu_.SumDuplicates({ids, AsDoubles(rows), limit});
      const absl::StatusOr<IndexedSlices> summed = gpu_.SumDuplicates({ids, *rows.To(kGpu), limit});
      ASSERT_TRUE(expected.ok() && summed.ok()) << summed.status();
      EXPECT_TRUE(BitwiseEqual(summed->ids, expected->ids));
      EXPECT_EQ(Validate(*summed), absl::OkStatus());
      ExpectNear(*summed->rows.To(Device{}), expected->rows, Tolerance(dtype));
    }
  }
}

// In float32 the three of them sum to 0 one by one, and to 1 in double.
TEST_F(GpuBackendTest, ADeterministicScatterSumsInDouble) {
  const Tensor ids = Tensor::Vector<int64_t>({0, 0, 0}), rows = Tensor::Vector<float>({1, 1e8F, -1e8F});
  const auto scattered = [&] {
    return *Computed({ids, rows}, DType::kFloat32, Shape{1}, [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });
  };
  EXPECT_EQ(scattered().values<float>()->at(0), 0);
  math_.Configure({/*tf32=*/false, /*deterministic=*/true});
  EXPECT_EQ(scattered().values<float>()->at(0), 1);
}

TEST_F(GpuBackendTest, ScatteringIsTheSameInEveryOrderWhereItMustBe) {
  math_.Configure({/*tf32=*/false, /*deterministic=*/true});
  for (int i = 0; i < kTimes; ++i) {
    const DType dtype = kTypes[i % 4];
    const int64_t rows = 1 + random_.Below(9), n = 1 + random_.Below(300), width = 1 + random_.Below(9);
    Compare("scatter", {Ids(n, rows), Values(dtype, Shape{n, width})}, dtype, Shape{rows, width},
            [](const Backend& b, const auto& in, Tensor& y) { b.ScatterAddRows(in[0], in[1], y); });
  }
}

TEST_F(GpuBackendTest, DuplicatesOfOneIdAreAddedFromTheFirstToTheLast) {
  const Tensor ids = Tensor::Vector<int64_t>({5, 2, 5, 5}), rows = Tensor::Vector<double>({1, 7, 1e16, -1e16});  // from the last: 1
  const absl::StatusOr<IndexedSlices> summed = gpu_.SumDuplicates({ids, *rows.To(kGpu), 6});
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_EQ(summed->rows.To(Device{})->values<double>()->at(1), 0);
}

TEST_F(GpuBackendTest, SlicesWithoutDuplicatesAreGivenBackAsTheyAre) {
  const IndexedSlices rising{Tensor::Vector<int64_t>({1, 4}), *Values(DType::kFloat32, Shape{2, 3}).To(kGpu), 5};
  EXPECT_EQ(SumDuplicates(rising)->rows.data(), rising.rows.data());
  const IndexedSlices mixed{Tensor::Vector<int64_t>({4, 1, 4}), *Tensor::Vector<float>({1, 2, 3}).To(kGpu), 5};
  const absl::StatusOr<IndexedSlices> summed = SumDuplicates(mixed);
  ASSERT_TRUE(summed.ok()) << summed.status();
  EXPECT_TRUE(BitwiseEqual(summed->ids, Tensor::Vector<int64_t>({1, 4})));
  EXPECT_TRUE(BitwiseEqual(*summed->rows.To(Device{}), Tensor::Vector<float>({2, 4})));
  const IndexedSlices narrow{mixed.ids, Cast(Tensor::Vector<float>({1, 2, 3}), DType::kFloat16), 5};
  EXPECT_THAT(std::string(SumDuplicates(narrow).status().message()), HasSubstr("SumDuplicates: float16 [3] is not computed with on the CPU"));
}

TEST_F(GpuBackendTest, ATapeComputesInNarrowTypesAndTheCpuSaysWhereThatGoes) {
  for (const DType narrow : {DType::kFloat16, DType::kBFloat16}) {
    MapReader reader;
    GradientTape tape(reader);
    const Var x = tape.Watch("x", *Cast(Tensor::Vector<float>({1, 2, -3, 4}), narrow).To(kGpu));
    const Var y = ReduceSum(Square(x) * 0.5f) + ReduceSum(x);
    EXPECT_EQ(y.dtype(), narrow);
    const absl::StatusOr<Gradients> gradients = tape.Gradient(y);
    ASSERT_TRUE(gradients.ok()) << gradients.status();
    EXPECT_EQ(*gradients->GlobalNorm(), std::sqrt(4.0 + 9 + 4 + 25));
    const absl::StatusOr<Tensor> dx = std::get<Tensor>(gradients->entries().at("x")).To(Device{});
    EXPECT_TRUE(BitwiseEqual(*dx, Cast(Tensor::Vector<float>({2, 3, -2, 5}), narrow)));
    const absl::Status here = Relu(*dx).status();
    EXPECT_EQ(here.message(),
              absl::StrCat("Relu: ", DTypeName(narrow), " [4] is not computed with on the CPU; Cast it to float32 or float64, or compute on a GPU"));
  }
}

TEST_F(GpuBackendTest, AGlobalNormOfManyGradientsIsWaitedForOnce) {
  Gradients gradients;
  for (const char* name : {"a", "b", "c"}) gradients.Set(name, *Tensor::Vector<float>({2, 4, 4}).To(kGpu));
  gradients.Set("here", Tensor::Vector<float>({6}));
  math_.log.clear();
  EXPECT_EQ(*gradients.GlobalNorm(), 12);
  EXPECT_EQ(std::count_if(math_.log.begin(), math_.log.end(), [](const std::string& line) { return line.find("out") != std::string::npos; }), 1);
}

TEST_F(GpuBackendTest, WhatFollowsFromAnEmptyBatchIsComputedOnItsDevice) {
  MapReader reader;
  GradientTape tape(reader);
  const Tensor nothing = *Tensor::Uninitialized(DType::kFloat32, Shape{0, 3}, kGpu);
  const Var w = tape.Watch("w", *Values(DType::kFloat32, Shape{3, 2}).To(kGpu)), b = tape.Watch("b", *Values(DType::kFloat32, Shape{2}).To(kGpu));
  const absl::StatusOr<Gradients> gradients = tape.Gradient(ReduceSum(Relu(MatMul(nothing, w) + b)));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  for (const auto& [name, gradient] : gradients->entries()) EXPECT_EQ(std::get<Tensor>(gradient).device(), kGpu) << name;
  EXPECT_EQ(gradients->entries().size(), 2u);
  EXPECT_EQ(*gradients->GlobalNorm(), 0);
}

TEST_F(GpuBackendTest, AnIdOrALabelOutOfRangeIsToldWhenAValueComesBackAndOnlyOnce) {
  const Tensor x = Values(DType::kFloat32, Shape{3, 2});
  const Tensor ids = *Tensor::Vector<int64_t>({0, 7, 9}).To(kGpu);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
  ASSERT_TRUE(gpu_.GatherRows(*x.To(kGpu), ids, y).ok());
  const absl::Status told = y.To(Device{}).status();
  EXPECT_EQ(told.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(told.message(), "Gather: id 7 at 1 is outside [0, 3), the rows of float32 [3, 2], on GPU:0 (host device 0)");
  EXPECT_TRUE(y.To(Device{}).ok());

  Tensor loss = *Tensor::Uninitialized(DType::kFloat32, Shape{3}, kGpu), softmax = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
  ASSERT_TRUE(gpu_.SoftmaxCrossEntropy(*x.To(kGpu), *Tensor::Vector<int64_t>({0, 1, -1}).To(kGpu), loss, softmax).ok());
  EXPECT_EQ(loss.To(Device{}).status().message(),
            "SoftmaxCrossEntropy: label -1 of example 2 is outside [0, 2): the logits, float32 [3, 2], have 2 classes, on GPU:0 (host device 0)");
}

TEST_F(GpuBackendTest, ALabelThatIsNoProbabilityIsToldInTheWordsOfTheCpu) {
  const Tensor x = Values(DType::kFloat32, Shape{3, 2});
  for (const float wrong : {-1.0f, 2.0f, NAN}) {
    const Tensor labels = *Tensor::Copy<float>(Shape{3, 2}, {0, 1, 0.5f, 0.5f, wrong, 0});
    Tensor here = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}), there = *Tensor::Uninitialized(DType::kFloat32, Shape{3, 2}, kGpu);
    const absl::Status sigmoid = cpu_.SigmoidCrossEntropy(x, labels, here);
    EXPECT_THAT(std::string(sigmoid.message()), HasSubstr("of example 2 is outside [0, 1]"));
    ASSERT_TRUE(gpu_.SigmoidCrossEntropy(*x.To(kGpu), *labels.To(kGpu), there).ok());
    EXPECT_EQ(there.To(Device{}).status(), absl::InvalidArgumentError(absl::StrCat(sigmoid.message(), ", on GPU:0 (host device 0)")));

    Tensor loss = *Tensor::Uninitialized(DType::kFloat32, Shape{3}), loss_there = *Tensor::Uninitialized(DType::kFloat32, Shape{3}, kGpu);
    const absl::Status softmax = cpu_.SoftmaxCrossEntropy(x, labels, loss, here);
    EXPECT_THAT(std::string(softmax.message()), HasSubstr("of example 2, class 0, is outside [0, 1]"));
    ASSERT_TRUE(gpu_.SoftmaxCrossEntropy(*x.To(kGpu), *labels.To(kGpu), loss_there, there).ok());
    EXPECT_EQ(loss_there.To(Device{}).status(), absl::InvalidArgumentError(absl::StrCat(softmax.message(), ", on GPU:0 (host device 0)")));
  }
}

TEST_F(GpuBackendTest, MemoryIsTheDevicesAndGivenBackWithTheLastHandle) {
  {
    const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(kGpu);
    EXPECT_EQ(there.device(), kGpu);
    EXPECT_EQ(math_.bytes_in_use(0), 12u);
    EXPECT_EQ(there.values<float>().status().message(), "the tensor is on GPU:0: use To(Device()) first");
    EXPECT_TRUE(BitwiseEqual(*there.To(Device{}), Tensor::Vector<float>({1, 2, 3})));
  }
  EXPECT_EQ(math_.bytes_in_use(0), 0u);
  EXPECT_THAT(math_.log, ElementsAre("0 allocate 12", "0 in small: copy 12", "0 in small: record", "0 compute: wait",  // there
                                     "0 compute: record", "0 out: wait", "0 out: copy 12", absl::StrCat("0 out: copy ", sizeof(cuda::Fault)),
                                     "0 out: record",  // and back, with its fault
                                     "0 free"));
}

TEST_F(GpuBackendTest, MemoryMissingOnTheWayIsToldWithTheNextValueAndTheDeviceGoesOn) {
  Window2D w;
  w.batch = 1, w.in_height = w.in_width = w.out_height = w.out_width = 8, w.channels = 1, w.height = w.width = w.stride = 1;
  const Tensor x = *Values(DType::kFloat32, Shape{1, 8, 8, 1}).To(kGpu), kernel = *Values(DType::kFloat32, Shape{1, 1, 1, 1}).To(kGpu);
  Tensor y = *Tensor::Uninitialized(DType::kFloat32, Shape{1, 8, 8, 1}, kGpu);
  math_.free_bytes = math_.bytes_in_use(0) + 100;
  gpu_.Conv2D(w, x, kernel, y);
  EXPECT_EQ(y.To(Device{}).status(), absl::ResourceExhaustedError("GPU:0 (host device 0) has no memory for what a computation needs on the way: make the "
                                                                  "batch smaller, or leave the GPU to one process"));
  math_.free_bytes = 1 << 20;
  gpu_.Conv2D(w, x, kernel, y);
  EXPECT_TRUE(y.To(Device{}).ok());
}

TEST_F(GpuBackendTest, WhatGoesWrongIsToldOnceByWhoeverWaitsNext) {
  const Tensor there = *Tensor::Vector<float>({1, 2, 3}).To(kGpu);
  math_.Note(0, "a launch failed");
  math_.Note(0, "and then another");
  EXPECT_EQ(gpu_.SumsOfSquares({there}).status(), absl::InternalError("GPU:0 (host device 0): a launch failed"));
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
  EXPECT_FALSE(x.To(Device{}).ok());  // another's value
  EXPECT_TRUE(y.To(Device{}).ok());
  EXPECT_EQ(gpu_.FindFailures(kGpu).count, 1);
  EXPECT_EQ(gpu_.FindFailures(kGpu).last,
            absl::InvalidArgumentError("Gather: id 7 at 0 is outside [0, 3), the rows of float32 [3, 2], on GPU:0 (host device 0)"));
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
  EXPECT_THAT(std::string(full.message()), HasSubstr("GPU:0 (host device 0) has no memory for 12 bytes more"));
  math_.free_bytes = 1000;
  const Tensor there = *x.To(kGpu);
  math_.error = "an illegal memory access was encountered";
  EXPECT_EQ(there.To(Device{}).status().message(), "GPU:0 (host device 0): an illegal memory access was encountered");
}

}  // namespace
}  // namespace divvy::internal
