// A short run of tools/hostile: attacks by strangers, by members with the wrong certificate and by
// a lying worker on a running job.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/hostile.h"
#include "tests/e2e/hostile_job.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {
namespace {

TEST(HostileTest, NothingThatIsSentEndsStallsOrBendsTheJob) {
  HostileOptions options;
  options.program = "tests/e2e/counter_program";
  options.directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/hostile");
  options.seed = EntropySeed();
  options.on_kind = [](const HostileKind& kind) {
    std::printf(
        "%s: %lld, %s\n", kind.name.c_str(), static_cast<long long>(kind.tries),
        absl::FormatTime("%H:%M:%S", Clock::Real().WallTime(), absl::UTCTimeZone()).c_str());
    for (const std::string& fault : kind.faults)
      std::printf("%s: %s\n", kind.name.c_str(), fault.c_str());
    // If the test times out, its output shows how far it came.
    std::fflush(stdout);
  };
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(options.directory).ok());
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  const absl::StatusOr<HostileResult> result = RunHostile(options);
  ASSERT_TRUE(result.ok()) << result.status();
  std::printf("%s", result->Table().c_str());
  EXPECT_THAT(result->Faults(), testing::IsEmpty());
  EXPECT_GT(result->tries(), 5000);
  EXPECT_GT(result->steps, 0);
}

// The other worker continues, so the job does too.
TEST(HostileJobTest, ATaskThatEndedIsToldOfTheKindThatItEndedIn) {
  HostileJob::Options options;
  options.program = "tests/e2e/counter_program";
  options.directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/job");
  options.has_liar = false;
  options.may_end = true;
  ASSERT_TRUE(FileSystem::Real().CreateDirectory(options.directory).ok());
  HostileJob job(options);
  const absl::Status begun = job.Begin();
  ASSERT_TRUE(begun.ok()) << begun;
  const auto ended_by = [&](int signal) {
    HostileKind kind;
    job.cluster().Signal(WorkerTask(0), signal);
    EXPECT_TRUE(job.cluster().WaitForExit(WorkerTask(0), absl::Minutes(1)).ok());
    const absl::Status looked_after = job.LookAfter(kind, 0);
    EXPECT_TRUE(looked_after.ok()) << looked_after;
    return kind;
  };
  const HostileKind crash = ended_by(SIGKILL);
  EXPECT_EQ(crash.crashes, 1);
  EXPECT_EQ(crash.hangs, 0) << crash.faults.back();
  const HostileKind drain = ended_by(SIGTERM);
  EXPECT_THAT(drain.faults, testing::IsEmpty());
  EXPECT_THAT(drain.outcomes, testing::SizeIs(1)) << "an exit code is an outcome here";
  HostileResult result;
  const absl::Status ended = job.End(result);
  EXPECT_TRUE(ended.ok()) << ended;
}

TEST(HostileResultTest, ItsTableCountsAndItsFaultsAreNamed) {
  HostileResult result;
  result.kinds.resize(2);
  result.kinds[0].name = "floods";
  for (int i = 0; i < 3; ++i) result.kinds[0].Note("ABORTED");
  result.kinds[1].name = "lies";
  result.kinds[1].Note("OK");
  result.kinds[1].WrongAccept("believed");
  result.kinds[1].TooMuch("held all");
  result.memory = {{"ps 0", int64_t{2} << 20, int64_t{3} << 20}};
  EXPECT_EQ(result.tries(), 4);
  EXPECT_THAT(result.Faults(), testing::ElementsAre("lies: believed", "lies: held all"));
  EXPECT_THAT(result.Table(), testing::HasSubstr("ABORTED 3"));
  EXPECT_THAT(result.Table(), testing::ContainsRegex("memory of ps 0 +2 MiB of 3"));
  EXPECT_THAT(result.Table(), testing::ContainsRegex("all +4 +0 +0 +1"));
  EXPECT_THAT(result.Table(), testing::Not(testing::HasSubstr("does not count")));
  result.kinds[0].peak_bytes = int64_t{200} << 20;
  result.kinds[0].burst_bytes = int64_t{100} << 20;
  EXPECT_THAT(result.Table(),
              testing::HasSubstr("floods: 200 MiB, where each task may hold 100 MiB beyond its "
                                 "own, which gRPC takes and does not count\n"));
}

}  // namespace
}  // namespace divvy
