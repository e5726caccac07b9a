// The calls that a client has made and that have not ended.
#ifndef DIVVY_RPC_OPEN_CALLS_H_
#define DIVVY_RPC_OPEN_CALLS_H_

#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "grpcpp/client_context.h"

namespace divvy {

// So that what the answers use (the Executor) can be taken down after the last of them.
// Thread-safe.
//
// A call ends on a thread of gRPC's own, and there the last handle of a channel must never be let
// go: gRPC would join that very thread, and abort. So the end of a call takes everything that holds
// its channel (its context does) and gives it away together with its answer:
//
//   executor.Post([held = open->Take(context), ...] { answer });
//   open->End();
class OpenCalls {
 public:
  ~OpenCalls() { CancelAndWait(); }

  // Before the call is made. False: no more calls are begun.
  bool Begin(std::shared_ptr<grpc::ClientContext> context) {
    MutexLock lock(mu_);
    if (closed_) return false;
    ++open_;
    const grpc::ClientContext* const key = context.get();
    calls_.emplace(key, std::move(context));
    return true;
  }
  // What Begin was given.
  std::shared_ptr<grpc::ClientContext> Take(const grpc::ClientContext& context) {
    MutexLock lock(mu_);
    const auto call = calls_.find(&context);
    std::shared_ptr<grpc::ClientContext> held = std::move(call->second);
    calls_.erase(call);
    return held;
  }
  // The last thing that the end of a call does: what it used may be gone afterwards.
  void End() {
    MutexLock lock(mu_);
    if (--open_ == 0) ended_.NotifyAll();
  }
  // Whether CancelAndWait has begun: a call that ends as cancelled was so by us.
  bool closed() {
    MutexLock lock(mu_);
    return closed_;
  }
  // Cancels every call and blocks until all have ended, which cancelled calls do at once. REQUIRES:
  // not called from the end of a call.
  void CancelAndWait() {
    // Without the lock: the end of a call may come within.
    for (const auto& [key, context] : Close()) context->TryCancel();
    MutexLock lock(mu_);
    ended_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return open_ == 0; });
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
  int open_ DIVVY_GUARDED_BY(mu_) = 0;  // begun and not ended
  Calls calls_ DIVVY_GUARDED_BY(mu_);   // of those, the ones that are not taken
};

}  // namespace divvy

#endif  // DIVVY_RPC_OPEN_CALLS_H_
