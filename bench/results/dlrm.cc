// DLRM on clicks of Criteo's shape: 13 counts, and 26 fields with the cardinalities of Kaggle's
// data set, each in a dynamic table. A planted model draws the labels, so the area under the curve
// that no model can exceed is known. The perceptrons have the sizes of DeepRec's example
// (modelzoo/dlrm).
#include <ctime>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "bench/results/planted_clicks.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(int64_t, batch_size, 512, "clicks per replica and step");
ABSL_FLAG(int64_t, clicks, 1'000'000, "number of clicks of the training set");
ABSL_FLAG(int64_t, test_clicks, 100'000, "number of clicks of the test set");

namespace divvy::results {
namespace {

constexpr int64_t kWidth = 16, kFeatures = kClickFields + 1;

std::vector<Embedding> Tables() {
  std::vector<Embedding> tables;
  for (int64_t field = 1; field <= kClickFields; ++field)
    tables.emplace_back(DynamicTable(
        absl::StrCat("C", field), {.width = kWidth,
                                   .optimizer = RowwiseAdagrad{0.1, /*initial_accumulator=*/1e-6f},
                                   .initializer = RandomNormal{0, 0.1f}}));
  return tables;
}
const std::vector<Embedding> kTables = Tables();
const Mlp kBottom("bottom", {kClickCounts, 512, 256, 64, kWidth});
const Mlp kTop("top", {kWidth + kFeatures * (kFeatures - 1) / 2, 512, 256, 1});
const ExampleCounter kCounter;

// [batch, fields, width]. All lookups come before the first computation, so that one message to
// each parameter server has them.
Var RowsOfTables(GradientTape& tape, const Nest& batch) {
  std::vector<Var> rows;
  for (int64_t field = 0; field < kClickFields; ++field)
    rows.push_back(kTables[static_cast<size_t>(field)](
        tape, Slice(batch["sparse"], /*axis=*/1, field, field + 1)));
  return Concat(rows, 1);
}

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  const Var categories = RowsOfTables(tape, batch);
  const Var counts = Relu(kBottom(tape, Log(Var(batch["dense"]) + 1.0f)));
  const Var pairs = DotInteraction(Concat({Reshape(counts, {-1, 1, kWidth}), categories}, 1));
  const Var logits = Reshape(kTop(tape, Concat({counts, pairs}, 1)), {-1});
  return {kCounter(tape, SigmoidCrossEntropy(logits, batch["label"])),
          {{"auc", Auc(logits, batch["label"])}},
          {{"logit", logits}, {"label", batch["label"]}, {"planted", batch["planted"]}}};
}
std::vector<Layer> Layers() {
  std::vector<Layer> layers(kTables.begin(), kTables.end());
  layers.insert(layers.end(), {kBottom, kTop, kCounter});
  return layers;
}
const Model kModel("dlrm", Layers(), Forward);

// The test set follows the training set.
absl::StatusOr<Dataset> Clicks(const InputContext&, bool to_train) {
  const int64_t training = absl::GetFlag(FLAGS_clicks);
  return to_train ? PlantedClicks(0, training, absl::GetFlag(FLAGS_batch_size))
                  : PlantedClicks(training, training + absl::GetFlag(FLAGS_test_clicks),
                                  absl::GetFlag(FLAGS_batch_size));
}
const DataSource kClicks("clicks", Clicks);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kModel, Adam{2e-3});
  // Processor time of all threads: other processes on the machine do not count.
  const std::clock_t began = std::clock();
  RETURN_IF_ERROR(trainer.Fit(kClicks(/*to_train=*/true)).status());
  const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
  ASSIGN_OR_RETURN(auto figures, MeasureClassifier(trainer, kClicks(/*to_train=*/false)));
  const int64_t clicks = absl::GetFlag(FLAGS_clicks), batch = absl::GetFlag(FLAGS_batch_size);
  figures["examples_per_core"] = static_cast<double>(clicks) / seconds;
  return PrintResult(coordinator, "dlrm", figures, {(clicks + batch - 1) / batch, clicks});
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
