// Rows of structured values, and structured values made of rows. Pure.
#ifndef DIVVY_DATA_STACKING_H_
#define DIVVY_DATA_STACKING_H_

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/tensor_spec.h"
#include "tensor/nest.h"

namespace divvy {

// Whether `nest` is SparseIds as they travel: a dict of tensors "ids", "row_splits" and perhaps
// "weights", nothing else.
bool IsSparseIds(const Nest& nest);

// How many rows every leaf of `rows` has. SparseIds count as a leaf, whose rows are its lists.
// InvalidArgument: leaves that differ, a leaf without rows (a scalar, a text), SparseIds that are
// none, or no leaf at all.
absl::StatusOr<int64_t> NumRows(const Nest& rows);

// Row `row` of every leaf: tensors lose axis 0 and share their buffer, SparseIds become SparseIds
// of one row. REQUIRES: NumRows(rows) is OK and more than `row`.
absl::StatusOr<Nest> RowOf(const Nest& rows, int64_t row);

// Rows [begin, end) of every leaf, which share its buffer. REQUIRES: NumRows(rows) is OK, and 0 <=
// begin <= end <= that.
absl::StatusOr<Nest> RowsOf(const Nest& rows, int64_t begin, int64_t end);

// The inverse of RowOf: one value whose row i is elements[i]. Copies. REQUIRES: at least one
// element. InvalidArgument, with the path: elements that differ in structure, dtype or shape,
// leaves that cannot be stacked (texts, indexed slices, tensors on a GPU), SparseIds of other than
// one row, or of which only some have weights.
absl::StatusOr<Nest> StackRows(absl::Span<const Nest> elements);

// The inverse of RowsOf: the rows of all batches, one behind another. Copies. Errors as of
// StackRows, but for the number of rows, which may differ.
absl::StatusOr<Nest> JoinBatches(absl::Span<const Nest> batches);

// Types and shapes of the leaves of one element, by path. SparseIds vary: their ids and weights
// have the shape [-1].
absl::StatusOr<std::map<std::string, TensorSpec>> SpecOf(const Nest& element);

// The specs of batches of `rows` (-1: varies) elements with the specs `element`.
std::map<std::string, TensorSpec> BatchSpec(const std::map<std::string, TensorSpec>& element,
                                            int64_t rows);

}  // namespace divvy

#endif  // DIVVY_DATA_STACKING_H_
