// Adult (UCI's census income): wide & deep. The wide part is linear in categories and their
// crosses, with FTRL. The deep part is a perceptron of vectors of the categories and of the
// numbers.
#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "bench/results/readers.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(int64_t, batch_size, 128, "examples per replica and step");
ABSL_FLAG(int, epochs, 1, "passes over the training set");
ABSL_FLAG(double, learning_rate, 0.2, "Adagrad's rate, of the deep part");

namespace divvy::results {
namespace {

constexpr int64_t kWidth = 8;

const Embedding kWide("wide", kAdultWideRows, 1, Ftrl{0.1, /*l1=*/0.001f}, Zeros());
const Embedding kCategories("categories", kAdultCategoryRows, kWidth, {}, RandomNormal{0, 0.1f});
const Mlp kDeep("deep", {kAdultNumbers + kAdultCategories * kWidth, 128, 64, 1});
const ExampleCounter kCounter;

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // The lookups come first, so that one message to each parameter server has all of them.
  const Var wide = kWide(tape, batch["wide"]), categories = kCategories(tape, batch["category"]);
  const Var vectors = Reshape(categories, {-1, kAdultCategories * kWidth});
  const Var deep = kDeep(tape, Concat({batch["number"], vectors}, 1));
  const Var logits = ReduceSum(wide, {1, 2}) + Reshape(deep, {-1});
  return {kCounter(tape, SigmoidCrossEntropy(logits, batch["label"])),
          {{"auc", Auc(logits, batch["label"])}},
          {{"logit", logits}, {"label", batch["label"]}}};
}
const Model kModel("adult", {kWide, kCategories, kDeep, kCounter}, Forward);

// The columns are learned once in a process, and each file is read once.
const absl::StatusOr<AdultColumns>& Columns() {
  static const auto& columns =
      *new absl::StatusOr<AdultColumns>(LearnAdultColumns(absl::GetFlag(FLAGS_train)));
  return columns;
}

absl::StatusOr<Nest> Read(const std::string& file) {
  RETURN_IF_ERROR(Columns().status());
  return ReadAdult(file, *Columns());
}

absl::StatusOr<Dataset> Census(const InputContext& input, bool to_train) {
  static const auto& training = *new absl::StatusOr<Nest>(Read(absl::GetFlag(FLAGS_train)));
  static const auto& test = *new absl::StatusOr<Nest>(Read(absl::GetFlag(FLAGS_test)));
  RETURN_IF_ERROR(training.status());
  RETURN_IF_ERROR(test.status());
  Dataset people =
      PartOf(Dataset::FromTensorSlices(*training), Dataset::FromTensorSlices(*test), to_train);
  if (to_train) people = people.Shuffle(100'000, input.seed);
  return people.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kCensus("census", Census);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kModel, Adagrad{absl::GetFlag(FLAGS_learning_rate)});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  RETURN_IF_ERROR(trainer.Fit(kCensus(/*to_train=*/true), options).status());
  ASSIGN_OR_RETURN(const auto figures, MeasureClassifier(trainer, kCensus(/*to_train=*/false)));
  ASSIGN_OR_RETURN(const Counts expected,
                   CountPasses(kCensus(/*to_train=*/true), "label", options.epochs));
  return PrintResult(coordinator, "adult", figures, expected);
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
