#include "ps_server/core/commit_queue.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace divvy {
namespace {

using Names = std::vector<std::string>;

ShardKey Key(uint32_t variable, uint8_t slot = 0) { return {VariableId(variable), slot, 0}; }

TEST(CommitQueueTest, ACommitWaitsUntilItIsTaken) {
  CommitQueue<std::string> queue;
  EXPECT_TRUE(queue.is_idle());
  queue.Enter("a", {Key(1)});
  EXPECT_EQ(queue.waiting(), 1u);
  EXPECT_FALSE(queue.is_idle());
  EXPECT_TRUE(queue.has_ready());
  EXPECT_EQ(queue.TakeReady(), "a");
  EXPECT_EQ(queue.waiting(), 0u);
  EXPECT_FALSE(queue.TakeReady());
  EXPECT_EQ(queue.waiting(), 0u) << "nothing was taken";
}

TEST(CommitQueueTest, ARunningCommitKeepsItsShardsUntilItHasFinished) {
  CommitQueue<std::string> queue;
  queue.Enter("a", {Key(1)});
  queue.Enter("b", {Key(1)});
  queue.Start(*queue.TakeReady());
  EXPECT_FALSE(queue.has_ready());
  EXPECT_EQ(queue.running(), std::set<std::string>({"a"}));
  queue.Finish("a", {Key(1)});
  EXPECT_TRUE(queue.running().empty());
  EXPECT_EQ(queue.TakeReady(), "b");
}

TEST(CommitQueueTest, ARefusedCommitLetsTheNextHaveItsTurn) {
  CommitQueue<std::string> queue;
  queue.Enter("a", {Key(1)});
  queue.Enter("b", {Key(1)});
  ASSERT_EQ(queue.TakeReady(), "a");
  queue.Refuse({Key(1)});
  EXPECT_EQ(queue.TakeReady(), "b");
}

TEST(CommitQueueTest, AShardIsBeingWrittenOnlyWhileACommitRuns) {
  CommitQueue<std::string> queue;
  queue.Enter("a", {Key(1)});
  EXPECT_FALSE(queue.IsBeingWritten(Key(1)));
  queue.Start(*queue.TakeReady());
  EXPECT_TRUE(queue.IsBeingWritten(Key(1)));
  EXPECT_TRUE(queue.IsBeingWritten(Key(1, 2))) << "a slot of the shard";
  EXPECT_FALSE(queue.IsBeingWritten(Key(2)));
  queue.Finish("a", {Key(1)});
  EXPECT_FALSE(queue.IsBeingWritten(Key(1)));
}

TEST(CommitQueueTest, DuplicatesAreGivenOnceInTheOrderOfArrival) {
  CommitQueue<std::string> queue;
  queue.AddDuplicate(EntryId(4), "second");
  queue.AddDuplicate(EntryId(5), "other");
  queue.AddDuplicate(EntryId(4), "third");
  EXPECT_EQ(queue.TakeDuplicates(EntryId(4)), Names({"second", "third"}));
  EXPECT_EQ(queue.TakeDuplicates(EntryId(4)), Names());
  EXPECT_EQ(queue.TakeDuplicates(EntryId(5)), Names({"other"}));
}

}  // namespace
}  // namespace divvy
