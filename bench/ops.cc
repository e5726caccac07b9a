// bazel run //bench:ops [-- --threads=N --only=TEXT --rounds=R --format=json]
//
// Each operation, forth and back through a tape, on one core (or N): those that stream beside
// memcpy of the bytes that they read and write, products and convolutions beside one matrix product
// of as many multiplications. What an operation allocates, and what a core's function units bound
// (Tanh), is the difference.
#include <cblas.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/vector_level.h"
#include "bench/rounds.h"
#include "ops/blas_threads.h"
#include "ops/fused.h"
#include "ops/gradient_tape.h"
#include "ops/ops.h"
#include "ops/variable_reader.h"

ABSL_FLAG(int, level, 2,
          "the vector instructions to use: 0 those of every processor, 1 AVX2, 2 AVX-512; OpenBLAS "
          "follows OPENBLAS_CORETYPE instead");
ABSL_FLAG(int, threads, 1, "threads of an operation; what it is held against has one");
ABSL_FLAG(std::string, only, "", "what the names of the operations to measure contain");

namespace divvy::bench {
namespace {

constexpr int64_t kRows = 2048, kWidth = 1024;  // 8 MiB: larger than the caches near a core

std::vector<float> RandomValues(int64_t size) {
  Random random(1);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform() - 0.5);
  return values;
}

Tensor RandomTensor(const Shape& shape) {
  return Tensor::Copy<float>(shape, RandomValues(shape.num_elements())).value();
}

// Ids in [0, rows) in random order.
Tensor RandomIds(int64_t n, int64_t rows) {
  Random random(2);
  std::vector<int64_t> ids(n);
  for (int64_t& id : ids) id = static_cast<int64_t>(random.Below(rows));
  return Tensor::Vector<int64_t>(ids);
}

Tensor EvenSplits(int64_t rows, int64_t length) {
  std::vector<int64_t> splits;
  for (int64_t at = 0; at <= rows; at += length) splits.push_back(at);
  return Tensor::Vector<int64_t>(splits);
}

class NoVariables : public VariableReader {
 public:
  absl::Status Read(absl::Span<ReadRequest>) override {
    return absl::NotFoundError("no variables");
  }
  Device device() const override { return {}; }
};

using Function = std::function<Var(const std::vector<Var>&)>;

// Computes the function of these leaves and, if `back`, the gradient of the sum of its result.
void RunOnce(const Function& function, const std::vector<Tensor>& leaves, bool back) {
  NoVariables variables;
  GradientTape tape(variables);
  std::vector<Var> vars;
  for (size_t i = 0; i < leaves.size(); ++i) vars.push_back(tape.Watch(absl::StrCat(i), leaves[i]));
  const Var result = function(vars);
  const absl::Status status = back ? tape.Gradient(ReduceSum(result)).status() : result.status();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
}

bool Wanted(const std::string& name) { return absl::StrContains(name, absl::GetFlag(FLAGS_only)); }

int64_t BytesOf(const std::vector<Tensor>& tensors) {
  int64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.size_bytes();
  return bytes;
}

// A forward pass moves (reads and writes) the leaves and the result. A backward pass moves about as
// many bytes again.
void Streams(const std::string& name, const std::vector<Tensor>& leaves, const Function& function) {
  if (!Wanted(name)) return;
  NoVariables variables;
  GradientTape tape(variables, GradientTape::Mode::kInference);
  const std::vector<Var> vars(leaves.begin(), leaves.end());
  const int64_t out = function(vars).Value().value().size_bytes(), in = BytesOf(leaves);
  std::vector<char> from((in + out) * 2, 1), to(from.size());
  for (bool back : {false, true}) {
    const int64_t moved = back ? 2 * (in + out) : in + out;
    const Contender copy{"memcpy of the same bytes",
                         [&] { std::memcpy(to.data(), from.data(), moved / 2); }};
    const Contender run{absl::StrCat(name, back ? ", and back" : ""),
                        [&] { RunOnce(function, leaves, back); }};
    Show("ops", Compare(run, copy, static_cast<double>(moved)), {"GB/s", 1e9});
  }
}

// The forward pass has `multiplications`. The backward pass has as many for each leaf, because it
// computes a product for each.
void Multiplies(const std::string& name, const std::vector<Tensor>& leaves, int64_t multiplications,
                const Function& function) {
  if (!Wanted(name)) return;
  const int backward = static_cast<int>(leaves.size());
  constexpr int kSide = 512;
  for (bool back : {false, true}) {
    const int m = static_cast<int>(multiplications * (back ? 1 + backward : 1) / (kSide * kSide));
    const std::vector<float> a(static_cast<size_t>(m) * kSide, 0.5f), b(kSide * kSide, 0.5f);
    std::vector<float> c(a.size());
    const auto multiply = [&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, kSide, kSide, 1, a.data(), kSide,
                  b.data(), kSide, 0, c.data(), kSide);
    };
    const Contender run{absl::StrCat(name, back ? ", and back" : ""),
                        [&] { RunOnce(function, leaves, back); }};
    Show("ops", Compare(run, {"one product as large", multiply}, 2.0 * m * kSide * kSide),
         {"GFLOP/s", 1e9});
  }
}

void Elementwise() {
  const Tensor x = RandomTensor({kRows, kWidth}), y = RandomTensor({kRows, kWidth}),
               row = RandomTensor({kWidth});
  const std::pair<const char*, Var (*)(const Var&)> unaries[] = {
      {"Square", Square},   {"Exp", Exp},         {"Relu", Relu},
      {"Sigmoid", Sigmoid}, {"Tanh", Tanh},       {"Softplus", Softplus},
      {"Gelu", Gelu},       {"Softmax", Softmax}, {"L2Normalize", L2Normalize}};
  for (const auto& [name, unary] : unaries)
    Streams(name, {x}, [f = unary](const std::vector<Var>& v) { return f(v[0]); });
  const Tensor positive = Square(x).Value().value();
  for (const auto& [name, unary] :
       {std::pair<const char*, Var (*)(const Var&)>("Log", Log), {"Sqrt", Sqrt}}) {
    Streams(name, {positive}, [f = unary](const std::vector<Var>& v) { return f(v[0]); });
  }
  const std::pair<const char*, Var (*)(const Var&, const Var&)> binaries[] = {
      {"Subtract", [](const Var& a, const Var& b) { return a - b; }},
      {"Multiply", [](const Var& a, const Var& b) { return a * b; }},
      {"Divide", [](const Var& a, const Var& b) { return a / b; }},
      {"Maximum", Maximum},
      {"SquaredError", SquaredError}};
  for (const auto& [name, binary] : binaries)
    Streams(name, {x, y}, [f = binary](const std::vector<Var>& v) { return f(v[0], v[1]); });
  Streams("Add", {x, y}, [](const std::vector<Var>& v) { return v[0] + v[1]; });
  Streams("Add a row", {x, row}, [](const std::vector<Var>& v) { return v[0] + v[1]; });
  Streams("Dropout", {x}, [](const std::vector<Var>& v) { return Dropout(v[0], 0.5f); });
  Streams("LayerNorm", {x, row, row},
          [](const std::vector<Var>& v) { return LayerNorm(v[0], v[1], v[2]); });
}

using Layer = Var (*)(const Var& product, const Var& bias);
Var ReluOfSum(const Var& x, const Var& bias) { return Relu(x + bias); }
Var AddThenRelu(const Var& x, const Var& bias) {
  return internal::AddThen(internal::UnaryOp::kRelu, x, bias);
}

// Compares one pass over memory with two, first alone, then within a perceptron of 784, 512 and 10.
void Fused() {
  constexpr int64_t kBatch = 64;
  const std::vector<Tensor> sums = {RandomTensor({kRows, kWidth}), RandomTensor({kWidth})};
  const std::vector<Tensor> perceptron = {RandomTensor({784, 512}), RandomTensor({512}),
                                          RandomTensor({512, 10}), RandomTensor({10})};
  const auto sum = [](Layer layer) -> Function {
    return [=](const std::vector<Var>& v) { return layer(v[0], v[1]); };
  };
  const auto step = [images = RandomTensor({kBatch, 784}),
                     labels = RandomIds(kBatch, 10)](Layer layer) -> Function {
    return [=](const std::vector<Var>& v) {
      return SoftmaxCrossEntropy(MatMul(layer(MatMul(images, v[0]), v[1]), v[2]) + v[3], labels);
    };
  };
  const auto compare = [](const std::string& name, const std::vector<Tensor>& leaves,
                          const Function& one, const Function& two, double units,
                          const Unit& unit) {
    if (!Wanted(name)) return;
    for (bool back : {false, true}) {
      const Contender fused{absl::StrCat(name, back ? ", and back" : ""),
                            [&] { RunOnce(one, leaves, back); }};
      const Contender parted{"as two operations", [&] { RunOnce(two, leaves, back); }};
      // The difference is small, so more rounds.
      Show("ops", Compare(fused, parted, units, 5 * Rounds()), unit);
    }
  };
  compare("A sum and Relu in one", sums, sum(AddThenRelu), sum(ReluOfSum), kRows * kWidth,
          {"M elements/s", 1e6});
  compare("A perceptron with that", perceptron, step(AddThenRelu), step(ReluOfSum), kBatch,
          {"examples/s", 1});
}

void Reductions() {
  const Tensor x = RandomTensor({kRows, kWidth});
  Streams("ReduceMean", {x}, [](const std::vector<Var>& v) { return ReduceMean(v[0]); });
  Streams("ReduceSum of rows", {x}, [](const std::vector<Var>& v) { return ReduceSum(v[0], 1); });
  Streams("ReduceSum over rows", {x}, [](const std::vector<Var>& v) { return ReduceSum(v[0], 0); });
  Streams("ReduceMax of rows", {x}, [](const std::vector<Var>& v) { return ReduceMax(v[0], 1); });
  Streams("SoftmaxCrossEntropy", {x},
          [labels = RandomIds(kRows, kWidth)](const std::vector<Var>& v) {
            return SoftmaxCrossEntropy(v[0], labels);
          });
  Streams("SigmoidCrossEntropy", {x},
          [labels = Square(x).Value().value()](const std::vector<Var>& v) {
            return SigmoidCrossEntropy(v[0], labels);
          });
}

void Movements() {
  constexpr int64_t kTableRows = 1 << 15, kRowWidth = 64;
  const Tensor x = RandomTensor({kRows, kWidth}), table = RandomTensor({kTableRows, kRowWidth});
  Streams("Permute", {x}, [](const std::vector<Var>& v) { return Permute(v[0], {1, 0}); });
  Streams("Concat", {x, x}, [](const std::vector<Var>& v) { return Concat(v, 1); });
  Streams("Slice", {x}, [](const std::vector<Var>& v) { return Slice(v[0], 1, 0, kWidth - 8); });
  Streams("Gather", {table}, [ids = RandomIds(kTableRows, kTableRows)](const std::vector<Var>& v) {
    return Gather(v[0], ids);
  });
  Streams("SegmentSum", {table}, [splits = EvenSplits(kTableRows, 16)](const std::vector<Var>& v) {
    return SegmentSum(v[0], splits);
  });
  Streams("MaxPool2D", {RandomTensor({64, 28, 28, 32})},
          [](const std::vector<Var>& v) { return MaxPool2D(v[0], 2, 2); });
}

void Products() {
  Multiplies("MatMul", {RandomTensor({512, 512}), RandomTensor({512, 512})}, 512 * 512 * 512,
             [](const std::vector<Var>& v) { return MatMul(v[0], v[1]); });
  Multiplies("Conv2D 5 x 5, 1 to 32", {RandomTensor({64, 28, 28, 1}), RandomTensor({5, 5, 1, 32})},
             64 * 28 * 28 * 25 * 32, [](const std::vector<Var>& v) { return Conv2D(v[0], v[1]); });
  // The first layer of a network: nobody wants the gradient of its images.
  for (const int64_t channels : {1, 3}) {
    Multiplies(absl::StrCat("Conv2D 5 x 5 of images, ", channels, " to 32"),
               {RandomTensor({5, 5, channels, 32})}, 64 * 28 * 28 * 25 * channels * 32,
               [images = RandomTensor({64, 28, 28, channels})](const std::vector<Var>& v) {
                 return Conv2D(images, v[0]);
               });
  }
  Multiplies(
      "Conv2D 3 x 3, 32 to 64", {RandomTensor({64, 14, 14, 32}), RandomTensor({3, 3, 32, 64})},
      64 * 14 * 14 * 9 * 32 * 64, [](const std::vector<Var>& v) { return Conv2D(v[0], v[1]); });
  Multiplies("DotInteraction", {RandomTensor({2048, 27, 64})}, 2048 * 27 * 27 * 64,
             [](const std::vector<Var>& v) { return DotInteraction(v[0]); });
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  divvy::SetVectorLevel(
      std::min(divvy::BestVectorLevel(),
               static_cast<divvy::VectorLevel>(std::clamp(absl::GetFlag(FLAGS_level), 0, 2))));
  divvy::SetBlasThreads(absl::GetFlag(FLAGS_threads));
  // The product that operations are compared with runs on one thread.
  openblas_set_num_threads(1);
  divvy::bench::Elementwise();
  divvy::bench::Fused();
  divvy::bench::Reductions();
  divvy::bench::Movements();
  divvy::bench::Products();
  divvy::bench::ShowPeakMemory();
}
