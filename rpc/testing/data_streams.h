// The data streams from end to end: a server whose handler the test controls, a client, and streams
// whose bytes the test chooses.
#ifndef DIVVY_RPC_TESTING_DATA_STREAMS_H_
#define DIVVY_RPC_TESTING_DATA_STREAMS_H_

#include <atomic>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "rpc/channel.h"
#include "rpc/data_buffers.h"
#include "rpc/data_client.h"
#include "rpc/data_server.h"
#include "rpc/server.h"
#include "wire/data_frames.h"

namespace divvy {

constexpr char kPull[] = "/divvy.v1.ParameterServerData/Pull",
               kCommit[] = "/divvy.v1.ParameterServerData/Commit";
constexpr Fence kFence{JobId(1), Epoch(2), Incarnation(3), SessionId(4), Incarnation(5)};
// the limit of a test that will fail
constexpr absl::Duration kPatience = absl::Seconds(60);

// Events of other threads, in order.
template <typename T>
class Happenings {
 public:
  void Add(T value) {
    MutexLock lock(mu_);
    values_.push_back(std::move(value));
    added_.NotifyAll();
  }
  // Waits for the next event.
  T Take() {
    MutexLock lock(mu_);
    const bool came =
        added_.WaitFor(mu_, kPatience, [this]() DIVVY_REQUIRES(mu_) { return !values_.empty(); });
    if (!came) {
      ADD_FAILURE() << "nothing happened";
      // The test would hang.
      std::abort();
    }
    T value = std::move(values_.front());
    values_.pop_front();
    return value;
  }
  size_t size() {
    MutexLock lock(mu_);
    return values_.size();
  }

 private:
  Mutex mu_;
  CondVar added_;
  std::deque<T> values_ DIVVY_GUARDED_BY(mu_);
};

template <typename T>
using Shared = std::shared_ptr<Happenings<T>>;
template <typename T>
Shared<T> MakeShared() {
  return std::make_shared<Happenings<T>>();
}

// A handler controlled by the test: it keeps the calls, and answers when the test says so.
class FakeHandler : public DataHandler {
 public:
  template <typename Request, typename Reply>
  struct Asked {
    Request request;
    ResultCallback<Reply> done;
  };
  struct Reservation {
    uint64_t ticket = 0;
    int64_t bytes = 0;
    std::function<void(absl::Status)> granted;
    DataMemory of = DataMemory::kRequest;
    DataClaim claim;
  };

  void Call(PullRequest request, ResultCallback<PullReply> done) override {
    pulls.Add({std::move(request), std::move(done)});
  }
  void Call(CommitRequest request, ResultCallback<CommitReply> done) override {
    if (commits_at_once)
      return done(CommitReply{false, 1, std::vector<uint64_t>(request.parts.size(), 1)});
    commits.Add({std::move(request), std::move(done)});
  }
  int64_t ReplyBytes(const PullRequest&) override { return reply_bytes; }
  absl::Status Admit(DataMethod, const Fence& fence, std::optional<int>) override {
    return fence.session == kFence.session ? absl::OkStatus()
                                           : MakeError(Reason::kSessionFenced, "no such session");
  }
  uint64_t Reserve(DataClaim claim, std::function<void(absl::Status)> granted) override {
    const uint64_t ticket = Next();
    if (grants_at_once)
      granted(claim.bytes <= limit ? absl::OkStatus() : MakeError(Reason::kInvalid, "too large"));
    else
      reservations.Add({ticket, claim.bytes, std::move(granted), claim.of, claim});
    return ticket;
  }
  void Release(DataMemory, uint64_t ticket) override { released.Add(ticket); }

  std::atomic<bool> grants_at_once{true}, commits_at_once{false};
  int64_t limit = int64_t{1} << 30;
  std::atomic<int64_t> reply_bytes{0};
  Happenings<Asked<PullRequest, PullReply>> pulls;
  Happenings<Asked<CommitRequest, CommitReply>> commits;
  Happenings<Reservation> reservations;
  Happenings<uint64_t> released;

 private:
  uint64_t Next() {
    MutexLock lock(mu_);
    return ++last_;
  }
  Mutex mu_;
  uint64_t last_ DIVVY_GUARDED_BY(mu_) = 0;
};

class DataStreamsTest : public ::testing::Test {
 protected:
  // Serves at once.
  explicit DataStreamsTest(DataServerOptions options = {}) { Serve(0, options); }
  ~DataStreamsTest() override {
    client_ = nullptr;
    server_ = nullptr;
    executor_.Stop();
  }

  void Serve(int port, DataServerOptions options = {}, ServerOptions server = {}) {
    server_ = nullptr;
    data_ = std::make_unique<DataServer>(handler_, options);
    server.address = absl::StrCat("127.0.0.1:", port);
    auto started = Server::Start(server, {}, data_.get());
    ASSERT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    channel_ = Connect();
    DataClientOptions client;
    client.shares_memory = options.shares_memory;
    client_ = DataClient::Create(channel_, executor_, client);
  }
  std::shared_ptr<grpc::Channel> Connect() {
    return MakeChannel(absl::StrCat("127.0.0.1:", server_->port()),
                       grpc::InsecureChannelCredentials());
  }

  Shared<absl::StatusOr<PullReply>> SendPull(PullRequest request = {kFence, {}}) {
    auto answer = MakeShared<absl::StatusOr<PullReply>>();
    client_->Call(std::move(request),
                  [answer](absl::StatusOr<PullReply> reply) { answer->Add(std::move(reply)); });
    return answer;
  }
  Shared<absl::StatusOr<CommitReply>> SendCommit(CommitRequest request) {
    return SendCommit(*client_, std::move(request));
  }
  static Shared<absl::StatusOr<CommitReply>> SendCommit(DataClient& client, CommitRequest request) {
    auto answer = MakeShared<absl::StatusOr<CommitReply>>();
    client.Call(std::move(request),
                [answer](absl::StatusOr<CommitReply> reply) { answer->Add(std::move(reply)); });
    return answer;
  }
  // A whole round: a client sends a commit, the handler answers OK, and the client gets the answer.
  void ExpectCommitWorks() {
    const auto answer = SendCommit(CommitOf(9, {Filled(10)}));
    handler_.commits.Take().done(CommitReply{false, 77, {1}});
    const absl::StatusOr<CommitReply> reply = answer->Take();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->applied_seq, 77u);
  }

  // Values that differ by position.
  static Tensor Filled(int64_t elements, float first = 1) {
    Tensor tensor = *Tensor::Uninitialized(DType::kFloat32, {elements});
    for (int64_t i = 0; i < elements; ++i)
      tensor.fresh_data<float>()[i] = first + static_cast<float>(i);
    return tensor;
  }
  static CommitRequest CommitOf(uint64_t entry, const std::vector<Tensor>& values) {
    CommitRequest request;
    request.fence = kFence;
    request.entry = EntryId(entry);
    for (const Tensor& value : values) {
      CommitPart part;
      part.shard = {VariableId(static_cast<uint32_t>(request.parts.size() + 1)), 0, 0};
      part.values = value;
      request.parts.push_back(std::move(part));
    }
    return request;
  }

  FakeHandler handler_;
  ThreadPoolExecutor executor_{2};
  std::unique_ptr<DataServer> data_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<DataClient> client_;
};

inline grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A stream whose every byte the test chooses. Each method blocks until its operation has ended.
class RawStream {
 public:
  // `memory` is the name of shared memory that is offered; empty: none.
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            const std::string& memory = "") {
    if (!memory.empty()) context_.AddMetadata(kMemoryMetadata, memory);
    call_ = grpc::GenericStub(channel).PrepareCall(&context_, method, &queue_);
    call_->StartCall(&call_);
    Await();
  }
  ~RawStream() {
    if (!finished_) {
      context_.TryCancel();
      Finish();
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }
  bool Write(const std::string& bytes) {
    call_->Write(BufferOf(bytes), &call_);
    return Await();
  }
  bool Read(grpc::ByteBuffer* message) {
    call_->Read(message, &call_);
    return Await();
  }
  // The next message. Empty: there is none.
  std::string ReadBytes() {
    grpc::ByteBuffer message;
    std::vector<grpc::Slice> slices;
    std::string bytes;
    if (!Read(&message) || !message.Dump(&slices).ok()) return bytes;
    for (const grpc::Slice& slice : slices)
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return bytes;
  }
  // Whether the server has opened the memory. REQUIRES: a message has been read.
  bool memory_is_open() const {
    return context_.GetServerInitialMetadata().count(kMemoryMetadata) > 0;
  }
  // Reads until the stream ends.
  grpc::Status Finish() {
    grpc::ByteBuffer message;
    while (Read(&message)) {
    }
    grpc::Status status;
    call_->Finish(&status, &call_);
    Await();
    finished_ = true;
    return status;
  }

 private:
  bool Await() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer>> call_;
  bool finished_ = false;
};

inline std::string Front(const v1::FrameHeader& header) { return wire::EncodeHeader(header); }

inline v1::FrameHeader PullHeader(uint64_t id) {
  return wire::ToTransfer(id, PullRequest{kFence, {}}).header;
}
inline v1::FrameHeader DataHeader(uint64_t id) {
  v1::FrameHeader header;
  header.set_request_id(id);
  header.mutable_data();
  return header;
}
inline v1::FrameHeader CommitHeader(uint64_t id, int64_t elements) {
  CommitRequest request;
  request.fence = kFence;
  request.entry = EntryId(1);
  request.parts.emplace_back();
  request.parts[0].values = *Tensor::Zeros(DType::kFloat32, {elements});
  return wire::ToTransfer(id, request).header;
}

}  // namespace divvy

#endif  // DIVVY_RPC_TESTING_DATA_STREAMS_H_
