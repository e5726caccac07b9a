// Tests docs/operating/operations.md row by row: what a signal does to each role in each state of
// the job, what exit codes mean, and what an operator can do.
#include <signal.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/file_system.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/counting_test.h"
#include "tests/e2e/process_cluster.h"

namespace divvy {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

absl::Duration Now() { return Clock::Real().Elapsed(); }

class OperationsTest : public CountingTest {
 protected:
  // A job that can resume: with a state directory and a checkpoint directory, and checkpoints at
  // this interval.
  void MakeDurable(std::vector<std::string> flags, absl::string_view checkpoint_every = "0s") {
    flags.insert(flags.end(),
                 {"--state_dir=" + OwnPath("state"), "--checkpoint_dir=" + OwnPath("checkpoints"),
                  absl::StrCat("--checkpoint_every=", checkpoint_every)});
    Make(2, 2, /*proxied=*/false, std::move(flags));
  }
  // Restarts tasks that have ended with an exit code that asks for it.
  void ReviveTheDead() {
    for (const TaskId& task : cluster_->tasks()) {
      if (cluster_->running(task)) continue;
      const int code = ExitOf(task);
      if (code == 0) continue;
      ASSERT_GE(code, 128) << ToString(task) << cluster_->processes().LastLines();
      Start(task);
    }
  }
  // Waits for a round of steps, and restarts tasks meanwhile.
  void CountOnWhoeverDies() {
    const size_t before = cluster_->output(kChiefTask).size();
    const absl::Duration until = Now() + kPatience;
    while (cluster_->output(kChiefTask).find("counted ", before) == std::string::npos) {
      ASSERT_LT(Now(), until) << cluster_->processes().LastLines();
      cluster_->processes().RunFor(absl::Milliseconds(5));
      ReviveTheDead();
    }
  }
  // Ends the job and checks that every task exits with 0.
  void FinishAll() {
    Finish();
    for (const TaskId& task : cluster_->tasks()) EXPECT_EQ(ExitOf(task), 0) << ToString(task);
  }
  // Runs `divvyctl WORDS --addr=ADDRESS` with the address of task `asked`, and returns its output.
  std::string Divvyctl(std::vector<std::string> words, TaskId asked, int exit_code = 0) {
    const auto [output, code] = RunDivvyctl(std::move(words), asked);
    EXPECT_EQ(code, exit_code) << cluster_->processes().LastLines();
    return output;
  }
  // The same, and the exit code.
  std::pair<std::string, int> RunDivvyctl(std::vector<std::string> words, TaskId asked) {
    const std::string name = absl::StrCat("divvyctl ", ++commands_);
    // These commands call no task. A test may name several itself.
    const auto names_tasks = [](const std::string& word) {
      return absl::StartsWith(word, "--addr=");
    };
    if (words[0] != "certs" && words[0] != "state" &&
        std::none_of(words.begin(), words.end(), names_tasks))
      words.push_back("--addr=" + cluster_->address(asked));
    words.insert(words.begin(), "tools/divvyctl");
    EXPECT_TRUE(cluster_->processes().Start(name, {words, {}, ChildOutput::kPipe}).ok());
    const int code = cluster_->processes().WaitForExit(name, kPatience)->code();
    return {cluster_->processes().output(name), code};
  }
  // The number of steps in the latest "counted" line.
  int64_t Counted() const {
    const std::string& said = cluster_->output(kChiefTask);
    const size_t begin = said.rfind("counted ") + 8;
    int64_t steps = -1;
    EXPECT_TRUE(absl::SimpleAtoi(said.substr(begin, said.find('\n', begin) - begin), &steps));
    return steps;
  }

 private:
  int commands_ = 0;
};

// ---- signals

enum class When { kAttaching, kRunning, kCheckpointing };
using Case = std::tuple<TaskId, int, When>;

class SignalTest : public OperationsTest, public ::testing::WithParamInterface<Case> {
 protected:
  // Brings the job into that state, with the task running.
  void Reach(When state, TaskId task) {
    MakeDurable({}, state == When::kCheckpointing ? "1ms" : "0s");
    missing_ = task.role == Role::kChief ? PsTask(1) : kChiefTask;
    for (const TaskId& other : cluster_->tasks()) {
      if (state != When::kAttaching || ToString(other) != ToString(missing_)) Start(other);
    }
    state == When::kAttaching ? WaitFor(task, " is at ") : WaitFor(kChiefTask, "counted ");
  }

  TaskId missing_;  // not started in the state kAttaching
};

// Lost steps are run again, and none is counted twice. SIGTERM ends a task with 143, because work
// remains.
TEST_P(SignalTest, LeavesAJobThatGoesOnAndCountsEachStepOnce) {
  const auto [task, signal, state] = GetParam();
  Reach(state, task);
  cluster_->Signal(task, signal);
  if (signal == SIGSTOP) {
    cluster_->processes().RunFor(absl::Milliseconds(300));
    cluster_->Signal(task, SIGCONT);
  } else {
    EXPECT_EQ(ExitOf(task), 128 + signal);
  }
  if (state == When::kAttaching) Start(missing_);
  CountOnWhoeverDies();
  FinishAll();
}

std::string NameOfCase(const ::testing::TestParamInfo<Case>& info) {
  const auto [task, signal, state] = info.param;
  const char* const when = state == When::kAttaching ? "Attaching"
                           : state == When::kRunning ? "Running"
                                                     : "Checkpointing";
  return absl::StrCat(ChaosName(task.role), "_", sigabbrev_np(signal), "_", when);
}

INSTANTIATE_TEST_SUITE_P(Each, SignalTest,
                         ::testing::Combine(::testing::Values(kChiefTask, PsTask(0), WorkerTask(0)),
                                            ::testing::Values(SIGTERM, SIGKILL, SIGSTOP),
                                            ::testing::Values(When::kAttaching, When::kRunning,
                                                              When::kCheckpointing)),
                         NameOfCase);

class AnyTaskTest : public OperationsTest, public ::testing::WithParamInterface<TaskId> {};

TEST_P(AnyTaskTest, TellsItsStatusWhenAskedAndGoesOn) {
  Make(1, 1, /*proxied=*/false);
  StartAll();
  CountOn(1);
  cluster_->Signal(GetParam(), SIGUSR1);
  WaitFor(GetParam(), "status: ");
  cluster_->Signal(GetParam(), SIGHUP);
  WaitFor(GetParam(), "SIGHUP: nothing to do");
  CountOn(1);
  FinishAll();
}

TEST_P(AnyTaskTest, EndsWith130WhenInterrupted) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  cluster_->Signal(GetParam(), SIGINT);
  EXPECT_EQ(ExitOf(GetParam()), 130);
  CountOnWhoeverDies();
  FinishAll();
}

// The pause is longer than a worker, or the coordinator, may be silent.
TEST_P(AnyTaskTest, ThatIsStoppedForLongerThanItsSilenceIsBorneGoesOnWhenItWakes) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  cluster_->Signal(GetParam(), SIGSTOP);
  cluster_->processes().RunFor(absl::Milliseconds(6500));
  cluster_->Signal(GetParam(), SIGCONT);
  CountOnWhoeverDies();
  CountOn(1);
  FinishAll();
}

INSTANTIATE_TEST_SUITE_P(Each, AnyTaskTest, ::testing::Values(kChiefTask, PsTask(0), WorkerTask(0)),
                         [](const ::testing::TestParamInfo<TaskId>& info) {
                           return std::string(ChaosName(info.param.role));
                         });

TEST_F(OperationsTest, AParameterServerWithoutADirectoryForCheckpointsIsRefusedWithTheFix) {
  MakeDurable({});
  for (const TaskId& task : cluster_->tasks()) {
    Start(task,
          {ToString(task) == ToString(PsTask(1)) ? std::vector<std::string>{"--checkpoint_dir="}
                                                 : std::vector<std::string>(),
           {},
           ""});
  }
  EXPECT_EQ(ExitOf(PsTask(1)), 78);
  WaitFor(PsTask(1), "has no --checkpoint_dir, and the coordinator has");
  WaitFor(kChiefTask, "Start it with the coordinator's --checkpoint_dir");
  Start(PsTask(1));
  WaitFor(kChiefTask, "counting");
  FinishAll();
}

TEST_F(OperationsTest, AWorkerOfAnotherProgramEndsAndBothLogsSayWhy) {
  Make(1, 2, /*proxied=*/false);
  for (const TaskId& task : {kChiefTask, PsTask(0), WorkerTask(0)}) Start(task);
  Start(WorkerTask(1), {{"--undefok=stop_file"}, {}, "tests/e2e/deterministic_program"});
  EXPECT_EQ(ExitOf(WorkerTask(1)), 78);
  for (const TaskId& task : {kChiefTask, WorkerTask(1)})
    WaitFor(task, "runs another program than the coordinator: it has no step");
  Start(WorkerTask(1));
  // "counting" may have been printed before the refusal: the job begins with one worker.
  CountOn(1);
  FinishAll();
}

TEST_F(OperationsTest, ADrainSavesAllThatWasFinished) {
  MakeDurable({}, "1ms");
  StartAll();
  CountOn(2);
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  const int64_t counted = Counted();
  Start(kChiefTask);
  const std::string restored = WaitFor(kChiefTask, "restored ");
  int64_t steps = 0;
  ASSERT_TRUE(absl::SimpleAtoi(restored.substr(restored.find(' ') + 1), &steps)) << restored;
  EXPECT_GE(steps, counted);
  FinishAll();
}

TEST_F(OperationsTest, ASecondSignalEndsACoordinatorThatWaitsForAStep) {
  Make(1, 1, /*proxied=*/false, {"--hanging_worker=0", "--drain_timeout=50s"});
  StartAll();
  WaitFor(WorkerTask(0), "hanging");
  const absl::Duration asked = Now();
  cluster_->Signal(kChiefTask, SIGTERM);
  WaitFor(kChiefTask, "asked to end");
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  EXPECT_LT(Now() - asked, absl::Seconds(10));
}

TEST_F(OperationsTest, ASecondSignalEndsAWorkerWhoseStepNeverReturns) {
  Make(1, 1, /*proxied=*/false, {"--hanging_worker=0", "--drain_timeout=50s"});
  StartAll();
  WaitFor(WorkerTask(0), "hanging");
  const absl::Duration asked = Now();
  cluster_->Signal(WorkerTask(0), SIGTERM);
  WaitFor(WorkerTask(0), "a second signal ends it at once");
  cluster_->Signal(WorkerTask(0), SIGTERM);
  EXPECT_EQ(ExitOf(WorkerTask(0)), 143);
  EXPECT_LT(Now() - asked, absl::Seconds(10));
}

// ---- the end

TEST_F(OperationsTest, AfterTheEndACoordinatorThatIsStartedAgainSaysSo) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  FinishAll();
  Start(kChiefTask);
  EXPECT_EQ(ExitOf(kChiefTask), 0);
}

TEST_F(OperationsTest, ACoordinatorThatStaysForAStragglerGoesWhenItIsAsked) {
  Make(1, 2, /*proxied=*/false);
  StartAll();
  CountOn(1);
  Kill(WorkerTask(1));
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
  for (const TaskId& task : {PsTask(0), WorkerTask(0)}) EXPECT_EQ(ExitOf(task), 0);
  const absl::Duration asked = Now();
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 0);  // because the job is complete
  EXPECT_LT(Now() - asked, absl::Seconds(8));
}

TEST_F(OperationsTest, WhatNoMemoryIsAllowedForEndsTheJobWith74) {
  Make(1, 1, /*proxied=*/false, {"--memory_limit_bytes=8"});
  for (const TaskId& task : cluster_->tasks()) Start(task);
  // The ps is told that the job has failed.
  EXPECT_NE(ExitOf(PsTask(0)), 0);
  // The chief may wait for the worker. SIGTERM does not change its exit code to the one for work
  // that remains.
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 74);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("--memory_limit_bytes"));
}

// ---- full disks

TEST_F(OperationsTest, AFullDiskOfAPsCostsCheckpointsAndNothingElse) {
  MakeDurable({"--elements=64"}, "100ms");
  StartAll();
  CountOn(1);
  cluster_->LimitFiles(PsTask(0), 100);
  WaitFor(kChiefTask, "could not be made, older checkpoints are unchanged");
  CountOn(2);
  const auto newest = [] {
    return FileSystem::Real().ReadFile(OwnPath("checkpoints") + "/checkpoint").value_or("");
  };
  const std::string before = newest();
  cluster_->LimitFiles(PsTask(0), ProcessCluster::kUnlimited);
  EXPECT_TRUE(cluster_->processes().WaitUntil([&] { return newest() != before; }, kPatience));
  FinishAll();
}

TEST_F(OperationsTest, AFullDiskOfTheStateDirectoryEndsTheCoordinatorWith74AndTheNextGoesOn) {
  MakeDurable({}, "100ms");
  StartAll();
  CountOn(1);
  cluster_->LimitFiles(kChiefTask, 0);
  EXPECT_EQ(ExitOf(kChiefTask), 74);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("--state_dir"));
  Start(kChiefTask);
  CountOn(1);
  FinishAll();
}

// Writes what an older version stored after a task had reported epoch 2^64 - 2.
void PoisonState(const std::string& directory) {
  ThreadPoolExecutor executor(1);
  absl::StatusOr<std::unique_ptr<Store>> store = SqliteStore::Open(directory, executor);
  ASSERT_TRUE(store.ok()) << store.status();
  StoreChange change;
  change.job = (*store)->Load()->job;
  change.job->epoch = Epoch(~uint64_t{1});
  (*store)->Put(std::move(change),
                [](const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; });
  (*store)->Close();
}

TEST_F(OperationsTest, AStateDirectoryWithAnEpochThatCannotBeIsMendedAndTheJobGoesOn) {
  MakeDurable({}, "100ms");
  StartAll();
  CountOn(1);
  Kill(kChiefTask);
  PoisonState(OwnPath("state"));
  Start(kChiefTask);
  EXPECT_EQ(ExitOf(kChiefTask), 65);
  EXPECT_THAT(cluster_->output(kChiefTask), HasSubstr("epoch 18446744073709551614 of job"));
  EXPECT_THAT(Divvyctl({"state", "show", OwnPath("state")}, kChiefTask),
              HasSubstr("to be repaired by `divvyctl state repair`"));
  EXPECT_THAT(Divvyctl({"state", "repair", OwnPath("state")}, kChiefTask),
              HasSubstr("epoch 18446744073709551614 is not valid: it becomes 10485"));
  Start(kChiefTask);
  WaitFor(kChiefTask, "restored ");
  CountOn(1);
  FinishAll();
}

// ---- divvyctl launch

// `divvyctl launch` restarts each task with the directories that it has given to the job.
TEST_F(OperationsTest, ALaunchedJobWhoseTasksOfEveryRoleAreKilledEndsExactly) {
  WatchedProcesses processes;
  const std::vector<std::string> command = {"tools/divvyctl",
                                            "launch",
                                            "--ps=2",
                                            "--workers=2",
                                            "--chaos=1500ms",
                                            "--chaos_roles=worker,ps,coordinator",
                                            "--",
                                            kCounter,
                                            "--stop_file=" + stop_file_,
                                            "--checkpoint_every=200ms"};
  ASSERT_TRUE(processes.Start("launch", {command, {}, ChildOutput::kPipe}).ok());
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(processes.WaitForText("launch", "chaos: SIGKILL to ", kPatience).ok())
        << processes.LastLines();
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
  EXPECT_EQ(processes.WaitForExit("launch", kPatience)->code(), 0) << processes.LastLines();
  EXPECT_THAT(processes.output("launch"), HasSubstr("counter = "));
}

TEST_F(OperationsTest, AnInterruptedLaunchSaysHowToGoOn) {
  WatchedProcesses processes;
  const auto launch = [&](std::vector<std::string> flags) {
    std::vector<std::string> command = {
        "tools/divvyctl",           "launch", "--ps=2", "--workers=1", "--", kCounter,
        "--stop_file=" + stop_file_};
    command.insert(command.end(), flags.begin(), flags.end());
    ASSERT_TRUE(processes
                    .Start("launch",
                           {command, {{"TMPDIR", std::getenv("TEST_TMPDIR")}}, ChildOutput::kPipe})
                    .ok());
  };
  launch({});
  ASSERT_TRUE(processes.WaitForText("launch", "counted ", kPatience).ok());
  processes.Signal("launch", SIGINT);
  const absl::StatusOr<std::string> last =
      processes.WaitForText("launch", "launch again with the flags ", kPatience);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_EQ(processes.WaitForExit("launch", kPatience)->code(), 130);
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(stop_file_, "").ok());
  launch(absl::StrSplit(last->substr(last->find("--state_dir")), ' '));
  EXPECT_EQ(processes.WaitForExit("launch", kPatience)->code(), 0) << processes.LastLines();
  EXPECT_THAT(processes.output("launch"), HasSubstr("restored "));
}

TEST_F(OperationsTest, AnEmptyCheckpointDirSwitchesCheckpointsOffInALaunchToo) {
  WatchedProcesses processes;
  const std::string directory = OwnPath("tmp");
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(directory).ok());
  const std::vector<std::string> command = {"tools/divvyctl",
                                            "launch",
                                            "--ps=1",
                                            "--workers=1",
                                            "--",
                                            kCounter,
                                            "--stop_file=" + stop_file_,
                                            "--checkpoint_dir="};
  ASSERT_TRUE(
      processes.Start("launch", {command, {{"TMPDIR", directory}}, ChildOutput::kPipe}).ok());
  ASSERT_TRUE(processes.WaitForText("launch", "counted ", kPatience).ok());
  // With a checkpoint directory, SIGINT would save a checkpoint and print where.
  processes.Signal("launch", SIGINT);
  EXPECT_EQ(processes.WaitForExit("launch", kPatience)->code(), 130) << processes.LastLines();
  EXPECT_TRUE(FileSystem::Real().ListDirectory(directory)->empty());
}

// ---- operations by divvyctl

TEST_F(OperationsTest, AnOperatorSavesAndDrainsAndTheNextCoordinatorGoesOn) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  EXPECT_EQ(Divvyctl({"checkpoint", "save"}, kChiefTask), "ckpt-1-1\n");
  CountOn(1);
  EXPECT_THAT(Divvyctl({"drain"}, kChiefTask),
              ContainsRegex("^drained: ([0-9]+) steps finished, ckpt-1-2 holds [0-9]+\n$"));
  EXPECT_EQ(ExitOf(kChiefTask), 143);
  // The other tasks wait for the next coordinator.
  EXPECT_TRUE(cluster_->running(PsTask(0)) && cluster_->running(WorkerTask(0)));
  Start(kChiefTask);
  WaitFor(kChiefTask, "restored ");
  FinishAll();
}

TEST_F(OperationsTest, AJobGoesOnWithFewerAndThenWithMoreParameterServers) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  EXPECT_EQ(Divvyctl({"resize", "--ps=1"}, kChiefTask),
            "the job goes on with 1 parameter server\n");
  EXPECT_EQ(ExitOf(PsTask(1)), 0);
  CountOn(1);
  // divvyctl waits no longer, but the resize continues: ps 1 has not been started yet.
  Divvyctl({"resize", "--ps=2", "--timeout=500ms"}, kChiefTask, 138);
  Start(PsTask(1));
  WaitFor(kChiefTask, "the job goes on with 2 parameter servers instead of 1");
  CountOn(1);
  FinishAll();
}

TEST_F(OperationsTest, AJobGoesOnWithItsShardsArrangedByTheirLoad) {
  MakeDurable({"--counters=3", "--elements=100"});
  StartAll();
  // Two counters lie on ps 0, and one on ps 1. The load is known some seconds after the first step.
  CountOn(1);
  std::string said;
  for (const absl::Duration until = Now() + kPatience; !absl::StrContains(said, " cut into ");) {
    ASSERT_LT(Now(), until) << said;
    CountOn(1);
    said = RunDivvyctl({"rebalance"}, kChiefTask).first;
  }
  EXPECT_THAT(said,
              ContainsRegex("^[0-3] shards moved, [1-3] variables cut into more shards: the load "
                            "of the busiest parameter server was [12][.][0-9]+ times the mean, "
                            "and is expected to be 1[.][01][0-9]\n$"));
  WaitFor(kChiefTask, "the job goes on with its shards arranged by load");
  CountOn(1);
  cluster_->Signal(PsTask(0), SIGKILL);
  CountOnWhoeverDies();
  FinishAll();
}

// ---- traces and logs

TEST_F(OperationsTest, AnOperatorSeesWhereTheTimeOfAStepWentOverAllRoles) {
  MakeDurable({"--elements=1000"});
  StartAll();
  CountOn(1);
  const std::string last = Divvyctl({"trace"}, kChiefTask);
  EXPECT_THAT(last,
              ContainsRegex(", training step [0-9]+, worker [01].*: [0-9.]+ [mun]?s.*, ok, "));
  EXPECT_THAT(last,
              ContainsRegex("traceparent 00-[0-9a-f]{32}-[0-9a-f]{16}-01, entry [0-9]+\n"));
  EXPECT_THAT(last, ContainsRegex("  chief      dispatch +[0-9.]+ [mun]?s \\|"));
  EXPECT_THAT(last, ContainsRegex("  worker [01]   compute +[0-9.]+ [mun]?s \\|"));
  EXPECT_THAT(last,
              ContainsRegex("  ps [01]       commit +[0-9.]+ [mun]?s \\|[ =]+\\| at the ps "));
  // A worker knows its own part, and a parameter server none of a step.
  EXPECT_THAT(Divvyctl({"trace", "--slowest=3"}, WorkerTask(0)), HasSubstr("worker 0   compute"));
  EXPECT_THAT(Divvyctl({"trace"}, PsTask(0), 64), HasSubstr("give the coordinator's address"));
  EXPECT_THAT(Divvyctl({"trace", "--step=999999999"}, kChiefTask, 66),
              ContainsRegex("training step 999999999 is not among .*; the nearest are [0-9]"));
  EXPECT_THAT(Divvyctl({"trace", "--slowest=0"}, kChiefTask, 64), HasSubstr("at least 1"));
  EXPECT_THAT(Divvyctl({"trace", "--format=chrome"}, kChiefTask),
              HasSubstr("{\"traceEvents\":[{\"name\":\"queued\""));
  // A worker dies with its steps. They are run again, as their second attempt, and are no slow
  // ones.
  cluster_->Signal(WorkerTask(0), SIGKILL);
  CountOnWhoeverDies();
  const std::string lost = Divvyctl({"trace", "--last=64"}, kChiefTask);
  EXPECT_THAT(lost, ContainsRegex("worker 0(, attempt [0-9]+)?: [0-9].*, worker lost, "));
  EXPECT_THAT(lost, ContainsRegex("  chief      lost +[0-9.]+ [mun]?s"));
  EXPECT_THAT(Divvyctl({"trace", "--slowest=100"}, kChiefTask), Not(HasSubstr("worker lost")));
  FinishAll();
}

// The times that a coordinator keeps end with its process, and a new one begins at once. A
// parameter server may be another process from one step to the next.
TEST_F(OperationsTest, StepsAreTracedAgainAfterAParameterServerOrTheCoordinatorWasKilled) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  for (const TaskId& task : {PsTask(0), kChiefTask}) {
    cluster_->Signal(task, SIGKILL);
    CountOnWhoeverDies();
    CountOnWhoeverDies();
    const std::string last = Divvyctl({"trace"}, kChiefTask);
    EXPECT_THAT(last, ContainsRegex(", training step [0-9]+, worker [01].*, ok, "))
        << ToString(task);
    EXPECT_THAT(last, ContainsRegex("  ps 0       commit +[0-9.]+ [mun]?s \\|[ =]+\\| at the ps "))
        << ToString(task);
    EXPECT_THAT(last, ContainsRegex("traceparent 00-[0-9a-f]{32}-")) << ToString(task);
  }
  FinishAll();
}

TEST_F(OperationsTest, AnOperatorReadsTheLogsOfAllTasksWhoeverLives) {
  MakeDurable({});
  StartAll();
  CountOn(1);
  std::vector<std::string> addresses;
  for (const TaskId& task : cluster_->tasks()) addresses.push_back(cluster_->address(task));
  const std::string all = "--addr=" + absl::StrJoin(addresses, ",");
  const std::string logs = Divvyctl({"logs", "--lines=0", all}, kChiefTask);
  for (const char* task : {"chief   ", "ps 0    ", "ps 1    ", "worker 0", "worker 1"})
    EXPECT_THAT(logs, ContainsRegex(absl::StrCat(
                          "(^|\n)", task, " \\| I[0-9]{4} [0-9:.]{15} [a-z_]+.cc:[0-9]+\\] ")))
        << task;
  // They are in the order of their times.
  std::string before;
  for (const absl::string_view line : absl::StrSplit(logs, '\n', absl::SkipEmpty())) {
    const size_t time = line.find("| I");
    if (time == line.npos) continue;
    const std::string now(line.substr(time + 3, 20));
    EXPECT_LE(before, now) << line;
    before = now;
  }
  const std::string one = Divvyctl({"logs", "ps-1", "--lines=2", all}, kChiefTask);
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 2) << one;
  EXPECT_THAT(one, ContainsRegex("^ps 1 \\| "));
  EXPECT_THAT(Divvyctl({"logs", "ps-7", all}, kChiefTask, 64), HasSubstr("there is no ps 7"));
  EXPECT_THAT(Divvyctl({"logs", "nobody", all}, kChiefTask, 64), HasSubstr("names no task"));
  Kill(WorkerTask(1));
  EXPECT_THAT(Divvyctl({"logs", "ps-1", "--lines=1", all}, kChiefTask), HasSubstr("ps 1 | "))
      << "it has answered";
  const std::string rest = Divvyctl({"logs", all}, kChiefTask, 1);
  EXPECT_THAT(rest, HasSubstr(cluster_->address(WorkerTask(1)) + " does not answer: "));
  EXPECT_THAT(rest, HasSubstr("\nps 0     | "));
  Start(WorkerTask(1));
  CountOn(1);
  FinishAll();
}

TEST_F(OperationsTest, AnOperatorIsToldWhyNothingCanBeSaved) {
  Make(1, 1, /*proxied=*/false);
  StartAll();
  CountOn(1);
  EXPECT_THAT(Divvyctl({"checkpoint", "save"}, kChiefTask, 78), HasSubstr("--checkpoint_dir"));
  EXPECT_THAT(Divvyctl({"checkpoint", "save"}, PsTask(0), 64), HasSubstr("is not the coordinator"));
  EXPECT_THAT(Divvyctl({"drain"}, WorkerTask(0), 64), HasSubstr("is not the coordinator"));
  EXPECT_THAT(Divvyctl({"rebalance"}, kChiefTask, 78), HasSubstr("--checkpoint_dir"));
  CountOn(1);
  FinishAll();
  EXPECT_THAT(Divvyctl({"drain"}, kChiefTask, 138), HasSubstr("nothing listens there"));
}

TEST_F(OperationsTest, OnlyTheCertificateOfAnOperatorMaySaveAndDrain) {
  const std::string certificates = OwnPath("certificates");
  Make(1, 1, /*proxied=*/false, {"--tls_ca=" + certificates + "/ca.pem"});
  Divvyctl({"certs", "--out=" + certificates, "--ps=1", "--workers=1"}, kChiefTask);
  const auto as = [&](const std::string& who) {
    return std::vector<std::string>{absl::StrCat("--tls_cert=", certificates, "/", who, ".pem"),
                                    absl::StrCat("--tls_key=", certificates, "/", who, ".key")};
  };
  Start(kChiefTask, {as("chief-0"), {}, ""});
  Start(PsTask(0), {as("ps-0"), {}, ""});
  Start(WorkerTask(0), {as("worker-0"), {}, ""});
  CountOn(1);
  for (const std::string who : {"worker-0", "ps-0", "chief-0"}) {
    std::vector<std::string> words = as(who);
    words.insert(words.begin(), {"drain", "--tls_ca=" + certificates + "/ca.pem"});
    EXPECT_THAT(Divvyctl(words, kChiefTask, 77), HasSubstr("may not call Admin.")) << who;
  }
  CountOn(1);
  std::vector<std::string> words = as("admin-0");
  words.insert(words.begin(), {"drain", "--tls_ca=" + certificates + "/ca.pem"});
  EXPECT_THAT(Divvyctl(words, kChiefTask), HasSubstr("there is no checkpoint"));
  EXPECT_EQ(ExitOf(kChiefTask), 143);
}

TEST_F(OperationsTest, TheFirstSignalBehindAnOperatorsDrainIsNotYetTheSecond) {
  Make(1, 1, /*proxied=*/false, {"--hanging_worker=0", "--drain_timeout=50s"});
  StartAll();
  WaitFor(WorkerTask(0), "hanging");
  Divvyctl({"drain", "--timeout=5s"}, kChiefTask, 138);
  WaitFor(kChiefTask, "asked to end");
  cluster_->Signal(kChiefTask, SIGTERM);
  WaitFor(kChiefTask, "it is draining already");
  EXPECT_TRUE(cluster_->running(kChiefTask));
  cluster_->Signal(kChiefTask, SIGTERM);
  EXPECT_EQ(ExitOf(kChiefTask), 143);
}

TEST_F(OperationsTest, ADrainThatLastsLongerThanTheOperatorWaitsGoesOn) {
  Make(1, 1, /*proxied=*/false, {"--hanging_worker=0", "--drain_timeout=3s"});
  StartAll();
  WaitFor(WorkerTask(0), "hanging");
  Divvyctl({"drain", "--timeout=500ms"}, kChiefTask, 138);
  EXPECT_TRUE(cluster_->running(kChiefTask));
  EXPECT_EQ(ExitOf(kChiefTask), 143);
}

}  // namespace
}  // namespace divvy
