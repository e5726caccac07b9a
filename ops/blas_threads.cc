#include "ops/blas_threads.h"

#include <algorithm>

#include "ops/cpu/parallel.h"

namespace divvy {

void SetBlasThreads(int threads) { internal::SetComputeThreads(std::max(threads, 1)); }

}  // namespace divvy
