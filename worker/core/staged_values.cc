#include "worker/core/staged_values.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

bool AssignsWhole(const StagedWrite& write) { return write.op == WriteOp::kAssign && !write.ids; }

// One (row of the value read, row of the write's value) for each row that the write touches, in the write's order.
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
    std::multimap<int64_t, int64_t> results_of;   // id -> rows of the result
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

// The arithmetic of a parameter server (ps_server/core/element_ops.h): integers wrap, x / 0 is 0 for them, small floats are computed in float.
template <typename T>
T Divide(T old, T value) {
  if constexpr (std::is_integral_v<T>) {
    if (value == 0) return 0;
    if (std::is_signed_v<T> && value == static_cast<T>(-1)) return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(old));   // the least number has no twin
  }
  return old / value;
}

template <typename T>
T Combine(WriteOp op, T old, T value) {
  using Computed = std::conditional_t<std::is_integral_v<T>, uint64_t, T>;   // overflow of unsigned numbers is defined, and has the same low bits
  const Computed x = static_cast<Computed>(old), y = static_cast<Computed>(value);
  switch (op) {
    case WriteOp::kAdd:
    case WriteOp::kScatterAdd: return static_cast<T>(x + y);
    case WriteOp::kSub:
    case WriteOp::kScatterSub: return static_cast<T>(x - y);
    case WriteOp::kScatterMul: return static_cast<T>(x * y);
    case WriteOp::kScatterDiv: return Divide(old, value);
    case WriteOp::kScatterMin: return std::min(old, value);
    case WriteOp::kScatterMax: return std::max(old, value);
    default: return value;
  }
}

template <typename T>
T CombineStored(WriteOp op, T old, T value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T::FromFloat(Combine(op, old.ToFloat(), value.ToFloat()));
  } else {
    return Combine(op, old, value);
  }
}

template <typename T>
void ApplyRows(WriteOp op, const RowPairs& pairs, const Tensor& value, int64_t row_elements, Tensor& result) {
  T* const out = result.fresh_data<T>();
  const T* const in = value.data_as<T>();
  for (const auto& [to, from] : pairs) {
    for (int64_t i = 0; i < row_elements; ++i) out[to * row_elements + i] = CombineStored<T>(op, out[to * row_elements + i], in[from * row_elements + i]);
  }
}

void CopyRows(const RowPairs& pairs, const Tensor& value, int64_t row_bytes, Tensor& result) {
  for (const auto& [to, from] : pairs) {
    if (row_bytes > 0) std::memcpy(result.fresh_data<char>() + to * row_bytes, value.data_as<char>() + from * row_bytes, row_bytes);
  }
}

bool Replaces(WriteOp op) { return op == WriteOp::kAssign || op == WriteOp::kScatterUpdate; }

absl::Status Apply(WriteOp op, const RowPairs& pairs, const Tensor& value, int64_t row_elements, Tensor& result) {
  if (Replaces(op)) {
    CopyRows(pairs, value, row_elements * DTypeSize(result.dtype()), result);
    return absl::OkStatus();
  }
  const absl::Status no_arithmetic =
      absl::InvalidArgumentError(absl::StrCat(WriteOpName(op), " on ", DTypeName(result.dtype()), ": this dtype has no arithmetic; assign instead"));
  return DispatchDType(
      result.dtype(),
      [&](auto element) -> absl::Status {
        using T = decltype(element);
        if constexpr (std::is_same_v<T, bool>) {
          return no_arithmetic;
        } else {
          ApplyRows<T>(op, pairs, value, row_elements, result);
          return absl::OkStatus();
        }
      },
      no_arithmetic);
}

// The shape of the result of `read` of a variable of shape `variable`.
Shape ResultShape(const VariableRead& read, const Shape& variable) {
  if (!read.ids) return variable;
  std::vector<int64_t> dims(read.ids->shape().dims().begin(), read.ids->shape().dims().end());
  for (int axis = 1; axis < variable.rank(); ++axis) dims.push_back(variable.dim(axis));
  return Shape(absl::MakeConstSpan(dims));
}

}  // namespace

bool CoversVariable(absl::Span<const StagedWrite> writes) { return std::any_of(writes.begin(), writes.end(), AssignsWhole); }

absl::StatusOr<Tensor> AfterWrites(const VariableRead& read, Tensor base, absl::Span<const StagedWrite> writes) {
  const auto last_assign = std::find_if(writes.rbegin(), writes.rend(), AssignsWhole);
  if (last_assign != writes.rend()) {
    writes = writes.subspan(writes.rend() - last_assign - 1);
    if (!read.ids && writes.size() == 1) return writes[0].value;
    ASSIGN_OR_RETURN(base, Tensor::Uninitialized(writes[0].value.dtype(), ResultShape(read, writes[0].value.shape())));
  }
  if (writes.empty()) return base;
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(base.dtype(), base.shape()));
  if (base.size_bytes() > 0) std::memcpy(result.fresh_data<char>(), base.data(), base.size_bytes());
  const int64_t rows = read.ids ? read.ids->shape().num_elements() : base.shape().rank() == 0 ? 1 : base.shape().dim(0);
  const int64_t row_elements = rows == 0 ? 0 : base.shape().num_elements() / rows;
  for (const StagedWrite& write : writes) RETURN_IF_ERROR(Apply(write.op, Touched(read, write, rows), write.value, row_elements, result));
  return result;
}

}  // namespace divvy
