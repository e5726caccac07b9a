#include "base/service_manager.h"

#include <stdlib.h>
#include <unistd.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/testing/captured_log.h"
#include "base/testing/notify_socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

TEST(ServiceManagerTest, ASocketWithAPathGetsEachMessageWhole) {
  // The path of a socket has at most 107 characters, and that of TempDir() may have more.
  char folder[] = "/tmp/divvy-notify-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  {
    NotifySocket manager(absl::StrCat(folder, "/socket"));
    EXPECT_TRUE(TellServiceManager("READY=1\nSTATUS=serves").ok());
    EXPECT_TRUE(TellServiceManager("STOPPING=1").ok());
    EXPECT_EQ(manager.Received(), "READY=1\nSTATUS=serves");
    EXPECT_EQ(manager.Received(), "STOPPING=1");
  }
  EXPECT_EQ(rmdir(folder), 0) << "the socket is removed with its object";
}

TEST(ServiceManagerTest, AMessageThatNobodyTakesIsNoErrorOfTheCaller) {
  setenv("NOTIFY_SOCKET", "/nobody/listens/here", 1);
  CapturedLog log;
  TellServiceManagerOrWarn("READY=1");
  EXPECT_THAT(log.text(), HasSubstr("/nobody/listens/here"));
  unsetenv("NOTIFY_SOCKET");
}

TEST(ServiceManagerTest, ASocketWithAnAbstractNameDoesToo) {
  NotifySocket manager(absl::StrCat("@divvy-notify-", ProcessId()));
  EXPECT_TRUE(TellServiceManager("READY=1").ok());
  EXPECT_EQ(manager.Received(), "READY=1");
}

TEST(ServiceManagerTest, WithoutAServiceManagerNobodyIsTold) {
  unsetenv("NOTIFY_SOCKET");
  EXPECT_TRUE(TellServiceManager("READY=1").ok());
  setenv("NOTIFY_SOCKET", "", 1);
  EXPECT_TRUE(TellServiceManager("READY=1").ok());
}

TEST(ServiceManagerTest, ASocketThatCannotBeIsNamed) {
  setenv("NOTIFY_SOCKET", "relative/socket", 1);
  EXPECT_TRUE(absl::IsInvalidArgument(TellServiceManager("READY=1")));
  setenv("NOTIFY_SOCKET", absl::StrCat("/", std::string(200, 'x')).c_str(), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(TellServiceManager("READY=1")));
  setenv("NOTIFY_SOCKET", "/nobody/listens/here", 1);
  const absl::Status told = TellServiceManager("READY=1");
  EXPECT_TRUE(absl::IsUnavailable(told));
  EXPECT_THAT(std::string(told.message()), HasSubstr("/nobody/listens/here"));
  unsetenv("NOTIFY_SOCKET");
}

}  // namespace
}  // namespace divvy
