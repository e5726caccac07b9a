// The number of threads of an operation on the CPU.
#ifndef DIVVY_OPS_BLAS_THREADS_H_
#define DIVVY_OPS_BLAS_THREADS_H_

namespace divvy {

// Sets the number of CPU threads of each matrix product and of other large operations, for the
// whole process. Call it once, at
// start, before anything computes. Replicas compute on threads of their own, so a process with r
// replicas uses cores / r. A value below 1 counts as 1.
void SetBlasThreads(int threads);

}  // namespace divvy

#endif  // DIVVY_OPS_BLAS_THREADS_H_
