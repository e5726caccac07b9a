// A random matrix with orthogonal rows or columns.
#ifndef DIVVY_INITIALIZERS_ORTHOGONAL_H_
#define DIVVY_INITIALIZERS_ORTHOGONAL_H_

#include <cstdint>
#include <vector>

namespace divvy {

// A random matrix, row-major, with rows * columns elements. Its rows are orthogonal and have norm
// `gain`; if there are more rows than columns, its columns are. It is distributed uniformly among
// all such matrices. Pure: a function of `key` (the normal matrix that it starts from is Philox
// with counter (row, column / 4)). Takes time in the order of max * min^2 of the two extents.
std::vector<double> OrthogonalMatrix(uint64_t key, int64_t rows, int64_t columns, double gain);

}  // namespace divvy

#endif  // DIVVY_INITIALIZERS_ORTHOGONAL_H_
