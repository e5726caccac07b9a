// Handwritten digits with a two-layer perceptron: 1,797 images of 8 x 8 pixels. Every fifth image
// is held out to measure the accuracy.
#include "absl/flags/flag.h"
#include "divvy.h"

ABSL_FLAG(std::string, data, "examples/data/digits.csv.gz",
          "CSV with 64 pixels and the label in each line");
ABSL_FLAG(int64_t, batch_size, 32, "examples per replica and step");
ABSL_FLAG(int, epochs, 30, "number of passes over the images");
ABSL_FLAG(std::string, export_to, "",
          "path of the exported model: NAME.safetensors, or a directory for TensorFlow's format; "
          "empty: no export");

using namespace divvy;

// The model. Declared once, the same in every process of the cluster.
const Mlp kMlp("mlp", {64, 128, 10});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var pixels = Cast(batch["image"], DType::kFloat32) / 16.0f;
  Var logits = kMlp(tape, pixels);
  return {SoftmaxCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])}}};
}
const Model kDigitsModel("digits", {kMlp}, Forward);

// The data. Each worker opens it itself.
absl::StatusOr<Dataset> Digits(const InputContext& input, bool training) {
  Dataset digits =
      Dataset::Csv(absl::GetFlag(FLAGS_data),
                   {{"image", DType::kFloat32, 0, /*width=*/64}, {"label", DType::kInt64}});
  digits = training ? digits.HoldOut(5, 0).Shuffle(2000, input.seed) : digits.Shard(5, 0);
  return digits.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kDigits("digits", Digits);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kDigitsModel, Adam{2e-3});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kDigits(/*training=*/false);
  if (const auto metrics = trainer.Fit(kDigits(/*training=*/true), options); !metrics.ok())
    return metrics.status();
  const std::string path = absl::GetFlag(FLAGS_export_to);
  return path.empty() ? absl::OkStatus() : coordinator.Export(path, {/*slots=*/false});
}

// For an evaluator task: scores each checkpoint while the job trains.
absl::Status Evaluate(Evaluator& evaluator) {
  return evaluator.Watch(kDigitsModel, kDigits(/*training=*/false));
}
DIVVY_PROGRAM(Train, Evaluate);
