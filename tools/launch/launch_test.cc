// Tests of the launcher with real processes. fake_task takes the program's place.
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/child_process.h"
#include "tools/launch/poll_until.h"
#include "tools/launch/testing/watched_processes.h"

namespace divvy {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFakeTask[] = "tools/launch/fake_task";
constexpr absl::Duration kPatience = absl::Seconds(30);

std::string TemporaryPath(absl::string_view name) {
  return absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
}

// The number after `word` in `line`.
pid_t NumberBehind(const std::string& line, absl::string_view word) {
  const size_t at = line.find(std::string(word));
  pid_t number = 0;
  EXPECT_TRUE(absl::SimpleAtoi(line.substr(at + word.size()), &number)) << line;
  return number;
}

// Watches a process that may not be our child.
Descriptor Watch(pid_t pid) {
  return Descriptor(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool EndsInTime(const Descriptor& process) {
  std::vector<pollfd> events = {{process.get(), POLLIN, 0}};
  return PollUntil(events, Clock::Real().Elapsed() + kPatience);
}

// ---- ChildProcess, through WatchedProcesses

class ChildProcessTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> command, ChildOutput output = ChildOutput::kPipe) {
    const absl::Status started = processes_.Start("child", {std::move(command), {}, output});
    ASSERT_TRUE(started.ok()) << started;
  }
  ExitStatus Exit() {
    const absl::StatusOr<ExitStatus> status = processes_.WaitForExit("child", kPatience);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.value_or(ExitStatus{});
  }

  WatchedProcesses processes_;
};

TEST_F(ChildProcessTest, TellsHowItsChildEnded) {
  Start({kFakeTask, "exit=78"});
  EXPECT_EQ(Exit(), (ExitStatus{78, 0}));
  Start({kFakeTask, "raise=9"});
  EXPECT_EQ(Exit(), (ExitStatus{0, SIGKILL}));
}

TEST_F(ChildProcessTest, OutputAndErrorComeInTheOrderWritten) {
  Start({"sh", "-c", "echo one; echo two >&2; echo three"});
  Exit();
  EXPECT_EQ(processes_.output("child"), "one\ntwo\nthree\n");
}

TEST_F(ChildProcessTest, ItsInputIsEmpty) {
  Start({"sh", "-c", "cat; echo done"});
  Exit();
  EXPECT_EQ(processes_.output("child"), "done\n");
}

TEST_F(ChildProcessTest, CanBeStartedByAProcessWithoutInput) {
  Start({"sh", "-c", "exec tools/launch/launch_for_test -- tools/launch/fake_task print=up <&-"});
  EXPECT_EQ(Exit().code(), 0);
  EXPECT_THAT(processes_.output("child"), HasSubstr("chief    | up\n"));
}

TEST_F(ChildProcessTest, MoreOutputThanAPipeHoldsArrivesWhole) {
  Start({"sh", "-c", "head -c 1000000 /dev/zero | tr '\\0' x"});
  Exit();
  EXPECT_EQ(processes_.output("child").size(), 1000000u);
}

TEST_F(ChildProcessTest, AChildThatWritesForEverIsReadInPortions) {
  auto child = ChildProcess::Start({{"/bin/sh", "-c", "yes"}, {}, ChildOutput::kPipe});
  ASSERT_TRUE(child.ok()) << child.status();
  for (int i = 0; i < 20; ++i) {
    std::string text;
    pollfd event{(*child)->output(), POLLIN, 0};
    ASSERT_EQ(poll(&event, 1, -1), 1);
    ASSERT_TRUE((*child)->Read(text));
    ASSERT_LE(text.size(), 300'000u);
  }
}

TEST_F(ChildProcessTest, SetsTheEnvironmentBesidesWhatIsThere) {
  ASSERT_EQ(setenv("DIVVY_TEST_KEPT", "kept", 1), 0);
  ASSERT_EQ(setenv("DIVVY_TEST_SET", "old", 1), 0);
  ASSERT_TRUE(processes_
                  .Start("child", {{"sh", "-c", "echo $DIVVY_TEST_KEPT $DIVVY_TEST_SET"},
                                   {{"DIVVY_TEST_SET", "new"}},
                                   ChildOutput::kPipe})
                  .ok());
  Exit();
  EXPECT_EQ(processes_.output("child"), "kept new\n");
}

TEST_F(ChildProcessTest, AProgramThatIsNotThereIsNamed) {
  const absl::Status started =
      processes_.Start("child", {{"./no_such_program"}, {}, ChildOutput::kPipe});
  EXPECT_EQ(started.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(started.message()), HasSubstr("./no_such_program"));
}

TEST_F(ChildProcessTest, ATerminalOfItsOwnLooksLikeOne) {
  Start({kFakeTask, "tty", "draw=~10 %~20 %"}, ChildOutput::kTerminal);
  Exit();
  EXPECT_EQ(processes_.output("child"), "a terminal\n\r10 %\r20 %");
}

TEST_F(ChildProcessTest, WhatItsChildLeavesBehindIsKilled) {
  Start({kFakeTask, "orphan", "await"});
  const Descriptor orphan =
      Watch(NumberBehind(*processes_.WaitForText("child", "orphan ", kPatience), "orphan "));
  processes_.Signal("child", SIGKILL);
  Exit();
  EXPECT_TRUE(EndsInTime(orphan));
}

TEST_F(ChildProcessTest, AStoppedChildIsNoDeadOne) {
  Start({kFakeTask, "print=up", "await"});
  ASSERT_TRUE(processes_.WaitForText("child", "up", kPatience).ok());
  processes_.Signal("child", SIGSTOP);
  processes_.Signal("child", SIGTERM);
  processes_.RunFor(absl::Milliseconds(20));
  EXPECT_TRUE(processes_.running("child"));
  processes_.Signal("child", SIGCONT);
  EXPECT_EQ(Exit().code(), 143);
}

TEST(WatchedProcessesTest, AWaitInVainSaysForWhatAndShowsTheOutput) {
  WatchedProcesses processes;
  ASSERT_TRUE(
      processes.Start("task", {{kFakeTask, "print=hello", "hang"}, {}, ChildOutput::kPipe}).ok());
  ASSERT_TRUE(processes.WaitForText("task", "hello", kPatience).ok());
  const absl::Status status =
      processes.WaitForText("task", "good bye", absl::Milliseconds(10)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("waited 10ms for task to print \"good bye\"\n---- task runs:\nhello\n"));
  EXPECT_EQ(processes.WaitForExit("task", absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST(WatchedProcessesTest, ATextThatCanNoLongerComeIsNotWaitedFor) {
  WatchedProcesses processes;
  ASSERT_TRUE(processes.Start("task", {{kFakeTask, "print=hello"}, {}, ChildOutput::kPipe}).ok());
  EXPECT_EQ(processes.WaitForText("task", "good bye", kPatience).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// ---- Launch

class LaunchTest : public ::testing::Test {
 protected:
  // TMPDIR is the test's, because a killed launcher leaves its directory behind.
  LaunchTest() { setenv("TMPDIR", std::getenv("TEST_TMPDIR"), 1); }
  void Launch(std::vector<std::string> flags, std::vector<std::string> actions,
              ChildOutput output = ChildOutput::kPipe) {
    std::vector<std::string> command = {"tools/launch/launch_for_test"};
    command.insert(command.end(), flags.begin(), flags.end());
    command.insert(command.end(), {"--", kFakeTask});
    command.insert(command.end(), actions.begin(), actions.end());
    const absl::Status started =
        processes_.Start("launch", {command, {{"TERM", "xterm"}, {"NO_COLOR", ""}}, output});
    ASSERT_TRUE(started.ok()) << started;
  }
  std::string WaitFor(absl::string_view text) {
    const absl::StatusOr<std::string> line = processes_.WaitForText("launch", text, kPatience);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.value_or("");
  }
  int Exit() {
    const absl::StatusOr<ExitStatus> status = processes_.WaitForExit("launch", kPatience);
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->code() : -1;
  }
  std::string Output() const { return processes_.output("launch"); }

  WatchedProcesses processes_;
};

TEST_F(LaunchTest, EveryTaskOfTheSameProgramIsToldWhoItIs) {
  Launch({"--ps=2", "--workers=2"}, {"show"});
  EXPECT_EQ(Exit(), 0);
  EXPECT_THAT(Output(), HasSubstr("launch   | chief, 2 ps, 2 workers on sockets of this machine "
                                  "that only you can reach\n"));
  for (const auto& [name, task] : std::vector<std::pair<std::string, std::string>>{
           {"chief    | ", R"("type":"chief","index":0)"},
           {"ps 1     | ", R"("type":"ps","index":1)"},
           {"worker 1 | ", R"("type":"worker","index":1)"}}) {
    EXPECT_THAT(Output(), ContainsRegex(absl::StrCat(name, ".*", task)));
  }
}

TEST_F(LaunchTest, ExitsWithTheChiefsCodeAndDrainsTheOthers) {
  Launch({}, {"chief0:exit=65", "await"});
  EXPECT_EQ(Exit(), 65);
  EXPECT_THAT(
      Output(),
      HasSubstr(
          "launch   | chief ended with exit code 65 (corrupt data); draining ps 0, worker 0\n"));
}

TEST_F(LaunchTest, ADeadWorkerIsStartedAgainAndItsLaterLifeIsHeard) {
  Launch({}, {absl::StrCat("worker0:once=", TemporaryPath("restarted")), "worker0:raise=9",
              "worker0:print=back", "worker0:finish", "await"});
  WaitFor("worker 0 was killed by SIGKILL; starting it again (1 of 5)");
  WaitFor("worker 0 | back");
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 143);
}

TEST_F(LaunchTest, SaysAtTheEndWhatEachTaskHasUsedIfAsked) {
  Launch({"--usage", "--ps=2"}, {"show"});
  EXPECT_EQ(Exit(), 0);
  for (const absl::string_view name : {"chief", "ps 0", "ps 1", "worker 0"}) {
    EXPECT_THAT(Output(), ContainsRegex(absl::StrCat(
                              "launch   \\| usage: ", name,
                              ": [0-9]+\\.[0-9]{2} s of CPU time, [0-9]+\\.[0-9] MB at most\n")));
  }
}

TEST_F(LaunchTest, APermanentFailureOfAWorkerEndsTheLaunchWithItsCode) {
  Launch({"--workers=2"}, {"worker1:print=bad flag", "worker1:exit=78", "await"});
  EXPECT_EQ(Exit(), 78);
  EXPECT_THAT(Output(), HasSubstr("worker 1 | bad flag\n"));
  EXPECT_THAT(Output(), HasSubstr("worker 1 ended with exit code 78 (bad configuration); draining "
                                  "chief, ps 0, worker 0\n"));
}

TEST_F(LaunchTest, ACrashLoopEndsTheLaunch) {
  Launch({"--max_restarts=1"}, {"worker0:raise=6", "await"});
  EXPECT_EQ(Exit(), 70);
  EXPECT_THAT(Output(), HasSubstr("worker 0 was killed by SIGABRT, 2 times within 10m; draining"));
}

TEST_F(LaunchTest, ASignalIsPassedOnToAllAndTheChiefsCodeIsGiven) {
  Launch({}, {"print=up", "await"});
  for (int i = 0; i < 3; ++i) WaitFor("| up");
  processes_.Signal("launch", SIGINT);
  EXPECT_EQ(Exit(), 130);
  EXPECT_THAT(
      Output(),
      HasSubstr("launch   | SIGINT: draining chief, ps 0, worker 0; a second signal kills\n"));
}

TEST_F(LaunchTest, ASecondSignalKills) {
  Launch({}, {"print=up", "hang"});
  for (int i = 0; i < 3; ++i) WaitFor("| up");
  processes_.Signal("launch", SIGTERM);
  WaitFor("SIGTERM: draining");
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 137);
  EXPECT_THAT(Output(), HasSubstr("launch   | SIGTERM: killing chief, ps 0, worker 0\n"));
}

TEST_F(LaunchTest, NoTaskOutlivesALauncherThatIsKilled) {
  Launch({}, {"pid", "hang"});
  std::vector<Descriptor> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(Watch(NumberBehind(WaitFor("| pid "), "| pid ")));
  kill(processes_.pid("launch"), SIGKILL);  // the launcher alone, not its process group
  EXPECT_EQ(Exit(), 137);
  for (const Descriptor& task : tasks) EXPECT_TRUE(EndsInTime(task));
}

TEST_F(LaunchTest, ChaosKillsWorkersThatComeBack) {
  Launch({"--chaos=20ms", "--seed=3", "--workers=2", "--max_restarts=0"}, {"await"});
  WaitFor("chaos: SIGKILL to a random worker every 20ms (seed 3)");
  for (int i = 0; i < 5; ++i) WaitFor("chaos: SIGKILL to worker ");
  for (int i = 0; i < 3; ++i) WaitFor("was killed by SIGKILL; starting it again\n");
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 143);
}

TEST_F(LaunchTest, APsAndAChiefThatWereKilledAreStartedAgain) {
  Launch({}, {absl::StrCat("ps0:once=", TemporaryPath("ps_again")), "ps0:raise=9",
              absl::StrCat("chief0:once=", TemporaryPath("chief_again")), "chief0:exit=138",
              "chief0:print=here", "ps0:print=back", "await"});
  const auto both_are_back = [&] {
    return absl::StrContains(Output(), "ps 0     | back\n") &&
           absl::StrContains(Output(), "chief    | here\n");
  };
  EXPECT_TRUE(processes_.WaitUntil(both_are_back, kPatience)) << Output();
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 143);
  EXPECT_THAT(Output(), HasSubstr("ps 0 was killed by SIGKILL; starting it again (1 of 5)\n"));
}

TEST_F(LaunchTest, ChaosHitsPsAndCoordinatorToo) {
  Launch({"--chaos=20ms", "--chaos_roles=ps,coordinator", "--max_restarts=0"}, {"await"});
  WaitFor("chaos: SIGKILL to a random ps or coordinator every 20ms");
  for (int i = 0; i < 4; ++i) WaitFor("was killed by SIGKILL; starting it again\n");
  processes_.Signal("launch", SIGTERM);
  EXPECT_THAT(Exit(), ::testing::AnyOf(143, 137));  // 137: the chief was dead at that moment
  EXPECT_THAT(Output(), Not(HasSubstr("SIGKILL to worker")));
}

TEST_F(LaunchTest, TheTasksHaveADirectoryOfTheLaunchWhereNothingElseIsSaid) {
  const std::string temporary = TemporaryPath("launches");
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(temporary).ok());
  ASSERT_EQ(setenv("TMPDIR", temporary.c_str(), 1), 0);
  Launch({},
         {"chief0:env=DIVVY_STATE_DIR", "ps0:env=DIVVY_CHECKPOINT_DIR", "chief0:hang", "await"});
  EXPECT_THAT(WaitFor("chief    | DIVVY_STATE_DIR="), HasSubstr(temporary + "/divvy-launch-"));
  const std::vector<std::string> made = *FileSystem::Real().ListDirectory(temporary);
  ASSERT_EQ(made.size(), 1u);
  struct stat what;
  ASSERT_EQ(stat(absl::StrCat(temporary, "/", made[0]).c_str(), &what), 0);
  // A checkpoint may reveal private data, so no other user may read it.
  EXPECT_EQ(what.st_mode & 0777, 0700u);
  processes_.Signal("launch", SIGTERM);
  WaitFor("SIGTERM: draining");
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 137);
  EXPECT_EQ(FileSystem::Real().ListDirectory(temporary)->size(), 0u);  // there was no checkpoint
}

TEST_F(LaunchTest, SocketsWhosePathWouldBeTooLongAreElsewhereAndGoWithTheLaunch) {
  const std::string temporary = TemporaryPath(std::string(100, 'x'));
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(temporary).ok());
  ASSERT_EQ(setenv("TMPDIR", temporary.c_str(), 1), 0);
  Launch({}, {"show"});
  const std::string line = WaitFor("divvyctl status --addr=unix:");
  const std::string sockets = line.substr(line.find("unix:") + 5);
  EXPECT_THAT(sockets, HasSubstr("/tmp/divvy-launch-"));
  EXPECT_EQ(Exit(), 0);
  EXPECT_FALSE(FileSystem::Real().Stat(sockets).ok());
  EXPECT_EQ(FileSystem::Real().ListDirectory(temporary)->size(), 0u);
}

TEST_F(LaunchTest, TheLastCheckpointOfADirectoryThatGoesIsMadeForAnEvaluatorAlone) {
  Launch({}, {"chief0:env=DIVVY_TEMPORARY"});
  EXPECT_EQ(Exit(), 0);
  EXPECT_THAT(Output(), HasSubstr("chief    | DIVVY_TEMPORARY=1\n"));
  Launch({"--evaluator"}, {"evaluator0:show", "chief0:unset=DIVVY_TEMPORARY"});
  EXPECT_EQ(Exit(), 0);
  EXPECT_THAT(Output(), HasSubstr("chief     | DIVVY_TEMPORARY is not set\n"));
  EXPECT_THAT(Output(), HasSubstr("launch    | chief, 1 ps, 1 worker, evaluator on sockets"));
  EXPECT_THAT(Output(), ContainsRegex("evaluator \\| .*\"type\":\"evaluator\",\"index\":0"));
}

TEST_F(LaunchTest, AnEvaluatorThatFailsIsDoneWithoutAndOneThatScoresIsWaitedFor) {
  Launch({"--evaluator"}, {"evaluator0:exit=66", "print=up", "chief0:finish", "await"});
  const std::string gone =
      "evaluator ended with exit code 66 (missing input); the job goes on without it";
  const auto all_said = [&] {  // in any order; before them, a signal would kill
    for (const absl::string_view text :
         {"chief     | up", "ps 0      | up", "worker 0  | up", gone.c_str()}) {
      if (!absl::StrContains(Output(), text)) return false;
    }
    return true;
  };
  processes_.WaitUntil(all_said, kPatience);
  EXPECT_TRUE(all_said()) << Output();
  processes_.Signal("launch", SIGTERM);
  EXPECT_EQ(Exit(), 0);
}

TEST_F(LaunchTest, EachTaskHasItsOwnLogFile) {
  const std::string logs = TemporaryPath("logs");
  Launch({"--logs=" + logs}, {"chief0:print=I am the chief", "ps0:print=I am the ps"});
  EXPECT_EQ(Exit(), 0);
  EXPECT_EQ(*FileSystem::Real().ReadFile(logs + "/chief.log"), "I am the chief\n");
  EXPECT_EQ(*FileSystem::Real().ReadFile(logs + "/ps_0.log"), "I am the ps\n");
  EXPECT_EQ(*FileSystem::Real().ReadFile(logs + "/worker_0.log"), "");
}

TEST_F(LaunchTest, AFolderForLogsThatCannotBeMadeEndsItBeforeItBegins) {
  Launch({"--logs=/proc/no/such"}, {"print=up"});
  EXPECT_EQ(Exit(), 74);
  EXPECT_THAT(Output(), HasSubstr("/proc/no"));
  EXPECT_THAT(Output(), Not(HasSubstr("up")));
}

TEST_F(LaunchTest, OnATerminalTheChiefDrawsAndTheOthersHaveColors) {
  Launch({}, {"chief0:tty", "chief0:draw=~50 %", "ps0:tty"}, ChildOutput::kTerminal);
  EXPECT_EQ(Exit(), 0);
  EXPECT_THAT(Output(), HasSubstr("a terminal\n"));
  EXPECT_THAT(Output(), HasSubstr("\r50 %"));
  EXPECT_THAT(Output(), HasSubstr("\x1b[33mps 0     | \x1b[0mno terminal\n"));
  EXPECT_THAT(Output(), Not(HasSubstr("chief    | ")));
}

TEST_F(LaunchTest, WithoutATerminalThereAreNoColors) {
  Launch({}, {"tty"});
  EXPECT_EQ(Exit(), 0);
  EXPECT_THAT(Output(), HasSubstr("chief    | no terminal\n"));
  EXPECT_THAT(Output(), Not(HasSubstr("\x1b")));
}

TEST_F(LaunchTest, LinesAreNeverMixed) {
  std::vector<std::string> actions;
  const std::string line(500, 'x');
  for (int i = 0; i < 200; ++i) actions.push_back("print=" + line);
  Launch({"--workers=3"}, actions);
  EXPECT_EQ(Exit(), 0);
  int whole = 0;
  for (absl::string_view printed : absl::StrSplit(Output(), '\n'))
    whole += printed.size() == 11 + line.size() && printed.substr(11) == line;
  EXPECT_EQ(whole, 5 * 200);
}

TEST_F(LaunchTest, AProgramThatIsNotThereIsSaidOnce) {
  ASSERT_TRUE(processes_
                  .Start("launch", {{"tools/launch/launch_for_test", "--", "./no_such_program"},
                                    {},
                                    ChildOutput::kPipe})
                  .ok());
  EXPECT_EQ(Exit(), 66);
  EXPECT_THAT(Output(), ContainsRegex("cannot start ./no_such_program.*\n$"));
  EXPECT_EQ(Output().find("./no_such_program"), Output().rfind("./no_such_program"));
}

TEST_F(LaunchTest, OptionsThatMakeNoSenseAreUsageErrors) {
  ASSERT_TRUE(
      processes_
          .Start("launch", {{"tools/launch/launch_for_test", "--ps=0"}, {}, ChildOutput::kPipe})
          .ok());
  EXPECT_EQ(Exit(), 64);
  EXPECT_THAT(Output(), HasSubstr("launch: --ps is 0"));
  EXPECT_THAT(Output(), HasSubstr("launch: no program was given"));
}

}  // namespace
}  // namespace divvy
