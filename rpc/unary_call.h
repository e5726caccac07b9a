// The client side of one unary call: encode, send with a deadline, decode, answer on the Executor.
#ifndef DIVVY_RPC_UNARY_CALL_H_
#define DIVVY_RPC_UNARY_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "grpcpp/client_context.h"
#include "protocol/clients.h"
#include "protocol/error.h"
#include "rpc/message_limit.h"
#include "rpc/open_calls.h"
#include "rpc/status.h"
#include "rpc/time.h"
#include "rpc/unary_calls.h"
#include "wire/messages.h"

namespace divvy {

// Deadlines of the unary calls (docs/internals/protocol.md).
constexpr absl::Duration kCallDeadline = absl::Seconds(5);
constexpr absl::Duration kAttachDeadline = absl::Seconds(10);
// Short, since any later Sync acknowledges the earlier ones too.
constexpr absl::Duration kSyncDeadline = absl::Seconds(1);
// Load may first have to free much memory. While a checkpoint is read, Load returns its progress.
constexpr absl::Duration kLoadDeadline = absl::Seconds(30);
// CreateShards computes the initial values.
constexpr absl::Duration kCreateDeadline = absl::Minutes(2);

// InvalidArgument (Reason::kInvalid) if the encoded request is larger than kMaxControlMessageBytes.
// The text names `address` and says how to make the request smaller. Pure.
template <typename ProtoRequest>
absl::Status CheckSize(const ProtoRequest& request, const std::string& address) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= static_cast<size_t>(kMaxControlMessageBytes)) return absl::OkStatus();
  return MakeError(Reason::kInvalid,
                   absl::StrCat(ProtoRequest::descriptor()->name(), " for ", address, " has ",
                                bytes, " bytes, and a message may have ", kMaxControlMessageBytes,
                                ": it names every shard of every variable there. Make fewer "
                                "variables, or fewer shards of each, or use more "
                                "parameter servers"));
}

// What the calls of a client share. A call holds copies of what it uses, so the client may be
// destroyed while calls are open.
struct CallEnvironment {
  // Runs the answers. Must outlive the last call: OpenCalls::CancelAndWait waits for it.
  Executor& executor;
  // Counts the calls in flight, and cancels them.
  std::shared_ptr<OpenCalls> open;
  // The address of the called task, for error texts.
  std::string address;
  // See DataClientOptions.
  bool shares_memory = true;
};

// The stub method that sends a request, and its deadline.
template <typename Async, typename ProtoRequest, typename ProtoReply>
struct UnaryWay {
  using Method = void (Async::*)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                                 std::function<void(grpc::Status)>);
  UnaryWay(Method method, absl::Duration deadline) : method(method), deadline(deadline) {}
  const Method method;
  const absl::Duration deadline;
};
template <typename Async, typename ProtoRequest, typename ProtoReply>
UnaryWay(void (Async::*)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                         std::function<void(grpc::Status)>),
         absl::Duration) -> UnaryWay<Async, ProtoRequest, ProtoReply>;

// Defines WayOf(request) for a call of rpc/unary_calls.h, in a class that calls the service's
// async_interface Async.
#define DIVVY_UNARY_WAY(Service, Method, Request, Reply, deadline) \
  static auto WayOf(const Request&) { return UnaryWay(&Async::Method, deadline); }

// Calls stub.async()->*method with `request`. Then `done` runs once with the reply, as a task of
// the Executor, never from within this call. Holds `stub` until then. Thread-safe; does not block.
// Errors:
// - Cancelled: the environment is closed.
// - InvalidArgument (Reason::kInvalid): the request is too large and was not sent.
// - Otherwise the errors of FromGrpc (status.h).
template <typename Stub, typename Async, typename ProtoRequest, typename ProtoReply>
void CallProto(const CallEnvironment& environment, const std::shared_ptr<Stub>& stub,
               void (Async::*method)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                                     std::function<void(grpc::Status)>),
               ProtoRequest request, absl::Duration deadline, ResultCallback<ProtoReply> done) {
  struct Call {
    grpc::ClientContext context;
    ProtoRequest request;
    ProtoReply reply;
    std::shared_ptr<Stub> stub;
    ResultCallback<ProtoReply> done;
  };
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->context.set_deadline(GrpcDeadline(deadline));
  call->stub = stub;
  call->done = std::move(done);
  Executor& executor = environment.executor;
  if (absl::Status size = CheckSize(call->request, environment.address); !size.ok()) {
    return executor.Post([call = std::move(call), size = std::move(size)] { call->done(size); });
  }
  if (!environment.open->Begin({call, &call->context})) {
    return executor.Post(
        [call = std::move(call)] { call->done(absl::CancelledError("the client is closed")); });
  }
  Call& started = *call;
  auto on_end = [&executor, open = environment.open, address = environment.address,
                 call = std::move(call)](const grpc::Status& status) mutable {
    // A StatusOr cannot be made from a status that is OK.
    absl::StatusOr<ProtoReply> reply = status.ok()
                                           ? absl::StatusOr<ProtoReply>(std::move(call->reply))
                                           : absl::StatusOr<ProtoReply>(FromGrpc(status, address));
    if (status.error_code() == grpc::StatusCode::CANCELLED && open->closed())
      reply = absl::CancelledError("the client is closed");
    auto held = open->Take(call->context);
    executor.Post([reply = std::move(reply), call = std::move(call),
                   held = std::move(held)]() mutable { call->done(std::move(reply)); });
    open->End();
  };
  (stub->async()->*method)(&started.context, &started.request, &started.reply, std::move(on_end));
}

// The same for a request and a reply that wire/ encodes and decodes. Further error:
// InvalidArgument (Reason::kInvalid) if wire/ refuses the reply.
//
//   CallUnary(environment, stub,
//             &v1::Coordinator::StubInterface::async_interface::Register, request,
//             kCallDeadline, std::move(done));
template <typename Stub, typename Async, typename ProtoRequest, typename ProtoReply,
          typename Request, typename Reply>
void CallUnary(const CallEnvironment& environment, const std::shared_ptr<Stub>& stub,
               void (Async::*method)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                                     std::function<void(grpc::Status)>),
               const Request& request, absl::Duration deadline, ResultCallback<Reply> done) {
  CallProto(environment, stub, method, wire::ToProto(request), deadline,
            ResultCallback<ProtoReply>([done = std::move(done)](absl::StatusOr<ProtoReply> reply) {
              done(reply.ok() ? wire::FromProto(*reply) : absl::StatusOr<Reply>(reply.status()));
            }));
}

}  // namespace divvy

#endif  // DIVVY_RPC_UNARY_CALL_H_
