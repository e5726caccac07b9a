#include "rpc/data_client.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "grpcpp/generic/generic_stub.h"
#include "protocol/error.h"
#include "rpc/data_buffers.h"
#include "rpc/silence_watch.h"
#include "rpc/status.h"
#include "wire/status.h"

namespace divvy {

// A request on its way: what is sent for it, and what takes the answer.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual wire::OutgoingTransfer ToSend(uint64_t id) const = 0;
  // The next message of the answer. True: that was the last one. An error: it makes no sense.
  virtual absl::StatusOr<bool> OnMessage(const IncomingMessage& message) = 0;
  // OnMessage was true. Called once, on the thread that reads the stream: a small reply is handed
  // over there, because to wake another thread takes longer than to take it in.
  virtual void Answer(Executor& executor) = 0;
  // Nothing more comes, because of `why`. Called once, instead of Answer.
  virtual void Fail(Executor& executor, const absl::Status& why) = 0;
};

namespace {

// The payload of a reply that the thread of the stream hands over itself.
constexpr int64_t kAtOnceBytes = 64 << 10;

absl::Status DoesNotFit(absl::string_view why) {
  return MakeError(Reason::kInvalid,
                   absl::StrCat("an answer on a data stream does not fit: ", why));
}

const v1::PullReplyHeader* HeaderOf(const v1::FrameHeader& header, const PullReply&) {
  return header.has_pull_reply() ? &header.pull_reply() : nullptr;
}
const v1::CommitReplyHeader* HeaderOf(const v1::FrameHeader& header, const CommitReply&) {
  return header.has_commit_reply() ? &header.commit_reply() : nullptr;
}

template <typename Request, typename Reply>
class TypedExchange : public Exchange {
 public:
  TypedExchange(Request request, ResultCallback<Reply> done)
      : request_(std::move(request)), done_(std::move(done)) {}

  wire::OutgoingTransfer ToSend(uint64_t id) const override {
    return wire::ToTransfer(id, request_);
  }

  absl::StatusOr<bool> OnMessage(const IncomingMessage& message) override {
    if (const auto* header = HeaderOf(message.header, Reply())) {
      RETURN_IF_ERROR(Begin(*header));
    } else if (!message.header.has_data() || !reply_) {
      return DoesNotFit("its kind is not the one that is due");
    }
    RETURN_IF_ERROR(TakePayload(message, filler_));
    return filler_.left() == 0;
  }

  void Answer(Executor& executor) override {
    if (payload_bytes_ <= kAtOnceBytes) return done_(*std::move(reply_));
    Post(executor, *std::move(reply_));
  }
  void Fail(Executor& executor, const absl::Status& why) override { Post(executor, why); }

 private:
  template <typename Header>
  absl::Status Begin(const Header& header) {
    if (reply_) return DoesNotFit("it begins twice");
    const absl::Status refusal = wire::FromProto(header.status());
    if (!refusal.ok()) {
      reply_ = refusal;
      return absl::OkStatus();
    }
    reply_ = wire::FromHeader(header, request_, filler_);
    payload_bytes_ = filler_.left();
    return reply_->status();
  }

  void Post(Executor& executor, absl::StatusOr<Reply> reply) {
    executor.Post(
        [done = std::move(done_), reply = std::move(reply)]() mutable { done(std::move(reply)); });
  }

  const Request request_;
  ResultCallback<Reply> done_;
  wire::PayloadFiller filler_;
  int64_t payload_bytes_ = 0;
  std::optional<absl::StatusOr<Reply>> reply_;
};

}  // namespace

// Lives until gRPC is done with the call, or longer where its client still holds it.
class DataStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DataStream(Executor& executor, const DataClientOptions& options)
      : executor_(executor), options_(options) {}

  // `first` is part of it from the start: gRPC may have ended the call before StartCall returns.
  void Start(const std::shared_ptr<DataStream>& self, const std::shared_ptr<grpc::Channel>& channel,
             const char* method, std::unique_ptr<Exchange> first) {
    self_ = self;
    const std::weak_ptr<DataStream> weak = self;
    const auto cancel = [weak] {
      if (const auto stream = weak.lock())
        stream->Break(
            absl::UnavailableError(absl::StrCat("nothing has moved on the data stream to ",
                                                stream->options_.address, " for too long")));
    };
    const auto owed = [weak] {
      const auto stream = weak.lock();
      return stream != nullptr && stream->IsOwed();
    };
    watch_ = SilenceWatch::Start(executor_, options_.silence, cancel, owed);
    if (!options_.open->Begin({self, &context_})) return OnBegunTooLate(std::move(first));
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(),
                                                        this);
    AddHold();  // sends come from outside of the reactions
    StartRead(&incoming_);
    Submit(first);
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

  // What has no answer is answered so, once gRPC has ended the call.
  void Break(const absl::Status& why) {
    {
      MutexLock lock(mu_);
      why_.Update(why);
    }
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return End();
    watch_->Heard();
    if (const absl::Status taken = OnMessage(); !taken.ok()) {
      Break(absl::UnavailableError(taken.message()));
      return End();
    }
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    watch_->Heard();
    MutexLock lock(mu_);
    writing_ = false;
    being_written_.Clear();  // lets go of the tensors
    if (!ok || ended_) outgoing_.Clear();
    WriteOn();
  }
  void OnDone(const grpc::Status& status) override {
    watch_->Stop();
    const absl::Status why = WhyEnded(status);
    for (auto& exchange : TakeAll()) exchange->Fail(executor_, why);
    const std::shared_ptr<OpenCalls> open = options_.open;
    // lets go of the call there (open_calls.h); this may be gone from here on
    executor_.Post([held = open->Take(context_), self = std::move(self_)] {});
    open->End();
  }

 private:
  absl::Status OnMessage() {
    ASSIGN_OR_RETURN(const IncomingMessage message, FromBuffer(incoming_));
    // Exchanges are taken out by the reactions to what is read alone, one at a time, and OnDone
    // comes after the last of them.
    Exchange* const exchange = Find(message.header.request_id());
    if (exchange == nullptr) return DoesNotFit("nobody asked for it");
    if (message.header.has_waiting()) return absl::OkStatus();  // it has been heard, that was all
    ASSIGN_OR_RETURN(const bool whole, exchange->OnMessage(message));
    if (whole) TakeOut(message.header.request_id())->Answer(executor_);
    return absl::OkStatus();
  }

  absl::Status WhyEnded(const grpc::Status& status) {
    MutexLock lock(mu_);
    if (!why_.ok()) return why_;
    const absl::Status ended = FromGrpc(status, options_.address);
    if (ReasonOf(ended) != Reason::kNone) return ended;
    return absl::UnavailableError(ended.ok()
                                      ? absl::StrCat(options_.address, " has ended the data stream")
                                      : std::string(ended.message()));
  }

  bool IsOwed() {
    MutexLock lock(mu_);
    return writing_ || !open_.empty();
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
    outgoing_.Drop(id);  // refused before all of it was sent
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
      outgoing_.Add(waiting_.front()->ToSend(id));
      open_.emplace(id, std::move(waiting_.front()));
      waiting_.pop_front();
    }
    WriteOn();
  }
  void WriteOn() DIVVY_REQUIRES(mu_) {
    if (writing_ || ended_ || outgoing_.empty()) return;
    writing_ = true;
    being_written_ = outgoing_.Next().bytes;
    StartWrite(&being_written_);
  }

  // No write is begun from here on, so that the call can be done.
  void End() {
    {
      MutexLock lock(mu_);
      if (std::exchange(ended_, true)) return;
    }
    RemoveHold();
  }
  void OnBegunTooLate(std::unique_ptr<Exchange> first) {
    watch_->Stop();
    first->Fail(executor_, absl::CancelledError("the client is closed"));
    {
      MutexLock lock(mu_);
      ended_ = true;
    }
    self_ = nullptr;
  }

  Executor& executor_;
  const DataClientOptions options_;
  grpc::ClientContext context_;
  std::shared_ptr<DataStream> self_;
  std::shared_ptr<SilenceWatch> watch_;
  grpc::ByteBuffer incoming_;
  Mutex mu_;
  std::deque<std::unique_ptr<Exchange>> waiting_ DIVVY_GUARDED_BY(mu_);
  std::map<uint64_t, std::unique_ptr<Exchange>> open_ DIVVY_GUARDED_BY(mu_);  // sent, or being sent
  OutgoingMessages outgoing_ DIVVY_GUARDED_BY(mu_);
  grpc::ByteBuffer being_written_ DIVVY_GUARDED_BY(mu_);
  uint64_t last_id_ DIVVY_GUARDED_BY(mu_) = 0;
  bool writing_ DIVVY_GUARDED_BY(mu_) = false, ended_ DIVVY_GUARDED_BY(mu_) = false;
  absl::Status why_ DIVVY_GUARDED_BY(mu_);  // we broke it
};

namespace {

DataClientOptions WithCalls(DataClientOptions options) {
  if (options.open == nullptr) options.open = std::make_shared<OpenCalls>();
  return options;
}

}  // namespace

DataClient::DataClient(std::shared_ptr<grpc::Channel> channel, Executor& executor,
                       DataClientOptions options)
    : channel_(std::move(channel)),
      executor_(executor),
      has_own_calls_(options.open == nullptr),
      options_(WithCalls(std::move(options))) {}

std::shared_ptr<DataClient> DataClient::Create(std::shared_ptr<grpc::Channel> channel,
                                               Executor& executor, DataClientOptions options) {
  return std::shared_ptr<DataClient>(
      new DataClient(std::move(channel), executor, std::move(options)));
}

DataClient::~DataClient() {
  for (const auto& stream : {pulls_, commits_}) {
    if (stream != nullptr) stream->Break(absl::CancelledError("the client is gone"));
  }
  if (has_own_calls_) options_.open->CancelAndWait();
}

void DataClient::Submit(Kind kind, std::unique_ptr<Exchange> exchange) {
  const char* const method = kind == Kind::kPulls ? "/divvy.v1.ParameterServerData/Pull"
                                                  : "/divvy.v1.ParameterServerData/Commit";
  MutexLock lock(mu_);
  std::shared_ptr<DataStream>& stream = kind == Kind::kPulls ? pulls_ : commits_;
  if (stream != nullptr && stream->Submit(exchange)) return;
  stream = std::make_shared<DataStream>(executor_, options_);
  stream->Start(stream, channel_, method, std::move(exchange));
}

void DataClient::Call(PullRequest request, ResultCallback<PullReply> done) {
  Submit(Kind::kPulls, std::make_unique<TypedExchange<PullRequest, PullReply>>(std::move(request),
                                                                               std::move(done)));
}

void DataClient::Call(CommitRequest request, ResultCallback<CommitReply> done) {
  Submit(Kind::kCommits, std::make_unique<TypedExchange<CommitRequest, CommitReply>>(
                             std::move(request), std::move(done)));
}

}  // namespace divvy
