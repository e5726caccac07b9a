// The calls that a client has made and that have not ended.
#ifndef DIVVY_RPC_OPEN_CALLS_H_
#define DIVVY_RPC_OPEN_CALLS_H_

#include <set>

#include "base/mutex.h"
#include "grpcpp/client_context.h"

namespace divvy {

// So that what the answers use (the Executor) can be taken down after the last of them. Thread-safe.
class OpenCalls {
 public:
  ~OpenCalls() { CancelAndWait(); }

  // False: calls are not begun any more.
  bool Begin(grpc::ClientContext& context) {
    MutexLock lock(mu_);
    if (closed_) return false;
    calls_.insert(&context);
    return true;
  }
  // The last thing that a call's answer does.
  void End(grpc::ClientContext& context) {
    MutexLock lock(mu_);
    calls_.erase(&context);
    ended_.NotifyAll();
  }
  // Cancels every call and blocks until all have ended, which cancelled calls do at once.
  void CancelAndWait() {
    MutexLock lock(mu_);
    closed_ = true;
    for (grpc::ClientContext* call : calls_) call->TryCancel();
    ended_.Wait(mu_, [this]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return calls_.empty(); });
  }

 private:
  Mutex mu_;
  CondVar ended_;
  bool closed_ DIVVY_GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> calls_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_OPEN_CALLS_H_
