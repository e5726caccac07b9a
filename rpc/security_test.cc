// Which peers are accepted, and what both sides log when a peer is refused.
#include <sys/stat.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "base/mutex.h"
#include "base/once_set.h"
#include "base/testing/captured_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/error.h"
#include "rpc/authorization.h"
#include "rpc/certificates.h"
#include "rpc/channel.h"
#include "rpc/coordinator_client.h"
#include "rpc/credentials.h"
#include "rpc/data_client.h"
#include "rpc/data_server.h"
#include "rpc/dialer.h"
#include "rpc/server.h"
#include "rpc/testing/pki.h"
#include "rpc/unary_handler.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// ---- which role may make which call -------------------------------------------------------------

// All methods of the protocol, and the two of the data server, which is not a gRPC service.
const std::vector<std::string>& Methods() {
  static const auto* const methods = [] {
    auto* all = new std::vector<std::string>;
    const google::protobuf::FileDescriptor& file = *v1::RegisterRequest::descriptor()->file();
    for (int i = 0; i < file.service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file.service(i);
      for (int j = 0; j < service.method_count(); ++j)
        all->push_back(absl::StrCat(service.name(), ".", service.method(j)->name()));
    }
    all->push_back("ParameterServerData.Pull");
    all->push_back("ParameterServerData.Commit");
    return all;
  }();
  return *methods;
}

std::vector<std::string> MethodsOf(absl::string_view role) {
  std::vector<std::string> allowed;
  for (const std::string& method : Methods()) {
    if (MayCall(role, method)) allowed.push_back(method);
  }
  return allowed;
}

TEST(AuthorizationTest, TheMatrixOfRolesAndCallsIsThis) {
  using Calls = std::vector<std::string>;
  EXPECT_EQ(MethodsOf("chief"),
            (Calls{"Worker.Attach", "Worker.Steps", "Worker.Shutdown", "ParameterServer.Attach",
                   "ParameterServer.Load", "ParameterServer.Sync", "ParameterServer.Snapshot",
                   "ParameterServer.CreateShards", "ParameterServer.DeleteShards",
                   "ParameterServer.Shutdown", "Admin.GetStatus", "ParameterServerData.Pull",
                   "ParameterServerData.Commit"}));
  EXPECT_EQ(MethodsOf("worker"), (Calls{"Coordinator.Register", "ParameterServerData.Pull",
                                        "ParameterServerData.Commit"}));
  EXPECT_EQ(MethodsOf("ps"), (Calls{"Coordinator.Register"}));
  EXPECT_EQ(MethodsOf("admin"), (Calls{"Admin.GetStatus", "Admin.RequestCheckpoint",
                                       "Admin.GetTableRows", "Admin.Drain", "Admin.Resize",
                                       "Admin.Rebalance", "Admin.GetTraces", "Admin.GetLogs"}));
}

TEST(AuthorizationTest, WhatIsNotListedIsDenied) {
  EXPECT_EQ(MethodsOf("evaluator"), std::vector<std::string>{});
  EXPECT_EQ(MethodsOf(""), std::vector<std::string>{});
  EXPECT_EQ(MethodsOf("Chief"), std::vector<std::string>{});
  EXPECT_FALSE(MayCall("worker", "Coordinator.RegisterAll"));
  EXPECT_FALSE(MayCall("chief", "WorkerX.Attach"));
}

TEST(AuthorizationTest, AWorkerMayNotSpeakInTheCoordinatorsSession) {
  for (const char* method : {"ParameterServerData.Pull", "ParameterServerData.Commit"}) {
    EXPECT_TRUE(MayCall("chief", absl::StrCat(method, " in session 0")));
    EXPECT_FALSE(MayCall("worker", absl::StrCat(method, " in session 0")));
  }
}

TEST(AuthorizationTest, ARoleIsReadFromItsUriAlone) {
  const auto id = ParseRoleUri("spiffe://job/worker/3");
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->domain, "job");
  EXPECT_EQ(id->task.role, "worker");
  EXPECT_EQ(id->task.index, "3");
  EXPECT_EQ(ParseRoleUri("spiffe://job-1.x/admin/jane")->task.text(), "admin jane");
  for (const char* bad :
       {"", "spiffe://", "spiffe://job/worker", "spiffe://job//3", "spiffe:///worker/3",
        "spiffe://job/worker/3/x", "https://job/worker/3", "spiffe://job/worker/3?x=1",
        "spiffe://job/worker/03", "spiffe://job/worker/-1", "spiffe://job/worker/",
        "spiffe://job/worker/ 3", "spiffe://job/worker/99999999999", "spiffe://a b/worker/3",
        "spiffe://job:1/worker/3", "spiffe://job/admin/"}) {
    EXPECT_FALSE(ParseRoleUri(bad).has_value()) << bad;
  }
}

TEST(PlaintextTest, IsForLoopbackAlone) {
  for (const char* here :
       {"localhost:1", "127.0.0.1:80", "127.9.9.9:80", "[::1]:80", "unix:/tmp/x"})
    EXPECT_TRUE(IsLoopback(here)) << here;
  for (const char* there :
       {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "ps-0:1", "localhost.example.com:1",
        "127.example.com:1", "127.0.0.1.example.com:1", ":80", ""}) {
    EXPECT_FALSE(IsLoopback(there)) << there;
  }
}

TEST(PlaintextTest, ARefusalNamesTheAddressesAndTheFlags) {
  EXPECT_TRUE(CheckPlaintext({"127.0.0.1:1", "localhost:2"}).ok());
  const absl::Status refused = CheckPlaintext({"127.0.0.1:1", "ps-0:2", "10.0.0.7:3"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "without certificates a cluster must stay on loopback, but ps-0:2, 10.0.0.7:3 are not: "
            "give --tls_cert, --tls_key and --tls_ca (divvyctl certs makes "
            "some)");
}

// ---- certificates -------------------------------------------------------------------------------

TEST(CheckTlsFilesTest, AcceptsWhatTheAuthorityHasIssued) {
  Pki pki("accepts");
  EXPECT_TRUE(CheckTlsFiles(pki.Role("worker")).ok()) << CheckTlsFiles(pki.Role("worker"));
}

TEST(CheckTlsFilesTest, SaysEveryProblemAtOnce) {
  Pki pki("problems");
  const std::string text = pki.Write("text", "no certificate\n");
  const absl::Status refused = CheckTlsFiles({text, "/no/such/key", "/no/such/ca"});
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      refused.message(),
      HasSubstr(absl::StrCat("--tls_cert=", text, ": cannot read a PEM certificate from it")));
  EXPECT_THAT(
      refused.message(),
      HasSubstr("--tls_key=/no/such/key: cannot read a PEM private key without password from it"));
  EXPECT_THAT(refused.message(),
              HasSubstr("--tls_ca=/no/such/ca: cannot read PEM certificates from it"));
}

TEST(CheckTlsFilesTest, RefusesTheKeyOfAnotherCertificate) {
  Pki pki("key");
  TlsFiles files = pki.Role("worker");
  files.key = pki.Role("ps").key;
  EXPECT_EQ(CheckTlsFiles(files).message(),
            absl::StrCat("--tls_key=", files.key, " is not the key of --tls_cert=", files.cert));
}

TEST(CheckTlsFilesTest, RefusesWhatHasExpired) {
  Pki pki("expired");
  const TlsFiles files = pki.Files("worker", pki.Issue("spiffe://test/worker/0", -absl::Hours(1)));
  EXPECT_EQ(CheckTlsFiles(files).message(),
            absl::StrCat("--tls_cert=", files.cert,
                         ": certificate has expired (checked against --tls_ca=", files.ca, ")"));
}

TEST(CheckTlsFilesTest, RefusesWhatAnotherAuthorityHasSigned) {
  Pki pki("mine"), other("other");
  TlsFiles files = pki.Role("worker");
  files.ca = other.Role("worker").ca;
  EXPECT_THAT(CheckTlsFiles(files).message(),
              HasSubstr(absl::StrCat("--tls_cert=", files.cert,
                                     ": unable to get local issuer certificate")));
}

TEST(CheckTlsFilesTest, RefusesACertificateWithoutARole) {
  Pki pki("roleless");
  EXPECT_THAT(CheckTlsFiles(pki.Files("none", pki.Issue(""))).message(),
              HasSubstr("names no role: it needs one URI spiffe://DOMAIN/ROLE/INDEX"));
  EXPECT_THAT(CheckTlsFiles(pki.Files("web", pki.Issue("https://example.com/x"))).message(),
              HasSubstr("names no role"));
}

TEST(CheckTlsFilesTest, RefusesTheCertificateOfAnotherTask) {
  Pki pki("another");
  const TlsFiles files = pki.Role("ps");
  EXPECT_TRUE(CheckTlsFiles(files, {"ps", "0"}).ok());
  EXPECT_EQ(
      CheckTlsFiles(files, {"worker", "0"}).message(),
      absl::StrCat("--tls_cert=", files.cert,
                   " is the certificate of ps 0, and this task is worker 0: give it its own"));
  EXPECT_EQ(CheckTlsFiles(files, {"ps", "1"}).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(CertificatesTest, ANameThatWouldMeanSomethingElseIsRefused) {
  Pki pki("names");
  for (const char* host : {"", "a,DNS:b", "a b", "a\nb", "a;b"}) {
    const auto made =
        IssueCertificate(pki.authority(), {"spiffe://test/ps/0", {host}, absl::Hours(1)});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument) << host;
  }
}

// ---- connections --------------------------------------------------------------------------------

struct FakeCoordinator {
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done) {
    done(RegisterReply{JobId(7), Epoch(3), std::nullopt});
  }
};

class Service : public v1::Coordinator::CallbackService {
 public:
  Service() { core_.Set(std::make_shared<FakeCoordinator>()); }
  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override {
    return HandleUnary("Coordinator.Register", context, core_, *request, *reply);
  }

 private:
  OnceSet<FakeCoordinator> core_;
};

RegisterRequest ARequest() {
  RegisterRequest request;
  request.role = Role::kWorker;
  request.incarnation = Incarnation(5);
  request.address = "localhost:1";
  return request;
}

class TlsTest : public testing::Test {
 protected:
  TlsTest() : pki_("tls"), executor_(2), open_(std::make_shared<OpenCalls>()) {}
  ~TlsTest() override { open_->CancelAndWait(); }

  void Serve(const TlsFiles& files) {
    auto server = Server::Start(Options(files), {&service_}, nullptr);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  static ServerOptions Options(const TlsFiles& files) {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    options.tls = files;
    return options;
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

  // The status of the answer to `call`. Blocks.
  template <typename Reply, typename Call>
  static absl::Status Answered(Call call) {
    Mutex mu;
    CondVar came;
    std::optional<absl::Status> status;
    call([&](absl::StatusOr<Reply> reply) {
      MutexLock lock(mu);
      status = reply.status();
      came.NotifyAll();
    });
    MutexLock lock(mu);
    came.Wait(mu, [&] { return status.has_value(); });
    return *status;
  }
  // Uses the client's own connection.
  static absl::Status Register(CoordinatorClient& client) {
    return Answered<RegisterReply>([&](auto done) { client.Call(ARequest(), std::move(done)); });
  }
  // All calls of the client use one connection, so that tests see what happens to an open
  // connection.
  std::shared_ptr<CoordinatorClient> Connect(
      const std::shared_ptr<grpc::ChannelCredentials>& credentials,
      absl::Duration silent_wait = kSilentWait) {
    return MakeCoordinatorClient(
        {executor_, open_, address()},
        [channel = MakeChannel(address(), credentials)] { return channel; }, silent_wait);
  }
  // Uses a new connection.
  absl::Status Register(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        absl::Duration silent_wait = kSilentWait) {
    return Register(*Connect(credentials, silent_wait));
  }
  absl::Status Register(const std::optional<TlsFiles>& files, absl::string_view role = "chief") {
    return Register(MakeChannelCredentials(files, role));
  }

  CapturedLog log_;
  Pki pki_;
  ThreadPoolExecutor executor_;
  const std::shared_ptr<OpenCalls> open_;
  Service service_;
  std::unique_ptr<Server> server_;
};

// Accepts everything.
class WillingHandler : public DataHandler {
 public:
  void Call(PullRequest, ResultCallback<PullReply> done) override { done(PullReply()); }
  void Call(CommitRequest, ResultCallback<CommitReply> done) override {
    done(CommitReply{true, 1, {}});
  }
  int64_t ReplyBytes(const PullRequest&) override { return 0; }
  // Admits as a parameter server does whose session 9 belongs to worker 1.
  absl::Status Admit(DataMethod method, const Fence& fence, std::optional<int> worker) override {
    const bool is_others =
        method == DataMethod::kCommit && fence.session == SessionId(9) && worker && *worker != 1;
    return is_others ? MakeError(Reason::kNotAuthorized, "session 9 is of worker 1")
                     : absl::OkStatus();
  }
  uint64_t Reserve(DataClaim claim, std::function<void(absl::Status)> granted) override {
    {
      MutexLock lock(mu_);
      owners_.insert(claim.owner);
    }
    granted(absl::OkStatus());
    return 1;
  }
  void Release(DataMemory, uint64_t) override {}

  std::set<std::string> owners() {
    MutexLock lock(mu_);
    return owners_;
  }

 private:
  Mutex mu_;
  std::set<std::string> owners_ DIVVY_GUARDED_BY(mu_);
};

class DataTlsTest : public TlsTest {
 protected:
  DataTlsTest() : data_(handler_) {
    auto server = Server::Start(Options(pki_.Role("ps")), {}, &data_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  ~DataTlsTest() override { server_ = nullptr; }

  // The answers of the parameter server to a pull and a commit, sent by a task of this role with
  // this session.
  std::vector<absl::Status> Speak(const std::string& role, SessionId session) {
    const auto client = DataClient::Create(
        MakeChannel(address(), MakeChannelCredentials(pki_.Role(role), "ps")), executor_, {});
    const Fence fence{JobId(1), Epoch(1), Incarnation(1), session, Incarnation(1)};
    CommitRequest commit;
    commit.fence = fence;
    commit.entry = EntryId(1);
    commit.parts.emplace_back();
    commit.parts[0].values = *Tensor::Zeros(DType::kFloat32, {1});
    return {Answered<PullReply>([&](auto done) {
              client->Call(PullRequest{fence, {}}, std::move(done));
            }),
            Answered<CommitReply>(
                [&](auto done) { client->Call(std::move(commit), std::move(done)); })};
  }

  WillingHandler handler_;
  DataServer data_;
};

TEST_F(DataTlsTest, ASessionIsForEveryTaskThatPullsAndCommits) {
  for (const absl::Status& status : Speak("worker", SessionId(7)))
    EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : Speak("chief", SessionId(7)))
    EXPECT_TRUE(status.ok()) << status;
}

// The number of a session is easily guessed.
TEST_F(DataTlsTest, MemoryIsHeldInTheNameOfTheCertificate) {
  for (const absl::Status& status : Speak("worker", SessionId(7)))
    EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : Speak("worker", SessionId(8)))
    EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(handler_.owners(), testing::ElementsAre("worker 0"));
}

TEST_F(DataTlsTest, TheHandlerIsToldWhichWorkersCertificateTheCallerHas) {
  // with worker 0's certificate
  const std::vector<absl::Status> others = Speak("worker", SessionId(9));
  EXPECT_TRUE(others[0].ok()) << others[0];
  EXPECT_EQ(ReasonOf(others[1]), Reason::kNotAuthorized) << others[1];
  for (const absl::Status& status : Speak("chief", SessionId(9)))
    EXPECT_TRUE(status.ok()) << status;
}

TEST_F(DataTlsTest, TheSessionThatIsNeverFencedIsTheChiefsAlone) {
  for (const absl::Status& status : Speak("chief", kCoordinatorSession))
    EXPECT_TRUE(status.ok()) << status;
  for (const absl::Status& status : Speak("worker", kCoordinatorSession)) {
    EXPECT_EQ(ReasonOf(status), Reason::kNotAuthorized) << status;
    EXPECT_THAT(status.message(), HasSubstr("worker 0 may not call ParameterServerData."));
    EXPECT_THAT(status.message(),
                HasSubstr(" in session 0: check which certificate the task was given"));
  }
}

TEST_F(TlsTest, ATaskWithTheRightRoleIsServed) {
  Serve(pki_.Role("chief"));
  const absl::Status status = Register(pki_.Role("worker"));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(log_.text(), "");
}

TEST_F(TlsTest, TheWrongRoleIsRefusedAndToldSoOnBothSides) {
  Serve(pki_.Role("chief"));
  const absl::Status status = Register(pki_.Role("admin"));
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReasonOf(status), Reason::kNotAuthorized);
  EXPECT_EQ(
      status.message(),
      "admin 0 may not call Coordinator.Register: check which certificate the task was given");
  EXPECT_TRUE(log_.Await("admin 0 may not call Coordinator.Register"));
}

TEST_F(TlsTest, ACertificateWithoutARoleIsRefusedInTheHandshake) {
  Serve(pki_.Role("chief"));
  int number = 0;
  for (const char* uri : {"", "https://example.com/chief/0", "spiffe://test/chief/0?x=1",
                          "spiffe://test/chief/00", "spiffe://test/chief/"}) {
    const absl::Status status =
        Register(pki_.Files(absl::StrCat("roleless", ++number), pki_.Issue(uri)));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << uri << ": " << status;
  }
  EXPECT_TRUE(log_.Await("a TLS connection was refused: the peer's certificate names no role"));
}

TEST_F(TlsTest, AKeyThatEverybodyCanReadIsWarnedOf) {
  const TlsFiles files = pki_.Role("chief");
  Serve(files);
  EXPECT_THAT(log_.text(), testing::Not(HasSubstr("--tls_key=")));
  ASSERT_EQ(chmod(files.key.c_str(), 0644), 0);
  Serve(files);
  EXPECT_THAT(
      log_.text(),
      HasSubstr(absl::StrCat(
          "--tls_key=", files.key,
          ": every user of this machine can read it, and impersonate this task. chmod o-rw")));
}

TEST_F(TlsTest, ATaskMayRegisterNobodyButItself) {
  Serve(pki_.Role("chief"));
  const absl::Status other_index =
      Register(pki_.Files("one", pki_.Issue("spiffe://test/worker/1")));
  EXPECT_EQ(ReasonOf(other_index), Reason::kNotAuthorized) << other_index;
  EXPECT_EQ(other_index.message(),
            "worker 1 may not register as worker 0: check which certificate the task was given");
  const absl::Status other_role = Register(pki_.Role("ps"));
  EXPECT_EQ(other_role.message(),
            "ps 0 may not register as worker 0: check which certificate the task was given");
  EXPECT_TRUE(log_.Await("ps 0 may not register as worker 0"));
}

constexpr char kClosed[] =
    "it closed the connection at once: it wants a certificate and got none, or one that is not "
    "signed by its --tls_ca, has expired, or is of another job";

TEST_F(TlsTest, PlaintextIsRefusedAndToldSoOnBothSides) {
  Serve(pki_.Role("chief"));
  const absl::Status status = Register(std::nullopt);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ReasonOf(status), Reason::kNone);
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("cannot reach ", address(), ": ", kClosed)));
  EXPECT_TRUE(
      log_.Await("a TLS connection was refused: the peer does not speak TLS: give it --tls_cert, "
                 "--tls_key and --tls_ca"))
      << log_.text();
}

TEST_F(TlsTest, NoCertificateIsRefusedAndToldSoOnBothSides) {
  Serve(pki_.Role("chief"));
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = pki_.authority().certificate;
  const absl::Status status = Register(grpc::SslCredentials(options));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(kClosed));
  EXPECT_TRUE(
      log_.Await("a TLS connection was refused: the peer has no certificate: give it --tls_cert "
                 "and --tls_key"))
      << log_.text();
}

// One test for both, because the same line is logged at most once a minute.
TEST_F(TlsTest, ACertificateThatHasExpiredOrIsOfAnotherAuthorityIsRefusedAndToldSoOnBothSides) {
  Serve(pki_.Role("chief"));
  const TlsFiles expired =
      pki_.Files("expired", pki_.Issue("spiffe://test/worker/0", -absl::Hours(1)));
  Pki other("intruder");
  TlsFiles foreign = other.Role("worker");
  foreign.ca = expired.ca;
  for (const TlsFiles& files : {expired, foreign}) {
    const absl::Status status = Register(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr(kClosed));
    EXPECT_TRUE(
        log_.Await("a TLS connection was refused: the peer's certificate is not signed by "
                   "--tls_ca, or has expired"))
        << log_.text();
  }
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsNotBelieved) {
  Serve(pki_.Role("chief"));
  Pki other("believer");
  const absl::Status status = Register(other.Role("worker"));
  EXPECT_EQ(status.message(),
            absl::StrCat("cannot reach ", address(),
                         ": its certificate is not signed by --tls_ca, or has expired"));
}

TEST_F(TlsTest, ATaskThatIsDialledByItsIndexMustHaveThatIndex) {
  Serve(pki_.Role("chief"));
  const ChannelIdentity worker(pki_.Role("worker"));
  EXPECT_TRUE(Register(worker.For("chief", 0)).ok());
  EXPECT_EQ(Register(worker.For("chief", 1)).message(),
            absl::StrCat("cannot reach ", address(),
                         ": the server's certificate is that of chief 0, not of chief 1: check "
                         "which certificate the task there was given (divvyctl certs "
                         "makes some)"));
}

TEST_F(DataTlsTest, AParameterServerSpeaksForItselfAlone) {
  RpcDialer dialer(executor_, pki_.Role("worker"));
  const Fence fence{JobId(1), Epoch(1), Incarnation(1), SessionId(7), Incarnation(1)};
  const auto pull = [&](const std::shared_ptr<ParameterClient>& client) {
    return Answered<PullReply>([&](auto done) {
      client->Call(PullRequest{fence, {}}, std::move(done));
    });
  };
  EXPECT_TRUE(pull(dialer.ParameterServerAt(address(), 0)).ok());
  EXPECT_THAT(pull(dialer.ParameterServerAt(address(), 1)).message(),
              HasSubstr("the server's certificate is that of ps 0, not of ps 1"));
}

TEST_F(TlsTest, AServerOfAnotherRoleIsNotBelieved) {
  Serve(pki_.Role("ps"));
  const absl::Status status = Register(pki_.Role("worker"));
  EXPECT_EQ(status.message(),
            absl::StrCat("cannot reach ", address(),
                         ": the server's certificate is not that of a chief: check which "
                         "certificate the task there was given (divvyctl certs "
                         "makes some)"));
}

constexpr char kJobs[] =
    ": check which certificates both were given (divvyctl certs --job=NAME makes those of a job)";

TEST_F(TlsTest, ATaskOfAnotherJobOfTheSameAuthorityIsRefusedAndToldSoOnBothSides) {
  Serve(pki_.Role("chief"));
  const absl::Status status =
      Register(pki_.Files("stranger", pki_.Issue("spiffe://other/worker/0")));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), absl::StrCat("cannot reach ", address(),
                                           ": the server's certificate is that of chief 0 of job "
                                           "\"test\", and this task's is of job \"other\"",
                                           kJobs));
  EXPECT_TRUE(
      log_.Await(absl::StrCat("a TLS connection was refused: the peer's certificate is that of "
                              "worker 0 of job \"other\", and this task's is of job \"test\"",
                              kJobs)))
      << log_.text();
}

TEST_F(TlsTest, ATaskThatIsNotLetInSaysInItsOwnLogForWhomItWaitsAndWhy) {
  Serve(pki_.Role("ps"));
  const auto credentials = MakeChannelCredentials(pki_.Role("worker"), "chief");
  EXPECT_EQ(Register(credentials).code(), absl::StatusCode::kUnavailable);
  // The task may simply have been started before its coordinator.
  EXPECT_THAT(log_.text(), Not(HasSubstr("waits for the coordinator")));
  EXPECT_EQ(Register(credentials, absl::ZeroDuration()).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(log_.text(),
              HasSubstr(absl::StrCat("waits for the coordinator: cannot reach ", address(),
                                     ": the server's certificate is not that of a chief")));
}

TEST_F(TlsTest, ATaskThatIsRefusedForGoodLeavesTheWordsToItsEnd) {
  Serve(pki_.Role("chief"));
  const absl::Status refused = Register(
      MakeChannelCredentials(pki_.Files("one", pki_.Issue("spiffe://test/worker/1")), "chief"),
      absl::ZeroDuration());
  EXPECT_EQ(ReasonOf(refused), Reason::kNotAuthorized) << refused;
  EXPECT_THAT(log_.text(), Not(HasSubstr("waits for the coordinator")));
}

TEST_F(TlsTest, ACallerOfAnotherJobThatDoesNotLookAtItsServerIsRefusedAllTheSame) {
  Serve(pki_.Role("chief"));
  const CertifiedKey stranger = pki_.Issue("spiffe://other/worker/0");
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = pki_.authority().certificate;
  options.pem_cert_chain = stranger.certificate;
  options.pem_private_key = stranger.key;
  const absl::Status status = Register(grpc::SslCredentials(options));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(kClosed));
  EXPECT_TRUE(log_.Await("the peer's certificate is that of worker 0 of job \"other\""))
      << log_.text();
}

TEST_F(TlsTest, AServerWithoutTlsIsNotBelieved) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  server_ = *Server::Start(options, {&service_}, nullptr);
  const absl::Status status = Register(pki_.Role("worker"));
  EXPECT_EQ(status.message(),
            absl::StrCat("cannot reach ", address(), ": it does not speak TLS, as this task does"));
}

TEST_F(TlsTest, OnLoopbackWithoutTlsEveryRoleIsTrusted) {
  ServerOptions options;
  options.address = "127.0.0.1:0";
  server_ = *Server::Start(options, {&service_}, nullptr);
  EXPECT_TRUE(Register(std::nullopt).ok());
}

// ---- other certificates while a cluster runs (docs/operating/security.md, "Renewing" and
// "Revoking")

class RenewalTest : public TlsTest {
 protected:
  // Files that are read again every second.
  static TlsFiles Watched(TlsFiles files) {
    files.refresh_seconds = 1;
    return files;
  }
  // Makes new connections until one is served, or until one is refused. Error: neither happened
  // within 30 s; the status is the last one.
  absl::Status Await(
      bool is_served,
      const std::function<std::shared_ptr<grpc::ChannelCredentials>()>& credentials) {
    const absl::Duration until = Clock::Real().Elapsed() + absl::Seconds(30);
    absl::Status status;
    do {
      status = Register(credentials());
      if (status.ok() == is_served) return absl::OkStatus();
    } while (Clock::Real().Elapsed() < until);
    return absl::DeadlineExceededError(
        absl::StrCat(is_served ? "never served: " : "never refused", status.message()));
  }
  absl::Status AwaitServed(const TlsFiles& files) {
    return Await(true, [&] { return MakeChannelCredentials(files, "chief"); });
  }
};

TEST_F(RenewalTest, ACertificateThatIsReplacedIsUsedForNewConnectionsAndOpenOnesGoOn) {
  Serve(Watched(pki_.Role("chief")));
  const ChannelIdentity worker(Watched(pki_.Role("worker")));
  const auto open = Connect(worker.For("chief"));
  ASSERT_TRUE(Register(*open).ok());
  // The new certificates have other indices, which tell them from the old ones.
  pki_.Files("chief", pki_.Issue("spiffe://test/chief/1"));
  EXPECT_TRUE(Await(true, [&] { return worker.For("chief", 1); }).ok())
      << "the server shows its new certificate";
  EXPECT_THAT(std::string(Register(worker.For("chief", 0)).message()),
              HasSubstr("the server's certificate is that of chief 1, not of chief 0"));
  pki_.Files("worker", pki_.Issue("spiffe://test/worker/1"));
  EXPECT_TRUE(Await(false, [&] { return worker.For("chief"); }).ok())
      << "the caller shows its new certificate";
  EXPECT_EQ(Register(worker.For("chief")).message(),
            "worker 1 may not register as worker 0: check which certificate the task was given");
  EXPECT_TRUE(Register(*open).ok()) << "as worker 0, still: " << Register(*open);
}

TEST_F(RenewalTest, ANewAuthorityShutsAStolenCertificateOutAndStopsNothingElse) {
  Serve(Watched(pki_.Role("chief")));
  const ChannelIdentity member(Watched(pki_.Role("worker")));
  const auto open = Connect(member.For("chief"));
  ASSERT_TRUE(Register(*open).ok());

  // Step 1: a new CA. The thief trusts both CAs.
  Pki next("next");
  const std::string both = pki_.authority().certificate + next.authority().certificate;
  TlsFiles stolen = pki_.Files("stolen", pki_.Issue("spiffe://test/worker/0")),
           renewed = next.Role("worker");
  stolen.ca = renewed.ca = pki_.Write("both.pem", both);
  const auto thief = Connect(MakeChannelCredentials(stolen, "chief"));
  ASSERT_TRUE(Register(*thief).ok());
  ASSERT_FALSE(Register(renewed).ok()) << "nobody believes the new CA yet";

  // Step 2: every task trusts both CAs.
  pki_.Write("ca.pem", both);
  ASSERT_TRUE(AwaitServed(renewed).ok());
  EXPECT_TRUE(Register(stolen).ok());
  EXPECT_TRUE(Register(member.For("chief")).ok());

  // Step 3: every task has its new certificate and key.
  pki_.Files("chief", next.Issue("spiffe://test/chief/0"));
  pki_.Files("worker", next.Issue("spiffe://test/worker/0"));
  ASSERT_TRUE(AwaitServed(next.Role("worker")).ok()) << "it believes the new CA alone";
  ASSERT_TRUE(Await(true, [&] { return member.For("chief"); }).ok());
  EXPECT_TRUE(Register(stolen).ok());

  // Step 4: every task trusts the new CA only.
  pki_.Write("ca.pem", next.authority().certificate);
  ASSERT_TRUE(Await(false, [&] { return MakeChannelCredentials(stolen, "chief"); }).ok());
  EXPECT_THAT(std::string(Register(stolen).message()), HasSubstr(kClosed));
  EXPECT_TRUE(Await(true, [&] { return member.For("chief"); }).ok());

  // Step 5 is the operator's: open connections stay open.
  EXPECT_TRUE(Register(*open).ok());
  EXPECT_TRUE(Register(*thief).ok());
}

TEST_F(TlsTest, AServerDoesNotStartWithoutTlsWhereOthersReachIt) {
  ServerOptions options;
  options.address = "0.0.0.0:0";
  EXPECT_THAT(
      Server::Start(options, {}, nullptr).status().message(),
      HasSubstr("without certificates a cluster must stay on loopback, but 0.0.0.0:0 is not"));
}

}  // namespace
}  // namespace divvy
