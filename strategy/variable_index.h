// Python's way to name a part of a tensor: v[2:6, ..., -1].
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

// start:stop:step, by Python's rules in full: what is left out is the end that the step comes from
// or goes to, negative numbers count from the end, and bounds outside are clamped. A step of 0 is
// InvalidArgument.
struct IndexSlice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
struct Ellipsis {};  // ..., as many whole axes as are left
struct NewAxis {};   // None, an axis of length 1
// What stands between the brackets, axis by axis: an integer takes its axis away (a negative one
// counts from the end), a slice keeps it. Axes that are not named are taken whole.
using IndexItem = std::variant<int64_t, IndexSlice, Ellipsis, NewAxis>;

namespace internal {

// The rows that Python's [start:stop:step] names in a sequence of `size`. REQUIRES: step != 0.
std::vector<int64_t> SliceRows(std::optional<int64_t> start, std::optional<int64_t> stop,
                               int64_t step, int64_t size);

// What an index takes of a tensor: so many positions of each of its axes, and the shape of the
// result.
struct IndexPlan {
  std::vector<std::vector<int64_t>> positions;
  Shape shape;
};
// OutOfRange: an integer outside its axis. InvalidArgument: a step of 0, more items than axes, or
// two ellipses.
absl::StatusOr<IndexPlan> PlanIndex(absl::Span<const IndexItem> index, const Shape& shape);

// The planned part, given the rows that positions[0] names, in that order (rank 0: the value). On
// the CPU.
absl::StatusOr<Tensor> TakePlanned(const IndexPlan& plan, const Tensor& rows);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_VARIABLE_INDEX_H_
