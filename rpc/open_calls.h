// The calls that a client has made and that have not ended.
#ifndef DIVVY_RPC_OPEN_CALLS_H_
#define DIVVY_RPC_OPEN_CALLS_H_

#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "grpcpp/client_context.h"

namespace divvy {

// So that what the answers use (the Executor) can be taken down after the last of them. Thread-safe.
class OpenCalls {
 public:
  ~OpenCalls() { CancelAndWait(); }

  // Before the call is made. False: no more calls are begun.
  bool Begin(std::shared_ptr<grpc::ClientContext> context) {
    MutexLock lock(mu_);
    if (closed_) return false;
    const grpc::ClientContext* const key = context.get();
    calls_.emplace(key, std::move(context));
    return true;
  }
  // The last thing that the end of a call does: what it used may be gone afterwards.
  void End(const grpc::ClientContext& context) {
    MutexLock lock(mu_);
    calls_.erase(&context);
    if (calls_.empty()) ended_.NotifyAll();
  }
  // Cancels every call and blocks until all have ended, which cancelled calls do at once. REQUIRES: not called from the end of a call.
  void CancelAndWait() {
    for (const auto& [key, context] : Close()) context->TryCancel();   // without the lock: the end of a call may come within
    MutexLock lock(mu_);
    ended_.Wait(mu_, [this]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return calls_.empty(); });
  }

 private:
  using Calls = std::map<const grpc::ClientContext*, std::shared_ptr<grpc::ClientContext>>;

  Calls Close() {
    MutexLock lock(mu_);
    closed_ = true;
    return calls_;
  }

  Mutex mu_;
  CondVar ended_;
  bool closed_ DIVVY_GUARDED_BY(mu_) = false;
  Calls calls_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_OPEN_CALLS_H_
