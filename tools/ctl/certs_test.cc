#include "tools/ctl/certs.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rpc/credentials.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

CertsOptions In(const std::string& name) {
  CertsOptions options;
  options.out = absl::StrCat(testing::TempDir(), "/", name);
  options.ps = 1;
  options.workers = 2;
  return options;
}

TlsFiles FilesOf(const CertsOptions& options, const std::string& task) {
  return {absl::StrCat(options.out, "/", task, ".pem"),
          absl::StrCat(options.out, "/", task, ".key"), absl::StrCat(options.out, "/ca.pem")};
}

// "ps-2" -> the role that its certificate must name.
PeerRole RoleOf(const std::string& task) {
  return {task.substr(0, task.find('-')), task.substr(task.find('-') + 1)};
}

std::string Content(const std::string& name) {
  const auto bytes = FileSystem::Real().ReadFile(name);
  return bytes.ok() ? *bytes : bytes.status().ToString();
}

TEST(CertsTest, EachTaskGetsFilesThatItCanStartWith) {
  const CertsOptions options = In("each");
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  for (const char* task : {"chief-0", "ps-0", "worker-0", "worker-1", "admin-0"})
    EXPECT_TRUE(CheckTlsFiles(FilesOf(options, task)).ok()) << task;
  // Five tasks and the CA, with two files each.
  EXPECT_EQ(FileSystem::Real().ListDirectory(options.out)->size(), 12u);
}

TEST(CertsTest, WhatIsThereIsNotOverwrittenUnlessOneInsists) {
  CertsOptions options = In("overwrite");
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  const std::string before = Content(options.out + "/ca.pem");
  EXPECT_EQ(WriteCertificates(options, FileSystem::Real()).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Content(options.out + "/ca.pem"), before);
  options.force = true;
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  EXPECT_NE(Content(options.out + "/ca.pem"), before);
  EXPECT_TRUE(CheckTlsFiles(FilesOf(options, "worker-1")).ok());
}

TEST(CertsTest, AJobThatNoCertificateCouldNameIsRefused) {
  for (const char* job : {"a/b", "../../x", "a b", "a?b", "job:1"}) {
    CertsOptions options = In("named");
    options.job = job;
    const absl::Status refused = WriteCertificates(options, FileSystem::Real()).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << job;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("letters, digits")) << job;
  }
}

TEST(CertsTest, MoreTasksGetTheirsFromTheSameCa) {
  CertsOptions options = In("more");
  options.job = "mine";
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  const std::string authority = Content(options.out + "/ca.pem"),
                    first = Content(options.out + "/ps-0.pem");
  options.job = "";
  options.add = true;
  options.ps = 3;
  EXPECT_EQ(*WriteCertificates(options, FileSystem::Real()),
            (std::vector<std::string>{"ps-1", "ps-2"}));
  EXPECT_EQ(Content(options.out + "/ca.pem"), authority);
  EXPECT_EQ(Content(options.out + "/ps-0.pem"), first);
  for (const char* task : {"chief-0", "ps-2"}) {
    EXPECT_TRUE(CheckTlsFiles(FilesOf(options, task)).ok()) << task;
    EXPECT_TRUE(CheckTlsFiles(FilesOf(options, task), RoleOf(task)).ok()) << task;
  }
  EXPECT_TRUE(WriteCertificates(options, FileSystem::Real())->empty()) << "nothing is missing";
}

TEST(CertsTest, NothingIsAddedWithoutTheKeyOfTheCa) {
  CertsOptions options = In("no_key");
  options.add = true;
  EXPECT_THAT(std::string(WriteCertificates(options, FileSystem::Real()).status().message()),
              HasSubstr("leave --add out to begin with a new CA"));
  options.add = false;
  ASSERT_TRUE(WriteCertificates(options, FileSystem::Real()).ok());
  options.add = true;
  options.job = "other";
  EXPECT_THAT(std::string(WriteCertificates(options, FileSystem::Real()).status().message()),
              HasSubstr("the CA is of job \"divvy\", and --job is \"other\""));
  options.job = "";
  ASSERT_TRUE(FileSystem::Real()
                  .ReplaceFile(options.out + "/ca.key", Content(options.out + "/ps-0.key"))
                  .ok());
  EXPECT_THAT(std::string(WriteCertificates(options, FileSystem::Real()).status().message()),
              HasSubstr("the key is not that of the certificate"));
  ASSERT_TRUE(FileSystem::Real().Remove(options.out + "/ca.key").ok());
  options.ps = 2;
  const absl::Status refused = WriteCertificates(options, FileSystem::Real()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr(
          "stays where `divvyctl certs` made the CA: run --add there, or put the key back"));
  EXPECT_FALSE(FileSystem::Real().Stat(options.out + "/ps-1.pem").ok());
}

TEST(CertsTest, OptionsThatMakeNoSenseAreRefused) {
  CertsOptions nowhere = In("x"), expired = In("x"), negative = In("x"), strange = In("x"),
               both = In("x");
  both.add = both.force = true;
  nowhere.out = "";
  expired.lifetime = absl::ZeroDuration();
  negative.ps = -1;
  strange.job = "a b";
  for (const CertsOptions& options : {nowhere, expired, negative, strange, both}) {
    EXPECT_EQ(WriteCertificates(options, FileSystem::Real()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace divvy
