#include "worker/core/row_cache.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "gtest/gtest.h"
#include "worker/core/testing/fake_parameter_servers.h"

namespace divvy {
namespace {

constexpr int64_t kRows = 100'000;

class RowCacheTest : public ::testing::Test {
 protected:
  static Tensor Ids(const std::vector<int64_t>& ids) {
    return Tensor::Vector<int64_t>(absl::MakeConstSpan(ids));
  }

  // Keeps the rows of a pull's reply. Each element is the row's number plus `add`.
  void Keep(RowCache& cache, const std::vector<int64_t>& ids, float add = 0, uint64_t version = 1) {
    std::map<int, std::vector<int64_t>> by_part;
    for (const int64_t id : ids)
      by_part[variable_.PartOf(id)].push_back(id - variable_.offsets[variable_.PartOf(id)]);
    for (const auto& [part, rows] : by_part) {
      std::vector<float> values;
      for (const int64_t row : rows)
        values.insert(values.end(), 2, static_cast<float>(row + variable_.offsets[part]) + add);
      PullPartReply reply;
      reply.values = *Tensor::Copy<float>(Shape{static_cast<int64_t>(rows.size()), 2}, values);
      reply.version = version;
      cache.Keep(variable_, {{variable_.id, 0, static_cast<uint16_t>(part)}, Ids(rows)}, reply);
    }
  }
  std::vector<int64_t> Missing(RowCache& cache, const std::vector<int64_t>& ids) {
    return cache.Find(variable_, Ids(ids))->missing;
  }

  const VariableLayout variable_ = MakeVariable(1, "table", kRows, 2, {0, 1});
  MetricsRegistry registry_;
  RowCacheMetrics metrics_{registry_, 3};
};

TEST_F(RowCacheTest, GivesRowsInTheOrderAskedAndSaysWhichAreMissing) {
  RowCache cache(1 << 20, 0, metrics_);
  Keep(cache, {7, 60'000});
  const RowCache::Found found =
      *cache.Find(variable_, *Ids({60'000, 5, 7, 60'000}).Reshape(Shape{2, 2}));
  EXPECT_EQ(found.values.shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(found.missing, std::vector<int64_t>({1}));
  EXPECT_EQ(found.values.data_as<float>()[0], 60'000);
  EXPECT_EQ(found.values.data_as<float>()[4], 7);
  EXPECT_EQ(found.values.data_as<float>()[7], 60'000);
}

TEST_F(RowCacheTest, ARowGrowsTooOldWithTheStepsAndIsYoungAgainWhenItIsKeptAnew) {
  RowCache cache(1 << 20, 2, metrics_);
  Keep(cache, {4});
  for (int step = 0; step < 3; ++step, cache.BeginStep())
    EXPECT_TRUE(Missing(cache, {4}).empty()) << step;
  EXPECT_EQ(Missing(cache, {4}).size(), 1u);
  Keep(cache, {4}, 0.5f);
  const RowCache::Found found = *cache.Find(variable_, Ids({4}));
  EXPECT_TRUE(found.missing.empty());
  EXPECT_EQ(found.values.data_as<float>()[1], 4.5f);
}

TEST_F(RowCacheTest, TellsTheOldestVersionOfEachShardThatRowsWereFoundOf) {
  RowCache cache(1 << 20, 9, metrics_);
  Keep(cache, {1, 60'000}, 0, 5);
  Keep(cache, {2}, 0, 8);
  EXPECT_EQ(cache.Find(variable_, Ids({2}))->oldest, (std::map<uint16_t, uint64_t>{{0, 8}}));
  EXPECT_EQ(cache.Find(variable_, Ids({2, 1, 60'000}))->oldest,
            (std::map<uint16_t, uint64_t>{{0, 5}, {1, 5}}));
}

TEST_F(RowCacheTest, ForgetsRowsVariablesAndAll) {
  RowCache cache(1 << 20, 9, metrics_);
  Keep(cache, {1, 2, 3});
  cache.Drop(variable_.id, Ids({2, 77}));
  EXPECT_EQ(Missing(cache, {1, 2, 3}), std::vector<int64_t>({1}));
  cache.Drop(VariableId(2));
  EXPECT_EQ(Missing(cache, {1, 2, 3}), std::vector<int64_t>({1}));
  cache.Drop(variable_.id);
  EXPECT_EQ(Missing(cache, {1, 3}).size(), 2u);
  Keep(cache, {1});
  cache.Clear();
  EXPECT_EQ(Missing(cache, {1}).size(), 1u);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST_F(RowCacheTest, ForgetsAVariableAloneHoweverItsRowsLieAmongOthers) {
  RowCache cache(1 << 20, 9, metrics_);
  const VariableLayout other = MakeVariable(2, "other", 100, 2, {0});
  for (int64_t id = 0; id < 50; ++id) {
    Keep(cache, {id});
    PullPartReply reply;
    reply.values = *Tensor::Copy<float>(Shape{1, 2}, std::vector<float>{7, 7});
    cache.Keep(other, {{other.id, 0, 0}, Ids({id})}, reply);
  }
  const int64_t bytes = cache.stats().bytes;
  cache.Drop(other.id);
  EXPECT_EQ(cache.stats().bytes, bytes / 2);
  EXPECT_EQ(Missing(cache, {0, 20, 49}).size(), 0u);
  EXPECT_EQ(cache.Find(other, Ids({0, 20, 49}))->missing.size(), 3u);
  cache.Drop(other.id);
  cache.Drop(variable_.id);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST_F(RowCacheTest, KeepsNoRowsOfAVariableOfWhichItIsToldSoOverAClearToo) {
  RowCache cache(1 << 20, 9, metrics_);
  Keep(cache, {1, 2});
  cache.NeverKeep(variable_.id);
  EXPECT_EQ(cache.stats().bytes, 0);
  for (int i = 0; i < 2; ++i, cache.Clear()) {
    Keep(cache, {1, 2});
    EXPECT_EQ(Missing(cache, {1, 2}).size(), 2u);
  }
}

TEST_F(RowCacheTest, AnOlderAnswerThatComesLateLeavesTheNewerRow) {
  RowCache cache(1 << 20, 9, metrics_);
  Keep(cache, {4}, 0.5f, 8);
  Keep(cache, {4, 5}, 0.25f, 5);
  const RowCache::Found found = *cache.Find(variable_, Ids({4, 5}));
  EXPECT_EQ(found.values.data_as<float>()[0], 4.5f);
  EXPECT_EQ(found.values.data_as<float>()[2], 5.25f);
  EXPECT_EQ(cache.Find(variable_, Ids({4}))->oldest, (std::map<uint16_t, uint64_t>{{0, 8}}));
}

TEST_F(RowCacheTest, WithoutMemoryForTheValuesNothingIsFound) {
  RowCache cache(1 << 20, 9, metrics_);
  const VariableLayout huge = MakeVariable(3, "huge", 4, int64_t{1} << 59, {0});
  EXPECT_FALSE(cache.Find(huge, Ids({1, 2, 3, 1, 2, 3})).ok());
  EXPECT_EQ(cache.stats().misses, 0);
}

TEST_F(RowCacheTest, AReplyThatDoesNotFitIsIgnored) {
  RowCache cache(1 << 20, 9, metrics_);
  PullPartReply reply;
  reply.values = *Tensor::Copy<float>(Shape{1, 1}, std::vector<float>{1});
  cache.Keep(variable_, {{variable_.id, 0, 0}, Ids({1})}, reply);
  cache.Keep(variable_, {{variable_.id, 0, 0}, std::nullopt}, reply);
  EXPECT_EQ(cache.stats().bytes, 0);
}

TEST_F(RowCacheTest, NeverTakesMoreThanItIsGivenAndARowThatIsLargerIsNotKept) {
  RowCache cache(2'000, 9, metrics_), tiny(10, 9, metrics_);
  Random random(5);
  for (int i = 0; i < 1'000; ++i) {
    Keep(cache, {static_cast<int64_t>(random.Below(kRows))});
    ASSERT_LE(cache.stats().bytes, 2'000);
  }
  EXPECT_GT(cache.stats().bytes, 1'500);
  const int64_t before = cache.stats().evictions;
  EXPECT_LT(before, 10) << "hardly any row was pulled twice";
  for (int i = 0; i < 2; ++i) Keep(cache, {70'000});
  EXPECT_EQ(cache.stats().evictions, before + 1);
  EXPECT_TRUE(Missing(cache, {70'000}).empty());
  Keep(tiny, {1});
  EXPECT_EQ(tiny.stats().bytes, 0);
}

TEST_F(RowCacheTest, WhatIsTooOldMakesRoomForWhatComes) {
  RowCache cache(10 * (8 + 168), 1, metrics_);
  for (int64_t step = 0; step < 10; ++step, cache.BeginStep()) {
    const std::vector<int64_t> ids = {step * 4, step * 4 + 1, step * 4 + 2, step * 4 + 3};
    Keep(cache, ids);
    EXPECT_TRUE(Missing(cache, ids).empty()) << step;
  }
  EXPECT_EQ(cache.stats().evictions, 0);
}

TEST_F(RowCacheTest, CountsTheHitsOfLaterStepsApart) {
  RowCache cache(1 << 20, 1, metrics_);
  Keep(cache, {4});
  for (int step = 0; step < 3; ++step, cache.BeginStep()) Missing(cache, {4, 4});
  EXPECT_EQ(cache.stats().hits, 4);
  EXPECT_EQ(cache.stats().later_hits, 2);
}

TEST_F(RowCacheTest, IsAMapWithAges) {
  const uint64_t seed = 17;
  Random random(seed);
  RowCache cache(1 << 20, 3, metrics_);
  struct Row {
    float add = 0;
    int step = 0;
  };
  std::map<int64_t, Row> model;
  for (int step = 0; step < 500; ++step, cache.BeginStep()) {
    std::set<int64_t> ids;
    for (int i = 0; i < 8; ++i) ids.insert(static_cast<int64_t>(random.Below(40)) * 2'001);
    const std::vector<int64_t> asked(ids.begin(), ids.end());
    const RowCache::Found found = *cache.Find(variable_, Ids(asked));
    std::vector<int64_t> missing, pulled;
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto row = model.find(asked[i]);
      if (row == model.end() || step - row->second.step > 3) {
        missing.push_back(static_cast<int64_t>(i)), pulled.push_back(asked[i]);
      } else {
        ASSERT_EQ(found.values.data_as<float>()[2 * i],
                  static_cast<float>(asked[i]) + row->second.add)
            << "seed " << seed << ", step " << step;
      }
    }
    ASSERT_EQ(found.missing, missing) << "seed " << seed << ", step " << step;
    Keep(cache, pulled, static_cast<float>(step) / 4);
    for (const int64_t id : pulled) model[id] = {static_cast<float>(step) / 4, step};
    const int64_t dropped = static_cast<int64_t>(random.Below(40)) * 2'001;
    cache.Drop(variable_.id, Ids({dropped}));
    model.erase(dropped);
  }
}

int64_t ZipfId(Random& random) {
  const auto rank =
      static_cast<int64_t>(std::exp(random.Uniform() * std::log(static_cast<double>(kRows))));
  return std::min(rank, kRows - 1);
}

// The cache has room for 1 % of the rows. Ids follow Zipf's law, with an occasional pass over rows
// that nobody reads again. The ceiling is a cache that holds the 1 % of rows that are read most.
TEST_F(RowCacheTest, KeepsTheHotRowsOfAZipfLaw) {
  constexpr int64_t kRoom = kRows / 100;
  RowCache cache(kRoom * (8 + 168), 1 << 30, metrics_);
  Random random(3);
  int64_t asked = 0, ideal = 0, scanned = 0;
  for (int step = 0; step < 1'500; ++step, cache.BeginStep()) {
    std::vector<int64_t> ids;
    for (int i = 0; i < 256; ++i) ids.push_back(ZipfId(random));
    for (int i = 0; i < 64; ++i) ids.push_back(kRows / 2 + (++scanned * 7'919) % (kRows / 2));
    const int64_t hits = cache.stats().hits;
    std::vector<int64_t> pulled;
    for (const int64_t place : Missing(cache, ids))
      pulled.push_back(ids[static_cast<size_t>(place)]);
    Keep(cache, pulled);
    if (step < 500) continue;  // until the cache is full
    asked += cache.stats().hits - hits;
    ideal += std::count_if(ids.begin(), ids.end(), [](int64_t id) { return id <= kRoom; });
  }
  std::cout << "hits " << asked << " of " << ideal << " hits of the best choice of rows\n";
  EXPECT_GT(asked, ideal * 9 / 10);
}

TEST_F(RowCacheTest, CountsForMachinesToRead) {
  {
    RowCache cache(2'000, 9, metrics_);
    Keep(cache, {1});
    Missing(cache, {1, 2, 1});
    EXPECT_EQ(registry_.GetGauge("divvy_row_cache_bytes", "", {{"task", "worker/3"}}).value(),
              8 + 168);
  }
  EXPECT_EQ(registry_.GetCounter("divvy_row_cache_hits_total", "", {{"task", "worker/3"}}).value(),
            2u);
  EXPECT_EQ(
      registry_.GetCounter("divvy_row_cache_misses_total", "", {{"task", "worker/3"}}).value(), 1u);
  EXPECT_EQ(
      registry_.GetCounter("divvy_row_cache_evictions_total", "", {{"task", "worker/3"}}).value(),
      0u);
  EXPECT_EQ(registry_.GetGauge("divvy_row_cache_bytes", "", {{"task", "worker/3"}}).value(), 0)
      << "with its session";
}

}  // namespace
}  // namespace divvy
