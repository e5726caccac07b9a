#include "rpc/data_server.h"

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "cluster/error.h"
#include "rpc/authorization.h"
#include "rpc/data_buffers.h"
#include "rpc/status.h"

namespace divvy {
namespace {

constexpr int kOutstanding = 2;   // transfers that a stream has taken and not answered
constexpr absl::string_view kPull = "/divvy.v1.ParameterServerData/Pull", kCommit = "/divvy.v1.ParameterServerData/Commit";

// What both streams do: take messages in order, answer in any. Lives until gRPC is done with it, or longer where an answer is still being made.
class DataReactor : public grpc::ServerGenericBidiReactor {
 public:
  void Start(std::shared_ptr<DataReactor> self) {
    self_ = std::move(self);
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return FinishOnce(absl::OkStatus());
    absl::StatusOr<IncomingMessage> message = FromMessage(incoming_);
    incoming_.Clear();
    const absl::Status taken = message.ok() ? OnMessage(*std::move(message)) : message.status();
    if (!taken.ok()) FinishOnce(taken);
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    outgoing_.pop_front();
    if (!ok || finished_) outgoing_.clear();
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnCancel() override { FinishOnce(absl::CancelledError("the stream was given up")); }
  void OnDone() override {
    OnGone();
    self_.reset();
  }

 protected:
  virtual absl::Status OnMessage(IncomingMessage message) = 0;   // reads on by ReadOn, now or later
  virtual void OnGone() {}

  std::shared_ptr<DataReactor> self() const { return self_; }
  void ReadOn() {
    MutexLock lock(mu_);
    if (!finished_) StartRead(&incoming_);
  }
  void Send(const wire::OutgoingTransfer& transfer) {
    std::deque<grpc::ByteBuffer> messages = ToMessages(transfer);
    MutexLock lock(mu_);
    if (finished_) return;
    const bool idle = outgoing_.empty();
    for (grpc::ByteBuffer& message : messages) outgoing_.push_back(std::move(message));
    if (idle) StartWrite(&outgoing_.front());
  }
  void FinishOnce(const absl::Status& status) {
    {
      MutexLock lock(mu_);
      if (std::exchange(finished_, true)) return;
    }
    Finish(ToGrpc(status));
  }

  // A transfer was taken: true if there is room for another one.
  bool Took() {
    MutexLock lock(mu_);
    return ++outstanding_ < kOutstanding;
  }
  // One was answered: reads on if the stream had stopped for it.
  void Answered() {
    MutexLock lock(mu_);
    if (outstanding_-- == kOutstanding && !finished_) StartRead(&incoming_);
  }

 private:
  std::shared_ptr<DataReactor> self_;
  grpc::ByteBuffer incoming_;
  Mutex mu_;
  std::deque<grpc::ByteBuffer> outgoing_ DIVVY_GUARDED_BY(mu_);   // the first is being written
  int outstanding_ DIVVY_GUARDED_BY(mu_) = 0;
  bool finished_ DIVVY_GUARDED_BY(mu_) = false;
};

absl::Status Fill(const IncomingMessage& message, wire::PayloadFiller& filler) {
  for (const absl::string_view piece : message.payload) RETURN_IF_ERROR(filler.Take(piece));
  return absl::OkStatus();
}

absl::Status Unexpected(absl::string_view what) { return MakeError(Reason::kInvalid, absl::StrCat("a message of a data stream does not follow: ", what)); }

// A request whose payload is coming in.
template <typename Request>
struct Arriving {
  uint64_t id = 0;
  Request request;
  wire::PayloadFiller filler;
};

class PullReactor : public DataReactor {
 public:
  explicit PullReactor(DataHandler& handler) : handler_(handler) {}

 private:
  absl::Status OnMessage(IncomingMessage message) override {
    RETURN_IF_ERROR(Begin(message));
    RETURN_IF_ERROR(Fill(message, arriving_->filler));
    if (arriving_->filler.left() > 0) {
      ReadOn();
      return absl::OkStatus();
    }
    const bool room = Took();
    Ask(std::exchange(arriving_, nullptr));
    if (room) ReadOn();
    return absl::OkStatus();
  }

  absl::Status Begin(const IncomingMessage& message) {
    if (arriving_ != nullptr) return message.header.has_data() && message.header.request_id() == arriving_->id ? absl::OkStatus() : Unexpected("more payload is due");
    if (!message.header.has_pull()) return Unexpected("a pull is due");
    auto arriving = std::make_unique<Arriving<PullRequest>>();
    arriving->id = message.header.request_id();
    ASSIGN_OR_RETURN(arriving->request, wire::FromHeader(message.header.pull(), arriving->filler));
    arriving_ = std::move(arriving);
    return absl::OkStatus();
  }

  void Ask(std::unique_ptr<Arriving<PullRequest>> whole) {
    handler_.Pull(std::move(whole->request), [self = self(), this, id = whole->id](const absl::StatusOr<PullReply>& reply) {
      Send(wire::ToTransfer(id, reply));
      Answered();
    });
  }

  DataHandler& handler_;
  std::unique_ptr<Arriving<PullRequest>> arriving_;
};

class CommitReactor : public DataReactor {
 public:
  explicit CommitReactor(DataHandler& handler) : handler_(handler) {}

 private:
  // The memory of one commit, given back when the last handle goes: after the answer, or with the stream.
  struct Reservation {
    explicit Reservation(DataHandler& handler) : handler(handler) {}
    ~Reservation() {
      if (ticket != 0) handler.Release(ticket);
    }
    DataHandler& handler;
    uint64_t ticket = 0;
  };
  struct Incoming : Arriving<CommitRequest> {
    std::shared_ptr<Reservation> reservation;
  };

  absl::Status OnMessage(IncomingMessage message) override {
    if (arriving_ == nullptr) return Reserve(std::move(message));
    if (!message.header.has_data() || message.header.request_id() != arriving_->id) return Unexpected("more payload is due");
    return GoOn(message);
  }

  // Nothing more is read before the bytes are granted.
  absl::Status Reserve(IncomingMessage first) {
    if (!first.header.has_commit()) return Unexpected("a commit is due");
    const int64_t bytes = first.header.commit().total_bytes();
    if (bytes < 0) return MakeError(Reason::kInvalid, "total_bytes is negative");
    auto reservation = std::make_shared<Reservation>(handler_);
    auto held = std::make_shared<IncomingMessage>(std::move(first));
    reservation->ticket = handler_.Reserve(bytes, [weak = std::weak_ptr<DataReactor>(self()), this, reservation, held](const absl::Status& granted) {
      const std::shared_ptr<DataReactor> alive = weak.lock();
      if (alive == nullptr) return;
      const absl::Status begun = granted.ok() ? Begin(*held, reservation) : granted;
      if (!begun.ok()) FinishOnce(begun);
    });
    return absl::OkStatus();
  }

  absl::Status Begin(const IncomingMessage& first, std::shared_ptr<Reservation> reservation) {
    auto arriving = std::make_unique<Incoming>();
    arriving->id = first.header.request_id();
    arriving->reservation = std::move(reservation);
    ASSIGN_OR_RETURN(arriving->request, wire::FromHeader(first.header.commit(), arriving->filler));
    arriving_ = std::move(arriving);
    return GoOn(first);
  }

  absl::Status GoOn(const IncomingMessage& message) {
    RETURN_IF_ERROR(Fill(message, arriving_->filler));
    if (arriving_->filler.left() > 0) {
      ReadOn();
      return absl::OkStatus();
    }
    const bool room = Took();
    Ask(std::exchange(arriving_, nullptr));
    if (room) ReadOn();
    return absl::OkStatus();
  }

  void Ask(std::unique_ptr<Incoming> whole) {
    handler_.Commit(std::move(whole->request), [self = self(), this, id = whole->id, reservation = whole->reservation](const absl::StatusOr<CommitReply>& reply) {
      Send(wire::ToTransfer(id, reply));
      Answered();
    });
  }
  void OnGone() override { arriving_ = nullptr; }

  DataHandler& handler_;
  std::unique_ptr<Incoming> arriving_;
};

class Refusal : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

template <typename Reactor>
grpc::ServerGenericBidiReactor* Serve(DataHandler& handler) {
  auto reactor = std::make_shared<Reactor>(handler);
  reactor->Start(reactor);
  return reactor.get();
}

}  // namespace

void DataServer::Register(grpc::ServerBuilder& builder) { builder.RegisterCallbackGenericService(this); }

grpc::ServerGenericBidiReactor* DataServer::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const std::string& method = context->method();
  if (method != kPull && method != kCommit) return new Refusal(grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "there is no such method"));
  const absl::Status allowed = Authorize(*context->auth_context(), method == kPull ? "ParameterServerData.Pull" : "ParameterServerData.Commit");
  if (!allowed.ok()) return new Refusal(ToGrpc(allowed));
  return method == kPull ? Serve<PullReactor>(handler_) : Serve<CommitReactor>(handler_);
}

}  // namespace divvy
