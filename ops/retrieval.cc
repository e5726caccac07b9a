// Both losses are SoftmaxCrossEntropy over corrected logits. Accidental hits get a logit of
// -infinity, so they have no part in the sum and no gradient.
#include "ops/retrieval.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "ops/operation.h"
#include "ops/unique_ids.h"

namespace divvy {
namespace {

using internal::InvalidOperands;

absl::StatusOr<Var> OnDevice(const Tensor& value, Device device) {
  ASSIGN_OR_RETURN(Tensor there, value.To(device));
  return Var(std::move(there));
}

// 0, 1, ... n - 1 as int64 [n] there.
absl::StatusOr<Var> RangeOn(Device device, int64_t n) {
  return OnDevice(internal::ValueOf(Range(n)), device);
}

// Ids as int64 [n] on the CPU.
absl::StatusOr<Tensor> IdsOf(absl::string_view operation, absl::string_view what,
                             const Nest& nest) {
  ASSIGN_OR_RETURN(const Tensor given, nest.tensor());
  if (!IsInteger(given.dtype()) || given.shape().rank() != 1)
    return InvalidOperands(operation, what, " are ", given.ToString(),
                           "; give integers of rank 1, one id for each");
  ASSIGN_OR_RETURN(const Tensor ids, given.To(Device{}));
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::BackendFor(Device{}));
  return internal::CastTo(*backend, ids, DType::kInt64);
}

// 1 where ids[i] equals ids[first_column + j], else 0: [rows, n - first_column]. nullopt: all ids
// differ. Numbers of ids are compared and not the ids, because arithmetic takes no integers, and a
// floating type does not hold every id.
absl::StatusOr<std::optional<Var>> EqualIds(const Tensor& ids, int64_t rows, int64_t first_column,
                                            Device device) {
  const std::shared_ptr<const internal::UniqueIds> unique = internal::UniqueOf(ids);
  if (unique == nullptr) return std::optional<Var>();
  ASSIGN_OR_RETURN(Tensor places, unique->PlacesOn(device));
  const int64_t n = ids.shape().num_elements();
  constexpr int64_t kExactInFloat = int64_t{1} << 24;
  const Var numbers =
      Cast(Var(std::move(places)), n <= kExactInFloat ? DType::kFloat32 : DType::kFloat64);
  return std::optional<Var>(
      Equal(Reshape(Slice(numbers, 0, 0, rows), {rows, 1}),
            Reshape(Slice(numbers, 0, first_column, n), {1, n - first_column})));
}

// The logits with -infinity where the mask is 1: log(1 - mask) is exactly 0 where it is 0.
Var WithoutHits(const Var& logits, const Var& mask) {
  return logits + Cast(Log(1.0 - mask), logits.dtype());
}

// ---- in-batch softmax ---------------------------------------------------------------------------

constexpr absl::string_view kInBatch = "InBatchSoftmax";

absl::Status CheckTowers(const Tensor& users, const Tensor& items, float temperature) {
  RETURN_IF_ERROR(internal::CheckComputedWith(kInBatch, users));
  const Shape &u = users.shape(), &v = items.shape();
  if (u.rank() != 2 || v.rank() != 2 || u.dim(1) != v.dim(1) || v.dim(0) < u.dim(0) ||
      users.dtype() != items.dtype()) {
    return InvalidOperands(kInBatch, "users ", users.ToString(), " and items ", items.ToString(),
                           "; give users [batch, width] and items [items, width] of one dtype, "
                           "where item i is the right one of user i, so items >= batch");
  }
  if (temperature > 0 && std::isfinite(temperature) && std::isfinite(1 / temperature))
    return absl::OkStatus();
  return InvalidOperands(kInBatch, "the temperature is ", temperature, "; give one above 0");
}

template <typename T>
absl::Status CheckLogarithms(const Tensor& log_q) {
  for (int64_t i = 0; i < log_q.shape().num_elements(); ++i) {
    const T value = log_q.data_as<T>()[i];
    if (value <= 0 && std::isfinite(value)) continue;
    return InvalidOperands(kInBatch, "log_q of item ", i, " is ", value,
                           "; give the logarithm of a probability, Log(q) with 0 < q <= 1");
  }
  return absl::OkStatus();
}

// `log_q` is on the CPU.
absl::Status CheckLogarithms(const Tensor& log_q) {
  if (log_q.dtype() == DType::kFloat64) return CheckLogarithms<double>(log_q);
  if (log_q.dtype() == DType::kFloat32) return CheckLogarithms<float>(log_q);
  ASSIGN_OR_RETURN(const internal::Backend* backend, internal::BackendFor(Device{}));
  ASSIGN_OR_RETURN(const Tensor floats, internal::CastTo(*backend, log_q, DType::kFloat32));
  return CheckLogarithms<float>(floats);
}

absl::Status CheckLogQ(const Tensor& log_q, const Tensor& items) {
  if (log_q.shape() != Shape{items.shape().dim(0)} || !IsFloating(log_q.dtype()))
    return InvalidOperands(kInBatch, "log_q ", log_q.ToString(), " for items ", items.ToString(),
                           "; give one floating-point number for each item");
  // The values on a GPU may not be there yet, and the check does not wait for them.
  return log_q.device().kind == Device::Kind::kCpu ? CheckLogarithms(log_q) : absl::OkStatus();
}

// 1 at the accidental hits of a batch; nullopt: there are none.
absl::StatusOr<std::optional<Var>> HitsInBatch(const Nest& item_ids, int64_t batch,
                                               const Tensor& items) {
  ASSIGN_OR_RETURN(const Tensor ids, IdsOf(kInBatch, "item_ids", item_ids));
  const int64_t n = items.shape().dim(0);
  if (ids.shape().num_elements() != n)
    return InvalidOperands(kInBatch, "item_ids ", ids.ToString(), " for items ", items.ToString(),
                           "; give one id for each item");
  ASSIGN_OR_RETURN(std::optional<Var> equal, EqualIds(ids, batch, 0, items.device()));
  if (!equal) return equal;
  ASSIGN_OR_RETURN(const Var numbers, RangeOn(items.device(), n));
  const Var columns = Cast(numbers, DType::kFloat32);
  const Var diagonal = Equal(Reshape(Slice(columns, 0, 0, batch), {batch, 1}), columns);
  return std::optional<Var>(Greater(*equal, Cast(diagonal, equal->dtype())));
}

absl::StatusOr<Var> TryInBatchSoftmax(const Var& users, const Var& items,
                                      const InBatchSoftmaxOptions& options) {
  std::vector<Var> operands = {users, items};
  if (options.log_q) operands.push_back(*options.log_q);
  RETURN_IF_ERROR(internal::Prepare(kInBatch, operands).status());
  const Tensor &u = internal::ValueOf(users), &v = internal::ValueOf(items);
  RETURN_IF_ERROR(CheckTowers(u, v, options.temperature));
  const int64_t batch = u.shape().dim(0);
  Var logits = MatMul(options.temperature == 1 ? users : users * (1.0 / options.temperature), items,
                      Transpose::kNo, Transpose::kYes);
  if (options.log_q) {
    RETURN_IF_ERROR(CheckLogQ(internal::ValueOf(*options.log_q), v));
    logits = logits - Cast(StopGradient(*options.log_q), u.dtype());
  }
  if (options.item_ids) {
    ASSIGN_OR_RETURN(const std::optional<Var> hits, HitsInBatch(*options.item_ids, batch, v));
    if (hits) logits = WithoutHits(logits, *hits);
  }
  ASSIGN_OR_RETURN(const Var diagonal, RangeOn(v.device(), batch));
  return SoftmaxCrossEntropy(logits, diagonal);
}

// ---- drawn candidates ---------------------------------------------------------------------------

constexpr absl::string_view kCandidates = "LogUniformCandidates";

// A double in [0, 1) with 53 bits, number `draw` of the stream.
double UniformAt(uint64_t seed, uint64_t draw) {
  const PhiloxWords words = Philox(seed, draw / 2, /*counter_high=*/0);
  const uint32_t* const pair = words.word + 2 * (draw % 2);
  const uint64_t bits = (uint64_t{pair[0]} << 32 | pair[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

// The law of log_uniform_candidate_sampler.
class LogUniform {
 public:
  explicit LogUniform(int64_t classes)
      : classes_(classes), log_range_(std::log1p(static_cast<double>(classes))) {}
  int64_t At(double uniform) const {
    // The remainder is for a product that rounds up to the whole range.
    return (static_cast<int64_t>(std::exp(uniform * log_range_)) - 1) % classes_;
  }
  // How often `id` is expected among `sampled` different classes that took `tries` draws.
  double LogCount(int64_t id, int64_t sampled, int64_t tries) const {
    const auto number = static_cast<double>(id);
    const double p = std::log1p(1 / (number + 1)) / log_range_;
    if (tries == sampled) return std::log(p * static_cast<double>(sampled));
    return std::log(-std::expm1(static_cast<double>(tries) * std::log1p(-p)));
  }

 private:
  int64_t classes_;
  double log_range_;
};

absl::Status CheckClasses(absl::Span<const int64_t> labels, int64_t num_sampled,
                          int64_t num_classes) {
  if (num_classes < 1)
    return InvalidOperands(kCandidates, "num_classes is ", num_classes, "; give at least 1");
  if (num_sampled < 1 || num_sampled > num_classes)
    return InvalidOperands(kCandidates, "num_sampled is ", num_sampled,
                           "; the drawn classes are different, so draw 1 to num_classes, ",
                           num_classes);
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0 || labels[i] >= num_classes)
      return InvalidOperands(kCandidates, "label ", labels[i], " of example ", i,
                             " is outside [0, ", num_classes,
                             "); number the classes from 0 to num_classes - 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<CandidateSample> TryLogUniform(const Nest& labels, int64_t num_sampled,
                                              int64_t num_classes, uint64_t seed) {
  ASSIGN_OR_RETURN(const Tensor label_ids, IdsOf(kCandidates, "labels", labels));
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> of_examples, label_ids.values<int64_t>());
  RETURN_IF_ERROR(CheckClasses(of_examples, num_sampled, num_classes));
  const LogUniform law(num_classes);
  absl::flat_hash_set<int64_t> drawn;
  std::vector<int64_t> ids;
  int64_t tries = 0;
  while (static_cast<int64_t>(ids.size()) < num_sampled) {
    const int64_t id = law.At(UniformAt(seed, static_cast<uint64_t>(tries++)));
    if (drawn.insert(id).second) ids.push_back(id);
  }
  const auto log_counts = [&](absl::Span<const int64_t> of) {
    std::vector<double> counts;
    counts.reserve(of.size());
    for (const int64_t id : of) counts.push_back(law.LogCount(id, num_sampled, tries));
    return Nest(Tensor::Vector<double>(counts));
  };
  return CandidateSample{Nest(Tensor::Vector<int64_t>(ids)), log_counts(ids),
                         log_counts(of_examples)};
}

// ---- sampled softmax ----------------------------------------------------------------------------

constexpr absl::string_view kSampled = "SampledSoftmax";

absl::Status CheckSampled(const Tensor& inputs, const Tensor& label_weights,
                          const Tensor& sampled_weights, int64_t labels, int64_t sampled) {
  RETURN_IF_ERROR(internal::CheckComputedWith(kSampled, inputs));
  const Shape& x = inputs.shape();
  const bool fits = x.rank() == 2 && label_weights.shape() == x && labels == x.dim(0) &&
                    sampled_weights.shape() == Shape{sampled, x.dim(1)} &&
                    label_weights.dtype() == inputs.dtype() &&
                    sampled_weights.dtype() == inputs.dtype();
  if (fits) return absl::OkStatus();
  return InvalidOperands(kSampled, "inputs ", inputs.ToString(), ", ", labels,
                         " labels with weights ", label_weights.ToString(), ", and ", sampled,
                         " drawn classes with weights ", sampled_weights.ToString(),
                         "; give inputs and the weights of labels as [batch, width], and the "
                         "weights of drawn classes as [sampled, width], of one dtype");
}

// biases - log_counts, as [n]. Without biases -log_counts.
absl::StatusOr<Var> Corrections(absl::string_view what, const std::optional<Var>& biases,
                                const Nest& log_counts, const Tensor& inputs, int64_t n) {
  ASSIGN_OR_RETURN(const Tensor counts, log_counts.tensor());
  if (counts.shape() != Shape{n} || !IsFloating(counts.dtype()))
    return InvalidOperands(kSampled, "log counts ", counts.ToString(), " of ", n, " ", what,
                           "; draw the sample for these labels");
  ASSIGN_OR_RETURN(const Var there, OnDevice(counts, inputs.device()));
  const Var correction = -Cast(there, inputs.dtype());
  if (!biases) return correction;
  const Shape& shape = biases->shape();
  if (shape != Shape{n} && shape != Shape{n, 1})
    return InvalidOperands(kSampled, "the biases of ", n, " ", what, " are ", shape.ToString(),
                           "; give [", n, "] or [", n, ", 1]");
  return Reshape(*biases, {n}) + correction;
}

absl::StatusOr<Tensor> Joined(const Tensor& a, const Tensor& b) {
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> first, a.values<int64_t>());
  ASSIGN_OR_RETURN(const absl::Span<const int64_t> second, b.values<int64_t>());
  std::vector<int64_t> both(first.begin(), first.end());
  both.insert(both.end(), second.begin(), second.end());
  return Tensor::Vector<int64_t>(both);
}

absl::StatusOr<Var> TrySampledSoftmax(const Var& inputs, const Nest& labels,
                                      const Var& label_weights, const Var& sampled_weights,
                                      const CandidateSample& sample,
                                      const SampledSoftmaxOptions& options) {
  if (options.label_biases.has_value() != options.sampled_biases.has_value())
    return InvalidOperands(kSampled,
                           "biases of labels or of drawn classes alone; give both or none");
  std::vector<Var> operands = {inputs, label_weights, sampled_weights};
  if (options.label_biases) {
    operands.push_back(*options.label_biases);
    operands.push_back(*options.sampled_biases);
  }
  RETURN_IF_ERROR(internal::Prepare(kSampled, operands).status());
  const Tensor& x = internal::ValueOf(inputs);
  ASSIGN_OR_RETURN(const Tensor label_ids, IdsOf(kSampled, "labels", labels));
  ASSIGN_OR_RETURN(const Tensor drawn_ids, IdsOf(kSampled, "drawn classes", sample.ids));
  const int64_t batch = label_ids.shape().dim(0), sampled = drawn_ids.shape().dim(0);
  RETURN_IF_ERROR(CheckSampled(x, internal::ValueOf(label_weights),
                               internal::ValueOf(sampled_weights), batch, sampled));
  ASSIGN_OR_RETURN(const Var of_labels,
                   Corrections("labels", options.label_biases, sample.label_log_counts, x, batch));
  ASSIGN_OR_RETURN(const Var of_drawn, Corrections("drawn classes", options.sampled_biases,
                                                   sample.log_counts, x, sampled));
  const Var right = ReduceSum(inputs * label_weights, 1) + of_labels;
  Var others = MatMul(inputs, sampled_weights, Transpose::kNo, Transpose::kYes) + of_drawn;
  if (options.remove_accidental_hits) {
    ASSIGN_OR_RETURN(const Tensor all, Joined(label_ids, drawn_ids));
    ASSIGN_OR_RETURN(const std::optional<Var> hits, EqualIds(all, batch, batch, x.device()));
    if (hits) others = WithoutHits(others, *hits);
  }
  const Var logits = Concat({Reshape(right, {batch, 1}), others}, 1);
  ASSIGN_OR_RETURN(const Tensor zeros, Tensor::Zeros(DType::kInt64, {batch}));
  ASSIGN_OR_RETURN(const Var first, OnDevice(zeros, x.device()));
  return SoftmaxCrossEntropy(logits, first);
}

}  // namespace

Var InBatchSoftmax(const Var& users, const Var& items, const InBatchSoftmaxOptions& options) {
  return internal::OrFailed(TryInBatchSoftmax(users, items, options));
}

CandidateSample LogUniformCandidates(const Nest& labels, int64_t num_sampled, int64_t num_classes,
                                     uint64_t seed) {
  absl::StatusOr<CandidateSample> sample = TryLogUniform(labels, num_sampled, num_classes, seed);
  if (sample.ok()) return *std::move(sample);
  const Nest failed = Nest::Failed(sample.status());
  return {failed, failed, failed};
}

Var SampledSoftmax(const Var& inputs, const Nest& labels, const Var& label_weights,
                   const Var& sampled_weights, const CandidateSample& sample,
                   const SampledSoftmaxOptions& options) {
  return internal::OrFailed(
      TrySampledSoftmax(inputs, labels, label_weights, sampled_weights, sample, options));
}

}  // namespace divvy
