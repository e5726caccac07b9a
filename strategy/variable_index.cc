#include "strategy/variable_index.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy::internal {
namespace {

// The number of the tensor's axes that the items use.
int AxesNamed(absl::Span<const IndexItem> index) {
  return static_cast<int>(std::count_if(index.begin(), index.end(), [](const IndexItem& item) {
    return std::holds_alternative<int64_t>(item) || std::holds_alternative<IndexSlice>(item);
  }));
}

absl::Status CheckIndex(absl::Span<const IndexItem> index, const Shape& shape) {
  const auto is_ellipsis = [](const IndexItem& item) {
    return std::holds_alternative<Ellipsis>(item);
  };
  if (std::count_if(index.begin(), index.end(), is_ellipsis) > 1)
    return absl::InvalidArgumentError("an index may have only one ellipsis");
  if (AxesNamed(index) <= shape.rank()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the index names ", AxesNamed(index),
                                                 " axes of a tensor of shape ", shape.ToString()));
}

// Adds the selection of each item, axis by axis.
class Planner {
 public:
  Planner(const Shape& shape, int axes_unnamed) : shape_(shape), axes_unnamed_(axes_unnamed) {}

  absl::Status Add(int64_t at) {
    const int64_t size = shape_.dim(axis());
    if (at < -size || at >= size) {
      return absl::OutOfRangeError(absl::StrCat("index ", at, " is outside axis ", axis(),
                                                " of a tensor of shape ", shape_.ToString()));
    }
    positions_.push_back({at < 0 ? at + size : at});
    return absl::OkStatus();
  }
  absl::Status Add(const IndexSlice& slice) {
    if (slice.step == 0)
      return absl::InvalidArgumentError(
          absl::StrCat("the step along axis ", axis(), " must not be 0"));
    positions_.push_back(SliceRows(slice.start, slice.stop, slice.step, shape_.dim(axis())));
    dims_.push_back(static_cast<int64_t>(positions_.back().size()));
    return absl::OkStatus();
  }
  absl::Status Add(NewAxis) {
    dims_.push_back(1);
    return absl::OkStatus();
  }
  absl::Status Add(Ellipsis) {
    for (; axes_unnamed_ > 0; --axes_unnamed_) RETURN_IF_ERROR(Add(IndexSlice{}));
    return absl::OkStatus();
  }
  IndexPlan Plan() && { return {std::move(positions_), Shape(dims_)}; }

 private:
  int axis() const { return static_cast<int>(positions_.size()); }

  const Shape& shape_;
  // Axes that neither an item nor an ellipsis has used yet.
  int axes_unnamed_;
  std::vector<std::vector<int64_t>> positions_;
  std::vector<int64_t> dims_;
};

// The offsets within a row of the elements that the plan selects.
std::vector<int64_t> OffsetsInRow(const IndexPlan& plan, const Shape& rows) {
  std::vector<int64_t> offsets = {0};
  for (int axis = 1; axis < rows.rank(); ++axis) {
    std::vector<int64_t> finer;
    for (int64_t offset : offsets) {
      for (int64_t position : plan.positions[axis])
        finer.push_back(offset * rows.dim(axis) + position);
    }
    offsets = std::move(finer);
  }
  return offsets;
}

}  // namespace

// Python's slice.indices, then range.
std::vector<int64_t> SliceRows(std::optional<int64_t> start, std::optional<int64_t> stop,
                               int64_t step, int64_t size) {
  const int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t at) {
    // A position before the sequence becomes -1, which the clamp raises to 0 if step > 0.
    if (at < 0) at = at < -size ? -1 : at + size;
    return std::clamp(at, lowest, highest);
  };
  const int64_t first = start ? clamp(*start) : (step > 0 ? lowest : highest);
  const int64_t end = stop ? clamp(*stop) : (step > 0 ? highest : lowest);
  // Limit the step: a longer one would also select the first row only, but could overflow.
  step = std::clamp(step, -size - 1, size + 1);
  std::vector<int64_t> rows;
  for (int64_t row = first; step > 0 ? row < end : row > end; row += step) rows.push_back(row);
  return rows;
}

absl::StatusOr<IndexPlan> PlanIndex(absl::Span<const IndexItem> index, const Shape& shape) {
  RETURN_IF_ERROR(CheckIndex(index, shape));
  Planner planner(shape, shape.rank() - AxesNamed(index));
  for (const IndexItem& item : index) {
    RETURN_IF_ERROR(std::visit([&](const auto& taken) { return planner.Add(taken); }, item));
  }
  RETURN_IF_ERROR(planner.Add(Ellipsis{}));
  return std::move(planner).Plan();
}

absl::StatusOr<Tensor> TakePlanned(const IndexPlan& plan, const Tensor& rows) {
  const std::vector<int64_t> offsets = OffsetsInRow(plan, rows.shape());
  const int64_t width = rows.shape().row_elements();
  const int64_t num_rows = rows.shape().rows();
  const bool whole = static_cast<int64_t>(offsets.size()) == width &&
                     std::is_sorted(offsets.begin(), offsets.end());
  if (whole) return rows.Reshape(plan.shape);
  const int64_t element_bytes = DTypeSize(rows.dtype());
  ASSIGN_OR_RETURN(Tensor taken, Tensor::Uninitialized(rows.dtype(), plan.shape));
  char* to = taken.fresh_data<char>();
  for (int64_t row = 0; row < num_rows; ++row) {
    const char* from = static_cast<const char*>(rows.data()) + row * width * element_bytes;
    for (int64_t offset : offsets) {
      std::memcpy(to, from + offset * element_bytes, element_bytes);
      to += element_bytes;
    }
  }
  return taken;
}

}  // namespace divvy::internal
