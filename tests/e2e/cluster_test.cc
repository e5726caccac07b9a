// Clusters of real processes: what the job does when tasks are lost, stopped, misconfigured or cut
// off, and when strangers connect. Every wait has a timeout.
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/chaos.h"
#include "tests/e2e/counting_test.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDeterministic[] = "tests/e2e/deterministic_program";
constexpr char kDigits[] = "examples/digits";
constexpr auto kTo = FaultProxy::kToTarget, kFrom = FaultProxy::kFromTarget;

absl::Duration Now() { return Clock::Real().Elapsed(); }

// The lines that are not empty.
std::vector<std::string> Lines(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipWhitespace());
}

// ---- (a) workers killed at random

// What tools/chaos does, for as long as a test may take.
ChaosOptions ShortChaos() {
  ChaosOptions options;
  options.program = kCounter;
  options.directory = std::getenv("TEST_TMPDIR");
  options.num_ps = options.num_workers = 2;
  options.roles = {Role::kWorker, Role::kPs, Role::kChief};
  options.only_kills = false;
  options.faults = 10;
  options.divvyctl = "tools/divvyctl";
  options.seed = EntropySeed();
  return options;
}

ChaosResult RunAndPrint(const ChaosOptions& options) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  const absl::StatusOr<ChaosResult> result = RunChaos(options);
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return ChaosResult();
  std::printf("%s; counter = %lld\n", ToString(*result).c_str(),
              static_cast<long long>(result->steps));
  return *result;
}

TEST(ChaosTest, FiftyKilledWorkersLeaveTheExactSum) {
  ChaosOptions options;
  options.program = kCounter;
  options.directory = std::getenv("TEST_TMPDIR");
  options.seed = EntropySeed();
  EXPECT_GE(RunAndPrint(options).all_kills(), 50);
}

// The lying worker receives steps like the others. It reports of each that another worker must run
// it, and sends false answers about itself.
TEST(ChaosTest, AWorkerThatLiesBesideThoseThatAreKilledChangesNoSum) {
  ChaosOptions options = ShortChaos();
  options.tls = options.liar = true;
  const ChaosResult result = RunAndPrint(options);
  EXPECT_GT(result.lies, 0);
  EXPECT_GT(result.given_back, 0);
}

TEST(ChaosTest, AJobThatIsChangedAndResizedLeavesTheExactSumWhateverDies) {
  ChaosOptions options = ShortChaos();
  options.changes = options.tls = true;
  RunAndPrint(options);
}

TEST(ChaosTest, TheRowsOfTablesAreThoseThatTheFinishedStepsMakeWhateverDies) {
  ChaosOptions options = ShortChaos();
  options.keys = true;
  const ChaosResult result = RunAndPrint(options);
  EXPECT_GT(result.small_rows_gone, 0);
}

TEST(ChaosTest, TasksOfEveryRoleKilledStoppedAndCutOffReadEachRecordOnceInEveryPass) {
  ChaosOptions options = ShortChaos();
  options.records = 1000;
  RunAndPrint(options);
}

// ---- (b) killed between its commits to two parameter servers

TEST_F(CountingTest, AWorkerKilledBetweenItsCommitsLeavesEachAppliedOnce) {
  Make(2, 2, /*proxied=*/true, {"--counters=2", "--elements=50000", "--round=10"});
  for (const TaskId task : {PsTask(0), PsTask(1), WorkerTask(0), kChiefTask})
    Start(task, {{"--min_workers=1"}, {}, ""});
  CountOn(1);
  for (int i = 0; i < 3; ++i) {
    const TaskId victim = WorkerTask(i % 2), next = WorkerTask((i + 1) % 2);
    // One ps has a step's commit while the other one's commit is still on its way. Then the worker
    // dies, and its delayed commit arrives late.
    cluster_->proxy(PsTask(1)).Stall(kTo);
    cluster_->processes().RunFor(absl::Milliseconds(200));
    Kill(victim);
    Start(next, {{"--min_workers=1"}, {}, ""});
    cluster_->proxy(PsTask(1)).Heal();
    CountOn(2);
  }
  Finish();
}

// ---- (c) a worker that sleeps through its own loss

TEST_F(CountingTest, AStoppedWorkerThatWakesAfterItsStepsWereGivenAwayChangesNothing) {
  Make(2, 2, /*proxied=*/false);
  StartAll();
  CountOn(1);
  cluster_->Signal(WorkerTask(0), SIGSTOP);
  // A round ends only after the other worker has run the stopped worker's steps.
  CountOn(3);
  cluster_->Signal(WorkerTask(0), SIGCONT);
  CountOn(3);
  Finish();
}

// ---- (d) connections

TEST_F(CountingTest, CutDelayedAndHalfOpenConnectionsCostNothingButTime) {
  const uint64_t seed = EntropySeed();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  Make(2, 2, /*proxied=*/true, {"--round=50"});
  StartAll();
  for (int i = 0; i < 12; ++i) {
    FaultProxy& proxy = cluster_->proxy(cluster_->tasks()[random.Below(cluster_->tasks().size())]);
    const auto direction = static_cast<FaultProxy::Direction>(random.Below(2));
    proxy.Inject(i % FaultProxy::kNumFaults, direction, random);
    cluster_->processes().RunFor(absl::Milliseconds(300) * random.Uniform());
    proxy.Heal();
    CountOn(1);
  }
  Finish();
}

// ---- (e) parameter servers

// Parameter servers are killed again and again while steps run. The coordinator stays, and the
// program itself checks that every counter is exact.
TEST_F(CountingTest, ParameterServersThatAreKilledCostTimeAndNothingElse) {
  Make(2, 2, /*proxied=*/false,
       {"--checkpoint_dir=" + TemporaryPath("checkpoints_replayed"), "--checkpoint_every=300ms"});
  StartAll();
  for (int kill = 0; kill < 6; ++kill) {
    CountOn(2);
    Kill(PsTask(kill % 2));
    Start(PsTask(kill % 2));
  }
  CountOn(2);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("steps are run again"));
  Finish();
}

TEST_F(CountingTest, WithoutCheckpointsAllThatWasDoneIsRunAgain) {
  Make(2, 2, /*proxied=*/false);
  StartAll();
  CountOn(2);
  Kill(PsTask(0));
  Kill(PsTask(1));
  Start(PsTask(0));
  Start(PsTask(1));
  CountOn(2);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("go back to the beginning"));
  Finish();
}

TEST_F(CountingTest, APsThatComesBackEmptyIsToldWithinFiveSeconds) {
  Make(2, 1, /*proxied=*/false, {"--durability=checkpoint"});
  StartAll();
  CountOn(1);
  Kill(PsTask(1));
  Start(PsTask(1));
  const absl::Duration restarted = Now();
  EXPECT_EQ(ExitOf(kChiefTask), 138);
  EXPECT_LT(Now() - restarted, absl::Seconds(5));
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("ps 1"));
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("UNAVAILABLE"));
}

TEST_F(CountingTest, APsThatStaysAwayIsSaidAndUnavailableAfterItsTimeout) {
  Make(2, 1, /*proxied=*/false, {"--ps_timeout=12s", "--report_every=1s"});
  StartAll();
  CountOn(1);
  Kill(PsTask(1));
  WaitFor(kChiefTask, "ps 1", absl::Seconds(10));
  EXPECT_EQ(ExitOf(kChiefTask), 138);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("UNAVAILABLE"));
}

// A ps and the coordinator are lost in turn. The job loses nothing that a checkpoint covers, and in
// the end every step counts once.
TEST_F(CountingTest, AfterTheLossOfAPsAndOfTheCoordinatorTheJobGoesOnFromItsNewestCheckpoint) {
  const std::string directory = TemporaryPath("checkpoints");
  Make(2, 2, /*proxied=*/false,
       {"--state_dir=" + TemporaryPath("state_lost"), "--checkpoint_dir=" + directory,
        "--checkpoint_every=200ms", "--durability=checkpoint"});
  StartAll();
  const auto await_checkpoint = [&] {
    const auto there = [&] { return FileSystem::Real().Stat(directory + "/checkpoint").ok(); };
    for (int round = 0; round < 200 && !there(); ++round) CountOn(1);
    ASSERT_TRUE(there());
  };
  await_checkpoint();
  Kill(PsTask(1));
  Start(PsTask(1));
  EXPECT_EQ(ExitOf(kChiefTask), 138);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("goes on from ckpt-1-"));
  Start(kChiefTask);
  WaitFor(kChiefTask, "restored ");
  CountOn(5);
  Kill(kChiefTask);
  Start(kChiefTask);
  WaitFor(kChiefTask, "restored ");
  CountOn(1);
  Finish();
}

TEST_F(CountingTest, ADrainedCoordinatorSavesWhatIsThereAndTheNextGoesOnFromIt) {
  Make(2, 2, /*proxied=*/false,
       {"--state_dir=" + TemporaryPath("state_drained"),
        "--checkpoint_dir=" + TemporaryPath("checkpoints_drained"), "--checkpoint_every=0s"});
  StartAll();
  CountOn(2);
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  Start(kChiefTask);
  WaitFor(kChiefTask, "restored ");
  CountOn(1);
  Finish();
}

// ---- (f) coordinators

TEST_F(CountingTest, ANewerCoordinatorFencesTheOlder) {
  Make(2, 2, /*proxied=*/true, {"--job_name=two_coordinators"});
  StartAll();
  CountOn(1);
  const LoopbackPort elsewhere = *LoopbackPort::Reserve();
  ASSERT_TRUE(cluster_->proxy(kChiefTask).Retarget(elsewhere.address()).ok());
  const ChildOptions newer =
      cluster_->OptionsOf(kChiefTask, {{"--bind_address=" + elsewhere.address()}, {}, ""});
  ASSERT_TRUE(cluster_->processes().Start("newer", newer).ok());
  cluster_->proxy(kChiefTask).CutAll();
  EXPECT_EQ(ExitOf(kChiefTask), 138);
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
  const absl::StatusOr<std::string> line =
      cluster_->processes().WaitForText("newer", "counter = ", kPatience);
  EXPECT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(cluster_->processes().WaitForExit("newer", kPatience)->code(), 0);
}

TEST_F(CountingTest, ARestartedCoordinatorRunsTheProgramAgainOnTheSameCluster) {
  Make(2, 2, /*proxied=*/false, {"--state_dir=" + TemporaryPath("state")});
  StartAll();
  CountOn(1);
  Kill(kChiefTask);
  Start(kChiefTask);
  CountOn(2);
  Finish();
}

// No checkpoint is made before the kill. The program checks that its state fits the number of steps
// and, in the end, that every counter is exact.
TEST_F(CountingTest, AKilledCoordinatorGoesOnWithWhatTheServersHoldAndLoadsNothing) {
  Make(2, 2, /*proxied=*/false,
       {"--state_dir=" + TemporaryPath("state_adopted"),
        "--checkpoint_dir=" + TemporaryPath("checkpoints_adopted"), "--checkpoint_every=0s"});
  StartAll();
  for (int kill = 0; kill < 2; ++kill) {
    CountOn(3);
    Kill(kChiefTask);
    Start(kChiefTask);
    WaitFor(kChiefTask, "adopted what 2 parameter servers hold");
    int64_t steps = 0;
    const std::string restored = WaitFor(kChiefTask, "restored ");
    EXPECT_TRUE(absl::SimpleAtoi(restored.substr(restored.find(' ') + 1), &steps)) << restored;
    EXPECT_GE(steps, 600 * (kill + 1));
  }
  CountOn(1);
  Finish();
}

// ---- (g) duplicates

TEST_F(CountingTest, ASecondWorkerOfTheSameIndexIsRefusedInOneLine) {
  Make(1, 1, /*proxied=*/false);
  StartAll();
  CountOn(1);
  ASSERT_TRUE(cluster_->processes()
                  .Start("twin", cluster_->OptionsOf(WorkerTask(0),
                                                     {{"--bind_address=127.0.0.1:0"}, {}, ""}))
                  .ok());
  EXPECT_EQ(cluster_->processes().WaitForExit("twin", kPatience)->code(), 78)
      << cluster_->processes().LastLines();
  EXPECT_THAT(Lines(cluster_->processes().output("twin")).back(), HasSubstr("worker 0"));
  CountOn(1);
  Finish();
}

// ---- (h) order

TEST_F(CountingTest, TasksMayBeStartedInAnyOrderAndSayForWhomTheyWait) {
  Make(2, 1, /*proxied=*/false, {"--report_every=1s"});
  Start(WorkerTask(0));
  cluster_->processes().RunFor(absl::Milliseconds(300));
  Start(kChiefTask);
  Start(PsTask(1));
  WaitFor(kChiefTask, "ps 0", absl::Seconds(15));
  Start(PsTask(0));
  CountOn(1);
  Finish();
}

TEST_F(CountingTest, WorkersComeAndGoWhileTheJobRuns) {
  Make(1, 3, /*proxied=*/false);
  for (const TaskId task : {kChiefTask, PsTask(0), WorkerTask(0)})
    Start(task, {{"--min_workers=1"}, {}, ""});
  CountOn(1);
  Start(WorkerTask(2));
  CountOn(1);
  cluster_->Signal(WorkerTask(0), SIGTERM);
  EXPECT_EQ(ExitOf(WorkerTask(0)), 143);
  CountOn(2);
  Finish();
}

// ---- (h2) tasks that know a part of the cluster

// TF_CONFIG as Kubeflow writes it for an elastic job: the chief knows no other task, a ps knows
// itself alone, a worker knows itself and the ps.
class SparseTest : public CountingTest {
 protected:
  std::string KubeflowConfig(TaskId task) const {
    const auto quoted = [this](TaskId other) {
      return absl::StrCat("\"", cluster_->address(other), "\"");
    };
    const bool is_worker = task.role == Role::kWorker;
    const std::string worker = is_worker ? absl::StrCat("\"", task.index, "\":", quoted(task)) : "";
    const std::string ps = is_worker
                               ? absl::StrCat("[", quoted(PsTask(0)), ",", quoted(PsTask(1)), "]")
                           : task.role == Role::kPs ? absl::StrCat("[", quoted(task), "]")
                                                    : "null";
    return absl::StrCat(R"({"cluster":{"worker":{)", worker, R"(},"ps":)", ps,
                        R"(},"task":{"type":")", RoleName(task.role), R"(","index":)", task.index,
                        "}}");
  }
  LifeOptions Sparse(TaskId task) const {
    LifeOptions life;
    life.environment["TF_CONFIG"] = KubeflowConfig(task);
    if (task == kChiefTask) {
      life.flags = {"--num_ps=2", "--bind_address=" + cluster_->address(kChiefTask)};
    } else {
      life.flags = {"--coordinator_address=" + cluster_->address(kChiefTask)};
    }
    return life;
  }
};

TEST_F(SparseTest, AJobRunsWhereTheChiefKnowsNobodyAndFindsAllAgainAfterEachLoss) {
  Make(2, 2, /*proxied=*/false,
       {"--state_dir=" + OwnPath("state"), "--checkpoint_dir=" + OwnPath("checkpoints"),
        "--checkpoint_every=200ms"});
  for (const TaskId& task : cluster_->tasks()) Start(task, Sparse(task));
  CountOn(2);
  for (const TaskId& victim : {PsTask(1), WorkerTask(0), kChiefTask}) {
    Kill(victim);
    Start(victim, Sparse(victim));
    CountOn(2);
  }
  Finish();
}

TEST_F(SparseTest, WhatContradictsTheChiefIsRefusedInOneLineAndToKnowLessIsNot) {
  Make(2, 2, /*proxied=*/false);
  for (const TaskId& task : {PsTask(0), PsTask(1), WorkerTask(0)}) Start(task, Sparse(task));
  Start(kChiefTask);  // its TF_CONFIG names all tasks
  CountOn(1);
  LifeOptions liar = Sparse(WorkerTask(1));
  std::string& config = liar.environment["TF_CONFIG"];
  const size_t at = config.find(cluster_->address(PsTask(1)));
  config.replace(at, cluster_->address(PsTask(1)).size(), "127.0.0.1:1");
  Start(WorkerTask(1), liar);
  EXPECT_EQ(ExitOf(WorkerTask(1)), 78);
  EXPECT_THAT(Lines(cluster_->output(WorkerTask(1))).back(),
              HasSubstr(absl::StrCat("cluster.ps[1] is \"127.0.0.1:1\" there and \"",
                                     cluster_->address(PsTask(1)), "\" here")));
  Start(WorkerTask(1), Sparse(WorkerTask(1)));
  CountOn(1);
  Finish();
}

// ---- signals

// A job whose steps read data, and a worker that is unknown to the chief until it joins in the
// middle of a pass. The program itself checks that each record was visited once in each pass.
class LateWorkerTest : public SparseTest {
 protected:
  void StartWithoutWorkerOne(std::vector<std::string> flags) {
    Make(2, 2, /*proxied=*/false, std::move(flags));
    for (const TaskId task : {kChiefTask, PsTask(0), PsTask(1), WorkerTask(0)})
      Start(task, Sparse(task));
    CountOn(1);
  }
  // Waits until `divvyctl status` shows steps of that worker.
  void AwaitStepsOf(TaskId worker) {
    const absl::Duration until = Now() + kPatience;
    std::string said;
    for (int tries = 0; !absl::StrContains(said, " steps reported") ||
                        absl::StrContains(said, " 0 steps reported");
         ++tries) {
      ASSERT_LT(Now(), until) << said << cluster_->processes().LastLines();
      ASSERT_TRUE(cluster_->running(kChiefTask)) << cluster_->processes().LastLines();
      const std::string name = absl::StrCat("status ", tries);
      ASSERT_TRUE(
          cluster_->processes()
              .Start(name, {{"tools/divvyctl", "status", "--addr=" + cluster_->address(worker)},
                            {},
                            ChildOutput::kPipe})
              .ok());
      ASSERT_TRUE(cluster_->processes().WaitForExit(name, kPatience).ok());
      said = cluster_->processes().output(name);
    }
  }
};

TEST_F(LateWorkerTest, ReadsLeasedDataWithTheOthersAtOnce) {
  StartWithoutWorkerOne({"--records=400"});
  Start(WorkerTask(1), Sparse(WorkerTask(1)));
  AwaitStepsOf(WorkerTask(1));
  CountOn(2);
  Finish();
}

// A pass takes far longer than the join of a worker. So a worker that is joining when a pass is
// divided has joined before the others have read their parts.
TEST_F(LateWorkerTest, HasNoPartOfAPassThatWasCutBeforeItCameAndItsPartOfTheNext) {
  StartWithoutWorkerOne({"--records=4000", "--in_parts"});
  Start(WorkerTask(1), Sparse(WorkerTask(1)));
  AwaitStepsOf(WorkerTask(1));
  CountOn(2);
  Finish();
}

TEST_F(CountingTest, ADrainedCoordinatorExits143AndItsClusterServesTheNext) {
  Make(1, 1, /*proxied=*/false, {"--state_dir=" + TemporaryPath("drained")});
  StartAll();
  CountOn(1);
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  EXPECT_TRUE(cluster_->running(PsTask(0)));
  EXPECT_TRUE(cluster_->running(WorkerTask(0)));
  Start(kChiefTask);
  CountOn(1);
  Finish();
}

TEST_F(CountingTest, AStepThatNeverReturnsHoldsItsWorkerNoLongerThanTheDrainTimeout) {
  Make(1, 2, /*proxied=*/false, {"--hanging_worker=1", "--drain_timeout=1s"});
  for (const TaskId task : {kChiefTask, PsTask(0), WorkerTask(0), WorkerTask(1)})
    Start(task, {{"--min_workers=1"}, {}, ""});
  WaitFor(WorkerTask(1), "hanging");
  cluster_->Signal(WorkerTask(1), SIGTERM);
  EXPECT_EQ(ExitOf(WorkerTask(1)), 143);
  CountOn(2);  // another worker has run its step
  Finish();
}

TEST_F(CountingTest, AStepThatNeverReturnsDoesNotOutliveItsJob) {
  Make(1, 2, /*proxied=*/false, {"--hanging_worker=1", "--drain_timeout=1s"});
  for (const TaskId task : {kChiefTask, PsTask(0), WorkerTask(0), WorkerTask(1)})
    Start(task, {{"--min_workers=1"}, {}, ""});
  WaitFor(WorkerTask(1), "hanging");
  cluster_->Signal(kChiefTask, SIGTERM);
  // The chief waits for the step no longer than its own drain timeout.
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  cluster_->Signal(WorkerTask(1), SIGTERM);
  EXPECT_EQ(ExitOf(WorkerTask(1)), 143);
}

// ---- (i) what is refused

struct Refusal {
  std::string what;
  std::string tf_config;
  std::vector<std::string> flags;
  int exit_code;
  std::string said;
};

class RefusalTest : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusalTest, IsOneClearLineAndAnExitCode) {
  const Refusal& refusal = GetParam();
  WatchedProcesses processes;
  ChildOptions child;
  child.command = {kCounter};
  child.command.insert(child.command.end(), refusal.flags.begin(), refusal.flags.end());
  child.environment["TF_CONFIG"] = refusal.tf_config;
  ASSERT_TRUE(processes.Start("task", child).ok());
  EXPECT_EQ(processes.WaitForExit("task", kPatience)->code(), refusal.exit_code)
      << processes.LastLines();
  EXPECT_THAT(processes.output("task"), HasSubstr(refusal.said));
  EXPECT_EQ(Lines(processes.output("task")).size(), 1u) << processes.output("task");
}

TEST(EmbeddedRefusalTest, AStepThatIsMadeWhenItIsNeededIsRefusedWhereTheProgramHasOneProcessToo) {
  WatchedProcesses processes;
  ASSERT_TRUE(processes.Start("program", {{kCounter, "--late_step"}, {}, ChildOutput::kPipe}).ok());
  EXPECT_NE(processes.WaitForExit("program", kPatience)->code(), 0);
  EXPECT_THAT(processes.output("program"),
              HasSubstr("the Step \"counter/late\" was constructed after main began, so other "
                        "processes do not know it: define it const "
                        "at namespace scope"));
}

constexpr char kGoodConfig[] =
    R"({"cluster":{"chief":["127.0.0.1:1"],"ps":["127.0.0.1:2"],"worker":["127.0.0.1:3"]},"task":{"type":"ps","index":0}})";

INSTANTIATE_TEST_SUITE_P(
    All, RefusalTest,
    ::testing::Values(
        Refusal{"NotJson", "{", {}, 78, "TF_CONFIG"},
        Refusal{"NotAnObject", "[1]", {}, 78, "TF_CONFIG"},
        Refusal{"NoTask",
                R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3"]}})",
                {},
                78,
                "task"},
        Refusal{
            "ATypeInCapitals",
            R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3"]},"task":{"type":"PS","index":0}})",
            {},
            78,
            "PS"},
        Refusal{
            "AnIndexThatIsNotThere",
            R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3"]},"task":{"type":"worker","index":3}})",
            {},
            78,
            "3"},
        Refusal{
            "NoPort",
            R"({"cluster":{"chief":["h:1"],"ps":["h"],"worker":["h:3"]},"task":{"type":"worker","index":0}})",
            {},
            78,
            "port"},
        Refusal{
            "NoPs",
            R"({"cluster":{"chief":["h:1"],"worker":["h:3"]},"task":{"type":"chief","index":0}})",
            {},
            78,
            "ps"},
        Refusal{
            "PlaintextBeyondLoopback",
            R"({"cluster":{"chief":["10.0.0.1:1"],"ps":["10.0.0.2:2"],"worker":["10.0.0.3:3"]},"task":{"type":"ps","index":0}})",
            {},
            78,
            "--tls_cert"},
        Refusal{"AnUnknownFlag", kGoodConfig, {"--wrokers=2"}, 1, "wrokers"},
        Refusal{"AFlagThatIsNoNumber", kGoodConfig, {"--round=many"}, 1, "round"},
        Refusal{"AMissingCertificate",
                kGoodConfig,
                {"--tls_cert=/no/such.pem", "--tls_key=/no/such.pem", "--tls_ca=/no/such.pem"},
                78,
                "/no/such.pem"},
        Refusal{"AnEvaluatorOfAProgramWithoutEvaluate",
                R"({"task":{"type":"evaluator","index":0}})",
                {},
                78,
                "DIVVY_PROGRAM(Train, Evaluate)"},
        Refusal{"ABadBindAddress", kGoodConfig, {"--bind_address=nowhere"}, 78, "--bind_address"},
        Refusal{"APortThatIsTooLarge",
                kGoodConfig,
                {"--bind_address=127.0.0.1:80000"},
                78,
                "a port of 0 (any that is free) to 65535"}),
    [](const ::testing::TestParamInfo<Refusal>& info) { return info.param.what; });

// ---- (j) the evaluator

class EvaluatorTest : public ::testing::Test {
 protected:
  void StartEvaluator() {
    ChildOptions child;
    child.command = {kDigits, "--data=" + data_, "--checkpoint_dir=" + directory_,
                     "--tensorboard_dir=" + directory_ + "/logs", "--checkpoint_every=1ms"};
    child.environment["TF_CONFIG"] = R"({"task":{"type":"evaluator","index":0}})";
    ASSERT_TRUE(cluster_->processes().Start("evaluator", child).ok());
  }
  int ExitOfEvaluator() {
    const auto status = cluster_->processes().WaitForExit("evaluator", kPatience);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->code() : -1;
  }
  std::unique_ptr<ProcessCluster> MakeJob(const std::string& directory) const {
    ProcessClusterOptions options;
    options.program = kDigits;
    options.flags = {"--data=" + data_, "--epochs=10", "--checkpoint_dir=" + directory,
                     "--checkpoint_every=100ms"};
    return *ProcessCluster::Make(std::move(options));
  }

  const std::string data_ = "examples/data/digits.csv.gz";
  const std::string directory_ = TemporaryPath(
      absl::StrCat("evaluated_", ::testing::UnitTest::GetInstance()->current_test_info()->name()));
  const std::unique_ptr<ProcessCluster> cluster_ = MakeJob(directory_);
};

TEST_F(EvaluatorTest, ScoresTheCheckpointsOfARunningJobAndTheFinalOneAndEndsWithIt) {
  StartEvaluator();
  ASSERT_TRUE(
      cluster_->processes().WaitForText("evaluator", "waits for checkpoints in", kPatience).ok());
  ASSERT_TRUE(cluster_->StartAll().ok());
  const absl::Status ended = cluster_->WaitForAll(kPatience);
  ASSERT_TRUE(ended.ok()) << ended;
  EXPECT_EQ(ExitOfEvaluator(), 0);
  const std::string& said = cluster_->processes().output("evaluator");
  EXPECT_THAT(said, HasSubstr("step 450: evaluator: loss ")) << "10 epochs of 45 steps";
  EXPECT_THAT(said, HasSubstr("accuracy 0.9"));
  EXPECT_THAT(said, Not(HasSubstr("could not be made"))) << "it writes no checkpoint";
  EXPECT_TRUE(FileSystem::Real().Stat(directory_ + "/logs/evaluator").ok());
}

TEST_F(EvaluatorTest, ASignalEndsItAndAnotherScoresTheFinalCheckpointOfAJobThatIsOver) {
  StartEvaluator();
  ASSERT_TRUE(
      cluster_->processes().WaitForText("evaluator", "waits for checkpoints in", kPatience).ok());
  cluster_->processes().Signal("evaluator", SIGTERM);
  EXPECT_EQ(ExitOfEvaluator(), 143);
  ASSERT_TRUE(cluster_->StartAll().ok());
  ASSERT_TRUE(cluster_->WaitForAll(kPatience).ok());
  StartEvaluator();
  EXPECT_EQ(ExitOfEvaluator(), 0);
  EXPECT_THAT(cluster_->processes().output("evaluator"), HasSubstr("step 450: evaluator: loss "));
}

TEST_F(EvaluatorTest, EndsWithAJobThatItsCoordinatorGivesUp) {
  StartEvaluator();
  const LifeOptions fragile = {{"--epochs=100000", "--max_recoveries=0"}, {}, ""};
  ASSERT_TRUE(cluster_->StartAll(fragile).ok());
  ASSERT_TRUE(cluster_->processes().WaitForText("evaluator", "evaluator: loss ", kPatience).ok());
  ASSERT_TRUE(cluster_->Kill(PsTask(0)).ok());
  ASSERT_TRUE(cluster_->Start(PsTask(0), fragile).ok());
  EXPECT_EQ(cluster_->WaitForExit(kChiefTask, kPatience)->code(), 70);
  EXPECT_EQ(ExitOfEvaluator(), 70);
}

// ---- (k) the same bits everywhere

// The checksums in the program's output.
std::vector<std::string> Checksums(const std::string& output) {
  std::vector<std::string> checksums;
  for (const std::string& line : Lines(output)) {
    if (absl::StrContains(line, " crc32c ")) checksums.push_back(line);
  }
  std::sort(checksums.begin(), checksums.end());
  return checksums;
}

std::vector<std::string> EmbeddedChecksums() {
  WatchedProcesses processes;
  EXPECT_TRUE(
      processes
          .Start("embedded", {{kDeterministic, "--ps=2", "--workers=1"}, {}, ChildOutput::kPipe})
          .ok());
  EXPECT_EQ(processes.WaitForExit("embedded", kPatience)->code(), 0) << processes.LastLines();
  return Checksums(processes.output("embedded"));
}

TEST(DeterminismTest, EmbeddedAndProcessesUnderOneTwoAndThreePsEndInTheSameBits) {
  const std::vector<std::string> embedded = EmbeddedChecksums();
  EXPECT_EQ(embedded.size(), 4u);
  for (const int num_ps : {1, 2, 3}) {
    ProcessClusterOptions options;
    options.program = kDeterministic;
    options.num_ps = num_ps;
    options.num_workers = 1;
    const auto cluster = *ProcessCluster::Make(options);
    ASSERT_TRUE(cluster->StartAll().ok());
    const absl::Status ended = cluster->WaitForAll(kPatience);
    ASSERT_TRUE(ended.ok()) << ended;
    EXPECT_EQ(Checksums(cluster->output(kChiefTask)), embedded) << num_ps << " ps";
  }
}

}  // namespace
}  // namespace divvy
