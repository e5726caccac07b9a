// The figures of bench/results, computed exactly from all predictions of a test set. The metrics of
// strategy/metrics.h merge over workers and therefore count in buckets; published figures do not.
// Pure; thread-safe. InvalidArgument: arguments of different sizes, or no examples.
#ifndef DIVVY_BENCH_RESULTS_MEASURES_H_
#define DIVVY_BENCH_RESULTS_MEASURES_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "divvy.h"

namespace divvy::results {

// The area under the ROC curve: the probability that a positive example has a higher score than a
// negative one, where equal scores count half. Labels above 0.5 are positive. InvalidArgument also
// if there is only one class, or if a score is NaN.
absl::StatusOr<double> AreaUnderCurve(absl::Span<const float> scores,
                                      absl::Span<const float> labels);

// The mean of -log p(label), in nats, of a logistic model with these logits. Labels are 0 or 1.
absl::StatusOr<double> LogLoss(absl::Span<const float> logits, absl::Span<const float> labels);

// The root of the mean squared error, of predictions that are first clipped to [low, high].
absl::StatusOr<double> RootMeanSquare(absl::Span<const float> predictions,
                                      absl::Span<const float> labels, float low, float high);

// The items of each user: element u has those of user u.
using ItemLists = std::vector<std::vector<int64_t>>;

// Recall@k as LightGCN and BARS compute it. For each user the k items with the greatest dot of the
// user's and the item's vector are candidates; items of `seen` are left out, and of equal items the
// first one counts. A user's recall is the fraction of the user's `wanted` items among the
// candidates. Returns the mean over the users that want an item.
//
// `users` [u, width] and `items` [i, width] are float32 on the CPU. Computes all u x i dots, in
// blocks of some megabytes. Also InvalidArgument: k < 1, other dtypes or shapes, or an item outside
// [0, i).
absl::StatusOr<double> RecallOfNearest(int k, const Tensor& users, const Tensor& items,
                                       const ItemLists& seen, const ItemLists& wanted);

}  // namespace divvy::results

#endif  // DIVVY_BENCH_RESULTS_MEASURES_H_
