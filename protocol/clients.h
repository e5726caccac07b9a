// The interfaces through which one role calls another. There are three implementations: gRPC, the
// in-process clients of embedded mode, and the simulated network.
//
// These rules hold for all calls:
// - They are thread-safe and never block.
// - `done` is called exactly once. It is never called from within the call, and never while the
//   implementation holds a lock.
// - `done`, and the methods of a StreamListener, run on the Executor or on the thread of the
//   transport that has just read the message. They must not block, and must not destroy a Dialer or
//   wait for one. They may destroy clients and connections.
// - Over a network, `done` is called by the call's deadline at the latest (DeadlineExceeded).
//   Within one process it is called when the receiver answers.
// - A request may arrive late, twice, or although its call failed. Receivers are made for that.
// - Transport failures (Unavailable, DeadlineExceeded) carry no ErrorDetail. Refusals by the
//   receiver carry one.
// - Cancelled without a detail means that the client is being closed.
// - INVALID can also come from the client: the request is larger than a message may be, or the
//   reply is not valid.
// - Clients do not retry. The cores do.
#ifndef DIVVY_PROTOCOL_CLIENTS_H_
#define DIVVY_PROTOCOL_CLIENTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"

namespace divvy {

template <typename Reply>
using ResultCallback = std::function<void(absl::StatusOr<Reply>)>;

// Maps each request to its reply. These functions are declared and never defined: ReplyTo uses only
// their return types.
PsAttachReply Answer(const PsAttachRequest&);
LoadReply Answer(const LoadRequest&);
SyncReply Answer(const SyncRequest&);
SnapshotReply Answer(const SnapshotRequest&);
LayoutReply Answer(const CreateShardsRequest&);
LayoutReply Answer(const DeleteShardsRequest&);
PullReply Answer(const PullRequest&);
CommitReply Answer(const CommitRequest&);
WorkerAttachReply Answer(const WorkerAttachRequest&);
ShutdownReply Answer(const ShutdownRequest&);
RegisterReply Answer(const RegisterRequest&);

template <typename Request>
using ReplyTo = decltype(Answer(std::declval<const Request&>()));

// One call: sends `request` and passes the reply, or the error, to `done`.
template <typename Request>
class CallOf {
 public:
  virtual ~CallOf() = default;
  virtual void Call(Request request, ResultCallback<ReplyTo<Request>> done) = 0;
};

// The calls that a role answers: one overload of Call(request, done) for each request type.
template <typename... Requests>
class Calls : public CallOf<Requests>... {
 public:
  using CallOf<Requests>::Call...;
};

namespace internal {

template <typename Derived, typename Client, typename... Requests>
class Sender : public Client {};
template <typename Derived, typename Client, typename First, typename... Rest>
class Sender<Derived, Client, First, Rest...> : public Sender<Derived, Client, Rest...> {
 public:
  using Sender<Derived, Client, Rest...>::Call;
  void Call(First request, ResultCallback<ReplyTo<First>> done) final {
    static_cast<Derived&>(*this).Send(std::move(request), std::move(done));
  }
};
template <typename Derived, typename Client, typename... Requests>
Sender<Derived, Client, Requests...> SenderOf(const Calls<Requests...>&);

}  // namespace internal

// A base class for a client that sends all its requests in the same manner. It forwards each Call
// to Derived's Send(request, done), which may be a template. For a request that is sent
// differently, add an overload of Send.
//
//   class Client : public Sends<Client, WorkerClient> {
//     template <typename Request>
//     void Send(Request request, ResultCallback<ReplyTo<Request>> done) { ... }
//   };
template <typename Derived, typename Client>
using Sends = decltype(internal::SenderOf<Derived, Client>(std::declval<const Client&>()));

// A parameter server at one address. Each request names the incarnation that it is meant for; a
// process of another incarnation at that address refuses it. Pull and Commit have no deadline: they
// last as long as their stream makes progress, and a broken stream ends them with Unavailable. The
// tensors of a request are lent until the request is answered: do not write to them before.
//
// Each call can be refused by the request check (protocol/request_check.h), and also with these
// reasons:
//
//   call           deadline   refused with
//   Attach         10 s       VERSION_MISMATCH; NOT_READY (the server is ending)
//   Load           30 s       INVALID; for a checkpoint also MEMORY_LIMIT, CHECKPOINT_MISSING,
//                             CHECKPOINT_CORRUPT, DISK, NOT_READY (its device failed: ask again)
//   Sync            1 s       INVALID
//   Snapshot        5 s       NOT_READY (commits are being applied), INVALID (a later snapshot was
//                             asked for), DISK (no directory, or this part has failed)
//   CreateShards    2 min     MEMORY_LIMIT, INVALID
//   DeleteShards    5 s       -
//   Pull            -         UNKNOWN_SHARD, INVALID; ResourceExhausted without a reason (no memory
//                             for the reply: ask again)
//   Commit          -         SESSION_FENCED, STEP_CLOSED, INVALID, UNKNOWN_SHARD, BAD_COMMIT
//   Shutdown        5 s       -
//
// ps_server/core/parameter_server_core.h says what each call does. protocol/error.h says how the
// sender reacts to a refusal.
class ParameterClient
    : public Calls<PsAttachRequest, LoadRequest, SyncRequest, SnapshotRequest, CreateShardsRequest,
                   DeleteShardsRequest, PullRequest, CommitRequest, ShutdownRequest> {};

// One end of a connection of a Steps stream. It sends frames in order. Thread-safe; no method
// blocks. A broken or closed connection drops the frames that it is given, without an error: the
// stream (protocol/resumable_stream.h) keeps them and sends them again on the next connection.
template <typename Out>
class StreamConnection {
 public:
  virtual ~StreamConnection() = default;
  virtual void Send(StreamFrame<Out> frame) = 0;
  // Closes the connection. The other side gets OnBroken; the listener on this side gets no more
  // calls.
  virtual void Close() = 0;
};

// Receives the frames that arrive on a connection, in order, one call at a time. Its methods must
// not block: they may run on the thread that reads the connection (see the head of this file).
template <typename In>
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  // Frames that arrived together, in order; at least one.
  virtual void OnFrames(std::vector<StreamFrame<In>> frames) = 0;
  // OnFrames with one frame.
  void OnFrame(StreamFrame<In> frame) {
    std::vector<StreamFrame<In>> frames;
    frames.push_back(std::move(frame));
    OnFrames(std::move(frames));
  }
  // The connection is gone, or could not be opened. Called once; no call follows it.
  virtual void OnBroken() = 0;
};

// A worker at one address. Deadlines: Attach 10 s, Shutdown 5 s. Attach is refused as the request
// check says (protocol/request_check.h), or with VERSION_MISMATCH, SESSION_FENCED (the worker has
// had a later session), INVALID, or JOB_OVER (the worker is ending).
class WorkerClient : public Calls<WorkerAttachRequest, ShutdownRequest> {
 public:
  // Starts to open a connection of the Steps stream and returns at once, before the connection is
  // established. `listener` receives the frames that arrive, and OnBroken when the connection
  // breaks or cannot be opened. There is no deadline, but a connection on which nothing arrives for
  // 10 s breaks.
  virtual std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) = 0;
};

// The worker's side of OpenSteps. The worker's server calls Accept for each new connection:
// `connection` sends frames to the coordinator, and the returned listener receives the frames that
// the coordinator sends.
class StepsAcceptor {
 public:
  virtual ~StepsAcceptor() = default;
  virtual std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) = 0;
};

// The coordinator. Deadline: Register 5 s. On NOT_READY the caller asks again. VERSION_MISMATCH,
// CLUSTER_MISMATCH, DUPLICATE_TASK, NOT_AUTHORIZED and WRONG_JOB are final: the calling process
// ends. protocol/registrar.h implements this.
class CoordinatorClient : public Calls<RegisterRequest> {};

// Makes clients, a new one at each call. Thread-safe. Its methods neither block nor connect, so a
// wrong address shows only in the client's first call. REQUIRES: outlives its clients.
class Dialer {
 public:
  virtual ~Dialer() = default;
  virtual std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) = 0;
  virtual std::shared_ptr<WorkerClient> Worker(const std::string& address) = 0;
  // As above, for the task with this index. Where tasks have certificates, the client accepts only
  // the certificate of that task.
  virtual std::shared_ptr<ParameterClient> ParameterServerAt(const std::string& address,
                                                             int /*index*/) {
    return ParameterServer(address);
  }
  virtual std::shared_ptr<WorkerClient> WorkerAt(const std::string& address, int /*index*/) {
    return Worker(address);
  }
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_CLIENTS_H_
