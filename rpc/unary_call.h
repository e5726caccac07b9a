// One unary call at its client: encode, send with a deadline, decode, answer on the Executor.
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
#include "cluster/clients.h"
#include "cluster/error.h"
#include "grpcpp/client_context.h"
#include "rpc/message_limit.h"
#include "rpc/open_calls.h"
#include "rpc/status.h"
#include "rpc/time.h"
#include "wire/messages.h"

namespace divvy {

// Deadlines of the unary calls (docs/protocol.md).
constexpr absl::Duration kCallDeadline = absl::Seconds(5);
constexpr absl::Duration kAttachDeadline = absl::Seconds(10);
// Any later Sync acknowledges an earlier one too.
constexpr absl::Duration kSyncDeadline = absl::Seconds(1);
// clears what may be much; while a checkpoint is read, it answers how far it is
constexpr absl::Duration kLoadDeadline = absl::Seconds(30);
// computes the first values
constexpr absl::Duration kCreateDeadline = absl::Minutes(2);

// InvalidArgument (Reason::kInvalid): the request is larger than a message may be.
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

// What the calls of a client need. They hold what they use of it, so that the client may go while
// they are open.
struct CallEnvironment {
  Executor& executor;  // outlives the last call: OpenCalls waits for it
  std::shared_ptr<OpenCalls> open;
  // Of the task that is called, for the texts of failures.
  std::string address;
};

// The method of a stub that a request goes through, and how long it may take.
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

// Calls stub.async()->*method with `request`, and `done` with the domain's reply as a task of the
// Executor: once, never from within. Holds `stub` until then. Cancelled where the environment is
// closed; InvalidArgument (Reason::kInvalid) for a request that is too large, and is not sent, and
// for a reply that makes no sense; else FromGrpc's errors.
//
//   CallUnary(environment, stub, &v1::Coordinator::StubInterface::async_interface::Register,
//   request, kCallDeadline, std::move(done));
template <typename Stub, typename Async, typename ProtoRequest, typename ProtoReply,
          typename Request, typename Reply>
void CallUnary(const CallEnvironment& environment, const std::shared_ptr<Stub>& stub,
               void (Async::*method)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                                     std::function<void(grpc::Status)>),
               const Request& request, absl::Duration deadline, ResultCallback<Reply> done) {
  struct Call {
    grpc::ClientContext context;
    ProtoRequest request;
    ProtoReply reply;
    std::shared_ptr<Stub> stub;
    ResultCallback<Reply> done;
  };
  auto call = std::make_shared<Call>();
  call->request = wire::ToProto(request);
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
    absl::StatusOr<Reply> reply = status.ok() ? wire::FromProto(call->reply)
                                              : absl::StatusOr<Reply>(FromGrpc(status, address));
    if (status.error_code() == grpc::StatusCode::CANCELLED && open->closed())
      reply = absl::CancelledError("the client is closed");
    auto held = open->Take(call->context);
    executor.Post([reply = std::move(reply), call = std::move(call),
                   held = std::move(held)]() mutable { call->done(std::move(reply)); });
    open->End();
  };
  (stub->async()->*method)(&started.context, &started.request, &started.reply, std::move(on_end));
}

}  // namespace divvy

#endif  // DIVVY_RPC_UNARY_CALL_H_
