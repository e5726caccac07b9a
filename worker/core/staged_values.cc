#include "worker/core/staged_values.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elements.h"

namespace divvy {
namespace {

bool AssignsWhole(const StagedWrite& write) { return write.op == WriteOp::kAssign && !write.ids; }

// For each row that the write touches, in the write's order: the row in the value read, and the row
// in the write's value.
using RowPairs = std::vector<std::pair<int64_t, int64_t>>;

RowPairs Touched(const VariableRead& read, const StagedWrite& write, int64_t result_rows) {
  RowPairs pairs;
  if (!read.ids && !write.ids) {
    for (int64_t row = 0; row < result_rows; ++row) pairs.emplace_back(row, row);
  } else if (!read.ids) {
    const auto ids = *write.ids->values<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) pairs.emplace_back(ids[i], i);
  } else if (!write.ids) {
    const auto ids = *read.ids->values<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) pairs.emplace_back(i, ids[i]);
  } else {
    std::multimap<int64_t, int64_t> results_of;  // id -> rows of the result
    const auto asked = *read.ids->values<int64_t>();
    for (size_t i = 0; i < asked.size(); ++i) results_of.emplace(asked[i], i);
    const auto written = *write.ids->values<int64_t>();
    for (size_t i = 0; i < written.size(); ++i) {
      const auto [first, last] = results_of.equal_range(written[i]);
      for (auto result = first; result != last; ++result) pairs.emplace_back(result->second, i);
    }
  }
  return pairs;
}

absl::Status Apply(const StagedWrite& write, const RowPairs& pairs, int64_t row_elements,
                   Tensor& result) {
  if (!TakesElements(write.op, result.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat(WriteOpName(write.op), " on ", DTypeName(result.dtype()),
                     ": this dtype has no arithmetic; assign instead"));
  }
  const int64_t row_bytes = row_elements * DTypeSize(result.dtype());
  for (const auto& [to, from] : pairs) {
    ApplyElements(write.op, result.dtype(), result.fresh_data<char>() + to * row_bytes,
                  write.value.data_as<char>() + from * row_bytes, row_elements);
  }
  return absl::OkStatus();
}

// The shape of the result of `read` of a variable of shape `variable`.
Shape ResultShape(const VariableRead& read, const Shape& variable) {
  return read.ids ? variable.WithRowsOf(read.ids->shape().dims()) : variable;
}

}  // namespace

bool CoversVariable(absl::Span<const StagedWrite> writes) {
  return std::any_of(writes.begin(), writes.end(), AssignsWhole);
}

absl::StatusOr<Tensor> AfterWrites(const VariableRead& read, Tensor base,
                                   absl::Span<const StagedWrite> writes) {
  const auto last_assign = std::find_if(writes.rbegin(), writes.rend(), AssignsWhole);
  if (last_assign != writes.rend()) {
    writes = writes.subspan(writes.rend() - last_assign - 1);
    if (!read.ids && writes.size() == 1) return writes[0].value;
    ASSIGN_OR_RETURN(base, Tensor::Uninitialized(writes[0].value.dtype(),
                                                 ResultShape(read, writes[0].value.shape())));
  }
  if (writes.empty()) return base;
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(base.dtype(), base.shape()));
  if (base.size_bytes() > 0) std::memcpy(result.fresh_data<char>(), base.data(), base.size_bytes());
  const int64_t rows = read.ids ? read.ids->shape().num_elements() : base.shape().rows();
  const int64_t row_elements = rows == 0 ? 0 : base.shape().num_elements() / rows;
  for (const StagedWrite& write : writes)
    RETURN_IF_ERROR(Apply(write, Touched(read, write, rows), row_elements, result));
  return result;
}

}  // namespace divvy
