// A random matrix with orthogonal rows or columns.
#ifndef DIVVY_INITIALIZERS_ORTHOGONAL_H_
#define DIVVY_INITIALIZERS_ORTHOGONAL_H_

#include <cstdint>
#include <vector>

namespace divvy {

// [rows * columns], row-major: its rows (if rows < columns, else its columns) are orthogonal and of
// norm `gain`, uniform among all such matrices. Pure: a function of `key` (Philox, counter (row,
// column / 4) of the normal matrix it starts from). Time grows with max * min^2 of the two extents.
std::vector<double> OrthogonalMatrix(uint64_t key, int64_t rows, int64_t columns, double gain);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_ORTHOGONAL_H_
