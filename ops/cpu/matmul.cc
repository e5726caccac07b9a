#include <cblas.h>

#include <algorithm>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/parallel.h"

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

// Below this many multiply-adds (50 us), a product is not worth the wake-up of another thread.
constexpr double kWorthSharing = 2e6;
// A cut is a multiple of so many rows or columns: OpenBLAS' kernels compute blocks of up to this.
constexpr int64_t kBlock = 16;

double MultiplyAdds(const MatMulArgs& g) {
  return static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
}

// OpenBLAS' own helper threads look for work in a loop of sched_yield for a while after each
// product, which takes the processor from others. So it computes on the thread that calls it, and
// large products are cut here.
void UseOneBlasThread() {
  static const bool once = [] {
    openblas_set_num_threads(1);
    return true;
  }();
  static_cast<void>(once);
}

void Multiply(const MatMulArgs& g, const float* a, int64_t lda, const float* b, int64_t ldb,
              bool accumulate, float* c, int64_t ldc) {
  cblas_sgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a, lda,
              b, ldb, accumulate ? 1 : 0, c, ldc);
}
void Multiply(const MatMulArgs& g, const double* a, int64_t lda, const double* b, int64_t ldb,
              bool accumulate, double* c, int64_t ldc) {
  cblas_dgemm(CblasRowMajor, Flag(g.a_transposed), Flag(g.b_transposed), g.m, g.n, g.k, 1, a, lda,
              b, ldb, accumulate ? 1 : 0, c, ldc);
}

template <typename T>
void MultiplyAlone(const MatMulArgs& g, const T* a, const T* b, T* c, bool accumulate) {
  UseOneBlasThread();
  Multiply(g, a, g.a_transposed ? g.m : g.k, b, g.b_transposed ? g.k : g.n, accumulate, c, g.n);
}

// Each thread computes some rows of c, or some columns if there are more of these. The cut depends
// on the number of threads alone, and so do the bits.
template <typename T>
void GemmAs(const MatMulArgs& g, const T* a, const T* b, T* c, bool accumulate) {
  if (IsEmptyProduct(g, c, accumulate)) return;
  if (!IsWorthSharing(g)) return MultiplyAlone(g, a, b, c, accumulate);
  UseOneBlasThread();
  const int64_t lda = g.a_transposed ? g.m : g.k, ldb = g.b_transposed ? g.k : g.n;
  const bool by_rows = g.m >= g.n;
  InParts(by_rows ? g.m : g.n, kBlock, [=, &g](int64_t begin, int64_t end) {
    MatMulArgs part = g;
    if (by_rows) {
      part.m = end - begin;
      Multiply(part, a + begin * (g.a_transposed ? 1 : lda), lda, b, ldb, accumulate,
               c + begin * g.n, g.n);
    } else {
      part.n = end - begin;
      Multiply(part, a, lda, b + begin * (g.b_transposed ? ldb : 1), ldb, accumulate, c + begin,
               g.n);
    }
  });
}

}  // namespace

bool IsWorthSharing(const MatMulArgs& g) { return MultiplyAdds(g) >= kWorthSharing; }

void Gemm(const MatMulArgs& g, const float* a, const float* b, float* c, bool accumulate) {
  GemmAs(g, a, b, c, accumulate);
}

void Gemm(const MatMulArgs& g, const double* a, const double* b, double* c, bool accumulate) {
  GemmAs(g, a, b, c, accumulate);
}

void GemmAlone(const MatMulArgs& g, const float* a, const float* b, float* c) {
  if (!IsEmptyProduct(g, c, false)) MultiplyAlone(g, a, b, c, false);
}

void GemmAlone(const MatMulArgs& g, const double* a, const double* b, double* c) {
  if (!IsEmptyProduct(g, c, false)) MultiplyAlone(g, a, b, c, false);
}

void CpuBackend::MatMul(const MatMulArgs& g, const Tensor& a, const Tensor& b, Tensor& c) const {
  OnFloating(c.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* const from_a = a.data_as<T>();
    const T* const from_b = b.data_as<T>();
    T* const to = c.fresh_data<T>();
    const auto multiply = [=, &g](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        Gemm(g, from_a + i * g.m * g.k, from_b + i * g.k * g.n, to + i * g.m * g.n);
    };
    // Many small products: some for each thread. Large ones are cut one by one.
    const double each = MultiplyAdds(g);
    if (each < kWorthSharing && each * static_cast<double>(g.batch) >= kWorthSharing) {
      InParts(g.batch, 1, multiply);
    } else {
      multiply(0, g.batch);
    }
  });
}

}  // namespace divvy::internal
