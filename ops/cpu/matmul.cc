#include <cblas.h>

#include <algorithm>

#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {
namespace {

CBLAS_TRANSPOSE Flag(bool transposed) { return transposed ? CblasTrans : CblasNoTrans; }

void Gemm(const MatMulArgs& g, const float* a, const float* b, float* c) {
  cblas_sgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a, g.a_transposed ? g.m : g.k, b, g.b_transposed ? g.k : g.n, 0, c,
              g.n);
}

void Gemm(const MatMulArgs& g, const double* a, const double* b, double* c) {
  cblas_dgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a, g.a_transposed ? g.m : g.k, b, g.b_transposed ? g.k : g.n, 0, c,
              g.n);
}

}  // namespace

void CpuBackend::MatMul(const MatMulArgs& g, const Tensor& a, const Tensor& b, Tensor& c) const {
  OnFloating(c.dtype(), [&](auto t) {
    using T = decltype(t);
    T* to = c.fresh_data<T>();
    if (g.m == 0 || g.n == 0) return;
    if (g.k == 0) {  // an empty sum; OpenBLAS refuses leading dimensions of 0
      std::fill_n(to, c.shape().num_elements(), T(0));
      return;
    }
    for (int64_t i = 0; i < g.batch; ++i) Gemm(g, a.data_as<T>() + i * g.m * g.k, b.data_as<T>() + i * g.k * g.n, to + i * g.m * g.n);
  });
}

}  // namespace divvy::internal
