#include "rpc/data_client.h"

#include <deque>
#include <functional>
#include <map>
#include <utility>

#include "base/status_macros.h"
#include "cluster/error.h"
#include "grpcpp/generic/generic_stub.h"
#include "rpc/data_buffers.h"
#include "rpc/silence_watch.h"
#include "rpc/status.h"

namespace divvy {

// A request on its way: what is sent for it, and what takes the answer.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual wire::OutgoingTransfer ToSend(uint64_t id) const = 0;
  // The next message of the answer. True: that was the last one.
  virtual absl::StatusOr<bool> OnMessage(const IncomingMessage& message) = 0;
  // Once, at the end: OK after OnMessage was true.
  virtual void Answer(Executor& executor, const absl::Status& status) = 0;
};

namespace {

const v1::PullReplyHeader* ReplyHeader(const v1::FrameHeader& header, const PullReply&) { return header.has_pull_reply() ? &header.pull_reply() : nullptr; }
const v1::CommitReplyHeader* ReplyHeader(const v1::FrameHeader& header, const CommitReply&) { return header.has_commit_reply() ? &header.commit_reply() : nullptr; }

template <typename Request, typename Reply>
class TypedExchange : public Exchange {
 public:
  TypedExchange(Request request, Callback<Reply> done) : request_(std::move(request)), done_(std::move(done)) {}

  wire::OutgoingTransfer ToSend(uint64_t id) const override { return wire::ToTransfer(id, request_); }
  absl::StatusOr<bool> OnMessage(const IncomingMessage& message) override {
    if (const auto* header = ReplyHeader(message.header, Reply())) {
      reply_ = wire::FromHeader(*header, filler_);
    } else if (!message.header.has_data()) {
      return MakeError(Reason::kInvalid, "an answer of another kind");
    }
    for (const absl::string_view piece : message.payload) RETURN_IF_ERROR(filler_.Take(piece));
    return filler_.left() == 0;
  }
  void Answer(Executor& executor, const absl::Status& status) override {
    if (!status.ok()) reply_ = status;
    executor.Post([done = std::move(done_), reply = std::move(reply_)]() mutable { done(std::move(reply)); });
  }

 private:
  const Request request_;
  Callback<Reply> done_;
  wire::PayloadFiller filler_;
  absl::StatusOr<Reply> reply_ = absl::UnknownError("");
};

}  // namespace

// Lives until gRPC is done with the call, or longer where its client still holds it.
class DataStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DataStream(Executor& executor, DataClientOptions options) : executor_(executor), options_(std::move(options)) {}

  void Start(const std::shared_ptr<DataStream>& self, const std::shared_ptr<grpc::Channel>& channel, const char* method) {
    self_ = self;
    watch_ = SilenceWatch::Start(executor_, options_.silence, [weak = std::weak_ptr<DataStream>(self)] {
      if (const auto stream = weak.lock()) stream->Cancel();   // one that owes nothing is opened again when it is needed
    });
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(), this);
    AddHold();   // sends come from outside of the reactions
    StartRead(&incoming_);
    StartCall();
  }

  // False: the stream is broken, `exchange` was left alone.
  bool Submit(std::unique_ptr<Exchange>& exchange) {
    MutexLock lock(mu_);
    if (ended_) return false;
    waiting_.push_back(std::move(exchange));
    SendNext();
    return true;
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    const absl::Status taken = ok ? OnMessage() : absl::UnavailableError("the stream is over");
    if (taken.ok()) return StartRead(&incoming_);
    context_.TryCancel();
    End();
  }
  void OnWriteDone(bool ok) override {
    MutexLock lock(mu_);
    outgoing_.pop_front();
    if (!ok || ended_) outgoing_.clear();
    if (!outgoing_.empty()) StartWrite(&outgoing_.front());
  }
  void OnDone(const grpc::Status& status) override {
    watch_->Stop();
    const absl::Status ended = FromGrpc(status, "the parameter server");
    const absl::Status why = ReasonOf(ended) != Reason::kNone ? ended : absl::UnavailableError(ended.ok() ? "the stream ended" : ended.message());
    for (auto& exchange : TakeAll()) exchange->Answer(executor_, why);
    self_.reset();
  }

 private:
  absl::Status OnMessage() {
    watch_->Heard();
    ASSIGN_OR_RETURN(const IncomingMessage message, FromMessage(incoming_));
    incoming_.Clear();
    // Only the reactions for what is read take exchanges out, one at a time, and OnDone comes after the last of them.
    Exchange* const exchange = Find(message.header.request_id());
    if (exchange == nullptr) return MakeError(Reason::kInvalid, "an answer that nobody asked for");
    ASSIGN_OR_RETURN(const bool whole, exchange->OnMessage(message));
    if (whole) TakeOut(message.header.request_id())->Answer(executor_, absl::OkStatus());
    return absl::OkStatus();
  }

  Exchange* Find(uint64_t id) {
    MutexLock lock(mu_);
    const auto found = open_.find(id);
    return found == open_.end() ? nullptr : found->second.get();
  }
  std::unique_ptr<Exchange> TakeOut(uint64_t id) {
    MutexLock lock(mu_);
    const auto found = open_.find(id);
    std::unique_ptr<Exchange> exchange = std::move(found->second);
    open_.erase(found);
    SendNext();
    return exchange;
  }
  std::vector<std::unique_ptr<Exchange>> TakeAll() {
    MutexLock lock(mu_);
    std::vector<std::unique_ptr<Exchange>> all;
    for (auto& [id, exchange] : open_) all.push_back(std::move(exchange));
    for (auto& exchange : waiting_) all.push_back(std::move(exchange));
    open_.clear();
    waiting_.clear();
    return all;
  }

  void SendNext() DIVVY_REQUIRES(mu_) {
    while (!waiting_.empty() && static_cast<int>(open_.size()) < options_.outstanding) {
      const uint64_t id = ++last_id_;
      const auto entered = open_.emplace(id, std::move(waiting_.front())).first;
      waiting_.pop_front();
      const bool idle = outgoing_.empty();
      for (grpc::ByteBuffer& message : ToMessages(entered->second->ToSend(id))) outgoing_.push_back(std::move(message));
      if (idle) StartWrite(&outgoing_.front());
    }
  }

  // No write is begun from here on, so that the call can be done.
  void End() {
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
    }
    RemoveHold();
  }

  Executor& executor_;
  const DataClientOptions options_;
  std::shared_ptr<DataStream> self_;
  std::shared_ptr<SilenceWatch> watch_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  Mutex mu_;
  std::deque<std::unique_ptr<Exchange>> waiting_ DIVVY_GUARDED_BY(mu_);
  std::map<uint64_t, std::unique_ptr<Exchange>> open_ DIVVY_GUARDED_BY(mu_);   // sent, or being sent
  std::deque<grpc::ByteBuffer> outgoing_ DIVVY_GUARDED_BY(mu_);                // the first is being written
  uint64_t last_id_ DIVVY_GUARDED_BY(mu_) = 0;
  bool ended_ DIVVY_GUARDED_BY(mu_) = false;
};

std::shared_ptr<DataClient> DataClient::Create(std::shared_ptr<grpc::Channel> channel, Executor& executor, DataClientOptions options) {
  return std::shared_ptr<DataClient>(new DataClient(std::move(channel), executor, options));
}

DataClient::~DataClient() {
  MutexLock lock(mu_);
  if (pulls_ != nullptr) pulls_->Cancel();
  if (commits_ != nullptr) commits_->Cancel();
}

void DataClient::Submit(std::shared_ptr<DataStream>& stream, const char* method, std::unique_ptr<Exchange> exchange) {
  MutexLock lock(mu_);
  if (stream != nullptr && stream->Submit(exchange)) return;
  stream = std::make_shared<DataStream>(executor_, options_);
  stream->Start(stream, channel_, method);
  if (!stream->Submit(exchange)) exchange->Answer(executor_, absl::UnavailableError("the stream could not be opened"));
}

void DataClient::Pull(PullRequest request, Callback<PullReply> done) {
  Submit(pulls_, "/divvy.v1.ParameterServerData/Pull", std::make_unique<TypedExchange<PullRequest, PullReply>>(std::move(request), std::move(done)));
}

void DataClient::Commit(CommitRequest request, Callback<CommitReply> done) {
  Submit(commits_, "/divvy.v1.ParameterServerData/Commit", std::make_unique<TypedExchange<CommitRequest, CommitReply>>(std::move(request), std::move(done)));
}

}  // namespace divvy
