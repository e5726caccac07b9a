// bazel run //bench:mlp
//
// Examples a second of mnist_mlp's model (784-512-10, Adam, batches of 64), embedded with one worker and data in memory, beside the same arithmetic written
// straight down (bench/direct_mlp.h). The aim is 0.8 of it: the rest is what copies to and from the parameter server, the tape and scheduling may cost.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "bench/direct_mlp.h"
#include "bench/rounds.h"
#include "divvy.h"
#include "optimizers/denormals.h"
#include "program/main.h"

namespace divvy::bench {
namespace {

constexpr int kPixels = 784, kHidden = 512, kClasses = 10, kBatch = 64, kBatches = 100;
constexpr int kExamples = kBatch * kBatches;
constexpr int kRounds = 7;

// A bright band tells the class; three labels in ten are wrong, so that the gradients never die away.
struct Images {
  std::vector<uint8_t> pixels = std::vector<uint8_t>(kExamples * kPixels);
  std::vector<int64_t> labels = std::vector<int64_t>(kExamples);
};
const Images& SyntheticImages() {
  static const Images* const images = [] {
    auto* made = new Images;
    Random random(5);
    for (int i = 0; i < kExamples; ++i) {
      const auto label = static_cast<int>(random.Below(kClasses));
      made->labels[i] = random.Chance(0.3) ? static_cast<int64_t>(random.Below(kClasses)) : label;
      for (int j = 0; j < kPixels; ++j) {
        const bool in_band = j / (kPixels / kClasses) == label;
        made->pixels[i * kPixels + j] = static_cast<uint8_t>(random.Below(in_band ? 256 : 64));
      }
    }
    return made;
  }();
  return *images;
}

const Mlp kMlp("mlp", {kPixels, kHidden, kClasses});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 255.0f;
  Var logits = kMlp(tape, pixels);
  return {SoftmaxCrossEntropy(logits, batch["label"]), {{"accuracy", Accuracy(logits, batch["label"])}}};
}
const Model kModel("mlp", {kMlp}, Forward);

absl::StatusOr<Dataset> Source(const InputContext& input) {
  const Images& images = SyntheticImages();
  ASSIGN_OR_RETURN(Tensor pixels, Tensor::Borrow(DType::kUInt8, {kExamples, kPixels}, images.pixels.data(), Device(), [] {}));
  return Dataset::FromTensors({{"image", std::move(pixels)}, {"label", Tensor::Vector<int64_t>(images.labels)}}).Batch(kBatch);
}
const DataSource kSource("images", Source);

// Every batch once.
float TrainDirectly(DirectMlp& mlp) {
  const FlushDenormals flush;
  const Images& images = SyntheticImages();
  float loss = 0;
  for (int i = 0; i < kBatches; ++i) loss = mlp.TrainStep(images.pixels.data() + i * kBatch * kPixels, images.labels.data() + i * kBatch);
  return loss;
}

absl::Status Measure() {
  SyntheticImages();
  EmbeddedOptions options;
  options.num_ps = 1;
  options.num_workers = 1;
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
  Trainer trainer(*coordinator, kModel, Adam{1e-3});
  DirectMlp direct(kBatch, kPixels, kHidden, kClasses, 1e-3f);
  absl::Status status;
  double loss = 0, direct_loss = 0;
  const auto fit = [&] {
    const auto metrics = trainer.Fit(kSource());
    status.Update(metrics.status());
    if (metrics.ok()) loss = metrics->at("loss");
  };
  const Contender figure{"embedded, 1 worker, 1 ps", fit};
  const Contender ceiling{"the same arithmetic on OpenBLAS", [&] { direct_loss = TrainDirectly(direct); }};
  const Comparison comparison = Compare(figure, ceiling, kExamples, kRounds);
  RETURN_IF_ERROR(status);
  Print(comparison, {"examples/s"});
  std::printf("loss after %d epochs: %.4f, directly %.4f\n", kRounds + 1, loss, direct_loss);
  PrintPeakMemory();
  return absl::OkStatus();
}

int Main() {
  std::printf("%d-%d-%d, Adam, %d batches of %d a run, %d cores; medians of %d rounds in turns\n", kPixels, kHidden, kClasses, kBatches, kBatch, NumCores(),
              kRounds);
  const absl::Status status = Measure();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace divvy::bench

int main() { return divvy::bench::Main(); }
