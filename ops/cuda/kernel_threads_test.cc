// Tests kernels whose threads share rows or columns, with as many threads as a GPU gives them. They
// must compute about the numbers of a single thread, and the same bits in whatever order the
// threads run. backend_test_on_host_threads covers all kernels, in one order.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/cuda/testing/host_threads.h"

namespace divvy::internal {
namespace {

using Order = cuda::HostThreads::Order;

constexpr uint64_t kSeed = 20261125;
constexpr Device kGpu{Device::Kind::kGpu, 0};

using Results = std::map<std::string, std::vector<double>>;

double At(const Tensor& x, int64_t i) {
  switch (x.dtype()) {
    case DType::kFloat64: return x.data_as<double>()[i];
    case DType::kInt64: return static_cast<double>(x.data_as<int64_t>()[i]);
    default: return x.data_as<float>()[i];
  }
}

// The results of many kernels, by name, for fixed inputs.
class Kernels {
 public:
  explicit Kernels(GpuBackend& gpu) : gpu_(gpu) {}

  Results Run() {
    for (const auto& [rows, width] :
         std::vector<std::pair<int64_t, int64_t>>{{11, 1}, {11, 33}, {3, 1025}})
      Rows(rows, width);
    for (const auto& [rows, columns] :
         std::vector<std::pair<int64_t, int64_t>>{{3, 257}, {70, 33}, {513, 5}, {4097, 1}})
      Columns(rows, columns);
    for (const int64_t f : {1, 2, 5, 47}) Triangles(f);
    Add("parts of long rows", Shape{3, 1},
        [x = Drawn({3, 9'000})](const GpuBackend& b, Tensor& y) { b.SumTo(x, 0.5, y); });
    for (const int64_t n : {1, 70, 17'000}) Duplicates(n);
    return std::move(results_);
  }

 private:
  using Compute = std::function<void(const GpuBackend&, Tensor&)>;

  Tensor Drawn(const Shape& shape) {
    Tensor x = *Tensor::Uninitialized(DType::kFloat32, shape);
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      x.fresh_data<float>()[i] = static_cast<float>(random_.Uniform() - 0.5);
    return *x.To(kGpu);
  }
  Tensor Ids(int64_t n, int64_t limit) {
    Tensor ids = *Tensor::Uninitialized(DType::kInt64, {n});
    for (int64_t i = 0; i < n; ++i)
      ids.fresh_data<int64_t>()[i] = static_cast<int64_t>(random_.Below(limit));
    return *ids.To(kGpu);
  }
  static Tensor New(const Shape& shape) {
    return *Tensor::Uninitialized(DType::kFloat32, shape, kGpu);
  }
  void Add(const std::string& name, const Shape& shape, const Compute& compute) {
    Tensor y = New(shape);
    compute(gpu_, y);
    Keep(name, y);
  }
  void Keep(const std::string& name, const Tensor& y) {
    const absl::StatusOr<Tensor> here = y.To(Device{});
    ASSERT_TRUE(here.ok()) << name << ": " << here.status();
    std::vector<double>& values = results_[name + " " + std::to_string(results_.size())];
    for (int64_t i = 0; i < here->shape().num_elements(); ++i) values.push_back(At(*here, i));
  }

  void Rows(int64_t rows, int64_t width) {
    const Shape shape{rows, width};
    const Tensor x = Drawn(shape), g = Drawn(shape), g_of_rows = Drawn({rows}),
                 labels = Ids(rows, width);
    Tensor chances = New(shape);
    gpu_.Unary(UnaryOp::kSigmoid, x, chances);
    Add("softmax", shape, [&](const GpuBackend& b, Tensor& y) { b.Softmax(x, y); });
    Add("its gradient", shape, [&](const GpuBackend& b, Tensor& y) { b.SoftmaxGradient(x, g, y); });
    for (const Norm norm : {Norm::kLayer, Norm::kL2}) {
      Add("norm", shape, [&](const GpuBackend& b, Tensor& y) { b.Normalize(norm, 1e-5, x, y); });
      Add("its gradient", shape,
          [&](const GpuBackend& b, Tensor& y) { b.NormalizeGradient(norm, 1e-5, x, g, y); });
    }
    Add("clipped", shape, [&](const GpuBackend& b, Tensor& y) { b.ClipRows(x, 1, y); });
    Add("its gradient", shape,
        [&](const GpuBackend& b, Tensor& y) { b.ClipRowsGradient(x, 1, g, y); });
    for (const Tensor& target : {labels, chances}) {
      Tensor softmax = New(shape);
      Add("loss", {rows}, [&](const GpuBackend& b, Tensor& y) {
        EXPECT_TRUE(b.SoftmaxCrossEntropy(x, target, y, softmax).ok());
      });
      gpu_.SoftmaxCrossEntropyGradient(target, g_of_rows, softmax);
      Keep("its gradient", softmax);
    }
    Add("sum", {rows, 1}, [&](const GpuBackend& b, Tensor& y) { b.SumTo(x, 0.5, y); });
    Add("max", {rows, 1}, [&](const GpuBackend& b, Tensor& y) { b.MaxTo(x, y); });
    Keep("squares", *Tensor::Copy<double>({1}, *gpu_.SumsOfSquares({x})));
    const Tensor splits = *Tensor::Vector<int64_t>({0, 0, rows / 2, rows}).To(kGpu),
                 sums = Drawn({3, width});
    Add("spread", shape, [&](const GpuBackend& b, Tensor& y) {
      b.SpreadRows(RowLists{splits, {}, {}}, sums, y);
    });
  }

  void Columns(int64_t rows, int64_t columns) {
    const Tensor x = Drawn({rows, columns}), g = Drawn({rows, columns});
    Add("columns", {columns}, [&](const GpuBackend& b, Tensor& y) { b.SumTo(x, 2, y); });
    Tensor sums = New({columns});
    Add("gradient", {rows, columns}, [&](const GpuBackend& b, Tensor& y) {
      b.UnaryGradientAndSums(UnaryOp::kRelu, x, g, y, sums);
    });
    Keep("its columns", sums);
  }

  void Triangles(int64_t f) {
    const int64_t elements = f * (f - 1) / 2;
    Add("triangles", {9, elements},
        [x = Drawn({9, f, f})](const GpuBackend& b, Tensor& y) { b.LowerTriangles(x, y); });
    Add("symmetric", {9, f, f}, [x = Drawn({9, elements})](const GpuBackend& b, Tensor& y) {
      b.SymmetricFromTriangles(x, y);
    });
  }

  void Duplicates(int64_t n) {
    const IndexedSlices slices{*Ids(n, n / 3 + 1).To(Device{}), Drawn({n, 2}), n};
    const absl::StatusOr<IndexedSlices> summed = gpu_.SumDuplicates(slices);
    ASSERT_TRUE(summed.ok()) << summed.status();
    Keep("ids", summed->ids);
    Keep("sums of ids", summed->rows);
  }

  GpuBackend& gpu_;
  Random random_{kSeed};
  Results results_;
};

Results ResultsOf(const std::function<void(cuda::HostMath&)>& prepare) {
  cuda::HostMath math(1);
  math.keep_log = false;
  prepare(math);
  GpuBackend gpu(math);
  SetGpuMemory(&gpu);
  Results results = Kernels(gpu).Run();
  SetGpuMemory(nullptr);
  return results;
}

Results ResultsOnThreads(Order order) {
  std::unique_ptr<cuda::HostThreads> threads;
  return ResultsOf([&](cuda::HostMath& math) {
    threads = std::make_unique<cuda::HostThreads>(
        order, kSeed, [&math](const char* wrong) { math.Note(0, wrong); });
    math.UseBlock(0, threads.get());
  });
}

TEST(KernelThreadsTest, ThreadsOfABlockComputeWhatOneDoesWithTheSameBitsInEveryOrder) {
  RecordProperty("seed", static_cast<int>(kSeed));
  const Results alone = ResultsOf([](cuda::HostMath&) {}),
                first = ResultsOnThreads(Order::kTogether);
  EXPECT_GT(alone.size(), 60u);
  ASSERT_EQ(first.size(), alone.size());
  for (const auto& [name, expected] : alone) {
    ASSERT_EQ(first.at(name).size(), expected.size()) << name;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(first.at(name)[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i])))
          << name << ", element " << i;
    }
  }
  for (const Order order : {Order::kRising, Order::kFalling, Order::kAny}) {
    const Results again = ResultsOnThreads(order);
    for (const auto& [name, result] : first)
      EXPECT_TRUE(again.at(name) == result) << name << " in order " << static_cast<int>(order);
  }
}

TEST(KernelThreadsTest, ThreadsThatDoNotMeetAreAnErrorOfTheDevice) {
  cuda::HostMath math(1);
  cuda::HostThreads threads(Order::kTogether, kSeed,
                            [&math](const char* wrong) { math.Note(0, wrong); });
  threads.Run(32, [&](int thread) {
    if (thread > 0) threads.Meet(thread, "a barrier");
  });
  GpuBackend gpu(math);
  const DeviceFailures failures = gpu.FindFailures(kGpu);
  EXPECT_EQ(failures.count, 1);
  EXPECT_EQ(
      failures.last.message(),
      "GPU:0 (host device 0): uneven barrier: threads of a block wait for others that never come: "
      "31 at a barrier (the first is thread 1), 1 at its end (the first is thread 0)");
}

}  // namespace
}  // namespace divvy::internal
