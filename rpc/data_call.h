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
#include "rpc/data_buffers.h"
#include "rpc/silence_watch.h"
#include "rpc/visitors.h"

namespace divvy {

// What the messages of a stream mean. Its methods are effects of the call (DataCall::Do), so never
// two at a time.
class MessageReceiver {
 public:
  virtual ~MessageReceiver() = default;
  // An error ends the stream with it.
  virtual absl::Status OnMessage(IncomingMessage message) = 0;
  // Whether another message may be read now. Asked again after every effect.
  virtual bool WantsMessage() const = 0;
  // Whether the peer has begun something that it must go on with.
  virtual bool OwesPayload() const = 0;
  // Whether the peer has gone on with it: asked after every message. True: it has the whole time of
  // a silence for the next.
  virtual bool HasGoneOn() = 0;
  // The stream is over: the last call.
  virtual void OnOver() = 0;
};

// Waits for a call, then reads and writes its messages. Everything that happens to it is an effect
// of an outbox: one at a time, in order, on whichever thread brought it, so that nothing here needs
// a lock and an answer is sent by the thread that made it. Lives as long as an operation of gRPC is
// under way.
class DataCall : public std::enable_shared_from_this<DataCall> {
 public:
  struct Host {
    grpc::AsyncGenericService& service;
    // Not shut down before its calls have left: they end by operations on it.
    grpc::ServerCompletionQueue& queue;
    Visitors& calls;
    Executor& executor;
    absl::Duration silence;
    // The call has been taken: another may come.
    std::function<void()> accept_next;
    // Or how the call ends at once.
    std::function<absl::StatusOr<std::unique_ptr<MessageReceiver>>(DataCall& call)> make_receiver;
  };
  // A tag: what an operation ends with.
  struct Event {
    DataCall* call;
    void (DataCall::*happened)(bool ok);
  };

  // Waits for the next call of the server. REQUIRES: the host lives until its calls have left.
  static void Accept(const Host& host);
  // A tag came out of the completion queue.
  static void Happened(void* tag, bool ok);

  const grpc::GenericServerContext& context() const { return context_; }

  // Runs `effect` after those before it; soon, or within this call. REQUIRES: the caller holds the
  // call (a weak handle, locked), or is an effect itself.
  void Do(std::function<void()> effect);
  // The same after a while; not at all if the call has gone by then.
  void DoAfter(absl::Duration delay, std::function<void()> effect);
  // For effects, as End is: sends after what is being sent; `sent` is an effect: the transfer is
  // with gRPC as a whole. It is dropped where the stream ends before.
  void Send(wire::OutgoingTransfer transfer, std::function<void()> sent = nullptr);
  // Ends the stream after the message that is being written.
  void End(const absl::Status& status);

 private:
  // Counts the call as long as anything of it is there.
  struct Presence {
    explicit Presence(Visitors& calls) : calls(calls) { calls.Enter(); }
    ~Presence() { calls.Leave(); }
    Visitors& calls;
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

  const Presence presence_;  // goes last
  const Host& host_;
  std::shared_ptr<DataCall> self_;  // while operations are under way
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_;
  const Event accepted_, read_, written_, finished_, gone_;
  Outbox outbox_;

  // Touched by effects alone.
  int operations_ = 0;
  bool reading_ = false, writing_ = false, over_ = false, is_gone_ = false;
  std::function<void()> sent_;  // after the message that is being written
  absl::Status end_;
  grpc::ByteBuffer incoming_;
  OutgoingMessages outgoing_;
  std::unique_ptr<MessageReceiver> receiver_;
  std::shared_ptr<SilenceWatch> watch_;

  std::atomic<bool> owed_{false};  // by the peer: payload, or taking what is written
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_CALL_H_
