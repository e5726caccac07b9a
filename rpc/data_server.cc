#include "rpc/data_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "cluster/error.h"
#include "rpc/authorization.h"
#include "rpc/data_call.h"
#include "rpc/visitors.h"

namespace divvy {

// What the streams share. Answers of the handler hold it, and may come after the server is gone.
struct DataEnvironment {
  DataEnvironment(DataHandler& handler, DataServerOptions options) : handler(handler), options(options) {}

  DataHandler& handler;
  const DataServerOptions options;
  Visitors answers;  // who enters finds the handler there until it leaves
};

namespace {

constexpr int kOutstanding = 2;       // transfers that a stream has taken and not answered
constexpr int kWaitingInSilence = 4;  // how often a peer is told that its request waits, in the time after which it would give the stream up

absl::Status DoesNotFollow(absl::string_view why) { return MakeError(Reason::kInvalid, absl::StrCat("a message of a data stream does not follow: ", why)); }

// The two methods, by their requests.
const v1::PullRequestHeader* HeaderOf(const v1::FrameHeader& header, const PullRequest&) { return header.has_pull() ? &header.pull() : nullptr; }
const v1::CommitBegin* HeaderOf(const v1::FrameHeader& header, const CommitRequest&) { return header.has_commit() ? &header.commit() : nullptr; }
constexpr absl::string_view MethodOf(const PullRequest&) { return "ParameterServerData.Pull"; }
constexpr absl::string_view MethodOf(const CommitRequest&) { return "ParameterServerData.Commit"; }
void Ask(DataHandler& handler, PullRequest request, ResultCallback<PullReply> done) { handler.Pull(std::move(request), std::move(done)); }
void Ask(DataHandler& handler, CommitRequest request, ResultCallback<CommitReply> done) { handler.Commit(std::move(request), std::move(done)); }

// One stream: header, memory, payload, question, answer.
template <typename Request, typename Reply>
class Receiver : public MessageReceiver {
 public:
  Receiver(DataCall& call, std::shared_ptr<DataEnvironment> environment) : call_(call), environment_(std::move(environment)) {}

  absl::Status OnMessage(IncomingMessage message) override {
    const uint64_t id = message.header.request_id();
    if (message.header.has_data()) {
      if (id == refused_) return absl::OkStatus();
      return arriving_ != nullptr && id == arriving_->id ? Take(message) : DoesNotFollow("payload of no transfer that is arriving");
    }
    if (HeaderOf(message.header, Request()) == nullptr) return DoesNotFollow("its kind is not of this stream");
    if (arriving_ != nullptr) return DoesNotFollow("the transfer before it is not complete");
    if (id <= last_id_) return DoesNotFollow("transfers are numbered, rising, from 1");
    last_id_ = id;
    ++outstanding_;
    return Begin(std::move(message));
  }
  bool WantsMessage() const override { return arriving_ != nullptr ? arriving_->granted : outstanding_ < kOutstanding; }
  bool OwesPayload() const override { return arriving_ != nullptr && arriving_->granted; }
  void OnOver() override { Release(); }

 private:
  struct Arriving {
    Arriving(uint64_t id, IncomingMessage first) : id(id), first(std::move(first)) {}
    const uint64_t id;
    IncomingMessage first;  // until there is memory for what it announces
    uint64_t ticket = 0;    // 0: nothing was reserved
    bool granted = false;
    Request request;
    wire::PayloadFiller filler;
  };

  absl::Status Begin(IncomingMessage first) {
    arriving_ = std::make_unique<Arriving>(first.header.request_id(), std::move(first));
    const auto& header = *HeaderOf(arriving_->first.header, Request());
    if (const absl::Status allowed = MaySpeakFor(SessionId(header.fence().session())); !allowed.ok()) return Refuse(allowed);
    const absl::StatusOr<int64_t> bytes = wire::PayloadBytes(header);
    if (!bytes.ok()) return Refuse(bytes.status());
    if (*bytes == 0) return OnGranted(absl::OkStatus());
    const auto granted = [weak = call_.weak_from_this(), this, id = arriving_->id](const absl::Status& status) {
      if (const auto call = weak.lock()) call->Do([this, id, status] { OnGrantedLater(id, status); });
    };
    arriving_->ticket = environment_->handler.Reserve(*bytes, granted);
    SayThatItWaits();
    return absl::OkStatus();
  }

  absl::Status MaySpeakFor(SessionId session) const { return AuthorizeSession(*call_.context().auth_context(), MethodOf(Request()), session); }

  // The stream may have ended since, or the transfer may be another one.
  void OnGrantedLater(uint64_t id, const absl::Status& status) {
    if (arriving_ == nullptr || arriving_->id != id) return;
    if (const absl::Status taken = OnGranted(status); !taken.ok()) call_.End(taken);
  }

  absl::Status OnGranted(const absl::Status& status) {
    if (!status.ok()) return Refuse(status);
    absl::StatusOr<Request> request = wire::FromHeader(*HeaderOf(arriving_->first.header, Request()), arriving_->filler);
    if (!request.ok()) return Refuse(request.status());
    arriving_->granted = true;
    arriving_->request = *std::move(request);
    const IncomingMessage first = std::move(arriving_->first);
    return Take(first);
  }

  absl::Status Take(const IncomingMessage& message) {
    RETURN_IF_ERROR(TakePayload(message, arriving_->filler));
    if (arriving_->filler.left() == 0) Complete(std::exchange(arriving_, nullptr));
    return absl::OkStatus();
  }

  void Complete(std::unique_ptr<Arriving> whole) {
    const auto done = [weak = call_.weak_from_this(), this, environment = environment_, id = whole->id, ticket = whole->ticket](absl::StatusOr<Reply> reply) {
      if (!environment->answers.Enter()) return;
      if (const auto call = weak.lock()) call->Do([this, id, reply = std::move(reply)] { Answer(id, reply); });
      if (ticket != 0) environment->handler.Release(ticket);
      environment->answers.Leave();
    };
    Ask(environment_->handler, std::move(whole->request), done);
  }

  // The stream goes on; payload that is still on its way is dropped.
  absl::Status Refuse(const absl::Status& why) {
    refused_ = arriving_->id;
    Release();
    Answer(refused_, why);
    return absl::OkStatus();
  }

  void Answer(uint64_t id, const absl::StatusOr<Reply>& reply) {
    call_.Send(wire::ToTransfer(id, reply), [this] { --outstanding_; });
  }

  // While a request waits for memory nothing moves that its sender could see: tells it, again and again, that it has its place in the queue.
  void SayThatItWaits() {
    if (std::exchange(says_that_it_waits_, true)) return;
    call_.DoAfter(environment_->options.silence / kWaitingInSilence, [this] {
      says_that_it_waits_ = false;
      if (arriving_ == nullptr || arriving_->granted) return;
      call_.Send(wire::ToWaiting(arriving_->id));
      SayThatItWaits();
    });
  }

  void Release() {
    if (arriving_ != nullptr && arriving_->ticket != 0) environment_->handler.Release(arriving_->ticket);
    arriving_ = nullptr;
  }

  DataCall& call_;
  const std::shared_ptr<DataEnvironment> environment_;
  std::unique_ptr<Arriving> arriving_;
  uint64_t last_id_ = 0, refused_ = 0;
  int outstanding_ = 0;
  bool says_that_it_waits_ = false;  // or will look soon whether something waits
};

constexpr absl::string_view kService = "/divvy.v1.ParameterServerData/";

}  // namespace

// A completion queue and what it needs to take calls.
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
              [environment = server.environment_](DataCall& call) { return MakeReceiver(environment, call); }} {}

  void Accept() { DataCall::Accept(host_); }
  // REQUIRES: the server has been shut down, which ends every call.
  void ShutDown() {
    calls_.Wait();
    queue_->Shutdown();
  }
  // Until the queue is shut down and empty.
  void Drain() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) DataCall::Happened(tag, ok);
  }

 private:
  static absl::StatusOr<std::unique_ptr<MessageReceiver>> MakeReceiver(const std::shared_ptr<DataEnvironment>& environment, DataCall& call) {
    absl::string_view method = call.context().method();
    if (!absl::ConsumePrefix(&method, kService) || (method != "Pull" && method != "Commit")) {
      return absl::UnimplementedError(absl::StrCat("there is no method ", call.context().method()));
    }
    RETURN_IF_ERROR(Authorize(*call.context().auth_context(), absl::StrCat("ParameterServerData.", method)));
    if (method == "Pull") return std::make_unique<Receiver<PullRequest, PullReply>>(call, environment);
    return std::make_unique<Receiver<CommitRequest, CommitReply>>(call, environment);
  }

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  Visitors calls_;
  const DataCall::Host host_;
};

DataServer::DataServer(DataHandler& handler, DataServerOptions options) : environment_(std::make_shared<DataEnvironment>(handler, options)), executor_(1) {}
DataServer::~DataServer() { Shutdown(); }

void DataServer::Register(grpc::ServerBuilder& builder) {
  builder.RegisterAsyncGenericService(&service_);
  const int threads = environment_->options.threads > 0 ? environment_->options.threads : NumCores();
  for (int i = 0; i < threads; ++i) queues_.push_back(std::make_unique<Queue>(*this, builder.AddCompletionQueue()));
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
  for (const auto& queue : queues_) queue->Drain();  // what was never started
  queues_.clear();
  environment_->answers.CloseAndWait();
}

}  // namespace divvy
