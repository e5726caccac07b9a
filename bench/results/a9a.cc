// a9a: logistic regression with FTRL on 123 binary features (the LIBSVM data sets, made from UCI's
// Adult). The loss is convex, and liblinear's optimum is the figure to reach. Small batches come
// near to it. The large batches of the last epochs then take the noise of single examples out; a
// falling rate would not do for FTRL, because it would also shrink the weights.
#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(int64_t, batch_size, 64, "examples per replica and step");
ABSL_FLAG(int, epochs, 15, "passes over the training set");
ABSL_FLAG(int64_t, last_batch_size, 1024, "the same for the last passes");
ABSL_FLAG(int, last_epochs, 20, "the number of the last passes");
ABSL_FLAG(double, learning_rate, 1, "FTRL's rate");
ABSL_FLAG(float, l2, 0.6, "FTRL's penalty on large weights, over the whole training");

namespace divvy::results {
namespace {

// Ids count from 1.
constexpr int64_t kIds = 124;

struct Bias : Layer {
  Bias() { variables = {{"bias", Shape{1}, Zeros()}}; }
  Var operator()(GradientTape& tape) const { return tape.Read(variables[0].name); }
};

const Embedding kWeights("weights", kIds, 1, {}, Zeros());
const Bias kBias;
const ExampleCounter kCounter;

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  const Var weighted = kWeights.Bag(tape, batch["features"], Combiner::kSum);
  const Var logits = Reshape(weighted + kBias(tape), {-1});
  return {kCounter(tape, SigmoidCrossEntropy(logits, batch["label"])),
          {{"auc", Auc(logits, batch["label"])}},
          {{"logit", logits}, {"label", batch["label"]}}};
}
const Model kModel("a9a", {kWeights, kBias, kCounter}, Forward);

absl::StatusOr<Dataset> Census(const InputContext& input, bool to_train, int64_t batch_size) {
  const auto read = [](const std::string& file) {
    return Dataset::Libsvm(file, kIds, LibsvmLabels::kBinary);
  };
  Dataset people =
      PartOf(read(absl::GetFlag(FLAGS_train)), read(absl::GetFlag(FLAGS_test)), to_train);
  if (to_train) people = people.Shuffle(100'000, input.seed);
  return people.Batch(batch_size);
}
const DataSource kCensus("census", Census);

// Trains for some epochs, and adds their counts to `counts`.
absl::Status Fit(Trainer& trainer, int64_t batch_size, int epochs, Counts& counts) {
  const BoundDataSource data = kCensus(/*to_train=*/true, batch_size);
  FitOptions options;
  options.epochs = epochs;
  RETURN_IF_ERROR(trainer.Fit(data, options).status());
  ASSIGN_OR_RETURN(const Counts more, CountPasses(data, "label", epochs));
  counts = {counts.steps + more.steps, counts.examples + more.examples};
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  Ftrl rule{absl::GetFlag(FLAGS_learning_rate)};
  rule.l2 = absl::GetFlag(FLAGS_l2);
  Trainer trainer(coordinator, kModel, rule);
  Counts expected;
  RETURN_IF_ERROR(
      Fit(trainer, absl::GetFlag(FLAGS_batch_size), absl::GetFlag(FLAGS_epochs), expected));
  RETURN_IF_ERROR(Fit(trainer, absl::GetFlag(FLAGS_last_batch_size),
                      absl::GetFlag(FLAGS_last_epochs), expected));
  ASSIGN_OR_RETURN(const auto figures,
                   MeasureClassifier(trainer, kCensus(/*to_train=*/false, int64_t{1024})));
  return PrintResult(coordinator, "a9a", figures, expected);
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
