// Gowalla in LightGCN's split: two towers. Each user and each place has a vector of length 1, and a
// user's candidates are the nearest places. The other places of a batch serve as wrong ones; a
// place is among them in proportion to its visits, which the term log_q corrects (Yi et al.,
// "Sampling-bias-corrected neural modeling for large corpus item recommendations", 2019).
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "bench/results/measures.h"
#include "bench/results/readers.h"
#include "bench/results/result.h"
#include "divvy.h"

ABSL_FLAG(int64_t, batch_size, 2048, "visits per replica and step");
ABSL_FLAG(int, epochs, 20, "passes over the visits");
ABSL_FLAG(double, learning_rate, 0.1, "the rate of row-wise Adagrad");
ABSL_FLAG(float, temperature, 0.1f, "what cosines are divided by");

namespace divvy::results {
namespace {

// The numbers of the published split. --test may have no other users and places.
constexpr int64_t kUsers = 29'858, kItems = 40'981, kWidth = 64;
constexpr int kCandidates = 20;

const Embedding kUserTable("user", kUsers, kWidth, {}, RandomNormal{0, 0.1f});
const Embedding kItemTable("item", kItems, kWidth, {}, RandomNormal{0, 0.1f});
const ExampleCounter kCounter;

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  const Var user = kUserTable(tape, batch["user"]), item = kItemTable(tape, batch["item"]);
  InBatchSoftmaxOptions options;
  options.temperature = absl::GetFlag(FLAGS_temperature);
  options.log_q = batch["log_q"];
  return {kCounter(tape, InBatchSoftmax(L2Normalize(user), L2Normalize(item), options))};
}
const Model kModel("gowalla", {kUserTable, kItemTable, kCounter}, Forward);

// The visits to train on, and those to find.
struct Visits {
  ItemLists seen, wanted;
};

// With --fold, a fifth of each user's visits is to be found.
Visits HoldOut(const ItemLists& all, size_t fold) {
  Visits visits{ItemLists(all.size()), ItemLists(all.size())};
  for (size_t user = 0; user < all.size(); ++user) {
    for (size_t i = 0; i < all[user].size(); ++i)
      ((i + user) % kFolds == fold ? visits.wanted : visits.seen)[user].push_back(all[user][i]);
  }
  return visits;
}

absl::StatusOr<Visits> ReadVisits() {
  ASSIGN_OR_RETURN(ItemLists training, ReadItemLists(absl::GetFlag(FLAGS_train)));
  if (const int fold = absl::GetFlag(FLAGS_fold); fold >= 0)
    return HoldOut(training, static_cast<size_t>(fold));
  ASSIGN_OR_RETURN(ItemLists test, ReadItemLists(absl::GetFlag(FLAGS_test)));
  return Visits{std::move(training), std::move(test)};
}

// Read once in a process.
const absl::StatusOr<Nest>& Pairs() {
  static const auto& pairs = *new absl::StatusOr<Nest>([]() -> absl::StatusOr<Nest> {
    ASSIGN_OR_RETURN(const Visits visits, ReadVisits());
    return PairsOf(visits.seen);
  }());
  return pairs;
}

absl::StatusOr<Dataset> TrainingPairs(const InputContext& input) {
  RETURN_IF_ERROR(Pairs().status());
  return Dataset::FromTensorSlices(*Pairs())
      .Shuffle(2'000'000, input.seed)
      .Batch(absl::GetFlag(FLAGS_batch_size));
}
const DataSource kPairs("pairs", TrainingPairs);

// The number of places in the files.
int64_t NumItems(const Visits& visits) {
  int64_t items = 0;
  for (const ItemLists* lists : {&visits.seen, &visits.wanted}) {
    for (const std::vector<int64_t>& list : *lists) {
      for (const int64_t item : list) items = std::max(items, item + 1);
    }
  }
  return items;
}

// The first `rows` rows of the table, each of length 1.
absl::StatusOr<Tensor> UnitVectors(Coordinator& coordinator, const Embedding& table, int64_t rows) {
  ASSIGN_OR_RETURN(const Variable variable,
                   coordinator.strategy().FindVariable(table.variables[0]));
  ASSIGN_OR_RETURN(const Tensor vectors, variable.Slice(0, rows));
  return L2Normalize(Var(vectors)).Value();
}

absl::Status Train(Coordinator& coordinator) {
  Trainer trainer(coordinator, kModel,
                  RowwiseAdagrad{absl::GetFlag(FLAGS_learning_rate),
                                 /*initial_accumulator=*/1e-6f});
  FitOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  RETURN_IF_ERROR(trainer.Fit(kPairs(), options).status());
  ASSIGN_OR_RETURN(const Visits visits, ReadVisits());
  ASSIGN_OR_RETURN(const Tensor users, UnitVectors(coordinator, kUserTable, kUsers));
  ASSIGN_OR_RETURN(const Tensor items, UnitVectors(coordinator, kItemTable, NumItems(visits)));
  ASSIGN_OR_RETURN(const double recall,
                   RecallOfNearest(kCandidates, users, items, visits.seen, visits.wanted));
  ASSIGN_OR_RETURN(const Counts expected, CountPasses(kPairs(), "item", options.epochs));
  return PrintResult(coordinator, "gowalla", {{"recall", recall}}, expected);
}

}  // namespace
}  // namespace divvy::results

DIVVY_PROGRAM(divvy::results::Train);
