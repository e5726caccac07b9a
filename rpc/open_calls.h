// The calls of a client that have begun and not ended.
#ifndef DIVVY_RPC_OPEN_CALLS_H_
#define DIVVY_RPC_OPEN_CALLS_H_

#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "grpcpp/client_context.h"

namespace divvy {

// Counts the calls in flight, so that the objects that their answers use (the Executor) can be
// destroyed after the last answer. Thread-safe.
//
// A call ends on one of gRPC's own threads. The last reference to a channel must never be dropped
// there: gRPC would join that very thread, and abort. The context of a call holds its channel. So
// the end of a call takes the context out, and posts it to the Executor together with the answer:
//
//   executor.Post([held = open->Take(context), ...] { answer });
//   open->End();
//
// Frames of a Steps stream and small replies on a data stream are handled on gRPC's threads while
// their call is open. What handles them may destroy clients and connections: the call's own context
// still holds its channel until the call has ended, so no channel goes there.
class OpenCalls {
 public:
  ~OpenCalls() { CancelAndWait(); }

  // Call it before the call is made. False: closed, so the call must not be made.
  bool Begin(std::shared_ptr<grpc::ClientContext> context) {
    MutexLock lock(mu_);
    if (closed_) return false;
    ++open_;
    const grpc::ClientContext* const key = context.get();
    calls_.emplace(key, std::move(context));
    return true;
  }
  // Returns the context that Begin was given. REQUIRES: called once for each Begin that was true.
  std::shared_ptr<grpc::ClientContext> Take(const grpc::ClientContext& context) {
    MutexLock lock(mu_);
    const auto call = calls_.find(&context);
    std::shared_ptr<grpc::ClientContext> held = std::move(call->second);
    calls_.erase(call);
    return held;
  }
  // Call it last, at the end of the call: objects that the call used may be destroyed afterwards.
  void End() {
    MutexLock lock(mu_);
    if (--open_ == 0) ended_.NotifyAll();
  }
  // Whether CancelAndWait has begun. If so, a call that ended as cancelled was cancelled by this
  // client rather than by the server.
  bool closed() {
    MutexLock lock(mu_);
    return closed_;
  }
  // Cancels every call and blocks until all have ended, which cancelled calls do at once. Later
  // calls of Begin return false. REQUIRES: not called from the end of a call.
  void CancelAndWait() {
    // Without the lock: TryCancel may run the end of a call.
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
  Calls calls_ DIVVY_GUARDED_BY(mu_);   // begun and not taken
};

}  // namespace divvy

#endif  // DIVVY_RPC_OPEN_CALLS_H_
