#include "ops/cuda/testing/backend_comparison.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace divvy::internal {

Shape BackendComparison::AnyShape(int min_rank, int max_rank) {
  std::vector<int64_t> dims(min_rank + random_.Below(max_rank - min_rank + 1));
  for (int64_t& dim : dims) dim = 1 + static_cast<int64_t>(random_.Below(9));
  return Shape(dims);
}

Shape BackendComparison::Stretchable(const Shape& full) {
  std::vector<int64_t> dims(
      full.dims().begin() + static_cast<std::ptrdiff_t>(random_.Below(full.rank() + 1)),
      full.dims().end());
  for (int64_t& dim : dims) dim = random_.Chance(0.4) ? 1 : dim;
  return Shape(dims);
}

Tensor BackendComparison::Values(DType dtype, const Shape& shape, double low, double high) {
  Tensor values = *Tensor::Uninitialized(DType::kFloat64, shape);
  for (int64_t i = 0; i < shape.num_elements(); ++i)
    values.fresh_data<double>()[i] = low + (high - low) * random_.Uniform();
  return Cast(values, dtype);
}

Tensor BackendComparison::Ids(int64_t n, int64_t limit) {
  Tensor ids = *Tensor::Uninitialized(DType::kInt64, Shape{n});
  for (int64_t i = 0; i < n; ++i)
    ids.fresh_data<int64_t>()[i] = static_cast<int64_t>(random_.Below(limit));
  return ids;
}

void BackendComparison::Compare(const std::string& what, const std::vector<Tensor>& inputs,
                                DType dtype, const Shape& shape, const Compute& compute,
                                double slack) {
  SCOPED_TRACE(absl::StrCat(what, " -> ", DTypeName(dtype), " ", shape.ToString()));
  std::vector<Tensor> wide;
  for (const Tensor& input : inputs)
    wide.push_back(IsFloating(input.dtype()) ? AsDoubles(input) : input);
  Tensor expected = *Tensor::Uninitialized(DType::kFloat64, shape);
  compute(cpu_, wide, expected);
  const absl::StatusOr<Tensor> result = Computed(inputs, dtype, shape, compute);
  ASSERT_TRUE(result.ok()) << result.status();
  ExpectNear(*result, expected, slack * Tolerance(dtype));
}

void BackendComparison::CompareBits(const std::string& what, const std::vector<Tensor>& inputs,
                                    DType dtype, const Shape& shape, const Compute& compute) {
  SCOPED_TRACE(absl::StrCat(what, " -> ", DTypeName(dtype), " ", shape.ToString()));
  Tensor expected = *Tensor::Uninitialized(dtype, shape);
  compute(cpu_, inputs, expected);
  const absl::StatusOr<Tensor> result = Computed(inputs, dtype, shape, compute);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(BitwiseEqual(*result, expected));
}

absl::StatusOr<Tensor> BackendComparison::Computed(const std::vector<Tensor>& inputs, DType dtype,
                                                   const Shape& shape, const Compute& compute) {
  std::vector<Tensor> there;
  for (const Tensor& input : inputs) there.push_back(*input.To(device_));
  Tensor computed = *Tensor::Uninitialized(dtype, shape, device_);
  compute(there_, there, computed);
  return computed.To(Device{});
}

double BackendComparison::Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat16: return 2e-3;
    case DType::kBFloat16: return 1.6e-2;
    case DType::kFloat32: return 2e-5;
    default: return 1e-11;
  }
}

void BackendComparison::ExpectNear(const Tensor& result, const Tensor& expected, double tolerance) {
  const Tensor a = AsDoubles(result);
  for (int64_t i = 0; i < expected.shape().num_elements(); ++i) {
    const double x = a.data_as<double>()[i], y = expected.data_as<double>()[i];
    if (std::isnan(x) && std::isnan(y)) continue;
    ASSERT_NEAR(x, y, tolerance * std::max(1.0, std::abs(y)))
        << "element " << i << " of " << expected.ToString();
  }
}

Tensor BackendComparison::Cast(const Tensor& x, DType dtype) {
  Tensor y = *Tensor::Uninitialized(dtype, x.shape());
  cpu_.Cast(x, y);
  return y;
}

void BackendComparison::CompareConvolutionAndPool(DType dtype) {
  Window2D w;
  w.batch = 1 + random_.Below(3), w.in_height = 3 + random_.Below(6),
  w.in_width = 3 + random_.Below(6), w.channels = 1 + random_.Below(3);
  w.height = 1 + random_.Below(3), w.width = 1 + random_.Below(3), w.stride = 1 + random_.Below(2);
  w.top = random_.Below(w.height), w.left = random_.Below(w.width);
  w.out_height = (w.in_height + w.top - w.height) / w.stride + 1,
  w.out_width = (w.in_width + w.left - w.width) / w.stride + 1;
  const int64_t outputs = 1 + random_.Below(4);
  const Shape in{w.batch, w.in_height, w.in_width, w.channels},
      kernel{w.height, w.width, w.channels, outputs},
      out{w.batch, w.out_height, w.out_width, outputs};
  const Tensor x = Values(dtype, in), k = Values(dtype, kernel), g = Values(dtype, out);
  Compare("convolution", {x, k}, dtype, out,
          [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2D(w, t[0], t[1], y); });
  Compare(
      "gradient of x", {k, g}, dtype, in,
      [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2DInputGradient(w, t[0], t[1], y); },
      4);
  Compare(
      "gradient of the kernel", {x, g}, dtype, kernel,
      [&](const Backend& b, const auto& t, Tensor& y) { b.Conv2DKernelGradient(w, t[0], t[1], y); },
      5);

  const Shape pooled{w.batch, w.out_height, w.out_width, w.channels};
  // The inputs have few different values, so equal maxima are frequent.
  const Tensor coarse = Cast(Values(DType::kInt8, in), dtype);
  Tensor largest = *Tensor::Uninitialized(DType::kFloat64, pooled);
  cpu_.MaxPool(w, AsDoubles(coarse), largest);
  Compare("pool", {coarse}, dtype, pooled,
          [&](const Backend& b, const auto& t, Tensor& y) { b.MaxPool(w, t[0], y); });
  Compare("its gradient", {coarse, Cast(largest, dtype), Values(dtype, pooled)}, dtype, in,
          [&](const Backend& b, const auto& t, Tensor& y) {
            b.MaxPoolGradient(w, t[0], t[1], t[2], y);
          });
}

void BackendComparison::CompareRows(DType dtype, const Shape& shape) {
  const Tensor x = Values(dtype, shape, -5, 5), g = Values(dtype, shape);
  Compare("softmax", {x}, dtype, shape,
          [](const Backend& b, const auto& in, Tensor& y) { b.Softmax(in[0], y); });
  Compare("its gradient", {x, g}, dtype, shape,
          [](const Backend& b, const auto& in, Tensor& y) { b.SoftmaxGradient(in[0], in[1], y); });
  for (const Norm norm : {Norm::kLayer, Norm::kL2}) {
    const double epsilon = random_.Chance(0.2) ? 1e6 : 1e-5;
    Compare("norm", {x}, dtype, shape, [&](const Backend& b, const auto& in, Tensor& y) {
      b.Normalize(norm, epsilon, in[0], y);
    });
    Compare(
        "its gradient", {x, g}, dtype, shape,
        [&](const Backend& b, const auto& in, Tensor& y) {
          b.NormalizeGradient(norm, epsilon, in[0], in[1], y);
        },
        5);
  }
  Compare("clipped", {x}, dtype, shape,
          [](const Backend& b, const auto& in, Tensor& y) { b.ClipRows(in[0], 6, y); });
  Compare("its gradient", {x, g}, dtype, shape, [](const Backend& b, const auto& in, Tensor& y) {
    b.ClipRowsGradient(in[0], 6, in[1], y);
  });
}

void BackendComparison::CompareCrossEntropy(const Tensor& x, const Tensor& labels,
                                            const Tensor& g) {
  Compare("loss", {x, labels}, x.dtype(), g.shape(),
          [&](const Backend& b, const auto& in, Tensor& y) {
            Tensor softmax = *Tensor::Uninitialized(y.dtype(), x.shape(), in[0].device());
            EXPECT_TRUE(b.SoftmaxCrossEntropy(in[0], in[1], y, softmax).ok());
          });
  Compare("its gradient", {x, labels, g}, x.dtype(), x.shape(),
          [&](const Backend& b, const auto& in, Tensor& y) {
            Tensor loss = *Tensor::Uninitialized(y.dtype(), g.shape(), in[0].device());
            EXPECT_TRUE(b.SoftmaxCrossEntropy(in[0], in[1], loss, y).ok());
            b.SoftmaxCrossEntropyGradient(in[1], in[2], y);
          });
}

}  // namespace divvy::internal
