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

#include "absl/status/statusor.h"
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"

namespace divvy {

template <typename Reply>
using ResultCallback = std::function<void(absl::StatusOr<Reply>)>;

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
class ParameterClient {
 public:
  virtual ~ParameterClient() = default;
  virtual void Attach(PsAttachRequest request, ResultCallback<PsAttachReply> done) = 0;
  virtual void Load(LoadRequest request, ResultCallback<LoadReply> done) = 0;
  virtual void Sync(SyncRequest request, ResultCallback<SyncReply> done) = 0;
  virtual void Snapshot(SnapshotRequest request, ResultCallback<SnapshotReply> done) = 0;
  virtual void CreateShards(CreateShardsRequest request, ResultCallback<LayoutReply> done) = 0;
  virtual void DeleteShards(DeleteShardsRequest request, ResultCallback<LayoutReply> done) = 0;
  virtual void Pull(PullRequest request, ResultCallback<PullReply> done) = 0;
  virtual void Commit(CommitRequest request, ResultCallback<CommitReply> done) = 0;
  virtual void Shutdown(ShutdownRequest request, ResultCallback<ShutdownReply> done) = 0;
};

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
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual void Attach(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) = 0;
  virtual void Shutdown(ShutdownRequest request, ResultCallback<ShutdownReply> done) = 0;
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
class CoordinatorClient {
 public:
  virtual ~CoordinatorClient() = default;
  virtual void Register(RegisterRequest request, ResultCallback<RegisterReply> done) = 0;
};

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
