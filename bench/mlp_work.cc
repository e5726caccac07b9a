#include "bench/mlp_work.h"

#include <cblas.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status_macros.h"
#include "optimizers/denormals.h"

namespace divvy::bench {
namespace {

// The position of a bright band is the class. Three labels in ten are random, so that the gradients
// never vanish.
struct Images {
  std::vector<uint8_t> pixels = std::vector<uint8_t>(kMlpExamples * kMlpPixels);
  std::vector<int64_t> labels = std::vector<int64_t>(kMlpExamples);
};
const Images& SyntheticImages() {
  static const Images* const images = [] {
    auto* made = new Images;
    Random random(5);
    for (int i = 0; i < kMlpExamples; ++i) {
      const auto label = static_cast<int>(random.Below(kMlpClasses));
      made->labels[i] =
          random.Chance(0.3) ? static_cast<int64_t>(random.Below(kMlpClasses)) : label;
      for (int j = 0; j < kMlpPixels; ++j) {
        const bool in_band = j / (kMlpPixels / kMlpClasses) == label;
        made->pixels[i * kMlpPixels + j] = static_cast<uint8_t>(random.Below(in_band ? 256 : 64));
      }
    }
    return made;
  }();
  return *images;
}

const Mlp kMlp("mlp", {kMlpPixels, kMlpHidden, kMlpClasses});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 255.0f;
  Var logits = kMlp(tape, pixels);
  return {SoftmaxCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])}}};
}
const Model kModel("mlp", {kMlp}, Forward);

absl::StatusOr<Dataset> Source(const InputContext& input) {
  const Images& images = SyntheticImages();
  ASSIGN_OR_RETURN(Tensor pixels, Tensor::Borrow(DType::kUInt8, {kMlpExamples, kMlpPixels},
                                                 images.pixels.data(), Device(), [] {}));
  return Dataset::FromTensorSlices(
             {{"image", std::move(pixels)}, {"label", Tensor::Vector<int64_t>(images.labels)}})
      .Batch(kMlpBatch);
}
const DataSource kSource("images", Source);

}  // namespace

void PrepareMlpImages() { SyntheticImages(); }

const Model& MlpModel() { return kModel; }

BoundDataSource MlpData() { return kSource(); }

float TrainMlpDirectly(DirectMlp& mlp, int threads) {
  const FlushDenormals flush;
  // OpenBLAS' own threads; Divvy uses one of them and has its own.
  openblas_set_num_threads(threads);
  const Images& images = SyntheticImages();
  float loss = 0;
  for (int i = 0; i < kMlpBatches; ++i)
    loss = mlp.TrainStep(images.pixels.data() + i * kMlpBatch * kMlpPixels,
                         images.labels.data() + i * kMlpBatch);
  openblas_set_num_threads(1);
  return loss;
}

}  // namespace divvy::bench
