// What `divvyctl gen` refuses, and the budgets.
#include "tools/ctl/gen/generate.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/ctl/gen/arguments.h"
#include "tools/ctl/gen/budget.h"
#include "tools/ctl/gen/testing/generated.h"

namespace divvy::gen {
namespace {

using testing::HasSubstr;

std::string ErrorOf(Kind kind, const GenOptions& options) {
  const absl::StatusOr<std::string> text = Generate(kind, options);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(text.status().message());
}

TEST(GenerateTest, EveryKindPrintsSomethingForAProgramAlone) {
  for (const Kind kind : kKinds) {
    const absl::StatusOr<std::string> text = Generate(kind, Digits());
    ASSERT_TRUE(text.ok()) << KindName(kind) << text.status();
    EXPECT_THAT(*text, HasSubstr("divvyctl gen"));
    EXPECT_THAT(*text, HasSubstr("digits"));
    EXPECT_EQ(text->back(), '\n');
  }
}

TEST(GenerateTest, KindsHaveTheNamesOfTheCommandLine) {
  for (const Kind kind : kKinds) EXPECT_EQ(ParseKind(KindName(kind)), kind);
  EXPECT_EQ(ParseKind("helm"), std::nullopt);
}

TEST(GenerateTest, EveryProblemIsSaidAtOnce) {
  GenOptions options;
  options.ps = 0;
  options.workers = 1001;
  options.gpus_per_worker = 65;
  options.image = "";
  options.tls_dir = "";
  EXPECT_EQ(ErrorOf(Kind::kCompose, options),
            "gen compose: the program is missing: write it after \"--\"; --ps=0: wanted 1 to 1000; "
            "--workers=1001: wanted 1 to 1000; --gpus_per_worker=65: wanted 0 to 64; --image is "
            "empty: give the name of an image with the program; --tls_dir is empty: tasks are not "
            "on loopback, so every task needs a certificate: divvyctl certs");
}

TEST(GenerateTest, ANameThatKubernetesWouldRefuseIsRefused) {
  GenOptions options = Digits();
  for (const char* name : {"Digits", "-digits", "digits-", "1digits", "my_job", "a.b", "",
                           "a123456789012345678901234567890123456789x"}) {
    options.name = name;
    EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
              std::string("gen kubernetes: --name=") + name +
                  ": wanted 1 to 40 lower-case letters, digits and \"-\", a letter first and no "
                  "\"-\" at the end");
  }
  options.name = "a12345678901234567890123456789012345678z";
  EXPECT_TRUE(Generate(Kind::kKubernetes, options).ok());
}

TEST(GenerateTest, AProgramWhoseNameCannotBeTheJobsNeedsAName) {
  GenOptions options;
  options.command = {"./2digits"};
  EXPECT_EQ(ErrorOf(Kind::kTfJob, options),
            "gen tfjob: the program's name \"2digits\" cannot be the job's: give it one by --name");
  options.command = {"build/My_Program.v2"};
  options.workers = 1;
  EXPECT_THAT(*Generate(Kind::kTfJob, options), HasSubstr("name: my-program-v2\n"));
}

TEST(GenerateTest, AFlagThatTheKindDoesNotUseIsRefused) {
  GenOptions options = Digits();
  options.image = "digits:2";
  options.nodes = 3;
  EXPECT_EQ(ErrorOf(Kind::kSystemd, options),
            "gen systemd does not use --image (kubernetes, tfjob, jobset, compose), --nodes "
            "(slurm): leave it out; in brackets are the kinds that do");
  options = Digits();
  options.evaluator = true;
  EXPECT_THAT(ErrorOf(Kind::kSlurm, options), HasSubstr("does not use --evaluator"));
  options = Digits();
  options.hosts = {"a"};
  EXPECT_THAT(ErrorOf(Kind::kJobSet, options),
              HasSubstr("does not use --hosts (systemd, prometheus)"));
}

TEST(GenerateTest, WhatTheFilesSayOfEachTaskIsNotSaidForAll) {
  GenOptions options = Digits();
  options.command = {"/digits", "--bind_address=0.0.0.0:1", "--http_address=:1", "--tls_cert", "x"};
  const std::string rest = " differs between tasks, and the file sets it for each: leave it out";
  EXPECT_EQ(
      ErrorOf(Kind::kKubernetes, options),
      "gen kubernetes: --bind_address" + rest + "; --http_address" + rest + "; --tls_cert" + rest);
}

// `./digits --ps=4` is a whole cluster in one process: who writes that behind "--" would silently
// get 2 parameter servers.
TEST(GenerateTest, AFlagThatNoTaskReadsIsRefused) {
  GenOptions options = Digits();
  options.command = {"./digits", "--ps=4", "--workers", "8"};
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: no task of the job reads --ps: write it before \"--\"; no task of the "
            "job reads --workers: write it before \"--\"");
  options.evaluator = true;
  EXPECT_TRUE(Generate(Kind::kKubernetes, options).ok()) << "an evaluator's own cluster";
}

TEST(GenerateTest, AFileWithFlagsIsRefused) {
  GenOptions options = Digits();
  options.command.push_back("--flagfile=f");
  options.command.push_back("-fromenv");
  const std::string rest =
      ": write the flags themselves, because each goes to the tasks that read it";
  EXPECT_EQ(ErrorOf(Kind::kSlurm, options), "gen slurm: --flagfile" + rest + "; --fromenv" + rest);
}

TEST(GenerateTest, TextsAreUtf8) {
  GenOptions options = Digits();
  options.image = "a\xff";
  options.command.push_back("x\xc3");
  EXPECT_EQ(ErrorOf(Kind::kJobSet, options),
            "gen jobset: --image is not UTF-8: \"a\\xff\"; argument 2 is not UTF-8: \"x\\xc3\"");
  options.image.reset();
  options.command.back() = "--note=gr\xc3\xbc\xc3\x9f";
  EXPECT_TRUE(Generate(Kind::kJobSet, options).ok());
}

TEST(GenerateTest, NumbersThatAreTooLargeDoNotOverflow) {
  GenOptions options = Digits();
  options.ps = 2147483647;
  options.workers = 2147483647;
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: --ps=2147483647: wanted 1 to 1000; --workers=2147483647: wanted 1 to "
            "1000");
}

TEST(GenerateTest, ControlCharactersAreRefused) {
  GenOptions options = Digits();
  options.image = "a\nb";
  options.command.push_back("x\ny");
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: --image has a control character: \"a\\x0ab\"; argument 2 has a "
            "control character: \"x\\x0ay\"");
}

TEST(GenerateTest, PathsThatAShellOrAUnitWouldReadOtherwiseAreRefused) {
  GenOptions options = Digits();
  options.tls_dir = "/etc/my certs";
  EXPECT_EQ(ErrorOf(Kind::kSlurm, options),
            "gen slurm: --tls_dir is \"/etc/my certs\": wanted letters, digits and "
            "\"/._-=:,+@\" alone");
  options = Digits();
  options.command.push_back("--checkpoint_dir=/ckpt$1");
  EXPECT_THAT(ErrorOf(Kind::kJobSet, options),
              HasSubstr("the directory of checkpoints is \"/ckpt$1\": wanted letters"));
}

TEST(GenerateTest, APathInAContainerAndOfAServiceIsAbsolute) {
  GenOptions options = Digits();
  options.command = {"/digits", "--checkpoint_dir=ckpt"};
  EXPECT_EQ(ErrorOf(Kind::kCompose, options),
            "gen compose: --checkpoint_dir is \"ckpt\": a path in the containers must begin with "
            "/");
  options = Digits();
  options.checkpoints = "ckpt";
  EXPECT_EQ(ErrorOf(Kind::kSystemd, options),
            "gen systemd: --checkpoints is \"ckpt\": it must begin with /");
}

TEST(GenerateTest, EventFilesAreWrittenToAVolume) {
  GenOptions options = Digits();
  options.command.push_back("--tensorboard_dir=/logs");
  EXPECT_EQ(ErrorOf(Kind::kJobSet, options),
            "gen jobset: --tensorboard_dir=/logs: containers can write only to their volumes: name "
            "a directory below /checkpoints");
  options.command.back() = "--tensorboard_dir=logs";
  EXPECT_EQ(ErrorOf(Kind::kSystemd, options),
            "gen systemd: --tensorboard_dir=logs: it must begin with /");
  options.command.back() = "--tensorboard_dir=/checkpoints/tb";
  EXPECT_TRUE(Generate(Kind::kJobSet, options).ok());
}

TEST(GenerateTest, AVolumeHasANameAndIsNotTheCoordinators) {
  GenOptions options = Digits();
  options.checkpoints = "a b";
  EXPECT_EQ(ErrorOf(Kind::kCompose, options),
            "gen compose: --checkpoints=a b: the name of a volume may have letters, digits, '_', "
            "'-' and '.'; a directory of the host must have a slash");
  options.checkpoints = "state";
  EXPECT_THAT(ErrorOf(Kind::kCompose, options),
              HasSubstr("--checkpoints=state: that volume is the chief's state directory"));
}

TEST(GenerateTest, TheDirectoryOfCheckpointsIsNamedOnce) {
  GenOptions options = Digits();
  options.checkpoints = "/srv/a";
  options.command.push_back("--checkpoint_dir=/srv/b");
  EXPECT_EQ(ErrorOf(Kind::kSlurm, options),
            "gen slurm: --checkpoints and --checkpoint_dir name one directory: give one of them");
}

TEST(GenerateTest, NamesOfOtherObjectsAreChecked) {
  GenOptions options = Digits();
  options.kube_namespace = "My";
  options.tls_secret = "a_b";
  options.data_claim = "";
  options.checkpoint_claim = "c.";
  options.storage_class = "fast-";
  const std::string error = ErrorOf(Kind::kKubernetes, options);
  for (const char* part :
       {"--namespace=My: wanted 1 to 63 lower", "--tls_secret=a_b: wanted", "--data_claim=: wanted",
        "--checkpoint_claim=c.: wanted", "--storage_class=fast-: wanted"})
    EXPECT_THAT(error, HasSubstr(part));
}

TEST(GenerateTest, AnExistingClaimHasItsOwnSize) {
  GenOptions options = Digits();
  options.checkpoint_claim = "shared";
  options.checkpoint_size = "1Gi";
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: --checkpoint_claim names a claim that exists: leave out "
            "--checkpoint_size, which is for a new one");
}

TEST(GenerateTest, ASecretHasRoomForSoManyTasks) {
  GenOptions options = Digits();
  options.ps = 400;
  options.workers = 501;
  EXPECT_EQ(ErrorOf(Kind::kTfJob, options),
            "gen tfjob: --ps and --workers are 901 together, and a Secret has room for the "
            "certificates of 900");
  EXPECT_TRUE(MakeJob(Kind::kCompose, options).ok());
}

TEST(GenerateTest, HostsHaveNoPorts) {
  GenOptions options = Digits();
  options.hosts = {"a", "b:22", "", "grpc://c"};
  EXPECT_EQ(ErrorOf(Kind::kSystemd, options),
            "gen systemd: --hosts has \"b:22\": wanted names or addresses without a port; --hosts "
            "has \"\": wanted names or addresses without a port; --hosts has \"grpc://c\": wanted "
            "names or addresses without a port");
}

TEST(GenerateTest, EveryNodeGetsATask) {
  GenOptions options = Digits();
  options.nodes = 6;
  EXPECT_EQ(ErrorOf(Kind::kSlurm, options), "gen slurm: --nodes=6: wanted 1 to 5");
  options.nodes = 0;
  EXPECT_EQ(ErrorOf(Kind::kSlurm, options), "gen slurm: --nodes=0: wanted 1 to 5");
}

TEST(GenerateTest, PrometheusIsToldOfAKindWhoseAddressesAreKnown) {
  GenOptions options = Digits();
  for (const char* kind : {"slurm", "prometheus", "x"}) {
    options.of = kind;
    EXPECT_EQ(ErrorOf(Kind::kPrometheus, options),
              std::string("gen prometheus: --of=") + kind +
                  ": wanted kubernetes, tfjob, jobset, compose or systemd");
  }
  EXPECT_EQ(ErrorOf(Kind::kPrometheus, GenOptions()),
            "gen prometheus: the program is missing: write it after \"--\", or give the job's "
            "--name");
  options.of.reset();
  options.hosts = {"a"};
  EXPECT_EQ(ErrorOf(Kind::kPrometheus, options),
            "gen prometheus: --hosts has no effect with --of=kubernetes: it is for --of=systemd");
  options.hosts.reset();
  options.of = "systemd";
  options.kube_namespace = "training";
  EXPECT_EQ(ErrorOf(Kind::kPrometheus, options),
            "gen prometheus: --namespace has no effect with --of=systemd: it is for "
            "--of=kubernetes, tfjob and jobset");
  options.of.reset();
  options.rules = "";
  EXPECT_THAT(ErrorOf(Kind::kPrometheus, options), HasSubstr("--rules is empty"));
}

TEST(GenerateTest, CoresAreAtLeastOne) {
  GenOptions options = Digits();
  options.ps_cpus = 0;
  options.worker_cpus = -1;
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: --ps_cpus=0: wanted 1 to 1024; --worker_cpus=-1: wanted 1 to 1024");
}

TEST(GenerateTest, ATaskThatDrainsForTooLongWouldBeKilled) {
  GenOptions options = Digits();
  options.command.push_back("--drain_timeout=51s");
  EXPECT_EQ(ErrorOf(Kind::kKubernetes, options),
            "gen kubernetes: --drain_timeout=51s: wanted at most 50s, because a task is killed "
            "after 60 s");
  options.command.back() = "--drain_timeout=soon";
  EXPECT_THAT(ErrorOf(Kind::kKubernetes, options), HasSubstr("--drain_timeout=soon: wanted"));
}

// ---- sizes and budgets --------------------------------------------------------------------------

TEST(SizeTest, IsReadAndWritten) {
  for (const char* text : {"8Gi", "512Mi", "64Ki", "1Ti", "1023", "1536Mi"})
    EXPECT_EQ(SizeText(*ParseSize("--x", text)), text);
  EXPECT_EQ(*ParseSize("--x", "2048Mi"), int64_t{2} << 30);
}

TEST(SizeTest, AnythingElseIsRefused) {
  for (const char* text : {"", "Gi", "8G", "8GB", "-1Gi", "0", "1.5Gi", "8 Gi", "1025Ti",
                           "8388607Ti", "9000000000Gi"}) {
    EXPECT_EQ(ParseSize("--ps_memory", text).status(),
              absl::InvalidArgumentError(std::string("--ps_memory=") + text +
                                         ": wanted a size such as 8Gi or 512Mi (Ki, Mi, Gi, Ti)"));
  }
}

constexpr int64_t kMiB = int64_t{1} << 20, kGiB = int64_t{1} << 30;

// 1.5 x (1 GiB of messages + 512 MiB of commits) + 1 GiB each for snapshots and replies + 256 MiB.
TEST(BudgetTest, WhatTheBuffersOfAPsLeaveIsForVariables) {
  const auto budget = BudgetOf(Role::kPs, Arguments({}), "--ps_memory", "8Gi");
  ASSERT_TRUE(budget.ok()) << budget.status();
  EXPECT_EQ(budget->memory_bytes, 8 * kGiB);
  EXPECT_EQ(budget->variable_bytes, 8 * kGiB - 4608 * kMiB);
}

TEST(BudgetTest, SmallerBuffersLeaveMore) {
  const Arguments arguments({"--snapshot_buffer_bytes=0", "--pull_buffer_bytes", "0"});
  const auto budget = BudgetOf(Role::kPs, arguments, "--ps_memory", "8Gi");
  EXPECT_EQ(budget->variable_bytes, 8 * kGiB - 2560 * kMiB);
}

TEST(BudgetTest, TheLimitOfAPsFollowsFromItsFlag) {
  const Arguments arguments({"--memory_limit_bytes=10737418240"});
  const auto budget = BudgetOf(Role::kPs, arguments, "--ps_memory", std::nullopt);
  EXPECT_EQ(budget->memory_bytes, 10 * kGiB + 4608 * kMiB);
  EXPECT_EQ(budget->variable_bytes, std::nullopt) << "the flag is on the command line already";
}

TEST(BudgetTest, ALimitBelowTheSumIsRefused) {
  EXPECT_EQ(BudgetOf(Role::kPs, Arguments({}), "--ps_memory", "4Gi").status(),
            absl::InvalidArgumentError(
                "--ps_memory=4Gi is less than the 4672Mi that a ps may take by its flags: raise "
                "it, or lower --rpc_memory_bytes, --commit_buffer_bytes, --snapshot_buffer_bytes, "
                "--pull_buffer_bytes"));
  EXPECT_THAT(std::string(BudgetOf(Role::kPs, Arguments({"--memory_limit_bytes=8589934592"}),
                                   "--ps_memory", "8Gi")
                              .status()
                              .message()),
              HasSubstr("less than the 12800Mi"));
  EXPECT_THAT(
      std::string(
          BudgetOf(Role::kChief, Arguments({}), "--coordinator_memory", "1Gi").status().message()),
      HasSubstr("--coordinator_memory=1Gi is less than the 2Gi that a coordinator"));
}

TEST(BudgetTest, FilesInMemoryAreNotForVariables) {
  const auto budget = BudgetOf(Role::kPs, Arguments({}), "--ps_memory", "8Gi", 64 * kMiB);
  EXPECT_EQ(budget->variable_bytes, 8 * kGiB - 4672 * kMiB);
}

TEST(BudgetTest, ABufferIsANumberOfBytes) {
  EXPECT_EQ(BudgetOf(Role::kWorker, Arguments({"--rpc_memory_bytes=1Gi"}), "--worker_memory", "8Gi")
                .status(),
            absl::InvalidArgumentError("--rpc_memory_bytes=1Gi: wanted a number of bytes"));
}

}  // namespace
}  // namespace divvy::gen
