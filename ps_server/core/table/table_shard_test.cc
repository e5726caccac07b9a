#include "ps_server/core/table/table_shard.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kWidth = 2;

TableFormat FormatOf(TableOptions options) {
  return TableFormat({/*job_seed=*/3, "items", Shape({kTableBuckets, kWidth})},
                     RandomUniform{-1, 1}, std::move(options), kWidth, SlotsOf(Adagrad{0.1}));
}

std::vector<int64_t> InOrder(std::vector<int64_t> keys) {
  std::sort(keys.begin(), keys.end(),
            [](int64_t a, int64_t b) { return TableOrder(MixKey(a)) < TableOrder(MixKey(b)); });
  return keys;
}

// A table in parts, as parameter servers have it.
class Table {
 public:
  Table(TableOptions options, int parts) {
    const int64_t each = kTableBuckets / parts, rest = kTableBuckets % parts;
    for (int64_t part = 0, first = 0; part < parts; ++part) {
      const int64_t end = first + each + (part < rest ? 1 : 0);
      parts_.push_back(std::make_unique<TableShard>(FormatOf(options), first, end));
      first = end;
    }
  }
  // A step with a gradient of `gradient` for each key.
  TableCounts Step(const std::vector<int64_t>& keys, float gradient, const TableStamp& stamp) {
    TableCounts counts;
    const std::vector<int64_t> ordered = InOrder(keys);
    auto next = ordered.begin();
    for (const auto& part : parts_) {
      std::vector<int64_t> mine;
      while (next != ordered.end() && BucketOf(MixKey(*next)) < part->end_bucket())
        mine.push_back(*next++);
      const std::vector<TableKey> checked =
          *CheckKeys(mine, part->first_bucket(), part->end_bucket());
      const std::vector<float> gradients(mine.size() * kWidth, gradient);
      for (const TableShard::Piece& piece : part->PiecesOf(checked)) {
        part->With(piece.segment, [&](TableSegment& segment) {
          counts +=
              segment.ApplyGradients(piece.Of(checked), gradients.data() + piece.begin * kWidth,
                                     StepOf(Adagrad{0.1}, 0), stamp);
        });
      }
    }
    return counts;
  }
  int64_t Evict(uint32_t now) {
    int64_t evicted = 0;
    for (const auto& part : parts_) {
      for (int64_t segment = 0; segment < part->segments(); ++segment)
        part->With(segment, [&](TableSegment& locked) {
          evicted += locked.Evict(0, kTableBuckets, now).evicted;
        });
    }
    return evicted;
  }
  // key -> count, tick, bytes behind the head
  using Rows = std::map<int64_t, std::tuple<uint32_t, uint32_t, std::string>>;
  Rows rows() {
    Rows rows;
    for (const auto& part : parts_) {
      for (int64_t segment = 0; segment < part->segments(); ++segment) {
        part->With(segment, [&](const TableSegment& locked) {
          const RowSlabs& slabs = locked.slabs();
          for (uint32_t row = 0; row < slabs.end(); ++row) {
            if (slabs.is_free(row)) continue;
            const RowHead& head = slabs.head(row);
            const auto bytes = static_cast<size_t>(part->format().row_bytes);
            rows[head.key] = {head.count, head.tick,
                              std::string(slabs.at(row) + sizeof head, bytes - sizeof head)};
          }
        });
      }
    }
    return rows;
  }
  TableShard& part(size_t part) { return *parts_[part]; }

 private:
  std::vector<std::unique_ptr<TableShard>> parts_;
};

TEST(CheckKeys, NamesTheKey) {
  const std::vector<int64_t> keys = InOrder({1, 2, 3, 4});
  EXPECT_TRUE(CheckKeys(keys, 0, kTableBuckets).ok());
  EXPECT_TRUE(CheckKeys({}, 0, 1).ok());
  EXPECT_THAT(CheckKeys({7, 7}, 0, kTableBuckets).status().message(),
              HasSubstr("key 7 is not behind key 7"));
  const std::vector<int64_t> wrong(keys.rbegin(), keys.rend());
  EXPECT_THAT(CheckKeys(wrong, 0, kTableBuckets).status().message(), HasSubstr("is not behind"));
  const int64_t bucket = BucketOf(MixKey(1));
  EXPECT_THAT(CheckKeys({1}, bucket + 1, kTableBuckets).status().message(),
              HasSubstr("key 1 is in bucket"));
  EXPECT_FALSE(CheckKeys({1}, 0, bucket).ok());
  EXPECT_TRUE(CheckKeys({1}, bucket, bucket + 1).ok());
}

TEST(TableShard, RowsAreTheSameForAnyNumberOfParts) {
  // Many keys of few buckets, so that they collide in a filter.
  std::vector<int64_t> candidates;
  for (int64_t key = 0; candidates.size() < 200; ++key) {
    if (BucketOf(MixKey(key)) % 8192 < 2) candidates.push_back(key);
  }
  const Admission admissions[] = {AdmitAlways{}, AdmitAfter{2}, AdmitAfter{2, 1 << 20},
                                  AdmitWithProbability{0.5}};
  const Eviction evictions[] = {EvictNever{}, EvictUnusedFor{absl::Minutes(7)},
                                EvictBelowNorm{0.5f}};
  for (const Admission& admission : admissions) {
    for (const Eviction& eviction : evictions) {
      SCOPED_TRACE(::testing::Message() << admission.index() << " " << eviction.index());
      TableOptions options;
      options.admission = admission;
      options.eviction = eviction;
      Table one(options, 1), three(options, 3), many(options, 200);
      Random random(5);
      for (uint32_t step = 1; step <= 40; ++step) {
        std::vector<int64_t> keys;
        for (const int64_t key : candidates) {
          if (random.Chance(0.2)) keys.push_back(key);
        }
        const float gradient = static_cast<float>(random.Uniform());
        for (Table* table : {&one, &three, &many}) table->Step(keys, gradient, {step, step});
        if (step % 5 != 0) continue;
        const int64_t evicted = one.Evict(step);
        EXPECT_EQ(three.Evict(step), evicted);
        EXPECT_EQ(many.Evict(step), evicted);
      }
      EXPECT_FALSE(one.rows().empty());
      EXPECT_EQ(one.rows(), three.rows());
      EXPECT_EQ(one.rows(), many.rows());
    }
  }
}

TEST(TableShard, PartsHaveAllRowsOfTheLimitTogether) {
  for (const int64_t most : {1, 100, 10'000}) {
    for (const int parts : {1, 3, 200}) {
      SCOPED_TRACE(::testing::Message() << most << " rows in " << parts << " parts");
      TableOptions options;
      options.max_rows = most;
      Table table(options, parts);
      TableCounts counts;
      for (int64_t step = 0; step < 15; ++step) {
        std::vector<int64_t> keys;
        for (int64_t key = step * 2000; key < (step + 1) * 2000; ++key) keys.push_back(key);
        counts += table.Step(keys, 1, {1, 1});
      }
      EXPECT_EQ(counts.made, most);
      EXPECT_EQ(counts.made + counts.refused, 30'000);
    }
  }
}

TEST(TableShard, StatsAreTheSumsOfTheSegmentsAndOfWhatWritesNoted) {
  for (const int parts : {1, 3}) {
    SCOPED_TRACE(parts);
    TableOptions options{AdmitAfter{2}, EvictUnusedFor{absl::Minutes(3)}};
    options.max_rows = 400;
    Table table(options, parts);
    EXPECT_EQ(table.part(0).stats().rows, 0);
    Random random(11);
    TableCounts noted;
    for (uint32_t step = 1; step <= 30; ++step) {
      std::vector<int64_t> keys;
      for (int64_t key = 0; key < 1000; ++key) {
        if (random.Chance(0.1)) keys.push_back(key);
      }
      const TableCounts counts = table.Step(keys, 1, {step, step});
      table.part(0).Note(counts);
      noted += counts;
      if (step % 10 == 0) table.Evict(step);
    }
    int64_t all_rows = 0;
    for (int part = 0; part < parts; ++part) {
      TableShard& shard = table.part(static_cast<size_t>(part));
      int64_t rows = 0, waiting = 0, bytes = 0;
      for (int64_t segment = 0; segment < shard.segments(); ++segment) {
        shard.With(segment, [&](const TableSegment& locked) {
          rows += locked.rows();
          waiting += locked.waiting();
          bytes += locked.bytes();
        });
      }
      EXPECT_GT(rows, 0);
      EXPECT_GT(waiting, 0);
      EXPECT_EQ(shard.stats().rows, rows);
      EXPECT_EQ(shard.stats().waiting, waiting);
      EXPECT_EQ(shard.stats().bytes, bytes);
      all_rows += rows;
    }
    EXPECT_EQ(all_rows, static_cast<int64_t>(table.rows().size()));
    EXPECT_GT(noted.refused, 0);
    EXPECT_EQ(table.part(0).stats().admitted, noted.made);
    EXPECT_EQ(table.part(0).stats().refused, noted.refused);
    EXPECT_EQ(table.part(0).stats().evicted, noted.evicted);
  }
}

TEST(TableShard, OtherOptionsAreThoseOfEverySegmentAndCountRefusedKeysAnew) {
  TableOptions options;
  options.max_rows = 100;
  Table table(options, 1);
  TableShard& shard = table.part(0);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 300; ++key) keys.push_back(key);
  shard.Note(table.Step(keys, 1, {1, 1}));
  EXPECT_EQ(shard.stats().refused, 200);
  const auto change = [&](const TableOptions& to) {
    shard.ChangeOptions(to);
    for (int64_t segment = 0; segment < shard.segments(); ++segment) shard.ChangeSegment(segment);
    EXPECT_TRUE(*shard.options() == to);
  };
  options.max_rows = 250;
  change(options);
  EXPECT_EQ(shard.stats().refused, 0);
  EXPECT_EQ(shard.stats().admitted, 100) << "the rows are still there";
  shard.Note(table.Step(keys, 1, {2, 2}));
  EXPECT_EQ(shard.stats().rows, 250);
  EXPECT_EQ(shard.stats().refused, 50);
  options.max_rows = 0;
  options.eviction = EvictUnusedFor{absl::Minutes(5)};
  change(options);
  shard.Note(table.Step(keys, 1, {3, 3}));
  EXPECT_EQ(shard.stats().rows, 300);
  EXPECT_EQ(table.Evict(8), 300);
  // Fewer than it has: it gets no row until enough are gone.
  options = {};
  shard.Note(table.Step(keys, 1, {9, 9}));
  options.max_rows = 10;
  change(options);
  EXPECT_EQ(shard.stats().rows, 300);
  EXPECT_EQ(table.Step({1000}, 1, {10, 10}).refused, 1);
}

TEST(TableShard, BeginsSmallAndGrowsWithItsRows) {
  TableShard shard(FormatOf({}), 0, kTableBuckets);
  EXPECT_EQ(shard.stats().bytes, 0);
  const auto add = [&](int64_t first, int64_t end) {
    std::vector<int64_t> sequential;
    for (int64_t key = first; key < end; ++key) sequential.push_back(key);
    const std::vector<TableKey> keys = *CheckKeys(InOrder(sequential), 0, kTableBuckets);
    const std::vector<float> ones(keys.size() * kWidth, 1.0f);
    int64_t made = 0;
    for (const TableShard::Piece& piece : shard.PiecesOf(keys))
      shard.With(piece.segment, [&](TableSegment& segment) {
        made += segment
                    .ApplyValues(piece.Of(keys), ones.data() + piece.begin * kWidth,
                                 WriteOp::kScatterAdd, {1, 1})
                    .made;
      });
    return made;
  };
  EXPECT_EQ(add(0, 1000), 1000);
  EXPECT_LT(shard.stats().bytes, 200'000);
  // Sequential keys spread over the segments as random ones do.
  for (int64_t first = 1000; first < 1'000'000; first += 111'000)
    EXPECT_EQ(add(first, first + 111'000), 111'000);
  EXPECT_EQ(add(0, 1000), 0) << "they have rows already";
  EXPECT_EQ(shard.stats().rows, 1'000'000);
  EXPECT_LT(shard.stats().bytes, 1'000'000 * (shard.format().row_bytes + 14));
  for (int64_t i = 0; i < shard.segments(); ++i)
    shard.With(i, [&](const TableSegment& segment) {
      EXPECT_NEAR(static_cast<double>(segment.rows()), 1e6 / 256, 400);
    });
}

// TSan looks at this one, too.
TEST(TableShard, ThreadsWriteAndReadSideBySide) {
  Table table({}, 1);
  TableShard& shard = table.part(0);
  constexpr int kThreads = 4, kSteps = 50;
  std::vector<int64_t> all;
  for (int64_t key = 0; key < 2000; ++key) all.push_back(key);
  const std::vector<TableKey> keys = *CheckKeys(InOrder(all), 0, kTableBuckets);
  const std::vector<float> ones(keys.size() * kWidth, 1.0f);
  ThreadPoolExecutor executor(kThreads);
  Mutex mu;
  CondVar all_ended;
  int ended = 0;
  for (int i = 0; i < kThreads; ++i) {
    executor.Post([&] {
      std::vector<float> out(keys.size() * kWidth);
      for (int step = 0; step < kSteps; ++step) {
        for (const TableShard::Piece& piece : shard.PiecesOf(keys)) {
          const absl::Span<const TableKey> some = piece.Of(keys);
          shard.With(piece.segment, [&](TableSegment& segment) {
            segment.ApplyValues(some, ones.data() + piece.begin * kWidth, WriteOp::kScatterAdd,
                                {1, 1});
          });
          shard.With(piece.segment, [&](TableSegment& segment) {
            segment.Read(some, out.data() + piece.begin * kWidth);
          });
        }
      }
      MutexLock lock(mu);
      ++ended;
      all_ended.NotifyAll();
    });
  }
  MutexLock lock(mu);
  all_ended.Wait(mu, [&] { return ended == kThreads; });
  for (const auto& [key, row] : table.rows()) EXPECT_EQ(std::get<0>(row), kThreads * kSteps) << key;
  EXPECT_EQ(shard.stats().rows, 2000);
}

}  // namespace
}  // namespace divvy
