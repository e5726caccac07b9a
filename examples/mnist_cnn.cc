// Handwritten digits with a small convolutional network. Trains on the images of --data, stops when
// the accuracy on held-out images no longer improves, and prints it.
#include "absl/flags/flag.h"
#include "divvy.h"

ABSL_FLAG(std::string, data, "data/mnist10k",
          "directory with t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz");
ABSL_FLAG(int64_t, batch_size, 32, "examples per replica and step");
ABSL_FLAG(int, epochs, 8, "largest number of passes over the data");

using namespace divvy;

// 28 x 28 x 1 -> 14 x 14 x 16 -> 7 x 7 x 32 -> 10.
const Conv kEdges("edges", 1, 16, /*kernel=*/5);
const Conv kShapes("shapes", 16, 32, /*kernel=*/3);
const Dense kClasses("classes", 7 * 7 * 32, 10);

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var pixels = Reshape(Cast(batch["image"], DType::kFloat32), {-1, 28, 28, 1}) / 255.0f;
  Var edges = MaxPool2D(kEdges(tape, pixels), /*window=*/2, /*stride=*/2);
  Var shapes = MaxPool2D(kShapes(tape, edges), /*window=*/2, /*stride=*/2);
  Var logits = kClasses(tape, Dropout(Reshape(shapes, {-1, 7 * 7 * 32}), 0.25f));
  return {SoftmaxCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])}}};
}
const Model kMnist("mnist", {kEdges, kShapes, kClasses}, Forward);

// 8,000 images to train, 2,000 to validate.
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
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kDigits(/*training=*/false);
  options.callbacks = {std::make_shared<EarlyStopping>("validation/accuracy", /*patience=*/2)};
  return trainer.Fit(kDigits(/*training=*/true), options).status();
}
DIVVY_PROGRAM(Train);
