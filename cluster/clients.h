// How a role is reached from another: the seams behind which lie gRPC, the in-process clients of
// embedded mode, and the simulated network.
//
// All calls: thread-safe, never block. `done` is called exactly once, on the Executor, never from
// within the call and never under a lock of the caller's choosing; over a network by the call's
// deadline at the latest (DeadlineExceeded); within one process whenever the receiver answers. A
// request may arrive although its call failed, late, or twice: receivers are made for it. Failures
// of the way (Unavailable, DeadlineExceeded) carry no ErrorDetail; refusals by the receiver do.
// Nobody retries here: the cores do. Cancelled, without a detail: the client is being closed.
// INVALID, from this side: the request is larger than a message may be, or the reply makes no
// sense.
#ifndef DIVVY_CLUSTER_CLIENTS_H_
#define DIVVY_CLUSTER_CLIENTS_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"

namespace divvy {

template <typename Reply>
using ResultCallback = std::function<void(absl::StatusOr<Reply>)>;

// What answers each request. Declared only: ReplyTo asks for the type.
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

// One call: sends `request`, and gives what comes back to `done`.
template <typename Request>
class CallOf {
 public:
  virtual ~CallOf() = default;
  virtual void Call(Request request, ResultCallback<ReplyTo<Request>> done) = 0;
};

// The calls of a role: Call(request, done) for each of the requests.
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

// A client whose calls all go one way: each is Derived's own Send(request, done), which may be a
// template. A call that needs another way is an overload of Send.
//
//   class Client : public Sends<Client, WorkerClient> {
//     template <typename Request>
//     void Send(Request request, ResultCallback<ReplyTo<Request>> done) { ... }
//   };
template <typename Derived, typename Client>
using Sends = decltype(internal::SenderOf<Derived, Client>(std::declval<const Client&>()));

// A parameter server at one address, whichever process listens there: requests name the life that
// they mean. Pull and Commit have no deadline of their own but the progress of their stream: a
// broken stream answers Unavailable. The tensors of a request are lent until it is answered: nobody
// writes to them.
//
//   call           deadline   refused, beside the prelude's refusals (cluster/prelude.h), with
//   Attach         10 s       VERSION_MISMATCH; NOT_READY (it is ending)
//   Load           30 s       INVALID; of a checkpoint MEMORY_LIMIT, CHECKPOINT_MISSING,
//                  CHECKPOINT_CORRUPT, DISK, NOT_READY (its device failed: ask again)
//   Sync            1 s       INVALID
//   Snapshot        5 s       NOT_READY (commits are being applied), INVALID (a later one was asked
//                   for), DISK (no directory, or this part has failed)
//   CreateShards    2 min     MEMORY_LIMIT, INVALID
//   DeleteShards    5 s       -
//   Pull            -         UNKNOWN_SHARD, INVALID; ResourceExhausted without a reason (no memory
//                   for the reply: ask again)
//   Commit          -         SESSION_FENCED, STEP_CLOSED, INVALID, UNKNOWN_SHARD, BAD_COMMIT
//   Shutdown        5 s       -
//
// What each does stands in ps_server/core/parameter_server_core.h; what its sender does about a
// refusal in cluster/error.h.
class ParameterClient
    : public Calls<PsAttachRequest, LoadRequest, SyncRequest, SnapshotRequest, CreateShardsRequest,
                   DeleteShardsRequest, PullRequest, CommitRequest, ShutdownRequest> {};

// One connection of a Steps stream, from one end: carries frames out, in order. Thread-safe; no
// method blocks. Frames given to a connection that is broken or closed are dropped without a word:
// the stream (cluster/resumable_stream.h) keeps them and sends them again on the next.
template <typename Out>
class StreamConnection {
 public:
  virtual ~StreamConnection() = default;
  virtual void Send(StreamFrame<Out> frame) = 0;
  // The other side sees OnBroken; ours sees nothing more.
  virtual void Close() = 0;
};

// What comes in on a connection, in order, one call at a time. Must not block.
template <typename In>
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void OnFrame(StreamFrame<In> frame) = 0;
  // Once, the last call: the connection is gone, also where it never came to be.
  virtual void OnBroken() = 0;
};

// A worker at one address. Attach (10 s): refused as the prelude says, with VERSION_MISMATCH,
// SESSION_FENCED (an older session than one it has had), INVALID, or JOB_OVER (it is ending).
// Shutdown (5 s).
class WorkerClient : public Calls<WorkerAttachRequest, ShutdownRequest> {
 public:
  // Opens a connection of the Steps stream, and returns before it stands. `listener` is told what
  // comes; OnBroken, too, where it never came to be. There is no deadline: 10 s in which nothing
  // comes break it.
  virtual std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) = 0;
};

// A worker's side of OpenSteps, called by its server: `connection` leads back to the coordinator.
// Returns who listens to what the coordinator sends.
class StepsAcceptor {
 public:
  virtual ~StepsAcceptor() = default;
  virtual std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) = 0;
};

// The coordinator. Register (5 s): NOT_READY, ask again; VERSION_MISMATCH, CLUSTER_MISMATCH,
// DUPLICATE_TASK, NOT_AUTHORIZED, WRONG_JOB: never again, the process ends (cluster/registrar.h
// does all of it).
class CoordinatorClient : public Calls<RegisterRequest> {};

// Makes clients, a new one at each call. Thread-safe; does not block; opens nothing: a wrong
// address shows in the first call. REQUIRES: outlives its clients.
class Dialer {
 public:
  virtual ~Dialer() = default;
  virtual std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) = 0;
  virtual std::shared_ptr<WorkerClient> Worker(const std::string& address) = 0;
  // The same, of the task with this index: where tasks have certificates, nobody else is believed
  // there.
  virtual std::shared_ptr<ParameterClient> ParameterServerAt(const std::string& address,
                                                             int /*index*/) {
    return ParameterServer(address);
  }
  virtual std::shared_ptr<WorkerClient> WorkerAt(const std::string& address, int /*index*/) {
    return Worker(address);
  }
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLIENTS_H_
