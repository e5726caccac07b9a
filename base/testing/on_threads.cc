#include "base/testing/on_threads.h"

#include "base/mutex.h"

namespace divvy {

void OnThreads(int n, const std::function<void(int)>& work) {
  ThreadPoolExecutor threads(1);
  OnThreads(threads, n, work);
}

void OnThreads(Executor& executor, int n, const std::function<void(int)>& work) {
  Mutex mu;
  CondVar done;
  int running = n;
  for (int i = 0; i < n; ++i) {
    executor.PostBlocking("work", [&, i] {
      work(i);
      MutexLock lock(mu);
      if (--running == 0) done.NotifyOne();
    });
  }
  MutexLock lock(mu);
  done.Wait(mu, [&] { return running == 0; });
}

}  // namespace divvy
