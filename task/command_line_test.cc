#include "task/command_line.h"

#include <cstdlib>
#include <utility>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "task/own_flags.h"

ABSL_DECLARE_FLAG(std::string, bind_address);

namespace divvy {
namespace {

using ::testing::HasSubstr;

class CommandLineTest : public testing::Test {
 protected:
  ~CommandLineTest() override { unsetenv("TF_CONFIG"); }

  static std::optional<int> Read(std::vector<std::string> words) {
    words.insert(words.begin(), "binary");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    return ReadCommandLine(static_cast<int>(words.size()), argv.data(), Named({Role::kPs}));
  }
  static Binary Named(std::vector<Role> roles) {
    return {"ps_server", "what it is", [] { return "its flags\n"; }, std::move(roles)};
  }

 private:
  absl::FlagSaver saver_;
};

// Abseil reads the command line of a process once, so each of these tests has a process of its own.
using CommandLineDeathTest = CommandLineTest;

TEST_F(CommandLineDeathTest, FlagsAreReadAndTheProcessGoesOn) {
  const auto goes_on = [] {
    const bool read =
        !Read({"--bind_address=127.0.0.1:1"}) && absl::GetFlag(FLAGS_bind_address) == "127.0.0.1:1";
    std::_Exit(read ? 0 : 1);
  };
  EXPECT_EXIT(goes_on(), testing::ExitedWithCode(0), "");
}

TEST_F(CommandLineDeathTest, AWordThatIsNoFlagIsNamedAndIsAnErrorOfUsage) {
  EXPECT_EXIT(std::_Exit(Read({"--bind_address=x", "bind"}).value_or(0)),
              testing::ExitedWithCode(64), "\"bind\": a task takes flags only");
}

TEST_F(CommandLineDeathTest, AHealthCheckOfAPortWhereNobodyListensEndsTheProcessWithTheCodeOfThat) {
  EXPECT_EXIT(std::_Exit(Read({"--check_health=127.0.0.1:1"}).value_or(0)),
              testing::ExitedWithCode(2), "connection refused: nothing listens there");
}

TEST_F(CommandLineDeathTest, AHealthCheckWithHalfOfACertificateIsRefused) {
  EXPECT_EXIT(std::_Exit(Read({"--check_health=127.0.0.1:1", "--tls_cert=x"}).value_or(0)),
              testing::ExitedWithCode(1), "health: --tls_cert, --tls_key and --tls_ca go together");
}

TEST_F(CommandLineTest, HelpIsPrintedAndIsNoError) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Read({"--help"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "what it is\nits flags\n");
}

TEST_F(CommandLineTest, AFlagThatNoRoleOfTheBinaryReadsIsRefusedWithThoseThatDo) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read({"--bind_address=x", "--blas_threads=3", "--notf32"}), 64);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "ps_server does not have --blas_threads (worker, evaluator, one process), --tf32 "
            "(worker, evaluator, one process): give each flag to the tasks in its "
            "brackets\n");
  EXPECT_TRUE(CheckFlagsOf("all", kUsedByChief | kUsedByWorker, {"seed", "tf32", "unheard"}).ok());
}

TEST_F(CommandLineTest, ABinaryPlaysItsOwnRolesAlone) {
  unsetenv("TF_CONFIG");
  EXPECT_THAT(std::string(OwnTask(Named({Role::kPs})).status().message()),
              HasSubstr("set TF_CONFIG, or --task_type=ps, --task_index"));
  setenv("TF_CONFIG",
         R"({"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w:1"]},)"
         R"("task":{"type":"worker","index":0}})",
         1);
  EXPECT_EQ(OwnTask(Named({Role::kWorker}))->name(), "worker 0");
  EXPECT_EQ(OwnTask(Named({Role::kChief, Role::kWorker}))->role, Role::kWorker);
  const absl::Status other = OwnTask(Named({Role::kPs})).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("this is ps_server, but TF_CONFIG's task.type is not \"ps\""));
}

}  // namespace
}  // namespace divvy
