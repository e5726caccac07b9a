#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/config/compose_file.h"
#include "tools/config/describe_cluster.h"

namespace divvy {
namespace {

using testing::HasSubstr;
using testing::Not;

// ---- divvyctl config ----------------------------------------------------------------------------

std::string Described(const std::string& tf_config, ClusterFlags flags = {}) {
  ClusterConfigSources sources;
  sources.tf_config = tf_config;
  sources.flags = flags;
  return DescribeCluster(sources).text;
}

TEST(DescribeClusterTest, EveryTaskHasItsLineAndThisOneAStar) {
  EXPECT_EQ(
      Described(
          R"({"cluster":{"chief":["h0:2222"],"evaluator":["h9:2222"],"ps":["h3:2222","h4:2222"],"worker":["h1:2222","h2:2222"]},)"
          R"("task":{"type":"worker","index":1},"job":{}})"),
      "cluster 358434d9ff7b75b8 (from TF_CONFIG): 1 chief, 2 ps, 2 workers; * is this task\n"
      "  chief 0      h0:2222  runs the program; waits for 2 ps and for workers\n"
      "  evaluator 0  h9:2222  reads checkpoints; no task connects to it\n"
      "  ps 0         h3:2222  holds variables; registers with h0:2222\n"
      "  ps 1         h4:2222  holds variables; registers with h0:2222\n"
      "  worker 0     h1:2222  runs steps; registers with h0:2222\n"
      "* worker 1     h2:2222  runs steps; registers with h0:2222\n"
      "note: TF_CONFIG: not read: \"job\"\n"
      "note: evaluators are in the cluster, but nobody dials them: they read checkpoints\n"
      "no problem found\n");
}

TEST(DescribeClusterTest, WhatCouldBeReadIsShownAboveEverythingThatIsWrong) {
  ClusterConfigSources sources;
  sources.tf_config =
      R"({"cluster":{"ps":["h3","h4:2222"],"wroker":["h1:2222"]},"task":{"type":"PS","index":1}})";
  const ClusterDescription description = DescribeCluster(sources);
  EXPECT_FALSE(description.can_run);
  EXPECT_EQ(description.text,
            "cluster d5d2cb98ae834055 (from TF_CONFIG): 0 chiefs, 2 ps, 0 workers; * is this task\n"
            "  ps 0      h3         holds variables; waits until the coordinator dials it\n"
            "  ps 1      h4:2222    holds variables; waits until the coordinator dials it\n"
            "  wroker 0  h1:2222    has an unknown role\n"
            "* PS 1      not in it  has an unknown role\n"
            "wrong: cluster.ps[0] is \"h3\": it has no port: write \"h3:2222\"\n"
            "wrong: cluster has the job \"wroker\": it is written \"worker\"\n"
            "wrong: task.type is \"PS\": it is written \"ps\"\n"
            "3 things are wrong: no task would start\n");
}

TEST(DescribeClusterTest, ASparseParameterServerSeesItselfAndTheCoordinator) {
  EXPECT_THAT(
      Described(R"({"cluster":{"ps":["a:1"],"worker":{}},"task":{"type":"ps","index":3}})",
                {{}, {}, "c:1", {}}),
      HasSubstr("* ps 3  a:1      holds variables; registers with c:1\nno problem found\n"));
}

TEST(DescribeClusterTest, WhereNothingIsSaidTheClusterIsOneProcess) {
  const ClusterDescription description = DescribeCluster({});
  EXPECT_TRUE(description.can_run);
  EXPECT_EQ(description.text,
            "no TF_CONFIG, --cluster_file, CLUSTER_SPEC or flag names a cluster: all tasks run "
            "in one process\n");
}

TEST(DescribeClusterTest, ManyTasksAreCutShortAndThisOneIsShown) {
  std::string workers = "\"w0:1\"";
  for (int i = 1; i < 1000; ++i) workers += ",\"w" + std::to_string(i) + ":1\"";
  const std::string text = Described(R"({"cluster":{"ps":["p:1"],"worker":[)" + workers +
                                     R"(]},"task":{"type":"worker","index":700}})");
  EXPECT_THAT(text, HasSubstr("\n* worker 700  w700:1       runs steps"));
  EXPECT_THAT(text, HasSubstr("\n  worker ...  1000 in all\n"));
  EXPECT_THAT(text, Not(HasSubstr("worker 64 ")));
}

TEST(DescribeClusterTest, WhatIsNoTextCannotForgeALine) {
  EXPECT_THAT(Described("{\"cluster\":{\"a\\nno problem found\":[\"b:1\"]}}"),
              HasSubstr("a\\x0ano problem found 0"));
}

// ---- divvyctl gen compose -----------------------------------------------------------------------

ComposeOptions OnePsOneWorker() {
  ComposeOptions options;
  options.num_ps = 1;
  options.num_workers = 1;
  options.image = "digits:${TAG:-1}";
  options.command = {"/digits", "--name=it's $HOME \"x\"", "--epochs=3"};
  return options;
}

TEST(ComposeFileTest, AServiceForEachTaskWithItsOwnKeyAndNoRightsItDoesNotNeed) {
  const absl::StatusOr<std::string> file = ComposeFile(OnePsOneWorker());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(
      *file,
      R"yaml(# Valid for docker-compose from 1.27 and for `docker compose` v2. Made by divvyctl gen compose.
# Make the certificates with divvyctl certs. The tasks run as uid 65532, which must be able to read each key.
# The chief and every ps write checkpoints as uid 65532. A new volume gets the owner of the image's directory; an existing one keeps its owner.
# Exit codes from 128 on mean "start it again", lower ones are permanent (docs/operating/operations.md). Docker cannot tell them apart, so the number
# of restarts is limited.
x-task: &task
  image: "digits:${TAG:-1}"
  entrypoint: ["/digits"]
  user: "65532:65532"
  init: true
  read_only: true
  tmpfs: ["/tmp"]
  cap_drop: ["ALL"]
  security_opt: ["no-new-privileges:true"]
  stop_grace_period: 30s
  restart: on-failure:50

services:
  chief-0:
    <<: *task
    hostname: chief-0
    command: ["--bind_address=0.0.0.0:2222", "--tls_cert=/certs/chief-0.pem", "--tls_key=/certs/chief-0.key", "--tls_ca=/certs/ca.pem", "--state_dir=/state", "--checkpoint_dir=/checkpoints", "--name=it's $$HOME \"x\"", "--epochs=3"]
    environment:
      TF_CONFIG: '{"cluster":{"chief":["chief-0:2222"],"ps":["ps-0:2222"],"worker":["worker-0:2222"]},"task":{"type":"chief","index":0}}'
    volumes:
      - {type: bind, source: "./certs/chief-0.pem", target: "/certs/chief-0.pem", read_only: true}
      - {type: bind, source: "./certs/chief-0.key", target: "/certs/chief-0.key", read_only: true}
      - {type: bind, source: "./certs/ca.pem", target: "/certs/ca.pem", read_only: true}
      - {type: volume, source: state, target: /state}
      - {type: volume, source: checkpoints, target: "/checkpoints"}
    healthcheck:
      test: ["CMD", "/divvyctl", "health", "--addr=localhost:2222", "--tls_cert=/certs/chief-0.pem", "--tls_key=/certs/chief-0.key", "--tls_ca=/certs/ca.pem"]
      interval: 2s
      timeout: 5s
      start_period: 10s
      retries: 5
    restart: on-failure:5
    depends_on:
      ps-0: {condition: service_healthy}
      worker-0: {condition: service_healthy}
  ps-0:
    <<: *task
    hostname: ps-0
    command: ["--bind_address=0.0.0.0:2222", "--tls_cert=/certs/ps-0.pem", "--tls_key=/certs/ps-0.key", "--tls_ca=/certs/ca.pem", "--checkpoint_dir=/checkpoints"]
    environment:
      TF_CONFIG: '{"cluster":{"chief":["chief-0:2222"],"ps":["ps-0:2222"],"worker":["worker-0:2222"]},"task":{"type":"ps","index":0}}'
    volumes:
      - {type: bind, source: "./certs/ps-0.pem", target: "/certs/ps-0.pem", read_only: true}
      - {type: bind, source: "./certs/ps-0.key", target: "/certs/ps-0.key", read_only: true}
      - {type: bind, source: "./certs/ca.pem", target: "/certs/ca.pem", read_only: true}
      - {type: volume, source: checkpoints, target: "/checkpoints"}
    healthcheck:
      test: ["CMD", "/divvyctl", "health", "--addr=localhost:2222", "--tls_cert=/certs/ps-0.pem", "--tls_key=/certs/ps-0.key", "--tls_ca=/certs/ca.pem"]
      interval: 2s
      timeout: 5s
      start_period: 10s
      retries: 5
  worker-0:
    <<: *task
    hostname: worker-0
    command: ["--bind_address=0.0.0.0:2222", "--tls_cert=/certs/worker-0.pem", "--tls_key=/certs/worker-0.key", "--tls_ca=/certs/ca.pem"]
    environment:
      TF_CONFIG: '{"cluster":{"chief":["chief-0:2222"],"ps":["ps-0:2222"],"worker":["worker-0:2222"]},"task":{"type":"worker","index":0}}'
    volumes:
      - {type: bind, source: "./certs/worker-0.pem", target: "/certs/worker-0.pem", read_only: true}
      - {type: bind, source: "./certs/worker-0.key", target: "/certs/worker-0.key", read_only: true}
      - {type: bind, source: "./certs/ca.pem", target: "/certs/ca.pem", read_only: true}
    healthcheck:
      test: ["CMD", "/divvyctl", "health", "--addr=localhost:2222", "--tls_cert=/certs/worker-0.pem", "--tls_key=/certs/worker-0.key", "--tls_ca=/certs/ca.pem"]
      interval: 2s
      timeout: 5s
      start_period: 10s
      retries: 5

volumes:
  state: {}
  checkpoints: {}
)yaml");
}

// `divvyctl certs` writes the CA's key beside the others. It can sign any certificate.
TEST(ComposeFileTest, NoTaskIsGivenTheKeyOfTheCaNorThatOfAnotherTask) {
  ComposeOptions options = OnePsOneWorker();
  options.num_ps = 2;
  options.num_workers = 3;
  const absl::StatusOr<std::string> file = ComposeFile(options);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(*file, Not(HasSubstr("ca.key")));
  std::string task;
  int mounts = 0;
  for (const absl::string_view line : absl::StrSplit(*file, '\n')) {
    if (absl::StartsWith(line, "    hostname: "))
      task = std::string(absl::StripPrefix(line, "    hostname: "));
    if (!absl::StrContains(line, "type: bind")) continue;
    ++mounts;
    const std::string own = absl::StrCat("\"./certs/", task);
    EXPECT_TRUE(absl::StrContains(line, own + ".pem\"") ||
                absl::StrContains(line, own + ".key\"") ||
                absl::StrContains(line, "\"./certs/ca.pem\""))
        << line;
  }
  EXPECT_EQ(mounts, 3 * 6) << "single files, never the whole directory";
}

TEST(ComposeFileTest, TheHostsDirectoryIsAPathAndNotTheNameOfAVolume) {
  ComposeOptions options = OnePsOneWorker();
  options.tls_dir = "my$certs";
  EXPECT_THAT(*ComposeFile(options), HasSubstr("source: \"./my$$certs/ca.pem\""));
  options.tls_dir = "/etc/certs";
  EXPECT_THAT(*ComposeFile(options), HasSubstr("source: \"/etc/certs/ca.pem\""));
}

// The command of a task in the file.
std::string CommandIn(const std::string& file, const std::string& task) {
  const size_t begin = file.find("    command: ", file.find(absl::StrCat("\n  ", task, ":\n")));
  return file.substr(begin, file.find('\n', begin) - begin);
}

// The lines of a task's service.
std::string ServiceIn(const std::string& file, const std::string& task) {
  const std::string head = absl::StrCat("\n  ", task, ":\n");
  const size_t begin = file.find(head);
  const size_t next = file.find(":\n    <<: *task", begin + head.size());
  return file.substr(begin, std::min(next, file.find("\nvolumes:")) - begin);
}

TEST(ComposeFileTest, EachFlagGoesToTheTasksThatReadIt) {
  ComposeOptions options = OnePsOneWorker();
  options.evaluator = true;
  options.command = {"/digits",
                     "--check_numerics",
                     "--epochs=3",
                     "--replicas_per_worker",
                     "2",
                     "-orphan_timeout=5m",
                     "--min_workers=1",
                     "--notf32",
                     "--pipeline_depth=2",
                     "--pull_buffer_bytes=8",
                     "--snapshot_buffer_bytes",
                     "7",
                     "--health_address=0.0.0.0:1"};
  const std::string file = *ComposeFile(options);
  EXPECT_THAT(
      CommandIn(file, "chief-0"),
      HasSubstr(
          R"("--state_dir=/state", "--checkpoint_dir=/checkpoints", "--epochs=3", "--replicas_per_worker", "2", )"
          R"("--min_workers=1", "--health_address=0.0.0.0:1"])"));
  EXPECT_THAT(
      CommandIn(file, "ps-0"),
      HasSubstr(
          R"("--tls_ca=/certs/ca.pem", "--checkpoint_dir=/checkpoints", "--pull_buffer_bytes=8", )"
          R"("--snapshot_buffer_bytes", "7", "--health_address=0.0.0.0:1"])"));
  EXPECT_THAT(
      CommandIn(file, "worker-0"),
      HasSubstr(
          R"("--tls_ca=/certs/ca.pem", "--check_numerics", "--replicas_per_worker", "2", "-orphan_timeout=5m", )"
          R"("--notf32", "--pipeline_depth=2", "--health_address=0.0.0.0:1"])"));
  EXPECT_EQ(
      CommandIn(file, "evaluator-0"),
      R"(    command: ["--checkpoint_dir=/checkpoints", "--check_numerics", "--epochs=3", "--replicas_per_worker", "2", )"
      R"("--notf32", "--pipeline_depth=2"])");
}

TEST(ComposeFileTest, ChiefAndParameterServersShareAVolumeForCheckpoints) {
  ComposeOptions options = OnePsOneWorker();
  options.checkpoints = "models";
  std::string file = *ComposeFile(options);
  for (const char* task : {"chief-0", "ps-0"}) {
    EXPECT_THAT(ServiceIn(file, task),
                HasSubstr("      - {type: volume, source: models, target: \"/checkpoints\"}\n"));
    EXPECT_THAT(CommandIn(file, task), HasSubstr("\"--checkpoint_dir=/checkpoints\""));
  }
  EXPECT_THAT(ServiceIn(file, "worker-0"), Not(HasSubstr("checkpoint")));
  EXPECT_THAT(file, HasSubstr("\nvolumes:\n  state: {}\n  models: {}\n"));
  options.checkpoints = "./my/models";
  options.command = {"/digits", "--checkpoint_dir=/ckpt"};
  options.evaluator = true;
  file = *ComposeFile(options);
  for (const char* task : {"chief-0", "ps-0"}) {
    EXPECT_THAT(ServiceIn(file, task),
                HasSubstr("      - {type: bind, source: \"./my/models\", target: \"/ckpt\"}\n"));
    EXPECT_THAT(CommandIn(file, task), HasSubstr("\"--checkpoint_dir=/ckpt\"]"));
  }
  EXPECT_THAT(
      ServiceIn(file, "evaluator-0"),
      HasSubstr(
          "      - {type: bind, source: \"./my/models\", target: \"/ckpt\", read_only: true}\n"));
  EXPECT_THAT(ServiceIn(file, "evaluator-0"),
              HasSubstr(R"(TF_CONFIG: '{"task":{"type":"evaluator","index":0}}')"));
  EXPECT_THAT(ServiceIn(file, "evaluator-0"), Not(HasSubstr("certs")));
  EXPECT_THAT(ServiceIn(file, "chief-0"), Not(HasSubstr("evaluator-0: {condition")));
  EXPECT_THAT(file, Not(HasSubstr("my/models: {}")));
}

TEST(ComposeFileTest, WhoWantsNoCheckpointsSaysSo) {
  ComposeOptions options = OnePsOneWorker();
  options.command = {"/digits", "--checkpoint_dir="};
  const std::string file = *ComposeFile(options);
  EXPECT_THAT(CommandIn(file, "chief-0"), HasSubstr("\"--checkpoint_dir=\"]"));
  EXPECT_THAT(file, Not(HasSubstr("source: checkpoints")));
  EXPECT_THAT(file, HasSubstr("\nvolumes:\n  state: {}\n"));
}

TEST(ComposeFileTest, DataOfTheHostIsSeenByWhoReadsIt) {
  ComposeOptions options = OnePsOneWorker();
  options.data = "criteo";
  const std::string file = *ComposeFile(options);
  for (const char* task : {"chief-0", "worker-0"}) {
    EXPECT_THAT(
        ServiceIn(file, task),
        HasSubstr(
            "      - {type: bind, source: \"./criteo\", target: \"/data\", read_only: true}\n"));
  }
  EXPECT_THAT(ServiceIn(file, "ps-0"), Not(HasSubstr("criteo")));
}

TEST(ComposeFileTest, WorkersOfOneHostShareItsCores) {
  ComposeOptions options = OnePsOneWorker();
  EXPECT_THAT(*ComposeFile(options), Not(HasSubstr("workers_per_host")));
  options.num_workers = 3;
  EXPECT_THAT(CommandIn(*ComposeFile(options), "worker-2"), HasSubstr("\"--workers_per_host=3\""));
}

TEST(ComposeFileTest, EachWorkerIsHandedGpusThatNoOtherHas) {
  ComposeOptions options = OnePsOneWorker();
  options.num_workers = 2;
  options.gpus_per_worker = 2;
  const std::string file = *ComposeFile(options);
  EXPECT_THAT(file, HasSubstr("from 1.28"));
  for (const char* numbers : {R"("0", "1")", R"("2", "3")"}) {
    EXPECT_THAT(file, HasSubstr(absl::StrCat(R"(    deploy:
      resources:
        reservations:
          devices:
            - {driver: nvidia, device_ids: [)",
                                             numbers, "], capabilities: [gpu]}\n")));
  }
  EXPECT_THAT(
      file,
      HasSubstr(
          R"(--tls_key=/certs/worker-1.key", "--tls_ca=/certs/ca.pem", "--workers_per_host=2", "--gpus=all"])"));
  EXPECT_THAT(
      file,
      HasSubstr(
          R"(--tls_key=/certs/ps-0.key", "--tls_ca=/certs/ca.pem", "--checkpoint_dir=/checkpoints"])"));
  EXPECT_THAT(
      file,
      HasSubstr(
          R"("--state_dir=/state", "--checkpoint_dir=/checkpoints", "--replicas_per_worker=2")"))
      << "the chief refuses workers with another number of GPUs";
}

TEST(ComposeFileTest, EveryProblemOfTheOptionsIsSaidAtOnce) {
  ComposeOptions options;
  options.num_workers = 1001;
  options.gpus_per_worker = 65;
  options.tls_dir = "";
  EXPECT_EQ(ComposeFile(options).status(),
            absl::InvalidArgumentError(
                "gen compose: --ps=0: wanted 1 to 1000; --workers=1001: wanted 1 to 1000; "
                "--gpus_per_worker=65: wanted 0 to 64; --image "
                "is missing: give the name of an image with the program; "
                "--tls_dir is missing: containers are not on loopback, so every task needs a "
                "certificate: divvyctl certs; "
                "the program is missing: write its path in the image after \"--\""));
  options = OnePsOneWorker();
  options.image = "a\nb";
  options.command.push_back("x\ny");
  EXPECT_EQ(ComposeFile(options).status(),
            absl::InvalidArgumentError("gen compose: --image has a control character: \"a\\x0ab\"; "
                                       "argument 3 has a control character: \"x\\x0ay\""));
}

TEST(ComposeFileTest, WhatTheFileSaysOfEachTaskIsNotSaidForAll) {
  ComposeOptions options = OnePsOneWorker();
  options.command = {"/digits", "--bind_address=0.0.0.0:1", "--checkpoint_dir=ckpt"};
  options.checkpoints = "a b";
  EXPECT_EQ(
      ComposeFile(options).status(),
      absl::InvalidArgumentError(
          "gen compose: --checkpoints=a b: the name of a volume may have letters, digits, "
          "'_', '-' and '.'; a directory of the host must have a slash; --bind_address differs "
          "between tasks, and the file sets it for each: leave it out; "
          "--checkpoint_dir is \"ckpt\": a path in the containers must begin with /"));
  options = OnePsOneWorker();
  options.checkpoints = "state";
  EXPECT_THAT(std::string(ComposeFile(options).status().message()),
              HasSubstr("--checkpoints=state: that volume is the chief's state directory"));
}

}  // namespace
}  // namespace divvy
