#include "rpc/data_server.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/shared_memory.h"
#include "base/status_macros.h"
#include "protocol/error.h"
#include "rpc/active_calls.h"
#include "rpc/authorization.h"
#include "rpc/data_call.h"
#include "wire/messages.h"

namespace divvy {

// What the streams share. The handler's answers hold it, and may come after the server has been
// destroyed.
struct DataEnvironment {
  DataEnvironment(DataHandler& handler, DataServerOptions options)
      : handler(handler), options(options) {}

  DataHandler& handler;
  const DataServerOptions options;
  // A caller that has entered may use the handler until it leaves.
  ActiveCalls answers;
};

namespace {

// Memory that a stream holds or waits for. Its destructor gives it back. Not thread-safe.
class Reservation {
 public:
  Reservation(std::shared_ptr<DataEnvironment> environment, DataMemory of)
      : environment_(std::move(environment)), of_(of) {}
  Reservation(const Reservation&) = delete;
  ~Reservation() { Release(); }

  // `claim` without its purpose. REQUIRES: called once, the handler exists, and `granted` uses the
  // reservation only after this call has returned.
  void Reserve(DataClaim claim, std::function<void(absl::Status)> granted) {
    claim.of = of_;
    ticket_ = environment_->handler.Reserve(std::move(claim), std::move(granted));
  }
  void Release() {
    const uint64_t ticket = std::exchange(ticket_, 0);
    if (ticket == 0 || !environment_->answers.Enter()) return;
    environment_->handler.Release(of_, ticket);
    environment_->answers.Leave();
  }

 private:
  const std::shared_ptr<DataEnvironment> environment_;
  const DataMemory of_;
  uint64_t ticket_ = 0;
};

// The most transfers that a stream has taken and not answered.
constexpr int kOutstanding = 2;
// A header with more parts is counted in the memory of the transfer, and is dropped while the
// transfer waits.
constexpr int kManyParts = 64;
// The memory of a part: parsed, turned into a request, and processed by the handler.
constexpr int64_t kPartBytes = 1024;
// How many times a peer is told that its request waits, within the time after which it would break
// the stream.
constexpr int kWaitingInSilence = 4;

absl::Status DoesNotFollow(absl::string_view why) {
  return MakeError(Reason::kInvalid,
                   absl::StrCat("a message on the data stream is out of order: ", why));
}

// The two methods, told apart by their requests.
const v1::PullRequestHeader* HeaderOf(const v1::FrameHeader& header, const PullRequest&) {
  return header.has_pull() ? &header.pull() : nullptr;
}
const v1::CommitBegin* HeaderOf(const v1::FrameHeader& header, const CommitRequest&) {
  return header.has_commit() ? &header.commit() : nullptr;
}
constexpr DataMethod KindOf(const PullRequest&) { return DataMethod::kPull; }
constexpr DataMethod KindOf(const CommitRequest&) { return DataMethod::kCommit; }
constexpr absl::string_view MethodOf(const PullRequest&) { return "ParameterServerData.Pull"; }
constexpr absl::string_view MethodOf(const CommitRequest&) { return "ParameterServerData.Commit"; }

int64_t ReplyBytes(DataHandler& handler, const PullRequest& request) {
  return request.target != nullptr ? 0 : handler.ReplyBytes(request);
}
int64_t ReplyBytes(DataHandler&, const CommitRequest&) { return 0; }

// The region that a request names. Null: none.
const v1::Region* RegionOf(const v1::PullRequestHeader& header) {
  return header.has_reply() ? &header.reply() : nullptr;
}
const v1::Region* RegionOf(const v1::CommitBegin& header) {
  return header.has_payload() ? &header.payload() : nullptr;
}

// What the transfer needs of this server's memory.
absl::StatusOr<int64_t> BytesToReserve(const v1::PullRequestHeader& header) {
  return wire::PayloadBytes(header);
}
absl::StatusOr<int64_t> BytesToReserve(const v1::CommitBegin& header) {
  return header.has_payload() ? wire::CopiedBytes(header) : wire::PayloadBytes(header);
}

// ---- statistics ----

int64_t RowsIn(const Shape& shape) { return shape.rank() == 0 ? 1 : shape.dim(0); }
void Count(const PullReply& reply, DataOutcome& outcome) {
  for (const PullPartReply& part : reply.parts) {
    outcome.bytes += part.lent != nullptr ? part.lent->size_bytes() : part.values.size_bytes();
    outcome.rows += RowsIn(part.lent != nullptr ? part.lent->shape() : part.values.shape());
  }
}
void Count(const CommitRequest& request, DataOutcome& outcome) {
  for (const CommitPart& part : request.parts) {
    outcome.bytes +=
        part.arrived != nullptr ? part.arrived->size_bytes() : part.values.size_bytes();
    outcome.rows +=
        part.rows ? part.rows->shape().num_elements()
                  : RowsIn(part.arrived != nullptr ? part.arrived->shape() : part.values.shape());
  }
}
// What the request tells before it is carried out, and what the answer adds.
DataOutcome OutcomeOf(const PullRequest& request) {
  DataOutcome outcome{DataMethod::kPull};
  outcome.entry = request.step;
  outcome.session = request.fence.session;
  return outcome;
}
DataOutcome OutcomeOf(const CommitRequest& request) {
  DataOutcome outcome{DataMethod::kCommit};
  outcome.entry = request.entry;
  outcome.session = request.fence.session;
  Count(request, outcome);
  return outcome;
}
void AddReply(const PullReply& reply, DataOutcome& outcome) { Count(reply, outcome); }
void AddReply(const CommitReply& reply, DataOutcome& outcome) {
  outcome.duplicate = reply.duplicate;
}

absl::StatusOr<PullRequest> FromHeader(const v1::PullRequestHeader& header,
                                       std::shared_ptr<wire::Region> region,
                                       wire::PayloadFiller& filler) {
  ASSIGN_OR_RETURN(PullRequest request, wire::FromHeader(header, filler));
  for (PullPart& part : request.parts) part.may_lend = true;
  request.target = std::move(region);
  return request;
}
absl::StatusOr<CommitRequest> FromHeader(const v1::CommitBegin& header,
                                         std::shared_ptr<wire::Region> region,
                                         wire::PayloadFiller& filler) {
  filler = region != nullptr ? wire::PayloadFiller(std::move(region))
                             : wire::PayloadFiller(wire::PayloadFiller::KeptSizes());
  return wire::FromHeader(header, filler);
}

// Leaves the payload where it is, if that is the region.
void LeaveIn(const wire::Region& region, const absl::StatusOr<PullReply>& reply,
             wire::OutgoingTransfer& transfer) {
  if (!reply.ok() || !region.Holds(transfer.payload)) return;
  transfer.payload.clear();
  transfer.header.mutable_pull_reply()->set_in_region(true);
}
void LeaveIn(const wire::Region&, const absl::StatusOr<CommitReply>&, wire::OutgoingTransfer&) {}

// One stream. Each transfer passes these steps: header, memory, payload, memory for the reply, call
// of the handler, reply.
template <typename Request, typename Reply>
class Receiver : public MessageReceiver {
 public:
  // `memory` is the client's; null: it shares none.
  Receiver(DataCall& call, std::shared_ptr<DataEnvironment> environment,
           std::shared_ptr<SharedMemory> memory)
      : call_(call), environment_(std::move(environment)), memory_(std::move(memory)) {}

  absl::Status OnMessage(IncomingMessage message) override {
    const uint64_t id = message.header.request_id();
    if (message.header.has_data()) {
      if (id == refused_) return absl::OkStatus();
      if (arriving_ == nullptr || id != arriving_->id)
        return DoesNotFollow("its payload belongs to no transfer in progress");
      return message.payload.empty() ? DoesNotFollow("it is a payload message without payload")
                                     : Take(std::move(message));
    }
    if (HeaderOf(message.header, Request()) == nullptr)
      return DoesNotFollow("its kind does not belong on this stream");
    if (arriving_ != nullptr) return DoesNotFollow("the previous transfer is not complete");
    if (id <= last_id_) return DoesNotFollow("transfer numbers must rise, from 1");
    last_id_ = id;
    ++outstanding_;
    return Begin(std::move(message));
  }
  bool WantsMessage() const override {
    return arriving_ != nullptr ? arriving_->granted : outstanding_ < kOutstanding;
  }
  bool OwesPayload() const override { return arriving_ != nullptr && arriving_->granted; }
  bool HasProceeded() override {
    const auto wanted = static_cast<int64_t>(environment_->options.least_rate *
                                             absl::ToDoubleSeconds(environment_->options.silence));
    if (OwesPayload() && since_ < wanted) return false;
    since_ = 0;
    return true;
  }
  void OnOver() override {
    arriving_ = nullptr;
    waiting_.clear();
  }

 private:
  struct Arriving {
    Arriving(uint64_t id, IncomingMessage first,
             const std::shared_ptr<DataEnvironment>& environment)
        : id(id),
          first(std::move(first)),
          memory(std::make_shared<Reservation>(environment, DataMemory::kRequest)),
          reply_memory(std::make_shared<Reservation>(environment, DataMemory::kReply)) {}
    const uint64_t id;
    // kept until there is memory for the payload that it announces
    IncomingMessage first;
    const std::shared_ptr<Reservation> memory, reply_memory;
    bool granted = false;
    Request request;
    // The client's memory for this transfer. Null: none.
    std::shared_ptr<wire::Region> region;
    wire::PayloadFiller filler;
    // Clock::Elapsed when it was whole.
    absl::Duration whole_at;
  };

  absl::Status Begin(IncomingMessage first) {
    arriving_ =
        std::make_unique<Arriving>(first.header.request_id(), std::move(first), environment_);
    const auto& header = *HeaderOf(arriving_->first.header, Request());
    if (const absl::Status allowed = MayCome(header.fence()); !allowed.ok()) return Refuse(allowed);
    const absl::StatusOr<int64_t> bytes = BytesToReserve(header);
    if (!bytes.ok()) return Refuse(bytes.status());
    const bool is_large = header.parts_size() > kManyParts;
    if (*bytes == 0 && !is_large) return OnGranted(absl::OkStatus());
    DataClaim claim;
    claim.bytes = *bytes;
    if (is_large) claim.overhead = header.parts_size() * kPartBytes;
    claim.owner = OwnerOfMemory(SessionId(header.fence().session()));
    if (is_large) LetGo(arriving_->first);
    Reserve(*arriving_->memory, std::move(claim),
            [this, id = arriving_->id](const absl::Status& status) { OnGrantedLater(id, status); });
    return absl::OkStatus();
  }

  // `granted` runs as a later effect, never within this one.
  void Reserve(Reservation& memory, DataClaim claim,
               std::function<void(const absl::Status&)> granted) {
    memory.Reserve(std::move(claim), [weak = call_.weak_from_this(),
                                      granted = std::move(granted)](const absl::Status& status) {
      if (const auto call = weak.lock()) call->Do([granted, status] { granted(status); });
    });
    SayThatItWaits();
  }

  // Checked before anything is reserved: otherwise a peer without a session could hold the memory
  // of all peers that have one.
  absl::Status MayCome(const v1::Fence& from) const {
    RETURN_IF_ERROR(AuthorizeSession(*call_.context().auth_context(), MethodOf(Request()),
                                     SessionId(from.session())));
    ASSIGN_OR_RETURN(const Fence fence, wire::FromProto(from));
    return environment_->handler.Admit(KindOf(Request()), fence,
                                       WorkerOfPeer(*call_.context().auth_context()));
  }
  std::string OwnerOfMemory(SessionId session) const {
    const std::string task = TaskOfPeer(*call_.context().auth_context());
    return task.empty() ? absl::StrCat("session ", session.value()) : task;
  }

  // The stream may have ended since, or another transfer may be arriving.
  void OnGrantedLater(uint64_t id, const absl::Status& status) {
    if (arriving_ == nullptr || arriving_->id != id) return;
    if (const absl::Status taken = OnGranted(status); !taken.ok()) call_.End(taken);
  }

  absl::Status OnGranted(const absl::Status& status) {
    if (!status.ok()) return Refuse(status);
    IncomingMessage first = std::move(arriving_->first);
    // LetGo has dropped it.
    if (!HeaderOf(first.header, Request())) {
      ASSIGN_OR_RETURN(IncomingMessage again, FromBuffer(*first.whole));
      return Fill(std::move(again));
    }
    return Fill(std::move(first));
  }

  absl::Status Fill(IncomingMessage first) {
    const auto& header = *HeaderOf(first.header, Request());
    absl::StatusOr<std::shared_ptr<wire::Region>> region = Find(RegionOf(header));
    if (!region.ok()) return Refuse(region.status());
    absl::StatusOr<Request> request = FromHeader(header, *region, arriving_->filler);
    if (!request.ok()) return Refuse(request.status());
    arriving_->region = *std::move(region);
    arriving_->granted = true;
    arriving_->request = *std::move(request);
    return Take(std::move(first));
  }

  absl::StatusOr<std::shared_ptr<wire::Region>> Find(const v1::Region* named) const {
    if (named == nullptr) return nullptr;
    if (memory_ == nullptr)
      return MakeError(Reason::kInvalid, "a region of memory that is not shared");
    if (named->offset() % wire::Region::kAlignment != 0 || named->offset() > memory_->size() ||
        named->bytes() > memory_->size() - named->offset()) {
      return MakeError(
          Reason::kInvalid,
          absl::StrCat("a region of ", named->bytes(), " bytes from byte ", named->offset(),
                       " of shared memory that has ", memory_->size()));
    }
    return std::make_shared<wire::Region>(memory_->data() + named->offset(),
                                          static_cast<int64_t>(named->bytes()), memory_);
  }

  absl::Status Take(IncomingMessage message) {
    since_ += PayloadBytes(message);
    RETURN_IF_ERROR(TakePayload(std::move(message), arriving_->filler));
    if (arriving_->filler.left() == 0) Complete(std::exchange(arriving_, nullptr));
    return absl::OkStatus();
  }

  void Complete(std::unique_ptr<Arriving> whole) {
    whole->whole_at = Clock::Real().Elapsed();
    const int64_t bytes = ReplyBytes(environment_->handler, whole->request);
    if (bytes == 0) return Ask(std::move(whole));
    const uint64_t id = whole->id;
    const SessionId session = whole->request.fence.session;
    Reservation& memory = *whole->reply_memory;
    waiting_[id] = std::move(whole);
    DataClaim claim;
    claim.bytes = bytes;
    claim.owner = OwnerOfMemory(session);
    Reserve(memory, std::move(claim),
            [this, id](const absl::Status& status) { OnReplyGranted(id, status); });
  }

  // The stream may have ended since.
  void OnReplyGranted(uint64_t id, const absl::Status& status) {
    const auto found = waiting_.find(id);
    if (found == waiting_.end()) return;
    std::unique_ptr<Arriving> whole = std::move(found->second);
    waiting_.erase(found);
    if (status.ok()) return Ask(std::move(whole));
    DataOutcome outcome = OutcomeOf(whole->request);
    outcome.took = Clock::Real().Elapsed() - whole->whole_at;
    NoteRefused(std::move(outcome), status);
    Answer(id, status, nullptr, nullptr);
  }

  void NoteRefused(DataOutcome outcome, const absl::Status& why) {
    outcome.status = why;
    environment_->handler.OnAnswered(outcome);
  }

  void Ask(std::unique_ptr<Arriving> whole) {
    const auto done = [weak = call_.weak_from_this(), this, environment = environment_,
                       id = whole->id, memory = whole->memory, reply_memory = whole->reply_memory,
                       region = whole->region, asked = OutcomeOf(whole->request),
                       since = whole->whole_at](absl::StatusOr<Reply> reply) {
      if (!environment->answers.Enter()) return;
      DataOutcome outcome = asked;
      outcome.status = reply.status();
      outcome.took = Clock::Real().Elapsed() - since;
      if (reply.ok()) {
        AddReply(*reply, outcome);
        reply->served = outcome.took;
      }
      environment->handler.OnAnswered(outcome);
      if (const auto call = weak.lock())
        call->Do([this, id, reply = std::move(reply), reply_memory, region] {
          Answer(id, reply, reply_memory, region);
        });
      memory->Release();
      environment->answers.Leave();
    };
    environment_->handler.Call(std::move(whole->request), done);
  }

  // Refuses the transfer. The stream continues, and drops the payload that still arrives.
  absl::Status Refuse(const absl::Status& why) {
    refused_ = arriving_->id;
    arriving_ = nullptr;
    NoteRefused(DataOutcome{KindOf(Request())}, why);
    Answer(refused_, why, nullptr, nullptr);
    return absl::OkStatus();
  }

  // Holds the reply's memory until the reply is sent.
  void Answer(uint64_t id, const absl::StatusOr<Reply>& reply, std::shared_ptr<Reservation> memory,
              const std::shared_ptr<wire::Region>& region) {
    wire::OutgoingTransfer transfer = wire::ToTransfer(id, reply);
    if (region != nullptr) LeaveIn(*region, reply, transfer);
    call_.Send(std::move(transfer), [this, memory = std::move(memory)] { --outstanding_; });
  }

  // The number of a request that waits for memory, its own or its reply's. 0: none waits.
  uint64_t WhoWaits() const {
    if (!waiting_.empty()) return waiting_.begin()->first;
    return arriving_ != nullptr && !arriving_->granted ? arriving_->id : 0;
  }

  // While a request waits for memory, its sender sees no progress. So this tells the sender
  // repeatedly that the request is in the queue.
  void SayThatItWaits() {
    if (std::exchange(says_that_it_waits_, true)) return;
    call_.DoAfter(environment_->options.silence / kWaitingInSilence, [this] {
      says_that_it_waits_ = false;
      if (WhoWaits() == 0) return;
      call_.Send(wire::ToWaiting(WhoWaits()));
      SayThatItWaits();
    });
  }

  DataCall& call_;
  const std::shared_ptr<DataEnvironment> environment_;
  const std::shared_ptr<SharedMemory> memory_;
  std::unique_ptr<Arriving> arriving_;
  // Requests that have arrived and wait for memory for their reply.
  std::map<uint64_t, std::unique_ptr<Arriving>> waiting_;
  uint64_t last_id_ = 0, refused_ = 0;
  int outstanding_ = 0;
  // bytes of payload since HasProceeded was last true
  int64_t since_ = 0;
  // Whether a timer runs that will send the message again.
  bool says_that_it_waits_ = false;
};

constexpr absl::string_view kService = "/divvy.v1.ParameterServerData/";

}  // namespace

// A completion queue, and what is needed to take calls on it.
class DataServer::Queue {
 public:
  Queue(DataServer& server, std::unique_ptr<grpc::ServerCompletionQueue> queue)
      : queue_(std::move(queue)),
        host_{server.service_,
              *queue_,
              calls_,
              server.executor_,
              server.environment_->options.silence,
              [this] { Accept(); },
              [environment = server.environment_](DataCall& call) {
                return MakeReceiver(environment, call);
              }} {}

  void Accept() { DataCall::Accept(host_); }
  // REQUIRES: the server has been shut down, which ends every call.
  void ShutDown() {
    calls_.Wait();
    queue_->Shutdown();
  }
  // Processes events until the queue is shut down and empty.
  void Drain() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) DataCall::Happened(tag, ok);
  }

 private:
  static absl::StatusOr<std::unique_ptr<MessageReceiver>> MakeReceiver(
      const std::shared_ptr<DataEnvironment>& environment, DataCall& call) {
    absl::string_view method = call.context().method();
    if (!absl::ConsumePrefix(&method, kService) || (method != "Pull" && method != "Commit")) {
      return absl::UnimplementedError(absl::StrCat("there is no method ", call.context().method()));
    }
    RETURN_IF_ERROR(
        Authorize(*call.context().auth_context(), absl::StrCat("ParameterServerData.", method)));
    const bool is_pull = method == "Pull";
    std::shared_ptr<SharedMemory> memory =
        environment->options.shares_memory ? OpenMemory(call, is_pull) : nullptr;
    if (is_pull)
      return std::make_unique<Receiver<PullRequest, PullReply>>(call, environment,
                                                                std::move(memory));
    return std::make_unique<Receiver<CommitRequest, CommitReply>>(call, environment,
                                                                  std::move(memory));
  }
  // The memory that the client offers. Null: none that can be opened here.
  static std::shared_ptr<SharedMemory> OpenMemory(DataCall& call, bool writes) {
    const auto& metadata = call.context().client_metadata();
    const auto name = metadata.find(kMemoryMetadata);
    if (name == metadata.end()) return nullptr;
    absl::StatusOr<std::shared_ptr<SharedMemory>> memory =
        SharedMemory::Open(absl::string_view(name->second.data(), name->second.size()),
                           writes ? SharedMemory::Access::kWrite : SharedMemory::Access::kRead);
    if (!memory.ok()) return nullptr;
    call.AddInitialMetadata(kMemoryMetadata, "open");
    return *std::move(memory);
  }

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  ActiveCalls calls_;
  const DataCall::Host host_;
};

DataServer::DataServer(DataHandler& handler, DataServerOptions options)
    : environment_(std::make_shared<DataEnvironment>(handler, options)), executor_(1) {}
DataServer::~DataServer() { Shutdown(); }

void DataServer::Register(grpc::ServerBuilder& builder) {
  builder.RegisterAsyncGenericService(&service_);
  const int threads = environment_->options.threads > 0 ? environment_->options.threads
                                                        : std::max(1, NumCores() / 2);
  for (int i = 0; i < threads; ++i)
    queues_.push_back(std::make_unique<Queue>(*this, builder.AddCompletionQueue()));
}

void DataServer::Start() {
  for (const auto& queue : queues_) {
    queue->Accept();
    executor_.PostBlocking("data", [&queue = *queue] { queue.Drain(); });
  }
}

void DataServer::Shutdown() {
  for (const auto& queue : queues_) queue->ShutDown();
  executor_.Stop();
  // queues that were never started
  for (const auto& queue : queues_) queue->Drain();
  queues_.clear();
  environment_->answers.CloseAndWait();
}

}  // namespace divvy
