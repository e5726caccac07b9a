#include <cblas.h>

#include <algorithm>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/gemm.h"

namespace divvy::internal {
namespace {

CBLAS_TRANSPOSE Flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

// Handles products without elements, because OpenBLAS refuses leading dimensions of 0. An empty sum
// is 0. Returns whether the product was one.
template <typename T>
bool IsEmptyProduct(const MatMulArgs& g, T* c, bool accumulate) {
  if (g.m == 0 || g.n == 0) return true;
  if (g.k == 0 && !accumulate) std::fill_n(c, g.m * g.n, T(0));
  return g.k == 0;
}

}  // namespace

void Gemm(const MatMulArgs& g, const float* a, const float* b, float* c, bool accumulate) {
  if (IsEmptyProduct(g, c, accumulate)) return;
  cblas_sgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a,
              g.a_transposed ? g.m : g.k, b, g.b_transposed ? g.k : g.n, accumulate ? 1 : 0, c,
              g.n);
}

void Gemm(const MatMulArgs& g, const double* a, const double* b, double* c, bool accumulate) {
  if (IsEmptyProduct(g, c, accumulate)) return;
  cblas_dgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a,
              g.a_transposed ? g.m : g.k, b, g.b_transposed ? g.k : g.n, accumulate ? 1 : 0, c,
              g.n);
}

void CpuBackend::MatMul(const MatMulArgs& g, const Tensor& a, const Tensor& b, Tensor& c) const {
  OnFloating(c.dtype(), [&](auto t) {
    using T = decltype(t);
    for (int64_t i = 0; i < g.batch; ++i)
      Gemm(g, a.data_as<T>() + i * g.m * g.k, b.data_as<T>() + i * g.k * g.n,
           c.fresh_data<T>() + i * g.m * g.n);
  });
}

}  // namespace divvy::internal
