// Every flag in a generated file is one that the role reads, with a value that it takes.
#include <map>
#include <string>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/role_flags.h"
#include "protocol/role.h"
#include "task/own_flags.h"
#include "tools/ctl/gen/budget.h"
#include "tools/ctl/gen/testing/generated.h"

namespace divvy::gen {
namespace {

// The linker takes the files with the flags only if the test uses something of them.
[[maybe_unused]] const auto kLinksTheFlags = &CheckEmbeddedFlags;

// "": the role accepts the word.
std::string ProblemOf(Role role, const std::string& word) {
  const std::vector<std::string> parts =
      absl::StrSplit(absl::StripPrefix(word, "--"), absl::MaxSplits('=', 1));
  const OwnFlag* const own = FindOwnFlag(parts[0]);
  absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(parts[0]);
  if (own == nullptr || flag == nullptr || parts.size() != 2)
    return absl::StrCat(word, ": no flag of Divvy with a value");
  if ((own->users & UserOf(role)) == 0) return absl::StrCat(word, ": not for a ", RoleName(role));
  // What the file's reader puts in.
  const std::string value = absl::StrReplaceAll(parts[1], {{"$(TASK_INDEX)", "0"},
                                                           {"${HTTP_PORT}", "9464"},
                                                           {"$((http_port + k))", "9464"},
                                                           {"\"", ""}});
  std::string error;
  return flag->ParseFrom(value, &error) ? "" : absl::StrCat(word, ": ", error);
}

void ExpectAccepted(const std::string& role, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    if (word == "--epochs=3") {
      EXPECT_TRUE(role == "chief" || role == "evaluator") << "the program's own flag";
    } else {
      EXPECT_EQ(ProblemOf(*ParseRole(role), word), "") << role;
    }
  }
}

GenOptions EveryRole(Kind kind) {
  GenOptions options = Digits();
  options.evaluator = kind != Kind::kSlurm && kind != Kind::kPrometheus;
  if (kind != Kind::kSystemd && kind != Kind::kPrometheus) options.gpus_per_worker = 2;
  return options;
}

TEST(AcceptedTest, ArgumentsOfPodsAreFlagsOfTheirRole) {
  for (const Kind kind : {Kind::kKubernetes, Kind::kTfJob, Kind::kJobSet}) {
    for (const Pods& pods : PodsIn(Documents(kind, EveryRole(kind))))
      ExpectAccepted(pods.role, Texts(pods.container()["args"]));
  }
}

TEST(AcceptedTest, CommandsOfComposeAreFlagsOfTheirRole) {
  for (const auto& service : Documents(Kind::kCompose, EveryRole(Kind::kCompose))[0]["services"]) {
    const std::string name = service.first.Scalar();
    ExpectAccepted(name.substr(0, name.rfind('-')), Texts(service.second["command"]));
  }
}

// The flags that the batch script itself adds: those of every step, and those of a role.
TEST(AcceptedTest, FlagsOfTheBatchScriptAreFlagsOfTheirRole) {
  const std::string text = *Generate(Kind::kSlurm, EveryRole(Kind::kSlurm));
  const std::string start = "\"$program\" ";
  ASSERT_TRUE(absl::StrContains(text, start));
  const std::string step = text.substr(text.find(start) + start.size());
  int of_steps = 0, of_roles = 0;
  for (const absl::string_view word : absl::StrSplit(step.substr(0, step.find("\"${flags[@]}\"")),
                                                     absl::ByAnyChar(" \\\n"), absl::SkipEmpty())) {
    // The arithmetic in a word has spaces.
    if (!absl::StartsWith(word, "--")) continue;
    ++of_steps;
    const std::string whole =
        absl::StrContains(word, "$((") ? absl::StrCat(word, " + k))\"") : std::string(word);
    for (const char* role : {"chief", "ps", "worker"}) ExpectAccepted(role, {whole});
  }
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, "_flags+=(");
    if (parts.size() != 2) continue;
    ++of_roles;
    ExpectAccepted(std::string(parts[0]), {std::string(absl::StripSuffix(parts[1], ")"))});
  }
  EXPECT_EQ(of_steps, 4) << "the address of the pages, and three for TLS";
  EXPECT_EQ(of_roles, 3) << "the state, and checkpoints of two roles";
}

TEST(AcceptedTest, FlagsOfUnitsAndStepsAreFlagsOfTheirRole) {
  for (const Kind kind : {Kind::kSystemd, Kind::kSlurm}) {
    const absl::StatusOr<Job> job = MakeJob(kind, EveryRole(kind));
    ASSERT_TRUE(job.ok()) << job.status();
    for (const RolePlan& role : job->roles) ExpectAccepted(role.name(), role.flags);
  }
}

// ExecStart= of the units.
TEST(AcceptedTest, ExecStartOfUnitsHasFlagsOfTheirRole) {
  const std::string text = *Generate(Kind::kSystemd, EveryRole(Kind::kSystemd));
  std::string role;
  std::map<std::string, int> words;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "# file: digits-"))
      role = std::string(line.substr(0, line.find_first_of("@.")));
    if (!absl::ConsumePrefix(&line, "  ")) continue;
    ++words[role];
    ExpectAccepted(role, {std::string(absl::StripSuffix(line, " \\"))});
  }
  EXPECT_EQ(words,
            (std::map<std::string, int>{{"chief", 8}, {"ps", 7}, {"worker", 5}, {"evaluator", 2}}));
}

// The budgets are sums of the defaults of these flags.
TEST(AcceptedTest, TheBudgetsKnowTheDefaultsOfTheFlags) {
  const auto says = [](Role role, std::vector<std::string> words, const char* flag) {
    words.push_back(absl::StrCat("--", flag, "=", absl::FindCommandLineFlag(flag)->DefaultValue()));
    return BudgetOf(role, Arguments(words), "--x", "64Gi")->variable_bytes;
  };
  const auto otherwise = BudgetOf(Role::kPs, Arguments({}), "--x", "64Gi")->variable_bytes;
  for (const char* flag :
       {"rpc_memory_bytes", "commit_buffer_bytes", "snapshot_buffer_bytes", "pull_buffer_bytes"})
    EXPECT_EQ(says(Role::kPs, {}, flag), otherwise) << flag;
  // The least memory that a coordinator needs is 2 GiB, with and without the default.
  const std::string redo_log = absl::StrCat(
      "--redo_log_bytes=", absl::FindCommandLineFlag("redo_log_bytes")->DefaultValue());
  for (const auto& words : {std::vector<std::string>(), std::vector<std::string>{redo_log}}) {
    EXPECT_TRUE(BudgetOf(Role::kChief, Arguments(words), "--x", "2Gi").ok());
    EXPECT_FALSE(BudgetOf(Role::kChief, Arguments(words), "--x", "2047Mi").ok());
  }
}

}  // namespace
}  // namespace divvy::gen
