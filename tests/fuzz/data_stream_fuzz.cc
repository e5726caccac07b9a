// Sends any messages on a data stream, over a connection to a real server, with and without shared
// memory. The handler grants memory and answers at once, later or never. The stream ends, all
// granted memory is released, and the handler gets only transfers that were admitted and granted.
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "base/shared_memory.h"
#include "base/testing/fuzz.h"
#include "grpcpp/generic/generic_stub.h"
#include "protocol/error.h"
#include "rpc/data_buffers.h"
#include "rpc/data_server.h"
#include "tests/fuzz/choices.h"
#include "tests/fuzz/raw_server.h"
#include "wire/data_frames.h"
#include "wire/testing/frames.h"

namespace divvy {
namespace {

constexpr Fence kFence{JobId(1), Epoch(2), Incarnation(3), SessionId(4), Incarnation(5)};
constexpr int64_t kMostBytes = 1 << 20;  // in one transfer
constexpr int64_t kSharedBytes = 64 << 10;

bool MayCome(const Fence& fence) {
  return fence.job == kFence.job && fence.epoch == kFence.epoch && fence.session == kFence.session;
}

// A handler whose decisions follow the bits of a number.
class Handler : public DataHandler {
 public:
  // Sets the number for later decisions. REQUIRES: no transfer is open.
  void DecideBy(uint64_t bits) {
    MutexLock lock(mu_);
    bits_ = bits;
    settles_ = false;
    granted_bytes_ = 0;
  }
  // Grants and answers all that is open, and from now on everything at once.
  void Settle() {
    std::vector<std::function<void()>> open;
    {
      MutexLock lock(mu_);
      settles_ = true;
      open.swap(open_);
    }
    for (const auto& one : open) one();
  }
  // Waits until no memory is held.
  void AwaitRelease() {
    MutexLock lock(mu_);
    const bool all =
        changed_.WaitFor(mu_, fuzz::kHang, [this]() DIVVY_REQUIRES(mu_) { return held_ == 0; });
    fuzz::Require(all, "memory was not released");
  }

  absl::Status Admit(DataMethod, const Fence& fence, std::optional<int>) override {
    return MayCome(fence) ? absl::OkStatus() : MakeError(Reason::kSessionFenced, "no such session");
  }
  void Call(PullRequest request, ResultCallback<PullReply> done) override {
    fuzz::Require(MayCome(request.fence), "the handler got a pull that was not admitted");
    if (request.target != nullptr) WriteTo(*request.target);
    NowOrLater([done = std::move(done)] { done(MakeError(Reason::kNotReady, "later")); });
  }
  void Call(CommitRequest request, ResultCallback<CommitReply> done) override {
    fuzz::Require(MayCome(request.fence), "the handler got a commit that was not admitted");
    int64_t bytes = 0;
    for (const CommitPart& part : request.parts) {
      bytes += part.values.size_bytes() + (part.rows ? part.rows->size_bytes() : 0);
      // Reads every byte, to find one that is not mapped.
      const Tensor values = part.arrived != nullptr ? *part.arrived->Joined() : part.values;
      bytes += part.arrived != nullptr ? values.size_bytes() : 0;
      fuzz::Require(values.size_bytes() == 0 || BitwiseEqual(values, Copy(values)),
                    "a value changes while it is read");
    }
    {
      MutexLock lock(mu_);
      fuzz::Require(bytes <= granted_bytes_ + kSharedBytes,
                    "a commit of more bytes than were granted and shared");
    }
    NowOrLater([done = std::move(done), parts = request.parts.size()] {
      done(CommitReply{false, 1, std::vector<uint64_t>(parts, 1)});
    });
  }
  int64_t ReplyBytes(const PullRequest& request) override {
    return static_cast<int64_t>(request.parts.size() % 3);
  }
  uint64_t Reserve(DataClaim claim, std::function<void(absl::Status)> granted) override {
    fuzz::Require(claim.bytes >= 0 && claim.overhead >= 0 && claim.bytes + claim.overhead > 0,
                  "memory of 0 bytes or less was requested");
    uint64_t ticket = 0;
    {
      MutexLock lock(mu_);
      ticket = ++last_;
      ++held_;
      if (claim.bytes <= kMostBytes) granted_bytes_ += claim.bytes;
    }
    NowOrLater([granted = std::move(granted), fits = claim.bytes <= kMostBytes] {
      granted(fits ? absl::OkStatus() : MakeError(Reason::kInvalid, "too large"));
    });
    return ticket;
  }
  void Release(DataMemory, uint64_t ticket) override {
    MutexLock lock(mu_);
    fuzz::Require(ticket != 0 && ticket <= last_ && held_ > 0,
                  "memory was released that was not held");
    --held_;
    changed_.NotifyAll();
  }

 private:
  static void WriteTo(PullTarget& target) {
    for (int64_t size = 1; size < 10'000; size *= 3) {
      absl::StatusOr<Tensor> there = target.Next(DType::kInt8, {size});
      if (!there.ok()) return;
      std::memset(there->fresh_data<char>(), 1, static_cast<size_t>(size));
    }
  }
  static Tensor Copy(const Tensor& values) {
    Tensor copy = *Tensor::Uninitialized(values.dtype(), values.shape());
    std::memcpy(copy.fresh_data<char>(), values.data(), static_cast<size_t>(values.size_bytes()));
    return copy;
  }
  void NowOrLater(std::function<void()> what) {
    {
      MutexLock lock(mu_);
      bits_ = bits_ >> 1 | bits_ << 63;
      if (!settles_ && bits_ >> 63 != 0) return open_.push_back(std::move(what));
    }
    what();
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<std::function<void()>> open_ DIVVY_GUARDED_BY(mu_);
  uint64_t bits_ DIVVY_GUARDED_BY(mu_) = 0, last_ DIVVY_GUARDED_BY(mu_) = 0;
  int64_t held_ DIVVY_GUARDED_BY(mu_) = 0, granted_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  bool settles_ DIVVY_GUARDED_BY(mu_) = true;
};

struct World {
  Handler handler;
  DataServer data{handler, {/*threads=*/1}};
  fuzz::RawServer server{{}, &data};
  std::shared_ptr<SharedMemory> memory = *SharedMemory::Create(kSharedBytes);
};

// ---- the sender

// Sends transfers as a client does, and now and then messages that no client sends.
class Sender {
 public:
  Sender(fuzz::Choices& choices, bool pulls) : choices_(choices), pulls_(pulls) {}

  std::vector<std::string> Messages() {
    while (!choices_.done() && all_.size() < 64) Next();
    return std::move(all_);
  }

 private:
  void Next() {
    if (choices_.Often()) return pulls_ ? Transfer<PullRequest>() : Transfer<CommitRequest>();
    switch (choices_.Below(3)) {
      case 0: return all_.push_back(Bytes());
      case 1: return all_.push_back(Payload());
      default: return pulls_ ? Transfer<CommitRequest>() : Transfer<PullRequest>();
    }
  }

  // A transfer whose fence is admitted, or not. Sometimes one of its messages is missing, or has a
  // changed byte.
  template <typename Request>
  void Transfer() {
    auto request = choices_.Any<Request>();
    if (choices_.Often()) request.fence = kFence;
    const uint64_t id = choices_.Often() ? ++last_id_ : choices_.Below(5);
    wire::OutgoingTransfer transfer = wire::ToTransfer(id, request);
    if (!choices_.Often()) NameRegion(transfer);
    std::vector<std::string> messages = wire::testing::MessagesOf(
        std::move(transfer), 1 + static_cast<int64_t>(choices_.Below(200)));
    const size_t odd = choices_.Number() % messages.size();
    if (!choices_.Often()) {
      messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(odd));
    } else if (!choices_.Often() && !messages[odd].empty()) {
      messages[odd][choices_.Number() % messages[odd].size()] =
          static_cast<char>(choices_.Below(256));
    }
    for (std::string& message : messages) all_.push_back(std::move(message));
  }
  // A region within the memory, or anywhere.
  void NameRegion(wire::OutgoingTransfer& transfer) {
    v1::FrameHeader& header = transfer.header;
    v1::Region& region = header.has_pull() ? *header.mutable_pull()->mutable_reply()
                                           : *header.mutable_commit()->mutable_payload();
    const bool within = choices_.Often();
    region.set_offset(within ? 256 * choices_.Below(256) : choices_.Number());
    region.set_bytes(within ? 32 * choices_.Below(256) : choices_.Number());
    if (header.has_commit() && choices_.Often()) transfer.payload.clear();
  }
  std::string Payload() {
    v1::FrameHeader header;
    header.set_request_id(choices_.Below(5));
    header.mutable_data();
    return wire::EncodeHeader(header) +
           std::string(choices_.Below(64), static_cast<char>(choices_.Below(3)));
  }
  std::string Bytes() {
    std::string bytes(choices_.Below(40), 0);
    for (char& byte : bytes) byte = static_cast<char>(choices_.Below(256));
    return bytes;
  }

  fuzz::Choices& choices_;
  const bool pulls_;
  uint64_t last_id_ = 0;
  std::vector<std::string> all_;
};

void Try(absl::string_view bytes) {
  static World world;
  fuzz::Choices choices(bytes);
  const bool pulls = choices.Below(4) == 0;
  uint64_t decisions = 0;
  for (int i = 0; i < 8; ++i) decisions = decisions << 8 | choices.Below(256);
  world.handler.DecideBy(decisions);

  grpc::ClientContext context;
  if (choices.Often()) context.AddMetadata(kMemoryMetadata, world.memory->name());
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = grpc::GenericStub(world.server.channel())
                        .PrepareCall(&context,
                                     pulls ? "/divvy.v1.ParameterServerData/Pull"
                                           : "/divvy.v1.ParameterServerData/Commit",
                                     &queue);
  call->StartCall(call.get());
  bool open = fuzz::Await(queue);
  for (const std::string& message : Sender(choices, pulls).Messages()) {
    if (!open) break;
    call->Write(fuzz::BufferOf(message), call.get());
    open = fuzz::Await(queue);
  }
  if (open) {
    call->WritesDone(call.get());
    fuzz::Await(queue);
  }
  world.handler.Settle();
  grpc::ByteBuffer reply;
  do {
    call->Read(&reply, call.get());
  } while (fuzz::Await(queue));
  call->Finish(&status, call.get());
  fuzz::Await(queue);
  world.handler.AwaitRelease();
  fuzz::Require(status.ok() || status.error_code() == grpc::StatusCode::INVALID_ARGUMENT,
                "a stream ends with another error than INVALID");
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
