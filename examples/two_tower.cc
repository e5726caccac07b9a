// Predicts which item a user visits next. Two towers compute a point for each user and each item;
// the items nearest to a user are the candidates. Trains on visits in CSV, or on visits generated
// by a known ("planted") model. Prints how often the right item is among the ten nearest of a
// batch, and for planted visits also the same for the planted points, which is the upper bound.
#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "examples/planted.h"

ABSL_FLAG(std::string, data, "", "CSV with user, item and tag; a glob. Empty: planted visits");
ABSL_FLAG(int64_t, visits, 200'000, "number of planted visits");
ABSL_FLAG(int64_t, batch_size, 256,
          "visits per replica and step; each visit's item is one of as many candidates");
ABSL_FLAG(int, epochs, 5, "passes over the visits");
ABSL_FLAG(
    std::string, export_to, "",
    "path of the exported towers, for a program that serves them: NAME.safetensors; empty: no "
    "export");

using namespace divvy;

// For millions of users and items make the tables larger: they are cut over the parameter servers,
// and only the rows that a batch names are sent.
constexpr int64_t kUsers = 10'000, kItems = 10'000, kTags = 1'000, kWidth = 32;

const RowwiseAdagrad kRule{0.05, /*initial_accumulator=*/1e-4f};  // one slot element for each row
const Embedding kUserTable("user", kUsers, kWidth, kRule);
const Embedding kItemTable("item", kItems, kWidth, kRule);
const Embedding kTagTable("tag", kTags, kWidth, kRule);
const Mlp kUserTower("user_tower", {kWidth, 64, kWidth});
const Mlp kItemTower("item_tower", {2 * kWidth, 64, kWidth});

bool Planted() { return absl::GetFlag(FLAGS_data).empty(); }

// [batch, batch]: how near each item of the batch is to each user. The right items are on the
// diagonal.
Var Scores(const Var& users, const Var& items) {
  return MatMul(users, items, Transpose::kNo, Transpose::kYes);
}

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // The lookups come first, so that one message to each parameter server has all of them.
  Var user = kUserTable(tape, batch["user"]), item = kItemTable(tape, batch["item"]),
      tag = kTagTable(tape, batch["tag"]);
  Var users = L2Normalize(kUserTower(tape, user)),
      items = L2Normalize(kItemTower(tape, Concat({item, tag}, 1)));
  // The items of other rows serve as wrong answers, but not the right item itself.
  InBatchSoftmaxOptions options;
  options.item_ids = batch["item"];
  options.temperature = 0.1f;
  ModelOutput output = {InBatchSoftmax(users, items, options),
                        {{"recall@10", RecallAt(10, Scores(users, items))}}};
  if (Planted())
    output.metrics.emplace(
        "ceiling", RecallAt(10, Scores(batch["planted"]["user"], batch["planted"]["item"])));
  return output;
}
const Model kTwoTower("two_tower", {kUserTable, kItemTable, kTagTable, kUserTower, kItemTower},
                      Forward);

// Generated once in a process, not once in a pass.
Nest PlantedVisits() {
  static const Nest& visits = *new Nest(planted::Visits({absl::GetFlag(FLAGS_visits)}));
  return visits;
}

// Every tenth visit is held out.
absl::StatusOr<Dataset> Visits(const InputContext& input, bool training) {
  CsvColumn user{"user", DType::kInt64}, item{"item", DType::kInt64},
      tag{"tag", DType::kString, /*hash_buckets=*/kTags};
  user.below = kUsers;
  item.below = kItems;
  Dataset visits = Planted() ? Dataset::FromTensorSlices(PlantedVisits())
                             : Dataset::Csv(absl::GetFlag(FLAGS_data), {user, item, tag});
  visits = training ? visits.HoldOut(10, 0).Shuffle(10'000, input.seed) : visits.Shard(10, 0);
  return visits.Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kVisits("visits", Visits);

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kTwoTower, Adam{1e-3});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.validation = kVisits(/*training=*/false);
  ASSIGN_OR_RETURN(auto metrics, trainer.Fit(kVisits(/*training=*/true), options));
  const double recall = metrics["validation/recall@10"], ceiling = metrics["validation/ceiling"];
  absl::PrintF("held out: recall@10 %.4f", recall);
  if (Planted()) absl::PrintF("  planted points' %.4f  ratio %.3f", ceiling, recall / ceiling);
  absl::PrintF("\n");
  const std::string export_to = absl::GetFlag(FLAGS_export_to);
  return export_to.empty() ? absl::OkStatus() : coordinator.Export(export_to);
}
DIVVY_PROGRAM(Train);
