// The server that every task has, with its identity, and the checks before it starts.
#include "task/task_server.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/remove_tree.h"
#include "base/testing/captured_log.h"
#include "base/testing/notify_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/error.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/testing/health_client.h"
#include "rpc/testing/pki.h"
#include "rpc/time.h"
#include "task/task_flags.h"

ABSL_DECLARE_FLAG(std::optional<int>, task_index);
ABSL_DECLARE_FLAG(std::optional<int>, num_ps);

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Health = grpc::health::v1::HealthCheckResponse;

// the limit for events that must happen
constexpr absl::Duration kPatience = absl::Seconds(20);

// ---- what an operator asks ----------------------------------------------------------------------

class OperatorTest : public ::testing::Test {
 protected:
  void Serve(std::optional<OperatorCalls> calls) {
    TaskOptions options;
    options.role = calls ? Role::kChief : Role::kPs;
    TaskFace face{[] { return v1::TaskStatus(); }, std::move(calls)};
    auto server = TaskServer::Start(options, {}, nullptr, std::move(face));
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    stub_ = v1::Admin::NewStub(MakeChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }
  OperatorCalls Coordinator() {
    OperatorCalls calls;
    calls.incarnation = Incarnation(7);
    calls.save = [this](ResultCallback<v1::RequestCheckpointReply> done) {
      ++asked_, done(absl::FailedPreconditionError("no directory"));
    };
    calls.drain = [this](ResultCallback<v1::DrainReply> done) {
      ++asked_;
      v1::DrainReply reply;
      reply.set_finished_steps(5);
      done(reply);
    };
    return calls;
  }
  absl::Status Save(uint64_t target, bool has_deadline = true) {
    grpc::ClientContext context;
    if (has_deadline) context.set_deadline(GrpcDeadline(kPatience));
    v1::RequestCheckpointRequest request;
    v1::RequestCheckpointReply reply;
    request.set_target_incarnation(target);
    return FromGrpc(stub_->RequestCheckpoint(&context, request, &reply), "");
  }
  absl::StatusOr<v1::DrainReply> Drain(uint64_t target) {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kPatience));
    v1::DrainRequest request;
    v1::DrainReply reply;
    request.set_target_incarnation(target);
    const absl::Status status = FromGrpc(stub_->Drain(&context, request, &reply), "");
    if (!status.ok()) return status;
    return reply;
  }

  int asked_ = 0;
  std::unique_ptr<TaskServer> server_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

TEST_F(OperatorTest, IsAnsweredByTheLifeOfTheCoordinatorThatIsMeant) {
  Serve(Coordinator());
  EXPECT_EQ(Save(7), absl::FailedPreconditionError("no directory"));
  EXPECT_EQ(Drain(7)->finished_steps(), 5);
  EXPECT_EQ(asked_, 2);
}

TEST_F(OperatorTest, ARequestForAnotherLifeOrForNoneOrWithoutADeadlineDoesNothing) {
  Serve(Coordinator());
  EXPECT_EQ(ReasonOf(Save(8)), Reason::kWrongIncarnation);
  EXPECT_EQ(ReasonOf(Drain(8).status()), Reason::kWrongIncarnation);
  EXPECT_EQ(ReasonOf(Save(0)), Reason::kInvalid);
  EXPECT_EQ(ReasonOf(Drain(0).status()), Reason::kInvalid);
  EXPECT_EQ(ReasonOf(Save(7, /*has_deadline=*/false)), Reason::kInvalid);
  EXPECT_EQ(asked_, 0);
}

TEST_F(OperatorTest, OfATaskThatIsNoCoordinatorIsTold) {
  Serve(std::nullopt);
  EXPECT_EQ(ReasonOf(Save(7)), Reason::kInvalid);
  EXPECT_THAT(std::string(Drain(7).status().message()), HasSubstr("not the coordinator"));
}

TEST_F(OperatorTest, WhoseRequestIsDroppedByAProcessThatEndsIsTold) {
  OperatorCalls calls = Coordinator();
  calls.drain = [](const ResultCallback<v1::DrainReply>&) {};
  Serve(calls);
  EXPECT_EQ(Drain(7).status().code(), absl::StatusCode::kUnavailable);
}

TEST(TaskServerTest, TakesConnectionsForItsCluster) {
  ClusterConfig cluster;
  EXPECT_EQ(MostConnections(cluster), 4096);
  cluster.spec =
      *ParseClusterSpec(R"({"chief": ["a:1"], "ps": ["b:1", "c:1"], "worker": ["d:1"]})");
  EXPECT_EQ(MostConnections(cluster), 256 + 4 * 4);
}

TEST(TaskServerTest, ATaskAnswersProbesOfItselfAndOfItsService) {
  TaskOptions options;
  options.role = Role::kPs;
  auto server = TaskServer::Start(options, {}, nullptr, {[] { return v1::TaskStatus(); }});
  ASSERT_TRUE(server.ok()) << server.status();
  const int port = std::stoi((*server)->address().substr((*server)->address().rfind(':') + 1));
  for (const char* service : {"", "divvy.v1.ParameterServer"})
    EXPECT_EQ(HealthOf(port, service), Health::NOT_SERVING) << service;
  (*server)->SetServing(true);
  for (const char* service : {"", "divvy.v1.ParameterServer"})
    EXPECT_EQ(HealthOf(port, service), Health::SERVING) << service;
}

TEST(TaskServerTest, TheServiceManagerIsToldWhenItServesAndWhenItStops) {
  NotifySocket manager;
  TaskOptions options;
  options.role = Role::kPs;
  auto server = TaskServer::Start(options, {}, nullptr, {[] { return v1::TaskStatus(); }});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(manager.Received(), "") << "it listens, and does not serve yet";
  (*server)->SetServing(true);
  EXPECT_EQ(manager.Received(), absl::StrCat("READY=1\nSTATUS=serves at ", (*server)->address()));
  (*server)->SetServing(false);
  EXPECT_THAT(manager.Received(), testing::StartsWith("STOPPING=1\nSTATUS="));
  (*server)->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(manager.Received(), "") << "told before";
}

TEST(TaskServerTest, ItsPagesAreOnLoopbackOrNeedACertificate) {
  TaskOptions options;
  options.role = Role::kPs;
  options.http_address = ":0";
  EXPECT_TRUE(CheckSecurity(options).ok());
  const CapturedLog log;
  const auto server = TaskServer::Start(options, {}, nullptr, {[] { return v1::TaskStatus(); }});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GT((*server)->http_port(), 0);
  EXPECT_THAT(log.lines(),
              testing::Contains(HasSubstr(absl::StrCat(
                  "its pages are at http://127.0.0.1:", (*server)->http_port(), "/statusz"))));
  options.http_address = "0.0.0.0:9464";
  EXPECT_THAT(std::string(CheckSecurity(options).message()),
              HasSubstr("give --http_address=:9464"));
  Pki pki("pages");
  options.tls = pki.Role("ps");
  EXPECT_TRUE(CheckSecurity(options).ok()) << CheckSecurity(options);
  options.http_address = "9464";
  EXPECT_THAT(std::string(CheckSecurity(options).message()), HasSubstr("--http_address"));
}

// The lines that a task logs when it begins to listen.
std::vector<std::string> LinesAtStart(const TaskOptions& options) {
  const CapturedLog log;
  const auto server = TaskServer::Start(options, {}, nullptr, {[] { return v1::TaskStatus(); }});
  EXPECT_TRUE(server.ok()) << server.status();
  return log.lines();
}

TEST(TaskServerTest, ATaskThatListensOnAPortSaysWhoCanReachItAndOneOnASocketDoesNot) {
  const auto told =
      testing::Contains(HasSubstr("without TLS: every user of this machine can reach it"));
  TaskOptions options;
  options.role = Role::kPs;
  EXPECT_THAT(LinesAtStart(options),
              testing::Contains(AllOf(testing::StartsWith("Ilistens on 127.0.0.1:0 without TLS"),
                                      HasSubstr("divvyctl certs"))));
  // TEST_TMPDIR may be too long.
  char folder[] = "/tmp/divvy_lines_XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  options.bind_address = absl::StrCat("unix:", folder, "/ps");
  EXPECT_THAT(LinesAtStart(options), Not(told));
  RemoveTree(folder);
}

// ---- checks before a task starts ----------------------------------------------------------------

TaskOptions SparseWorker(const std::string& coordinator, const std::string& bind) {
  TaskOptions options;
  options.role = Role::kWorker;
  options.index = 3;
  options.cluster.task_type = "worker";
  options.cluster.task_index = 3;
  options.cluster.coordinator_address = coordinator;
  options.bind_address = bind;
  return options;
}

TEST(CheckSecurityTest, ATaskMustHaveACertificateOfItsOwn) {
  Pki pki("own");
  TaskOptions options = SparseWorker("host:2222", "worker-3:2222");
  options.tls = pki.Role("ps");
  EXPECT_THAT(CheckSecurity(options).message(),
              HasSubstr("is the certificate of ps 0, and this task is worker 3"));
  options.tls = pki.Files("three", pki.Issue("spiffe://test/worker/3"));
  EXPECT_TRUE(CheckSecurity(options).ok()) << CheckSecurity(options);
}

TEST(CheckSecurityTest, ATaskThatTheClusterDoesNotListMustListenWhereTheCoordinatorCanDialIt) {
  Pki pki("dial");
  for (const char* bind :
       {"0.0.0.0:2222", "[::]:2222", ":2222", "127.0.0.1:2222", "localhost:0", ""}) {
    TaskOptions options = SparseWorker("host:2222", bind);
    options.tls = pki.Files("three", pki.Issue("spiffe://test/worker/3"));
    const absl::Status refused = CheckSecurity(options);
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << bind;
    EXPECT_THAT(refused.message(), HasSubstr("the coordinator at host:2222 cannot dial")) << bind;
    EXPECT_THAT(refused.message(), HasSubstr("--bind_address=HOST:PORT")) << bind;
  }
  EXPECT_TRUE(CheckSecurity(SparseWorker("127.0.0.1:2222", "")).ok());
  EXPECT_TRUE(CheckSecurity(SparseWorker("127.0.0.1:2222", "localhost:0")).ok());
}

// ---- flags --------------------------------------------------------------------------------------

TEST(TaskFlagsTest, AFlagOutOfItsRangeIsNotTakenForOneThatWasNotGiven) {
  absl::SetFlag(&FLAGS_task_index, -1);
  absl::SetFlag(&FLAGS_num_ps, 0);
  const absl::Status refused = TaskOptionsFromFlags().status();
  absl::SetFlag(&FLAGS_task_index, std::nullopt);
  absl::SetFlag(&FLAGS_num_ps, std::nullopt);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr("--task_index is -1"));
  EXPECT_THAT(refused.message(), HasSubstr("--num_ps is 0"));
}

}  // namespace
}  // namespace divvy
