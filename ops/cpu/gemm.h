// Products of matrices in memory, by OpenBLAS.
#ifndef DIVVY_OPS_CPU_GEMM_H_
#define DIVVY_OPS_CPU_GEMM_H_

#include "ops/backend.h"

namespace divvy::internal {

// Whether a product is so large that waking other threads for it pays. args.batch is ignored.
bool IsWorthSharing(const MatMulArgs& args);

// c = op(a) op(b), or with `accumulate` c += op(a) op(b): one product of [m, k] and [k, n] as
// `args` says; args.batch is ignored. All matrices are row-major. REQUIRES: every extent fits an
// int. Large products are computed on several threads.
void Gemm(const MatMulArgs& args, const float* a, const float* b, float* c,
          bool accumulate = false);
void Gemm(const MatMulArgs& args, const double* a, const double* b, double* c,
          bool accumulate = false);

// As Gemm, on the calling thread alone.
void GemmAlone(const MatMulArgs& args, const float* a, const float* b, float* c);
void GemmAlone(const MatMulArgs& args, const double* a, const double* b, double* c);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_GEMM_H_
