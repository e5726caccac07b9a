// Tests of the launcher's decisions, without processes: when a task is restarted, what signals do,
// and what is written where.
#include <signal.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/in_memory_file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/launch/launch.h"
#include "tools/launch/merged_log.h"
#include "tools/launch/ps_command.h"
#include "tools/launch/restart_policy.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/task_list.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr ExitStatus kKilled = {0, SIGKILL};

// ---- PsCommand

TEST(PsCommandTest, AParameterServerOfAPythonProgramIsTheStockBinaryWithItsFlags) {
  EXPECT_THAT(PsCommand({"/usr/bin/python3.11", "-u", "train.py", "data", "--log_format=json",
                         "--checkpoint_every=10s", "--rate=0.1", "--min_free_disk=1G"},
                        "/opt/ps_server"),
              ElementsAre("/opt/ps_server", "--log_format=json"));
}

TEST(PsCommandTest, AFlagKeepsItsFormAndItsValue) {
  EXPECT_THAT(PsCommand({"python3", "train.py", "--tls_cert", "cert.pem", "-log_format=json",
                         "-tls_key", "key.pem", "--checkpoint_every", "--tls_ca", "--rate", "3",
                         "--", "--log_format=text"},
                        "ps_server"),
              ElementsAre("ps_server", "--tls_cert", "cert.pem", "-log_format=json", "-tls_key",
                          "key.pem"));
}

TEST(PsCommandTest, AnyOtherProgramIsEveryTask) {
  for (const char* const name : {"./train", "python3-config", "/python3/train", "pythonic"}) {
    EXPECT_THAT(PsCommand({name, "--log_dir=/logs"}, "/opt/ps_server"),
                ElementsAre(name, "--log_dir=/logs"));
  }
}

TEST(PsCommandTest, WithoutTheStockBinaryPythonIsEveryTask) {
  EXPECT_THAT(PsCommand({"python3", "train.py"}, ""), ElementsAre("python3", "train.py"));
}

// ---- RestartPolicy

Verdict OfWorker(ExitStatus status, int restarts = 0, bool by_chaos = false) {
  return RestartPolicy({Role::kWorker, status, by_chaos, restarts, 2});
}

TEST(RestartPolicyTest, AWorkerThatMayBeStartedAgainIs) {
  for (const ExitStatus status :
       {ExitStatus{138, 0}, ExitStatus{143, 0}, ExitStatus{130, 0}, kKilled, ExitStatus{0, SIGABRT},
        ExitStatus{0, SIGSEGV}, ExitStatus{137, 0}}) {
    EXPECT_EQ(OfWorker(status).reaction, Reaction::kRestart) << status.ToString();
  }
}

TEST(RestartPolicyTest, APermanentCodeOfAWorkerEndsTheLaunchWithIt) {
  for (const int code : {1, 64, 65, 66, 70, 74, 77, 78}) {
    EXPECT_EQ(OfWorker({code, 0}).reaction, Reaction::kDrain) << code;
    EXPECT_EQ(OfWorker({code, 0}).exit_code, code);
  }
}

TEST(RestartPolicyTest, AWorkerThatDiesTooOftenInARowIsACrashLoop) {
  EXPECT_EQ(OfWorker(kKilled, 1).reaction, Reaction::kRestart);
  EXPECT_EQ(OfWorker(kKilled, 2).reaction, Reaction::kDrain);
  EXPECT_EQ(OfWorker(kKilled, 2).exit_code, 70);
}

TEST(RestartPolicyTest, AVictimOfChaosIsStartedAgainHoweverOftenItDied) {
  EXPECT_EQ(OfWorker(kKilled, 2, true).reaction, Reaction::kRestart);
}

TEST(RestartPolicyTest, AWorkerThatEndsWell) {
  EXPECT_EQ(OfWorker({0, 0}).reaction, Reaction::kAwait);
}

TEST(RestartPolicyTest, APsThatWasToldToStopIsLetGo) {
  EXPECT_EQ(RestartPolicy({Role::kPs, {0, 0}}).reaction, Reaction::kLetGo);
}

TEST(RestartPolicyTest, APsAndTheChiefAreStartedAgainAsAWorkerIs) {
  for (const Role role : {Role::kPs, Role::kChief}) {
    for (const ExitStatus status : {kKilled, ExitStatus{138, 0}, ExitStatus{143, 0}}) {
      EXPECT_EQ(RestartPolicy({role, status, false, 1, 2}).reaction, Reaction::kRestart);
      EXPECT_EQ(RestartPolicy({role, status, false, 2, 2}).exit_code, 70);
    }
    EXPECT_EQ(RestartPolicy({role, {65, 0}, false, 0, 2}).reaction, Reaction::kDrain);
    EXPECT_EQ(RestartPolicy({role, {65, 0}, false, 0, 2}).exit_code, 65);
  }
}

TEST(RestartPolicyTest, WhereNothingMayBeStartedAgainTheFirstDeathSpeaksForItself) {
  EXPECT_EQ(RestartPolicy({Role::kChief, {138, 0}, false, 0, 0}).reaction, Reaction::kDrain);
  EXPECT_EQ(RestartPolicy({Role::kChief, {138, 0}, false, 0, 0}).exit_code, 138);
}

TEST(RestartPolicyTest, AChiefThatSucceededHasCompletedTheJob) {
  EXPECT_EQ(RestartPolicy({Role::kChief, {0, 0}}).reaction, Reaction::kLinger);
}

TEST(ExitStatusTest, SaysHowAProcessEnded) {
  EXPECT_EQ((ExitStatus{0, SIGKILL}).ToString(), "was killed by SIGKILL");
  EXPECT_EQ((ExitStatus{78, 0}).ToString(), "ended with exit code 78 (bad configuration)");
  EXPECT_EQ((ExitStatus{3, 0}).ToString(), "ended with exit code 3");
  EXPECT_EQ((ExitStatus{0, SIGSEGV}).code(), 139);
}

// ---- Supervisor

// Actions as text: "start 0", "signal 2 9", and the words of kSay unchanged.
std::vector<std::string> Words(const Supervisor::Actions& actions) {
  std::vector<std::string> words;
  for (const Supervisor::Action& action : actions) {
    switch (action.kind) {
      case Supervisor::Action::Kind::kStart:
        words.push_back(absl::StrCat("start ", action.task));
        break;
      case Supervisor::Action::Kind::kSignal:
        words.push_back(absl::StrCat("signal ", action.task, " ", action.signal));
        break;
      case Supervisor::Action::Kind::kSay: words.push_back(action.text); break;
    }
  }
  return words;
}

constexpr absl::Duration kStart = absl::Seconds(100);
constexpr int kChief = 0, kPs = 1, kFirstWorker = 2, kSecondWorker = 3, kEvaluator = 4;

class SupervisorTest : public ::testing::Test {
 protected:
  // With a chief, one ps and two workers.
  void Begin(SupervisorOptions options = {}) {
    supervisor_.emplace(options, ClusterTasks(1, 2));
    EXPECT_EQ(supervisor_->Begin(kStart).size(), options.chaos > absl::ZeroDuration() ? 5u : 4u);
  }
  std::vector<std::string> Exit(int task, ExitStatus status,
                                absl::Duration after = absl::Seconds(1)) {
    return Words(supervisor_->OnExit(task, status, kStart + after));
  }
  // The actions at the next deadline.
  std::vector<std::string> Next() { return Words(supervisor_->OnTimer(supervisor_->deadline())); }

  std::optional<Supervisor> supervisor_;
};

TEST_F(SupervisorTest, StartsTheChiefThenThePsThenTheWorkers) {
  Supervisor supervisor({}, ClusterTasks(1, 2));
  EXPECT_THAT(Words(supervisor.Begin(kStart)),
              ElementsAre("start 0", "start 1", "start 2", "start 3"));
  EXPECT_EQ(supervisor.deadline(), absl::InfiniteDuration());
}

TEST_F(SupervisorTest, ADeadWorkerIsStartedAgainAfterAMoment) {
  Begin();
  EXPECT_THAT(Exit(kSecondWorker, kKilled),
              ElementsAre("worker 1 was killed by SIGKILL; starting it again (1 of 5)"));
  EXPECT_GE(supervisor_->deadline(), kStart + absl::Milliseconds(1080));
  EXPECT_LE(supervisor_->deadline(), kStart + absl::Milliseconds(1120));
  EXPECT_THAT(Next(), ElementsAre("start 3"));
  EXPECT_EQ(supervisor_->deadline(), absl::InfiniteDuration());
}

TEST_F(SupervisorTest, ACrashLoopEndsTheLaunchWith70) {
  SupervisorOptions options;
  options.max_restarts = 1;
  Begin(options);
  Exit(kFirstWorker, kKilled);
  Next();
  EXPECT_THAT(
      Exit(kFirstWorker, kKilled, absl::Seconds(2)),
      ElementsAre(
          "worker 0 was killed by SIGKILL, 2 times within 10m; draining chief, ps 0, worker 1",
          "signal 0 15"));
  EXPECT_THAT(Exit(kChief, {143, 0}), ElementsAre("signal 1 15", "signal 3 15"));
  for (const int task : {kPs, kSecondWorker}) Exit(task, {143, 0});
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 70);
}

TEST_F(SupervisorTest, ATaskThatDiesAtTheSamePaceForEverIsInACrashLoopHoweverLongItsLivesAre) {
  Begin();
  absl::Duration now;
  for (int i = 1; i <= 5; ++i) {
    now += absl::Minutes(1);
    EXPECT_THAT(Exit(kFirstWorker, kKilled, now),
                ElementsAre(absl::StrCat("worker 0 was killed by SIGKILL; starting it again (", i,
                                         " of 5)")));
    Next();
  }
  EXPECT_EQ(Exit(kFirstWorker, kKilled, now + absl::Minutes(1))[0],
            "worker 0 was killed by SIGKILL, 6 times within 10m; draining chief, ps 0, worker 1");
}

TEST_F(SupervisorTest, WhatIsLongerAgoThanTheWindowIsForgotten) {
  Begin();
  for (int i = 1; i <= 20; ++i) {
    EXPECT_THAT(Exit(kFirstWorker, kKilled, absl::Minutes(3) * i)[0],
                HasSubstr("starting it again"));
    Next();
  }
}

TEST_F(SupervisorTest, AWorkerThatEndsWellWhileTheJobGoesOnIsStartedAgain) {
  SupervisorOptions options;
  options.max_restarts = 1;
  Begin(options);
  EXPECT_THAT(Exit(kFirstWorker, {0, 0}), IsEmpty()) << "the job may be over";
  EXPECT_EQ(supervisor_->deadline(), kStart + absl::Seconds(16));
  EXPECT_THAT(Next(), ElementsAre("worker 0 ended with exit code 0 although the job goes on; "
                                  "starting it again (1 of 1)",
                                  "start 2"));
  EXPECT_THAT(Exit(kFirstWorker, {0, 0}, absl::Seconds(20)), IsEmpty());
  EXPECT_THAT(Next(), ElementsAre("worker 0 ended with exit code 0 although the job goes on; "
                                  "draining chief, ps 0, worker 1",
                                  "signal 0 15"));
  for (const int task : {kChief, kPs, kSecondWorker}) Exit(task, {143, 0}, absl::Seconds(40));
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 70);
}

TEST_F(SupervisorTest, AWorkerThatEndsWellShortlyBeforeTheChiefIsNotStartedAgain) {
  Begin();
  Exit(kFirstWorker, {0, 0});
  EXPECT_THAT(Exit(kChief, {0, 0}, absl::Seconds(12)), IsEmpty());
  for (const int task : {kPs, kSecondWorker}) Exit(task, {0, 0}, absl::Seconds(12));
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 0);
}

TEST_F(SupervisorTest, AnEvaluatorThatCannotGoOnLeavesTheJobAlone) {
  supervisor_.emplace(SupervisorOptions(), ClusterTasks(1, 2, 1));
  supervisor_->Begin(kStart);
  EXPECT_THAT(Exit(kEvaluator, kKilled),
              ElementsAre("evaluator was killed by SIGKILL; starting it again (1 of 5)"));
  Next();
  EXPECT_THAT(
      Exit(kEvaluator, {65, 0}),
      ElementsAre("evaluator ended with exit code 65 (corrupt data); the job goes on without it"));
  EXPECT_TRUE(supervisor_->starts());
}

TEST_F(SupervisorTest, AnEvaluatorHasTheTimeItTakesForTheFinalCheckpointUntilAPersonHasNone) {
  supervisor_.emplace(SupervisorOptions(), ClusterTasks(1, 2, 1));
  supervisor_->Begin(kStart);
  Exit(kChief, {0, 0});
  for (const int task : {kPs, kFirstWorker}) Exit(task, {0, 0});
  EXPECT_THAT(Next(), ElementsAre("the chief ended 3s ago; asking worker 1 to end (SIGTERM)",
                                  "signal 3 15"));
  Exit(kSecondWorker, {143, 0}, absl::Seconds(12));
  EXPECT_THAT(Next(), ElementsAre("the evaluator scores the final checkpoint"));
  EXPECT_EQ(supervisor_->deadline(), absl::InfiniteDuration());
  EXPECT_FALSE(supervisor_->over());
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGINT, kStart + absl::Minutes(5))),
              ElementsAre("SIGINT: killing evaluator", "signal 4 9"));
  Exit(kEvaluator, kKilled);
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 0);
}

TEST_F(SupervisorTest, AnEvaluatorThatDiesOverTheFinalCheckpointIsStartedAgain) {
  supervisor_.emplace(SupervisorOptions(), ClusterTasks(1, 2, 1));
  supervisor_->Begin(kStart);
  Exit(kEvaluator, kKilled);  // a moment before the end
  Exit(kChief, {0, 0}, absl::Seconds(1));
  EXPECT_THAT(Next(), ElementsAre("start 4"));
  for (const int task : {kPs, kFirstWorker, kSecondWorker}) Exit(task, {0, 0}, absl::Seconds(2));
  EXPECT_THAT(Exit(kEvaluator, kKilled, absl::Seconds(3)),
              ElementsAre("evaluator was killed by SIGKILL; starting it again (2 of 5)"));
  EXPECT_FALSE(supervisor_->over());
  EXPECT_THAT(Next(), ElementsAre("start 4"));
  Exit(kEvaluator, {0, 0}, absl::Seconds(9));
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 0);
}

TEST_F(SupervisorTest, AnEvaluatorThatWaitsToBeStartedAgainIsLetGoByASignal) {
  supervisor_.emplace(SupervisorOptions(), ClusterTasks(1, 2, 1));
  supervisor_->Begin(kStart);
  Exit(kChief, {0, 0});
  for (const int task : {kPs, kFirstWorker, kSecondWorker}) Exit(task, {0, 0});
  Exit(kEvaluator, kKilled);
  EXPECT_FALSE(supervisor_->over());
  supervisor_->OnSignal(SIGINT, kStart + absl::Seconds(1));
  EXPECT_TRUE(supervisor_->over());
}

TEST_F(SupervisorTest, TheOthersHaveThreeSecondsToEndAfterAChiefThatSucceeded) {
  Begin();
  EXPECT_THAT(Exit(kChief, {0, 0}), IsEmpty());
  EXPECT_EQ(supervisor_->deadline(), kStart + absl::Seconds(4));
  for (const int task : {kPs, kFirstWorker, kSecondWorker}) Exit(task, {0, 0}, absl::Seconds(2));
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 0);
}

TEST_F(SupervisorTest, WhoDoesNotEndIsAskedThenKilledAndNamed) {
  Begin();
  Exit(kChief, {0, 0});
  Exit(kFirstWorker, {0, 0});
  EXPECT_THAT(Next(), ElementsAre("the chief ended 3s ago; asking ps 0, worker 1 to end (SIGTERM)",
                                  "signal 1 15", "signal 3 15"));
  Exit(kPs, {143, 0}, absl::Seconds(5));
  EXPECT_THAT(Next(),
              ElementsAre("worker 1 did not end within 30s; killing (SIGKILL)", "signal 3 9"));
  EXPECT_FALSE(supervisor_->over());
  Exit(kSecondWorker, kKilled, absl::Seconds(35));
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 0);
}

TEST_F(SupervisorTest, AWorkerThatDiesWhenTheJobIsCompleteIsMentionedAndNotStartedAgain) {
  Begin();
  Exit(kChief, {0, 0});
  EXPECT_THAT(Exit(kFirstWorker, {138, 0}),
              ElementsAre("worker 0 ended with exit code 138 (peers unreachable or fenced; may be "
                          "started again); the job was complete"));
}

TEST_F(SupervisorTest, AWorkerThatWaitsToBeStartedAgainIsForgottenWhenTheChiefEnds) {
  Begin();
  Exit(kFirstWorker, kKilled);
  Exit(kChief, {0, 0});
  for (const int task : {kPs, kSecondWorker}) Exit(task, {0, 0});
  EXPECT_TRUE(supervisor_->over());
}

TEST_F(SupervisorTest, AChiefThatFailedDrainsTheOthersAndGivesItsCode) {
  Begin();
  EXPECT_THAT(
      Exit(kChief, {65, 0}),
      ElementsAre("chief ended with exit code 65 (corrupt data); draining ps 0, worker 0, worker 1",
                  "signal 1 15", "signal 2 15", "signal 3 15"));
  for (const int task : {kPs, kFirstWorker, kSecondWorker}) Exit(task, {143, 0});
  EXPECT_EQ(supervisor_->exit_code(), 65);
}

TEST_F(SupervisorTest, APermanentFailureOfAWorkerGivesItsCodeWhateverTheChiefSays) {
  Begin();
  Exit(kFirstWorker, {78, 0});
  Exit(kChief, {143, 0});
  for (const int task : {kPs, kSecondWorker}) Exit(task, {143, 0});
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 78);
}

TEST_F(SupervisorTest, ATaskThatEndsWithTheChiefsOwnFailureIsNotBlamedForIt) {
  Begin();
  EXPECT_THAT(Exit(kPs, {66, 0}), ElementsAre()) << "the chief may have sent it this code";
  EXPECT_THAT(
      Exit(kChief, {66, 0}, absl::Milliseconds(300)),
      ElementsAre("chief ended with exit code 66 (missing input); draining worker 0, worker 1",
                  "signal 2 15", "signal 3 15"));
}

TEST_F(SupervisorTest, AChiefInPythonThatEndsWithACodeOfItsOwnIsBlamed) {
  Begin();
  EXPECT_THAT(Exit(kPs, {1, 0}), ElementsAre());
  EXPECT_THAT(Exit(kChief, {7, 0}, absl::Seconds(2)),
              ElementsAre("chief ended with exit code 7; draining worker 0, worker 1",
                          "signal 2 15", "signal 3 15"));
  for (const int task : {kFirstWorker, kSecondWorker}) Exit(task, {1, 0});
  EXPECT_EQ(supervisor_->exit_code(), 7);
}

TEST_F(SupervisorTest, ATaskThatFailsByItselfIsBlamedWhenTheChiefGoesOnOrEndsOtherwise) {
  Begin();
  Exit(kFirstWorker, {78, 0});
  EXPECT_THAT(
      Next(),
      ElementsAre(
          "worker 0 ended with exit code 78 (bad configuration); draining chief, ps 0, worker 1",
          "signal 0 15"));
  Begin();
  Exit(kFirstWorker, {78, 0});
  EXPECT_THAT(
      Exit(kChief, {138, 0}),
      ElementsAre("worker 0 ended with exit code 78 (bad configuration); draining ps 0, worker 1",
                  "signal 1 15", "signal 3 15"));
}

TEST_F(SupervisorTest, TheFirstSignalIsPassedOnToTheChiefThenToTheOthersItNeeds) {
  Begin();
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGINT, kStart)),
              ElementsAre("SIGINT: draining chief, ps 0, worker 0, worker 1; a second signal kills",
                          "signal 0 2"));
  EXPECT_THAT(Exit(kChief, {130, 0}), ElementsAre("signal 1 2", "signal 2 2", "signal 3 2"));
  for (const int task : {kPs, kFirstWorker, kSecondWorker}) Exit(task, {130, 0});
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 130);
}

TEST_F(SupervisorTest, WhereTheChiefIsAboutToBeStartedAgainTheOthersAreAskedAtOnce) {
  Begin();
  EXPECT_THAT(Exit(kChief, kKilled),
              ElementsAre("chief was killed by SIGKILL; starting it again (1 of 5)"));
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGTERM, kStart)),
              ElementsAre("SIGTERM: draining ps 0, worker 0, worker 1; a second signal kills",
                          "signal 1 15", "signal 2 15", "signal 3 15"));
}

TEST_F(SupervisorTest, TheFirstSignalIsPassedOnTheSecondKills) {
  Begin();
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGINT, kStart)),
              ElementsAre("SIGINT: draining chief, ps 0, worker 0, worker 1; a second signal kills",
                          "signal 0 2"));
  Exit(kFirstWorker, {130, 0});
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGINT, kStart)),
              ElementsAre("SIGINT: killing chief, ps 0, worker 1", "signal 0 9", "signal 1 9",
                          "signal 3 9"));
  for (const int task : {kChief, kPs, kSecondWorker}) Exit(task, kKilled);
  EXPECT_EQ(supervisor_->exit_code(), 137);
}

TEST_F(SupervisorTest, ATerminalThatHangsUpDrainsBySigterm) {
  Begin();
  EXPECT_THAT(Words(supervisor_->OnSignal(SIGHUP, kStart)),
              ElementsAre("SIGHUP: draining chief, ps 0, worker 0, worker 1; a second signal kills",
                          "signal 0 15"));
}

TEST_F(SupervisorTest, ADrainedClusterGivesTheChiefsCode) {
  Begin();
  supervisor_->OnSignal(SIGTERM, kStart);
  for (const int task : {kFirstWorker, kSecondWorker, kPs, kChief}) Exit(task, {143, 0});
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 143);
}

TEST_F(SupervisorTest, AProgramThatCannotBeStartedIsAMissingInput) {
  Begin();
  for (const int task : {kChief, kPs, kFirstWorker, kSecondWorker})
    supervisor_->OnCannotStart(task, kStart);
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 66);
}

TEST_F(SupervisorTest, WhatHasNotBeenStartedBeforeTheDrainIsNotStartedInIt) {
  Begin();
  EXPECT_TRUE(supervisor_->starts());
  supervisor_->OnCannotStart(kPs, kStart);
  EXPECT_FALSE(supervisor_->starts());
  for (const int task : {kFirstWorker, kSecondWorker})
    EXPECT_TRUE(supervisor_->OnCannotStart(task, kStart).empty());
  EXPECT_FALSE(supervisor_->over());
  Exit(kChief, {143, 0});
  EXPECT_TRUE(supervisor_->over());
  EXPECT_EQ(supervisor_->exit_code(), 66);
}

TEST_F(SupervisorTest, ChaosKillsAWorkerAtItsPeriodTheSameOneForTheSameSeed) {
  SupervisorOptions options;
  options.chaos = absl::Seconds(4);
  options.seed = 7;
  Begin(options);
  EXPECT_EQ(supervisor_->deadline(), kStart + absl::Seconds(4));
  const std::vector<std::string> first = Next();
  ASSERT_EQ(first.size(), 2u);
  EXPECT_THAT(first[1], StartsWith("chaos: SIGKILL to worker "));
  EXPECT_EQ(supervisor_->deadline(), kStart + absl::Seconds(8));
  Begin(options);
  EXPECT_EQ(Next(), first);
}

TEST_F(SupervisorTest, ChaosSparesTheDeadAndEndsWithTheChief) {
  SupervisorOptions options;
  options.chaos = absl::Milliseconds(1);
  Begin(options);
  Next();
  Next();
  EXPECT_THAT(Next(), IsEmpty());  // both workers are dead already
  EXPECT_THAT(Exit(kChief, {0, 0}), ElementsAre("chaos: 2 kills before the job was complete"));
  EXPECT_EQ(supervisor_->deadline(), kStart + absl::Seconds(4));
}

TEST_F(SupervisorTest, ChaosHitsTheRolesThatItMay) {
  SupervisorOptions options;
  options.chaos = absl::Seconds(1);
  options.chaos_roles = {Role::kPs, Role::kChief};
  Begin(options);
  std::vector<std::string> hit = {Next()[1], Next()[1]};
  std::sort(hit.begin(), hit.end());
  EXPECT_THAT(hit, ElementsAre("chaos: SIGKILL to chief", "chaos: SIGKILL to ps 0"));
  EXPECT_THAT(Next(), IsEmpty());
}

TEST_F(SupervisorTest, AChiefThatEndsForWhatChaosTookFromItIsNotInACrashLoop) {
  SupervisorOptions options;
  options.chaos = absl::Seconds(1);
  options.chaos_roles = {Role::kPs};
  options.max_restarts = 0;
  Begin(options);
  EXPECT_EQ(Next()[1], "chaos: SIGKILL to ps 0");
  Exit(kPs, kKilled);
  EXPECT_THAT(Exit(kChief, {138, 0}),
              ElementsAre("chief ended with exit code 138 (peers unreachable or fenced; may be "
                          "started again); starting it again"));
  Next();
  Next();  // both are back, and no task was killed since
  EXPECT_THAT(Exit(kChief, {138, 0}, absl::Seconds(1.9))[0], HasSubstr("draining"));
}

// ---- the environment of tasks

TEST(TaskListTest, TfConfigNamesEveryTaskAndTheOneItIsFor) {
  EXPECT_EQ(
      TfConfigText(ClusterTasks(1, 2), {"h:1", "h:2", "h:3", "h:4"}, 3),
      R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3","h:4"]},"task":{"type":"worker","index":1}})");
}

TEST(TaskListTest, AnEvaluatorIsInNoClusterAndIsToldOfIt) {
  EXPECT_EQ(
      TfConfigText(ClusterTasks(1, 1, 1), {"h:1", "h:2", "h:3", ""}, 3),
      R"({"cluster":{"chief":["h:1"],"ps":["h:2"],"worker":["h:3"]},"task":{"type":"evaluator","index":0}})");
  EXPECT_EQ(TaskList("/dir", 1, 1, 1).Summary(), "chief, 1 ps, 1 worker, evaluator");
}

TEST(TaskListTest, EveryTaskHasASocketOfItsOwn) {
  const TaskList tasks("/dir", 2, 1);
  EXPECT_EQ(tasks.Summary(), "chief, 2 ps, 1 worker");
  EXPECT_THAT(tasks.names(), ElementsAre("chief", "ps 0", "ps 1", "worker 0"));
  EXPECT_EQ(
      tasks.TfConfig(2),
      R"({"cluster":{"chief":["unix:/dir/chief"],"ps":["unix:/dir/ps-0","unix:/dir/ps-1"],"worker":["unix:/dir/worker-0"]},)"
      R"("task":{"type":"ps","index":1}})");
}

TEST(LaunchOptionsTest, EverythingWrongIsSaidAtOnce) {
  LaunchOptions options;
  options.ps = 0;
  options.workers = -1;
  options.max_restarts = -2;
  options.chaos_roles = {"ps", "chief"};
  const std::string wrong(options.Validate().message());
  EXPECT_THAT(wrong, HasSubstr("--ps is 0"));
  EXPECT_THAT(wrong, HasSubstr("--workers is -1"));
  EXPECT_THAT(wrong, HasSubstr("no program was given"));
  EXPECT_THAT(wrong, HasSubstr("--max_restarts is -2"));
  EXPECT_THAT(wrong,
              HasSubstr("--chaos_roles names \"chief\"; the roles are worker, ps, coordinator"));
}

// ---- the log

TEST(LineSplitterTest, LinesComeWholeHoweverTheBytesArrive) {
  LineSplitter splitter;
  EXPECT_THAT(splitter.Add("one\ntw"), ElementsAre("one"));
  EXPECT_THAT(splitter.Add("o"), IsEmpty());
  EXPECT_THAT(splitter.Add("\n\nthree"), ElementsAre("two", ""));
  EXPECT_EQ(splitter.TakeRest(), "three");
}

TEST(LineSplitterTest, ALineWithoutEndIsCut) {
  LineSplitter splitter;
  const std::vector<std::string> lines =
      splitter.Add(std::string(LineSplitter::kMaxLineBytes + 5, 'x'));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].size(), LineSplitter::kMaxLineBytes);
  EXPECT_EQ(splitter.rest(), "xxxxx");
}

TEST(ControlCodesTest, WhatATerminalNoLongerShowsIsDropped) {
  EXPECT_EQ(WithoutControlCodes("10 %\r\x1b[2K20 %\r\x1b[2Kdone"), "done");
  EXPECT_EQ(WithoutControlCodes("\x1b[1;36mworker\x1b[0m up\r"), "worker up");
  EXPECT_EQ(WithoutControlCodes("cut \x1b["), "cut ");
}

class MergedLogTest : public ::testing::Test {
 protected:
  MergedLogOptions Options(bool color = false) {
    return {{"chief", "worker 0"}, "launch", color, [this](absl::string_view text) {
              absl::StrAppend(&text_, text);
            }};
  }
  std::string Take() { return std::exchange(text_, {}); }

  std::string text_;
};

TEST_F(MergedLogTest, WholeLinesUnderTheNameOfTheirTask) {
  MergedLog log(Options());
  log.Add(0, "hel");
  log.Add(1, "a\nb\n");
  log.Add(0, "lo\n");
  log.Say("all well");
  EXPECT_EQ(Take(), "worker 0 | a\nworker 0 | b\nchief    | hello\nlaunch   | all well\n");
}

TEST_F(MergedLogTest, AnUnfinishedLineIsALineWhenItsTaskEnds) {
  MergedLog log(Options());
  log.Add(1, "last words");
  log.End(1);
  log.End(1);
  EXPECT_EQ(Take(), "worker 0 | last words\n");
}

TEST_F(MergedLogTest, EachTaskHasItsColor) {
  MergedLog log(Options(/*color=*/true));
  log.Add(0, "x\n");
  log.Add(1, "y\n");
  EXPECT_EQ(Take(), "\x1b[36mchief    | \x1b[0mx\n\x1b[33mworker 0 | \x1b[0my\n");
}

TEST_F(MergedLogTest, OthersLinesGoAboveTheLiveLineWhichStays) {
  MergedLog log(Options());
  log.AddLive(0, "started\n\r\x1b[2K10 %");
  log.AddLive(0, "\r\x1b[2K20 %");
  Take();
  log.Add(1, "hello\n");
  EXPECT_EQ(Take(), "\r\x1b[2Kworker 0 | hello\n\r\x1b[2K20 %");
  log.AddLive(0, "\r\x1b[2Kdone\n");
  Take();
  log.Add(1, "bye\n");
  EXPECT_EQ(Take(), "worker 0 | bye\n");
}

TEST_F(MergedLogTest, ALiveLineOfATaskThatEndedIsLeftStanding) {
  MergedLog log(Options());
  log.AddLive(0, "50 %");
  log.End(0);
  log.Say("chief was killed");
  EXPECT_EQ(Take(), "50 %\nlaunch   | chief was killed\n");
}

TEST_F(MergedLogTest, EachTasksLinesAreInItsFileAsTheyWereMeant) {
  InMemoryFileSystem files;
  MergedLog log(Options(/*color=*/true));
  ASSERT_TRUE(log.OpenFiles(files, "logs/run").ok());
  log.AddLive(0, "\r\x1b[2K10 %\r\x1b[2Kepoch 1\n");
  log.Add(1, "one\ntwo");
  log.End(1);
  EXPECT_EQ(*files.ReadFile("logs/run/chief.log"), "epoch 1\n");
  EXPECT_EQ(*files.ReadFile("logs/run/worker_0.log"), "one\ntwo\n");
}

TEST_F(MergedLogTest, TheLastWordsOfOneTaskLeaveTheLiveLineOfAnother) {
  MergedLog log(Options());
  log.AddLive(0, "50 %");
  log.Add(1, "bye");
  Take();
  log.End(1);
  EXPECT_EQ(Take(), "\r\x1b[2Kworker 0 | bye\n50 %");
}

TEST_F(MergedLogTest, AFileThatCannotBeWrittenIsGivenUpAndThisIsSaidOnce) {
  InMemoryFileSystem files;
  MergedLog log(Options());
  ASSERT_TRUE(log.OpenFiles(files, "logs").ok());
  files.FailNext(FileOperation::kAppend, "chief.log", absl::ResourceExhaustedError("no space"));
  log.Add(0, "one\n");
  log.Add(0, "two\n");
  EXPECT_EQ(Take(),
            "chief    | one\nlaunch   | the log of chief ends here: no space\nchief    | two\n");
  EXPECT_EQ(*files.ReadFile("logs/chief.log"), "");
}

TEST_F(MergedLogTest, AFolderThatCannotBeMadeIsAnError) {
  InMemoryFileSystem files;
  files.FailNext(FileOperation::kCreateDirectory, "logs",
                 absl::PermissionDeniedError("cannot make logs"));
  MergedLog log(Options());
  EXPECT_EQ(log.OpenFiles(files, "logs").code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace divvy
