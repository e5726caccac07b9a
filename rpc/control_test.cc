// Control calls, Steps streams and their server, over loopback without TLS (security_test.cc tests
// TLS).
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "base/once_set.h"
#include "base/process.h"
#include "base/testing/captured_log.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "proto/health.grpc.pb.h"
#include "protocol/error.h"
#include "rpc/channel.h"
#include "rpc/coordinator_client.h"
#include "rpc/parameter_client.h"
#include "rpc/server.h"
#include "rpc/steps_client.h"
#include "rpc/steps_server.h"
#include "rpc/testing/health_client.h"
#include "rpc/unary_handler.h"
#include "rpc/worker_client.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Health = grpc::health::v1::HealthCheckResponse;

// the limit for events that must happen
constexpr absl::Duration kPatience = absl::Seconds(20);

// A list of events, in order.
class Events {
 public:
  void Add(std::string event) {
    MutexLock lock(mu_);
    all_.push_back(std::move(event));
    more_.NotifyAll();
  }
  // Blocks until there are `count` events, and returns them. After kPatience it returns those that
  // there are.
  std::vector<std::string> Await(size_t count) {
    MutexLock lock(mu_);
    more_.WaitFor(mu_, kPatience, [&]() DIVVY_REQUIRES(mu_) { return all_.size() >= count; });
    return all_;
  }
  std::vector<std::string> now() { return Await(0); }

 private:
  Mutex mu_;
  CondVar more_;
  std::vector<std::string> all_ DIVVY_GUARDED_BY(mu_);
};

// A value that is set once.
template <typename T>
class Promise {
 public:
  void Set(T value) {
    MutexLock lock(mu_);
    ASSERT_FALSE(value_.has_value()) << "a second answer";
    value_ = std::move(value);
    came_.NotifyAll();
  }
  T Get() {
    MutexLock lock(mu_);
    came_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return value_.has_value(); });
    return *value_;
  }
  bool has_value() {
    MutexLock lock(mu_);
    return value_.has_value();
  }

 private:
  Mutex mu_;
  CondVar came_;
  std::optional<T> value_ DIVVY_GUARDED_BY(mu_);
};

// ---- the tasks' cores ---------------------------------------------------------------------------

// Answers as configured, or keeps the call open.
class FakeCoordinator {
 public:
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) {
    const std::optional<absl::StatusOr<RegisterReply>> answer = AnswerOrKeep(done);
    events.Add(absl::StrCat("Register ", request.index));
    if (answer) done(*answer);
  }
  void AnswerWith(absl::StatusOr<RegisterReply> answer) {
    MutexLock lock(mu_);
    answer_ = std::move(answer);
  }
  // Takes the open call.
  ResultCallback<RegisterReply> Take() {
    events.Await(1);
    MutexLock lock(mu_);
    return std::exchange(open_, nullptr);
  }

  Events events;

 private:
  std::optional<absl::StatusOr<RegisterReply>> AnswerOrKeep(
      const ResultCallback<RegisterReply>& done) {
    MutexLock lock(mu_);
    if (!answer_) open_ = done;
    return answer_;
  }

  Mutex mu_;
  std::optional<absl::StatusOr<RegisterReply>> answer_ DIVVY_GUARDED_BY(mu_);
  ResultCallback<RegisterReply> open_ DIVVY_GUARDED_BY(mu_);
};

class CoordinatorService : public v1::Coordinator::CallbackService {
 public:
  explicit CoordinatorService(const OnceSet<FakeCoordinator>& core) : core_(core) {}
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override {
    return HandleUnary("Coordinator.Register", context, core_, *request, *reply);
  }

 private:
  const OnceSet<FakeCoordinator>& core_;
};

template <typename Message>
std::string Text(const StreamFrame<Message>& frame) {
  return absl::StrCat("frame ", frame.session.value(), frame.resume ? " resume" : "", " ",
                      frame.number);
}

template <typename In>
class Listener : public StreamListener<In> {
 public:
  explicit Listener(Events& events) : events_(events) {}
  void OnFrames(std::vector<StreamFrame<In>> frames) override {
    for (const StreamFrame<In>& frame : frames) events_.Add(Text(frame));
  }
  void OnBroken() override { events_.Add("broken"); }

 private:
  Events& events_;
};

class FakeWorker : public StepsAcceptor {
 public:
  std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) override {
    connections.Set(std::move(connection));
    return std::make_shared<Listener<ToWorker>>(events);
  }

  Events events;
  // the only connection
  Promise<std::shared_ptr<StreamConnection<FromWorker>>> connections;
};

class WorkerService : public v1::Worker::CallbackService {
 public:
  WorkerService(const OnceSet<FakeWorker>& core, Executor& executor)
      : core_(core), executor_(executor) {}
  grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* Steps(
      grpc::CallbackServerContext* context) override {
    if (silence) return ServeSteps(executor_, core_.Get(), *silence);
    return HandleSteps(*context, executor_, core_);
  }

  std::optional<absl::Duration> silence;

 private:
  const OnceSet<FakeWorker>& core_;
  Executor& executor_;
};

RegisterRequest RegisterWorker(int index) {
  RegisterRequest request;
  request.role = Role::kWorker;
  request.index = index;
  request.incarnation = Incarnation(5);
  request.address = "localhost:1";
  return request;
}

ServerOptions OnLoopback() {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  return options;
}

// A server with both services, and the parts of a client.
class ControlTest : public testing::Test {
 protected:
  ControlTest()
      : executor_(2),
        open_(std::make_shared<OpenCalls>()),
        coordinator_(coordinator_core_),
        worker_(worker_core_, executor_) {
    coordinator_core_.Set(coordinator());
    worker_core_.Set(worker());
  }
  // Destroys things in the order in which a task ends: the client's calls, the server, then what
  // both use.
  ~ControlTest() override {
    open_->CancelAndWait();
    server_ = nullptr;
    executor_.Stop();
  }

  void Serve(const ServerOptions& options = OnLoopback()) {
    auto server = Server::Start(options, {&coordinator_, &worker_}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::shared_ptr<FakeCoordinator> coordinator() const { return fake_coordinator_; }
  std::shared_ptr<FakeWorker> worker() const { return fake_worker_; }
  std::string address() const {
    return socket_.empty() ? absl::StrCat("127.0.0.1:", server_->port()) : socket_;
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    return MakeChannel(address(), grpc::InsecureChannelCredentials());
  }
  CallEnvironment Environment() { return {executor_, open_, address()}; }

  using Answer = Promise<absl::StatusOr<RegisterReply>>;
  // Kept until the test ends, because the answer is written to it.
  Answer& Register(int index = 0) {
    answers_.push_back(std::make_unique<Answer>());
    Answer& answer = *answers_.back();
    const auto client =
        MakeCoordinatorClient(Environment(), [channel = Channel()] { return channel; });
    client->Call(RegisterWorker(index),
                 [&answer](absl::StatusOr<RegisterReply> reply) { answer.Set(std::move(reply)); });
    return answer;
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(absl::Duration silence = kStreamSilence) {
    return OpenStepsStream(Environment(), v1::Worker::NewStub(Channel()),
                           std::make_shared<Listener<FromWorker>>(events_), silence);
  }

  ThreadPoolExecutor executor_;
  const std::shared_ptr<OpenCalls> open_;
  const std::shared_ptr<FakeCoordinator> fake_coordinator_ = std::make_shared<FakeCoordinator>();
  const std::shared_ptr<FakeWorker> fake_worker_ = std::make_shared<FakeWorker>();
  OnceSet<FakeCoordinator> coordinator_core_;
  OnceSet<FakeWorker> worker_core_;
  CoordinatorService coordinator_;
  WorkerService worker_;
  std::unique_ptr<Server> server_;
  // "": the server listens on a port
  std::string socket_;
  std::vector<std::unique_ptr<Answer>> answers_;
  // of the client's end of Steps
  Events events_;
};

// ---- unary calls --------------------------------------------------------------------------------

TEST_F(ControlTest, TheCoresReplyArrives) {
  Serve();
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), 78});
  const absl::StatusOr<RegisterReply> reply = Register(4).Get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job, JobId(7));
  EXPECT_EQ(reply->epoch, Epoch(3));
  EXPECT_EQ(reply->over, 78);
  EXPECT_THAT(coordinator()->events.now(), ElementsAre("Register 4"));
}

TEST_F(ControlTest, ARefusalKeepsItsDetailAndItsText) {
  Serve();
  ErrorDetail detail;
  detail.reason = Reason::kStaleEpoch;
  detail.role = Role::kChief;
  detail.epoch = Epoch(12);
  coordinator()->AnswerWith(MakeError(detail, "an older epoch"));
  const absl::Status status = Register().Get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "an older epoch");
  EXPECT_EQ(DetailOf(status).reason, Reason::kStaleEpoch);
  EXPECT_EQ(DetailOf(status).epoch, Epoch(12));
}

TEST_F(ControlTest, ARefusalWithAVeryLongTextIsCutNotLost) {
  Serve();
  coordinator()->AnswerWith(MakeError(Reason::kJobOver, std::string(100'000, '%')));
  const absl::Status status = Register().Get().status();
  EXPECT_EQ(ReasonOf(status), Reason::kJobOver) << status;
  EXPECT_GT(status.message().size(), 1'000u);
  EXPECT_LE(status.message().size(), 8'192u);
}

TEST_F(ControlTest, ACallBeforeTheCoreIsThereIsNotReady) {
  coordinator_core_.Reset();
  Serve();
  EXPECT_EQ(ReasonOf(Register().Get().status()), Reason::kNotReady);
}

TEST_F(ControlTest, ACallWithoutADeadlineIsInvalid) {
  Serve();
  grpc::ClientContext context;
  v1::RegisterReply reply;
  const grpc::Status status = v1::Coordinator::NewStub(Channel())->Register(
      &context, wire::ToProto(RegisterWorker(0)), &reply);
  EXPECT_EQ(ReasonOf(FromGrpc(status, "")), Reason::kInvalid) << status.error_message();
  EXPECT_EQ(status.error_message(), "the call has no deadline: set one");
  EXPECT_THAT(coordinator()->events.now(), ElementsAre());
}

TEST_F(ControlTest, ARequestThatMakesNoSenseIsInvalidAndNeverReachesTheCore) {
  Serve();
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kPatience));
  v1::RegisterReply reply;
  const grpc::Status status =
      v1::Coordinator::NewStub(Channel())->Register(&context, v1::RegisterRequest(), &reply);
  EXPECT_EQ(ReasonOf(FromGrpc(status, "")), Reason::kInvalid) << status.error_message();
  EXPECT_THAT(coordinator()->events.now(), ElementsAre());
}

// `mib` MiB, all from one slice of memory.
grpc::ByteBuffer Zeros(int mib) {
  const grpc::Slice slice(std::string(1 << 20, '\0'));
  const std::vector<grpc::Slice> slices(static_cast<size_t>(mib), slice);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

// Sends `request` as the request of Register.
grpc::Status SendRaw(const std::shared_ptr<grpc::Channel>& channel, const grpc::ByteBuffer& request,
                     grpc_compression_algorithm compression = GRPC_COMPRESS_NONE) {
  grpc::ByteBuffer reply;
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kPatience));
  context.set_compression_algorithm(compression);
  Promise<grpc::Status> ended;
  grpc::GenericStub(channel).UnaryCall(&context, "/divvy.v1.Coordinator/Register",
                                       grpc::StubOptions(), &request, &reply,
                                       [&](grpc::Status status) { ended.Set(std::move(status)); });
  return ended.Get();
}

// A task registers the address at which it is dialled: a host or a socket. gRPC's other schemes
// must not be accepted.
TEST_F(ControlTest, AnAddressIsAHostAndNoSchemeOfGrpcs) {
  Serve();
  const auto scheme = MakeChannel(absl::StrCat("ipv4:127.0.0.1:", server_->port()),
                                  grpc::InsecureChannelCredentials());
  const grpc::Status refused = SendRaw(scheme, Zeros(1));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
}

TEST_F(ControlTest, ACallThatTheCoreDropsIsUnavailable) {
  Serve();
  Answer& answer = Register();
  // drops the call
  coordinator()->Take();
  EXPECT_EQ(answer.Get().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlTest, ADeadlineThatPassesNamesTheTaskAndALateAnswerHarmsNobody) {
  Serve();
  Answer answer;
  const std::shared_ptr<v1::Coordinator::Stub> stub = v1::Coordinator::NewStub(Channel());
  CallUnary(Environment(), stub, &v1::Coordinator::StubInterface::async_interface::Register,
            RegisterWorker(0), absl::Milliseconds(300),
            ResultCallback<RegisterReply>(
                [&](absl::StatusOr<RegisterReply> reply) { answer.Set(std::move(reply)); }));
  const ResultCallback<RegisterReply> late = coordinator()->Take();
  EXPECT_EQ(answer.Get().status(),
            absl::DeadlineExceededError(absl::StrCat(address(), " has not answered in time")));
  late(RegisterReply());
}

TEST_F(ControlTest, ATaskThatIsNotThereIsNamedWithTheCause) {
  Serve();
  const std::string gone = address();
  const auto client =
      MakeCoordinatorClient(Environment(), [channel = Channel()] { return channel; });
  server_ = nullptr;
  Answer answer;
  client->Call(RegisterWorker(0),
               [&](absl::StatusOr<RegisterReply> reply) { answer.Set(std::move(reply)); });
  EXPECT_EQ(answer.Get().status(),
            absl::UnavailableError(absl::StrCat("cannot reach ", gone,
                                                ": connection refused: nothing listens there")));
}

// A task that has been attached makes no more calls. No thread would poll a channel that the client
// kept, and gRPC would dial for it again and again (docs/adr/0010).
TEST_F(ControlTest, NoChannelOutlivesTheRegisterThatItWasMadeFor) {
  Serve();
  std::vector<std::weak_ptr<grpc::Channel>> made;
  const auto client = MakeCoordinatorClient(Environment(), [&] {
    const std::shared_ptr<grpc::Channel> channel = Channel();
    made.push_back(channel);
    return channel;
  });
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  for (int call = 1; call <= 2; ++call) {
    Answer answer;
    client->Call(RegisterWorker(0),
                 [&](absl::StatusOr<RegisterReply> reply) { answer.Set(std::move(reply)); });
    EXPECT_TRUE(answer.Get().ok());
    ASSERT_EQ(made.size(), static_cast<size_t>(call));
    // The channel is released after the answer.
    while (!made.back().expired()) std::this_thread::yield();
  }
}

TEST_F(ControlTest, AClientMayGoWhileItsCallIsOpen) {
  Serve();
  // The client is destroyed when this returns.
  Answer& answer = Register();
  EXPECT_FALSE(answer.has_value());
  coordinator()->Take()(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(answer.Get().ok());
}

TEST_F(ControlTest, ClosingCancelsWhatIsOpenAndWhatComesAfter) {
  Serve();
  Answer& open = Register();
  const ResultCallback<RegisterReply> late = coordinator()->Take();
  open_->CancelAndWait();
  EXPECT_EQ(open.Get().status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Register().Get().status().code(), absl::StatusCode::kCancelled);
  late(RegisterReply());
}

// ---- the server ---------------------------------------------------------------------------------

TEST_F(ControlTest, APortThatIsInUseIsSaidInOneLine) {
  Serve();
  ServerOptions options = OnLoopback();
  options.address = address();
  CoordinatorService second(coordinator_core_);
  const absl::Status status = Server::Start(options, {&second}, nullptr).status();
  EXPECT_EQ(status, absl::FailedPreconditionError(
                        absl::StrCat("cannot listen on ", address(),
                                     ": the port is in use: another process listens there")));
}

TEST_F(ControlTest, APortCanBeTakenAgainAtOnce) {
  Serve();
  ServerOptions options = OnLoopback();
  options.address = address();
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(Register().Get().ok());
  server_ = nullptr;
  Serve(options);
  EXPECT_TRUE(Register().Get().ok());
}

class SocketTest : public ControlTest {
 protected:
  SocketTest() {
    EXPECT_NE(mkdtemp(directory_), nullptr);
    socket_ = absl::StrCat("unix:", path());
  }
  ~SocketTest() override {
    unlink(path().c_str());
    unlink((path() + ".lock").c_str());
    rmdir(directory_);
  }
  std::string path() const { return absl::StrCat(directory_, "/ps-0"); }
  ServerOptions OnSocket() const {
    ServerOptions options;
    options.address = socket_;
    return options;
  }
  absl::Status ServeAgain() {
    CoordinatorService second(coordinator_core_);
    return Server::Start(OnSocket(), {&second}, nullptr).status();
  }

  // TEST_TMPDIR may be too long.
  char directory_[32] = "/tmp/divvy_socket_XXXXXX";
};

TEST_F(SocketTest, AServerOnAUnixSocketIsForItsUserAloneAndItsSuccessorTakesItsPlace) {
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  // The first server leaves its socket behind.
  for (int life = 0; life < 2; ++life) {
    server_ = nullptr;
    Serve(OnSocket());
    struct stat info;
    ASSERT_EQ(stat(path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_TRUE(Register().Get().ok());
  }
}

TEST_F(SocketTest, ASocketAtWhichAnotherServerListensIsLeftToIt) {
  Serve(OnSocket());
  EXPECT_THAT(std::string(ServeAgain().message()),
              HasSubstr(absl::StrCat("cannot listen on the Unix socket ", path(),
                                     ": another process listens there")));
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(Register().Get().ok());
}

TEST_F(SocketTest, AFileThatIsNoSocketIsLeftAlone) {
  const Descriptor file(::open(path().c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_TRUE(file);
  EXPECT_THAT(std::string(ServeAgain().message()),
              HasSubstr("a file stands there: remove it, or choose another path"));
  struct stat info;
  EXPECT_TRUE(stat(path().c_str(), &info) == 0 && S_ISREG(info.st_mode));
}

TEST_F(SocketTest, ADirectoryThatIsNotThereIsNamed) {
  socket_ = "unix:/no/such/directory/ps-0";
  EXPECT_THAT(
      std::string(ServeAgain().message()),
      HasSubstr(
          "cannot listen on the Unix socket /no/such/directory/ps-0: No such file or directory"));
  socket_ = absl::StrCat("unix:/", std::string(120, 'x'));
  EXPECT_THAT(std::string(ServeAgain().message()),
              HasSubstr("its path has 121 bytes; a Unix socket's has at most 107"));
}

TEST(ServerOptionsTest, SaysEveryProblemAtOnce) {
  ServerOptions options;
  options.address = "nowhere";
  options.health_address = "8080";
  options.memory_bytes = 5;
  options.max_message_bytes = 2 << 20;
  const std::string text(options.Validate().message());
  EXPECT_THAT(text, HasSubstr("the address to listen on is \"nowhere\", wanted host:port"));
  EXPECT_THAT(text, HasSubstr("--health_address is \"8080\", wanted host:port"));
  for (const char* address :
       {"127.0.0.1:80000", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:x", "unix:here"})
    EXPECT_FALSE(CheckListenAddress("it", address).ok()) << address;
  for (const char* address : {"127.0.0.1:0", "[::]:65535", "unix:/tmp/socket"})
    EXPECT_TRUE(CheckListenAddress("it", address).ok()) << address;
  EXPECT_THAT(text, HasSubstr("--rpc_memory_bytes is 5, wanted at least 8388608: the memory of 4 "
                              "of the largest messages"));
  options.max_message_bytes = int64_t{1} << 40;
  EXPECT_THAT(std::string(options.Validate().message()),
              HasSubstr("max_message_bytes is 1099511627776, wanted 1 to 256 MiB"));
}

TEST_F(ControlTest, HealthIsNotServingUntilItIsSaidToBe) {
  Serve();
  EXPECT_EQ(HealthOf(server_->port(), ""), Health::NOT_SERVING);
  server_->SetServing(true);
  EXPECT_EQ(HealthOf(server_->port(), ""), Health::SERVING);
  server_->SetServing("divvy.v1.ParameterServer", false);
  EXPECT_EQ(HealthOf(server_->port(), "divvy.v1.ParameterServer"), Health::NOT_SERVING);
  EXPECT_EQ(HealthOf(server_->port(), "unheard.of"), std::nullopt);
}

// ---- connections that are not gRPC's ------------------------------------------------------------

Descriptor Socket() { return Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }
bool Connect(const Descriptor& socket, int port, uint32_t host = INADDR_LOOPBACK) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(host);
  return connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}
Descriptor Dial(int port) {
  Descriptor connection = Socket();
  EXPECT_TRUE(Connect(connection, port));
  return connection;
}
void Say(const Descriptor& connection, absl::string_view words) {
  EXPECT_EQ(send(connection.get(), words.data(), words.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(words.size()));
}
// Whether the connection has something to read; its end counts.
bool HasNews(const Descriptor& connection, absl::Duration patience) {
  pollfd watched{connection.get(), POLLIN, 0};
  return poll(&watched, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) == 1;
}
// Everything that the peer sends before it closes.
std::string Hear(const Descriptor& connection) {
  std::string heard;
  char some[4096];
  while (HasNews(connection, kPatience)) {
    const ssize_t got = recv(connection.get(), some, sizeof(some), 0);
    if (got <= 0) return heard;
    heard.append(some, static_cast<size_t>(got));
  }
  ADD_FAILURE() << "the connection is not closed";
  return heard;
}

class ProbeTest : public ControlTest {
 protected:
  ProbeTest() {
    ServerOptions options = OnLoopback();
    options.health_address = ":0";
    Serve(options);
  }
  std::string Ask(absl::string_view request) {
    const Descriptor connection = Dial(server_->health_port());
    Say(connection, request);
    return Hear(connection);
  }
};

constexpr char kProbe[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(ProbeTest, ProbesAreToldWhetherTheTaskServes) {
  EXPECT_THAT(Ask(kProbe), AllOf(HasSubstr("HTTP/1.1 503 "), HasSubstr("\r\n\r\nnot serving\n")));
  server_->SetServing(true);
  EXPECT_THAT(Ask(kProbe),
              AllOf(HasSubstr("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 8\r\n"),
                    HasSubstr("\r\n\r\nserving\n")));
  EXPECT_THAT(Ask("HEAD / HTTP/1.0\r\n\r\n"),
              AllOf(HasSubstr("HTTP/1.1 200 OK"), Not(HasSubstr("\nserving"))));
}

// 127.0.0.2 is an address of this machine too.
constexpr uint32_t kAnotherAddress = INADDR_LOOPBACK + 1;

TEST_F(ProbeTest, WithoutAHostOnlyLoopbackIsListenedOnAndAWiderAddressIsWarnedOf) {
  EXPECT_TRUE(Connect(Socket(), server_->health_port()));
  EXPECT_FALSE(Connect(Socket(), server_->health_port(), kAnotherAddress)) << "127.0.0.1 alone";
  const auto warnings = [this](const std::string& address) {
    const CapturedLog log;
    ServerOptions options = OnLoopback();
    options.health_address = address;
    Serve(options);
    const std::string told = log.text(Severity::kWarning);
    EXPECT_EQ(Connect(Socket(), server_->health_port(), kAnotherAddress), !told.empty()) << address;
    return told;
  };
  EXPECT_THAT(warnings(":0"), testing::IsEmpty());
  EXPECT_THAT(warnings("127.0.0.1:0"), testing::IsEmpty());
  EXPECT_EQ(warnings("0.0.0.0:0"),
            "--health_address=0.0.0.0:0: everybody who reaches it is told whether this task "
            "serves, and nothing else\n");
}

TEST_F(ProbeTest, NothingElseIsAnswered) {
  EXPECT_THAT(Ask("POST / HTTP/1.1\r\n\r\n"), HasSubstr("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HasSubstr("HTTP/1.1 405 "))
      << "gRPC's parser is not for everybody";
  EXPECT_EQ(Ask(std::string(16384, 'x')), "") << "a request without an end";
  EXPECT_EQ(HealthOf(server_->health_port(), ""), std::nullopt);
}

TEST_F(ProbeTest, CallersWhoSayNothingKeepNoProbeOut) {
  std::vector<Descriptor> idle;
  for (int i = 0; i < 200; ++i) {
    idle.push_back(Dial(server_->health_port()));
    if (i % 2 == 0) Say(idle.back(), "GET / HT");
  }
  EXPECT_THAT(Ask(kProbe), HasSubstr("503"));
  EXPECT_TRUE(HasNews(idle.front(), kPatience)) << "it is kept open";
}

TEST_F(ControlTest, ConnectionsAboveTheLimitAreClosedAndThoseThatCloseMakeRoom) {
  ServerOptions options = OnLoopback();
  options.max_connections = 4;
  Serve(options);
  std::vector<Descriptor> idle;
  for (int i = 0; i < 4; ++i) {
    idle.push_back(Dial(server_->port()));
    ASSERT_TRUE(HasNews(idle.back(), kPatience)) << "the server's settings";
  }
  EXPECT_EQ(Hear(Dial(server_->port())), "");
  // retries
  const auto channel = Channel();
  idle.clear();
  EXPECT_TRUE(channel->WaitForConnected(GrpcDeadline(kPatience)));
}

// The descriptors take the place of connections.
TEST(OpenConnectionsTest, OneAddressHoldsHalfOfThemAndWhatItClosesMakesRoom) {
  using Admission = OpenConnections::Admission;
  OpenConnections open(300);
  std::vector<Descriptor> strangers, others;
  const auto admit = [&open](std::vector<Descriptor>& whose, const std::string& from,
                             absl::Duration now) {
    whose.push_back(Socket());
    return open.Admit(whose.back().get(), from, now);
  };
  for (int i = 0; i < 150; ++i)
    ASSERT_EQ(admit(strangers, "10.0.0.7", absl::Seconds(1)), Admission::kAdmitted);
  EXPECT_EQ(admit(strangers, "10.0.0.7", absl::Seconds(2)), Admission::kTooManyOfOneAddress);
  for (int i = 0; i < 75; ++i)
    ASSERT_EQ(admit(others, absl::StrCat("10.0.1.", i), absl::Seconds(3)), Admission::kAdmitted);
  strangers.erase(strangers.begin(), strangers.begin() + 10);
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(admit(strangers, "10.0.0.7", absl::Seconds(4)), Admission::kAdmitted);
  for (int i = 0; i < 75; ++i)
    ASSERT_EQ(admit(others, "", absl::Seconds(5)), Admission::kAdmitted)
        << "sockets of this machine have no address";
  EXPECT_EQ(admit(others, "", absl::Seconds(6)), Admission::kTooMany);
}

// Limits the process to the files that it has open now, and `more`.
class FewDescriptors {
 public:
  explicit FewDescriptors(int more) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(Socket().get() + more);
    setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

// gRPC 1.51's own listener would never accept a connection again.
TEST_F(ControlTest, AServerThatWasOutOfDescriptorsServesAgain) {
  Serve();
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  std::vector<Descriptor> callers;
  for (int i = 0; i < 40; ++i) callers.push_back(Socket());
  {
    const FewDescriptors few(10);
    for (const Descriptor& caller : callers) EXPECT_TRUE(Connect(caller, server_->port()));
    EXPECT_EQ(Hear(callers.back()), "") << "refused, not left waiting";
  }
  callers.clear();
  EXPECT_TRUE(Register().Get().ok());
}

TEST_F(ControlTest, ADrainLetsTheCallsUnderWayEnd) {
  Serve();
  Answer& answer = Register();
  const ResultCallback<RegisterReply> done = coordinator()->Take();
  Promise<bool> drained;
  executor_.PostBlocking("drain", [&] {
    server_->Shutdown(kPatience);
    drained.Set(true);
  });
  EXPECT_FALSE(drained.has_value());
  done(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(answer.Get().ok());
  EXPECT_TRUE(drained.Get());
}

// The core answers only after the client has got its error.
TEST_F(ControlTest, ADrainCancelsWhatTakesTooLong) {
  Serve();
  Answer& answer = Register();
  const ResultCallback<RegisterReply> done = coordinator()->Take();
  executor_.PostBlocking("answer", [&answer, done] {
    EXPECT_FALSE(answer.Get().ok());
    done(RegisterReply());
  });
  server_->Shutdown(absl::ZeroDuration());
}

TEST_F(ControlTest, AMessageAboveTheLimitIsRefusedAndTheServerServesOn) {
  ServerOptions options = OnLoopback();
  options.max_message_bytes = 1 << 20;
  Serve(options);
  EXPECT_EQ(SendRaw(Channel(), Zeros(2)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(Register().Get().ok());
}

// A megabyte of gzip could become a gigabyte of memory before any check.
TEST_F(ControlTest, ACompressedRequestIsRefusedAndNotUnpacked) {
  constexpr int kMib = 256;
  Serve();
  const int64_t before = PeakMemoryBytes();
  const grpc::Status refused = SendRaw(Channel(), Zeros(kMib), GRPC_COMPRESS_GZIP);
  EXPECT_NE(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
      << "it was unpacked to be measured: " << refused.error_message();
  EXPECT_FALSE(refused.ok());
  EXPECT_LT(PeakMemoryBytes() - before, int64_t{32} << 20);
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(Register().Get().ok());
}

// Answers every call with a compressed message of 256 MiB.
class Bomb : public grpc::CallbackGenericService {
 private:
  class Reactor : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartWriteAndFinish(&reply_, {}, grpc::Status::OK); }
    void OnDone() override { delete this; }

   private:
    const grpc::ByteBuffer reply_ = Zeros(256);
  };
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    context->set_compression_algorithm(GRPC_COMPRESS_GZIP);
    return new Reactor;
  }
};

TEST_F(ControlTest, ACompressedReplyIsRefusedAndNotUnpacked) {
  Bomb bomb;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&bomb);
  const auto server = builder.BuildAndStart();
  const int64_t before = PeakMemoryBytes();
  const grpc::Status refused = SendRaw(
      MakeChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()), Zeros(1));
  EXPECT_THAT(refused.error_message(), Not(HasSubstr("larger than max")))
      << "it was unpacked to be measured";
  EXPECT_LT(PeakMemoryBytes() - before, int64_t{32} << 20);
}

TEST_F(ControlTest, ARequestAboveTheLimitIsNotSentAndSaysWhatToDo) {
  Serve();
  LoadRequest request;
  request.from = LoadRequest::From::kCheckpoint;
  ShardSpec shard;
  shard.name = std::string(1000, 'v');
  shard.shape = shard.full_shape = {1};
  request.shards.resize(17'000, shard);
  Promise<absl::Status> answer;
  MakeParameterClient(Environment(), Channel(), Channel())
      ->Call(std::move(request),
             [&](const absl::StatusOr<LoadReply>& reply) { answer.Set(reply.status()); });
  const absl::Status refused = answer.Get();
  EXPECT_EQ(ReasonOf(refused), Reason::kInvalid) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("LoadRequest for "), HasSubstr("and a message may have 16777216"),
                    HasSubstr("fewer variables")));
}

// gRPC checks the size limit of a message only when all of it has arrived.
TEST_F(ControlTest, AMessageAboveTheMemoryOfTheServerIsRefusedAndTheServerServesOn) {
  ServerOptions options = OnLoopback();
  options.memory_bytes = 8 << 20;
  options.max_message_bytes = 2 << 20;
  Serve(options);
  EXPECT_EQ(SendRaw(Channel(), Zeros(200)).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  coordinator()->AnswerWith(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  EXPECT_TRUE(Register().Get().ok());
  EXPECT_THAT(coordinator()->events.now(), ElementsAre("Register 0"));
}

// ---- the Steps stream ---------------------------------------------------------------------------

StreamFrame<ToWorker> PingFrame(uint64_t number) {
  return {SessionId(1), false, 0, number, ToWorker(Ping{})};
}
StreamFrame<FromWorker> PongFrame(uint64_t number) {
  return {SessionId(1), false, 0, number, FromWorker(Pong{})};
}

TEST_F(ControlTest, FramesArriveInOrderBothWays) {
  Serve();
  const auto connection = OpenSteps();
  std::vector<std::string> wanted;
  for (uint64_t i = 1; i <= 200; ++i) {
    connection->Send(PingFrame(i));
    wanted.push_back(absl::StrCat("frame 1 ", i));
  }
  EXPECT_EQ(worker()->events.Await(200), wanted);
  const auto back = worker()->connections.Get();
  for (uint64_t i = 1; i <= 200; ++i) back->Send(PongFrame(i));
  EXPECT_EQ(events_.Await(200), wanted);
}

TEST_F(ControlTest, WhenTheCoordinatorClosesTheWorkerSeesItOnceAndTheCoordinatorNothing) {
  Serve();
  const auto connection = OpenSteps();
  connection->Send(PingFrame(1));
  EXPECT_THAT(worker()->events.Await(1), ElementsAre("frame 1 1"));
  connection->Close();
  EXPECT_THAT(worker()->events.Await(2), ElementsAre("frame 1 1", "broken"));
  // Nobody receives it.
  worker()->connections.Get()->Send(PongFrame(1));
  open_->CancelAndWait();
  EXPECT_THAT(events_.now(), ElementsAre());
}

TEST_F(ControlTest, AConnectionThatIsLetGoIsClosed) {
  Serve();
  auto connection = OpenSteps();
  connection->Send(PingFrame(1));
  worker()->events.Await(1);
  connection = nullptr;
  EXPECT_THAT(worker()->events.Await(2), ElementsAre("frame 1 1", "broken"));
}

TEST_F(ControlTest, WhenTheWorkerClosesTheCoordinatorSeesItOnceAndTheWorkerNothing) {
  Serve();
  const auto connection = OpenSteps();
  connection->Send(PingFrame(1));
  worker()->events.Await(1);
  worker()->connections.Get()->Send(PongFrame(1));
  EXPECT_THAT(events_.Await(1), ElementsAre("frame 1 1"));
  worker()->connections.Get()->Close();
  EXPECT_THAT(events_.Await(2), ElementsAre("frame 1 1", "broken"));
  // Nobody receives it.
  connection->Send(PingFrame(2));
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(worker()->events.now(), ElementsAre("frame 1 1"));
}

TEST_F(ControlTest, AServerThatEndsBreaksItsStreamsOnBothSides) {
  Serve();
  const auto connection = OpenSteps();
  connection->Send(PingFrame(1));
  worker()->events.Await(1);
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
  EXPECT_THAT(worker()->events.Await(2), ElementsAre("frame 1 1", "broken"));
}

TEST_F(ControlTest, AStreamToNobodyIsBroken) {
  Serve();
  const auto channel = Channel();
  server_->Shutdown(absl::ZeroDuration());
  const auto connection = OpenStepsStream(Environment(), v1::Worker::NewStub(channel),
                                          std::make_shared<Listener<FromWorker>>(events_));
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
}

TEST_F(ControlTest, AStreamToATaskThatIsStartingIsBroken) {
  worker_core_.Reset();
  Serve();
  const auto connection = OpenSteps();
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
}

TEST_F(ControlTest, AStreamOfAClosedClientIsBroken) {
  Serve();
  open_->CancelAndWait();
  const auto connection = OpenSteps();
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
  connection->Send(PingFrame(1));
  connection->Close();
}

TEST_F(ControlTest, ASilentWorkerBreaksTheStream) {
  Serve();
  const auto connection = OpenSteps(absl::Milliseconds(200));
  // The connection may break before it reaches the worker.
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
}

TEST_F(ControlTest, ASilentCoordinatorBreaksTheStream) {
  worker_.silence = absl::Milliseconds(200);
  Serve();
  const auto connection = OpenSteps();
  EXPECT_THAT(events_.Await(1), ElementsAre("broken"));
  EXPECT_THAT(worker()->events.Await(1), ElementsAre("broken"));
}

TEST_F(ControlTest, AFrameThatMakesNoSenseEndsTheStreamWithInvalid) {
  Serve();
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kPatience));
  const auto stub = v1::Worker::NewStub(Channel());
  const auto stream = stub->Steps(&context);
  v1::ToWorkerFrame frame;
  // has no step
  frame.mutable_dispatch();
  stream->Write(frame);
  v1::FromWorkerFrame answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(ReasonOf(FromGrpc(stream->Finish(), "")), Reason::kInvalid);
  EXPECT_THAT(worker()->events.Await(1), ElementsAre("broken"));
}

// ---- the log ----------------------------------------------------------------------------------

TEST(LogLimitTest, AdmitsATextOnceAndNotEveryText) {
  LogLimit limit;
  EXPECT_TRUE(limit.Admit("again"));
  EXPECT_FALSE(limit.Admit("again"));
  int admitted = 1;
  for (int i = 0; i < 5000; ++i) admitted += limit.Admit(absl::StrCat("text ", i)) ? 1 : 0;
  EXPECT_EQ(admitted, 100);
}

// protobuf would print its own line on standard error, in another format, for each such message of
// a peer.
TEST_F(ControlTest, TextThatIsNoUtf8IsToldOfInOurLogAndOnce) {
  Serve();
  const CapturedLog log;
  testing::internal::CaptureStderr();
  v1::RegisterRequest request = wire::ToProto(RegisterWorker(0));
  request.set_address("0123456789");
  std::string bytes = request.SerializeAsString();
  bytes.replace(bytes.find("0123456789"), 10, "01234\xff\x1b[2J");
  const grpc::Slice slice(bytes);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(SendRaw(Channel(), grpc::ByteBuffer(&slice, 1)).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(log.Count("UTF-8"), 1);
}

TEST(StatusTest, ACallThatAServerCancelsAsItEndsIsWorthAnother) {
  const absl::Status ended =
      FromGrpc(grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED"), "10.0.0.9:2222");
  EXPECT_TRUE(IsTransient(ended)) << ended;
  EXPECT_THAT(std::string(ended.message()), HasSubstr("10.0.0.9:2222 has ended the call"));
  const absl::Status typed =
      FromGrpc(ToGrpc(MakeError(Reason::kBatchCancelled, "another step of its batch failed")),
               "10.0.0.9:2222");
  EXPECT_TRUE(absl::IsCancelled(typed)) << "one that says why stays what it is";
}

TEST(StatusTest, AMessageThatIsTooLargeNamesThePeerAndIsNoLackOfMemory) {
  const grpc::Status refused(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "Received message larger than max (34603008 vs. 33554432)");
  EXPECT_EQ(
      FromGrpc(refused, "10.0.0.9:2222"),
      absl::InternalError("a message from or to 10.0.0.9:2222 is too large for Divvy's "
                          "protocol: check which program runs there. Received message larger than "
                          "max (34603008 vs. 33554432)"));
  const absl::Status memory =
      FromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory"), "10.0.0.9:2222");
  EXPECT_TRUE(absl::IsResourceExhausted(memory)) << memory;
}

}  // namespace
}  // namespace divvy
