#include "ps_server/core/table/key_index.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min(),
                  kHighest = std::numeric_limits<int64_t>::max();

TEST(TableKeys, TheMixerNeverChanges) {
  EXPECT_EQ(MixKey(0), 0xE220A8397B1DCDAFu);
  EXPECT_EQ(MixKey(1), 0x910A2DEC89025CC1u);
  EXPECT_EQ(MixKey(-1), 0xE4D971771B652C20u);
  EXPECT_EQ(MixKey(kLowest), 0x481EC0A212A9F3DBu);
  EXPECT_EQ(MixKey(kHighest), 0x2A67D7552E039EA7u);
  EXPECT_EQ(BucketOf(MixKey(0)), 0xCDAF);
}

TEST(TableKeys, SequentialKeysFillBucketsEvenly) {
  constexpr int64_t kKeys = 32 * kTableBuckets;
  std::vector<int> counts(kTableBuckets);
  for (int64_t key = 0; key < kKeys; ++key) ++counts[BucketOf(MixKey(key))];
  double squares = 0;
  for (const int count : counts) squares += (count - 32.0) * (count - 32.0);
  // The variance of independent draws is 32.
  EXPECT_NEAR(squares / kTableBuckets, 32, 1);
}

// An index, and the keys of its rows.
class Indexed {
 public:
  explicit Indexed(int64_t first_bucket = 0, int64_t end_bucket = kTableBuckets)
      : index_(first_bucket, end_bucket) {}
  void Reserve(size_t keys) { index_.Reserve(keys); }
  void Insert(int64_t key) {
    looked_ += index_.Insert(MixKey(key), static_cast<uint32_t>(keys_.size()));
    rows_[key] = static_cast<uint32_t>(keys_.size());
    keys_.push_back(key);
  }
  void Erase(int64_t key) {
    index_.Erase(MixKey(key), rows_.at(key));
    rows_.erase(key);
  }
  void Check() const {
    EXPECT_EQ(index_.size(), rows_.size());
    for (const int64_t key : keys_) {
      const auto row = rows_.find(key);
      EXPECT_EQ(Find(key), row == rows_.end() ? KeyIndex::kNone : row->second) << key;
    }
  }
  uint32_t Find(int64_t key) const {
    return index_.Find(MixKey(key), [&](uint32_t row) { return keys_[row] == key; });
  }
  // Of buckets [first, end), as a map would find them.
  std::vector<uint32_t> RowsOf(int64_t first, int64_t end) const {
    std::vector<uint32_t> rows;
    for (const auto& [key, row] : rows_) {
      const int64_t bucket = BucketOf(MixKey(key));
      if (bucket >= first && bucket < end) rows.push_back(row);
    }
    return rows;
  }
  bool Has(int64_t key) const { return rows_.count(key) > 0; }
  const KeyIndex& index() const { return index_; }
  // Places that inserts have looked at, over all keys.
  double looked_for_a_key() const {
    return static_cast<double>(looked_) / static_cast<double>(keys_.size());
  }

 private:
  size_t looked_ = 0;
  KeyIndex index_;
  std::vector<int64_t> keys_;
  std::map<int64_t, uint32_t> rows_;
};

TEST(KeyIndex, AnEmptyOneHasNothing) {
  const Indexed indexed;
  EXPECT_EQ(indexed.Find(0), KeyIndex::kNone);
  EXPECT_EQ(indexed.index().bytes(), 0);
}

TEST(KeyIndex, TakesAnyKey) {
  Indexed indexed;
  for (const int64_t key : {int64_t{0}, int64_t{-1}, kLowest, kHighest, kHighest - 1})
    indexed.Insert(key);
  indexed.Check();
  EXPECT_EQ(indexed.Find(1), KeyIndex::kNone);
}

TEST(KeyIndex, HoldsWhatAMapHolds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Indexed indexed;
    const uint64_t range = 1 + random.Below(400);
    // Runs of equal low bits: the stride of the keys.
    const int64_t stride = int64_t{1} << random.Below(40);
    for (int i = 0; i < 1500; ++i) {
      const int64_t key = stride * static_cast<int64_t>(random.Below(range));
      indexed.Has(key) ? indexed.Erase(key) : indexed.Insert(key);
    }
    indexed.Check();
  }
}

TEST(KeyIndex, GivesTheRowsOfAnyBuckets) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    // Many buckets with few keys each, one bucket with all keys, and what lies between.
    const int64_t buckets = int64_t{1} << random.Below(9),
                  first = static_cast<int64_t>(random.Below(kTableBuckets - buckets + 1));
    Indexed indexed(first, first + buckets);
    std::vector<int64_t> keys;
    const size_t all = 1 + random.Below(600);
    for (int64_t key = static_cast<int64_t>(random.Next() >> 20); keys.size() < all; ++key) {
      const int64_t bucket = BucketOf(MixKey(key));
      if (bucket >= first && bucket < first + buckets) keys.push_back(key);
    }
    for (const int64_t key : keys) indexed.Insert(key);
    for (const int64_t key : keys) {
      if (random.Chance(0.3)) indexed.Erase(key);
    }
    indexed.Check();
    int64_t sum = 0;
    for (int64_t from = first; from < first + buckets;) {
      const int64_t end =
          from + 1 +
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(first + buckets - from)));
      EXPECT_THAT(indexed.index().RowsOf(from, end),
                  ::testing::UnorderedElementsAreArray(indexed.RowsOf(from, end)));
      sum += indexed.index().CountOf(from, end);
      from = end;
    }
    EXPECT_EQ(sum, static_cast<int64_t>(indexed.index().size()));
    EXPECT_THAT(indexed.index().RowsOf(first, first), ::testing::IsEmpty());
  }
}

// Keys of buckets [0, end_bucket), bucket by bucket, as checkpoints have them.
std::vector<int64_t> KeysInOrder(int64_t end_bucket, size_t count) {
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < count; ++key) {
    if (BucketOf(MixKey(key)) < end_bucket) keys.push_back(key);
  }
  std::sort(keys.begin(), keys.end(), [](int64_t a, int64_t b) {
    return std::pair(BucketOf(MixKey(a)), a) < std::pair(BucketOf(MixKey(b)), b);
  });
  return keys;
}

// As a checkpoint is restored: into an index that is as large as it will be.
TEST(KeyIndex, KeysInTheirOrderFindTheirPlacesAtOnceWhereThereIsRoomForAll) {
  Indexed indexed(0, 256);
  const std::vector<int64_t> keys = KeysInOrder(256, 40'000);
  indexed.Reserve(keys.size());
  const int64_t bytes = indexed.index().bytes();
  for (const int64_t key : keys) indexed.Insert(key);
  EXPECT_LE(indexed.looked_for_a_key(), 5);
  // Nor does it grow at the first keys that come after a restore.
  for (int64_t key = 0, more = 0; more < 2'000; ++key) {
    if (BucketOf(MixKey(-1 - key)) >= 256) continue;
    indexed.Insert(-1 - key);
    ++more;
  }
  EXPECT_EQ(indexed.index().bytes(), bytes) << "it grew";
  EXPECT_LE(bytes, 40'000 * 11);
  indexed.Check();
}

// Message by message. Without an index that grows ahead, a key would look at thousands of places.
TEST(KeyIndex, KeysInTheirOrderDoNotPileUp) {
  Indexed indexed(0, 256);
  for (const int64_t key : KeysInOrder(256, 40'000)) indexed.Insert(key);
  EXPECT_LE(indexed.looked_for_a_key(), 200);
  EXPECT_LE(indexed.index().bytes(), 40'000 * 14);
  indexed.Check();
}

TEST(KeyIndex, KeysOfOneBucketDoNotMakeItGrowWithoutEnd) {
  Indexed indexed(0, 256);
  for (const int64_t key : KeysInOrder(1, 2'000)) indexed.Insert(key);
  EXPECT_LE(indexed.index().bytes(), 2'000 * 8 * 10);
  indexed.Check();
}

TEST(KeyIndex, TakesFewBytesForAKey) {
  Indexed indexed;
  for (int64_t key = 0; key < 100'000; ++key) indexed.Insert(key);
  EXPECT_LE(indexed.index().bytes(), 100'000 * 12);
}

}  // namespace
}  // namespace divvy
