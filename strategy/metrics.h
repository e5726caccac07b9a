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

// A statistic that can be merged in any order: over replicas, steps and workers. A step that
// returns Metrics is reported without further code: the live line, the logs and TensorBoard
// (--tensorboard_dir) show the means over the last report interval. Each step counts once, however
// many attempts it took. A Metric stores sums and not finished values, so Strategy::Reduce(kSum)
// merges Metrics correctly. A value type.
//
//   ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics,
//                    worker.strategy().Run(TrainReplica, batch));
//   // at the end of a step that returns StatusOr<Metrics>
//   return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
class Metric {
 public:
  // total / count, for values that a step has counted itself. Two of them merge to (total + total)
  // / (count + count). The arguments are not checked.
  static Metric Mean(double total, double count);
  // The statistic; 0 if it is undefined (no elements, or an Auc of one class), as in Keras.
  double value() const;
  // The number of examples or elements, or the count that was given to Mean.
  double count() const;
  // Adds `other` to this metric. InvalidArgument: another kind of metric; nothing is changed.
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
// Metrics by name; the live line shows these names.
using Metrics = std::map<std::string, Metric>;

// Merges `from` into `into`. Names that `into` lacks are copied. InvalidArgument: a name has
// different kinds of metric; `into` is unchanged.
absl::Status Merge(const Metrics& from, Metrics& into);

// Returns all metrics, or the first error in name order, with the metric's name before its message.
// Meant for the end of a replica function:
//
//   return Collect({{"loss", MeanOf(losses)}, {"accuracy", Accuracy(logits, labels)}});
absl::StatusOr<Metrics> Collect(const std::map<std::string, absl::StatusOr<Metric>>& metrics);

// The functions below copy the values to the CPU. That may fetch pending values and wait for a GPU,
// so they block. Values may have any dtype that tensors have; the sums are float64. Pass logits,
// not probabilities. Empty batches count nothing. InvalidArgument: shapes that do not match. A
// failed Var returns its own error.
absl::StatusOr<Metric> MeanOf(const Var& values);     // over all elements
absl::StatusOr<Metric> MeanOf(const Tensor& values);  // the same, for a tensor on any device
// Keras' CategoricalAccuracy, SparseCategoricalAccuracy and BinaryAccuracy. The shapes select the
// form:
// - Classes: logits [batch, classes] with two or more classes. Labels are class numbers [batch] or
//   [batch, 1], or probabilities [batch, classes]. The greatest value is the chosen class; of equal
//   ones, the first.
// - Binary: logits and labels are both [batch] or [batch, 1]. A logit above 0 and a label above 0.5
//   mean yes.
//
// Also InvalidArgument, with the example's number: a class number out of range, or a label or
// probability outside [0, 1].
absl::StatusOr<Metric> Accuracy(const Var& logits, const Var& labels);
// Keras' AUC: the area under the ROC curve. Logits and labels are both [batch] or [batch, 1];
// labels above 0.5 are positive. It uses 4096 buckets of the probability (Keras: 200 thresholds);
// ties within a bucket count half. Also InvalidArgument: a logit that is NaN, or a label outside
// [0, 1].
absl::StatusOr<Metric> Auc(const Var& logits, const Var& labels);
// Keras' RootMeanSquaredError over all elements. The shapes may differ if the number of elements is
// the same.
absl::StatusOr<Metric> Rmse(const Var& predictions, const Var& labels);
// The recall at k for retrieval within a batch (two towers: scores = queries x candidates^T).
// `scores` is [batch, candidates], with candidates >= batch; the correct candidate of row i is
// candidate i. It counts as found if fewer than k candidates score higher; NaN counts as higher.
// Also InvalidArgument: k < 1.
absl::StatusOr<Metric> RecallAt(int k, const Var& scores);

// {"kind": text, "sums": float64 [n]}. The sums of an Auc are IndexedSlices with the buckets that
// are not empty.
template <>
struct NestCodec<Metric> {
  static Nest Encode(const Metric& metric);
  static absl::StatusOr<Metric> Decode(const Nest& nest);
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_METRICS_H_
