// Tests the rows of `divvyctl status`.
#include "tools/ctl/status.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/credentials.h"
#include "rpc/server.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Status : public v1::Admin::CallbackService {
 public:
  v1::TaskStatus answer;

 private:
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*, v1::TaskStatus* reply) override {
    *reply = answer;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

enum class As { kText, kJson };

std::string Shown(const v1::TaskStatus& status, As as = As::kText) {
  Status service;
  service.answer = status;
  ServerOptions options;
  options.address = "127.0.0.1:0";
  auto server = Server::Start(options, {&service}, nullptr);
  EXPECT_TRUE(server.ok()) << server.status();
  testing::internal::CaptureStdout();
  StatusOptions asked;
  asked.addresses = {absl::StrCat("127.0.0.1:", (*server)->port())};
  asked.credentials = MakeChannelCredentials(std::nullopt, "");
  asked.timeout = absl::Seconds(10);
  asked.json = as == As::kJson;
  EXPECT_EQ(ShowStatus(asked), 0);
  return testing::internal::GetCapturedStdout();
}

v1::TaskStatus WorkerOn(int cpu_replicas) {
  v1::TaskStatus status;
  status.set_job(v1::WORKER);
  status.mutable_worker()->set_reported(7);
  for (int i = 0; i < cpu_replicas; ++i)
    status.mutable_worker()->add_devices()->set_device("CPU:0");
  return status;
}

TEST(StatusTest, AWorkersRowNamesItsGpusAndTheirMemoryWhereItIsLimited) {
  v1::TaskStatus status = WorkerOn(0);
  for (const char* device : {"GPU:0", "GPU:1"}) {
    v1::WorkerStatus::Device& gpu = *status.mutable_worker()->add_devices();
    gpu.set_device(device);
    gpu.set_name("NVIDIA H200");
  }
  EXPECT_THAT(
      Shown(status),
      HasSubstr("7 steps reported, idle, 0 queued, on GPU:0 NVIDIA H200, GPU:1 NVIDIA H200\n"));
  status.mutable_worker()->mutable_devices(1)->clear_name();
  EXPECT_THAT(Shown(status), HasSubstr("on GPU:0 NVIDIA H200, GPU:1"))
      << "a GPU without a name is shown as a CPU";
  status.mutable_worker()->mutable_devices(1)->set_name("NVIDIA H200");
  status.mutable_worker()->mutable_devices(1)->set_memory_limit_bytes(10 << 20);
  status.mutable_worker()->mutable_devices(1)->set_memory_bytes(3 << 19);
  EXPECT_THAT(Shown(status),
              HasSubstr("on GPU:0 NVIDIA H200, GPU:1 NVIDIA H200 (1.5 MiB of 10 MiB)\n"));
  EXPECT_THAT(
      Shown(status, As::kJson),
      AllOf(HasSubstr(R"("device":"GPU:1","name":"NVIDIA H200","memory_limit_bytes":"10485760")"),
            HasSubstr("memory_bytes")));
}

TEST(StatusTest, DynamicTablesHaveALineOfTheChiefAndTheirRowsOnEachServer) {
  v1::TaskStatus chief;
  chief.set_job(v1::CHIEF);
  v1::CoordinatorStatus::Table& table = *chief.mutable_coordinator()->add_tables();
  table.set_name("user");
  table.mutable_stats()->set_rows(1234);
  table.mutable_stats()->set_bytes(3 << 19);
  EXPECT_THAT(Shown(chief), HasSubstr("\n             table user: 1234 rows, 1.5 MiB\n"));
  table.set_max_rows(2000);
  table.mutable_stats()->set_waiting(5);
  table.mutable_stats()->set_evicted(6);
  table.mutable_stats()->set_refused(7);
  EXPECT_THAT(
      Shown(chief),
      HasSubstr("table user: 1234 rows of at most 2000, 1.5 MiB, 5 keys wait to be admitted, 6 "
                "evicted; full: 7 writes to new keys found no room (max_rows, "
                "--memory_limit_bytes)\n"));
  EXPECT_THAT(Shown(chief, As::kJson), HasSubstr(R"("refused":"7")"));
  table.set_name("x\ny");
  EXPECT_THAT(Shown(chief), HasSubstr("table x\\x0ay: 1234"));

  v1::TaskStatus server;
  server.set_job(v1::PS);
  server.mutable_ps();
  EXPECT_THAT(Shown(server), HasSubstr("0 commits applied\n"));
  for (const int64_t rows : {1000, 234})
    server.mutable_ps()->add_tables()->mutable_stats()->set_rows(rows);
  EXPECT_THAT(Shown(server), HasSubstr("0 commits applied, 1234 rows of 2 tables\n"));
}

TEST(StatusTest, AStepIsToldByItsFunctionAndItsPlaceAmongTheTrainingSteps) {
  v1::TaskStatus status = WorkerOn(1);
  status.mutable_worker()->set_live_step(1'049'269);
  EXPECT_THAT(Shown(status), HasSubstr("runs step 1049269, 0 queued")) << "an older build";
  status.mutable_worker()->set_live_function("train");
  EXPECT_THAT(Shown(status), HasSubstr("runs train, 0 queued")) << "not a training step";
  status.mutable_worker()->set_live_ordinal(2054);
  status.mutable_worker()->set_committing(true);
  EXPECT_THAT(Shown(status), HasSubstr("commits train, training step 2055, 0 queued"));
}

TEST(StatusTest, ATaskThatDoesNotAnswerHasTheNameThatTfConfigGivesIt) {
  StatusOptions asked;
  asked.addresses = {"127.0.0.1:1"};
  asked.names = {{"127.0.0.1:1", "ps 0"}};
  asked.credentials = MakeChannelCredentials(std::nullopt, "");
  testing::internal::CaptureStdout();
  EXPECT_EQ(ShowStatus(asked), 1);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::StartsWith(
                  "ps 0       127.0.0.1:1              no answer  cannot reach 127.0.0.1:1"));
  asked.json = true;
  testing::internal::CaptureStdout();
  ShowStatus(asked);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::StartsWith(R"({"address":"127.0.0.1:1","task":"ps 0","error":)"));
}

TEST(StatusTest, WhatATaskSaysForgesNoRowAndCommandsNoTerminal) {
  v1::TaskStatus status = WorkerOn(1);
  status.set_state("ready\nps 7       all is well");
  status.mutable_worker()->set_live_step(1);
  status.mutable_worker()->set_live_function("\x1b[2J");
  status.add_waits()->set_text("nothing\r\x1b]0;title\x07");
  status.mutable_waits(0)->set_since_ns(7'000'000'000);
  const std::string shown = Shown(status);
  EXPECT_THAT(shown, HasSubstr("ready\\x0aps 7"));
  EXPECT_EQ(shown.find_first_of("\x1b\r\x07"), shown.npos);
}

TEST(StatusTest, LongWorkIsToldWithHowFarItIs) {
  v1::TaskStatus status;
  status.set_job(v1::CHIEF);
  EXPECT_THAT(Shown(status), Not(HasSubstr("restore")));
  v1::CoordinatorStatus::Work& work = *status.mutable_coordinator()->mutable_work();
  work.set_text("restore 45 % of 2.6 GiB, 12.2 s left");
  work.set_done(45);
  work.set_total(100);
  EXPECT_THAT(Shown(status), HasSubstr(", restore 45 % of 2.6 GiB, 12.2 s left\n"));
  EXPECT_THAT(Shown(status, As::kJson), HasSubstr("\"done\":\"45\",\"total\":\"100\""));
}

TEST(StatusTest, WhatIsWaitedForIsToldWithItsTimeOnceThereIsSome) {
  v1::TaskStatus status = WorkerOn(1);
  for (const int64_t seconds : {7, 0}) {
    v1::TaskStatus::Wait* const wait = status.add_waits();
    wait->set_text(absl::StrCat("worker ", seconds, " waits for ps 1"));
    wait->set_since_ns(seconds * 1'000'000'000);
  }
  EXPECT_THAT(Shown(status), HasSubstr("\n             since 7s: worker 7 waits for ps 1\n"));
  EXPECT_THAT(Shown(status), Not(HasSubstr("worker 0 waits")));
}

TEST(StatusTest, AWorkersRowSaysThatItComputesOnTheCpu) {
  EXPECT_THAT(Shown(WorkerOn(1)), HasSubstr("0 queued, on the CPU\n"));
  EXPECT_THAT(Shown(WorkerOn(3)), HasSubstr("0 queued, 3 replicas on the CPU\n"));
  EXPECT_THAT(Shown(WorkerOn(0)), HasSubstr("0 queued\n"));  // a worker of an older build
}

}  // namespace
}  // namespace divvy
