#include "coordinator/core/session_numbers.h"

#include <map>

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(SessionNumbersTest, TheFirstOnesAreOfTheEpochItself) {
  EXPECT_EQ(SessionOf(Epoch(1), 1), SessionId(65'537));
  EXPECT_EQ(SessionOf(Epoch(3), 65'535), SessionId(4 * 65'536 - 1));
}

TEST(SessionNumbersTest, EpochsNearToEachOtherShareNoneHoweverManyTheyGive) {
  std::map<SessionId, uint64_t> epoch_of;
  // Checks every 1,009th of 4 million sessions of each epoch.
  constexpr uint32_t kBlocks = 64;
  for (uint64_t epoch = 65'530; epoch < 65'546; ++epoch) {
    for (uint32_t nth = 1; nth < kBlocks * 65'536; nth += 1009) {
      const auto given = epoch_of.emplace(SessionOf(Epoch(epoch), nth), epoch);
      ASSERT_TRUE(given.second) << "session " << nth << " of epoch " << epoch << " is one of epoch "
                                << given.first->second;
    }
  }
}

}  // namespace
}  // namespace divvy
