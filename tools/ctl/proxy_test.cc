// divvyctl calls tasks directly, whatever proxy the environment names, as tasks call each other.
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/credentials.h"
#include "rpc/health_check.h"
#include "rpc/server.h"
#include "tools/ctl/status.h"

namespace divvy {
namespace {

class Status : public v1::Admin::CallbackService {
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest*, v1::TaskStatus* reply) override {
    reply->set_state("fine");
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class ProxyTest : public testing::Test {
 protected:
  ProxyTest() {
    setenv("http_proxy", "http://127.0.0.1:9", 1);  // nothing listens there
    ServerOptions options;
    options.address = "127.0.0.1:0";
    auto server = Server::Start(options, {&status_}, nullptr);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    server_->SetServing(true);
    address_ = absl::StrCat("127.0.0.1:", server_->port());
  }
  ~ProxyTest() override { unsetenv("http_proxy"); }

  Status status_;
  std::unique_ptr<Server> server_;
  std::string address_;
};

TEST_F(ProxyTest, HealthIsAskedPastAProxy) {
  HealthOptions options;
  options.address = address_;
  options.credentials = MakeChannelCredentials(std::nullopt, "");
  options.connect_timeout = options.rpc_timeout = absl::Seconds(10);
  EXPECT_EQ(CheckHealth(options), 0);
}

TEST_F(ProxyTest, StatusIsAskedPastAProxyAndSaysWhyATaskDidNotAnswer) {
  StatusOptions options;
  options.addresses = {address_};
  options.credentials = MakeChannelCredentials(std::nullopt, "");
  EXPECT_EQ(ShowStatus(options), 0);
  options.addresses = {"127.0.0.1:9"};
  testing::internal::CaptureStdout();
  EXPECT_NE(ShowStatus(options), 0);
  EXPECT_THAT(
      testing::internal::GetCapturedStdout(),
      testing::HasSubstr("cannot reach 127.0.0.1:9: connection refused: nothing listens there"));
}

}  // namespace
}  // namespace divvy
