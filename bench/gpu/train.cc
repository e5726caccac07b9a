// bazel run --config=cuda //bench/gpu:train [-- --format=json]
//
// Examples a second of training with a Trainer in an embedded cluster of one worker and one parameter server, each step of which pulls, computes on the first
// GPU, and commits: mnist_mlp's model and examples/dlrm.cc's, at two sizes of batch. The ceiling is the forward and backward products of the same batches by
// cuBLAS alone. bench/gpu/torch_peer.py does the same work in PyTorch. Exits with 78 where there is no GPU.
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/gpu/device_ceilings.h"
#include "bench/rounds.h"
#include "divvy.h"

ABSL_FLAG(std::string, format, "table", "table or json");
ABSL_FLAG(int, rounds, 5, "in each of which both run once");

namespace divvy::bench {
namespace {

constexpr int64_t kBatchesOfPass = 50;

void Report(const Comparison& comparison) {
  const Unit unit{"examples/s"};
  absl::GetFlag(FLAGS_format) == "json" ? PrintJson("gpu_train", comparison, unit) : Print(comparison, unit);
}

void ReportMemory(const std::string& name, int64_t bytes) {
  const char* const format = absl::GetFlag(FLAGS_format) == "json"
                                 ? "{\"bench\": \"gpu_train\", \"what\": \"device memory, %s\", \"unit\": \"MB\", \"rate\": %.1f}\n"
                                 : "  device memory, %s: %.1f MB at most\n";
  std::printf(format, name.c_str(), static_cast<double>(bytes) / 1e6);
  std::fflush(stdout);
}

template <typename T, typename Draw>
Tensor Filled(const Shape& shape, Draw draw) {
  std::vector<T> values(shape.num_elements());
  for (T& value : values) value = draw();
  return *Tensor::Copy<T>(shape, values);
}

// ---- mnist_mlp's model over made-up images -----------------------------------------------------------------------------------------------------------

const Mlp kMlp("mlp", {784, 512, 10});

ModelOutput MlpForward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 255.0f;
  return {SoftmaxCrossEntropy(kMlp(tape, pixels), batch["label"]), {}};
}
const Model kMlpModel("mlp", {kMlp}, MlpForward);

absl::StatusOr<Dataset> Images(const InputContext&, int64_t batch) {
  Random random(1);
  const int64_t n = batch * kBatchesOfPass;
  Tensor images = Filled<uint8_t>({n, 784}, [&] { return static_cast<uint8_t>(random.Below(256)); });
  Tensor labels = Filled<int64_t>({n}, [&] { return static_cast<int64_t>(random.Below(10)); });
  return Dataset::FromTensors({{"image", std::move(images)}, {"label", std::move(labels)}}).Batch(batch);
}
const DataSource kImages("bench/images", Images);

// ---- DLRM over made-up clicks ------------------------------------------------------------------------------------------------------------------------

constexpr int64_t kCounts = 13, kFields = 26, kRows = 260'000, kWidth = 16, kPairs = (kFields + 1) * kFields / 2;
const Embedding kCategories("categories", kRows, kWidth, RowwiseAdagrad{0.1}, RandomNormal{0, 0.2f});
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

absl::StatusOr<Dataset> Clicks(const InputContext&, int64_t batch) {
  Random random(2);
  const int64_t n = batch * kBatchesOfPass;
  Tensor dense = Filled<float>({n, kCounts}, [&] { return static_cast<float>(random.Uniform()); });
  Tensor rows = Filled<int64_t>({n, kFields}, [&] { return static_cast<int64_t>(random.Below(kRows)); });
  Tensor labels = Filled<float>({n}, [&] { return random.Chance(0.5) ? 1.0f : 0.0f; });
  return Dataset::FromTensors({{"dense", std::move(dense)}, {"row", std::move(rows)}, {"label", std::move(labels)}}).Batch(batch);
}
const DataSource kClicks("bench/clicks", Clicks);

// ---- what is measured --------------------------------------------------------------------------------------------------------------------------------

struct Work {
  std::string name;
  const Model& model;
  BoundDataSource data;
  int64_t batch;
  std::vector<Product> products;
};

Work MlpWork(int64_t batch) {
  return {absl::StrCat("mlp 784-512-10, batch ", batch), kMlpModel, kImages(batch), batch, PerceptronProducts(batch, {784, 512, 10})};
}

Work DlrmWork(int64_t batch) {
  Work work{absl::StrCat("dlrm, batch ", batch), kDlrmModel, kClicks(batch), batch, PerceptronProducts(batch, {kCounts, 64, kWidth})};
  for (const Product& product : PerceptronProducts(batch, {kWidth + kPairs, 64, 1})) work.products.push_back(product);
  return work;
}

absl::Status Measure(Coordinator& coordinator, DeviceCeilings& ceilings, const Work& work) {
  Trainer trainer(coordinator, work.model, Adam{1e-3});
  absl::Status status;
  const Contender figure{work.name, [&] { status.Update(trainer.Fit(work.data).status()); }};
  const Contender ceiling{"its products by cuBLAS alone", [&] { ceilings.Multiply(Precision::kFloat32, work.products, kBatchesOfPass); }};
  const Comparison comparison = Compare(figure, ceiling, static_cast<double>(work.batch * kBatchesOfPass), absl::GetFlag(FLAGS_rounds));
  RETURN_IF_ERROR(status);
  Report(comparison);
  ReportMemory(work.name, ceilings.TakePeakBytes());
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  std::string why;
  const std::unique_ptr<DeviceCeilings> ceilings = DeviceCeilings::Open(why);
  if (ceilings == nullptr) return absl::FailedPreconditionError(absl::StrCat("there is no GPU to measure: ", why));
  // A model's variables are the coordinator's from its first use on, so the second size of a batch goes on with what the first has trained.
  for (const Work& work : {MlpWork(64), MlpWork(1024), DlrmWork(512), DlrmWork(4096)}) RETURN_IF_ERROR(Measure(coordinator, *ceilings, work));
  return absl::OkStatus();
}

}  // namespace
}  // namespace divvy::bench

DIVVY_PROGRAM(divvy::bench::Train);
