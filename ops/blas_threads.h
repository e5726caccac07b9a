// How many threads a matrix product may use.
#ifndef DIVVY_OPS_BLAS_THREADS_H_
#define DIVVY_OPS_BLAS_THREADS_H_

namespace divvy {

// For the whole process: call once, at start, before anything computes. Replicas compute on threads
// of their own, so a process with r of them gives each product cores / r. Below 1 counts as 1.
void SetBlasThreads(int threads);

}  // namespace divvy

#endif  // DIVVY_OPS_BLAS_THREADS_H_
