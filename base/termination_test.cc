#include "base/termination.h"

#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "base/executor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(TerminationTest, ASignalBecomesAnEventWithTheExitCodeOfItsNumber) {
  Termination termination;
  kill(getpid(), SIGTERM);
  const Termination::Event event = termination.Wait();
  EXPECT_EQ(event.signal, SIGTERM);
  EXPECT_FALSE(event.asked);
  EXPECT_EQ(event.exit_code, 143);
}

TEST(TerminationTest, ASignalIsAnEventWhateverThreadsWereThereBefore) {
  ThreadPoolExecutor executor(4);  // like the threads of a library that starts them before main
  Termination termination;
  for (int i = 0; i < 50; ++i) {
    kill(getpid(), SIGTERM);
    EXPECT_EQ(termination.Wait().signal, SIGTERM);
  }
}

TEST(TerminationTest, AWriteThatCannotBeIsAnErrorAndNoDeath) {
  Termination termination;
  for (const int signal : {SIGPIPE, SIGXFSZ}) EXPECT_EQ(raise(signal), 0);
}

TEST(TerminationTest, ARequestOfAnotherThreadWakesTheOneThatWaits) {
  Termination termination;
  ThreadPoolExecutor executor(1);
  executor.Post([&] { termination.Request(78, "another job"); });
  const Termination::Event event = termination.Wait();
  EXPECT_EQ(event.signal, 0);
  EXPECT_EQ(event.exit_code, 78);
  EXPECT_EQ(event.why, "another job");
}

TEST(TerminationTest, WhoAsksTheProcessToEndIsHeardAsSigtermIs) {
  Termination termination;
  ThreadPoolExecutor executor(1);
  executor.Post([&] { termination.AskToEnd(); });
  const Termination::Event event = termination.Wait();
  EXPECT_EQ(event.signal, SIGTERM);
  EXPECT_TRUE(event.asked);
  EXPECT_EQ(event.exit_code, 143);
}

TEST(TerminationTest, SigHupAndSigUsr1EndNothing) {
  Termination termination;
  int asked = 0;
  // OnStatusAsked has not been called yet.
  for (const int signal : {SIGHUP, SIGUSR1}) kill(getpid(), signal);
  EXPECT_FALSE(termination.WaitFor(absl::ZeroDuration()));
  termination.OnStatusAsked([&asked] {
    ++asked;
    return std::string("fine");
  });
  for (const int signal : {SIGHUP, SIGUSR1, SIGTERM}) kill(getpid(), signal);
  EXPECT_EQ(termination.Wait().signal, SIGTERM);
  // This holds in whichever order the signals are read.
  EXPECT_FALSE(termination.WaitFor(absl::ZeroDuration()));
  EXPECT_EQ(asked, 1);
}

TEST(TerminationTest, OnlyTheFirstRequestCountsAndIsToldOnce) {
  Termination termination;
  termination.Request(1, "first");
  termination.Request(2, "second");
  EXPECT_EQ(termination.Wait().why, "first");
  kill(getpid(), SIGINT);
  EXPECT_EQ(termination.Wait().exit_code, 130);
}

TEST(TerminationDeathTest, AfterLetSignalsKillASignalKills) {
  EXPECT_EXIT(
      {
        Termination termination;
        kill(getpid(), SIGTERM);
        termination.Wait();
        Termination::LetSignalsKill();
        kill(getpid(), SIGTERM);
        pause();
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST(TerminationDeathTest, ASignalAfterItsEndDoesNotChangeTheExitCode) {
  EXPECT_EXIT(
      {
        { Termination termination; }
        for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) kill(getpid(), number);
        std::_Exit(74);
      },
      testing::ExitedWithCode(74), "");
}

TEST(TerminationDeathTest, WhatWasLetToKillDoesSoAfterItsEndToo) {
  EXPECT_EXIT(
      {
        {
          Termination termination;
          Termination::LetSignalsKill();
        }
        kill(getpid(), SIGTERM);
        pause();
      },
      testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace divvy
