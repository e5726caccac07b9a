#include "ps_server/core/shard_set.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "protocol/error.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

constexpr int64_t kBlockBytes = 64;

ShardKey Key(uint32_t variable, uint8_t slot = 0) { return {VariableId(variable), slot, 0}; }

// Four rows of two int64: 64 bytes.
ShardSpec Spec(ShardKey key, int64_t rows = 4) {
  ShardSpec spec;
  spec.key = key;
  spec.name = "v" + std::to_string(key.variable.value());
  spec.dtype = DType::kInt64;
  spec.shape = spec.full_shape = Shape{rows, 2};
  spec.initializer = Zeros();
  return spec;
}

CreateShardsRequest Create(std::vector<ShardSpec> specs, uint64_t layout_version = 1) {
  CreateShardsRequest request;
  request.layout_version = layout_version;
  request.layout_hash = layout_version * 10;
  request.shards = std::move(specs);
  return request;
}

DeleteShardsRequest Deletion(std::vector<ShardKey> keys, uint64_t layout_version) {
  return {Fence(), layout_version, layout_version * 10, std::move(keys)};
}

void Make(ShardSet& set, CreateShardsRequest request) {
  ShardBatch batch(std::move(request));
  ASSERT_TRUE(set.Begin(batch).ok());
  ASSERT_TRUE(set.End(batch).ok());
  set.Install(batch);
}

TEST(ShardSetTest, ABatchIsSeenOnceItIsInstalled) {
  ShardSet set(1000, kBlockBytes);
  ShardBatch batch(Create({Spec(Key(2)), Spec(Key(1))}, 3));
  ASSERT_TRUE(set.Begin(batch).ok());
  EXPECT_TRUE(set.table()->empty());
  EXPECT_TRUE(set.IsMaking({Spec(Key(1))}));
  EXPECT_FALSE(set.IsMaking({Spec(Key(3))}));
  EXPECT_EQ(set.bytes(), 0);
  EXPECT_EQ(set.bytes_being_made(), 128);
  ASSERT_TRUE(set.End(batch).ok());
  EXPECT_FALSE(set.IsMaking({Spec(Key(1))}));
  EXPECT_EQ(set.bytes_being_made(), 0);
  set.Install(batch);
  EXPECT_EQ(set.table()->size(), 2u);
  EXPECT_EQ(set.bytes(), 128);
  EXPECT_EQ(set.layout_version(), 3u);
  EXPECT_EQ(set.layout_hash(), 30u);
}

TEST(ShardSetTest, ABatchThatIsDroppedLeavesNothing) {
  ShardSet set(100, kBlockBytes);
  {
    ShardBatch batch(Create({Spec(Key(1))}));
    ASSERT_TRUE(set.Begin(batch).ok());
    EXPECT_TRUE(set.End(batch).ok());
  }
  EXPECT_TRUE(set.table()->empty());
  EXPECT_EQ(set.layout_version(), 0u);
  Make(set, Create({Spec(Key(2))}));
}

// The epoch may end when some segments have the new options. A coordinator that adopted this server
// as one of the layout before would not send the options again.
TEST(ShardSetTest, AChangeOfOptionsIsOfItsLayoutFromTheBegin) {
  ShardSet set(1 << 20, kBlockBytes);
  ShardSpec table = Spec(Key(1));
  table.dtype = DType::kFloat32;
  table.shape = table.full_shape = Shape{kTableBuckets, 2};
  table.table = TableOptions();
  Make(set, Create({table}, 3));
  ShardBatch same(Create({table}, 4));
  ASSERT_TRUE(set.Begin(same).ok());
  EXPECT_EQ(set.layout_version(), 3u) << "nothing changes";
  ASSERT_TRUE(set.End(same).ok());
  table.table->max_rows = 100;
  ShardBatch other(Create({table}, 5));
  ASSERT_TRUE(set.Begin(other).ok());
  EXPECT_TRUE(set.IsMaking({table}));
  EXPECT_EQ(set.layout_version(), 5u);
  EXPECT_EQ(set.layout_hash(), 50u);
  ASSERT_TRUE(set.End(other).ok());
  EXPECT_FALSE(set.IsMaking({table}));
}

TEST(ShardSetTest, AShardThatExistsIsNotMadeAgain) {
  ShardSet set(1000, kBlockBytes);
  Make(set, Create({Spec(Key(1))}));
  ShardBatch again(Create({Spec(Key(1)), Spec(Key(2))}));
  ASSERT_TRUE(set.Begin(again).ok());
  EXPECT_EQ(again.fresh.size(), 1u);
  EXPECT_EQ(again.bytes, 64);
  EXPECT_TRUE(set.End(again).ok());
}

TEST(ShardSetTest, AnotherSpecUnderTheSameKeyIsRefused) {
  ShardSet set(1000, kBlockBytes);
  Make(set, Create({Spec(Key(1))}));
  ShardBatch batch(Create({Spec(Key(1), 3)}));
  EXPECT_EQ(ReasonOf(set.Begin(batch)), Reason::kInvalid);
}

TEST(ShardSetTest, AShardThatIsNamedTwiceIsRefused) {
  ShardSet set(1000, kBlockBytes);
  ShardBatch batch(Create({Spec(Key(1)), Spec(Key(1))}));
  EXPECT_EQ(ReasonOf(set.Begin(batch)), Reason::kInvalid);
  EXPECT_EQ(set.bytes_being_made(), 0);
}

TEST(ShardSetTest, TakesMemoryForAllOrForNone) {
  ShardSet set(200, kBlockBytes);
  Make(set, Create({Spec(Key(1))}));
  ShardBatch under_way(Create({Spec(Key(2))}));
  ASSERT_TRUE(set.Begin(under_way).ok());
  ShardBatch batch(Create({Spec(Key(3)), Spec(Key(4))}));
  const absl::Status refused = set.Begin(batch);
  EXPECT_EQ(ReasonOf(refused), Reason::kMemoryLimit);
  EXPECT_NE(refused.message().find(
                "v4, part 0 takes 64 bytes, and 8 of --memory_limit_bytes=200 are left"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(set.bytes_being_made(), 64);
  EXPECT_FALSE(set.IsMaking({Spec(Key(3))}));
  EXPECT_TRUE(set.End(under_way).ok());
}

TEST(ShardSetTest, ASlotNeedsItsVariableInTheTableOrInTheBatch) {
  ShardSet set(1000, kBlockBytes);
  ShardBatch alone(Create({Spec(Key(1, 1))}));
  EXPECT_EQ(ReasonOf(set.Begin(alone)), Reason::kInvalid);
  Make(set, Create({Spec(Key(2, 1)), Spec(Key(2))}));
  Make(set, Create({Spec(Key(2, 2))}));
  EXPECT_EQ(&set.table()->at(Key(2, 2))->blocks(), &set.table()->at(Key(2))->blocks())
      << "a slot shares the variable's blocks";
}

TEST(ShardSetTest, ADeletedShardIsGoneAndItsMemoryFree) {
  ShardSet set(1000, kBlockBytes);
  Make(set, Create({Spec(Key(1)), Spec(Key(2))}));
  const ShardSet::Table before = set.Delete(Deletion({Key(1), Key(7)}, 2));
  EXPECT_EQ(before->size(), 2u);
  EXPECT_EQ(set.table()->count(Key(1)), 0u);
  EXPECT_EQ(set.bytes(), 64);
  EXPECT_EQ(set.layout_version(), 2u);
  ShardBatch again(Create({Spec(Key(1))}));
  EXPECT_EQ(ReasonOf(set.Begin(again)), Reason::kInvalid) << "ids are never used again";
}

TEST(ShardSetTest, AShardThatIsDeletedWhileItIsMadeFailsItsBatch) {
  ShardSet set(1000, kBlockBytes);
  ShardBatch batch(Create({Spec(Key(1)), Spec(Key(2))}));
  ASSERT_TRUE(set.Begin(batch).ok());
  set.Delete(Deletion({Key(2)}, 2));
  EXPECT_EQ(ReasonOf(set.End(batch)), Reason::kInvalid);
  EXPECT_FALSE(set.IsMaking({Spec(Key(1))}));
  EXPECT_EQ(set.bytes_being_made(), 0);
}

TEST(ShardSetTest, ALateRequestDoesNotTurnTheLayoutBackAndALoadDoes) {
  ShardSet set(1000, kBlockBytes);
  Make(set, Create({Spec(Key(1))}, 5));
  Make(set, Create({Spec(Key(2))}, 4));
  EXPECT_EQ(set.layout_version(), 5u);
  set.Delete(Deletion({Key(2)}, 3));
  EXPECT_EQ(set.layout_hash(), 50u);
  set.SetLayout(1, 99);
  EXPECT_EQ(set.layout_version(), 1u);
  EXPECT_EQ(set.layout_hash(), 99u);
}

TEST(ShardSetTest, ClearForgetsDeletionsToo) {
  ShardSet set(1000, kBlockBytes);
  Make(set, Create({Spec(Key(1))}, 5));
  set.Delete(Deletion({Key(2)}, 6));
  EXPECT_EQ(set.Clear()->size(), 1u);
  EXPECT_TRUE(set.table()->empty());
  EXPECT_EQ(set.bytes(), 0);
  EXPECT_EQ(set.layout_version(), 0u);
  Make(set, Create({Spec(Key(2))}));
}

TEST(ShardSetTest, ABatchThatEndsAfterAClearFreesOnlyWhatItTook) {
  ShardSet set(1000, kBlockBytes);
  ShardBatch old(Create({Spec(Key(1))}));
  ASSERT_TRUE(set.Begin(old).ok());
  set.Clear();
  ShardBatch fresh(Create({Spec(Key(1))}));
  ASSERT_TRUE(set.Begin(fresh).ok());
  EXPECT_EQ(ReasonOf(set.End(old)), Reason::kInvalid);
  EXPECT_TRUE(set.IsMaking({Spec(Key(1))}));
  EXPECT_EQ(set.bytes_being_made(), 64);
  EXPECT_TRUE(set.End(fresh).ok());
}

}  // namespace
}  // namespace divvy
