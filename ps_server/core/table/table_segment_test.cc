#include "ps_server/core/table/table_segment.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "initializers/key_row.h"
#include "kernels/halves.h"

namespace divvy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kWidth = 3;
const RandomNormal kInitial{0, 0.5f};

TableKey KeyOf(int64_t key) { return {key, MixKey(key)}; }
std::vector<TableKey> KeysOf(const std::vector<int64_t>& keys) {
  std::vector<TableKey> all;
  for (const int64_t key : keys) all.push_back(KeyOf(key));
  return all;
}

TableFormat FormatOf(TableOptions options, const Optimizer& optimizer = Sgd{0.5},
                     Initializer initializer = kInitial, DType dtype = DType::kFloat32) {
  return TableFormat({/*job_seed=*/7, "users", Shape({kTableBuckets, kWidth})},
                     std::move(initializer), std::move(options), kWidth, SlotsOf(optimizer), dtype);
}
std::vector<TableKey> InOrder(const std::vector<int64_t>& keys) {
  std::vector<TableKey> all = KeysOf(keys);
  std::sort(all.begin(), all.end(), [](const TableKey& a, const TableKey& b) {
    return TableOrder(a.mixed) < TableOrder(b.mixed);
  });
  return all;
}

// A segment of all buckets.
class Segment {
 public:
  explicit Segment(TableOptions options, Optimizer optimizer = Sgd{0.5},
                   int64_t most_rows = RowLimit::kNone,
                   std::shared_ptr<TableMemory> memory = std::make_shared<TableMemory>())
      : format_(FormatOf(std::move(options), optimizer)),
        optimizer_(std::move(optimizer)),
        limit_(most_rows, std::move(memory)),
        segment_(format_, 0, kTableBuckets, limit_) {}

  // A step with gradients of 1 for these keys.
  TableCounts Step(const std::vector<int64_t>& keys, uint32_t tick = 0) {
    const std::vector<float> ones(keys.size() * kWidth, 1.0f);
    return segment_.ApplyGradients(InOrder(keys), ones.data(), StepOf(optimizer_, 0),
                                   {++entry_, tick});
  }
  std::vector<float> Read(int64_t key) const {
    std::vector<float> values(kWidth);
    segment_.Read(KeysOf({key}), values.data());
    return values;
  }
  bool Has(int64_t key) const { return segment_.Find(KeyOf(key)) != nullptr; }
  uint32_t CountOf(int64_t key) const {
    return reinterpret_cast<const RowHead*>(segment_.Find(KeyOf(key)))->count;
  }
  std::set<int64_t> Keys() const {
    std::set<int64_t> keys;
    for (uint32_t row = 0; row < segment_.slabs().end(); ++row) {
      if (!segment_.slabs().is_free(row)) keys.insert(segment_.slabs().head(row).key);
    }
    return keys;
  }
  TableSegment& segment() { return segment_; }
  const TableFormat& format() const { return format_; }

 private:
  const TableFormat format_;
  const Optimizer optimizer_;
  uint64_t entry_ = 0;
  RowLimit limit_;
  TableSegment segment_;
};

std::vector<float> InitialOf(int64_t key) {
  std::vector<float> values(kWidth);
  FillKeyRow(kInitial, {7, "users", Shape({kTableBuckets, kWidth})}, key, absl::MakeSpan(values));
  return values;
}
std::vector<float> Plus(std::vector<float> values, float more) {
  for (float& value : values) value += more;
  return values;
}

// ---- rows are made by writes --------------------------------------------------------------------

TEST(TableSegment, AReadMakesNoRow) {
  Segment segment({});
  EXPECT_EQ(segment.Read(5), InitialOf(5));
  EXPECT_EQ(segment.segment().rows(), 0);
  EXPECT_NE(segment.Read(5), segment.Read(6));
}

TEST(TableSegment, AnAbsentKeyMayReadZeros) {
  TableOptions options;
  options.absent = TableOptions::Absent::kZeros;
  Segment segment(options);
  EXPECT_THAT(segment.Read(5), Each(0.0f));
  segment.Step({5});
  EXPECT_EQ(segment.Read(5), Plus(InitialOf(5), -0.5f));
}

TEST(TableSegment, AWriteMakesARowWithItsInitialValue) {
  Segment segment({});
  const TableCounts counts = segment.Step(
      {5, -1, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(counts.made, 4);
  EXPECT_EQ(segment.segment().rows(), 4);
  for (const int64_t key : segment.Keys())
    EXPECT_EQ(segment.Read(key), Plus(InitialOf(key), -0.5f)) << key;
}

TEST(TableSegment, ValuesAreThoseOfAVariableWithAllKeysAsRows) {
  const Optimizer optimizers[] = {Sgd{0.1},      Momentum{0.1, 0.9},   Adagrad{0.1},
                                  Adam{0.01},    RowwiseAdagrad{0.1},  Ftrl{0.1},
                                  RmsProp{0.01}, GroupFtrl{0.1, 0.02f}};
  for (const Optimizer& optimizer : optimizers) {
    SCOPED_TRACE(OptimizerName(StepOf(optimizer, 0).kind));
    constexpr int64_t kRows = 200;
    const TableFormat format = FormatOf({}, optimizer);
    RowLimit limit(RowLimit::kNone);
    TableSegment segment(format, 0, kTableBuckets, limit);
    // The variable.
    std::vector<float> values(kRows * kWidth);
    ASSERT_TRUE(
        FillRows(kInitial, {7, "users", Shape({kRows, kWidth})}, 0, kRows, absl::MakeSpan(values))
            .ok());
    ParameterBlock block;
    block.values = absl::MakeSpan(values);
    block.width = kWidth;
    std::vector<std::vector<float>> slots;
    std::vector<std::vector<int32_t>> counts;
    for (const SlotSpec& slot : format.slots) {
      slots.emplace_back(kRows * (slot.kind == SlotSpec::Kind::kValues ? kWidth : 1),
                         slot.initial_value);
      counts.emplace_back(kRows, static_cast<int32_t>(slot.initial_value));
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      if (format.slots[i].kind == SlotSpec::Kind::kRowCounts)
        block.slots[i].counts = absl::MakeSpan(counts[i]);
      else
        block.slots[i].values = absl::MakeSpan(slots[i]);
    }
    Random random(3);
    for (uint64_t entry = 1; entry <= 30; ++entry) {
      std::set<int64_t> named;
      while (named.size() < 40) named.insert(static_cast<int64_t>(random.Below(kRows)));
      const std::vector<int64_t> keys(named.begin(), named.end());
      std::vector<float> gradients(keys.size() * kWidth);
      for (float& gradient : gradients) gradient = static_cast<float>(random.Uniform() - 0.5);
      const OptimizerStep step = StepOf(optimizer, static_cast<int64_t>(entry));
      ApplySparse(step, block, keys, gradients);
      segment.ApplyGradients(KeysOf(keys), gradients.data(), step, {entry, 0});
    }
    for (int64_t key = 0; key < kRows; ++key) {
      std::vector<float> row(kWidth);
      segment.Read(KeysOf({key}), row.data());
      EXPECT_EQ(row, std::vector<float>(values.begin() + key * kWidth,
                                        values.begin() + (key + 1) * kWidth));
    }
  }
}

TEST(TableSegment, ScattersMakeRowsToo) {
  Segment segment({});
  const std::vector<float> tens(kWidth, 10.0f);
  segment.segment().ApplyValues(KeysOf({1}), tens.data(), WriteOp::kScatterUpdate, {1, 0});
  segment.segment().ApplyValues(KeysOf({2}), tens.data(), WriteOp::kScatterAdd, {2, 0});
  EXPECT_THAT(segment.Read(1), Each(10.0f));
  EXPECT_EQ(segment.Read(2), Plus(InitialOf(2), 10));
}

TEST(TableSegment, AnAssignmentAdmitsAKeyAtOnceAndAScatterDoesNot) {
  TableOptions options;
  options.admission = AdmitAfter{5};
  Segment segment(options, Adagrad{0.1});
  segment.Step({2});
  const std::vector<float> tens(2 * kWidth, 10.0f);
  segment.segment().ApplyValues(KeysOf({3}), tens.data(), WriteOp::kScatterUpdate, {1, 0});
  EXPECT_FALSE(segment.Has(3));
  const TableCounts counts =
      segment.segment().ApplyValues(KeysOf({1, 2}), tens.data(), WriteOp::kAssign, {2, 7});
  EXPECT_EQ(counts.made, 2);
  EXPECT_EQ(segment.segment().waiting(), 1) << "only key 3 waits";
  for (const int64_t key : {1, 2}) {
    EXPECT_THAT(segment.Read(key), Each(10.0f));
    EXPECT_EQ(segment.CountOf(key), 1);
  }
}

TEST(TableSegment, AnAssignmentMeetsTheLimitOfRows) {
  Segment segment({}, Sgd{0.5}, /*most_rows=*/2);
  const std::vector<float> tens(3 * kWidth, 10.0f);
  const TableCounts counts =
      segment.segment().ApplyValues(KeysOf({1, 2, 3}), tens.data(), WriteOp::kAssign, {1, 0});
  EXPECT_EQ(counts.made, 2);
  EXPECT_EQ(counts.refused, 1);
}

TEST(TableSegment, CountsAreSetWhereThereIsARow) {
  Segment segment({});
  segment.Step({1, 2, 3});
  segment.segment().SetCounts(KeysOf({1, 2, 3, 4}),
                              {41, -5, std::numeric_limits<int64_t>::max(), 9});
  EXPECT_EQ(segment.CountOf(1), 41);
  EXPECT_EQ(segment.CountOf(2), 0);
  EXPECT_EQ(segment.CountOf(3), std::numeric_limits<uint32_t>::max());
  EXPECT_FALSE(segment.Has(4));
  segment.Step({1});
  EXPECT_EQ(segment.CountOf(1), 42);
}

TEST(TableSegment, ACountThatIsSetWhileACheckpointIsWrittenIsNotInIt) {
  Segment segment({});
  segment.Step({1});
  std::atomic<int64_t> kept_bytes{0};
  FrozenSegment frozen(kept_bytes);
  segment.segment().Freeze(&frozen);
  segment.segment().SetCounts(KeysOf({1}), {41});
  const auto rows = segment.segment().TakeRows(frozen);
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(reinterpret_cast<const RowHead*>(rows->rows.data())->count, 1);
  EXPECT_EQ(segment.CountOf(1), 41);
}

TEST(TableSegment, TheLargestTickIsNoFreeRow) {
  Segment segment({});
  segment.Step({5}, std::numeric_limits<uint32_t>::max());
  EXPECT_THAT(segment.Keys(), ElementsAre(5));
}

// Bits 16 to 47 of their mixed keys are equal, so the index alone cannot tell them apart.
TEST(TableSegment, KeysThatLookAlikeInTheIndexHaveRowsOfTheirOwn) {
  const auto key_of = [](uint64_t mixed) {
    // MixKey backwards.
    const auto undo_shift = [](uint64_t value, int shift) {
      uint64_t result = value;
      for (int done = shift; done < 64; done += shift) result = value ^ (result >> shift);
      return result;
    };
    uint64_t key = undo_shift(mixed, 31) * 0x319642B2D24D8EC3u;
    key = undo_shift(key, 27) * 0x96DE1B173F119089u;
    return static_cast<int64_t>(undo_shift(key, 30) - 0x9E3779B97F4A7C15u);
  };
  std::vector<int64_t> keys;
  for (const uint64_t mixed : std::initializer_list<uint64_t>{
           0x0000'1234'5678'0000, 0x0001'1234'5678'0000, 0x0000'1234'5678'0001,
           0xFFFF'1234'5678'FFFF, 0x0000'FFFF'FFFF'0000, 0x0001'FFFF'FFFF'0000,
           0x0002'FFFF'FFFF'0000, 0x0000'0000'0000'0000, 0x0001'0000'0000'0000}) {
    keys.push_back(key_of(mixed));
    ASSERT_EQ(MixKey(keys.back()), mixed);
  }
  TableOptions options;
  options.admission = AdmitAfter{2};
  options.eviction = EvictUnusedFor{absl::Minutes(1)};
  Segment segment(options);
  segment.Step({keys[0], keys[4]}, 1);
  EXPECT_EQ(segment.Step({keys[1], keys[2], keys[3], keys[5]}, 1).made, 0);
  EXPECT_EQ(segment.Step(keys, 1).made, 6);
  EXPECT_EQ(segment.Step(keys, 1).made, 3);
  for (const int64_t key : keys) {
    EXPECT_EQ(segment.CountOf(key), key == keys[6] || key == keys[7] || key == keys[8] ? 2u : 3u);
  }
  for (size_t i = 0; i < keys.size(); ++i) segment.Step({keys[i]}, static_cast<uint32_t>(10 + i));
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, static_cast<uint32_t>(11 + i)).evicted, 1);
    for (size_t j = 0; j < keys.size(); ++j) EXPECT_EQ(segment.Has(keys[j]), j > i);
  }
}

TEST(TableSegment, CountsStepsAndKeepsTheLatestTick) {
  Segment segment({});
  segment.Step({5}, 100);
  segment.Step({5, 6}, 99);
  EXPECT_EQ(segment.CountOf(5), 2u);
  EXPECT_EQ(segment.CountOf(6), 1u);
  EXPECT_EQ(reinterpret_cast<const RowHead*>(segment.segment().Find(KeyOf(5)))->tick, 100u);
}

// ---- admission ----------------------------------------------------------------------------------

TEST(TableSegment, RecordsHaveTheCountAndTheTickOfARowAndNothingElse) {
  Segment segment({AdmitAfter{2}});
  segment.Step({5, 6}, 10);
  segment.Step({5}, 12);
  segment.Step({5}, 11);
  // More keys than are looked at together, in any order, and some of them twice.
  std::vector<int64_t> keys = {6, 5, -1, 5};
  for (int64_t key = 100; key < 120; ++key) keys.push_back(key);
  keys.push_back(5);
  std::vector<int64_t> records(keys.size() * 2, 7);
  segment.segment().ReadRecords(KeysOf(keys), records.data());
  for (size_t i = 0; i < keys.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "key " << keys[i] << " at " << i);
    EXPECT_EQ(records[2 * i], keys[i] == 5 ? 3 : -1) << "6 waits, and so has no row";
    EXPECT_EQ(records[2 * i + 1], keys[i] == 5 ? 12 : 0);
  }
  EXPECT_EQ(segment.segment().rows(), 1);
}

// ---- other options ------------------------------------------------------------------------------

std::shared_ptr<const TableOptions> Shared(TableOptions options) {
  return std::make_shared<const TableOptions>(std::move(options));
}

TEST(OtherOptions, ActFromTheNextWriteAndRead) {
  Segment segment({AdmitAfter{3}});
  segment.Step({5});
  segment.segment().SetOptions(Shared({AdmitAfter{2}}));
  EXPECT_EQ(segment.segment().waiting(), 1) << "it was counted in the same way";
  segment.Step({5, 6});
  EXPECT_EQ(segment.Keys(), std::set<int64_t>{5});
  EXPECT_EQ(segment.CountOf(5), 2u);
  TableOptions zeros{AdmitAlways(), EvictUnusedFor{absl::Minutes(5)}};
  zeros.absent = TableOptions::Absent::kZeros;
  segment.segment().SetOptions(Shared(zeros));
  EXPECT_EQ(segment.segment().waiting(), 0) << "no rule waits for the count of 6 any more";
  EXPECT_THAT(segment.Read(7), Each(0.0f));
  segment.Step({7}, 9);
  EXPECT_EQ(segment.Keys(), (std::set<int64_t>{5, 7}));
  EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 10).evicted, 1);
  EXPECT_EQ(segment.Keys(), std::set<int64_t>{7});
}

TEST(OtherOptions, AFilterOfAnotherSizeCountsAnew) {
  const auto memory = std::make_shared<TableMemory>();
  Segment segment({AdmitAfter{2, 1 << 20}}, Sgd{0.5}, RowLimit::kNone, memory);
  segment.Step({5});
  EXPECT_EQ(memory->bytes(), 1 << 20);
  segment.segment().SetOptions(Shared({AdmitAfter{2, 1 << 20}, EvictBelowNorm{1}}));
  EXPECT_EQ(memory->bytes(), 1 << 20) << "the same filter counts on";
  segment.segment().SetOptions(Shared({AdmitAfter{2, 2 << 20}}));
  EXPECT_EQ(memory->bytes(), 0);
  segment.Step({5});
  EXPECT_FALSE(segment.Has(5));
  segment.Step({5});
  EXPECT_TRUE(segment.Has(5));
}

TEST(OtherOptions, ACheckpointHasTheCountsOfItsMoment) {
  for (const int64_t counter_bytes : {0, 1 << 20}) {
    SCOPED_TRACE(counter_bytes);
    Segment segment({AdmitAfter{2, counter_bytes}});
    segment.Step({5});
    std::atomic<int64_t> kept{0};
    FrozenSegment frozen(kept);
    segment.segment().Freeze(&frozen);
    segment.segment().SetOptions(Shared({AdmitAlways()}));
    segment.Step({5});
    const std::optional<SegmentRows> rows = segment.segment().TakeRows(frozen);
    ASSERT_TRUE(rows.has_value());
    EXPECT_TRUE(rows->rows.empty());
    EXPECT_EQ(rows->waiting.size(), counter_bytes == 0 ? 1u : 0u);
    EXPECT_EQ(rows->filter.size(), static_cast<size_t>(counter_bytes));
  }
}

TEST(Admission, AfterSoManySteps) {
  TableOptions options;
  options.admission = AdmitAfter{3};
  Segment segment(options);
  EXPECT_EQ(segment.Step({5, 6}).waiting, 2);
  EXPECT_EQ(segment.Step({5}).waiting, 1);
  EXPECT_EQ(segment.segment().waiting(), 2);
  EXPECT_EQ(segment.Step({5}).made, 1);
  EXPECT_EQ(segment.segment().waiting(), 1);
  // Only the step that was applied has changed the row.
  EXPECT_EQ(segment.Read(5), Plus(InitialOf(5), -0.5f));
  EXPECT_EQ(segment.CountOf(5), 3u);
  EXPECT_FALSE(segment.Has(6));
}

TEST(Admission, ARowTakesTheLatestTickOfItsCount) {
  TableOptions options;
  options.admission = AdmitAfter{2};
  Segment segment(options);
  segment.Step({5}, 100);
  segment.Step({5}, 99);
  EXPECT_EQ(reinterpret_cast<const RowHead*>(segment.segment().Find(KeyOf(5)))->tick, 100u);
}

TEST(Admission, AfterOneStepIsAtOnce) {
  TableOptions options;
  options.admission = AdmitAfter{1};
  Segment segment(options);
  EXPECT_EQ(segment.Step({5}).made, 1);
}

TEST(Admission, AFilterAdmitsNoKeyTooLateAndFewTooEarly) {
  TableOptions options;
  options.admission = AdmitAfter{3, 4 << 20};
  Segment segment(options);
  constexpr int64_t kKeys = 100'000;
  int64_t early = 0;
  for (int64_t key = 0; key < kKeys; ++key) {
    early += segment.Step({key}).made;
    early += segment.Step({key}).made;
    segment.Step({key});
    ASSERT_TRUE(segment.Has(key)) << key;
  }
  EXPECT_LT(early, kKeys / 100);
  EXPECT_EQ(segment.segment().waiting(), 0);
}

TEST(Admission, ByChanceIsTheSameForEveryAttempt) {
  TableOptions options;
  options.admission = AdmitWithProbability{0.25};
  const TableFormat format = FormatOf(options);
  const std::vector<float> ones(kWidth, 1.0f);
  const auto keys_of = [&](uint64_t entry) {
    RowLimit limit(RowLimit::kNone);
    TableSegment segment(format, 0, kTableBuckets, limit);
    std::set<int64_t> keys;
    for (int64_t key = 0; key < 4000; ++key) {
      if (segment.ApplyGradients(KeysOf({key}), ones.data(), StepOf(Sgd{1.0}, 0), {entry, 0}).made)
        keys.insert(key);
    }
    return keys;
  };
  EXPECT_EQ(keys_of(1), keys_of(1));
  EXPECT_NE(keys_of(1), keys_of(2));
  EXPECT_NEAR(static_cast<double>(keys_of(3).size()), 1000, 100);
}

// ---- a full table -------------------------------------------------------------------------------

TEST(FullTable, MayBeFullOfMemory) {
  const auto memory = std::make_shared<TableMemory>(20'000);
  memory->SetOthers(4'000);
  for (const TableOptions& options : {TableOptions(), TableOptions{AdmitAfter{3}}}) {
    Segment table(options, Sgd{0.5}, RowLimit::kNone, memory);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 10'000; ++key) keys.push_back(key);
    const TableCounts counts = table.Step(keys);
    EXPECT_GT(counts.made + counts.waiting, 100);
    EXPECT_EQ(counts.made + counts.waiting + counts.refused, 10'000);
    EXPECT_GT(memory->bytes(), 8'000);
    EXPECT_LE(memory->bytes(), 16'000);
  }
  EXPECT_EQ(memory->bytes(), 0);
  // A filter that finds no memory admits nothing, and does not end the process.
  Segment filtered({AdmitAfter{2, int64_t{1} << 38}}, Sgd{0.5}, RowLimit::kNone, memory);
  EXPECT_EQ(filtered.Step({1}).refused, 1);
}

TEST(FullTable, AboveItsLimitAWriteEvictsOnce) {
  Segment table({AdmitAlways(), EvictLeastRecent(), {}, 50}, Sgd{0.5}, /*most_rows=*/50);
  const std::vector<char> values(kWidth * sizeof(float));
  for (int64_t key = 0; key < 200; ++key)
    ASSERT_TRUE(table.segment().Restore(KeyOf(key), {key, 1, 1}, values, {}));
  const TableCounts counts = table.Step({1'001, 1'002, 1'003, 1'004});
  EXPECT_EQ(counts.evicted, 10);
  EXPECT_EQ(counts.refused, 4);
}

TEST(Freeze, OfAnEarlierCheckpointDoesNotTakeTheRowsOfALaterOne) {
  std::atomic<int64_t> bytes{0};
  Segment table({});
  table.Step({1});
  FrozenSegment first(bytes), second(bytes);
  table.segment().Freeze(&first);
  table.segment().Freeze(&second);
  EXPECT_FALSE(table.segment().TakeRows(first).has_value());
  table.Step({1});
  table.Step({2});
  EXPECT_GT(bytes, 0);
  const auto rows = table.segment().TakeRows(second);
  ASSERT_TRUE(rows.has_value());
  ASSERT_EQ(rows->rows.size(), static_cast<size_t>(table.format().row_bytes));
  EXPECT_EQ(reinterpret_cast<const RowHead*>(rows->rows.data())->count, 1u);
  EXPECT_EQ(bytes, 0) << "the copies are freed";
}

TEST(Freeze, GivesTheRowsOfItsMomentWhileWritesComeBetweenItsParts) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    std::atomic<int64_t> bytes{0};
    TableOptions options;
    options.admission = AdmitAfter{2};
    options.eviction = EvictUnusedFor{absl::Minutes(3)};
    Segment table(options);
    // So many keys that they are taken in several parts.
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 20'000; ++key) keys.push_back(key * 3);
    uint32_t tick = 1;
    const auto write_some = [&] {
      std::vector<int64_t> some;
      for (const int64_t key : keys) {
        if (random.Chance(0.3)) some.push_back(key);
      }
      table.Step(some, ++tick);
    };
    for (int i = 0; i < 4; ++i) write_some();
    std::map<int64_t, std::vector<float>> rows;
    std::map<int64_t, uint32_t> counts, waiting;
    for (const int64_t key : table.Keys()) {
      rows[key] = table.Read(key);
      counts[key] = table.CountOf(key);
    }
    const RowSlabs& slabs = table.segment().waiting_slabs();
    for (uint32_t row = 0; row < slabs.end(); ++row) {
      if (!slabs.is_free(row)) waiting[slabs.head(row).key] = slabs.head(row).count;
    }
    FrozenSegment frozen(bytes);
    table.segment().Freeze(&frozen);
    int parts = 0;
    for (bool is_last = false; !is_last; ++parts) {
      write_some();
      if (random.Chance(0.5)) table.segment().Evict(0, kTableBuckets, tick);
      const auto taken = table.segment().TakeRows(frozen);
      ASSERT_TRUE(taken.has_value());
      EXPECT_FALSE(taken->is_lost);
      is_last = taken->is_last;
      const auto row_bytes = static_cast<size_t>(table.format().row_bytes);
      for (size_t at = 0; at < taken->rows.size(); at += row_bytes) {
        const char* const row = taken->rows.data() + at;
        const auto& head = *reinterpret_cast<const RowHead*>(row);
        std::vector<float> values(kWidth);
        table.format().ToFloats(row + TableFormat::kValuesAt, values.data());
        EXPECT_EQ(values, rows[head.key]) << head.key;
        EXPECT_EQ(head.count, counts[head.key]);
        rows.erase(head.key);
      }
      for (const RowHead& head : taken->waiting) {
        EXPECT_EQ(head.count, waiting[head.key]) << head.key;
        waiting.erase(head.key);
      }
    }
    EXPECT_GT(parts, 3);
    EXPECT_TRUE(rows.empty()) << "each row is taken once";
    EXPECT_TRUE(waiting.empty());
    EXPECT_EQ(bytes, 0) << "the copies are freed";
    EXPECT_EQ(table.segment().frozen(), nullptr);
  }
}

TEST(FullTable, RefusesNewKeysAndStillTrainsTheOthers) {
  Segment segment({}, Sgd{0.5}, /*most_rows=*/2);
  EXPECT_EQ(segment.Step({1, 2}).refused, 0);
  const TableCounts counts = segment.Step({1, 3});
  EXPECT_EQ(counts.refused, 1);
  EXPECT_FALSE(segment.Has(3));
  EXPECT_EQ(segment.CountOf(1), 2u);
}

TEST(FullTable, EvictsTheLeastUsedDownTo95Percent) {
  TableOptions options;
  options.eviction = EvictLeastUsed{};
  Segment segment(options, Sgd{0.5}, /*most_rows=*/40);
  for (int64_t key = 0; key < 40; ++key) {
    for (int64_t step = 0; step <= key; ++step) segment.Step({key});
  }
  const TableCounts counts = segment.Step({100});
  EXPECT_EQ(counts.evicted, 2);
  EXPECT_EQ(counts.made, 1);
  EXPECT_FALSE(segment.Has(0));
  EXPECT_FALSE(segment.Has(1));
  EXPECT_TRUE(segment.Has(2));
  EXPECT_TRUE(segment.Has(100));
}

TEST(FullTable, EvictsTheLeastRecent) {
  TableOptions options;
  options.eviction = EvictLeastRecent{};
  Segment segment(options, Sgd{0.5}, /*most_rows=*/20);
  for (int64_t key = 0; key < 20; ++key) segment.Step({key}, static_cast<uint32_t>(50 - key));
  EXPECT_EQ(segment.Step({100}, 60).evicted, 1);
  EXPECT_FALSE(segment.Has(19));
  EXPECT_EQ(segment.segment().rows(), 20);
}

TEST(FullTable, EvictsNoRowThatTheStepNames) {
  for (const Eviction& eviction : {Eviction(EvictLeastUsed{}), Eviction(EvictLeastRecent{})}) {
    TableOptions options;
    options.eviction = eviction;
    Segment segment(options, Sgd{0.5}, /*most_rows=*/4);
    segment.Step({1, 2, 3, 4}, 1);
    // Three new keys find room in the place of 3 and 4 alone.
    const TableCounts counts = segment.Step({1, 2, 5, 6, 7}, 2);
    EXPECT_EQ(counts.made, 2);
    EXPECT_EQ(counts.refused, 1);
    EXPECT_EQ(counts.evicted, 2);
    EXPECT_EQ(segment.CountOf(1), 2u);
    EXPECT_EQ(segment.CountOf(2), 2u);
  }
}

TEST(FullTable, EvictsNoRowThatAnotherWriteOfTheStepNames) {
  TableOptions options;
  options.eviction = EvictLeastRecent{};
  Segment segment(options, Sgd{0.5}, /*most_rows=*/4);
  segment.Step({1, 2}, 1);
  segment.Step({3, 4}, 2);
  const std::vector<TableKey> news = InOrder({5, 6}), olds = InOrder({1, 2});
  const std::vector<float> ones(2 * kWidth, 1.0f);
  const absl::Span<const TableKey> writes[] = {news, olds};
  const TableStamp stamp{100, 3};
  EXPECT_EQ(segment.segment()
                .ApplyValues(news, ones.data(), WriteOp::kScatterAdd, stamp, {writes, 0})
                .evicted,
            2);
  segment.segment().ApplyValues(olds, ones.data(), WriteOp::kScatterAdd, stamp, {writes, 1});
  EXPECT_THAT(segment.Keys(), ElementsAre(1, 2, 5, 6));
  EXPECT_EQ(segment.CountOf(1), 2u);
}

TEST(FullTable, OfALargeSegmentTheLeastOfSomeNeighboursGo) {
  TableOptions options;
  options.eviction = EvictLeastRecent{};
  constexpr int64_t kRows = 40'000;
  Segment segment(options, Sgd{0.5}, kRows);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < kRows; ++key) keys.push_back(key);
  segment.Step(keys, 1);
  const int64_t evicted = segment.Step({kRows}, 2).evicted;
  EXPECT_GT(evicted, 100);
  EXPECT_LT(evicted, 400) << "5 % of some 4,096 rows";
  EXPECT_TRUE(segment.Has(kRows));
  int64_t first = kTableBuckets, last = 0;
  for (const int64_t key : keys) {
    if (segment.Has(key)) continue;
    first = std::min(first, BucketOf(MixKey(key)));
    last = std::max(last, BucketOf(MixKey(key)));
  }
  EXPECT_LT(last - first, kTableBuckets / 8);
}

TEST(FullTable, OfRowsAlikeTheSameGoWhateverTheOrderInWhichTheyCame) {
  TableOptions options;
  options.eviction = EvictLeastRecent{};
  Segment rising(options, Sgd{0.5}, 20), falling(options, Sgd{0.5}, 20);
  for (int64_t key = 0; key < 20; ++key) rising.Step({key}, 7);
  for (int64_t key = 19; key >= 0; --key) falling.Step({key}, 7);
  // Of one minute, those that are used more stay.
  for (Segment* segment : {&rising, &falling}) {
    for (int64_t key = 0; key < 19; ++key) segment->Step({key}, 7);
    segment->Step({100}, 7);
    EXPECT_FALSE(segment->Has(19));
    segment->Step({101}, 7);
  }
  EXPECT_EQ(rising.Keys(), falling.Keys());
}

TEST(FullTable, ARefusedKeyKeepsItsCount) {
  const Admission admissions[] = {AdmitAfter{3}, AdmitAfter{3, 1 << 20}};
  for (const Admission& admission : admissions) {
    TableOptions options;
    options.admission = admission;
    options.eviction = EvictUnusedFor{absl::Minutes(5)};
    Segment segment(options, Sgd{0.5}, /*most_rows=*/1);
    for (int i = 0; i < 3; ++i) segment.Step({1}, 0);
    EXPECT_EQ(segment.Step({2}, 3).waiting, 1);
    EXPECT_EQ(segment.Step({2}, 4).waiting, 1);
    EXPECT_EQ(segment.Step({2}, 4).refused, 1);
    EXPECT_EQ(segment.Step({2}, 4).refused, 1);
    EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 5).evicted, 1);
    EXPECT_EQ(segment.Step({2}, 5).made, 1);
    // A filter counts no further than the rule asks.
    const bool is_exact = &admission == &admissions[0];
    EXPECT_EQ(segment.CountOf(2), is_exact ? 5u : 3u);
  }
}

// The rule would forget a key that steps name, because it found no room.
TEST(FullTable, ARefusedKeyIsInUse) {
  TableOptions options;
  options.admission = AdmitAfter{2};
  options.eviction = EvictUnusedFor{absl::Minutes(5)};
  Segment segment(options, Sgd{0.5}, /*most_rows=*/1);
  for (int i = 0; i < 2; ++i) segment.Step({1}, 9);
  EXPECT_EQ(segment.Step({2}, 1).waiting, 1);
  EXPECT_EQ(segment.Step({2}, 8).refused, 1);
  EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 9).evicted, 0);
  EXPECT_EQ(segment.segment().waiting(), 1);
}

// ---- eviction -----------------------------------------------------------------------------------

TEST(Eviction, OfUnusedRowsAndCounts) {
  TableOptions options;
  options.admission = AdmitAfter{2};
  options.eviction = EvictUnusedFor{absl::Minutes(10)};
  Segment segment(options);
  segment.Step({1, 2, 3}, 100);
  segment.Step({1, 2}, 105);
  EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 109).evicted, 0);
  EXPECT_EQ(segment.segment().waiting(), 1);
  EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 110).evicted, 0);
  EXPECT_EQ(segment.segment().waiting(), 0);
  segment.Step({2}, 110);
  EXPECT_EQ(segment.segment().Evict(0, kTableBuckets, 115).evicted, 1);
  EXPECT_THAT(segment.Keys(), ElementsAre(2));
  // It begins anew.
  EXPECT_EQ(segment.Step({1}, 115).waiting, 1);
  EXPECT_EQ(segment.Read(1), InitialOf(1));
}

TEST(Eviction, ByNormWithinTheBuckets) {
  TableOptions options;
  options.eviction = EvictBelowNorm{1.0f};
  Segment segment(options);
  const std::vector<float> small(kWidth, 0.1f), large(kWidth, 2.0f);
  for (int64_t key = 0; key < 100; ++key)
    segment.segment().ApplyValues(KeysOf({key}), key % 2 == 0 ? small.data() : large.data(),
                                  WriteOp::kScatterUpdate, {1, 0});
  int64_t evicted = segment.segment().Evict(0, kTableBuckets / 2, 0).evicted;
  for (const int64_t key : segment.Keys())
    EXPECT_TRUE(key % 2 == 1 || BucketOf(MixKey(key)) >= kTableBuckets / 2) << key;
  evicted += segment.segment().Evict(kTableBuckets / 2, kTableBuckets, 0).evicted;
  EXPECT_EQ(evicted, 50);
}

TEST(Eviction, CountsTheRowsThatItMayTouch) {
  TableOptions options;
  options.admission = AdmitAfter{2};
  Segment segment(options);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 1000; ++key) keys.push_back(key);
  segment.Step(keys);
  keys.resize(300);
  segment.Step(keys);
  EXPECT_EQ(segment.segment().CountOf(0, kTableBuckets), 1000);
  const int64_t half = segment.segment().CountOf(0, kTableBuckets / 2);
  EXPECT_NEAR(static_cast<double>(half), 500, 100);
  EXPECT_EQ(segment.segment().CountOf(kTableBuckets / 2, kTableBuckets), 1000 - half);
}

// ---- halves -------------------------------------------------------------------------------------

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};

// A row by the book: float32 arithmetic on the stored values, each result rounded.
struct HalfRow {
  std::vector<float> values;
  std::vector<std::vector<float>> slots;
  std::vector<int32_t> steps{0};
};

TEST(Halves, AreFloat32ArithmeticOnStoredValuesRoundedAtRandom) {
  const Optimizer optimizers[] = {Sgd{0.1},      Momentum{0.1, 0.9},   Adagrad{0.1},
                                  Adam{0.01},    RowwiseAdagrad{0.1},  Ftrl{0.1},
                                  RmsProp{0.01}, GroupFtrl{0.1, 0.02f}};
  for (const DType dtype : kHalves) {
    for (const Optimizer& optimizer : optimizers) {
      SCOPED_TRACE(absl::StrCat(DTypeName(dtype), " ", OptimizerName(optimizer)));
      const TableFormat format = FormatOf({}, optimizer, kInitial, dtype);
      RowLimit limit(RowLimit::kNone);
      TableSegment segment(format, 0, kTableBuckets, limit);
      constexpr int64_t kKey = -77;
      HalfRow row{InitialOf(kKey), {}};
      const auto store = [&](const auto& round) {
        char stored[kWidth * 2];
        round(row.values.data(), stored);
        FromHalves(dtype, stored, kWidth, row.values.data());
      };
      store([&](const float* in, char* out) { ToHalves(dtype, in, kWidth, out); });
      std::vector<float> read(kWidth);
      segment.Read(KeysOf({kKey}), read.data());
      EXPECT_EQ(read, row.values) << "an absent key reads what its row will begin with";
      ParameterBlock block;
      block.values = absl::MakeSpan(row.values);
      block.width = kWidth;
      for (const SlotSpec& slot : format.slots)
        row.slots.emplace_back(slot.kind == SlotSpec::Kind::kValues ? kWidth : 1,
                               slot.initial_value);
      for (size_t i = 0; i < row.slots.size(); ++i) {
        if (format.slots[i].kind == SlotSpec::Kind::kRowCounts)
          block.slots[i].counts = absl::MakeSpan(row.steps);
        else
          block.slots[i].values = absl::MakeSpan(row.slots[i]);
      }
      Random random(3);
      for (uint64_t entry = 1; entry <= 50; ++entry) {
        std::vector<float> gradient(kWidth);
        for (float& each : gradient) each = static_cast<float>(random.Uniform() - 0.4);
        const OptimizerStep step = StepOf(optimizer, static_cast<int64_t>(entry));
        ApplyDense(step, block, gradient);
        store([&](const float* in, char* out) {
          ToHalvesAtRandom(dtype, in, kWidth,
                           {MixSeeds(format.rounding_seed, entry), static_cast<uint64_t>(kKey), 0},
                           out);
        });
        segment.ApplyGradients(KeysOf({kKey}), gradient.data(), step, {entry, 0});
        segment.Read(KeysOf({kKey}), read.data());
        ASSERT_EQ(read, row.values) << entry;
      }
    }
  }
}

TEST(Halves, SmallChangesAddUp) {
  for (const DType dtype : kHalves) {
    SCOPED_TRACE(DTypeName(dtype));
    const TableFormat format = FormatOf({}, Sgd{1.0}, Constant{1.0f}, dtype);
    RowLimit limit(RowLimit::kNone);
    TableSegment segment(format, 0, kTableBuckets, limit);
    std::vector<int64_t> keys;
    for (int64_t key = 0; key < 200; ++key) keys.push_back(key);
    const std::vector<TableKey> named = InOrder(keys);
    // Each change is far below the last bit of 1.
    const std::vector<float> gradients(keys.size() * kWidth, -1e-5f);
    for (uint64_t entry = 1; entry <= 1000; ++entry)
      segment.ApplyGradients(named, gradients.data(), StepOf(Sgd{1.0}, 0), {entry, 0});
    std::vector<float> read(keys.size() * kWidth);
    segment.Read(named, read.data());
    double sum = 0;
    for (const float value : read) sum += value;
    EXPECT_NEAR(sum / static_cast<double>(read.size()), 1.01, 0.0015);
  }
}

TEST(Halves, AssignedValuesAreRoundedToNearest) {
  for (const DType dtype : kHalves) {
    const TableFormat format = FormatOf({}, Sgd{1.0}, kInitial, dtype);
    RowLimit limit(RowLimit::kNone);
    TableSegment segment(format, 0, kTableBuckets, limit);
    const std::vector<float> values = {1.0001f, -3.00001f, 0.1f};
    for (uint64_t entry = 1; entry < 20; ++entry) {
      segment.ApplyValues(KeysOf({5}), values.data(), WriteOp::kScatterUpdate, {entry, 0});
      std::vector<float> read(kWidth);
      segment.Read(KeysOf({5}), read.data());
      EXPECT_EQ(read[0], 1.0f);
      EXPECT_EQ(read[1], -3.0f);
      EXPECT_EQ(read[2], dtype == DType::kFloat16 ? Half::FromFloat(0.1f).ToFloat()
                                                  : BFloat16::FromFloat(0.1f).ToFloat());
    }
  }
}

TEST(Halves, TakeHalfOfTheMemory) {
  for (const int64_t width : {1, 3, 16, 64}) {
    const auto bytes = [&](DType dtype) {
      return TableFormat({7, "users", Shape({kTableBuckets, width})}, kInitial, {}, width,
                         SlotsOf(RowwiseAdagrad{0.1}), dtype)
          .row_bytes;
    };
    // A head of 16 bytes and one float of the optimizer, as a multiple of 8.
    EXPECT_EQ(bytes(DType::kFloat32), (16 + 4 * width + 4 + 7) / 8 * 8);
    EXPECT_EQ(bytes(DType::kFloat16), (16 + (2 * width + 3) / 4 * 4 + 4 + 7) / 8 * 8);
    EXPECT_EQ(bytes(DType::kBFloat16), bytes(DType::kFloat16));
  }
}

TEST(Halves, ANormIsThatOfTheStoredValues) {
  TableOptions options;
  options.eviction = EvictBelowNorm{1.0f};
  const TableFormat format = FormatOf(options, Sgd{1.0}, kInitial, DType::kFloat16);
  RowLimit limit(RowLimit::kNone);
  TableSegment segment(format, 0, kTableBuckets, limit);
  const std::vector<float> small(kWidth, 0.5f), large(kWidth, 0.6f);
  segment.ApplyValues(KeysOf({1}), small.data(), WriteOp::kScatterUpdate, {1, 0});
  segment.ApplyValues(KeysOf({2}), large.data(), WriteOp::kScatterUpdate, {1, 0});
  EXPECT_EQ(segment.Evict(0, kTableBuckets, 0).evicted, 1);
  EXPECT_EQ(segment.Find(KeyOf(1)), nullptr);
  EXPECT_NE(segment.Find(KeyOf(2)), nullptr);
}

// ---- memory -------------------------------------------------------------------------------------

TEST(TableSegment, HoldsWhatAMapHolds) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    TableOptions options;
    options.eviction = EvictUnusedFor{absl::Minutes(5)};
    Segment segment(options, Adagrad{0.1});
    std::map<int64_t, uint32_t> ticks;
    for (uint32_t tick = 1; tick < 200; ++tick) {
      const int64_t key = static_cast<int64_t>(random.Below(60)) << 48;
      segment.Step({key}, tick);
      ticks[key] = tick;
      if (!random.Chance(0.2)) continue;
      segment.segment().Evict(0, kTableBuckets, tick);
      for (auto it = ticks.begin(); it != ticks.end();)
        it = tick - it->second >= 5 ? ticks.erase(it) : std::next(it);
    }
    std::set<int64_t> keys;
    for (const auto& [key, tick] : ticks) keys.insert(key);
    EXPECT_EQ(segment.Keys(), keys);
  }
}

TEST(TableSegment, IsSmallBeforeItHasManyRows) {
  Segment segment({});
  segment.Step({1, 2, 3});
  EXPECT_LT(segment.segment().bytes(), 400);
  std::vector<int64_t> keys;
  for (int64_t key = 0; key < 50'000; ++key) keys.push_back(key);
  segment.Step(keys);
  EXPECT_LT(segment.segment().bytes(), 50'000 * (segment.format().row_bytes + 12));
  for (const int64_t key : {1, 2, 3}) EXPECT_EQ(segment.CountOf(key), 2u);
}

TEST(TableSegment, UsesFreedRowsAgain) {
  TableOptions options;
  options.eviction = EvictUnusedFor{absl::Minutes(1)};
  Segment segment(options);
  std::vector<int64_t> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  segment.Step(keys, 0);
  const int64_t bytes = segment.segment().bytes();
  for (uint32_t tick = 1; tick < 20; ++tick) {
    segment.segment().Evict(0, kTableBuckets, tick);
    for (int64_t& key : keys) key += 1000;
    segment.Step(keys, tick);
  }
  EXPECT_EQ(segment.segment().rows(), 1000);
  EXPECT_EQ(segment.segment().bytes(), bytes);
}

TEST(TableSegment, ARestoredOneGoesOnAsTheOtherDoes) {
  TableOptions options;
  options.admission = AdmitAfter{2};
  Segment first(options, Adam{0.01}), second(options, Adam{0.01});
  first.Step({1, 2, 3}, 4);
  first.Step({1, 2}, 5);
  const RowSlabs& rows = first.segment().slabs();
  for (uint32_t row = 0; row < rows.end(); ++row) {
    const char* const at = rows.at(row);
    std::vector<absl::Span<const char>> slots;
    for (size_t i = 0; i < first.format().slots.size(); ++i) {
      const int64_t from = first.format().slots_at[i];
      const int64_t end = i + 1 < first.format().slots.size() ? first.format().slots_at[i + 1]
                                                              : first.format().row_bytes;
      const int64_t bytes =
          first.format().slots[i].kind == SlotSpec::Kind::kValues ? kWidth * 4 : 4;
      ASSERT_LE(from + bytes, end);
      slots.push_back(absl::MakeConstSpan(at + from, static_cast<size_t>(bytes)));
    }
    ASSERT_TRUE(second.segment().Restore(
        KeyOf(rows.head(row).key), rows.head(row),
        absl::MakeConstSpan(at + TableFormat::kValuesAt, kWidth * sizeof(float)), slots));
  }
  const RowSlabs& waiting = first.segment().waiting_slabs();
  for (uint32_t row = 0; row < waiting.end(); ++row) {
    if (waiting.is_free(row)) continue;
    ASSERT_TRUE(second.segment().RestoreWaiting(KeyOf(waiting.head(row).key), waiting.head(row)));
  }
  for (Segment* segment : {&first, &second}) segment->Step({1, 2, 3}, 6);
  for (const int64_t key : {1, 2, 3}) {
    EXPECT_EQ(first.Read(key), second.Read(key));
    EXPECT_EQ(first.CountOf(key), second.CountOf(key));
  }
}

}  // namespace
}  // namespace divvy
