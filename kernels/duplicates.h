// Rows of sparse gradients with equal ids. CPU memory only. Every function is thread-safe and never
// blocks.
#ifndef DIVVY_KERNELS_DUPLICATES_H_
#define DIVVY_KERNELS_DUPLICATES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace divvy {

// The rows of each id.
struct RowGroups {
  std::vector<int64_t> ids;     // unique and rising
  std::vector<int64_t> rows;    // places of the rows: by id; in the order given within one id
  std::vector<int64_t> splits;  // [ids + 1]: rows[splits[i]] to rows[splits[i + 1]] are of ids[i]
};

// Groups the places 0 .. ids.size() - 1 by id.
RowGroups GroupById(absl::Span<const int64_t> ids);

// Sum i, of `width` elements at sums + i * width, becomes the sum of the rows of groups.ids[i];
// row r of `in` lies at in + r * width. Rows are added in the order given, so the sums are the same
// in every run. Each row is read once and nothing is allocated.
// REQUIRES: `sums` holds groups.ids.size() * width elements and does not overlap `in`.
void SumGroups(const RowGroups& groups, const float* in, int64_t width, float* sums);

}  // namespace divvy

#endif  // DIVVY_KERNELS_DUPLICATES_H_
