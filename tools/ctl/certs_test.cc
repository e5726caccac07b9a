#include "tools/ctl/certs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "rpc/credentials.h"

namespace divvy {
namespace {

CertsOptions In(const std::string& name) {
  CertsOptions options;
  options.out = absl::StrCat(testing::TempDir(), "/", name);
  options.ps = 1;
  options.workers = 2;
  return options;
}

TlsFiles FilesOf(const CertsOptions& options, const std::string& task) {
  return {absl::StrCat(options.out, "/", task, ".pem"), absl::StrCat(options.out, "/", task, ".key"), absl::StrCat(options.out, "/ca.pem")};
}

std::string Content(const std::string& name) {
  const auto bytes = FileSystem::Real().ReadFile(name);
  return bytes.ok() ? *bytes : bytes.status().ToString();
}

TEST(CertsTest, EachTaskGetsFilesThatItCanStartWith) {
  const CertsOptions options = In("each");
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  for (const char* task : {"chief-0", "ps-0", "worker-0", "worker-1", "admin-0"}) EXPECT_TRUE(CheckTlsFiles(FilesOf(options, task)).ok()) << task;
  EXPECT_EQ(FileSystem::Real().ListDirectory(options.out)->size(), 12u);  // five tasks and the CA, two files each
}

TEST(CertsTest, WhatIsThereIsNotOverwrittenUnlessOneInsists) {
  CertsOptions options = In("overwrite");
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  const std::string before = Content(options.out + "/ca.pem");
  EXPECT_EQ(WriteCertificates(options, FileSystem::Real()).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Content(options.out + "/ca.pem"), before);
  options.force = true;
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  EXPECT_NE(Content(options.out + "/ca.pem"), before);
  EXPECT_TRUE(CheckTlsFiles(FilesOf(options, "worker-1")).ok());
}

TEST(CertsTest, OptionsThatMakeNoSenseAreRefused) {
  CertsOptions nowhere = In("x"), expired = In("x"), negative = In("x"), strange = In("x");
  nowhere.out = "";
  expired.lifetime = absl::ZeroDuration();
  negative.ps = -1;
  strange.job = "a b";
  for (const CertsOptions& options : {nowhere, expired, negative, strange}) {
    EXPECT_EQ(WriteCertificates(options, FileSystem::Real()).code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace divvy
