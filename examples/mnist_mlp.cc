// Handwritten digits with a two-layer perceptron. Trains on the images of --data and prints the
// accuracy on held-out images.
#include "absl/flags/flag.h"
#include "divvy.h"

ABSL_FLAG(std::string, data, "data/mnist10k",
          "directory with t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz");
ABSL_FLAG(int64_t, batch_size, 64, "examples per replica and step");

using namespace divvy;

// The model. Declared once, the same in every process of the cluster.
const Mlp kMlp("mlp", {784, 512, 10});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var pixels = Reshape(Cast(batch["image"], DType::kFloat32), {-1, 784}) / 255.0f;
  Var logits = kMlp(tape, pixels);
  return {SoftmaxCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])}}};
}
const Model kMnist("mnist", {kMlp}, Forward);

// The data. Each worker opens it itself. 8,000 images to train, 2,000 to validate.
absl::StatusOr<Dataset> Digits(const InputContext& input, bool training) {
  const std::string prefix = absl::GetFlag(FLAGS_data) + "/t10k-";
  Dataset digits = Dataset::Idx(prefix + "images-idx3-ubyte.gz", prefix + "labels-idx1-ubyte.gz");
  digits = training ? digits.Take(8000).Shuffle(8000, input.seed) : digits.Skip(8000);
  return digits.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kDigits("digits", Digits);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kMnist, Adam{1e-3});
  FitOptions options;
  options.epochs = 5;
  options.validation = kDigits(/*training=*/false);
  return trainer.Fit(kDigits(/*training=*/true), options).status();
}
DIVVY_PROGRAM(Train);
