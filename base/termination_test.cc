#include "base/termination.h"

#include <signal.h>
#include <unistd.h>

#include "base/executor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(TerminationTest, ASignalBecomesAnEventWithTheExitCodeOfItsNumber) {
  Termination termination;
  kill(getpid(), SIGTERM);
  const Termination::Event event = termination.Wait();
  EXPECT_EQ(event.signal, SIGTERM);
  EXPECT_EQ(event.exit_code, 143);
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

}  // namespace
}  // namespace divvy
