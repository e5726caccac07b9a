// bazel run --config=cuda //bench/gpu [-- --format=json]
//
// The speed of the first GPU through ops/, compared with its speed when only CUDA's own libraries
// are called:
// - products by shape;
// - training steps of perceptrons at batches of 64 to 4096, compared with their products alone;
// - the part of copies that is hidden behind computation, and the cost of single calls (without a
//   ceiling).
// A build without CUDA has no ceilings; DIVVY_CUDA_LIBRARY may then name a library whose devices
// the host simulates. Exits with 78 if there is no GPU.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/gpu/copies.h"
#include "bench/gpu/device_ceilings.h"
#include "bench/gpu/overlap.h"
#include "bench/rounds.h"
#include "ops/cuda/gpus.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/variable_reader.h"
#include "tensor/device_memory.h"

ABSL_FLAG(int, times, 50, "repetitions in a round; short operations are repeated more often");
ABSL_FLAG(int64_t, largest, 4096,
          "the largest product, width and batch; lower it on devices that the host simulates");

namespace divvy::bench {
namespace {

constexpr Device kGpu{Device::Kind::kGpu, 0};

void Report(const Comparison& comparison, const Unit& unit) { Show("gpu", comparison, unit); }

// Reports a figure without a ceiling.
void ReportFigure(const std::string& what, double value, const std::string& unit) {
  Comparison figure;
  figure.figure = what;
  figure.rate = value;
  Report(figure, {unit});
}

// A benchmark ends at the first error.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(EXIT_FAILURE);
}

void CheckDone(const absl::Status& status) {
  OrDie(status.ok() ? absl::StatusOr<bool>(true) : absl::StatusOr<bool>(status));
}

Tensor RandomOnHost(const Shape& shape) {
  Random random(1);
  std::vector<float> values(shape.num_elements());
  for (float& value : values) value = static_cast<float>(random.Uniform() - 0.5);
  return OrDie(Tensor::Copy<float>(shape, values));
}

Tensor RandomOnGpu(const Shape& shape) { return OrDie(RandomOnHost(shape).To(kGpu)); }

// An error that a device has found would make the figures meaningless.
void CheckFailures() {
  const DeviceFailures failures = OrDie(GpuMemory())->FindFailures(kGpu);
  if (failures.count == 0) return;
  std::fprintf(stderr, "%s\n", failures.last.ToString().c_str());
  std::exit(EXIT_FAILURE);
}

// Waits for the device in the same way as the ceiling does.
void Synchronize(DeviceCeilings* ceilings) {
  ceilings != nullptr ? ceilings->Synchronize() : CheckFailures();
}

// If `ceilings` is null, only the figure runs.
void MeasureAndReport(DeviceCeilings* ceilings, const Contender& figure, const Contender& ceiling,
                      double units, const Unit& unit) {
  Report(ceilings != nullptr ? Compare(figure, ceiling, units) : MeasureAlone(figure, units), unit);
  CheckFailures();
}

int64_t AtMostLargest(int64_t size) { return std::min(size, absl::GetFlag(FLAGS_largest)); }

// ---- products -----------------------------------------------------------------------------------

struct Sizes {
  int64_t m, n, k;
};

void MeasureProduct(DeviceCeilings* ceilings, DType dtype, const Sizes& sizes) {
  const int64_t m = sizes.m, n = sizes.n, k = sizes.k;
  const bool narrow = dtype == DType::kBFloat16;
  const double operations =
      2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  // Small products are repeated for some milliseconds, so that the wait at the end of a round is
  // less than 1 % of it.
  const int times =
      absl::GetFlag(FLAGS_times) * static_cast<int>(std::clamp(5e9 / operations, 1.0, 40.0));
  const Var a = OrDie(Cast(Var(RandomOnGpu({m, k})), dtype).Value());
  const Var b = OrDie(Cast(Var(RandomOnGpu({k, n})), dtype).Value());
  const Contender figure{absl::StrCat("MatMul ", DTypeName(dtype), " ", m, "x", n, "x", k), [&] {
                           for (int i = 0; i < times; ++i) OrDie(MatMul(a, b).Value());
                           Synchronize(ceilings);
                         }};
  const Contender ceiling{
      "cuBLAS alone", [&] {
        ceilings->Multiply(narrow ? Precision::kBFloat16 : Precision::kFloat32, {{m, n, k}}, times);
      }};
  MeasureAndReport(ceilings, figure, ceiling, operations * times, {"TFLOP/s", 1e12});
}

// Squares, and the shapes of mnist_mlp's first layer.
void MeasureProducts(DeviceCeilings* ceilings) {
  const int64_t largest = absl::GetFlag(FLAGS_largest);
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const int64_t size : {4096, 2048, 1024, 512, 256, 64}) {
      if (size <= largest || size == 64)
        MeasureProduct(ceilings, dtype,
                       {AtMostLargest(size), AtMostLargest(size), AtMostLargest(size)});
    }
    for (const int64_t batch : {64, 256, 1024, 4096}) {
      if (std::max<int64_t>(batch, 784) <= largest)
        MeasureProduct(ceilings, dtype, {batch, 512, 784});
    }
  }
}

// ---- perceptrons --------------------------------------------------------------------------------

std::vector<int64_t> Widths() {
  return {AtMostLargest(1024), AtMostLargest(4096), AtMostLargest(4096), AtMostLargest(1024)};
}

class NoVariables : public VariableReader {
 public:
  absl::Status Read(absl::Span<ReadRequest>) override {
    return absl::NotFoundError("no variables");
  }
  Device device() const override { return kGpu; }
};

struct Perceptron {
  std::vector<Tensor> kernels, biases;
  explicit Perceptron(const std::vector<int64_t>& widths) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      kernels.push_back(RandomOnGpu({widths[i], widths[i + 1]}));
      biases.push_back(RandomOnGpu({widths[i + 1]}));
    }
  }

  // Computes the loss's gradients with respect to all kernels and biases. Returns one of them.
  Tensor Step(const Tensor& x, const Tensor& labels) const {
    NoVariables variables;
    GradientTape tape(variables);
    Var h = x;
    for (size_t i = 0; i < kernels.size(); ++i) {
      h = MatMul(h, tape.Watch(absl::StrCat("kernel", i), kernels[i])) +
          tape.Watch(absl::StrCat("bias", i), biases[i]);
      if (i + 1 < kernels.size()) h = Relu(h);
    }
    const Gradients gradients = OrDie(tape.Gradient(ReduceMean(SoftmaxCrossEntropy(h, labels))));
    return std::get<Tensor>(gradients.entries().at("kernel0"));
  }
};

void MeasurePerceptron(DeviceCeilings* ceilings, int64_t batch) {
  const int times = absl::GetFlag(FLAGS_times);
  const std::vector<int64_t> widths = Widths();
  const Perceptron perceptron(widths);
  const Tensor x = RandomOnGpu({batch, widths[0]}),
               labels = OrDie(Tensor::Vector<int64_t>(std::vector<int64_t>(batch)).To(kGpu));
  const Contender figure{absl::StrCat("perceptron step, batch ", batch), [&] {
                           for (int i = 0; i < times; ++i) perceptron.Step(x, labels);
                           Synchronize(ceilings);
                         }};
  const Contender ceiling{
      "its products by cuBLAS alone",
      [&] { ceilings->Multiply(Precision::kFloat32, PerceptronProducts(batch, widths), times); }};
  MeasureAndReport(ceilings, figure, ceiling, static_cast<double>(batch * times), {"examples/s"});
}

// ---- copies beside computation ------------------------------------------------------------------

double SecondsEach(int times, const std::function<void()>& run) {
  return 1 / MeasureAlone({"", run}, times, /*rounds=*/3).rate;
}

// Pinned memory. The host's memory is pinned from the second copy of the same size on.
Tensor RandomOnPinnedHost(const Shape& shape) {
  RandomOnGpu(shape);
  return RandomOnHost(shape);
}

// Copies 64 MB of pinned memory while products of 2048^3 are computed. The number of products is
// such that they take as long as the copy.
void MeasureOverlap() {
  const int times = absl::GetFlag(FLAGS_times);
  const int64_t size = AtMostLargest(2048);
  const Tensor host = RandomOnPinnedHost({AtMostLargest(4096), AtMostLargest(4096)});
  const Var a = RandomOnGpu({size, size});
  const auto copy = [&] { OrDie(host.To(kGpu)); };
  const auto product = [&] { OrDie(MatMul(a, a).Value()); };
  const auto repeat = [&](int n, const std::function<void()>& one) {
    for (int i = 0; i < n; ++i) one();
    CheckDone(AwaitCopies(kGpu));
  };
  const int products = ComputationsPerCopy(SecondsEach(times, [&] { repeat(times, copy); }),
                                           SecondsEach(times, [&] { repeat(times, product); }));
  const auto compute = [&] {
    for (int i = 0; i < products; ++i) product();
  };
  const std::vector<Comparison> alone = CompareAll(
      {{"copies", [&] { repeat(times, copy); }}, {"computation", [&] { repeat(times, compute); }}},
      {"both",
       [&] {
         repeat(times, [&] {
           copy();
           compute();
         });
       }},
      times, Rounds());
  std::vector<double> hidden;
  for (size_t i = 0; i < alone[0].rates.size(); ++i) {
    hidden.push_back(
        HiddenPart(1 / alone[0].rates[i], 1 / alone[1].rates[i], 1 / alone[0].ceiling_rates[i]));
  }
  ReportFigure(absl::StrCat("hidden part of copies of ", host.size_bytes() >> 20, " MiB beside ",
                            products, " products of ", size, "^3"),
               100 * Median(hidden), "%");
  ReportFigure("copies of pinned memory to the device",
               alone[0].rate * static_cast<double>(host.size_bytes()) / 1e9, "GB/s");
  CheckFailures();
}

// ---- the cost of single calls -------------------------------------------------------------------

void MeasureCost(DeviceCeilings* ceilings, const std::string& name,
                 const std::function<void()>& one) {
  const int times = absl::GetFlag(FLAGS_times) * 10;
  const double seconds = SecondsEach(times, [&] {
    for (int i = 0; i < times; ++i) one();
    Synchronize(ceilings);
  });
  ReportFigure(name, seconds * 1e6, "us");
}

// Checks that a small copy does not wait for a large copy that was started before it. If it does,
// its round trip takes as long as the large copy. The loop waits for each large copy before the
// next, because the copies in flight would fill the device's memory.
void MeasureBehindLargeCopy() {
  const Tensor number = Tensor::Vector<float>({1}),
               large = RandomOnPinnedHost({AtMostLargest(4096), AtMostLargest(4096) * 4});
  std::vector<double> seconds;
  for (int i = 0; i < absl::GetFlag(FLAGS_times); ++i) {
    const Tensor copied = OrDie(large.To(kGpu));
    const absl::Duration began = Clock::Real().Elapsed();
    OrDie(OrDie(Relu(Var(OrDie(number.To(kGpu)))).Value()).To(Device{}));
    seconds.push_back(absl::ToDoubleSeconds(Clock::Real().Elapsed() - began));
    OrDie(OrDie(OrDie(copied.Reshape({-1})).Rows(0, 1)).To(Device{}));
  }
  ReportFigure(absl::StrCat("one element there and back behind a copy of ",
                            large.size_bytes() >> 20, " MiB"),
               Median(seconds) * 1e6, "us");
}

void MeasureCosts(DeviceCeilings* ceilings) {
  const Tensor number = Tensor::Vector<float>({1}), there = OrDie(number.To(kGpu)),
               wide = RandomOnGpu({AtMostLargest(4096), AtMostLargest(1024)});
  MeasureCost(ceilings, "a kernel of one element, with its memory",
              [&] { OrDie(Relu(Var(there)).Value()); });
  MeasureCost(ceilings, "memory for one element",
              [&] { OrDie(Tensor::Uninitialized(DType::kFloat32, Shape{1}, kGpu)); });
  MeasureCost(ceilings, "one element to the device", [&] { OrDie(number.To(kGpu)); });
  MeasureCost(ceilings, "one element to the device and back",
              [&] { OrDie(OrDie(Relu(Var(OrDie(number.To(kGpu)))).Value()).To(Device{})); });
  MeasureCost(ceilings,
              absl::StrCat("a sum of ", wide.shape().dim(0), " rows of ", wide.shape().dim(1)),
              [&] { OrDie(ReduceSum(Var(wide), {0}).Value()); });
  MeasureBehindLargeCopy();
}

int Main() {
  if (absl::GetFlag(FLAGS_times) < 1 || absl::GetFlag(FLAGS_largest) < 1) {
    std::fprintf(stderr, "--times and --largest must be at least 1\n");
    return exit_codes::kUsage;
  }
  const absl::StatusOr<Gpus> gpus = OpenGpus({{GpuChoice::Kind::kAll, {}}});
  if (!gpus.ok()) {
    std::fprintf(stderr, "there is no GPU to measure: %s\n", gpus.status().ToString().c_str());
    return exit_codes::kConfiguration;
  }
  std::string why;
  const std::unique_ptr<DeviceCeilings> ceilings = DeviceCeilings::Open(why);
  if (ceilings == nullptr) std::fprintf(stderr, "measured without a ceiling: %s\n", why.c_str());
  ShowText(absl::StrCat(gpus->names[0], "; medians of ", Rounds(), " rounds in turns"));
  MeasureCosts(ceilings.get());
  MeasureOverlap();
  MeasureProducts(ceilings.get());
  for (const int64_t batch : {64, 256, 1024, 4096}) {
    if (batch <= absl::GetFlag(FLAGS_largest)) MeasurePerceptron(ceilings.get(), batch);
  }
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
