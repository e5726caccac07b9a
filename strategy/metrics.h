// Statistics that steps return.
#ifndef DIVVY_STRATEGY_METRICS_H_
#define DIVVY_STRATEGY_METRICS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/var.h"
#include "tensor/nest.h"

namespace divvy {

// A statistic that may be merged in any order: over replicas, steps, workers. A step that returns
// Metrics is reported without further code: the live line, the logs and TensorBoard
// (--tensorboard_dir) show their means over the last report interval. Merged once for each step,
// however often it was tried. A value type. What is kept are sums, so Strategy::Reduce(kSum) of
// Metrics merges them, too; values are never averaged.
//
//   ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics, worker.strategy().Run(TrainReplica,
//   batch));
//   // of a step that returns StatusOr<Metrics>
//   return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
class Metric {
 public:
  // total / count: of what a step has counted itself. Two of them merge to (total + total) / (count
  // + count). Nothing is checked.
  static Metric Mean(double total, double count);
  // 0 where there is nothing to tell (no elements; an Auc of one class), as Keras has it
  double value() const;
  // Of examples or elements, or as given to Mean.
  double count() const;
  // InvalidArgument: another kind; nothing is changed
  absl::Status Merge(const Metric& other);

 private:
  friend struct NestCodec<Metric>;
  friend absl::StatusOr<Metric> Auc(const Var& logits, const Var& labels);
  friend absl::StatusOr<Metric> Rmse(const Var& predictions, const Var& labels);
  enum class Kind : uint8_t { kMean, kRmse, kAuc };
  Metric(Kind kind, std::vector<double> sums) : kind_(kind), sums_(std::move(sums)) {}
  static const char* KindName(Kind kind);
  static size_t NumSums(Kind kind);

  Kind kind_;
  // kMean: total, count. kRmse: squares, count. kAuc: negatives, then positives, by bucket
  std::vector<double> sums_;
};
// By name, as the live line shows them.
using Metrics = std::map<std::string, Metric>;

// Adds `from` to `into`; names that `into` lacks are taken over. InvalidArgument: another kind
// under the same name; `into` is unchanged.
absl::Status Merge(const Metrics& from, Metrics& into);

// For the end of a replica function: the metrics, or the first error by name, with the metric's
// name in front of its words.
//
//   return Collect({{"loss", MeanOf(losses)}, {"accuracy", Accuracy(logits, labels)}});
absl::StatusOr<Metrics> Collect(const std::map<std::string, absl::StatusOr<Metric>>& metrics);

// Each takes the values to the CPU: it may fetch what is pending, waits for a GPU, and blocks
// meanwhile. Values of any dtype that tensors hold, counted in double. Logits, not probabilities.
// Empty batches count nothing. InvalidArgument: shapes that do not fit; or the reason of a failed
// Var.
absl::StatusOr<Metric> MeanOf(const Var& values);     // over all elements
absl::StatusOr<Metric> MeanOf(const Tensor& values);  // the same, of a tensor, wherever it lies
// Keras' CategoricalAccuracy, SparseCategoricalAccuracy and BinaryAccuracy: logits [batch, classes]
// with two classes or more, labels [batch] or [batch, 1] of class numbers or [batch, classes] of
// probabilities: the greatest (the first of equals) counts. Or both [batch] or [batch, 1]: yes
// above logit 0, labels above 0.5. InvalidArgument, too: a class number that is none, or a label or
// probability outside [0, 1], with its example.
absl::StatusOr<Metric> Accuracy(const Var& logits, const Var& labels);
// Keras' AUC: the area under the ROC curve, both [batch] or [batch, 1]; labels above 0.5 are
// positive. 4096 buckets of the probability (Keras: 200 thresholds), ties within one count half.
// InvalidArgument, too: a logit that is NaN, a label outside [0, 1].
absl::StatusOr<Metric> Auc(const Var& logits, const Var& labels);
// Keras' RootMeanSquaredError: over all elements, of any shapes with the same number of them.
absl::StatusOr<Metric> Rmse(const Var& predictions, const Var& labels);
// For retrieval within a batch (two towers: scores = queries x candidates^T). [batch, candidates],
// candidates >= batch; the right one of row i is candidate i. It is found if fewer than k score
// higher; NaN counts as higher. InvalidArgument: k < 1.
absl::StatusOr<Metric> RecallAt(int k, const Var& scores);

template <>
struct NestCodec<Metric> {  // {"kind": text, "sums": float64 [n]}; of an Auc the buckets that are
                            // not empty, as IndexedSlices
  static Nest Encode(const Metric& metric);
  static absl::StatusOr<Metric> Decode(const Nest& nest);
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_METRICS_H_
