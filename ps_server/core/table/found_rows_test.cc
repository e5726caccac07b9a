#include "ps_server/core/table/found_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "initializers/initializer.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kWidth = 2;

class FoundRowsTest : public ::testing::Test {
 protected:
  FoundRowsTest() { Begin(); }
  // An empty table in two parts.
  void Begin(DType dtype = DType::kFloat32) {
    parts_.clear();
    for (const auto& [first, end] : {std::pair{0, 20'000}, {20'000, 65'536}})
      parts_.push_back(std::make_unique<TableShard>(
          TableFormat({/*job_seed=*/3, "items", Shape({kTableBuckets, kWidth})}, Zeros(), {},
                      kWidth, {}, dtype),
          first, end));
  }
  // Writes `values` to the key, in a step at `tick`.
  void Write(int64_t key, const std::vector<float>& values, uint32_t tick = 1) {
    for (const auto& part : parts_) {
      const auto keys = CheckKeys({key}, part->first_bucket(), part->end_bucket());
      if (!keys.ok()) continue;  // of the other part
      for (const TableShard::Piece& piece : part->PiecesOf(*keys)) {
        part->With(piece.segment, [&](TableSegment& segment) {
          segment.ApplyValues(*keys, values.data(), WriteOp::kScatterUpdate, {1, tick});
        });
      }
    }
  }
  std::vector<FoundRow> Find(const std::vector<int64_t>& keys) {
    std::vector<FoundRow> all;
    for (const auto& part : parts_) {
      for (FoundRow& row : RowsOf(*part, keys)) all.push_back(std::move(row));
    }
    return all;
  }
  std::vector<int64_t> Top(size_t most, LargestRows::By by) {
    LargestRows largest(most, by);
    for (const auto& part : parts_) largest.Look(*part);
    std::vector<int64_t> keys;
    for (const FoundRow& row : std::move(largest).Take()) keys.push_back(row.key);
    return keys;
  }

  std::vector<std::unique_ptr<TableShard>> parts_;
};

TEST_F(FoundRowsTest, RowsThatStoreHalvesAreReadAsFloats) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Begin(dtype);
    for (int64_t key = 0; key < 5'000; ++key) Write(key, {1, static_cast<float>(key % 128)});
    Write(77, {-256, 0.5f});
    const std::vector<FoundRow> found = Find({77});
    ASSERT_EQ(found.size(), 1u);
    EXPECT_THAT(found[0].values, ElementsAre(-256, 0.5f));
    EXPECT_THAT(Top(1, LargestRows::By::kNorm), ElementsAre(77));
  }
}

TEST_F(FoundRowsTest, EachKeyIsFoundInItsPartAndOthersAreLeftOut) {
  const std::vector<int64_t> keys = {0, -1, std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max(), 77};
  for (const int64_t key : keys) Write(key, {1, static_cast<float>(key % 100)}, 5);
  Write(77, {3, 4}, 9);
  EXPECT_THAT(Find({}), IsEmpty());
  EXPECT_THAT(Find({1, 2}), IsEmpty());
  const std::vector<FoundRow> one = Find({5, 77, 5});
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].key, 77);
  EXPECT_EQ(one[0].count, 2);
  EXPECT_EQ(one[0].minute, 9);
  EXPECT_THAT(one[0].values, ElementsAre(3, 4));
  EXPECT_EQ(Find(keys).size(), keys.size());
  // In the order of the request, each as often as it is named.
  std::vector<int64_t> of_first;
  for (int64_t key = 100; of_first.size() < 3; ++key) {
    if (BucketOf(MixKey(key)) < 20'000) of_first.push_back(key);
  }
  for (const int64_t key : of_first) Write(key, {0, 0});
  std::vector<int64_t> found;
  for (const FoundRow& row : Find({of_first[2], of_first[0], of_first[2], of_first[1]}))
    found.push_back(row.key);
  EXPECT_THAT(found, ElementsAre(of_first[2], of_first[0], of_first[2], of_first[1]));
}

TEST_F(FoundRowsTest, TheLargestAreThoseThatSortingGives) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Begin();
    Random random(seed);
    struct Row {
      int64_t key, count;
      float value;
    };
    std::vector<Row> rows;
    for (int64_t i = 0; i < 200; ++i) {
      // Few different sizes, so that keys decide.
      Row row{static_cast<int64_t>(random.Next()), 1 + static_cast<int64_t>(random.Below(5)),
              static_cast<float>(random.Below(7)) - 3};
      for (int64_t step = 0; step < row.count; ++step) Write(row.key, {row.value, 0});
      rows.push_back(row);
    }
    for (const LargestRows::By by : {LargestRows::By::kCount, LargestRows::By::kNorm}) {
      std::sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
        const float size_a = by == LargestRows::By::kCount ? a.count : std::abs(a.value),
                    size_b = by == LargestRows::By::kCount ? b.count : std::abs(b.value);
        return size_a != size_b ? size_a > size_b : a.key < b.key;
      });
      for (const size_t most : {0, 1, 7, 200, 1000}) {
        std::vector<int64_t> wanted;
        for (size_t i = 0; i < std::min(most, rows.size()); ++i) wanted.push_back(rows[i].key);
        EXPECT_EQ(Top(most, by), wanted) << most;
      }
    }
  }
}

TEST_F(FoundRowsTest, AValueThatIsNoNumberIsLargest) {
  Write(1, {100, 100});
  Write(2, {std::numeric_limits<float>::quiet_NaN(), 0});
  Write(3, {std::numeric_limits<float>::infinity(), 0});
  EXPECT_THAT(Top(2, LargestRows::By::kNorm), ElementsAre(2, 3));
}

}  // namespace
}  // namespace divvy
