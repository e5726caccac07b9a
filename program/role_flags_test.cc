// Every flag of Divvy, and its effect in each mode.
#include "program/role_flags.h"

#include <set>
#include <string>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/program_flags.h"
#include "task/flag_help.h"
#include "task/own_flags.h"

ABSL_FLAG(int, test_rows, 3, "of the test's program");
ABSL_FLAG(std::string, test_shape, "", "of the test's program");
ABSL_FLAG(bool, test_wide, true, "of the test's program");
ABSL_FLAG(std::string, test_s3_key, "", "of the test's program, for no other eyes");

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class RoleFlagsTest : public testing::Test {
 protected:
  static void Set(const std::string& name, const std::string& value) {
    std::string error;
    ASSERT_TRUE(absl::FindCommandLineFlag(name)->ParseFrom(value, &error)) << name << ": " << error;
  }

 private:
  absl::FlagSaver saver_;
};

// A value that differs from the default.
std::string AnotherValueOf(const absl::CommandLineFlag& flag) {
  if (flag.Name() == "durability") return "checkpoint";
  if (flag.Name() == "gpus") return "none";
  if (flag.Name() == "rebalance") return "auto";
  if (flag.Name() == "local_path") return "off";
  if (flag.IsOfType<bool>()) return flag.DefaultValue() == "true" ? "false" : "true";
  if (flag.IsOfType<absl::Duration>()) return "77s";
  return "77";
}

// A new flag needs a row in task/flags.inc.
TEST_F(RoleFlagsTest, EachFlagThatIsDefinedStandsInTheTableAndTheOtherWayAround) {
  std::set<std::string> defined, listed;
  const std::set<std::string> of_program = ProgramFlagNames();
  for (const std::string& name : FlagsOfThisBinary()) {
    if (of_program.count(name) == 0) defined.insert(name);
  }
  for (const OwnFlag& flag : OwnFlags()) {
    EXPECT_TRUE(listed.insert(std::string(flag.name)).second) << flag.name << " stands twice";
    EXPECT_EQ(flag.why_not_embedded.empty(), (flag.users & kUsedByEmbedded) != 0) << flag.name;
    EXPECT_EQ(flag.is_switch, absl::FindCommandLineFlag(flag.name)->IsOfType<bool>()) << flag.name;
  }
  EXPECT_EQ(defined, listed);
  EXPECT_EQ(of_program,
            std::set<std::string>({"test_rows", "test_s3_key", "test_shape", "test_wide"}));
}

TEST_F(RoleFlagsTest, WhatSoundsLikeASecretIsNotWrittenForTensorBoard) {
  Set("test_rows", "4");
  Set("test_s3_key", "AKIA");
  const auto configuration = EmbeddedSetupFromFlags({}).coordinator.report->configuration;
  EXPECT_EQ(configuration.at("--test_rows"), "4");
  EXPECT_EQ(configuration.at("--test_s3_key"), "(not shown)");
}

TEST_F(RoleFlagsTest, FlagsOfTheProgramAreHyperparametersWithTheirTypesButNoSecrets) {
  Set("test_s3_key", "AKIA");
  Set("test_shape", "nan");
  const auto hparams = EmbeddedSetupFromFlags({}).coordinator.report->hparams;
  ASSERT_EQ(hparams.size(), 3u);
  EXPECT_EQ(std::get<double>(hparams.at("test_rows").value()), 3) << "also with its default value";
  EXPECT_TRUE(std::get<bool>(hparams.at("test_wide").value()));
  EXPECT_EQ(std::get<std::string>(hparams.at("test_shape").value()), "nan")
      << "no number that TensorBoard shows";
}

TEST_F(RoleFlagsTest, WhatIsNotUtf8IsWrittenForTensorBoardInAnotherForm) {
  Set("test_shape", "caf\xe9");
  const auto report = EmbeddedSetupFromFlags({}).coordinator.report;
  EXPECT_EQ(std::get<std::string>(report->hparams.at("test_shape").value()), "caf\\xe9");
  EXPECT_EQ(report->configuration.at("--test_shape"), "caf\\xe9");
  Set("test_shape", "caf\xc3\xa9\n");
  const auto good = EmbeddedSetupFromFlags({}).coordinator.report;
  EXPECT_EQ(std::get<std::string>(good->hparams.at("test_shape").value()), "caf\xc3\xa9\n");
}

TEST_F(RoleFlagsTest, HistogramsNeedADirectoryAndASecondBetweenThem) {
  Set("tensorboard_histograms", "1m");
  EXPECT_EQ(EmbeddedSetupFromFlags({}).coordinator.report->histograms_every, absl::Minutes(1));
  EXPECT_EQ(MakeTensorboardDir(),
            absl::InvalidArgumentError("--tensorboard_histograms needs --tensorboard_dir, the "
                                       "directory to write them to"));
  for (const char* every : {"999ms", "-1s"}) {
    Set("tensorboard_histograms", every);
    EXPECT_EQ(MakeTensorboardDir(),
              absl::InvalidArgumentError(absl::StrCat("--tensorboard_histograms=", every,
                                                      ": give 0 for none, or at least 1s")));
  }
}

TEST_F(RoleFlagsTest, AClusterInOneProcessRefusesEachFlagThatItWouldNotObey) {
  EXPECT_TRUE(CheckEmbeddedFlags().ok());
  for (const OwnFlag& flag : OwnFlags()) {
    absl::FlagSaver before;
    Set(std::string(flag.name), AnotherValueOf(*absl::FindCommandLineFlag(flag.name)));
    const absl::Status status = CheckEmbeddedFlags();
    if ((flag.users & kUsedByEmbedded) != 0) {
      EXPECT_TRUE(status.ok()) << status;
    } else {
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("--", flag.name, ": ", flag.why_not_embedded)))
          << flag.name;
    }
  }
}

// Each flag that the table gives to an embedded cluster changes an option of the cluster.
// (--log_format and --drain_timeout concern the whole process, and are read elsewhere.)
TEST_F(RoleFlagsTest, AClusterInOneProcessObeysTheOthers) {
  Set("watchdog", "7s");
  Set("step_deadline", "8s");
  Set("max_step_attempts", "9");
  Set("ps_timeout", "10s");
  Set("job_name", "mine");
  Set("memory_limit_bytes", "1000");
  Set("commit_buffer_bytes", "2000");
  Set("snapshot_buffer_bytes", "3000");
  Set("check_numerics", "true");
  Set("pipeline_depth", "3");
  Set("keep", "5");
  const EmbeddedSetup setup = EmbeddedSetupFromFlags({});
  EXPECT_EQ(setup.coordinator.core.watchdog, absl::Seconds(7));
  EXPECT_EQ(setup.coordinator.core.step_deadline, absl::Seconds(8));
  EXPECT_EQ(setup.coordinator.core.max_step_attempts, 9);
  EXPECT_EQ(setup.coordinator.core.ps_timeout, absl::Seconds(10));
  EXPECT_EQ(setup.coordinator.core.job, JobNamed("mine"));
  EXPECT_EQ(setup.ps.memory_limit_bytes, 1000);
  EXPECT_EQ(setup.ps.max_commit_bytes, 1000);
  EXPECT_EQ(setup.ps.snapshot_buffer_bytes, 3000);
  EXPECT_TRUE(setup.worker.check_numerics);
  EXPECT_EQ(setup.worker.pulls.pipeline_depth, 3);
  EXPECT_EQ(setup.coordinator.core.keep_checkpoints, 5);
}

// The flags of a role mean the same for a process and for a part of an embedded cluster.
TEST_F(RoleFlagsTest, ATaskIsMadeOfTheSameOptionsAsItsRoleInOneProcess) {
  Set("check_numerics", "true");
  Set("pipeline_depth", "2");
  Set("watchdog", "7s");
  Set("seed", "8");
  Set("job_name", "mine");
  const EmbeddedSetup embedded = EmbeddedSetupFromFlags({});
  StrategyOptions strategy;
  strategy.communication.bytes_per_pack = 9;
  const WorkerTaskOptions worker = WorkerOptionsFromFlags({}, strategy);
  EXPECT_EQ(worker.communication.bytes_per_pack, 9);
  EXPECT_TRUE(worker.core.check_numerics && embedded.worker.check_numerics);
  EXPECT_EQ(worker.core.pulls.pipeline_depth, 2);
  EXPECT_EQ(embedded.worker.pulls.pipeline_depth, 2);
  const ChiefTaskOptions chief = ChiefOptionsFromFlags({}, {});
  for (const CoordinatorOptions& core : {chief.setup.core, embedded.coordinator.core}) {
    EXPECT_EQ(core.watchdog, absl::Seconds(7));
    EXPECT_EQ(core.job_seed, 8u);
    EXPECT_EQ(core.job, JobNamed("mine"));
  }
}

TEST_F(RoleFlagsTest, CommitsOfAClusterInOneProcessAreAsLargeAsTheyLikeUnlessOneSaysOtherwise) {
  EXPECT_EQ(EmbeddedSetupFromFlags({}).ps.max_commit_bytes, 0);
}

TEST_F(RoleFlagsTest, HelpListsTheProgramsFlagsAndAllOfDivvyWithTheirDefaults) {
  const std::string help = HelpOfProgram();
  EXPECT_THAT(
      help, AllOf(HasSubstr("flags of this program:\n  --test_rows=3\n"), HasSubstr("\n  --ps=2\n"),
                  HasSubstr("\n  --checkpoint_dir=\n"), HasSubstr("\n  --orphan_timeout=1h\n")));
  EXPECT_THAT(help, Not(HasSubstr("flagfile")));
  for (const OwnFlag& flag : OwnFlags())
    EXPECT_THAT(help, HasSubstr(absl::StrCat("\n  --", flag.name, "=")));
}

// "`268435456` (256 MiB)"
std::string DefaultText(const absl::CommandLineFlag& flag) {
  const std::string value = flag.DefaultValue();
  if (value.empty()) return "";
  int64_t bytes = 0;
  const bool is_mebibytes = absl::EndsWith(flag.Name(), "_bytes") &&
                            absl::SimpleAtoi(value, &bytes) && bytes > 0 && bytes % (1 << 20) == 0;
  return absl::StrCat("`", value, "`",
                      is_mebibytes ? absl::StrCat(" (", bytes >> 20, " MiB)") : "");
}

std::string TableOfFlags() {
  std::string table = "| flag | read by | default | means |\n|---|---|---|---|\n";
  for (const OwnFlag& flag : OwnFlags()) {
    absl::StrAppend(&table, "| `--", flag.name, "` | ", UsersText(flag.users), " | ",
                    DefaultText(*absl::FindCommandLineFlag(flag.name)), " | ", flag.meaning,
                    " |\n");
  }
  return table;
}

TEST_F(RoleFlagsTest, TheTableOfTheDocumentIsMadeOfThisOne) {
  const std::string kBegin = "<!-- made of task/flags.inc -->\n", kEnd = "<!-- end -->\n";
  const absl::StatusOr<std::string> page =
      FileSystem::Real().ReadFile("docs/operating/operations.md");
  ASSERT_TRUE(page.ok()) << page.status();
  const size_t begin = page->find(kBegin), end = page->find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const std::string written = page->substr(begin + kBegin.size(), end - begin - kBegin.size());
  EXPECT_EQ(written, TableOfFlags()) << "write this into docs/operating/operations.md:\n"
                                     << TableOfFlags();
}

TEST_F(RoleFlagsTest, HelpOfABinaryForOneRoleListsWhatThatRoleReads) {
  const std::string help = HelpOfTask({Role::kWorker});
  EXPECT_THAT(help, AllOf(HasSubstr("--blas_threads="), HasSubstr("--tls_cert="),
                          HasSubstr("--program="), HasSubstr("--test_rows=3")));
  EXPECT_THAT(help,
              AllOf(Not(HasSubstr("--checkpoint_dir")), Not(HasSubstr("--memory_limit_bytes"))));
}

}  // namespace
}  // namespace divvy
