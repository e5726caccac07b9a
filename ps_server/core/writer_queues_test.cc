#include "ps_server/core/writer_queues.h"

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

ShardKey Key(uint32_t variable, uint16_t part = 0) { return {VariableId(variable), 0, part}; }
std::vector<std::string> TakeAll(WriterQueues<std::string>& queues) {
  std::vector<std::string> taken;
  while (const auto next = queues.TakeReady()) taken.push_back(*next);
  return taken;
}
using Names = std::vector<std::string>;

TEST(WriterQueuesTest, WhoSharesNoShardNeedNotWait) {
  WriterQueues<std::string> queues;
  queues.Enter("a", {Key(1), Key(2)});
  queues.Enter("b", {Key(3)});
  queues.Enter("c", {Key(2), Key(3)});
  EXPECT_EQ(TakeAll(queues), Names({"a", "b"}));
  queues.Leave({Key(1), Key(2)});
  EXPECT_EQ(TakeAll(queues), Names());
  queues.Leave({Key(3)});
  EXPECT_EQ(TakeAll(queues), Names({"c"}));
}

TEST(WriterQueuesTest, OneShardIsWrittenInTheOrderOfArrival) {
  WriterQueues<std::string> queues;
  queues.Enter("a", {Key(1)});
  queues.Enter("b", {Key(1), Key(2)});
  queues.Enter("c", {Key(2)});
  EXPECT_EQ(TakeAll(queues), Names({"a"})) << "c waits behind b";
  EXPECT_EQ(*queues.First(Key(1)), "a");
  EXPECT_EQ(queues.First(Key(3)), nullptr);
  queues.Leave({Key(1)});
  EXPECT_EQ(TakeAll(queues), Names({"b"}));
  queues.Leave({Key(1), Key(2)});
  EXPECT_EQ(TakeAll(queues), Names({"c"}));
}

// A commit to all shards waits behind one commit to each of them. The end of each of these must not
// cost a new look at all queues.
TEST(WriterQueuesTest, TheWorkIsLinearInTheShardsOfEachWriter) {
  constexpr uint32_t kShards = 1000;
  WriterQueues<std::string> queues;
  std::vector<ShardKey> all;
  for (uint32_t i = 0; i < kShards; ++i) {
    queues.Enter("one", {Key(i)});
    all.push_back(Key(i));
  }
  queues.Enter("all", all);
  EXPECT_EQ(TakeAll(queues).size(), kShards);
  for (uint32_t i = 0; i < kShards; ++i) queues.Leave({Key(i)});
  EXPECT_EQ(TakeAll(queues), Names({"all"})) << "once, not once for each shard";
  queues.Leave(all);
  EXPECT_EQ(queues.steps(), 4 * kShards);
}

TEST(WriterQueuesTest, AtAnyTimeTheReadyAreThoseThatAreFirstEverywhere) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    WriterQueues<int> queues;
    std::vector<std::pair<int, std::vector<ShardKey>>>
        // Writers that have entered and not ended, in order.
        entered;
    std::set<int> begun;
    for (int writer = 0; writer < 60; ++writer) {
      std::vector<ShardKey> shards;
      for (uint32_t shard = 0; shard < 6; ++shard) {
        if (random.Chance(0.4)) shards.push_back(Key(shard));
      }
      if (shards.empty()) shards.push_back(Key(0));
      queues.Enter(writer, shards);
      entered.emplace_back(writer, shards);
      while (const auto next = queues.TakeReady())
        ASSERT_TRUE(begun.insert(*next).second) << "taken twice";
      std::set<int> may_begin;
      std::set<ShardKey> taken;
      for (const auto& [name, wanted] : entered) {
        bool first = true;
        for (const ShardKey shard : wanted) first &= taken.insert(shard).second;
        if (first) may_begin.insert(name);
      }
      std::set<int> running;
      for (const auto& [name, wanted] : entered) {
        if (begun.count(name) > 0) running.insert(name);
      }
      ASSERT_EQ(running, may_begin);
      if (random.Chance(0.3)) continue;
      for (size_t i = 0; i < entered.size(); ++i) {
        if (begun.count(entered[i].first) == 0) continue;
        queues.Leave(entered[i].second);
        entered.erase(entered.begin() + i);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace divvy
