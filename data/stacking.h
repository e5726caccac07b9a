// Splits structured values into rows, and joins rows into structured values. Pure.
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

// Whether `nest` is SparseIds in their encoded form: a dict of tensors "ids", "row_splits" and
// optionally "weights", and nothing else.
bool IsSparseIds(const Nest& nest);

// SparseIds of one row that has all of `ids`, int64 [n]; without weights.
SparseIds OneRow(Tensor ids);

// The number of rows, which must be the same for every leaf of `rows`. SparseIds count as one leaf;
// each of their lists is a row. InvalidArgument: leaves with different numbers, a leaf without rows
// (a scalar or a text), invalid SparseIds, or no leaf at all.
absl::StatusOr<int64_t> NumRows(const Nest& rows);

// Row `row` of every leaf. Tensors lose axis 0 and share the buffer; SparseIds become SparseIds of
// one row. REQUIRES: NumRows(rows) is OK and greater than `row`.
absl::StatusOr<Nest> RowOf(const Nest& rows, int64_t row);

// Rows [begin, end) of every leaf; they share its buffer. REQUIRES: NumRows(rows) is OK, and 0 <=
// begin <= end <= NumRows(rows).
absl::StatusOr<Nest> RowsOf(const Nest& rows, int64_t begin, int64_t end);

// The inverse of RowOf: one value whose row i is elements[i]. Copies. REQUIRES: at least one
// element. InvalidArgument, with the path: elements that differ in structure, dtype or shape;
// leaves that cannot be stacked (texts, IndexedSlices, tensors on a GPU); SparseIds that do not
// have exactly one row; or weights in some of the SparseIds only.
absl::StatusOr<Nest> StackRows(absl::Span<const Nest> elements);

// The inverse of RowsOf: concatenates the rows of all batches. Copies. Errors: as StackRows, but
// the numbers of rows may differ.
absl::StatusOr<Nest> JoinBatches(absl::Span<const Nest> batches);

// The dtype and shape of each leaf of an element, by path. The number of ids of SparseIds varies,
// so their ids and weights have the shape [-1].
absl::StatusOr<std::map<std::string, TensorSpec>> SpecOf(const Nest& element);

// The specs of a batch of `rows` elements (-1: varies). `element` has the specs of one element.
std::map<std::string, TensorSpec> BatchSpec(const std::map<std::string, TensorSpec>& element,
                                            int64_t rows);

}  // namespace divvy

#endif  // DIVVY_DATA_STACKING_H_
