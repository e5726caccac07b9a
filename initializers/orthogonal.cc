#include "initializers/orthogonal.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "initializers/normal.h"

namespace divvy {
namespace {

double* Vector(std::vector<double>& vectors, int64_t index, int64_t length) {
  return vectors.data() + index * length;
}

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

std::vector<double> NormalVectors(uint64_t key, int64_t count, int64_t length) {
  std::vector<double> vectors(count * length);
  for (int64_t v = 0; v < count; ++v) {
    for (int64_t i = 0; i < length; ++i) {
      vectors[v * length + i] =
          NormalQuantile((Philox4x32(key, v, i / 4)[i % 4] + 0.5) * 0x1.0p-32);
    }
  }
  return vectors;
}

// Subtracts from vector `v` its projections on the vectors before it. It does so twice, because one
// pass leaves rounding errors that grow with the number of vectors.
void Orthogonalise(std::vector<double>& vectors, int64_t v, int64_t length) {
  double* vector = Vector(vectors, v, length);
  for (int pass = 0; pass < 2; ++pass) {
    for (int64_t before = 0; before < v; ++before) {
      const double* other = Vector(vectors, before, length);
      const double along = Dot(vector, other, length);
      for (int64_t i = 0; i < length; ++i) vector[i] -= along * other[i];
    }
  }
}

}  // namespace

// Modified Gram-Schmidt on independent normal vectors: the Q of a QR decomposition whose R has a
// positive diagonal, which makes Q uniform (Haar).
std::vector<double> OrthogonalMatrix(uint64_t key, int64_t rows, int64_t columns, double gain) {
  const int64_t count = std::min(rows, columns), length = std::max(rows, columns);
  std::vector<double> vectors = NormalVectors(key, count, length);
  for (int64_t v = 0; v < count; ++v) {
    Orthogonalise(vectors, v, length);
    double* vector = Vector(vectors, v, length);
    const double norm = std::sqrt(Dot(vector, vector, length));
    std::transform(vector, vector + length, vector, [norm](double x) { return x / norm; });
  }
  std::vector<double> matrix(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      matrix[row * columns + column] =
          gain * (rows < columns ? vectors[row * length + column] : vectors[column * length + row]);
    }
  }
  return matrix;
}

}  // namespace divvy
