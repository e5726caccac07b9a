// The server side of one unary call: decode, call the core, encode, map the status once.
#ifndef DIVVY_RPC_UNARY_HANDLER_H_
#define DIVVY_RPC_UNARY_HANDLER_H_

#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/once_set.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "protocol/clients.h"
#include "protocol/error.h"
#include "rpc/authorization.h"
#include "rpc/call_durations.h"
#include "rpc/status.h"
#include "rpc/unary_calls.h"
#include "wire/messages.h"

namespace divvy {
namespace internal {

// Finishes a call exactly once, and notes how long it took. If the last handle is destroyed before
// Finish (the core was destroyed with the call open), the call ends with Unavailable. A gRPC server
// cannot shut down before each of its calls is finished. REQUIRES: Finish is called at most once.
class UnaryFinisher {
 public:
  // `method` is e.g. "Worker.Attach", and a literal.
  UnaryFinisher(grpc::ServerUnaryReactor* reactor, absl::string_view method)
      : reactor_(reactor), method_(method) {}
  ~UnaryFinisher() {
    if (reactor_ != nullptr) Finish(absl::UnavailableError("the task is ending"));
  }
  UnaryFinisher(const UnaryFinisher&) = delete;
  void Finish(const absl::Status& status) {
    NoteCall(method_, status.code(), Clock::Real().Elapsed() - began_);
    std::exchange(reactor_, nullptr)->Finish(ToGrpc(status));
  }

 private:
  grpc::ServerUnaryReactor* reactor_;
  const absl::string_view method_;
  const absl::Duration began_ = Clock::Real().Elapsed();
};

}  // namespace internal

// The checks that every unary call passes before its request is read:
// - The peer's role may make the call; otherwise NOT_AUTHORIZED.
// - The call has a deadline; otherwise INVALID, because a call without one could hold memory
//   forever.
//
// `method` is e.g. "Worker.Attach". Thread-safe; does not block.
absl::Status CheckUnaryCall(const grpc::CallbackServerContext& context, absl::string_view method);

// Answers the call of `context` with core->Call(request, done), where request is wire::FromProto of
// `proto_request`. Runs on gRPC's threads, so the core must not block. Errors that the caller gets:
// - NOT_AUTHORIZED, INVALID: as CheckUnaryCall and AuthorizeRequest say.
// - INVALID: wire/ refuses the request.
// - NOT_READY: there is no core yet; the caller retries.
// - Unavailable: the core was destroyed without an answer.
//
// REQUIRES: `proto_reply` lives until the call is finished, as gRPC's replies do.
//
//   return HandleUnary("ParameterServer.Sync", context, core_, *request, *reply);
template <typename Core, typename ProtoRequest, typename ProtoReply>
grpc::ServerUnaryReactor* HandleUnary(absl::string_view name, grpc::CallbackServerContext* context,
                                      const OnceSet<Core>& late_core,
                                      const ProtoRequest& proto_request, ProtoReply& proto_reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  auto finisher = std::make_shared<internal::UnaryFinisher>(reactor, name);
  const auto refuse = [&](const absl::Status& status) {
    finisher->Finish(status);
    return reactor;
  };
  if (const absl::Status checked = CheckUnaryCall(*context, name); !checked.ok())
    return refuse(checked);
  auto request = wire::FromProto(proto_request);
  using Reply = ReplyTo<std::decay_t<decltype(*request)>>;
  if (!request.ok()) return refuse(request.status());
  if (const absl::Status authorized = AuthorizeRequest(*context->auth_context(), *request);
      !authorized.ok())
    return refuse(authorized);
  const std::shared_ptr<Core> core = late_core.Get();
  if (core == nullptr)
    return refuse(
        MakeError(Reason::kNotReady,
                  absl::StrCat("the task is starting and cannot answer ", name, " yet: retry")));
  core->Call(*std::move(request), [finisher, &proto_reply](const absl::StatusOr<Reply>& reply) {
    if (reply.ok()) proto_reply = wire::ToProto(*reply);
    finisher->Finish(reply.status());
  });
  return reactor;
}

// Defines the method of a service that is a call of rpc/unary_calls.h, in a class with a member
// `core_`, an OnceSet.
#define DIVVY_HANDLE_UNARY(Service, Method, Request, Reply, deadline)                       \
  grpc::ServerUnaryReactor* Method(grpc::CallbackServerContext* context,                    \
                                   const v1::Request* request, v1::Reply* reply) override { \
    return HandleUnary(#Service "." #Method, context, core_, *request, *reply);             \
  }

}  // namespace divvy

#endif  // DIVVY_RPC_UNARY_HANDLER_H_
