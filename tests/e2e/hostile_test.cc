// The short form of tools/hostile: what strangers, members with the wrong certificate and a lying worker send to a running job.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file_system.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/e2e/hostile.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {
namespace {

TEST(HostileTest, NothingThatIsSentEndsStallsOrBendsTheJob) {
  HostileOptions options;
  options.program = "tests/e2e/counter_program";
  options.directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/hostile");
  options.seed = EntropySeed();
  options.on_kind = [](const HostileKind& kind) {
    std::printf("%s: %lld, %s\n", kind.name.c_str(), static_cast<long long>(kind.tries),
                absl::FormatTime("%H:%M:%S", absl::Now(), absl::UTCTimeZone()).c_str());
    for (const std::string& fault : kind.faults) std::printf("%s: %s\n", kind.name.c_str(), fault.c_str());
    std::fflush(stdout);  // a run that is ended for its time says how far it came
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
  EXPECT_THAT(result.Table(), testing::HasSubstr("floods: 200 MiB, where each task may hold 100 MiB beyond its own, which gRPC takes and does not count\n"));
}

}  // namespace
}  // namespace divvy
