#include "base/crash_report.h"

#include <signal.h>

#include <cstdlib>

#include "base/sanitizer.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

[[gnu::noinline]] void CrashIn(const char* step) {
  ReportCrashes("crash_report_test");
  const CrashNote outer("step", step);
  { const CrashNote inner("step", "over"); }
  raise(SIGSEGV);
}

#ifndef DIVVY_SANITIZER  // sanitizers report crashes by themselves
TEST(CrashReportDeathTest, NamesTheSignalTheStepAndTheStack) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(CrashIn("train"), testing::KilledBySignal(SIGSEGV),
              "\\*\\*\\* SIGSEGV in step \"train\":\n(.*\n)*.*CrashIn");
}
#endif

void EndAsAsked() {
  ReportCrashes("crash_report_test");
  raise(SIGTERM);
}

TEST(CrashReportDeathTest, SaysNothingOfASignalThatEndsAProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(EndAsAsked(), testing::KilledBySignal(SIGTERM), "^$");
}

}  // namespace
}  // namespace divvy
