#include "bench/gpu/train_work.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"

namespace divvy::bench {
namespace {

template <typename T, typename Draw>
Tensor Filled(const Shape& shape, Draw draw) {
  std::vector<T> values(shape.num_elements());
  for (T& value : values) value = draw();
  return *Tensor::Copy<T>(shape, values);
}

using Leaves = std::map<std::string, Tensor>;

// `steps` batches of this size, cut from `examples` in repeated passes. The batches are views, so
// that the benchmark measures training and not stacking.
absl::StatusOr<Dataset> Batches(const Leaves& examples, int64_t batch, int64_t steps) {
  Nest::Dict batches;
  for (const auto& [name, tensor] : examples) {
    std::vector<int64_t> dims(tensor.shape().dims().begin(), tensor.shape().dims().end());
    dims[0] = batch;
    dims.insert(dims.begin(), tensor.shape().dim(0) / batch);
    ASSIGN_OR_RETURN(Tensor cut, tensor.Reshape(Shape(dims)));
    batches.emplace(name, std::move(cut));
  }
  return Dataset::FromTensorSlices(std::move(batches)).Repeat().Take(steps);
}

// ---- mnist_mlp's model over random images -------------------------------------------------------

const Mlp kMlp("mlp", {784, 512, 10});

ModelOutput MlpForward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 255.0f;
  return {SoftmaxCrossEntropy(kMlp(tape, pixels), batch["label"]), {}};
}
const Model kMlpModel("mlp", {kMlp}, MlpForward);

const Leaves& ImageExamples() {
  static const auto* const examples = [] {
    constexpr int64_t kExamples = 8192;
    Random random(1);
    return new Leaves{
        {"image", Filled<uint8_t>({kExamples, 784},
                                  [&] { return static_cast<uint8_t>(random.Below(256)); })},
        {"label",
         Filled<int64_t>({kExamples}, [&] { return static_cast<int64_t>(random.Below(10)); })}};
  }();
  return *examples;
}

absl::StatusOr<Dataset> Images(const InputContext&, int64_t batch, int64_t steps) {
  return Batches(ImageExamples(), batch, steps);
}
const DataSource kImages("bench/images", Images);

// ---- DLRM over random clicks --------------------------------------------------------------------

constexpr int64_t kCounts = 13, kFields = 26, kRows = 260'000, kWidth = 16,
                  kPairs = (kFields + 1) * kFields / 2;
const Embedding kCategories("categories", kRows, kWidth, RowwiseAdagrad{0.1},
                            RandomNormal{0, 0.2f});
const Mlp kBottom("bottom", {kCounts, 64, kWidth});
const Mlp kTop("top", {kWidth + kPairs, 64, 1});

ModelOutput DlrmForward(GradientTape& tape, const Nest& batch) {
  Var categories = kCategories(tape, batch["row"]);
  Var counts = Relu(kBottom(tape, Log(batch["dense"] + 1.0f)));
  Var pairs = DotInteraction(Concat({Reshape(counts, {-1, 1, kWidth}), categories}, 1));
  Var logits = Reshape(kTop(tape, Concat({counts, pairs}, 1)), {-1});
  return {SigmoidCrossEntropy(logits, batch["label"]), {}};
}
const Model kDlrmModel("dlrm", {kCategories, kBottom, kTop}, DlrmForward);

const Leaves& ClickExamples() {
  static const auto* const examples = [] {
    constexpr int64_t kExamples = 32'768;
    Random random(2);
    return new Leaves{
        {"dense",
         Filled<float>({kExamples, kCounts}, [&] { return static_cast<float>(random.Uniform()); })},
        {"row", Filled<int64_t>({kExamples, kFields},
                                [&] { return static_cast<int64_t>(random.Below(kRows)); })},
        {"label", Filled<float>({kExamples}, [&] { return random.Chance(0.5) ? 1.0f : 0.0f; })}};
  }();
  return *examples;
}

absl::StatusOr<Dataset> Clicks(const InputContext&, int64_t batch, int64_t steps) {
  return Batches(ClickExamples(), batch, steps);
}
const DataSource kClicks("bench/clicks", Clicks);

std::vector<Product> DlrmProducts(int64_t batch) {
  std::vector<Product> products = PerceptronProducts(batch, {kCounts, 64, kWidth});
  for (const Product& product : PerceptronProducts(batch, {kWidth + kPairs, 64, 1}))
    products.push_back(product);
  return products;
}

}  // namespace

std::vector<TrainModel> TrainModels(int64_t steps) {
  ImageExamples();
  ClickExamples();
  TrainModel mlp{kMlpModel, Adam{1e-3}, {}}, dlrm{kDlrmModel, Adam{2e-3}, {}};
  for (const int64_t batch : {64, 512, 1024, 4096}) {
    mlp.works.push_back({absl::StrCat("mlp 784-512-10, batch ", batch), batch,
                         kImages(batch, steps), PerceptronProducts(batch, {784, 512, 10})});
    dlrm.works.push_back(
        {absl::StrCat("dlrm, batch ", batch), batch, kClicks(batch, steps), DlrmProducts(batch)});
  }
  return {std::move(mlp), std::move(dlrm)};
}

}  // namespace divvy::bench
