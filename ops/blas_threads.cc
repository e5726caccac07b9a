#include "ops/blas_threads.h"

#include <cblas.h>

#include <algorithm>

namespace divvy {

void SetBlasThreads(int threads) { openblas_set_num_threads(std::max(threads, 1)); }

}  // namespace divvy
