#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cluster/cluster_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/gen/quote.h"
#include "tools/ctl/gen/testing/generated.h"

namespace divvy::gen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// The files by name, cut as the command at the head does it.
std::map<std::string, std::string> Files(const GenOptions& options) {
  std::map<std::string, std::string> files;
  std::string name;
  const absl::StatusOr<std::string> text = Generate(Kind::kSystemd, options);
  EXPECT_TRUE(text.ok()) << text.status();
  const std::string all = text.value_or("");
  for (absl::string_view line : absl::StrSplit(all, '\n')) {
    if (absl::ConsumePrefix(&line, "# file: "))
      name = std::string(line);
    else
      absl::StrAppend(&files[name], line, "\n");
  }
  return files;
}

std::vector<std::string> NamesOf(const std::map<std::string, std::string>& files) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files) names.push_back(name);
  return names;
}

TEST(SystemdFilesTest, AUnitForEachRoleAndAnEnvironmentForEachTask) {
  GenOptions options = Digits();
  options.evaluator = true;
  EXPECT_THAT(NamesOf(Files(options)),
              ElementsAre("chief-0.env", "digits-chief.service", "digits-evaluator.service",
                          "digits-ps@.service", "digits-worker@.service", "evaluator-0.env",
                          "ps-0.env", "ps-1.env", "worker-0.env", "worker-1.env"));
}

TEST(SystemdFilesTest, TheEnvironmentIsOfTheVeryTask) {
  GenOptions options = Digits();
  options.hosts = {"a", "b"};
  std::set<std::string> ports;
  for (const auto& [name, text] : Files(options)) {
    if (!absl::EndsWith(name, ".env")) continue;
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    absl::string_view json = lines[0];
    ASSERT_TRUE(absl::ConsumePrefix(&json, "TF_CONFIG='") && absl::ConsumeSuffix(&json, "'"));
    ClusterConfigSources sources;
    sources.tf_config = std::string(json);
    const auto config = ResolveParameterServerCluster(sources);
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(absl::StrCat(*config->task_type, "-", *config->task_index, ".env"), name);
    EXPECT_TRUE(ports.insert(lines[1]).second) << "tasks of one host need ports of their own";
    EXPECT_THAT(OwnAddress(*config), testing::ContainsRegex("^[ab]:222[2-6]$"));
  }
}

TEST(SystemdFilesTest, ACodeThatIsPermanentIsNotTriedAgain) {
  for (const auto& [name, text] : Files(Digits())) {
    if (!absl::EndsWith(name, ".service")) continue;
    EXPECT_THAT(text, HasSubstr("\nRestart=on-failure\n"));
    EXPECT_THAT(text, HasSubstr(absl::StrCat("\nRestartPreventExitStatus=",
                                             absl::StrJoin(PermanentCodes(), " "), "\n")));
    EXPECT_THAT(text, HasSubstr("\nSuccessExitStatus=130 143\n")) << "it has drained";
    EXPECT_THAT(text, HasSubstr("\nTimeoutStopSec=60\n"));
    // A task tells systemd when it serves (task/task_server.h).
    EXPECT_THAT(text, HasSubstr("\nType=notify\n"));
  }
}

TEST(SystemdFilesTest, EachHostIsToldItsUnits) {
  GenOptions options = Digits();
  options.hosts = {"a", "b"};
  EXPECT_THAT(Files(options)["digits-chief.service"],
              HasSubstr("\n#   a: systemctl enable --now digits-chief digits-ps@1 digits-worker@1\n"
                        "#   b: systemctl enable --now digits-ps@0 digits-worker@0\n"));
}

// The specifier %d is known from systemd 250 on.
TEST(SystemdFilesTest, CredentialsAreFoundByAllVersionsThatHaveThem) {
  const std::string text = Files(Digits())["digits-ps@.service"];
  EXPECT_THAT(text, HasSubstr("--tls_key=${CREDENTIALS_DIRECTORY}/tls.key"));
  EXPECT_THAT(text, Not(HasSubstr("%d")));
}

TEST(SystemdFilesTest, OnlyTheChiefHasAStateDirectoryAndWorkersHaveNoCheckpoints) {
  std::map<std::string, std::string> files = Files(Digits());
  EXPECT_THAT(files["digits-chief.service"], HasSubstr("\nStateDirectory=digits\n"));
  EXPECT_THAT(files["digits-chief.service"], HasSubstr("--state_dir=%S/digits"));
  EXPECT_THAT(files["digits-ps@.service"], Not(HasSubstr("StateDirectory")));
  for (const char* unit : {"digits-chief.service", "digits-ps@.service"}) {
    EXPECT_THAT(files[unit], HasSubstr("--checkpoint_dir=/srv/digits/checkpoints "));
    EXPECT_THAT(files[unit], HasSubstr("\nReadWritePaths=/srv/digits/checkpoints\n"));
  }
  EXPECT_THAT(files["digits-worker@.service"], Not(HasSubstr("checkpoints\n")));
}

TEST(SystemdFilesTest, EventFilesCanBeWritten) {
  GenOptions options = Digits();
  options.command.push_back("--tensorboard_dir=/srv/tb");
  std::map<std::string, std::string> files = Files(options);
  EXPECT_THAT(files["digits-chief.service"], HasSubstr("\nReadWritePaths=/srv/tb\n"));
  EXPECT_THAT(files["digits-ps@.service"], Not(HasSubstr("/srv/tb")));
}

TEST(SystemdFilesTest, MemoryIsLimitedToTheBudget) {
  GenOptions options = Digits();
  options.worker_memory = "2Gi";
  std::map<std::string, std::string> files = Files(options);
  EXPECT_THAT(files["digits-worker@.service"], HasSubstr("\nMemoryMax=2147483648\n"));
  EXPECT_THAT(files["digits-ps@.service"], HasSubstr("\nMemoryMax=8589934592\n"));
}

TEST(QuoteTest, WordsOfUnitsKeepTheirCharacters) {
  EXPECT_EQ(UnitWord("--epochs=3"), "--epochs=3");
  EXPECT_EQ(UnitWord("50% $HOME \"a\\b\""), R"("50%% $$HOME \"a\\b\"")");
  EXPECT_EQ(UnitWord(""), "\"\"");
}

TEST(QuoteTest, WordsOfShellsKeepTheirCharacters) {
  EXPECT_EQ(ShellWord("--epochs=3"), "--epochs=3");
  EXPECT_EQ(ShellWord("it's $HOME"), R"('it'\''s $HOME')");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace divvy::gen
