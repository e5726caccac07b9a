#include "tests/e2e/rogue_server.h"

#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/server_builder.h"
#include "proto/divvy.pb.h"
#include "rpc/authorization.h"
#include "rpc/channel.h"
#include "rpc/credentials.h"
#include "rpc/status.h"
#include "tests/e2e/raw_calls.h"
#include "wire/data_frames.h"
#include "wire/messages.h"
#include "wire/testing/conversion.h"
#include "wire/testing/frames.h"

namespace divvy {
namespace {

using wire::testing::Mutated;

constexpr int64_t kMib = int64_t{1} << 20;

bool IsData(const std::string& method) { return absl::StrContains(method, "ParameterServerData"); }

std::string AnyBytes(Random& random, size_t size) {
  std::string bytes(size, 0);
  for (char& byte : bytes) byte = static_cast<char>(random.Next());
  return bytes;
}

// Mostly a status after which the caller retries. Any other one may end the job, which must then
// restart before more lies can be told.
grpc::Status AnyStatus(Random& random) {
  constexpr grpc::StatusCode kTryAgain[] = {grpc::UNAVAILABLE, grpc::DEADLINE_EXCEEDED,
                                            grpc::RESOURCE_EXHAUSTED, grpc::ABORTED,
                                            grpc::CANCELLED};
  if (random.Chance(0.1))
    return ToGrpc(wire::testing::Generator(random.Next()).Make<absl::Status>());
  return grpc::Status(kTryAgain[random.Below(std::size(kTryAgain))], "a lie");
}

// ---- data replies -------------------------------------------------------------------------------

void SpoilPart(v1::PullReplyHeader::Part& part, Random& random) {
  const int axis = part.shape_size() > 0
                       ? static_cast<int>(random.Below(static_cast<uint64_t>(part.shape_size())))
                       : -1;
  switch (random.Below(6)) {
    case 0: part.set_dtype(static_cast<v1::DType>(random.Below(16))); break;
    case 1: part.add_shape(static_cast<int64_t>(random.Below(3))); break;
    case 2: part.clear_shape(); break;
    case 3: axis >= 0 ? part.set_shape(axis, part.shape(axis) - 1) : part.add_shape(-1); break;
    case 4:
      axis >= 0 ? part.set_shape(axis, part.shape(axis) + 1) : part.add_shape(int64_t{1} << 40);
      break;
    default: part.set_version(random.Next()); break;
  }
}

void SpoilReply(v1::FrameHeader& header, Random& random) {
  if (header.has_commit_reply()) {
    header.mutable_commit_reply()->ParseFromString(
        Mutated(header.commit_reply().SerializeAsString(), random));
    return;
  }
  v1::PullReplyHeader& reply = *header.mutable_pull_reply();
  const auto parts = static_cast<uint64_t>(reply.parts_size());
  const uint64_t kind = random.Below(10);
  if (kind == 0 && parts > 0) reply.mutable_parts()->RemoveLast();
  if (kind == 1) reply.add_parts()->set_dtype(v1::DT_INT64);
  if (kind > 1 && parts > 0)
    SpoilPart(*reply.mutable_parts(static_cast<int>(random.Below(parts))), random);
}

// The header has other values, and the payload may be longer or shorter.
std::string InvalidOperands(const std::string& answer, Random& random) {
  absl::string_view payload;
  absl::StatusOr<v1::FrameHeader> header = wire::testing::Opened(answer, payload);
  if (!header.ok()) return Mutated(answer, random);
  if (random.Chance(0.1)) header->set_request_id(header->request_id() + random.Below(3));
  if (!header->has_data()) SpoilReply(*header, random);
  std::string bytes(payload);
  if (random.Chance(0.2))
    bytes.resize(bytes.size() + 1 + random.Below(64), static_cast<char>(random.Next()));
  // Rarely, because the receiver waits ten seconds for the rest.
  if (random.Chance(0.02)) bytes.resize(random.Below(bytes.size() + 1));
  return wire::EncodeHeader(*header) + bytes;
}

std::string FrameOutOfTurn(Random& random) {
  v1::FrameHeader header;
  header.set_request_id(random.Below(100));
  switch (random.Below(4)) {
    case 0: header.mutable_data(); break;
    case 1: header.mutable_waiting(); break;
    case 2: header.mutable_pull(); break;
    default: header.mutable_commit_reply(); break;
  }
  return wire::EncodeHeader(header) + AnyBytes(random, random.Below(200));
}

// A reply that announces and sends much more than was requested.
Told HugeData(const std::string& answer, Random& random) {
  absl::string_view payload;
  absl::StatusOr<v1::FrameHeader> header = wire::testing::Opened(answer, payload);
  Told told;
  if (header.ok() && header->has_pull_reply()) {
    v1::PullReplyHeader& reply = *header->mutable_pull_reply();
    const bool has_parts = reply.parts_size() > 0 && random.Chance(0.8);
    v1::PullReplyHeader::Part& part = has_parts ? *reply.mutable_parts(0) : *reply.add_parts();
    part.set_dtype(v1::DT_FLOAT32);
    part.clear_shape();
    part.add_shape(random.Chance(0.5) ? int64_t{1} << 40 : 64 * kMib);
  }
  told.messages.push_back(header.ok() ? wire::EncodeHeader(*header) + std::string(payload)
                                      : answer);
  v1::FrameHeader more;
  more.set_request_id(header.ok() ? header->request_id() : 1);
  more.mutable_data();
  for (int i = 0; i < 64; ++i)
    told.messages.push_back(wire::EncodeHeader(more) + std::string(2 * kMib, 'x'));
  return told;
}

// ---- all replies --------------------------------------------------------------------------------

Told Other(const std::string& answer, Random& random) {
  Told told;
  told.ends = random.Chance(0.5);
  told.ends ? void(told.refusal = AnyStatus(random))
            : told.messages.push_back(Mutated(answer, random));
  return told;
}

Told Garbage(const std::string& method, Random& random) {
  using wire::testing::RandomBytes;
  Told told;
  std::string other = AnyBytes(random, random.Below(500));
  if (random.Chance(0.3)) other = RandomBytes<SyncReply>(random.Next());
  if (random.Chance(0.3)) other = RandomBytes<PsAttachReply>(random.Next());
  if (random.Chance(0.2)) other = std::string("\xff\xff\xff\x7f", 4) + other;  // a header of 2 GiB
  if (IsData(method) && random.Chance(0.5)) other = FrameOutOfTurn(random);
  told.messages.push_back(std::move(other));
  return told;
}

Told Huge(const std::string& method, const std::string& answer, Random& random) {
  const uint64_t kind = random.Below(3);
  if (kind == 0 && IsData(method)) return HugeData(answer, random);
  Told told;
  told.compressed = kind == 1;
  told.messages.push_back(told.compressed ? std::string(64 * kMib, 0)
                                          : AnyBytes(random, 33 * kMib));
  return told;
}

}  // namespace

const char* NameOf(Lie lie) {
  switch (lie) {
    case Lie::kNone: return "none";
    case Lie::kOther: return "other answers";
    case Lie::kUnfit: return "wrong types, shapes and sizes";
    case Lie::kGarbage: return "garbage";
    case Lie::kHalf: return "half messages";
    case Lie::kHuge: return "huge answers";
    case Lie::kSilent: return "no answers";
  }
  return "";
}

Told Instead(Lie lie, const std::string& method, const std::string& answer, Random& random) {
  Told told;
  switch (lie) {
    case Lie::kOther: return Other(answer, random);
    case Lie::kGarbage: return Garbage(method, random);
    case Lie::kHuge: return Huge(method, answer, random);
    case Lie::kUnfit:
      told.messages.push_back(IsData(method) ? InvalidOperands(answer, random)
                                             : Mutated(answer, random));
      break;
    case Lie::kHalf:
      told.messages.push_back(answer.substr(0, random.Below(answer.size() + 1))), told.ends = true;
      break;
    case Lie::kSilent: told.silent = true; break;
    case Lie::kNone: told.messages.push_back(answer); break;
  }
  return told;
}

// ---- forwarding ---------------------------------------------------------------------------------

// One call. A reactor of the server faces the caller, and a reactor of a client faces the real
// server. One SerialExecutor handles the events of both in order, so no lock is needed. The object
// deletes itself when both sides are over.
//
// The caller's messages start writes to the real server at any time. So that side is held open
// (AddHold) until the caller has sent everything, or the call is over.
class RogueServer::Call final : public grpc::ServerGenericBidiReactor {
 public:
  Call(RogueServer& rogue, grpc::GenericCallbackServerContext& context, bool may_compress)
      : rogue_(rogue),
        method_(context.method()),
        stub_(rogue.ChannelAs(
            absl::StrReplaceAll(TaskOfPeer(*context.auth_context()), {{" ", "-"}}))) {
    if (may_compress) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
    onward_.set_deadline(context.deadline());  // parameter servers refuse calls without one
    stub_.PrepareBidiStreamingCall(&onward_, method_, {}, &backend_);
    backend_.AddHold();
    backend_.StartRead(&answer_);
    backend_.StartCall();
    StartRead(&request_);
  }

 private:
  class Backend final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
   public:
    explicit Backend(Call& call) : call_(call) {}
    void OnReadDone(bool ok) override {
      call_.events_.Post([this, ok] { call_.OnAnswer(ok); });
    }
    void OnWriteDone(bool ok) override {
      call_.events_.Post([this, ok] { call_.OnPassedOn(ok); });
    }
    void OnDone(const grpc::Status& status) override {
      call_.events_.Post([this, status] { call_.OnBackendDone(status); });
    }

   private:
    Call& call_;
  };

  void OnReadDone(bool ok) override {
    events_.Post([this, ok] { OnRequest(ok); });
  }
  void OnWriteDone(bool ok) override {
    events_.Post([this, ok] { ok ? TellNext() : onward_.TryCancel(); });
  }
  void OnCancel() override {
    events_.Post([this] { End(grpc::Status(grpc::CANCELLED, "the caller has gone")); });
  }
  void OnDone() override {
    events_.Post([this] { Over(); });
  }

  // ---- from the caller to the real server ----

  void OnRequest(bool ok) {
    if (let_go_) return;
    if (ok) return backend_.StartWrite(&request_);
    backend_.StartWritesDone();
    LetGo();
  }
  void OnPassedOn(bool ok) { ok && !let_go_ ? StartRead(&request_) : LetGo(); }
  void LetGo() {
    if (!std::exchange(let_go_, true)) backend_.RemoveHold();
  }

  // ---- from the real server to the caller ----

  void OnAnswer(bool ok) {
    if (!ok || finished_) return LetGo();  // the real server's status comes next
    const std::string answer = BytesOf(answer_);
    told_ = Told();
    if (!rogue_.Lies(method_, answer, told_)) told_.messages.push_back(answer);
    next_ = 0;
    TellNext();
  }
  void TellNext() {
    if (finished_ || told_.silent) return;
    if (next_ == told_.messages.size())
      return told_.ends ? End(told_.refusal) : backend_.StartRead(&answer_);
    said_ = BufferOf(told_.messages[next_++]);
    grpc::WriteOptions options;
    if (!told_.compressed) options.set_no_compression();
    StartWrite(&said_, options);
  }
  void OnBackendDone(const grpc::Status& status) {
    if (!told_.silent || !status.ok()) End(status);
    Over();
  }
  void End(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
    onward_.TryCancel();
    LetGo();
  }
  void Over() {
    if (++over_ < 2) return;
    RogueServer& rogue = rogue_;
    delete this;
    rogue.CallIsOver();
  }

  RogueServer& rogue_;
  const std::string method_;
  grpc::GenericStub stub_;
  grpc::ClientContext onward_;
  Backend backend_{*this};
  SerialExecutor events_{rogue_.executor_};
  grpc::ByteBuffer request_, answer_, said_;
  Told told_;
  size_t next_ = 0;
  int over_ = 0;  // sides that have ended
  bool let_go_ = false, finished_ = false;
};

absl::StatusOr<std::unique_ptr<RogueServer>> RogueServer::Start(
    const HostileCertificates& certificates, Options options) {
  std::unique_ptr<RogueServer> rogue(new RogueServer(certificates, std::move(options)));
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0",
                           MakeServerCredentials(certificates.Of(rogue->options_.task)), &port);
  builder.RegisterCallbackGenericService(rogue.get());
  builder.SetMaxReceiveMessageSize(-1);
  rogue->server_ = builder.BuildAndStart();
  if (rogue->server_ == nullptr)
    return absl::InternalError("the rogue parameter server cannot listen");
  rogue->address_ = absl::StrCat("127.0.0.1:", port);
  return rogue;
}

RogueServer::RogueServer(const HostileCertificates& certificates, Options options)
    : certificates_(certificates), options_(std::move(options)), random_(options_.seed) {}

RogueServer::~RogueServer() {
  if (server_ != nullptr) server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
  MutexLock lock(mu_);
  over_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return calls_ == 0; });
}

void RogueServer::Tell(Lie lie) {
  MutexLock lock(mu_);
  lie_ = lie;
}

int64_t RogueServer::lies() const {
  MutexLock lock(mu_);
  return lies_;
}

grpc::ServerGenericBidiReactor* RogueServer::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  bool may_compress = false;
  {
    MutexLock lock(mu_);
    ++calls_;
    may_compress = lie_ == Lie::kHuge;
  }
  return new Call(*this, *context, may_compress);
}

void RogueServer::CallIsOver() {
  MutexLock lock(mu_);
  --calls_;
  over_.NotifyAll();
}

std::shared_ptr<grpc::Channel> RogueServer::ChannelAs(const std::string& member) {
  MutexLock lock(mu_);
  std::shared_ptr<grpc::Channel>& channel = channels_[member];
  if (channel == nullptr)
    channel = MakeChannel(options_.backend, MakeChannelCredentials(certificates_.Of(member), ""));
  return channel;
}

bool RogueServer::Lies(const std::string& method, const std::string& answer, Told& told) {
  MutexLock lock(mu_);
  if (lie_ == Lie::kNone || !random_.Chance(options_.rate)) return false;
  told = Instead(lie_, method, answer, random_);
  ++lies_;
  return true;
}

}  // namespace divvy
