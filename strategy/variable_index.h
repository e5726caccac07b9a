// Python's notation for a part of a tensor: v[2:6, ..., -1].
#ifndef DIVVY_STRATEGY_VARIABLE_INDEX_H_
#define DIVVY_STRATEGY_VARIABLE_INDEX_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/shape.h"
#include "tensor/tensor.h"

namespace divvy {

// start:stop:step, by all of Python's rules. Without a start the slice begins at the first position
// (the last one if step < 0); without a stop it takes all positions from there. Negative numbers
// count from the end, and bounds outside the axis are clamped. A step of 0 is InvalidArgument.
struct IndexSlice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
// "...": as many whole axes as remain.
struct Ellipsis {};
// None in Python: an axis of length 1.
struct NewAxis {};
// One item between the brackets. An integer selects a position and removes its axis; a negative one
// counts from the end. A slice keeps its axis. Axes without an item are taken whole.
using IndexItem = std::variant<int64_t, IndexSlice, Ellipsis, NewAxis>;

namespace internal {

// The rows that Python's [start:stop:step] selects in a sequence of `size`. REQUIRES: step != 0.
std::vector<int64_t> SliceRows(std::optional<int64_t> start, std::optional<int64_t> stop,
                               int64_t step, int64_t size);

// The selection of an index: the positions on each axis of the tensor, and the shape of the result.
struct IndexPlan {
  std::vector<std::vector<int64_t>> positions;
  Shape shape;
};
// Plans `index` for a tensor of `shape`. OutOfRange: an integer outside its axis. InvalidArgument:
// a step of 0, more items than axes, or two ellipses.
absl::StatusOr<IndexPlan> PlanIndex(absl::Span<const IndexItem> index, const Shape& shape);

// Returns the planned part, on the CPU. `rows` has the rows positions[0], in that order; for rank
// 0, it is the value.
absl::StatusOr<Tensor> TakePlanned(const IndexPlan& plan, const Tensor& rows);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_INDEX_H_
