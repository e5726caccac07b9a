#include "ops/lookup.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/tensors.h"

namespace divvy::internal {
namespace {

absl::Status CheckOptions(absl::string_view operation, const LookupOptions& options) {
  if (options.max_norm && !(*options.max_norm > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": max_norm is ", *options.max_norm, "; it must be above 0"));
  }
  if (options.default_id && (!options.safe || *options.default_id < 0)) {
    return absl::InvalidArgumentError(absl::StrCat(operation, ": default_id ", *options.default_id,
                                                   " needs safe = true and must not be negative"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Clipped(const Tensor& rows, std::optional<float> max_norm) {
  if (!max_norm) return rows;
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(rows.device()));
  ASSIGN_OR_RETURN(Tensor clipped,
                   Tensor::Uninitialized(rows.dtype(), rows.shape(), rows.device()));
  backend->ClipRows(rows, *max_norm, clipped);
  return clipped;
}

absl::StatusOr<Tensor> ClippedGradient(const Tensor& rows, std::optional<float> max_norm,
                                       Tensor gradient) {
  if (!max_norm) return gradient;
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(rows.device()));
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(rows.dtype(), rows.shape(), rows.device()));
  backend->ClipRowsGradient(rows, *max_norm, gradient, result);
  return result;
}

// The ids and weights that count, list by list.
struct Entries {
  std::vector<int64_t> ids;
  std::vector<int64_t> row_splits = {0};
  std::vector<double> weights;
  std::vector<double> divisors;
};

// Appends the entries of one list.
void AddList(const SparseIds& sparse, int64_t begin, int64_t end, Combiner combiner,
             const LookupOptions& options, Entries& entries) {
  double sum = 0, sum_of_squares = 0;
  const auto add = [&](int64_t id, double weight) {
    entries.ids.push_back(id);
    entries.weights.push_back(weight);
    sum += weight;
    sum_of_squares += weight * weight;
  };
  const int64_t* ids = sparse.ids.data_as<int64_t>();
  const float* weights = sparse.weights ? sparse.weights->data_as<float>() : nullptr;
  const size_t before = entries.ids.size();
  for (int64_t j = begin; j < end; ++j) {
    const double weight = weights == nullptr ? 1 : weights[j];
    const bool dropped =
        options.safe && (ids[j] < 0 || (combiner != Combiner::kSum && !(weight > 0)));
    if (!dropped) add(ids[j], weight);
  }
  if (entries.ids.size() == before && options.default_id) add(*options.default_id, 1);
  entries.row_splits.push_back(static_cast<int64_t>(entries.ids.size()));
  entries.divisors.push_back(combiner == Combiner::kMean ? sum : std::sqrt(sum_of_squares));
}

Entries EntriesOf(const SparseIds& sparse, Combiner combiner, const LookupOptions& options) {
  Entries entries;
  entries.ids.reserve(sparse.ids.shape().num_elements());
  entries.weights.reserve(sparse.ids.shape().num_elements());
  const int64_t* splits = sparse.row_splits.data_as<int64_t>();
  const int64_t batch = sparse.row_splits.shape().num_elements() - 1;
  for (int64_t i = 0; i < batch; ++i)
    AddList(sparse, splits[i], splits[i + 1], combiner, options, entries);
  return entries;
}

// The weights and divisors are doubles until the table's dtype is known.
RowLists ListsOf(const Entries& entries, bool weighted, Combiner combiner) {
  RowLists lists;
  lists.row_splits = Tensor::Vector<int64_t>(entries.row_splits);
  if (weighted) lists.weights = Tensor::Vector<double>(entries.weights);
  if (combiner != Combiner::kSum) lists.divisors = Tensor::Vector<double>(entries.divisors);
  return lists;
}

// Converts the weights and divisors to the rows' dtype, on the rows' device.
absl::StatusOr<RowLists> ListsLike(const RowLists& lists, const Backend& backend,
                                   const Tensor& rows) {
  RowLists like;
  ASSIGN_OR_RETURN(like.row_splits, lists.row_splits.To(rows.device()));
  for (const auto part : {&RowLists::weights, &RowLists::divisors}) {
    if (!(lists.*part)) continue;
    ASSIGN_OR_RETURN(const Tensor moved, (lists.*part)->To(rows.device()));
    ASSIGN_OR_RETURN(like.*part, CastTo(backend, moved, rows.dtype()));
  }
  return like;
}

absl::StatusOr<Tensor> CombinedRows(const RowLists& lists, const Tensor& rows) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(rows.device()));
  ASSIGN_OR_RETURN(const RowLists typed, ListsLike(lists, *backend, rows));
  const int64_t batch = lists.row_splits.shape().num_elements() - 1;
  ASSIGN_OR_RETURN(Tensor combined, Tensor::Uninitialized(
                                        rows.dtype(), rows.shape().WithRows(batch), rows.device()));
  backend->CombineRows(typed, rows, combined);
  return combined;
}

absl::StatusOr<Tensor> SpreadGradient(const RowLists& lists, const Tensor& rows,
                                      const Tensor& gradient) {
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(rows.device()));
  ASSIGN_OR_RETURN(const RowLists typed, ListsLike(lists, *backend, rows));
  ASSIGN_OR_RETURN(Tensor spread, Tensor::Uninitialized(rows.dtype(), rows.shape(), rows.device()));
  backend->SpreadRows(typed, gradient, spread);
  return spread;
}

}  // namespace

absl::StatusOr<LookupPlan> PlanLookup(const Tensor& ids, const LookupOptions& options) {
  RETURN_IF_ERROR(CheckOptions("Lookup", options));
  if (options.safe)
    return absl::InvalidArgumentError(
        "Lookup: safe belongs to LookupSparse; every id given here must have a row");
  LookupPlan plan;
  ASSIGN_OR_RETURN(const Tensor here, ids.To(Device{}));  // reading the rows sends the ids
  ASSIGN_OR_RETURN(const Backend* backend, BackendFor(Device{}));
  ASSIGN_OR_RETURN(plan.ids, FlatIds("Lookup", *backend, here));
  const std::optional<float> max_norm = options.max_norm;
  plan.from_rows = [shape = ids.shape(), max_norm](const Tensor& rows) -> absl::StatusOr<Tensor> {
    if (max_norm) RETURN_IF_ERROR(CheckComputedWith("Lookup", rows));
    ASSIGN_OR_RETURN(const Tensor clipped, Clipped(rows, max_norm));
    return clipped.Reshape(rows.shape().WithRowsOf(shape.dims()));
  };
  plan.to_rows = [max_norm](const Tensor& rows, const Tensor& gradient) -> absl::StatusOr<Tensor> {
    ASSIGN_OR_RETURN(Tensor flat, gradient.Reshape(rows.shape()));
    return ClippedGradient(rows, max_norm, std::move(flat));
  };
  return plan;
}

absl::StatusOr<LookupPlan> PlanLookupSparse(const Nest& sparse_ids, Combiner combiner,
                                            const LookupOptions& options) {
  RETURN_IF_ERROR(CheckOptions("LookupSparse", options));
  ASSIGN_OR_RETURN(const SparseIds sparse, sparse_ids.sparse_ids());
  RETURN_IF_ERROR(Validate(sparse));
  const Entries entries = EntriesOf(sparse, combiner, options);
  const RowLists lists = ListsOf(entries, sparse.weights.has_value(), combiner);
  LookupPlan plan;
  plan.ids = Tensor::Vector<int64_t>(entries.ids);
  const std::optional<float> max_norm = options.max_norm;
  plan.from_rows = [lists, max_norm](const Tensor& rows) -> absl::StatusOr<Tensor> {
    RETURN_IF_ERROR(CheckComputedWith("LookupSparse", rows));
    ASSIGN_OR_RETURN(const Tensor clipped, Clipped(rows, max_norm));
    return CombinedRows(lists, clipped);
  };
  plan.to_rows = [lists, max_norm](const Tensor& rows,
                                   const Tensor& gradient) -> absl::StatusOr<Tensor> {
    ASSIGN_OR_RETURN(Tensor spread, SpreadGradient(lists, rows, gradient));
    return ClippedGradient(rows, max_norm, std::move(spread));
  };
  return plan;
}

}  // namespace divvy::internal
