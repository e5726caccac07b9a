// Evaluation of recommenders over all items: Recall@K and NDCG@K without sampling.
#ifndef DIVVY_TRAIN_TOP_K_H_
#define DIVVY_TRAIN_TOP_K_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "ops/var.h"
#include "strategy/metrics.h"
#include "tensor/nest.h"

namespace divvy {

// The best k items of each user, of items that are scored block by block, so that the scores of all
// items need not fit into memory. A higher score is better; of equal scores, the lower item. A
// value; not thread-safe.
//
//   TopK best(20, batch["seen"]);
//   for (int64_t first = 0; first < kItems; first += 10'000)
//     RETURN_IF_ERROR(best.Add(first, ScoresOfItemsFrom(first)));
//   ASSIGN_OR_RETURN(Metric recall, best.Recall(20, batch["bought"]));
class TopK {
 public:
  // Items of `seen` are left out: SparseIds with one list for each user, usually the items that the
  // user has chosen in the training data. The first Add checks both arguments.
  explicit TopK(int k, std::optional<Nest> seen = {}) : k_(k), seen_(std::move(seen)) {}

  // Adds the items first_item, first_item + 1, ... with their scores, [users, items]. Copies the
  // scores to the CPU, so it may block. InvalidArgument, and nothing changes: scores of another
  // shape or number of users, a score that is NaN, an item that was added before, a k below 1, or
  // `seen` of another number of users.
  absl::Status Add(int64_t first_item, const Var& scores);

  // int64 [users, k]: the best items, the best first. -1 where a user has fewer items.
  Tensor Items() const;

  // The mean over users of the share of their relevant items that are among the best `k`:
  //
  //   recall = |relevant and among the best k| / |relevant|
  //
  // `relevant` is SparseIds with one list for each user; an item counts once. Items that the user
  // has seen do not count as relevant, and a user without relevant items is not counted.
  // The metric is a sum over users and their number. So steps that have different users may run on
  // different workers: their metrics merge to that of all users (Metric::Merge).
  //
  // InvalidArgument: `k` is outside [1, the k of the constructor], there is another number of
  // users, or a relevant item was never added.
  absl::StatusOr<Metric> Recall(int k, const Nest& relevant) const;
  // The same for the normalized discounted cumulative gain (Järvelin and Kekäläinen, "Cumulated
  // gain-based evaluation of IR techniques", 2002) with gains of 0 and 1:
  //
  //   dcg  = sum of 1 / log2(rank + 1) over the relevant items among the best k; ranks from 1
  //   ndcg = dcg / the dcg of a list that begins with all relevant items
  absl::StatusOr<Metric> Ndcg(int k, const Nest& relevant) const;

 private:
  struct Scored {
    double score;
    int64_t item;
  };
  struct User {
    // A heap with the worst item in front.
    std::vector<Scored> best;
    // The items that were left out; they rise and are unique.
    std::vector<int64_t> seen;
  };
  // The first of some items and the one after the last.
  using Block = std::pair<int64_t, int64_t>;

  static bool Better(const Scored& a, const Scored& b);
  static std::vector<Scored> Sorted(const User& user);
  absl::Status CheckBlock(int64_t first_item, const Shape& scores) const;
  template <typename T>
  absl::Status AddRow(const Block& items, absl::Span<const T> scores, int64_t number, User& user);
  template <typename T>
  absl::Status AddBlock(const Block& items, absl::Span<const T> scores, std::vector<User> users);
  bool WasAdded(int64_t item) const;
  // The users, made by the first block.
  absl::StatusOr<std::vector<User>> UsersOf(int64_t users) const;
  // Calls use(the user's best items, the relevant ones) for each user that has relevant items.
  template <typename Use>
  absl::Status ForEachUser(absl::string_view metric, int k, const Nest& relevant,
                           const Use& use) const;

  int k_;
  std::optional<Nest> seen_;
  std::vector<User> users_;
  std::vector<Block> added_;
};

// Metrics of scores of all items, [users, items], as ModelOutput::metrics takes them: "recall@20"
// and "ndcg@20" for each k of `ks`. `relevant` and `seen` as for TopK. An error is that of each
// metric.
//
//   // Each batch has users of the held-out data. Trainer::Evaluate adds up the metrics of all
//   // batches, on all workers.
//   ModelOutput Forward(GradientTape& tape, const Nest& batch) {
//     const Var users = kUsers(tape, batch["user"]), items = kItems(tape, Range(kNumItems));
//     const Var scores = MatMul(users, items, Transpose::kNo, Transpose::kYes);
//     return {SoftmaxCrossEntropy(scores, batch["next"]),
//             TopKMetrics({20, 50}, scores, batch["bought"], batch["seen"])};
//   }
std::map<std::string, absl::StatusOr<Metric>> TopKMetrics(const std::vector<int>& ks,
                                                          const Var& scores, const Nest& relevant,
                                                          const std::optional<Nest>& seen = {});

}  // namespace divvy

#endif  // DIVVY_TRAIN_TOP_K_H_
