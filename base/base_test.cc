// Tests of small parts: ids, macros, randomness, checksums, switches, the process.
#include <sys/resource.h>

#include <unistd.h>

#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <unordered_set>
#include <vector>

#include "absl/hash/hash_testing.h"
#include "base/breakable.h"
#include "base/crc32c.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/strong_id.h"
#include "base/terminal.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;

DIVVY_STRONG_ID(StepNumber, uint64_t);
DIVVY_STRONG_ID(SmallNumber, uint8_t);
static_assert(!std::is_convertible_v<uint64_t, StepNumber> &&
                  !std::is_convertible_v<StepNumber, uint64_t>,
              "an id is not a number");
static_assert(!std::is_convertible_v<SmallNumber, StepNumber>,
              "an id of one kind is not an id of another");

TEST(StrongIdTest, ComparesHashesAndCountsAsItsNumber) {
  const StepNumber seven(7), eight = seven.next();
  EXPECT_EQ(eight.value(), 8u);
  EXPECT_TRUE(seven < eight && seven <= eight && eight > seven && eight >= seven &&
              seven != eight && seven == StepNumber(7));
  EXPECT_EQ(StepNumber().value(), 0u);
  EXPECT_EQ((std::unordered_set<StepNumber>{seven, eight, StepNumber(7)}).size(), 2u);
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly({seven, eight, StepNumber()}));
}

TEST(StrongIdTest, PrintsANumberEvenWhereItIsMadeOfACharacter) {
  std::ostringstream out;
  out << SmallNumber(65) << " " << StepNumber(7);
  EXPECT_EQ(out.str(), "65 7");
}

absl::StatusOr<int> Half(int number) {
  if (number % 2 != 0) return absl::InvalidArgumentError("odd");
  return number / 2;
}

absl::StatusOr<int> Quarter(int number) {
  ASSIGN_OR_RETURN(const int half, Half(number));
  ASSIGN_OR_RETURN(int quarter, Half(half));
  return quarter;
}

absl::Status CheckBoth(int a, int b, int* reached) {
  RETURN_IF_ERROR(Half(a));
  *reached = 1;
  if (b != 0) RETURN_IF_ERROR(Half(b).status());  // one statement, so it needs no braces
  *reached = 2;
  return absl::OkStatus();
}

TEST(StatusMacrosTest, AssignOrReturnGoesOnWithTheValueOrEndsWithTheError) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status(), absl::InvalidArgumentError("odd"));
}

TEST(StatusMacrosTest, ReturnIfErrorTakesBothKindsAndEndsAtTheFirst) {
  int reached = 0;
  EXPECT_EQ(CheckBoth(1, 2, &reached).message(), "odd");
  EXPECT_EQ(reached, 0);
  EXPECT_EQ(CheckBoth(2, 1, &reached).message(), "odd");
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(CheckBoth(2, 2, &reached).ok());
  EXPECT_EQ(reached, 2);
}

absl::StatusOr<std::unique_ptr<int>> MakePointer(bool fail) {
  if (fail) return absl::NotFoundError("none");
  return std::make_unique<int>(5);
}

TEST(StatusMacrosTest, AValueThatOnlyMovesIsMoved) {
  const auto read = [](bool fail) -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(std::unique_ptr<int> pointer, MakePointer(fail));
    return *pointer;
  };
  EXPECT_EQ(*read(false), 5);
  EXPECT_EQ(read(true).status().code(), absl::StatusCode::kNotFound);
}

// ---- Randomness. Expected values: Random123's kat_vectors for Philox, and separate computations
// in Python.

TEST(PhiloxTest, GivesThePublishedAnswers) {
  EXPECT_THAT(Philox4x32(0, 0, 0), ElementsAre(0x6627E8D5u, 0xE169C58Du, 0xBC57AC4Cu, 0x9B00DBD8u));
  EXPECT_THAT(Philox4x32(~0ull, ~0ull, ~0ull),
              ElementsAre(0x408F276Du, 0x41C83B0Eu, 0xA20BC7C6u, 0x6D5451FDu));
  EXPECT_THAT(Philox4x32(0x299F31D0A4093822ull, 0x85A308D3243F6A88ull, 0x0370734413198A2Eull),
              ElementsAre(0xD16CFE09u, 0x94FDCCEBu, 0x5001E420u, 0x24126EA1u));
}

TEST(RandomTest, IsSplitMix64) {
  Random random(0);
  EXPECT_EQ(random.Next(), 0xE220A8397B1DCDAFull);
  EXPECT_EQ(random.Next(), 0x6E789E6AA1B965F4ull);
  EXPECT_EQ(random.Next(), 0x06C45D188009454Full);
}

TEST(RandomTest, ACopyGoesOnAsTheOriginal) {
  Random original(42);
  original.Next();
  Random copy = original;
  EXPECT_EQ(copy.Next(), original.Next());
}

TEST(RandomTest, BelowReachesEveryValueAboutEquallyAndNoOther) {
  Random random(7);
  std::vector<int> counts(10);
  for (int i = 0; i < 10000; ++i) ++counts.at(random.Below(10));
  for (const int count : counts) EXPECT_NEAR(count, 1000, 150);  // five standard deviations
  for (int i = 0; i < 100; ++i) EXPECT_EQ(random.Below(1), 0u);
  for (int i = 0; i < 100; ++i) EXPECT_LE(random.Below(~0ull), ~0ull - 1);
}

TEST(RandomTest, BelowIsFairWhereABoundIsLargerThanHalfTheRange) {
  // Plain modulo would give the lowest third of the results twice as often as the others.
  Random random(7);
  const uint64_t bound = 3ull << 62;
  int low = 0;
  for (int i = 0; i < 3000; ++i) low += random.Below(bound) < (1ull << 62);
  EXPECT_NEAR(low, 1000, 130);
}

TEST(RandomTest, UniformFillsTheUnitIntervalAndChanceFollowsIt) {
  Random random(7);
  double sum = 0;
  for (int i = 0; i < 10000; ++i) {
    const double value = random.Uniform();
    ASSERT_TRUE(value >= 0 && value < 1);
    sum += value;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);
  int hits = 0;
  for (int i = 0; i < 10000; ++i) hits += random.Chance(0.2);
  EXPECT_NEAR(hits, 2000, 200);
  EXPECT_FALSE(random.Chance(0));
  EXPECT_TRUE(random.Chance(1));
}

TEST(SeedsTest, MixAndHashAreTheSameEverywhere) {
  EXPECT_EQ(MixSeeds(1, 2), 0xBCD9DBB49673066Bull);
  EXPECT_EQ(MixSeeds(2, 1), 0xE06DD043328BD285ull);
  EXPECT_EQ(HashText(""), 0xF52A15E9A9B5E89Bull);
  EXPECT_EQ(HashText("divvy"), 0x3A6E02764D5BB5F0ull);
}

TEST(SeedsTest, EntropyDiffersEachTime) {
  std::set<uint64_t> seeds;
  for (int i = 0; i < 100; ++i) seeds.insert(EntropySeed());
  EXPECT_EQ(seeds.size(), 100u);
}

// ---- Checksums. Expected values: RFC 3720 B.4 for those of 32 bytes.

struct Checksum {
  std::string bytes;
  uint32_t crc;
};

std::vector<Checksum> KnownChecksums() {
  std::string up, down;
  for (char c = 0; c < 32; ++c) {
    up.push_back(c);
    down.insert(down.begin(), c);
  }
  return {{"", 0},
          {"a", 0xC1D04330u},
          {"123456789", 0xE3069283u},
          {std::string(32, '\0'), 0x8A9136AAu},
          {std::string(32, '\xFF'), 0x62A8AB43u},
          {up, 0x46DD794Eu},
          {down, 0x113FDB5Cu}};
}

TEST(Crc32cTest, GivesThePublishedAnswersInBothWays) {
  for (const Checksum& known : KnownChecksums()) {
    EXPECT_EQ(Crc32c(known.bytes), known.crc);
    EXPECT_EQ(internal::ExtendCrc32cByTables(0, known.bytes), known.crc);
  }
}

TEST(Crc32cTest, BothWaysAgreeOnAnyLengthAndPlace) {
  if (!internal::HasCrc32cInstruction())
    GTEST_SKIP() << "this processor has no CRC-32C instruction";
  Random random(11);
  std::string bytes(300, '\0');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t length = 0; begin + length <= bytes.size(); ++length) {
      const absl::string_view part = absl::string_view(bytes).substr(begin, length);
      const uint32_t crc = static_cast<uint32_t>(random.Next());
      ASSERT_EQ(internal::ExtendCrc32cByInstruction(crc, part),
                internal::ExtendCrc32cByTables(crc, part))
          << begin << " " << length;
    }
  }
}

// With the CRC-32C instruction, a long text is cut into lanes of 1024 bytes, and three lanes are
// computed at a time.
TEST(Crc32cTest, BothWaysAgreeWhereLanesBeginAndEnd) {
  if (!internal::HasCrc32cInstruction())
    GTEST_SKIP() << "this processor has no CRC-32C instruction";
  Random random(12);
  std::string bytes(20'000, '\0');
  for (char& c : bytes) c = static_cast<char>(random.Next());
  for (const size_t length : {3071, 3072, 3073, 4095, 4096, 6143, 6144, 6152, 9215, 9216, 19'000}) {
    for (size_t begin = 0; begin < 9; ++begin) {
      const absl::string_view part = absl::string_view(bytes).substr(begin, length);
      const uint32_t crc = static_cast<uint32_t>(random.Next());
      ASSERT_EQ(internal::ExtendCrc32cByInstruction(crc, part),
                internal::ExtendCrc32cByTables(crc, part))
          << begin << " " << length;
    }
  }
}

TEST(Crc32cTest, WhatIsExtendedIsTheChecksumOfTheWhole) {
  const absl::string_view text = "the checksum of a whole is that of its parts";
  for (size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(ExtendCrc32c(Crc32c(text.substr(0, cut)), text.substr(cut)), Crc32c(text));
}

TEST(Crc32cTest, AMaskedChecksumIsAnotherAndComesBack) {
  EXPECT_EQ(MaskCrc32c(Crc32c("foo")), 0xFEBE8A61u);
  EXPECT_NE(MaskCrc32c(MaskCrc32c(Crc32c("foo"))), Crc32c("foo"));
  for (const Checksum& known : KnownChecksums())
    EXPECT_EQ(UnmaskCrc32c(MaskCrc32c(known.crc)), known.crc);
}

// ---- Switches and the process.

static_assert(RuleHolds(Rule::kDedupe) && RuleHolds(Rule::kSessionCheck) &&
                  RuleHolds(Rule::kWaitForFence) && RuleHolds(Rule::kOpenContainsInFlight),
              "no rule can be broken in a released binary");

TEST(ProcessTest, HasACoreAndUsesMemory) {
  EXPECT_GE(NumCores(), 1);
  EXPECT_GT(PeakMemoryBytes(), 1 << 20);
  EXPECT_LT(PeakMemoryBytes(), int64_t{1} << 50);
  EXPECT_GE(MostMemoryBytes(), PeakMemoryBytes());
}

TEST(ProcessTest, MayOpenAsManyFilesAsItsHardLimitSays) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 64;
  low.rlim_max = std::min<rlim_t>(before.rlim_max, 1 << 20);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const OpenFileLimit limit = RaiseOpenFileLimit();
  EXPECT_EQ(limit.before, 64);
  EXPECT_EQ(limit.now, static_cast<int64_t>(low.rlim_max));
  EXPECT_EQ(RaiseOpenFileLimit().before, limit.now);
}

TEST(ProcessDeathTest, AProcessThatDoesNotComeToItsEndIsEnded) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ExitAfter(absl::Milliseconds(1), 7);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(ProcessDeathTest, AnExitThatWasCancelledDoesNotHappenAndALaterOneDoes) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ExitAfter(absl::Milliseconds(30), 7);
        CancelExit();
        ExitAfter(absl::Milliseconds(100), 8);
        for (;;) pause();
      },
      ::testing::ExitedWithCode(8), "");
}

TEST(TerminalTest, WhatIsNoTerminalHasNoColorAndTheUsualWidth) {
  ::testing::internal::CaptureStderr();
  const Terminal terminal = StandardErrorTerminal();
  WriteStandardError("as it is\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "as it is\n");
  EXPECT_FALSE(terminal.interactive);
  EXPECT_FALSE(terminal.color);
  EXPECT_EQ(terminal.width, 80);
}

}  // namespace
}  // namespace divvy
