// Runs a function on several threads at once, for tests of thread safety.
#ifndef DIVVY_BASE_TESTING_ON_THREADS_H_
#define DIVVY_BASE_TESTING_ON_THREADS_H_

#include <functional>

#include "base/executor.h"

namespace divvy {

// Runs work(0) to work(n - 1), each on a thread of its own, and returns when all have returned.
// REQUIRES: n >= 1.
void OnThreads(int n, const std::function<void(int)>& work);
// As above, with threads that `executor` keeps. Faster for many calls in succession.
void OnThreads(Executor& executor, int n, const std::function<void(int)>& work);

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_ON_THREADS_H_
