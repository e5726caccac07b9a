#include "strategy/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/data_errors.h"

namespace divvy {
namespace {

constexpr int kBuckets = 4096;

double AsDouble(Half value) { return value.ToFloat(); }
double AsDouble(BFloat16 value) { return value.ToFloat(); }
template <typename T>
double AsDouble(T value) {
  return static_cast<double>(value);
}

struct Numbers {
  std::vector<double> values;
  Shape shape;
};

absl::StatusOr<Numbers> NumbersOf(Tensor value) {
  ASSIGN_OR_RETURN(value, value.To(Device{}));
  Numbers numbers{std::vector<double>(value.shape().num_elements()), value.shape()};
  RETURN_IF_ERROR(DispatchDType(
      value.dtype(),
      [&](auto t) {
        using T = decltype(t);
        std::transform(value.data_as<T>(), value.data_as<T>() + numbers.values.size(),
                       numbers.values.begin(), [](T element) { return AsDouble(element); });
        return absl::OkStatus();
      },
      absl::InvalidArgumentError(absl::StrCat("a metric needs numbers, not ", value.ToString()))));
  return numbers;
}

absl::StatusOr<Numbers> NumbersOf(const Var& var) {
  ASSIGN_OR_RETURN(Tensor value, var.Value());
  return NumbersOf(std::move(value));
}

Metric MeanOf(const Numbers& numbers) {
  double total = 0;
  for (const double value : numbers.values) total += value;
  return Metric::Mean(total, static_cast<double>(numbers.values.size()));
}

absl::Status InvalidOperands(absl::string_view metric, const Shape& a, const Shape& b,
                             absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat(metric, ": shapes ", a.ToString(), " and ", b.ToString(), "; wanted ", wanted));
}

// [batch] or [batch, 1].
bool IsColumn(const Shape& shape) {
  return shape.rank() == 1 || (shape.rank() == 2 && shape.dim(1) == 1);
}

int64_t Greatest(absl::Span<const double> row) {
  return std::max_element(row.begin(), row.end()) - row.begin();
}

absl::Status CheckInUnit(absl::string_view metric, const Numbers& labels) {
  const int64_t wrong =
      internal::FirstOutsideUnit(labels.values.data(), static_cast<int64_t>(labels.values.size()));
  if (wrong < 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      internal::LabelNotInUnit(metric, labels.values[wrong], wrong, labels.shape));
}

absl::Status CheckClassNumbers(const Numbers& labels, int64_t classes) {
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const double label = labels.values[i];
    if (label >= 0 && label < static_cast<double>(classes) && label == std::floor(label)) continue;
    return absl::InvalidArgumentError(absl::StrCat("Accuracy: label ", label, " of example ", i,
                                                   " is not an integer in [0, ", classes,
                                                   "): the logits have ", classes, " classes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Metric> ClassAccuracy(const Numbers& logits, const Numbers& labels) {
  const int64_t batch = logits.shape.dim(0), classes = logits.shape.dim(1);
  const bool probabilities = labels.shape == logits.shape;
  if (!probabilities && !(IsColumn(labels.shape) && labels.shape.dim(0) == batch)) {
    return InvalidOperands("Accuracy", logits.shape, labels.shape,
                           "logits [batch, classes], labels [batch] or [batch, classes]");
  }
  RETURN_IF_ERROR(probabilities ? CheckInUnit("Accuracy", labels)
                                : CheckClassNumbers(labels, classes));
  double right = 0;
  for (int64_t i = 0; i < batch; ++i) {
    const double label =
        probabilities ? Greatest(absl::MakeConstSpan(labels.values).subspan(i * classes, classes))
                      : labels.values[i];
    right += Greatest(absl::MakeConstSpan(logits.values).subspan(i * classes, classes)) == label;
  }
  return Metric::Mean(right, batch);
}

// Logits and labels of a binary classification.
absl::StatusOr<std::pair<Numbers, Numbers>> Columns(absl::string_view metric, const Var& a,
                                                    const Var& b) {
  ASSIGN_OR_RETURN(Numbers x, NumbersOf(a));
  ASSIGN_OR_RETURN(Numbers y, NumbersOf(b));
  if (!IsColumn(x.shape) || !IsColumn(y.shape) || x.shape.dim(0) != y.shape.dim(0))
    return InvalidOperands(metric, x.shape, y.shape, "[batch] or [batch, 1] both");
  RETURN_IF_ERROR(CheckInUnit(metric, y));
  return std::make_pair(std::move(x), std::move(y));
}

int Bucket(double logit) {
  const double probability = 1 / (1 + std::exp(-logit));
  return std::clamp(static_cast<int>(probability * kBuckets), 0, kBuckets - 1);
}

// The area under the curve by trapezoids: each pair of a positive and a negative counts 1 if the
// positive is in a higher bucket, and 1/2 if both are in the same one.
double AreaUnderCurve(absl::Span<const double> negatives, absl::Span<const double> positives) {
  double below = 0, pairs = 0, all_positives = 0;
  for (int i = 0; i < kBuckets; ++i) {
    pairs += positives[i] * (below + negatives[i] / 2);
    below += negatives[i];
    all_positives += positives[i];
  }
  return below * all_positives == 0 ? 0 : pairs / (below * all_positives);
}

}  // namespace

const char* Metric::KindName(Kind kind) {
  switch (kind) {
    case Kind::kMean: return "mean";
    case Kind::kRmse: return "rmse";
    case Kind::kAuc: return "auc";
  }
  return "";
}

size_t Metric::NumSums(Kind kind) { return kind == Kind::kAuc ? 2 * kBuckets : 2; }

Metric Metric::Mean(double total, double count) { return Metric(Kind::kMean, {total, count}); }

double Metric::count() const {
  if (kind_ != Kind::kAuc) return sums_[1];
  double count = 0;
  for (double bucket : sums_) count += bucket;
  return count;
}

double Metric::value() const {
  if (kind_ == Kind::kAuc)
    return AreaUnderCurve(absl::MakeConstSpan(sums_).first(kBuckets),
                          absl::MakeConstSpan(sums_).last(kBuckets));
  if (sums_[1] == 0) return 0;
  const double mean = sums_[0] / sums_[1];
  return kind_ == Kind::kRmse ? std::sqrt(mean) : mean;
}

absl::Status Metric::Merge(const Metric& other) {
  if (kind_ != other.kind_)
    return absl::InvalidArgumentError(absl::StrCat("a metric \"", KindName(kind_),
                                                   "\" cannot be merged with a \"",
                                                   KindName(other.kind_), "\""));
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  return absl::OkStatus();
}

absl::Status Merge(const Metrics& from, Metrics& into) {
  Metrics merged = into;
  for (const auto& [name, metric] : from) {
    const auto [it, added] = merged.emplace(name, metric);
    if (added) continue;
    const absl::Status status = it->second.Merge(metric);
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("metric \"", name, "\": ", status.message()));
  }
  into = std::move(merged);
  return absl::OkStatus();
}

absl::StatusOr<Metrics> Collect(const std::map<std::string, absl::StatusOr<Metric>>& metrics) {
  Metrics collected;
  for (const auto& [name, metric] : metrics) {
    if (!metric.ok())
      return absl::Status(metric.status().code(),
                          absl::StrCat("metric \"", name, "\": ", metric.status().message()));
    collected.emplace(name, *metric);
  }
  return collected;
}

absl::StatusOr<Metric> MeanOf(const Var& values) {
  ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(values));
  return MeanOf(numbers);
}

absl::StatusOr<Metric> MeanOf(const Tensor& values) {
  ASSIGN_OR_RETURN(const Numbers numbers, NumbersOf(values));
  return MeanOf(numbers);
}

absl::StatusOr<Metric> Accuracy(const Var& logits, const Var& labels) {
  ASSIGN_OR_RETURN(Numbers answers, NumbersOf(logits));
  ASSIGN_OR_RETURN(Numbers truth, NumbersOf(labels));
  if (answers.shape.rank() == 2 && answers.shape.dim(1) > 1) return ClassAccuracy(answers, truth);
  ASSIGN_OR_RETURN(auto columns, Columns("Accuracy", logits, labels));
  double right = 0;
  for (size_t i = 0; i < columns.first.values.size(); ++i)
    right += (columns.first.values[i] > 0) == (columns.second.values[i] > 0.5);
  return Metric::Mean(right, columns.first.values.size());
}

absl::StatusOr<Metric> Auc(const Var& logits, const Var& labels) {
  ASSIGN_OR_RETURN(auto columns, Columns("Auc", logits, labels));
  Metric auc(Metric::Kind::kAuc, std::vector<double>(2 * kBuckets, 0));
  for (size_t i = 0; i < columns.first.values.size(); ++i) {
    const double logit = columns.first.values[i];
    if (std::isnan(logit))
      return absl::InvalidArgumentError(absl::StrCat("Auc: logit ", i, " is not a number"));
    auc.sums_[Bucket(logit) + (columns.second.values[i] > 0.5 ? kBuckets : 0)] += 1;
  }
  return auc;
}

absl::StatusOr<Metric> Rmse(const Var& predictions, const Var& labels) {
  ASSIGN_OR_RETURN(Numbers x, NumbersOf(predictions));
  ASSIGN_OR_RETURN(Numbers y, NumbersOf(labels));
  if (x.values.size() != y.values.size())
    return InvalidOperands("Rmse", x.shape, y.shape, "as many predictions as labels");
  double squares = 0;
  for (size_t i = 0; i < x.values.size(); ++i)
    squares += (x.values[i] - y.values[i]) * (x.values[i] - y.values[i]);
  return Metric(Metric::Kind::kRmse, {squares, static_cast<double>(x.values.size())});
}

absl::StatusOr<Metric> RecallAt(int k, const Var& scores) {
  if (k < 1)
    return absl::InvalidArgumentError(absl::StrCat("RecallAt: k must be at least 1, not ", k));
  ASSIGN_OR_RETURN(Numbers numbers, NumbersOf(scores));
  const Shape& shape = numbers.shape;
  if (shape.rank() != 2 || shape.dim(1) < shape.dim(0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("RecallAt: scores ", shape.ToString(),
                     "; wanted [batch, candidates] with candidates >= batch"));
  }
  double found = 0;
  for (int64_t i = 0; i < shape.dim(0); ++i) {
    const absl::Span<const double> row =
        absl::MakeConstSpan(numbers.values).subspan(i * shape.dim(1), shape.dim(1));
    // Not "greater than", so that a row of NaN finds nothing.
    found +=
        std::count_if(row.begin(), row.end(), [&](double score) { return !(score <= row[i]); }) < k;
  }
  return Metric::Mean(found, shape.dim(0));
}

namespace {

// Nearly all buckets of a step's Auc are empty. Only the others are sent, as IndexedSlices, which a
// sum over replicas also adds correctly.
IndexedSlices NotEmpty(absl::Span<const double> sums) {
  std::vector<int64_t> ids;
  std::vector<double> rows;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i] == 0) continue;
    ids.push_back(static_cast<int64_t>(i));
    rows.push_back(sums[i]);
  }
  return {Tensor::Vector<int64_t>(ids), Tensor::Vector<double>(rows),
          static_cast<int64_t>(sums.size())};
}

absl::StatusOr<std::vector<double>> SumsOf(const Nest& nest, size_t size) {
  if (nest.kind() != Nest::Kind::kIndexedSlices) {
    ASSIGN_OR_RETURN(const Tensor sums, nest.tensor());
    ASSIGN_OR_RETURN(const absl::Span<const double> values, sums.values<double>());
    return std::vector<double>(values.begin(), values.end());
  }
  ASSIGN_OR_RETURN(const IndexedSlices slices, nest.indexed_slices());
  RETURN_IF_ERROR(Validate(slices));
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> ids, slices.ids.values<int64_t>());
  ASSIGN_OR_RETURN(const absl::Span<const double> rows, slices.rows.values<double>());
  if (slices.num_rows != static_cast<int64_t>(size) || rows.size() != ids.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a metric has ", size,
                                                   " sums, but its encoding has ", rows.size(),
                                                   " rows of ", slices.num_rows));
  }
  std::vector<double> sums(size, 0);
  for (size_t i = 0; i < ids.size(); ++i) sums[ids[i]] += rows[i];
  return sums;
}

}  // namespace

Nest NestCodec<Metric>::Encode(const Metric& metric) {
  const bool sparse = metric.kind_ == Metric::Kind::kAuc;
  return Nest::Dict{
      {"kind", Nest(Metric::KindName(metric.kind_))},
      {"sums", sparse ? Nest(NotEmpty(metric.sums_)) : Nest(Tensor::Vector<double>(metric.sums_))}};
}

absl::StatusOr<Metric> NestCodec<Metric>::Decode(const Nest& nest) {
  ASSIGN_OR_RETURN(std::string name, nest["kind"].text());
  for (Metric::Kind kind : {Metric::Kind::kMean, Metric::Kind::kRmse, Metric::Kind::kAuc}) {
    if (name != Metric::KindName(kind)) continue;
    ASSIGN_OR_RETURN(std::vector<double> sums, SumsOf(nest["sums"], Metric::NumSums(kind)));
    if (sums.size() == Metric::NumSums(kind)) return Metric(kind, std::move(sums));
    return absl::InvalidArgumentError(absl::StrCat("a metric \"", name, "\" with ", sums.size(),
                                                   " sums instead of ", Metric::NumSums(kind)));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown kind of metric \"", name, "\""));
}

}  // namespace divvy
