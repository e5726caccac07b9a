// Tests of the test harness: the proxy with plain sockets, and a cluster of shell scripts as tasks.
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/chaos.h"
#include "tests/e2e/fault_proxy.h"
#include "tests/e2e/loopback_client.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr absl::Duration kMoment = absl::Milliseconds(30);  // to see that something does not happen

enum class End { kOpen, kClosed, kReset };

// Waits until something can be read or `timeout` has passed, and returns the connection's state.
End EndOf(const Descriptor& socket, absl::Duration timeout = kPatience) {
  char byte;
  if (!WaitForEvent(socket, POLLIN, timeout)) return End::kOpen;
  const ssize_t got = recv(socket.get(), &byte, 1, 0);
  return got > 0 ? End::kOpen : got == 0 ? End::kClosed : End::kReset;
}

constexpr auto kTo = FaultProxy::kToTarget, kFrom = FaultProxy::kFromTarget;

class FaultProxyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address = LoopbackAddress(0);
    socklen_t size = sizeof(address);
    ASSERT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    ASSERT_EQ(listen(listener_.get(), 16), 0);
    ASSERT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    proxy_ = *FaultProxy::Start(absl::StrCat("127.0.0.1:", ntohs(address.sin_port)));
  }
  void Connect() {
    client_ = ConnectTo(proxy_->address());
    ASSERT_TRUE(WaitForEvent(listener_, POLLIN, kPatience));
    server_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    ASSERT_TRUE(proxy_->WaitForConnections(1, kPatience));
  }

  Descriptor listener_, client_, server_;
  std::unique_ptr<FaultProxy> proxy_;
};

TEST_F(FaultProxyTest, PassesBytesOnBothWaysAndCountsThem) {
  Connect();
  const std::string large(3'000'000, 'x');
  ASSERT_TRUE(Send(client_, "hello"));
  EXPECT_EQ(Receive(server_, 5), "hello");
  ThreadPoolExecutor sender(1);
  sender.PostBlocking("sender", [&] { Send(server_, large); });
  EXPECT_EQ(Receive(client_, large.size()), large);
  sender.Stop();
  EXPECT_TRUE(proxy_->WaitForBytes(kFrom, 3'000'000, kPatience));
  EXPECT_EQ(proxy_->bytes(kTo), 5);
  EXPECT_EQ(proxy_->accepted(), 1);
}

TEST_F(FaultProxyTest, AnEndPassesInItsDirectionAlone) {
  Connect();
  ASSERT_TRUE(Send(client_, "last"));
  shutdown(client_.get(), SHUT_WR);
  EXPECT_EQ(Receive(server_, 10), "last");
  EXPECT_EQ(EndOf(server_), End::kClosed);
  ASSERT_TRUE(Send(server_, "answer"));
  EXPECT_EQ(Receive(client_, 6), "answer");
  server_.Close();
  EXPECT_EQ(EndOf(client_), End::kClosed);
  EXPECT_TRUE(proxy_->WaitForConnections(0, kPatience));
}

TEST_F(FaultProxyTest, ACutIsAResetOnBothSides) {
  Connect();
  proxy_->CutAll();
  EXPECT_EQ(EndOf(client_), End::kReset);
  EXPECT_EQ(EndOf(server_), End::kReset);
  EXPECT_EQ(proxy_->open_connections(), 0);
  Connect();  // new connections are forwarded
  ASSERT_TRUE(Send(client_, "again"));
  EXPECT_EQ(Receive(server_, 5), "again");
}

TEST_F(FaultProxyTest, ACutAfterSomeBytesLetsExactlyThosePass) {
  Connect();
  proxy_->CutAfter(kTo, 7);
  ASSERT_TRUE(Send(client_, "0123456789"));
  EXPECT_EQ(Receive(server_, 100), "0123456");
  EXPECT_EQ(EndOf(client_), End::kReset);
  EXPECT_TRUE(proxy_->WaitForBytes(kTo, 7, kPatience));
  EXPECT_EQ(proxy_->bytes(kTo), 7);
}

TEST_F(FaultProxyTest, ARefusedConnectionIsResetWhileOthersStay) {
  Connect();
  proxy_->Refuse();
  const Descriptor refused = ConnectTo(proxy_->address());
  EXPECT_EQ(EndOf(refused), End::kReset);
  ASSERT_TRUE(Send(client_, "still"));
  EXPECT_EQ(Receive(server_, 5), "still");
  proxy_->Heal();
  Connect();
}

TEST_F(FaultProxyTest, AHalfOpenConnectionPassesBytesOneWayAndIsCutByHealing) {
  Connect();
  proxy_->Swallow(kFrom);
  ASSERT_TRUE(Send(server_, "unheard"));
  ASSERT_TRUE(Send(client_, "heard"));
  EXPECT_EQ(Receive(server_, 5), "heard");
  EXPECT_EQ(EndOf(client_, kMoment), End::kOpen);
  proxy_->Heal();
  EXPECT_EQ(EndOf(client_), End::kReset);
  EXPECT_EQ(EndOf(server_), End::kReset);
}

TEST_F(FaultProxyTest, AHalfOpenConnectionDoesNotPassTheEndOn) {
  Connect();
  proxy_->Swallow(kTo);
  client_.Close();
  EXPECT_EQ(EndOf(server_, kMoment), End::kOpen);
}

TEST_F(FaultProxyTest, HealingSparesConnectionsThatLostNothing) {
  Connect();
  proxy_->Swallow(kTo);
  proxy_->Heal();
  ASSERT_TRUE(Send(client_, "whole"));
  EXPECT_EQ(Receive(server_, 5), "whole");
}

TEST_F(FaultProxyTest, WhatIsStalledArrivesAfterHealing) {
  Connect();
  proxy_->Stall(kTo);
  ASSERT_TRUE(Send(client_, "late"));
  EXPECT_EQ(Receive(server_, 4, kMoment), "");
  proxy_->Heal();
  EXPECT_EQ(Receive(server_, 4), "late");
}

TEST_F(FaultProxyTest, AStalledSenderHasToWaitInTheEnd) {
  Connect();
  proxy_->Stall(kTo);
  const std::string chunk(1 << 20, 'x');
  size_t sent = 0;
  while (WaitForEvent(client_, POLLOUT, absl::Milliseconds(100))) {
    const ssize_t put =
        send(client_.get(), chunk.data(), chunk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ASSERT_GT(put, 0);
    sent += static_cast<size_t>(put);
    ASSERT_LT(sent, 64u << 20);
  }
  proxy_->Heal();
  EXPECT_EQ(Receive(server_, sent).size(), sent);
}

TEST_F(FaultProxyTest, DelayedBytesArriveLaterAndInOrder) {
  Connect();
  proxy_->Delay(absl::Milliseconds(50));
  const absl::Duration begin = Clock::Real().Elapsed();
  ASSERT_TRUE(Send(client_, "one"));
  ASSERT_TRUE(Send(client_, "two"));
  EXPECT_EQ(Receive(server_, 6), "onetwo");
  EXPECT_GE(Clock::Real().Elapsed() - begin, absl::Milliseconds(50));
}

TEST_F(FaultProxyTest, ATargetThatIsNotThereResetsTheConnection) {
  listener_.Close();
  const Descriptor client = ConnectTo(proxy_->address());
  EXPECT_EQ(EndOf(client), End::kReset);
}

TEST_F(FaultProxyTest, ANewTargetGetsTheConnectionsMadeFromThenOn) {
  Connect();
  const std::unique_ptr<FaultProxy> other = *FaultProxy::Start(proxy_->address());
  ASSERT_TRUE(proxy_->Retarget(other->address()).ok());
  ASSERT_TRUE(other->Retarget("127.0.0.1:1").ok());  // nothing listens there
  const Descriptor elsewhere = ConnectTo(proxy_->address());
  EXPECT_EQ(EndOf(elsewhere), End::kReset);
  ASSERT_TRUE(Send(client_, "still here"));
  EXPECT_EQ(Receive(server_, 10), "still here");
}

TEST_F(FaultProxyTest, GoesAwayWithConnectionsOpen) {
  Connect();
  proxy_ = nullptr;
  EXPECT_EQ(EndOf(client_), End::kReset);
}

TEST(FaultProxyTargetTest, AnAddressOfAnotherFormIsRefused) {
  for (const char* target :
       {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "localhost:80"}) {
    EXPECT_EQ(FaultProxy::Start(target).status().code(), absl::StatusCode::kInvalidArgument)
        << target;
  }
}

// ---- ProcessCluster

constexpr char kFakeTask[] = "tools/launch/fake_task";

std::unique_ptr<ProcessCluster> FakeCluster(std::vector<std::string> actions,
                                            bool proxied = false) {
  ProcessClusterOptions options;
  options.program = kFakeTask;
  options.num_ps = 1;
  options.num_workers = 2;
  options.flags = std::move(actions);
  options.proxied = proxied;
  return *ProcessCluster::Make(std::move(options));
}

TEST(ProcessClusterTest, EachTaskIsToldWhoItIs) {
  const auto cluster = FakeCluster({"show"});
  ASSERT_TRUE(cluster->StartAll().ok());
  ASSERT_TRUE(cluster->WaitForAll(kPatience).ok());
  for (const TaskId& task : cluster->tasks())
    EXPECT_EQ(cluster->output(task), cluster->TfConfig(task) + "\n");
  EXPECT_THAT(cluster->TfConfig(WorkerTask(1)), HasSubstr(cluster->address(PsTask(0))));
}

TEST(ProcessClusterTest, AKilledTaskCanBeStartedAgainWithOtherFlags) {
  const auto cluster = FakeCluster({"print=up"});
  ASSERT_TRUE(cluster->Start(WorkerTask(0), {{"hang"}, {}, ""}).ok());
  ASSERT_TRUE(cluster->WaitForText(WorkerTask(0), "up", kPatience).ok());
  ASSERT_TRUE(cluster->Kill(WorkerTask(0)).ok());
  EXPECT_FALSE(cluster->running(WorkerTask(0)));
  ASSERT_TRUE(cluster->Start(WorkerTask(0), {{"exit=3"}, {}, ""}).ok());
  EXPECT_EQ(cluster->WaitForExit(WorkerTask(0), kPatience)->code(), 3);
  EXPECT_EQ(cluster->output(WorkerTask(0)), "up\nup\n");
}

TEST(ProcessClusterTest, WhoDoesNotEndIsNamed) {
  const auto cluster = FakeCluster({"worker1:hang"});
  ASSERT_TRUE(cluster->StartAll().ok());
  const absl::Status status = cluster->WaitForAll(absl::Milliseconds(300));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), ContainsRegex("^worker 1 did not end within 300ms"));
}

TEST(ProcessClusterTest, BehindProxiesATaskListensElsewhereThanItsAddressSays) {
  const auto cluster = FakeCluster({"hang"}, /*proxied=*/true);
  EXPECT_EQ(cluster->address(PsTask(0)), cluster->proxy(PsTask(0)).address());
  EXPECT_NE(cluster->address(PsTask(0)), cluster->bind_address(PsTask(0)));
  EXPECT_THAT(cluster->TfConfig(kChiefTask), HasSubstr(cluster->proxy(PsTask(0)).address()));
}

// ---- RunChaos

// Writes a shell script that takes the counter program's place. The chief runs `last` at the end;
// the other tasks run `first`.
std::string FakeCounter(const std::string& name, const std::string& last,
                        const std::string& first = "true") {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  const std::string script = absl::StrCat(
      "#!/bin/sh\n"
      "stop=${1#--stop_file=}\n"
      "chief() { case $TF_CONFIG in *'\"type\":\"chief\"'*) true;; *) false;; esac; }\n"
      "chief && echo counting || ",
      first,
      "\n"
      "until [ -e $stop ]; do sleep 0.01; done\n"
      "chief && ",
      last, "\ntrue\n");
  EXPECT_TRUE(FileSystem::Real().ReplaceFile(path, script).ok());
  EXPECT_EQ(chmod(path.c_str(), 0700), 0);
  return path;
}

ChaosOptions FewKills(std::string program) {
  ChaosOptions options;
  options.program = std::move(program);
  options.directory = std::getenv("TEST_TMPDIR");
  options.faults = 3;
  options.pause = absl::Milliseconds(20);
  return options;
}

TEST(ChaosHarnessTest, KillsAsOftenAsAskedAndReturnsTheCount) {
  const absl::StatusOr<ChaosResult> result =
      RunChaos(FewKills(FakeCounter("exact", "echo counter = 7")));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->kills.at(Role::kWorker), 3);
  EXPECT_EQ(result->steps, 7);
}

TEST(ChaosHarnessTest, AProgramThatFindsAnInexactSumIsAnErrorThatShowsItsWords) {
  const absl::StatusOr<ChaosResult> result =
      RunChaos(FewKills(FakeCounter("inexact", "{ echo 'counter/0[0] = 6, wanted 7'; exit 70; }")));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("counter/0[0] = 6, wanted 7"));
}

TEST(ChaosHarnessTest, AnEndThatNothingDoneExplainsIsAViolation) {
  for (const std::string first :
       {"exit 138", "exit 143", "exit 134", "kill -SEGV $$", "kill -KILL $$", "exit 0"}) {
    const absl::StatusOr<ChaosResult> result =
        RunChaos(FewKills(FakeCounter("unexplained", "echo counter = 7", first)));
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("and nothing explains it"))
        << first;
  }
}

TEST(ChaosHarnessTest, ATaskThatEndsABadWayWhenTheJobIsCompleteIsAViolation) {
  const absl::StatusOr<ChaosResult> result = RunChaos(
      FewKills(FakeCounter("late", "echo counter = 7",
                           "{ until [ -e $stop ]; do sleep 0.01; done; sleep 0.2; exit 139; }")));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("ended with exit code 139"));
}

TEST(ChaosHarnessTest, AProgramThatIsNotThereIsAnError) {
  const absl::StatusOr<ChaosResult> result = RunChaos(FewKills("./no_such_program"));
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace divvy
