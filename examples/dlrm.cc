// Will this advertisement be clicked? Facebook's DLRM: counts go through a perceptron, categories
// through a table, and every pair of what comes out is multiplied. Trains on Criteo's logs, or on
// planted ones, whose model no other can beat, and prints the area under the ROC curve beside that
// ceiling.
#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "examples/planted.h"

ABSL_FLAG(std::string, data, "",
          "Criteo's logs: a label, 13 counts, 26 categories, parted by tabs or commas; a glob. "
          "Empty: planted ones");
ABSL_FLAG(int64_t, impressions, 300'000, "how many are planted");
ABSL_FLAG(int64_t, batch_size, 512, "impressions a replica takes in a step");
ABSL_FLAG(int, epochs, 3, "passes over the logs");

using namespace divvy;

// One table for all 26 fields. For the whole of Criteo's logs make it a hundred times larger: it is
// cut over the parameter servers, and only the rows that a batch names travel.
constexpr int64_t kCounts = 13, kFields = 26, kRowsPerField = 10'000, kWidth = 16;
constexpr int64_t kPairs = (kFields + 1) * kFields / 2;  // of the fields and the counts

const Embedding kCategories("categories", kFields* kRowsPerField, kWidth,
                            RowwiseAdagrad{0.1, /*initial_accumulator=*/1e-6f},
                            RandomNormal{0, 0.2f});
const Mlp kBottom("bottom", {kCounts, 64, kWidth});
const Mlp kTop("top", {kWidth + kPairs, 64, 1});

bool Planted() { return absl::GetFlag(FLAGS_data).empty(); }

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var categories = kCategories(tape, batch["row"]);  // [batch, fields, width]
  Var counts = Relu(kBottom(tape, Log(Maximum(batch["dense"], 0.0f) + 1.0f)));
  Var pairs = DotInteraction(Concat({Reshape(counts, {-1, 1, kWidth}), categories}, 1));
  Var logits = Reshape(kTop(tape, Concat({counts, pairs}, 1)), {-1});
  ModelOutput output = {SigmoidCrossEntropy(logits, batch["label"]),
                        {{"auc", Auc(logits, batch["label"])}}};
  if (Planted()) output.metrics.emplace("ceiling", Auc(batch["planted"], batch["label"]));
  return output;
}
const Model kDlrm("dlrm", {kCategories, kBottom, kTop}, Forward);

// A batch with "row", where the hash of each category stands in the table.
absl::StatusOr<Nest> FindRows(const Nest& batch) {
  ASSIGN_OR_RETURN(Tensor rows, batch["sparse"].tensor());
  ASSIGN_OR_RETURN(absl::Span<int64_t> values, rows.mutable_values<int64_t>());
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(i) % kFields * kRowsPerField + values[i] % kRowsPerField;
  Nest::Dict found = *batch.dict();
  found["row"] = rows;
  return found;
}

// Made once in a process, not once in a pass.
Nest PlantedClicks() {
  static const Nest& clicks = *new Nest(planted::Clicks({absl::GetFlag(FLAGS_impressions)}));
  return clicks;
}

// Every tenth impression is held out.
absl::StatusOr<Dataset> Impressions(const InputContext& input, bool training) {
  Dataset clicks = Planted() ? Dataset::FromTensorSlices(PlantedClicks())
                             : Dataset::CriteoTsv(absl::GetFlag(FLAGS_data));
  clicks = training ? clicks.HoldOut(10, 0).Shuffle(10'000, input.seed) : clicks.Shard(10, 0);
  return clicks.Batch(absl::GetFlag(FLAGS_batch_size)).Map(FindRows);
}
const DataSource kImpressions("impressions", Impressions);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kDlrm, Adam{2e-3});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kImpressions(/*training=*/false);
  ASSIGN_OR_RETURN(auto metrics, trainer.Fit(kImpressions(/*training=*/true), options));
  const double auc = metrics["validation/auc"], ceiling = metrics["validation/ceiling"];
  absl::PrintF("held out: auc %.4f", auc);
  if (Planted()) absl::PrintF("  planted model's %.4f  ratio %.3f", ceiling, auc / ceiling);
  absl::PrintF("\n");
  return absl::OkStatus();
}
DIVVY_PROGRAM(Train);
