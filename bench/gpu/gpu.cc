// bazel run --config=cuda //bench/gpu [-- --format=json]
//
// What the first GPU does through ops/ beside what it does where CUDA's own libraries are called and nothing else: products, training steps of perceptrons at
// batches of 64 to 4096 beside the products that they are made of, and steps whose batches are copied to the device meanwhile beside the slower of the two.
// Exits with 78 where there is no GPU.
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
#include "base/exit_codes.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/gpu/device_ceilings.h"
#include "bench/rounds.h"
#include "ops/cuda/gpus.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/variable_reader.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, rounds, 7, "in each of which both run once");

namespace divvy::bench {
namespace {

constexpr Device kGpu{Device::Kind::kGpu, 0};

void Report(const Comparison& comparison, const Unit& unit) {
  absl::GetFlag(FLAGS_format) == "json" ? PrintJson("gpu", comparison, unit) : Print(comparison, unit);
}

// A benchmark has nobody to hand an error to.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(EXIT_FAILURE);
}

Tensor RandomOnHost(const Shape& shape) {
  Random random(1);
  std::vector<float> values(shape.num_elements());
  for (float& value : values) value = static_cast<float>(random.Uniform() - 0.5);
  return OrDie(Tensor::Copy<float>(shape, values));
}

Tensor RandomOnGpu(const Shape& shape) { return OrDie(RandomOnHost(shape).To(kGpu)); }

// Until the device has done all that it was told.
void WaitFor(const Tensor& tensor) { OrDie(OrDie(tensor.Reshape({-1})).Rows(0, 1).value().To(Device{})); }

// ---- products ----------------------------------------------------------------------------------------------------------------------------------------

void MeasureProduct(DeviceCeilings& ceilings, DType dtype, int64_t size, int times) {
  const bool narrow = dtype == DType::kBFloat16;
  const Var a = OrDie(Cast(Var(RandomOnGpu({size, size})), dtype).Value());
  const Var b = OrDie(Cast(Var(RandomOnGpu({size, size})), dtype).Value());
  const Contender figure{absl::StrCat("MatMul ", DTypeName(dtype), " ", size, "^3"), [&] {
                           Tensor last;
                           for (int i = 0; i < times; ++i) last = OrDie(MatMul(a, b).Value());
                           WaitFor(last);
                         }};
  const Contender ceiling{"cuBLAS alone", [&] { ceilings.Multiply(narrow ? Precision::kBFloat16 : Precision::kFloat32, {{size, size, size}}, times); }};
  const auto n = static_cast<double>(size);
  Report(Compare(figure, ceiling, 2 * n * n * n * times, absl::GetFlag(FLAGS_rounds)), {"TFLOP/s", 1e12});
}

// ---- perceptrons -------------------------------------------------------------------------------------------------------------------------------------

const std::vector<int64_t> kWidths = {1024, 4096, 4096, 1024};

class NoVariables : public VariableReader {
 public:
  absl::Status Read(absl::Span<ReadRequest>) override { return absl::NotFoundError("no variables"); }
  Device device() const override { return kGpu; }
};

struct Perceptron {
  std::vector<Tensor> kernels, biases;
  Perceptron() {
    for (size_t i = 0; i + 1 < kWidths.size(); ++i) {
      kernels.push_back(RandomOnGpu({kWidths[i], kWidths[i + 1]}));
      biases.push_back(RandomOnGpu({kWidths[i + 1]}));
    }
  }

  // The loss's gradient with respect to everything; returns one of them.
  Tensor Step(const Tensor& x, const Tensor& labels) const {
    NoVariables variables;
    GradientTape tape(variables);
    Var h = x;
    for (size_t i = 0; i < kernels.size(); ++i) {
      h = MatMul(h, tape.Watch(absl::StrCat("kernel", i), kernels[i])) + tape.Watch(absl::StrCat("bias", i), biases[i]);
      if (i + 1 < kernels.size()) h = Relu(h);
    }
    const Gradients gradients = OrDie(tape.Gradient(ReduceMean(SoftmaxCrossEntropy(h, labels))));
    return std::get<Tensor>(gradients.entries().at("kernel0"));
  }
};

Tensor ZeroLabels(int64_t batch) { return OrDie(Tensor::Vector<int64_t>(std::vector<int64_t>(batch)).To(kGpu)); }

void MeasurePerceptron(DeviceCeilings& ceilings, int64_t batch, int times) {
  const Perceptron perceptron;
  const Tensor x = RandomOnGpu({batch, kWidths[0]}), labels = ZeroLabels(batch);
  const Contender figure{absl::StrCat("perceptron step, batch ", batch), [&] {
                           Tensor last;
                           for (int i = 0; i < times; ++i) last = perceptron.Step(x, labels);
                           WaitFor(last);
                         }};
  const Contender ceiling{"its products by cuBLAS alone", [&] { ceilings.Multiply(Precision::kFloat32, PerceptronProducts(batch, kWidths), times); }};
  Report(Compare(figure, ceiling, static_cast<double>(batch * times), absl::GetFlag(FLAGS_rounds)), {"examples/s"});
}

// ---- copies beside computation -----------------------------------------------------------------------------------------------------------------------

// Steps whose batch was copied while the step before was computed, beside the slower of copies and computation alone: 1 where all of the faster is hidden.
void MeasureOverlap(int64_t batch, int times) {
  const Perceptron perceptron;
  const Tensor host = RandomOnHost({batch, kWidths[0]}), there = RandomOnGpu({batch, kWidths[0]}), labels = ZeroLabels(batch);
  const Contender copies{"copies", [&] {
                           Tensor last;
                           for (int i = 0; i < times; ++i) last = OrDie(host.To(kGpu));
                           WaitFor(last);
                         }};
  const Contender steps{"steps", [&] {
                          Tensor last;
                          for (int i = 0; i < times; ++i) last = perceptron.Step(there, labels);
                          WaitFor(last);
                        }};
  const Contender both{absl::StrCat("steps with copies, batch ", batch), [&] {
                         Tensor last;
                         for (int i = 0; i < times; ++i) last = perceptron.Step(OrDie(host.To(kGpu)), labels);
                         WaitFor(last);
                       }};
  std::vector<Comparison> beside_copies = CompareAll({both, steps}, copies, static_cast<double>(batch * times), absl::GetFlag(FLAGS_rounds));
  Comparison hidden = beside_copies[0];
  hidden.ceiling = "the slower of both alone";
  hidden.ceiling_rate = std::min(beside_copies[1].rate, hidden.ceiling_rate);
  hidden.ratio = hidden.rate / hidden.ceiling_rate;
  Report(hidden, {"examples/s"});
}

int Main() {
  std::string why;
  const std::unique_ptr<DeviceCeilings> ceilings = DeviceCeilings::Open(why);
  if (ceilings == nullptr) {
    std::fprintf(stderr, "there is no GPU to measure: %s\n", why.c_str());
    return exit_codes::kConfiguration;
  }
  OrDie(OpenGpus({{GpuChoice::Kind::kAll, {}}}));
  if (absl::GetFlag(FLAGS_format) != "json") std::printf("%s; medians of %d rounds in turns\n", ceilings->name().c_str(), absl::GetFlag(FLAGS_rounds));
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) MeasureProduct(*ceilings, dtype, 4096, 10);
  for (const int64_t batch : {64, 256, 1024, 4096}) MeasurePerceptron(*ceilings, batch, 50);
  MeasureOverlap(1024, 50);
  return EXIT_SUCCESS;
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return divvy::bench::Main();
}
