#include "rpc/health_check.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/credentials.h"
#include "rpc/server.h"
#include "tools/ctl/certs.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

struct Heard {
  int exit_code = 0;
  std::string text;
};

Heard Ask(const std::string& address) {
  HealthOptions options;
  options.address = address;
  options.credentials = MakeChannelCredentials(std::nullopt, "");
  testing::internal::CaptureStderr();
  const int exit_code = CheckHealth(options);
  return {exit_code, testing::internal::GetCapturedStderr()};
}

TEST(HealthTest, AProbeWithoutACertificateIsToldThatOneIsWanted) {
  CertsOptions certs;
  certs.out = absl::StrCat(testing::TempDir(), "/certs");
  ASSERT_TRUE(WriteCertificates(certs, FileSystem::Real()).ok());
  ServerOptions options;
  options.address = "127.0.0.1:0";
  options.tls = TlsFiles{certs.out + "/ps-0.pem", certs.out + "/ps-0.key", certs.out + "/ca.pem"};
  v1::Admin::CallbackService service;
  const auto server = Server::Start(options, {&service}, nullptr);
  ASSERT_TRUE(server.ok()) << server.status();
  const Heard heard = Ask(absl::StrCat("127.0.0.1:", (*server)->port()));
  EXPECT_EQ(heard.exit_code, 2);
  EXPECT_THAT(heard.text, HasSubstr("it wants a certificate and got none"));
}

TEST(HealthTest, AProbeOfAPortWhereNobodyListensIsToldSo) {
  const Heard heard = Ask("127.0.0.1:1");
  EXPECT_EQ(heard.exit_code, 2);
  EXPECT_THAT(heard.text, HasSubstr("connection refused: nothing listens there"));
}

}  // namespace
}  // namespace divvy
