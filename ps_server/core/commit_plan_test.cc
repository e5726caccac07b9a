#include "ps_server/core/commit_plan.h"

#include <atomic>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "kernels/bfloat16.h"
#include "kernels/elements.h"
#include "optimizers/apply.h"
#include "protocol/error.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/read_plan.h"

namespace divvy {
namespace {

ShardKey Key(int slot = 0, int part = 0) {
  return {VariableId(1), static_cast<uint8_t>(slot), static_cast<uint16_t>(part)};
}

// Makes a shard in `table`, with its initial values.
Shard& Make(ShardTable& table, ShardKey key, Shape shape, DType dtype,
            Initializer initializer = Zeros(), int64_t block_bytes = 1 << 20, int64_t first_row = 0,
            Shape full_shape = {-1}) {
  ShardSpec spec;
  spec.key = key;
  spec.name = key.slot == 0 ? "w" : absl::StrCat("w/slot", key.slot);
  spec.dtype = dtype;
  spec.shape = shape;
  spec.full_shape = full_shape == Shape{-1} ? shape : full_shape;
  spec.first_row = first_row;
  spec.initializer = initializer;
  const auto variable = table.find(Key(0, key.part));
  const Shard* whole = key.slot == 0 ? nullptr : variable->second.get();
  EXPECT_TRUE(Shard::Check(spec, whole == nullptr ? nullptr : &whole->spec()).ok());
  const std::shared_ptr<Shard> shard = *Shard::Create(spec, 3, block_bytes, whole);
  for (int64_t block = 0; block < shard->blocks().count(); ++block)
    EXPECT_TRUE(shard->Initialize(block).ok());
  table[key] = shard;
  return *shard;
}

CommitPart Part(WriteOp op, Tensor values, std::vector<int64_t> rows = {}, ShardKey key = Key()) {
  CommitPart part;
  part.shard = key;
  part.op = op;
  part.values = std::move(values);
  if (!rows.empty()) part.rows = Tensor::Vector<int64_t>(rows);
  return part;
}

CommitPart Gradient(const OptimizerStep& step, std::vector<uint8_t> slots, Tensor values,
                    std::vector<int64_t> rows = {}, ShardKey key = Key()) {
  CommitPart part = Part(WriteOp::kGradient, std::move(values), std::move(rows), key);
  part.optimizer = step;
  part.slots = std::move(slots);
  return part;
}

// Applies the parts at once. Takes the units backwards, because their order must not matter.
absl::Status Apply(std::vector<CommitPart> parts, const ShardTable& table, int64_t unit_bytes = 1) {
  absl::StatusOr<CommitPlan> plan = CommitPlan::Make(std::move(parts), table, unit_bytes);
  if (!plan.ok()) return plan.status();
  for (int64_t unit = plan->units().count(); unit-- > 0;) plan->Apply(unit);
  return absl::OkStatus();
}

template <typename T>
std::vector<T> ValuesOf(const Shard& shard) {
  const Tensor copy = *shard.Copy();
  const auto values = *copy.values<T>();
  return {values.begin(), values.end()};
}

// ---- frozen shards ------------------------------------------------------------------------------

std::string BytesOf(const Shard& shard) {
  const Tensor copy = *shard.Copy();
  return std::string(copy.data_as<char>(), static_cast<size_t>(copy.size_bytes()));
}

// Some rows, unique and rising.
std::vector<int64_t> SomeRows(Random& random, int64_t of) {
  std::set<int64_t> rows;
  for (uint64_t i = random.Below(30) + 1; i > 0; --i)
    rows.insert(static_cast<int64_t>(random.Below(static_cast<uint64_t>(of))));
  return {rows.begin(), rows.end()};
}

Tensor FilledWith(const Shape& shape, float value) {
  return *Tensor::Copy<float>(shape,
                              std::vector<float>(static_cast<size_t>(shape.num_elements()), value));
}

// A variable with the slots of Adam.
ShardTable WithSlotsOfAdam(const Shape& shape, int64_t block_bytes) {
  ShardTable table;
  Make(table, Key(0), shape, DType::kFloat32, Constant{3}, block_bytes);
  for (const int slot : {1, 2})
    Make(table, Key(slot), shape, DType::kFloat32, Zeros(), block_bytes);
  Make(table, Key(3), Shape{shape.rows()}, DType::kInt32, Zeros(), block_bytes);
  return table;
}

// A dense or a sparse gradient, or a scatter, to the variable of WithSlotsOfAdam.
CommitPart AnyWrite(Random& random, const Shape& shape) {
  const OptimizerStep adam = StepOf(Adam{}, 0);
  const uint64_t kind = random.Below(8);
  if (kind == 0) return Gradient(adam, {1, 2, 3}, FilledWith(shape, 1));
  const std::vector<int64_t> rows = SomeRows(random, shape.rows());
  const Tensor values = FilledWith(shape.WithRows(static_cast<int64_t>(rows.size())), 2);
  return kind < 4 ? Gradient(adam, {1, 2, 3}, values, rows)
                  : Part(WriteOp::kScatterAdd, values, rows);
}

TEST(FrozenShardsTest, WhatIsReadIsWhatWasThereWhicheverRowsWereChangedSince) {
  const Shape shape{3000, 5};
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const ShardTable table = WithSlotsOfAdam(shape, 16 << 10);
    std::map<const Shard*, std::string> marked, read;
    for (const auto& [key, shard] : table) marked[shard.get()] = BytesOf(*shard);
    FrozenShards frozen(table, 32 << 10);
    for (const ShardSlice& slice : frozen.slices()) {
      for (uint64_t commits = random.Below(3); commits > 0; --commits) {
        const auto plan = CommitPlan::Make({AnyWrite(random, shape)}, table, 1 << 20);
        ASSERT_TRUE(plan.ok()) << plan.status();
        const int64_t before = frozen.kept_bytes();
        for (int64_t unit = 0; unit < plan->units().count(); ++unit) plan->Apply(unit, &frozen);
        EXPECT_LE(frozen.kept_bytes() - before, plan->most_kept_bytes());
      }
      ASSERT_TRUE(frozen
                      .Read(slice,
                            [&](absl::Span<const char> piece) {
                              read[slice.shard.get()].append(piece.data(), piece.size());
                              return absl::OkStatus();
                            })
                      .ok());
    }
    EXPECT_EQ(read, marked);
    EXPECT_EQ(frozen.kept_bytes(), 0);
  }
}

TEST(FrozenShardsTest, AFewRowsCostAFewPagesAndNotTheirBlocks) {
  ShardTable table;
  Make(table, Key(), {100'000, 4}, DType::kFloat32);
  FrozenShards frozen(table, 64 << 20);
  const auto plan = CommitPlan::Make(
      {Part(WriteOp::kScatterAdd, FilledWith({3, 4}, 1), {7, 8, 90'000})}, table, 1 << 20);
  for (int64_t unit = 0; unit < plan->units().count(); ++unit) plan->Apply(unit, &frozen);
  EXPECT_EQ(frozen.kept_bytes(), 2 * 4096) << "rows 7 and 8 share a page";
  EXPECT_EQ(plan->most_kept_bytes(), 3 * 4096);
}

// ---- writes -------------------------------------------------------------------------------------

TEST(CommitPlanTest, EveryOccurrenceOfAScatteredRowCountsAndTheLastUpdateStays) {
  for (int64_t block_bytes : {4, 8, 1000}) {
    ShardTable table;
    Shard& w = Make(table, Key(), {4}, DType::kFloat32, Ones(), block_bytes);
    ASSERT_TRUE(
        Apply({Part(WriteOp::kScatterAdd, Tensor::Vector<float>({1, 2, 3, 4}), {3, 0, 3, 3})},
              table)
            .ok());
    EXPECT_EQ(ValuesOf<float>(w), (std::vector<float>{3, 1, 1, 9}));
    ASSERT_TRUE(
        Apply({Part(WriteOp::kScatterUpdate, Tensor::Vector<float>({5, 6, 7}), {1, 2, 1})}, table)
            .ok());
    EXPECT_EQ(ValuesOf<float>(w), (std::vector<float>{3, 7, 6, 9}));
    ASSERT_TRUE(Apply({Part(WriteOp::kScatterMul, Tensor::Vector<float>({2, 2}), {0, 0}),
                       Part(WriteOp::kScatterMin, Tensor::Vector<float>({4, 5}), {3, 3})},
                      table)
                    .ok());
    EXPECT_EQ(ValuesOf<float>(w), (std::vector<float>{12, 7, 6, 4}));
  }
}

TEST(CommitPlanTest, PartsOfOneShardApplyInTheOrderGiven) {
  for (int64_t block_bytes : {8, 16, 1000}) {
    ShardTable table;
    Shard& w = Make(table, Key(), {3, 2}, DType::kInt32, Zeros(), block_bytes);
    const Tensor values = *Tensor::Copy<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
    const Tensor row = *Tensor::Copy<int32_t>({1, 2}, {10, 20});
    ASSERT_TRUE(Apply({Part(WriteOp::kAssign, values), Part(WriteOp::kScatterMul, row, {1}),
                       Part(WriteOp::kAdd, values), Part(WriteOp::kScatterUpdate, row, {0})},
                      table)
                    .ok());
    EXPECT_EQ(ValuesOf<int32_t>(w), (std::vector<int32_t>{10, 20, 33, 84, 10, 12}));
  }
}

TEST(CommitPlanTest, ScalarsEmptyShardsAndEmptyRowsAreFine) {
  ShardTable table;
  Shard& scalar = Make(table, Key(), {}, DType::kFloat64, Ones());
  Make(table, Key(0, 1), {0, 3}, DType::kFloat32);
  Make(table, Key(0, 2), {3, 0}, DType::kFloat32);
  ASSERT_TRUE(Apply({Part(WriteOp::kAdd, Tensor::Scalar<double>(2))}, table).ok());
  EXPECT_EQ(ValuesOf<double>(scalar), std::vector<double>{3});
  CommitPart none =
      Part(WriteOp::kScatterAdd, *Tensor::Zeros(DType::kFloat32, {0, 0}), {}, Key(0, 2));
  none.rows = Tensor::Vector<int64_t>({});
  EXPECT_TRUE(
      Apply({Part(WriteOp::kAssign, *Tensor::Zeros(DType::kFloat32, {0, 3}), {}, Key(0, 1)), none},
            table)
          .ok());
  EXPECT_TRUE(Apply({Part(WriteOp::kScatterAdd, *Tensor::Zeros(DType::kFloat32, {2, 0}), {2, 0},
                          Key(0, 2))},
                    table)
                  .ok());
}

TEST(CommitPlanTest, WorkIsCutIntoUnitsOfTheBlocksTouched) {
  ShardTable table;
  Make(table, Key(), {100, 4}, DType::kFloat32, Zeros(), 160);  // 10 blocks of 10 rows
  const auto units = [&](std::vector<CommitPart> parts, int64_t bytes) {
    return CommitPlan::Make(std::move(parts), table, bytes)->units().count();
  };
  EXPECT_EQ(units({Part(WriteOp::kAdd, *Tensor::Zeros(DType::kFloat32, {100, 4}))}, 160), 10);
  EXPECT_EQ(units({Part(WriteOp::kAdd, *Tensor::Zeros(DType::kFloat32, {100, 4}))}, 480), 4)
      << "three blocks in each unit";
  const CommitPart rows =
      Part(WriteOp::kScatterAdd, *Tensor::Zeros(DType::kFloat32, {4, 4}), {95, 3, 90, 4});
  EXPECT_EQ(units({rows}, 160), 1) << "two rows in each of two blocks";
  EXPECT_EQ(units({rows}, 32), 2);
}

// ---- gradients ----------------------------------------------------------------------------------

void MakeSlots(ShardTable& table, const Optimizer& optimizer, int part) {
  const std::shared_ptr<Shard> variable = table.at(Key(0, part));
  uint8_t number = 1;
  for (const SlotSpec& slot : SlotsOf(optimizer)) {
    const ShardSpec& spec = variable->spec();
    Make(table, Key(number++, part), slot.ShapeFor(spec.shape), slot.dtype(),
         Constant{slot.initial_value}, 1 << 20, spec.first_row, slot.ShapeFor(spec.full_shape));
  }
}

std::vector<float> RandomValues(Random& random, int64_t n) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(random.Uniform() - 0.5));
  return values;
}

// Applies dense and sparse gradients to a variable of shape [7, 3]: whole and in one block, or cut
// into three parts and blocks of one row.
std::vector<float> Train(const Optimizer& optimizer, bool cut, std::vector<int32_t>* counts) {
  ShardTable table;
  const std::vector<int64_t> offsets =
      cut ? std::vector<int64_t>{0, 3, 5, 7} : std::vector<int64_t>{0, 7};
  const int parts = static_cast<int>(offsets.size()) - 1;
  std::vector<uint8_t> slots;
  for (size_t i = 0; i < SlotsOf(optimizer).size(); ++i)
    slots.push_back(static_cast<uint8_t>(i + 1));
  for (int part = 0; part < parts; ++part) {
    Make(table, Key(0, part), {offsets[part + 1] - offsets[part], 3}, DType::kFloat32,
         GlorotUniform(), cut ? 12 : 1 << 20, offsets[part], {7, 3});
    MakeSlots(table, optimizer, part);
  }
  Random random(11);
  for (int64_t step = 0; step < 6; ++step) {
    const std::vector<float> gradient = RandomValues(random, 21);
    const std::vector<int64_t> named =
        step % 2 == 0 ? std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6} : std::vector<int64_t>{1, 2, 4};
    std::vector<CommitPart> commit;
    for (int part = 0; part < parts; ++part) {
      std::vector<int64_t> rows;
      std::vector<float> values;
      for (int64_t row : named) {
        if (row < offsets[part] || row >= offsets[part + 1]) continue;
        rows.push_back(row - offsets[part]);
        values.insert(values.end(), gradient.begin() + row * 3, gradient.begin() + row * 3 + 3);
      }
      if (rows.empty()) continue;
      const Tensor tensor = *Tensor::Copy<float>({static_cast<int64_t>(rows.size()), 3}, values);
      commit.push_back(Gradient(StepOf(optimizer, step), slots, tensor,
                                step % 2 == 0 ? std::vector<int64_t>() : rows, Key(0, part)));
    }
    EXPECT_TRUE(Apply(commit, table).ok());
  }
  std::vector<float> result;
  for (int part = 0; part < parts; ++part) {
    for (float value : ValuesOf<float>(*table.at(Key(0, part)))) result.push_back(value);
    if (counts == nullptr) continue;
    for (int32_t count : ValuesOf<int32_t>(*table.at(Key(3, part)))) counts->push_back(count);
  }
  return result;
}

TEST(GradientTest, ShardedAndUnshardedAreBitwiseEqualForEveryOptimizer) {
  const Adam amsgrad{0.1, 0.9f, 0.999f, 1e-7f, 0, /*amsgrad=*/true};
  const RmsProp centered{0.1, 0.9f, 0.5f, 1e-7f, /*centered=*/true};
  for (const Optimizer& optimizer :
       {Optimizer(Sgd{0.1}), Optimizer(Momentum{0.1}), Optimizer(Adagrad{0.1}),
        Optimizer(RowwiseAdagrad{0.1}), Optimizer(Adam{0.1}), Optimizer(amsgrad),
        Optimizer(RmsProp{0.1}), Optimizer(centered), Optimizer(Ftrl{0.1}),
        Optimizer(GroupFtrl{0.1, 0.02f})}) {
    EXPECT_EQ(Train(optimizer, false, nullptr), Train(optimizer, true, nullptr))
        << OptimizerName(optimizer);
  }
}

TEST(GradientTest, AdamsTCountsTheGradientsOfEachRow) {
  std::vector<int32_t> whole, cut;
  Train(Adam{0.1}, false, &whole);
  Train(Adam{0.1}, true, &cut);
  EXPECT_EQ(whole, (std::vector<int32_t>{3, 6, 6, 3, 6, 3, 3}));
  EXPECT_EQ(cut, whole);
}

TEST(GradientTest, EqualsTheOptimizersOwnArithmetic) {
  ShardTable table;
  Shard& w = Make(table, Key(), {2}, DType::kFloat32, Ones());
  MakeSlots(table, Momentum{0.5}, 0);
  ASSERT_TRUE(
      Apply({Gradient(StepOf(Momentum{0.5}, 0), {1}, Tensor::Vector<float>({2, 4}))}, table).ok());
  EXPECT_EQ(ValuesOf<float>(w), (std::vector<float>{0, -1}));
  EXPECT_EQ(ValuesOf<float>(*table.at(Key(1))), (std::vector<float>{-1, -2}));
  ASSERT_TRUE(
      Apply({Gradient(StepOf(Sgd{0.5}, 0), {}, Tensor::Scalar<float>(2).Reshape({1}).value(), {1})},
            table)
          .ok());
  EXPECT_EQ(ValuesOf<float>(w), (std::vector<float>{0, -2}));
}

// ---- values in pieces ---------------------------------------------------------------------------

// The same part, with its values in pieces of up to 20,000 bytes, which begin at any address.
CommitPart InPieces(Random& random, CommitPart part) {
  auto arrived = std::make_shared<ScatteredTensor>(part.values.dtype(), part.values.shape());
  const std::string all(part.values.data_as<char>(), static_cast<size_t>(part.values.size_bytes()));
  for (size_t at = 0; at < all.size();) {
    const size_t some = 1 + random.Below(20'000), skew = random.Below(8);
    const auto piece =
        std::make_shared<const std::string>(std::string(skew, '?') + all.substr(at, some));
    arrived->Add(absl::string_view(*piece).substr(skew), piece);
    at += piece->size() - skew;
  }
  part.values = Tensor();
  part.arrived = std::move(arrived);
  return part;
}

std::string BytesOf(const ShardTable& table) {
  std::string bytes;
  for (const auto& [key, shard] : table) bytes += BytesOf(*shard);
  return bytes;
}

// Dense and sparse gradients, rounded ones, adds and assigns; rows of 3 elements, and rows that are
// longer than what is copied at a time.
TEST(ArrivedTest, AreAppliedAsIfTheyLayInOnePlace) {
  for (const Shape& shape : {Shape{9000, 3}, Shape{3, 20'000}, Shape{70'000}}) {
    for (const Optimizer& optimizer :
         {Optimizer(Sgd{0.1}), Optimizer(RowwiseAdagrad{0.1}), Optimizer(Adam{0.1})}) {
      SCOPED_TRACE(absl::StrCat(shape.ToString(), " ", OptimizerName(optimizer)));
      Random random(5);
      ShardTable whole, pieces;
      std::vector<uint8_t> slots;
      for (size_t i = 0; i < SlotsOf(optimizer).size(); ++i)
        slots.push_back(static_cast<uint8_t>(i + 1));
      for (ShardTable* table : {&whole, &pieces}) {
        Make(*table, Key(), shape, DType::kFloat32, Zeros(), 100'000);
        MakeSlots(*table, optimizer, 0);
      }
      const auto values = [&](const Shape& of) {
        return *Tensor::Copy<float>(of, RandomValues(random, of.num_elements()));
      };
      Tensor rounded = *Tensor::Uninitialized(DType::kBFloat16, shape);
      ToBFloat16(values(shape).data_as<float>(), shape.num_elements(),
                 rounded.fresh_data<BFloat16Bits>());
      std::vector<int64_t> rows;
      for (int64_t row = 0; row < shape.rows(); row += 1 + static_cast<int64_t>(random.Below(2)))
        rows.push_back(row);
      const Shape some = shape.WithRows(static_cast<int64_t>(rows.size()));
      for (const CommitPart& part : {Part(WriteOp::kAdd, values(shape)),
                                     Gradient(StepOf(optimizer, 0), slots, values(shape)),
                                     Gradient(StepOf(optimizer, 1), slots, rounded),
                                     Gradient(StepOf(optimizer, 2), slots, values(some), rows)}) {
        ASSERT_TRUE(Apply({part}, whole).ok());
        ASSERT_TRUE(Apply({InPieces(random, part)}, pieces).ok());
        ASSERT_EQ(BytesOf(whole), BytesOf(pieces)) << WriteOpName(part.op);
      }
      const CommitPart assign = InPieces(random, Part(WriteOp::kAssign, values(shape)));
      ASSERT_TRUE(Apply({assign}, pieces).ok());
      EXPECT_TRUE(BitwiseEqual(*pieces.at(Key())->Copy(), *assign.arrived->Joined()));
    }
  }
}

// Above all a bfloat16 variable, whose values must not be taken for a rounded gradient.
TEST(ArrivedTest, WholeWritesOfEveryDTypeAreExact) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt8, DType::kUInt8, DType::kInt32, DType::kInt64}) {
    SCOPED_TRACE(DTypeName(dtype));
    Random random(3);
    // Small whole numbers: the bytes of 1 and 2 in each dtype.
    const Shape shape{30'000, 3};
    const Tensor ones = *InitialRows(Constant{1}, {1, "w", shape}, dtype, 0, shape.rows());
    const Tensor twos = *InitialRows(Constant{2}, {1, "w", shape}, dtype, 0, shape.rows());
    for (const bool pieces : {false, true}) {
      ShardTable table;
      Shard& shard = Make(table, Key(), shape, dtype, Zeros(), 50'000);
      const auto write = [&](WriteOp op, const Tensor& values) {
        const CommitPart part = Part(op, values);
        ASSERT_TRUE(Apply({pieces ? InPieces(random, part) : part}, table).ok());
      };
      write(WriteOp::kAssign, ones);
      EXPECT_TRUE(BitwiseEqual(*shard.Copy(), ones));
      write(WriteOp::kAdd, ones);
      EXPECT_TRUE(BitwiseEqual(*shard.Copy(), twos));
      write(WriteOp::kSub, ones);
      EXPECT_TRUE(BitwiseEqual(*shard.Copy(), ones));
    }
  }
}

// ---- lent blocks --------------------------------------------------------------------------------

// A read of a whole shard, all units.
ReadPlan Read(const ShardTable& table, ShardKey key, bool lends) {
  PullPart part{key, std::nullopt};
  part.may_lend = lends;
  absl::StatusOr<ReadPlan> plan = ReadPlan::Make({part}, table, 0, 1);
  for (int64_t unit = 0; unit < plan->units().count(); ++unit) plan->Read(unit);
  return *std::move(plan);
}

// Commits of any kind, and reads that are held for a while. A checkpoint of the values is taken
// beside them.
TEST(LentTest, WhatIsLentStaysAsItWasWhileCommitsGoOn) {
  const Shape shape{500, 5};
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    const ShardTable table = WithSlotsOfAdam(shape, 2 << 10),
                     copied = WithSlotsOfAdam(shape, 2 << 10);
    std::deque<std::pair<ReadPlan, std::string>> held;
    for (int i = 0; i < 60; ++i) {
      if (random.Below(2) == 0) {
        const ShardKey key = Key(static_cast<int>(random.Below(4)));
        held.emplace_back(Read(table, key, true), BytesOf(*table.at(key)));
        ASSERT_EQ(held.back().first.parts()[0].lent != nullptr, i <= 30);
        if (i > 30) held.pop_back();
      }
      // Once single rows have been written, nothing more is lent, and what was lent stays.
      const OptimizerStep adam = StepOf(Adam{}, 0);
      const CommitPart part = i < 30    ? Gradient(adam, {1, 2, 3}, FilledWith(shape, 1))
                              : i == 30 ? Gradient(adam, {1, 2, 3}, FilledWith({2, 5}, 1), {3, 400})
                                        : AnyWrite(random, shape);
      ASSERT_TRUE(Apply({part}, table, 1 << 20).ok());
      ASSERT_TRUE(Apply({part}, copied, 1 << 20).ok());
      ASSERT_EQ(BytesOf(table), BytesOf(copied));
      for (auto& [plan, bytes] : held) {
        const Tensor lent = *plan.parts()[0].lent->Joined();
        ASSERT_EQ(std::string(lent.data_as<char>(), bytes.size()), bytes);
      }
      while (!held.empty() && random.Below(2) == 0) held.pop_front();
    }
  }
}

TEST(LentTest, NothingIsCopiedAndABlockReturnsToItsPlace) {
  ShardTable table;
  const Shard& shard = Make(table, Key(), {100, 4}, DType::kFloat32, Zeros(), 160);
  using Lent = std::shared_ptr<const ScatteredTensor>;
  const auto lend = [&]() -> Lent { return Read(table, Key(), true).parts()[0].lent; };
  const auto address = [](const Lent& lent, size_t block) { return lent->Pieces()[block].data(); };
  const auto add = [&] {
    ASSERT_TRUE(Apply({Part(WriteOp::kAdd, FilledWith({100, 4}, 1))}, table).ok());
  };
  Lent first = lend(), second = lend();
  EXPECT_EQ(address(first, 0), shard.row(0, 0));
  EXPECT_EQ(address(second, 9), shard.row(9, 90));
  const void* const own = shard.row(0, 0);
  add();
  EXPECT_NE(shard.row(0, 0), own) << "somebody reads there";
  const void* const elsewhere = shard.row(0, 0);
  first.reset();
  add();
  EXPECT_EQ(shard.row(0, 0), elsewhere) << "the second read goes on";
  first = lend();
  add();
  EXPECT_NE(shard.row(0, 0), elsewhere) << "now both places are read";
  second.reset();
  add();
  EXPECT_EQ(shard.row(0, 0), own);
  // The next borrower moves it back, too.
  first = lend();
  add();
  EXPECT_NE(shard.row(0, 0), own);
  first.reset();
  first = lend();
  EXPECT_EQ(address(first, 0), own);
  EXPECT_EQ(ValuesOf<float>(shard)[20], 5);
}

// Each row would cost the copy of a block.
TEST(LentTest, NothingOfAShardOfWhichSingleRowsAreWritten) {
  ShardTable table;
  Make(table, Key(), {100, 4}, DType::kFloat32);
  ASSERT_NE(Read(table, Key(), true).parts()[0].lent, nullptr);
  ASSERT_TRUE(Apply({Part(WriteOp::kScatterAdd, FilledWith({1, 4}, 1), {5})}, table).ok());
  EXPECT_EQ(Read(table, Key(), true).parts()[0].lent, nullptr);
}

TEST(LentTest, OnlyWholeShardsThatAreLargeEnoughAndUnrounded) {
  ShardTable table;
  Make(table, Key(), {100, 4}, DType::kFloat32);
  const auto is_lent = [&](PullPart part, int64_t least) {
    part.shard = Key();
    return ReadPlan::Make({part}, table, 0, 1, nullptr, least)->parts()[0].lent != nullptr;
  };
  PullPart part;
  EXPECT_FALSE(is_lent(part, 0));
  part.may_lend = true;
  EXPECT_TRUE(is_lent(part, 1600));
  EXPECT_FALSE(is_lent(part, 1601));
  part.as_bfloat16 = true;
  EXPECT_FALSE(is_lent(part, 0));
  part.as_bfloat16 = false;
  part.rows = Tensor::Vector<int64_t>({1});
  EXPECT_FALSE(is_lent(part, 0));
}

// The memory of a deleted shard stays as long as somebody reads it.
TEST(LentTest, OutlivesItsShard) {
  ShardTable table;
  Make(table, Key(), {100, 4}, DType::kFloat32, Ones(), 160);
  const std::shared_ptr<const ScatteredTensor> lent = Read(table, Key(), true).parts()[0].lent;
  ASSERT_TRUE(Apply({Part(WriteOp::kAdd, FilledWith({100, 4}, 1))}, table).ok());
  const std::shared_ptr<const ScatteredTensor> later = Read(table, Key(), true).parts()[0].lent;
  table.clear();
  EXPECT_TRUE(BitwiseEqual(*lent->Joined(), FilledWith({100, 4}, 1)));
  EXPECT_TRUE(BitwiseEqual(*later->Joined(), FilledWith({100, 4}, 2)));
}

// ---- refusals -----------------------------------------------------------------------------------

class RefusalTest : public testing::Test {
 protected:
  RefusalTest() {
    Make(table_, Key(), {3, 2}, DType::kFloat32);
    MakeSlots(table_, Adam{0.1}, 0);
    Make(table_, Key(0, 1), {3, 2}, DType::kBool);
    Make(table_, Key(0, 2), {}, DType::kFloat32);
  }
  // Expects that the part is refused with `reason` and a message that contains `text`.
  void Refuses(CommitPart part, absl::string_view text, Reason reason = Reason::kBadCommit) {
    const absl::Status status = Apply({std::move(part)}, table_);
    EXPECT_EQ(ReasonOf(status), reason) << status;
    EXPECT_NE(std::string(status.message()).find(std::string(text)), std::string::npos) << status;
  }
  Tensor Whole() const { return *Tensor::Zeros(DType::kFloat32, {3, 2}); }
  Tensor Rows(int64_t n) const { return *Tensor::Zeros(DType::kFloat32, {n, 2}); }
  const OptimizerStep adam_ = StepOf(Adam{0.1}, 0);
  ShardTable table_;
};

TEST_F(RefusalTest, ShardsThatAreNotHere) {
  Refuses(Part(WriteOp::kAdd, Whole(), {}, Key(0, 9)), "no shard 1/slot 0/part 9",
          Reason::kUnknownShard);
  Refuses(Gradient(adam_, {1, 2, 9}, Whole()), "no shard 1/slot 9/part 0", Reason::kUnknownShard);
  Refuses(Part(WriteOp::kAssign, Whole(), {}, Key(1)), "slots are written by gradients");
  EXPECT_EQ(ReasonOf(Apply({}, table_)), Reason::kBadCommit);
}

TEST_F(RefusalTest, RowsThatDoNotFit) {
  Refuses(Part(WriteOp::kScatterAdd, Whole()), "needs rows");
  Refuses(Part(WriteOp::kAssign, Rows(1), {1}), "takes no rows");
  Refuses(Part(WriteOp::kScatterAdd, Rows(1), {3}), "row 3 is outside its 3 rows");
  Refuses(Part(WriteOp::kScatterAdd, Rows(1), {-1}), "row -1 is outside");
  Refuses(Part(WriteOp::kScatterAdd, Tensor::Scalar<float>(1), {0}, Key(0, 2)),
          "a scalar has no rows");
  CommitPart floats = Part(WriteOp::kScatterAdd, Rows(1));
  floats.rows = Tensor::Vector<float>({1});
  Refuses(floats, "rows are float32 [1], and not int64 [n]");
  Refuses(Gradient(adam_, {1, 2, 3}, Rows(2), {1, 1}), "unique and rising");
  Refuses(Gradient(adam_, {1, 2, 3}, Rows(2), {2, 1}), "unique and rising");
}

TEST_F(RefusalTest, ValuesThatDoNotFit) {
  Refuses(Part(WriteOp::kAssign, *Tensor::Zeros(DType::kFloat32, {2, 3})),
          "values are float32 [2, 3], and must be float32 [3, 2]");
  Refuses(Part(WriteOp::kAssign, *Tensor::Zeros(DType::kFloat64, {3, 2})),
          "values are float64 [3, 2], and must be float32 [3, 2]");
  Refuses(Part(WriteOp::kScatterAdd, Rows(2), {1}), "must be float32 [1, 2]");
  Refuses(Part(WriteOp::kAdd, *Tensor::Zeros(DType::kBool, {3, 2}), {}, Key(0, 1)),
          "bool does not take it");
}

TEST_F(RefusalTest, OptimizersThatDoNotFit) {
  CommitPart none = Part(WriteOp::kGradient, Whole());
  Refuses(none, "names no optimizer");
  CommitPart needless = Part(WriteOp::kAdd, Whole());
  needless.optimizer = adam_;
  Refuses(needless, "takes no optimizer");
  Refuses(Gradient(adam_, {1, 2}, Whole()), "Adam has 3 slots, and 2 were named");
  Refuses(Gradient(adam_, {1, 1, 3}, Whole()), "named twice");
  Refuses(Gradient(adam_, {0, 2, 3}, Whole()), "or is the variable");
  Refuses(Gradient(adam_, {1, 3, 2}, Whole()), "slot 3 is none of Adam");
  Refuses(Gradient(StepOf(RowwiseAdagrad{0.1}, 0), {1}, Whole()),
          "slot 1 is none of RowwiseAdagrad");
  Refuses(Gradient(StepOf(Adam{0.1, 0.9f, 0.999f, 1e-7f, 0, true}, 0), {1, 2, 3}, Whole()),
          "Adam has 4 slots, and 3 were named");
  Refuses(Gradient(StepOf(Sgd{0.1}, 0), {}, *Tensor::Zeros(DType::kBool, {3, 2}), {}, Key(0, 1)),
          "optimizers need float32");
  OptimizerStep broken = adam_;
  broken.beta1 = 2;
  Refuses(Gradient(broken, {1, 2, 3}, Whole()), "beta1");
}

// ---- the small parts ----------------------------------------------------------------------------

TEST(BlocksTest, AreWholeRowsUpToTheLimitAndAtLeastOne) {
  const Blocks small(10, 8, 24), wide(3, 100, 24), empty(0, 8, 24), thin(5, 0, 24);
  EXPECT_EQ(small.rows_per_block(), 3);
  EXPECT_EQ(small.count(), 4);
  EXPECT_EQ(small.first_row(3), 9);
  EXPECT_EQ(small.end_row(3), 10);
  EXPECT_EQ(wide.rows_per_block(), 1);
  EXPECT_EQ(empty.count(), 0);
  EXPECT_EQ(thin.count(), 1) << "rows without bytes are one block";
  const std::vector<int64_t> rows = {9, 0, 4, 1, 0};
  const std::vector<int64_t> order = small.OrderByBlock(rows);
  EXPECT_EQ(order, (std::vector<int64_t>{1, 4, 3, 2, 0}));
  EXPECT_EQ(small.PositionsIn(0, rows, order).size(), 3u);
  EXPECT_TRUE(small.PositionsIn(2, rows, order).empty());
}

TEST(UnitListTest, GroupsSmallPiecesAndLeavesLargeOnesAlone) {
  UnitList units(10);
  for (int64_t bytes : {4, 4, 4, 30, 0, 10}) units.AddPiece(bytes);
  ASSERT_EQ(units.count(), 4);
  EXPECT_EQ(units.pieces(0), (std::pair<size_t, size_t>{0, 2}));
  EXPECT_EQ(units.pieces(1), (std::pair<size_t, size_t>{2, 3}));
  EXPECT_EQ(units.pieces(2), (std::pair<size_t, size_t>{3, 4}));
  EXPECT_EQ(units.pieces(3), (std::pair<size_t, size_t>{4, 6}));
}

UnitList UnitsOfOneByte(int64_t count) {
  UnitList units(1);
  for (int64_t i = 0; i < count; ++i) units.AddPiece(1);
  return units;
}

TEST(RunUnitsTest, RunsEachOnceThenDoneOnceForAnyCountAndOrder) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SimExecutor executor(seed);
    const auto owner = std::make_shared<int>();
    const int64_t count = static_cast<int64_t>(seed % 15);
    std::vector<int> runs(static_cast<size_t>(count));
    int done = 0;
    RunUnits(
        executor, owner, UnitsOfOneByte(count), /*at_once_bytes=*/0,
        [&](int64_t unit) { ++runs[static_cast<size_t>(unit)]; },
        [&] {
          ++done;
          EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(count), 1)) << "seed " << seed;
        });
    executor.RunUntilIdle();
    EXPECT_EQ(done, 1) << "seed " << seed;
  }
}

TEST(RunUnitsTest, StopsWhenItsOwnerIsGone) {
  SimExecutor executor(1);
  auto owner = std::make_shared<int>();
  int runs = 0;
  RunUnits(
      executor, owner, UnitsOfOneByte(100), /*at_once_bytes=*/0, [&](int64_t) { ++runs; },
      [] { ADD_FAILURE(); });
  for (int i = 0; i < 5; ++i) executor.RunOne();
  owner.reset();
  executor.RunUntilIdle();
  EXPECT_EQ(runs, 5);
}

TEST(RunUnitsTest, LittleWorkRunsWithinTheCall) {
  SimExecutor executor(1);
  const auto owner = std::make_shared<int>();
  std::vector<int64_t> ran;
  bool done = false;
  RunUnits(
      executor, owner, UnitsOfOneByte(3), /*at_once_bytes=*/3,
      [&](int64_t unit) { ran.push_back(unit); }, [&] { done = true; });
  EXPECT_EQ(ran, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_TRUE(done);
}

// ---- MemoryBudget -------------------------------------------------------------------------------

class MemoryBudgetTest : public ::testing::Test {
 protected:
  MemoryBudget::Ticket Reserve(const std::string& name, int64_t bytes) {
    return budget_.Reserve(bytes, [this, name](const absl::Status& granted) {
      told_.push_back(name);
      last_ = granted;
    });
  }
  using Told = std::vector<std::string>;
  MemoryBudget budget_{100};
  Told told_;
  absl::Status last_;
};

TEST_F(MemoryBudgetTest, GrantsAtOnceWhatFits) {
  Reserve("a", 60);
  Reserve("b", 40);
  EXPECT_EQ(told_, (Told{"a", "b"}));
  EXPECT_EQ(budget_.free_bytes(), 0);
}

TEST_F(MemoryBudgetTest, IsServedInOrderAlsoWhereALaterOneWouldFit) {
  const auto a = Reserve("a", 60);
  Reserve("large", 80);
  Reserve("small", 10);
  EXPECT_EQ(told_, (Told{"a"}));
  EXPECT_EQ(budget_.waiting(), 2u);
  budget_.Release(a);
  EXPECT_EQ(told_, (Told{"a", "large", "small"}));
  EXPECT_EQ(budget_.free_bytes(), 10);
}

TEST_F(MemoryBudgetTest, WhatIsLargerThanAllIsRefusedAtOnceNamingTheFlag) {
  Reserve("a", 100);
  Reserve("b", 101);
  EXPECT_EQ(told_, (Told{"a", "b"}));
  EXPECT_EQ(ReasonOf(last_), Reason::kInvalid);
  EXPECT_NE(last_.message().find("--commit_buffer_bytes"), std::string::npos);
  Reserve("c", -1);
  EXPECT_EQ(ReasonOf(last_), Reason::kInvalid);
}

// A worker that hangs in the middle of a commit, or is malicious, delays only itself.
TEST(MemoryBudgetShareTest, OneOwnerHoldsHalfAtMostAndKeepsNobodyWaiting) {
  MemoryBudget budget(100, MemoryBudget::TooLarge::kIsRefused, MemoryBudget::Share::kHalf);
  std::vector<std::string> told;
  const auto reserve = [&](const std::string& name, const std::string& owner, int64_t bytes,
                           int64_t overhead = 0) {
    return budget.Reserve({bytes, overhead, owner}, [&told, name](const absl::Status& granted) {
      told.push_back(granted.ok() ? name : "refused " + name);
    });
  };
  using Told = std::vector<std::string>;
  EXPECT_EQ(budget.most_bytes(), 50);
  reserve("large", "w0", 51);
  const auto first = reserve("first", "w0", 40);
  reserve("second", "w0", 20);
  reserve("third", "w0", 5);
  EXPECT_EQ(told, (Told{"refused large", "first"}))
      << "the third claim would fit, but waits for the second";
  const auto other = reserve("other", "w1", 20, 1000);
  EXPECT_EQ(told, (Told{"refused large", "first", "other"}));
  EXPECT_EQ(budget.free_bytes(), 10) << "overhead counts up to the limit of one claim";
  reserve("late", "w2", 20);
  budget.Release(first);
  EXPECT_EQ(told, (Told{"refused large", "first", "other", "second", "third", "late"}));
  budget.Release(other);
  EXPECT_EQ(budget.free_bytes(), 55);
}

TEST(MemoryBudgetShareTest, AReplyOfMoreThanTheShareIsGivenWhereItsOwnerHasNothingElse) {
  MemoryBudget budget(100, MemoryBudget::TooLarge::kTakesAll, MemoryBudget::Share::kHalf);
  std::vector<std::string> told;
  const auto reserve = [&](const std::string& owner, int64_t bytes) {
    return budget.Reserve({bytes, 0, owner},
                          [&told, owner](const absl::Status&) { told.push_back(owner); });
  };
  const auto large = reserve("w0", 80);
  reserve("w0", 1);
  reserve("w1", 20);
  EXPECT_EQ(told, (std::vector<std::string>{"w0", "w1"}));
  budget.Release(large);
  EXPECT_EQ(told, (std::vector<std::string>{"w0", "w1", "w0"}));
}

TEST(MemoryBudgetOfRepliesTest, WhatIsLargerThanAllWaitsUntilItIsAlone) {
  MemoryBudget budget(100, MemoryBudget::TooLarge::kTakesAll);
  std::vector<std::string> told;
  const auto reserve = [&](const std::string& name, int64_t bytes) {
    return budget.Reserve(bytes, [&told, name](const absl::Status& granted) {
      told.push_back(granted.ok() ? name : "refused");
    });
  };
  const auto first = reserve("first", 1);
  const auto large = reserve("large", 1000);
  reserve("behind", 1);
  EXPECT_EQ(told, (std::vector<std::string>{"first"}));
  budget.Release(first);
  EXPECT_EQ(told, (std::vector<std::string>{"first", "large"}));
  budget.Release(large);
  EXPECT_EQ(told, (std::vector<std::string>{"first", "large", "behind"}));
  EXPECT_EQ(budget.free_bytes(), 99);
}

TEST_F(MemoryBudgetTest, AReservationThatWaitsCanBeWithdrawn) {
  const auto a = Reserve("a", 60);
  const auto b = Reserve("b", 80);
  Reserve("c", 40);
  // Its stream has broken, so c need not wait for it any more.
  budget_.Release(b);
  EXPECT_EQ(told_, (Told{"a", "c"}));
  budget_.Release(b);
  budget_.Release(a);
  budget_.Release(a);
  EXPECT_EQ(budget_.free_bytes(), 60);
}

TEST_F(MemoryBudgetTest, AGrantMayReleaseAndReserveAgain) {
  MemoryBudget::Ticket a = 0;
  int rounds = 0;
  std::function<void(absl::Status)> again = [&](const absl::Status&) {
    if (++rounds < 4) budget_.Reserve(100, again);
  };
  a = budget_.Reserve(100, again);
  budget_.Release(a);
  budget_.Release(a + 1);
  budget_.Release(a + 2);
  EXPECT_EQ(rounds, 4);
}

// Many threads reserve and release. The sum of reservations never exceeds the total.
TEST(MemoryBudgetStressTest, NeverGrantsMoreThanThereIs) {
  MemoryBudget budget(1000);
  std::atomic<int64_t> held{0}, most{0}, grants{0};
  {
    ThreadPoolExecutor executor(4);
    for (int i = 0; i < 400; ++i) {
      executor.Post([&, i] {
        const int64_t bytes = 1 + (i * 37) % 700;
        auto ticket = std::make_shared<std::atomic<MemoryBudget::Ticket>>(0);
        const auto ticket_now = budget.Reserve(bytes, [&, bytes, ticket](const absl::Status&) {
          const int64_t now = held += bytes;
          int64_t seen = most;
          while (now > seen && !most.compare_exchange_weak(seen, now)) {
          }
          held -= bytes;
          ++grants;
        });
        budget.Release(ticket_now);  // perhaps before the grant, which then never comes
      });
    }
    Mutex mu;
    CondVar over;
    bool done = false;
    executor.PostAfter(absl::Milliseconds(1), [&] {
      MutexLock lock(mu);
      done = true;
      over.NotifyAll();
    });
    MutexLock lock(mu);
    over.Wait(mu, [&] { return done; });
  }
  EXPECT_LE(most, 1000);
  EXPECT_GT(grants, 0);
  EXPECT_EQ(budget.waiting(), 0u);
  EXPECT_EQ(budget.free_bytes(), 1000);
}

}  // namespace
}  // namespace divvy
