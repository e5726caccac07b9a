#include "task/command_line.h"

#include <cstdlib>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

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
    return ReadCommandLine(static_cast<int>(words.size()), argv.data(), "what it is",
                           [] { return "its flags\n"; });
  }

 private:
  absl::FlagSaver saver_;
};

TEST_F(CommandLineTest, FlagsAreReadAndTheProcessGoesOn) {
  EXPECT_EQ(Read({"--bind_address=127.0.0.1:1"}), std::nullopt);
  EXPECT_EQ(absl::GetFlag(FLAGS_bind_address), "127.0.0.1:1");
}

TEST_F(CommandLineTest, HelpIsPrintedAndIsNoError) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(Read({"--help"}), 0);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "what it is\nits flags\n");
}

TEST_F(CommandLineTest, AWordThatIsNoFlagIsNamedAndIsAnErrorOfUsage) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(Read({"--bind_address=x", "bind"}), 64);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("\"bind\": a task takes flags alone"));
}

TEST_F(CommandLineTest, ABinaryPlaysItsOwnRolesAlone) {
  unsetenv("TF_CONFIG");
  EXPECT_THAT(std::string(OwnTask("ps_server", {Role::kPs}).status().message()),
              HasSubstr("set TF_CONFIG, or --task_type=ps, --task_index"));
  setenv("TF_CONFIG",
         R"({"cluster":{"chief":["c:1"],"ps":["p:1"],"worker":["w:1"]},)"
         R"("task":{"type":"worker","index":0}})",
         1);
  EXPECT_EQ(OwnTask("worker", {Role::kWorker})->name(), "worker 0");
  EXPECT_EQ(OwnTask("both", {Role::kChief, Role::kWorker})->role, Role::kWorker);
  const absl::Status other = OwnTask("ps_server", {Role::kPs}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("this is ps_server, but TF_CONFIG's task.type is not \"ps\""));
}

}  // namespace
}  // namespace divvy
