#include "rpc/data_client.h"

#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/memory_pool.h"
#include "base/shared_pool.h"
#include "base/status_macros.h"
#include "grpcpp/generic/generic_stub.h"
#include "protocol/error.h"
#include "rpc/data_buffers.h"
#include "rpc/silence_watch.h"
#include "rpc/status.h"
#include "wire/status.h"

namespace divvy {

// A request in flight: the transfer that is sent for it, and the receiver of its reply.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Prepares for a stream with this shared memory; null: with none. Called before ToSend, again if
  // that stream could not take the exchange.
  virtual void PlaceIn(SharedPool* memory) = 0;
  virtual wire::OutgoingTransfer ToSend(uint64_t id) const = 0;
  // Handles the next message of the reply. True: it was the last one. An error: the reply is
  // invalid.
  virtual absl::StatusOr<bool> OnMessage(IncomingMessage message) = 0;
  // Called once, after OnMessage returned true, on the thread that reads the stream. A small reply
  // is handed over there, because waking another thread takes longer than handling it.
  virtual void Answer(Executor& executor) = 0;
  // Called once, instead of Answer: nothing more arrives, because of `why`.
  virtual void Fail(Executor& executor, const absl::Status& why) = 0;
};

namespace {

// The payload of a reply that the thread of the stream hands over itself.
constexpr int64_t kAtOnceBytes = 64 << 10;
// A smaller payload takes less time on the socket than the pages of a block cost.
constexpr int64_t kLeastSharedBytes = MemoryPool::kSmallest;
// The addresses of a stream's shared memory, and how much of it is kept while nobody uses it.
constexpr size_t kSharedBytes = size_t{16} << 30, kKeptSharedBytes = size_t{256} << 20;

using SharedBlock = std::shared_ptr<SharedPool::Block>;

// The room for what lies in shared memory on behalf of a request; 0: unknown.
int64_t RoomFor(const PullRequest& request) {
  int64_t room = 0;
  for (const PullPart& part : request.parts) {
    if (part.reply_bytes < 0) return 0;
    room += wire::Region::RoomFor(part.reply_bytes);
  }
  return room;
}
int64_t RoomFor(const CommitRequest& request) {
  int64_t room = 0;
  for (const CommitPart& part : request.parts) {
    if (part.arrived != nullptr) return 0;  // only a ps has such parts
    if (part.rows) room += wire::Region::RoomFor(part.rows->size_bytes());
    room += wire::Region::RoomFor(part.values.size_bytes());
  }
  return room;
}

std::shared_ptr<wire::Region> RegionOf(const SharedBlock& block) {
  return std::make_shared<wire::Region>(block->data(), static_cast<int64_t>(block->size()), block);
}
v1::Region ToProto(const SharedPool::Block& block) {
  v1::Region region;
  region.set_offset(block.offset());
  region.set_bytes(block.size());
  return region;
}

// A pull's values will lie in the block. A commit's payload lies there from now on.
void Fill(const SharedBlock&, const PullRequest&) {}
void Fill(const SharedBlock& block, const CommitRequest& request) {
  RegionOf(block)->Fill(wire::PayloadOf(request));
}
void NameBlock(const SharedPool::Block& block, const PullRequest&,
               wire::OutgoingTransfer& transfer) {
  *transfer.header.mutable_pull()->mutable_reply() = ToProto(block);
}
void NameBlock(const SharedPool::Block& block, const CommitRequest&,
               wire::OutgoingTransfer& transfer) {
  *transfer.header.mutable_commit()->mutable_payload() = ToProto(block);
  transfer.payload.clear();
}

bool IsInRegion(const v1::PullReplyHeader& header) { return header.in_region(); }
bool IsInRegion(const v1::CommitReplyHeader&) { return false; }

absl::Status DoesNotFit(absl::string_view why) {
  return MakeError(Reason::kInvalid,
                   absl::StrCat("a reply on the data stream does not fit its request: ", why));
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

  void PlaceIn(SharedPool* memory) override {
    const int64_t room = memory == nullptr ? 0 : RoomFor(request_);
    block_ = room < kLeastSharedBytes ? nullptr : memory->Take(static_cast<size_t>(room));
    if (block_ != nullptr) divvy::Fill(block_, request_);
  }
  wire::OutgoingTransfer ToSend(uint64_t id) const override {
    wire::OutgoingTransfer transfer = wire::ToTransfer(id, request_);
    if (block_ != nullptr) NameBlock(*block_, request_, transfer);
    return transfer;
  }

  absl::StatusOr<bool> OnMessage(IncomingMessage message) override {
    if (const auto* header = HeaderOf(message.header, Reply())) {
      RETURN_IF_ERROR(Begin(*header));
    } else if (!message.header.has_data() || !reply_) {
      return DoesNotFit("its kind is not that of the request");
    }
    RETURN_IF_ERROR(TakePayload(std::move(message), filler_));
    return filler_.left() == 0;
  }

  void Answer(Executor& executor) override {
    if (payload_bytes_ <= kAtOnceBytes) return done_(*std::move(reply_));
    Post(executor, *std::move(reply_));
  }
  void Fail(Executor& executor, const absl::Status& why) override {
    // The server may still be at work in it.
    if (block_ != nullptr) block_->Abandon();
    Post(executor, why);
  }

 private:
  template <typename Header>
  absl::Status Begin(const Header& header) {
    if (reply_) return DoesNotFit("a second header arrived");
    const absl::Status refusal = wire::FromProto(header.status());
    if (!refusal.ok()) {
      reply_ = refusal;
      return absl::OkStatus();
    }
    if (IsInRegion(header)) {
      if (block_ == nullptr) return DoesNotFit("its values lie in a region that does not exist");
      filler_ = wire::PayloadFiller(RegionOf(block_));
    }
    reply_ = wire::FromHeader(header, request_, filler_);
    payload_bytes_ = IsInRegion(header) ? static_cast<int64_t>(block_->size()) : filler_.left();
    return reply_->status();
  }

  void Post(Executor& executor, absl::StatusOr<Reply> reply) {
    executor.Post(
        [done = std::move(done_), reply = std::move(reply)]() mutable { done(std::move(reply)); });
  }

  const Request request_;
  ResultCallback<Reply> done_;
  // The shared memory of this exchange. Null: there is none.
  SharedBlock block_;
  wire::PayloadFiller filler_{wire::PayloadFiller::KeptSizes()};
  int64_t payload_bytes_ = 0;
  std::optional<absl::StatusOr<Reply>> reply_;
};

}  // namespace

// Lives until gRPC is done with the call, or until the client drops it, whichever is later.
class DataStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  DataStream(Executor& executor, const DataClientOptions& options)
      : executor_(executor), options_(options) {}

  // The stream has `first` from the start, because gRPC may end the call before StartCall returns.
  void Start(const std::shared_ptr<DataStream>& self, const std::shared_ptr<grpc::Channel>& channel,
             const char* method, std::unique_ptr<Exchange> first) {
    self_ = self;
    const std::weak_ptr<DataStream> weak = self;
    const auto cancel = [weak] {
      if (const auto stream = weak.lock())
        stream->Break(absl::UnavailableError(
            absl::StrCat("nothing has moved on the data stream to ", stream->options_.address,
                         " for ", absl::FormatDuration(stream->options_.silence))));
    };
    const auto owed = [weak] {
      const auto stream = weak.lock();
      return stream != nullptr && stream->IsOwed();
    };
    watch_ = SilenceWatch::Start(executor_, options_.silence, cancel, owed);
    if (!options_.open->Begin({self, &context_})) return OnBegunTooLate(std::move(first));
    OfferMemory();
    grpc::GenericStub(channel).PrepareBidiStreamingCall(&context_, method, grpc::StubOptions(),
                                                        this);
    // Writes begin outside of gRPC's callbacks.
    AddHold();
    StartRead(&incoming_);
    Submit(first);
    StartCall();
  }

  // False: the stream is broken, and `exchange` is unchanged.
  bool Submit(std::unique_ptr<Exchange>& exchange) {
    MutexLock lock(mu_);
    if (ended_) return false;
    waiting_.push_back(std::move(exchange));
    SendNext();
    return true;
  }

  // The memory that the server has opened. Null: none.
  std::shared_ptr<SharedPool> memory() const {
    MutexLock lock(mu_);
    return memory_is_open_ && !ended_ && why_.ok() ? memory_ : nullptr;
  }

  // Ends the stream. Requests without a reply get this error once gRPC has ended the call.
  void Break(const absl::Status& why) {
    {
      MutexLock lock(mu_);
      why_.Update(why);
    }
    context_.TryCancel();
  }

  void OnReadInitialMetadataDone(bool ok) override {
    const bool is_open = ok && context_.GetServerInitialMetadata().count(kMemoryMetadata) > 0;
    std::shared_ptr<SharedPool> declined;  // unmapped without the lock
    MutexLock lock(mu_);
    memory_is_open_ = is_open && memory_ != nullptr;
    if (!memory_is_open_) declined = std::move(memory_);
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
    // releases the tensors
    being_written_.Clear();
    if (!ok || ended_) outgoing_.Clear();
    WriteOn();
  }
  void OnDone(const grpc::Status& status) override {
    watch_->Stop();
    const absl::Status why = WhyEnded(status);
    for (auto& exchange : TakeAll()) exchange->Fail(executor_, why);
    const std::shared_ptr<OpenCalls> open = options_.open;
    // This task releases the call there (open_calls.h). `this` may be destroyed from here on.
    executor_.Post([held = open->Take(context_), self = std::move(self_)] {});
    open->End();
  }

 private:
  // Before the call begins. Without memory the stream works as well.
  void OfferMemory() {
    if (!options_.shares_memory) return;
    absl::StatusOr<std::shared_ptr<SharedPool>> memory =
        SharedPool::Create(kSharedBytes, kKeptSharedBytes);
    if (!memory.ok()) return;
    context_.AddMetadata(kMemoryMetadata, (*memory)->name());
    MutexLock lock(mu_);
    memory_ = *std::move(memory);
  }

  absl::Status OnMessage() {
    ASSIGN_OR_RETURN(IncomingMessage message, FromBuffer(incoming_));
    // Only the callbacks for reads take exchanges out. They run one at a time, and OnDone comes
    // after the last of them.
    const uint64_t id = message.header.request_id();
    Exchange* const exchange = Find(id);
    if (exchange == nullptr) return DoesNotFit("no request has its number");
    // The message only shows that the server is alive.
    if (message.header.has_waiting()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const bool whole, exchange->OnMessage(std::move(message)));
    if (whole) TakeOut(id)->Answer(executor_);
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
    // It was refused before all of it was sent.
    outgoing_.Drop(id);
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

  // Starts no further write, so that the call can end.
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
  mutable Mutex mu_;
  // Offered to the server. Null: there is none, or the server cannot open it.
  std::shared_ptr<SharedPool> memory_ DIVVY_GUARDED_BY(mu_);
  bool memory_is_open_ DIVVY_GUARDED_BY(mu_) = false;
  std::deque<std::unique_ptr<Exchange>> waiting_ DIVVY_GUARDED_BY(mu_);
  // sent, or being sent
  std::map<uint64_t, std::unique_ptr<Exchange>> open_ DIVVY_GUARDED_BY(mu_);
  OutgoingMessages outgoing_ DIVVY_GUARDED_BY(mu_);
  grpc::ByteBuffer being_written_ DIVVY_GUARDED_BY(mu_);
  uint64_t last_id_ DIVVY_GUARDED_BY(mu_) = 0;
  bool writing_ DIVVY_GUARDED_BY(mu_) = false, ended_ DIVVY_GUARDED_BY(mu_) = false;
  // set if this side broke the stream
  absl::Status why_ DIVVY_GUARDED_BY(mu_);
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
    if (stream != nullptr) stream->Break(absl::CancelledError("the client was destroyed"));
  }
  if (has_own_calls_) options_.open->CancelAndWait();
}

void DataClient::Submit(Kind kind, std::unique_ptr<Exchange> exchange) {
  const char* const method = kind == Kind::kPulls ? "/divvy.v1.ParameterServerData/Pull"
                                                  : "/divvy.v1.ParameterServerData/Commit";
  std::shared_ptr<DataStream> placed;
  {
    MutexLock lock(mu_);
    placed = StreamOf(kind);
  }
  // Without the lock, because it may copy many bytes.
  const std::shared_ptr<SharedPool> memory = placed == nullptr ? nullptr : placed->memory();
  exchange->PlaceIn(memory.get());
  MutexLock lock(mu_);
  std::shared_ptr<DataStream>& stream = StreamOf(kind);
  if (stream != placed) exchange->PlaceIn(nullptr);
  if (stream != nullptr && stream->Submit(exchange)) return;
  exchange->PlaceIn(nullptr);
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
