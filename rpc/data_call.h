// One data stream at its server, as a completion queue drives it.
#ifndef DIVVY_RPC_DATA_CALL_H_
#define DIVVY_RPC_DATA_CALL_H_

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "grpcpp/generic/async_generic_service.h"
#include "rpc/active_calls.h"
#include "rpc/data_buffers.h"
#include "rpc/silence_watch.h"

namespace divvy {

// Interprets the messages of a stream. Its methods run as effects of the call (DataCall::Do), so
// never two at the same time. They must not block.
class MessageReceiver {
 public:
  virtual ~MessageReceiver() = default;
  // Handles a message. An error ends the stream with that status.
  virtual absl::Status OnMessage(IncomingMessage message) = 0;
  // Whether another message may be read now. Called again after every effect.
  virtual bool WantsMessage() const = 0;
  // Whether the peer has begun a transfer and must send the rest of it.
  virtual bool OwesPayload() const = 0;
  // Whether the peer has sent enough since this last returned true. Called after every message. If
  // true, the peer's time of silence starts anew.
  virtual bool HasProceeded() = 0;
  // The stream is over. No other method is called afterwards.
  virtual void OnOver() = 0;
};

// Waits for a call, then reads and writes its messages. Everything that happens to a call is an
// effect of an outbox. Effects run one at a time, in order, on the thread that brought them. So
// nothing here needs a lock, and the thread that made an answer also sends it. The object lives as
// long as an operation of gRPC is in flight.
class DataCall : public std::enable_shared_from_this<DataCall> {
 public:
  // What the calls of one completion queue share.
  struct Host {
    grpc::AsyncGenericService& service;
    // Shut down only after its calls have left, because calls end by operations on it.
    grpc::ServerCompletionQueue& queue;
    ActiveCalls& calls;
    Executor& executor;
    absl::Duration silence;
    // Called when a call has been accepted, so that the next one can be.
    std::function<void()> accept_next;
    // Makes the receiver of an accepted call. An error ends the call at once.
    std::function<absl::StatusOr<std::unique_ptr<MessageReceiver>>(DataCall& call)> make_receiver;
  };
  // The tag of an operation: the method to call when the operation ends.
  struct Event {
    DataCall* call;
    void (DataCall::*happened)(bool ok);
  };

  // Waits for the next call of the server. REQUIRES: the host lives until its calls have left.
  static void Accept(const Host& host);
  // Call it for each tag that comes out of the completion queue, with its `ok`.
  static void Happened(void* tag, bool ok);

  const grpc::GenericServerContext& context() const { return context_; }
  // Sent with the first message. REQUIRES: called before that.
  void AddInitialMetadata(const char* key, const std::string& value) {
    context_.AddInitialMetadata(key, value);
  }

  // Runs `effect` after the earlier ones, either within this call or soon afterwards. Thread-safe.
  // REQUIRES: the caller holds the call (a locked weak pointer), or is itself an effect.
  void Do(std::function<void()> effect);
  // Runs `effect` after `delay`, or not at all if the call no longer exists by then.
  void DoAfter(absl::Duration delay, std::function<void()> effect);
  // Queues a transfer behind the others. `sent` runs as an effect once gRPC has the
  // whole transfer; it is dropped if the stream ends before. REQUIRES: called from an effect.
  void Send(wire::OutgoingTransfer transfer, std::function<void()> sent = nullptr);
  // Ends the stream after the message that is being written. REQUIRES: called from an effect.
  void End(const absl::Status& status);

 private:
  // Counts the call as long as any part of it exists.
  struct ActiveCall {
    explicit ActiveCall(ActiveCalls& calls) : calls(calls) { calls.Enter(); }
    ~ActiveCall() { calls.Leave(); }
    ActiveCalls& calls;
  };

  explicit DataCall(const Host& host);
  void OnAccepted(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok) {}
  void OnGone(bool ok);
  void Begin();
  void ReadOn();
  void WriteOn();
  void FinishNow();

  const ActiveCall active_;  // destroyed last
  const Host& host_;
  std::shared_ptr<DataCall> self_;  // while operations are in flight
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  const Event accepted_, read_, written_, finished_, gone_;
  Outbox outbox_;

  // Used only by effects.
  int operations_ = 0;
  bool reading_ = false, writing_ = false, over_ = false, is_gone_ = false;
  // Called when the message that is being written has been sent.
  std::function<void()> sent_;
  absl::Status end_;
  grpc::ByteBuffer incoming_;
  OutgoingMessages outgoing_;
  std::unique_ptr<MessageReceiver> receiver_;
  std::shared_ptr<SilenceWatch> watch_;

  // Whether the peer owes something: more payload, or reading what has been written.
  std::atomic<bool> owed_{false};
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_CALL_H_
