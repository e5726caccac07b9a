#include "coordinator/core/entry_ids.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(EntryIdsTest, IdsAreGivenUpToTheEndOfTheDurableBlock) {
  EntryIds ids(100, 4);
  for (uint64_t id = 100; id < 104; ++id) {
    ASSERT_TRUE(ids.MayGive());
    EXPECT_EQ(ids.Give(), EntryId(id));
  }
  EXPECT_FALSE(ids.MayGive());
  ids.BlockStored(108);
  EXPECT_TRUE(ids.MayGive());
}

TEST(EntryIdsTest, TheNextBlockIsWantedOnceWhenHalfOfOneIsLeft) {
  EntryIds ids(100, 4);
  ids.Give();
  ids.Give();
  EXPECT_FALSE(ids.WantsBlock());
  ids.Give();
  EXPECT_TRUE(ids.WantsBlock());
  EXPECT_FALSE(ids.WantsBlock());
  ids.BlockStored(108);
  EXPECT_FALSE(ids.WantsBlock());
}

TEST(EntryIdsTest, IdsStopAtTheFarEndOfWhatTheSlowestServerHasAcknowledged) {
  EntryIds ids(0, 2 * EntryIds::kMaxAhead);
  for (uint64_t i = 0; i < EntryIds::kMaxAhead; ++i) ids.Give();
  EXPECT_FALSE(ids.MayGive());
  ids.Synced(1, EntryId(10));
  ids.Synced(2, EntryId(20));
  ids.Synced(3, ids.next());
  ids.Acked(2);
  EXPECT_TRUE(ids.MayGive());
  EXPECT_TRUE(ids.IsTooFarAhead(EntryId(EntryIds::kMaxAhead + 20)));
  EXPECT_FALSE(ids.IsTooFarAhead(EntryId(EntryIds::kMaxAhead + 19)));
  EXPECT_EQ(ids.num_syncs(), 1);
}

TEST(EntryIdsTest, ASyncIsNeededAfterAQuarter) {
  EntryIds ids(100, 1 << 20);
  EXPECT_FALSE(ids.NeedsSync(EntryId(100 + EntryIds::kSyncAfter - 1)));
  EXPECT_TRUE(ids.NeedsSync(EntryId(100 + EntryIds::kSyncAfter)));
  ids.Synced(1, EntryId(101));
  EXPECT_FALSE(ids.NeedsSync(EntryId(100 + EntryIds::kSyncAfter)));
}

TEST(EntryIdsTest, ARewindForgetsWhatServersHaveAcknowledgedAndGivesNoIdAgain) {
  EntryIds ids(100, 1 << 20);
  for (int i = 0; i < 50; ++i) ids.Give();
  ids.Synced(1, ids.next());
  ids.Rewind(EntryId(120));
  // A late answer to a Sync from before the rewind.
  ids.Acked(1);
  EXPECT_TRUE(ids.IsTooFarAhead(EntryId(120 + EntryIds::kMaxAhead)));
  EXPECT_EQ(ids.next(), EntryId(150));
}

}  // namespace
}  // namespace divvy
