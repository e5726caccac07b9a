#include "variables/transfer_plan.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/half.h"
#include "base/random.h"
#include "gtest/gtest.h"
#include "variables/dynamic_table.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

using Values = std::vector<float>;

// A variable of `rows` rows of `width`, cut into `ps.size()` parts by the div rule: the first `rows
// % parts` parts have one row more.
VariableLayout Cut(uint32_t id, std::string name, int64_t rows, int64_t width, std::vector<int> ps,
                   std::optional<Optimizer> optimizer = {}) {
  VariableLayout layout;
  layout.id = VariableId(id);
  layout.spec.name = std::move(name);
  layout.spec.shape = Shape{rows, width};
  layout.spec.optimizer = std::move(optimizer);
  layout.offsets = {0};
  const int64_t parts = static_cast<int64_t>(ps.size());
  for (int64_t part = 0; part < parts; ++part)
    layout.offsets.push_back(layout.offsets.back() + rows / parts + (part < rows % parts ? 1 : 0));
  layout.ps = std::move(ps);
  return layout;
}

VariableLayout ScalarVariable(uint32_t id, std::string name, int ps) {
  VariableLayout layout;
  layout.id = VariableId(id);
  layout.spec.name = std::move(name);
  layout.offsets = {0, 1};
  layout.ps = {ps};
  return layout;
}

Tensor Matrix(int64_t rows, int64_t width, const Values& values) {
  return *Tensor::Copy<float>(Shape{rows, width}, values);
}
Tensor Ids(std::vector<int64_t> ids) { return Tensor::Vector<int64_t>(absl::MakeConstSpan(ids)); }
Values Flat(const Tensor& tensor) {
  return Values(tensor.values<float>()->begin(), tensor.values<float>()->end());
}
std::vector<int64_t> IdsOf(const Tensor& tensor) {
  return {tensor.values<int64_t>()->begin(), tensor.values<int64_t>()->end()};
}
StagedWrite Write(std::string variable, WriteOp op, Tensor value) {
  return {std::move(variable), op, std::move(value), std::nullopt, std::nullopt};
}
StagedWrite WriteRows(std::string variable, WriteOp op, Tensor ids, Tensor rows) {
  return {std::move(variable), op, std::move(rows), std::move(ids), std::nullopt};
}

// ---- checks -------------------------------------------------------------------------------------

class CheckWriteTest : public ::testing::Test {
 protected:
  void ExpectRefused(const StagedWrite& write, absl::StatusCode code, absl::string_view says) {
    const absl::Status status = CheckWrite(*layout_, write);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), says)) << status;
  }
  std::shared_ptr<const Layout> layout_ = Layout::Empty()
                                              ->With(Cut(1, "w", 3, 2, {0, 1}, Sgd{0.1}))
                                              ->With(Cut(2, "plain", 3, 2, {0}))
                                              ->With(ScalarVariable(3, "step", 0));
};

TEST_F(CheckWriteTest, AnUnknownVariableIsNotFoundAndNearNamesAreListed) {
  ExpectRefused(Write("plan", WriteOp::kAssign, Matrix(1, 1, {0})), absl::StatusCode::kNotFound,
                "plain");
}

TEST_F(CheckWriteTest, AnotherShapeIsRefusedWithBothShapes) {
  ExpectRefused(Write("w", WriteOp::kAssign, Matrix(2, 3, {1, 2, 3, 4, 5, 6})),
                absl::StatusCode::kInvalidArgument, "[2, 3]");
  ExpectRefused(Write("w", WriteOp::kAssign, Matrix(2, 3, {1, 2, 3, 4, 5, 6})),
                absl::StatusCode::kInvalidArgument, "[3, 2]");
}

TEST_F(CheckWriteTest, AnotherDtypeIsRefused) {
  ExpectRefused(Write("step", WriteOp::kAdd, Tensor::Scalar<int64_t>(1)),
                absl::StatusCode::kInvalidArgument, "int64");
}

TEST_F(CheckWriteTest, AnIdOutsideTheVariableIsRefusedWithTheId) {
  ExpectRefused(WriteRows("w", WriteOp::kScatterAdd, Ids({0, 3}), Matrix(2, 2, {1, 1, 1, 1})),
                absl::StatusCode::kInvalidArgument, "id 3 is outside [0, 3)");
  ExpectRefused(WriteRows("w", WriteOp::kScatterAdd, Ids({-1}), Matrix(1, 2, {1, 1})),
                absl::StatusCode::kInvalidArgument, "id -1");
}

TEST_F(CheckWriteTest, AnotherNumberOfRowsThanIdsIsRefused) {
  ExpectRefused(WriteRows("w", WriteOp::kScatterAdd, Ids({0, 1}), Matrix(1, 2, {1, 1})),
                absl::StatusCode::kInvalidArgument, "a row for each id");
}

TEST_F(CheckWriteTest, AScatterWithoutIdsIsRefused) {
  ExpectRefused(Write("w", WriteOp::kScatterAdd, Matrix(3, 2, {1, 1, 1, 1, 1, 1})),
                absl::StatusCode::kInvalidArgument, "needs ids");
}

TEST_F(CheckWriteTest, AScalarHasNoRows) {
  ExpectRefused(WriteRows("step", WriteOp::kScatterAdd, Ids({0}), Matrix(1, 1, {1})),
                absl::StatusCode::kInvalidArgument, "no rows");
}

TEST_F(CheckWriteTest, AGradientNeedsAnOptimizerFromTheVariableOrTheWrite) {
  StagedWrite write = Write("plain", WriteOp::kGradient, Matrix(3, 2, {1, 1, 1, 1, 1, 1}));
  ExpectRefused(write, absl::StatusCode::kInvalidArgument, "no optimizer");
  write.optimizer = Sgd{0.5};
  EXPECT_TRUE(CheckWrite(*layout_, write).ok());
  EXPECT_TRUE(CheckWrite(*layout_, Write("w", WriteOp::kGradient, write.value)).ok());
}

TEST_F(CheckWriteTest, AnOptimizerOfTheWriteThatCannotBeIsRefusedByName) {
  StagedWrite write = Write("plain", WriteOp::kGradient, Matrix(3, 2, {1, 1, 1, 1, 1, 1}));
  write.optimizer = Adam{0.1, /*beta1=*/2.0f};
  ExpectRefused(write, absl::StatusCode::kInvalidArgument, "beta1");
  ExpectRefused(write, absl::StatusCode::kInvalidArgument, "variable \"plain\"");
}

TEST_F(CheckWriteTest, BoolIsAssignedAndNotAddedTo) {
  VariableLayout flag = ScalarVariable(4, "flag", 0);
  flag.spec.dtype = DType::kBool;
  layout_ = layout_->With(flag);
  ExpectRefused(Write("flag", WriteOp::kAdd, Tensor::Scalar<bool>(true)),
                absl::StatusCode::kInvalidArgument, "bool has no arithmetic");
  EXPECT_TRUE(
      CheckWrite(*layout_, Write("flag", WriteOp::kAssign, Tensor::Scalar<bool>(true))).ok());
}

TEST_F(CheckWriteTest, ReadsAreCheckedAsWell) {
  EXPECT_EQ(CheckRead(*layout_, {"nothing", std::nullopt}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(CheckRead(*layout_, {"w", Ids({5})}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CheckRead(*layout_, {"w", Tensor::Vector<int32_t>({1})}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(CheckRead(*layout_, {"w", Ids({2, 2, 0})}).ok());
}

// ---- literal plans ------------------------------------------------------------------------------

TEST(PlanCommitsTest, CutsADenseAssignAtTheShards) {
  const auto layout = Layout::Empty()->With(Cut(7, "w", 3, 2, {4, 1}));
  const auto commits =
      PlanCommits(*layout, {Write("w", WriteOp::kAssign, Matrix(3, 2, {1, 2, 3, 4, 5, 6}))}, 0, 1);
  ASSERT_EQ(commits.size(), 2u);
  EXPECT_EQ(commits.at(4)[0].shard, (ShardKey{VariableId(7), 0, 0}));
  EXPECT_EQ(Flat(commits.at(4)[0].values), Values({1, 2, 3, 4}));
  EXPECT_EQ(commits.at(1)[0].shard, (ShardKey{VariableId(7), 0, 1}));
  EXPECT_EQ(Flat(commits.at(1)[0].values), Values({5, 6}));
}

TEST(PlanCommitsTest, SumsTheRowsOfASparseGradientByIdAndMakesIdsLocal) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 1, {0, 1}, Sgd{0.5}));
  const auto commits = PlanCommits(
      *layout, {WriteRows("w", WriteOp::kGradient, Ids({3, 2, 3}), Matrix(3, 1, {1, 10, 2}))}, 5,
      0.5);
  ASSERT_EQ(commits.size(), 1u) << "ps 0 has none of the rows and is not asked";
  const CommitPart& part = commits.at(1)[0];
  EXPECT_EQ(IdsOf(*part.rows), std::vector<int64_t>({0, 1}));
  EXPECT_EQ(Flat(part.values), Values({10, 3}));
  ASSERT_TRUE(part.optimizer.has_value());
}

TEST(PlanCommitsTest, KeepsRepeatedIdsOfAScatterInTheirOrder) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 1, {0, 1}));
  const auto commits = PlanCommits(
      *layout, {WriteRows("w", WriteOp::kScatterUpdate, Ids({1, 3, 1}), Matrix(3, 1, {1, 2, 3}))},
      0, 1);
  EXPECT_EQ(IdsOf(*commits.at(0)[0].rows), std::vector<int64_t>({1, 1}));
  EXPECT_EQ(Flat(commits.at(0)[0].values), Values({1, 3}));
  EXPECT_EQ(IdsOf(*commits.at(1)[0].rows), std::vector<int64_t>({1}));
}

TEST(PlanCommitsTest, AddsTheRowsOfAnIdInTheOrderGiven) {
  // (1e8 - 1e8) + 1, not 1e8 + (1 - 1e8), which is 0 in float32.
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 1, {0, 1}, Sgd{0.1}));
  const auto commits = PlanCommits(
      *layout,
      {WriteRows("w", WriteOp::kGradient, Ids({3, 0, 3, 3}), Matrix(4, 1, {1e8f, 7, -1e8f, 1}))}, 0,
      1);
  EXPECT_EQ(Flat(commits.at(0)[0].values), Values({7}));
  EXPECT_EQ(Flat(commits.at(1)[0].values), Values({1}));
}

// Rows that are summed and sorted already, as those of ApplyGradients are, are not copied.
TEST(PlanCommitsTest, RisingRowsOfAGradientAreCutAtTheShardsWithoutACopy) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 2, {0, 1}, Sgd{0.1}));
  const Tensor rows = Matrix(3, 2, {1, 2, 3, 4, 5, 6});
  const auto commits =
      PlanCommits(*layout, {WriteRows("w", WriteOp::kGradient, Ids({0, 2, 3}), rows)}, 0, 1);
  EXPECT_EQ(commits.at(0)[0].values.data(), rows.data());
  EXPECT_EQ(commits.at(1)[0].values.data_as<float>(), rows.data_as<float>() + 2);
  EXPECT_EQ(Flat(commits.at(1)[0].values), Values({3, 4, 5, 6}));
  EXPECT_EQ(IdsOf(*commits.at(1)[0].rows), std::vector<int64_t>({0, 1}));
}

TEST(PlanCommitsTest, RowsOfAScatterThatLieApartArePacked) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 1, {0, 1}));
  const auto commits = PlanCommits(
      *layout, {WriteRows("w", WriteOp::kScatterAdd, Ids({1, 3, 0}), Matrix(3, 1, {1, 2, 3}))}, 0,
      1);
  EXPECT_EQ(IdsOf(*commits.at(0)[0].rows), std::vector<int64_t>({1, 0}));
  EXPECT_EQ(Flat(commits.at(0)[0].values), Values({1, 3}));
}

TEST(PlanCommitsTest, UnitsOfAPlanRunInAnyOrder) {
  const auto layout = Layout::Empty()
                          ->With(Cut(1, "w", 6, 1, {0, 1, 0}, Sgd{0.1}))
                          ->With(Cut(2, "b", 1, 1, {1}, Sgd{0.1}));
  const std::vector<StagedWrite> writes = {
      WriteRows("w", WriteOp::kGradient, Ids({5, 0, 5, 2}), Matrix(4, 1, {1, 2, 3, 4})),
      Write("b", WriteOp::kGradient, Matrix(1, 1, {9}))};
  CommitPlanner planner(*layout, writes, 0, 1);
  ASSERT_EQ(planner.units(), 3u);
  for (const size_t unit : {2, 0, 1}) planner.Run(unit);
  const auto commits = std::move(planner).Take();
  EXPECT_EQ(Flat(commits.at(0)[0].values), Values({2}));
  EXPECT_EQ(Flat(commits.at(0)[1].values), Values({4}));
  EXPECT_EQ(Flat(commits.at(1)[0].values), Values({4}));
  EXPECT_EQ(Flat(commits.at(1)[1].values), Values({9}));
  EXPECT_EQ(PlanningBytes(*layout, writes), 4 * 4 + 4 * 8);
}

TEST(PlanCommitsTest, NothingIsSentForAScatterOfNoRows) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 1, {0, 1}));
  EXPECT_TRUE(
      PlanCommits(*layout, {WriteRows("w", WriteOp::kScatterAdd, Ids({}), Matrix(0, 1, {}))}, 0, 1)
          .empty());
}

// bfloat16 has the values 1 and 1 + 1/128, and none between them.
constexpr float kBelow = 1, kBetween = 1 + 1.0f / 512, kAbove = 1 + 1.0f / 128;

VariableLayout RoundedVariable(WireFormat wire) {
  VariableLayout variable = Cut(1, "w", 6, 2, {0, 1}, Sgd{0.1});
  variable.spec.wire = wire;
  return variable;
}
Values Floats(const Tensor& rounded) {
  Values floats;
  for (int64_t i = 0; i < rounded.shape().num_elements(); ++i)
    floats.push_back(rounded.data_as<BFloat16Bits>()[i].ToFloat());
  return floats;
}

TEST(WireFormatTest, AWholeGradientIsRoundedAndNothingElseIsWritten) {
  const auto layout = Layout::Empty()->With(RoundedVariable(WireFormat::kBFloat16));
  const StagedWrite gradient = Write("w", WriteOp::kGradient, Matrix(6, 2, Values(12, kBetween)));
  const auto commits = PlanCommits(*layout, {gradient}, 0, 1, Rounding::kAsSpecified);
  EXPECT_EQ(Flat(PlanCommits(*layout, {gradient}, 0, 1).at(0)[0].values), Values(6, kBetween))
      << "what the program writes";
  for (const int ps : {0, 1}) {
    EXPECT_EQ(commits.at(ps)[0].values.dtype(), DType::kBFloat16);
    EXPECT_EQ(commits.at(ps)[0].values.shape(), (Shape{3, 2}));
    EXPECT_EQ(Floats(commits.at(ps)[0].values), Values(6, kBelow));
  }
  EXPECT_EQ(PlanningBytes(*layout, {gradient}), 6 * 2 * 4);
  for (const StagedWrite& exact :
       {Write("w", WriteOp::kAssign, Matrix(6, 2, Values(12, kBetween))),
        Write("w", WriteOp::kAdd, Matrix(6, 2, Values(12, kBetween))),
        WriteRows("w", WriteOp::kGradient, Ids({0, 1, 5}), Matrix(3, 2, Values(6, kBetween))),
        WriteRows("w", WriteOp::kScatterAdd, Ids({0, 5}), Matrix(2, 2, Values(4, kBetween)))}) {
    for (const auto& [ps, parts] : PlanCommits(*layout, {exact}, 0, 1, Rounding::kAsSpecified))
      EXPECT_EQ(Flat(parts[0].values)[0], kBetween) << WriteOpName(exact.op);
  }
}

TEST(WireFormatTest, AtRandomFollowsFromTheOrdinalAndNotFromTheCut) {
  constexpr int64_t kRows = 4096;
  const auto committed = [&](std::vector<int> ps, int64_t ordinal) {
    VariableLayout variable = Cut(1, "w", kRows, 2, std::move(ps), Sgd{0.1});
    variable.spec.wire = WireFormat::kBFloat16Random;
    const auto layout = Layout::Empty()->With(variable);
    Values all;
    for (const auto& [server, parts] : PlanCommits(
             *layout,
             {Write("w", WriteOp::kGradient, Matrix(kRows, 2, Values(kRows * 2, kBetween)))},
             ordinal, 1, Rounding::kAsSpecified)) {
      const Values floats = Floats(parts[0].values);
      all.insert(all.end(), floats.begin(), floats.end());
    }
    return all;
  };
  const Values once = committed({0}, 7);
  EXPECT_EQ(once, committed({0, 1, 2}, 7));
  EXPECT_NE(once, committed({0}, 8));
  const auto above = std::count(once.begin(), once.end(), kAbove);
  EXPECT_EQ(above + std::count(once.begin(), once.end(), kBelow), kRows * 2);
  // A quarter on average.
  EXPECT_NEAR(static_cast<double>(above) / (kRows * 2), 0.25, 0.03);
}

TEST(WireFormatTest, WhatAStepReadsComesRoundedAndWhatAProgramReadsDoesNot) {
  const auto layout = Layout::Empty()
                          ->With(RoundedVariable(WireFormat::kBFloat16Random))
                          ->With(Cut(2, "one", 2, 2, {0}));
  const std::vector<VariableRead> reads = {
      {"w", std::nullopt}, {"w", Ids({4, 0, 4})}, {"one", std::nullopt}};
  const PullPlan exact(*layout, reads), rounded(*layout, reads, Rounding::kAsSpecified);
  std::map<int, PullReply> replies;
  for (const auto& [ps, parts] : rounded.parts()) {
    for (size_t i = 0; i < parts.size(); ++i) {
      const PullPart& part = parts[i];
      EXPECT_FALSE(exact.parts().at(ps)[i].as_bfloat16);
      EXPECT_EQ(part.as_bfloat16, part.shard.variable == VariableId(1));
      EXPECT_EQ(part.reply_bytes * (part.as_bfloat16 ? 2 : 1), exact.parts().at(ps)[i].reply_bytes);
      const int64_t rows = part.rows ? part.rows->shape().num_elements() : part.as_bfloat16 ? 3 : 2;
      Tensor values = Matrix(rows, 2, Values(static_cast<size_t>(rows) * 2, 5));
      if (part.as_bfloat16) {
        values = *Tensor::Uninitialized(DType::kBFloat16, {rows, 2});
        for (int64_t at = 0; at < rows * 2; ++at)
          values.fresh_data<BFloat16Bits>()[at] =
              BFloat16Bits::FromFloat(static_cast<float>(ps * 100 + at));
      }
      replies[ps].parts.push_back({values, 1, false});
    }
  }
  const std::vector<Tensor> values = *rounded.Assemble(replies);
  EXPECT_EQ(Flat(values[0]), Values({0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 104, 105}));
  EXPECT_EQ(Flat(values[1]), Values({100, 101, 0, 1, 100, 101}));
  EXPECT_EQ(Flat(values[2]), Values(4, 5));
  // Servers that answer with what was not asked for.
  EXPECT_FALSE(exact.Assemble(replies).ok());
}

TEST(PullPlanTest, GivesRowsInTheOrderAskedAndInTheShapeOfTheIds) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 2, {0, 1}));
  const Tensor ids = *Ids({3, 0, 3, 1}).Reshape(Shape{2, 2});
  const PullPlan plan(*layout, {VariableRead{"w", ids}});
  std::map<int, PullReply> replies;
  replies[0].parts.push_back({Matrix(2, 2, {0, 1, 2, 3}), 1, false});
  replies[1].parts.push_back({Matrix(1, 2, {6, 7}), 1, false});
  EXPECT_EQ(IdsOf(*plan.parts().at(0)[0].rows), std::vector<int64_t>({0, 1}));
  EXPECT_EQ(IdsOf(*plan.parts().at(1)[0].rows), std::vector<int64_t>({1})) << "row 3, once";
  const std::vector<Tensor> values = *plan.Assemble(replies);
  EXPECT_EQ(values[0].shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(Flat(values[0]), Values({6, 7, 0, 1, 6, 7, 2, 3}));
}

TEST(PullPlanTest, RowsOfRisingIdsAreNotCopiedWhereOneShardHasThem) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 2, {0, 1}));
  const PullPlan plan(*layout, {VariableRead{"w", *Ids({2, 3}).Reshape(Shape{1, 2})}});
  const Tensor sent = Matrix(2, 2, {4, 5, 6, 7});
  std::map<int, PullReply> replies;
  replies[1].parts.push_back({sent, 1, false});
  const std::vector<Tensor> values = *plan.Assemble(replies);
  EXPECT_EQ(values[0].data(), sent.data());
  EXPECT_EQ(values[0].shape(), (Shape{1, 2, 2}));
  EXPECT_EQ(plan.copied_bytes(), 0);
}

TEST(PullPlanTest, AnyIdsGetTheirRowsAndEachRowTravelsOnce) {
  Random random(20261126);
  for (int turn = 0; turn < 300; ++turn) {
    const int64_t rows = 1 + static_cast<int64_t>(random.Below(40));
    std::vector<int> servers(1 + random.Below(std::min<uint64_t>(4, rows)));
    for (size_t i = 0; i < servers.size(); ++i) servers[i] = static_cast<int>(i);
    const auto layout = Layout::Empty()->With(Cut(1, "w", rows, 1, servers));
    std::vector<int64_t> ids(random.Below(30));
    for (int64_t& id : ids) id = static_cast<int64_t>(random.Below(rows));
    if (random.Chance(0.3)) std::sort(ids.begin(), ids.end());
    const PullPlan plan(*layout,
                        {VariableRead{"w", Tensor::Vector<int64_t>(absl::MakeConstSpan(ids))}});
    std::map<int, PullReply> replies;
    size_t pulled = 0;
    for (const auto& [ps, parts] : plan.parts()) {
      for (const PullPart& part : parts) {
        const std::vector<int64_t> local = IdsOf(*part.rows);
        pulled += local.size();
        std::vector<float> values;
        for (const int64_t row : local)
          values.push_back(static_cast<float>(layout->Find("w")->offsets[part.shard.part] + row));
        replies[ps].parts.push_back(
            {*Tensor::Copy<float>({static_cast<int64_t>(values.size()), 1}, values), 1, false});
      }
    }
    EXPECT_EQ(pulled, std::set<int64_t>(ids.begin(), ids.end()).size());
    EXPECT_EQ(Flat((*plan.Assemble(replies))[0]), Values(ids.begin(), ids.end()))
        << "turn " << turn;
  }
}

// Whatever a table stores, a program reads and writes float32. bfloat16 rows travel as they are.
TEST(PullPlanTest, RowsOfATableStoredAsHalvesAreReadAsFloats) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    VariableLayout table = Cut(1, "table", kTableBuckets, 2, {0, 1});
    table.spec = DynamicTable("table", {.width = 2, .optimizer = Sgd{0.1}, .dtype = dtype});
    const auto layout = Layout::Empty()->With(table);
    EXPECT_TRUE(Validate(table.spec).ok()) << Validate(table.spec);
    const std::vector<int64_t> keys = {-7, 3, 12, -7};
    EXPECT_TRUE(CheckWrite(*layout, WriteRows("table", WriteOp::kGradient, Ids(keys),
                                              Matrix(4, 2, Values(8, 1))))
                    .ok());
    const Tensor narrow = *Tensor::Zeros(DType::kBFloat16, {4, 2});
    EXPECT_FALSE(
        CheckWrite(*layout, WriteRows("table", WriteOp::kScatterAdd, Ids(keys), narrow)).ok());
    const PullPlan plan(*layout, {{"table", Ids(keys)}}, Rounding::kAsSpecified);
    const bool travels = dtype == DType::kBFloat16;
    // The value of a row is its key.
    std::map<int, PullReply> replies;
    for (const auto& [ps, parts] : plan.parts()) {
      for (const PullPart& part : parts) {
        EXPECT_EQ(part.as_bfloat16, travels);
        const std::vector<int64_t> asked = IdsOf(*part.rows);
        EXPECT_EQ(part.reply_bytes, static_cast<int64_t>(asked.size()) * (travels ? 4 : 8));
        Values values;
        for (const int64_t key : asked) values.insert(values.end(), 2, static_cast<float>(key));
        Tensor rows = Matrix(static_cast<int64_t>(asked.size()), 2, values);
        if (travels) {
          Tensor rounded = *Tensor::Uninitialized(DType::kBFloat16, rows.shape());
          for (size_t i = 0; i < values.size(); ++i)
            rounded.fresh_data<BFloat16Bits>()[i] = BFloat16Bits::FromFloat(values[i]);
          rows = rounded;
        }
        replies[ps].parts.push_back({rows});
      }
    }
    const auto read = plan.Assemble(replies);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(Flat((*read)[0]), (Values{-7, -7, 3, 3, 12, 12, -7, -7}));
  }
}

TEST(PullPlanTest, AsksOnlyTheServersThatHoldARowAskedFor) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 6, 2, {0, 1, 2}));
  const PullPlan plan(*layout, {VariableRead{"w", Ids({5, 4})}, VariableRead{"w", Ids({})}});
  ASSERT_EQ(plan.parts().size(), 1u);
  EXPECT_EQ(plan.parts().begin()->first, 2);
}

TEST(PullPlanTest, AnAnswerThatDoesNotFitIsAnErrorNotACrash) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 4, 2, {0, 1}));
  const PullPlan plan(*layout, {VariableRead{"w", std::nullopt}});
  EXPECT_FALSE(plan.Assemble({}).ok());
  std::map<int, PullReply> replies;
  replies[0].parts.push_back({Matrix(2, 2, {0, 1, 2, 3}), 1, false});
  replies[1].parts.push_back({Matrix(3, 2, {0, 1, 2, 3, 4, 5}), 1, false});
  EXPECT_EQ(plan.Assemble(replies).status().code(), absl::StatusCode::kInvalidArgument)
      << "too many rows";
  // Missing rows would have the old contents of the memory as values.
  for (const int ps : {0, 1}) {
    replies[1].parts[0].values = Matrix(2, 2, {0, 1, 2, 3});
    replies[0].parts[0].values = Matrix(2, 2, {0, 1, 2, 3});
    ASSERT_TRUE(plan.Assemble(replies).ok());
    replies[ps].parts[0].values = Matrix(1, 2, {0, 1});
    EXPECT_EQ(plan.Assemble(replies).status().code(), absl::StatusCode::kInvalidArgument)
        << "too few rows of ps " << ps;
  }
  replies[0].parts[0].values = Matrix(2, 2, {0, 1, 2, 3});
  replies[1].parts[0].values = Tensor::Vector<int64_t>({1, 2});
  EXPECT_EQ(plan.Assemble(replies).status().code(), absl::StatusCode::kInvalidArgument)
      << "another dtype";
}

TEST(PullPlanTest, AWholeVariableInOneShardHasItsOwnDtype) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 2, 2, {0}));
  const PullPlan plan(*layout, {VariableRead{"w", std::nullopt}});
  std::map<int, PullReply> replies;
  // This reply has a quarter of the bytes.
  replies[0].parts.push_back({*Tensor::Zeros(DType::kBool, {2, 2}), 1, false});
  EXPECT_EQ(plan.Assemble(replies).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(PullPlanTest, AWholeVariableInOneShardIsNotCopied) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 2, 2, {0}));
  const PullPlan plan(*layout, {VariableRead{"w", std::nullopt}});
  const Tensor sent = Matrix(2, 2, {0, 1, 2, 3});
  std::map<int, PullReply> replies;
  replies[0].parts.push_back({sent, 1, false});
  EXPECT_EQ((*plan.Assemble(replies))[0].data(), sent.data());
}

TEST(PullPlanTest, TellsWhatItWillCopy) {
  const auto layout =
      Layout::Empty()->With(Cut(1, "one", 4, 2, {0}))->With(Cut(2, "two", 4, 2, {0, 1}));
  EXPECT_EQ(PullPlan(*layout, {{"one", std::nullopt}}).copied_bytes(), 0);
  EXPECT_EQ(PullPlan(*layout, {{"two", std::nullopt}, {"one", Ids({1, 1, 3})}}).copied_bytes(),
            4 * 2 * 4 + 3 * 2 * 4);
}

// ---- what a table tells -------------------------------------------------------------------------

class TableReadsTest : public ::testing::Test {
 protected:
  TableReadsTest() {
    VariableLayout table = Cut(1, "user", kTableBuckets, 3, {0, 1, 0});
    table.spec.table = TableOptions();
    layout_ = Layout::Empty()->With(table)->With(Cut(2, "w", 3, 2, {0}));
  }
  // A server that answers what it is asked: count is key + 1000 and minute is -key.
  static PullPartReply AnswerTo(int ps, const PullPart& part) {
    if (part.want == PullWant::kStats) {
      const int64_t first = ps * 100 + part.shard.part;
      return {*Tensor::Copy<int64_t>({1, 6}, {first, 2, 3, 4, 5, 6})};
    }
    std::vector<int64_t> records;
    std::vector<float> values;
    for (const int64_t key : IdsOf(*part.rows)) {
      records.insert(records.end(), {key + 1000, -key});
      values.insert(values.end(), 3, static_cast<float>(key));
    }
    const int64_t n = part.rows->shape().num_elements();
    return {part.want == PullWant::kRecords ? *Tensor::Copy<int64_t>({n, 2}, records)
                                            : *Tensor::Copy<float>({n, 3}, values)};
  }
  static std::map<int, PullReply> AnswersTo(const PullPlan& plan) {
    std::map<int, PullReply> replies;
    for (const auto& [ps, parts] : plan.parts()) {
      for (const PullPart& part : parts) {
        replies[ps].parts.push_back(AnswerTo(ps, part));
        EXPECT_EQ(part.reply_bytes, replies[ps].parts.back().values.size_bytes());
      }
    }
    return replies;
  }
  absl::Status Check(VariableRead read) const { return CheckRead(*layout_, read); }

  std::shared_ptr<const Layout> layout_;
};

TEST_F(TableReadsTest, RecordsComeInTheOrderOfTheKeysAndStatisticsByPart) {
  const std::vector<int64_t> keys = {7, -5, 7, int64_t{1} << 60, 0, 12};
  const PullPlan plan(*layout_,
                      {{"user", Ids(keys)},
                       {"user", Ids(keys), PullWant::kRecords},
                       {"user", std::nullopt, PullWant::kStats},
                       {"user", std::nullopt, PullWant::kStats}},
                      Rounding::kAsSpecified);
  const auto read = plan.Assemble(AnswersTo(plan));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ((*read)[1].shape(), (Shape{6, 2}));
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(Flat((*read)[0])[3 * i], static_cast<float>(keys[i]));
    EXPECT_EQ(IdsOf((*read)[1])[2 * i], keys[i] + 1000);
    EXPECT_EQ(IdsOf((*read)[1])[2 * i + 1], -keys[i]);
  }
  for (const size_t stats : {2, 3}) {  // asked for once
    ASSERT_EQ((*read)[stats].shape(), (Shape{3, 6}));
    EXPECT_EQ(IdsOf((*read)[stats]),
              (std::vector<int64_t>{0, 2, 3, 4, 5, 6, 101, 2, 3, 4, 5, 6, 2, 2, 3, 4, 5, 6}));
  }
}

TEST_F(TableReadsTest, AnAnswerOfAnotherSizeIsAnError) {
  for (const PullWant want : {PullWant::kRecords, PullWant::kStats}) {
    const PullPlan plan(
        *layout_,
        {{"user", want == PullWant::kRecords ? std::optional<Tensor>(Ids({1, 2, 3})) : std::nullopt,
          want}});
    std::map<int, PullReply> replies = AnswersTo(plan);
    replies.begin()->second.parts[0].values = Ids({1, 2, 3});
    EXPECT_FALSE(plan.Assemble(replies).ok());
    replies.begin()->second.parts[0].values = Matrix(1, 6, {1, 2, 3, 4, 5, 6});
    EXPECT_FALSE(plan.Assemble(replies).ok());
  }
}

TEST_F(TableReadsTest, WhatHasNoRecordsIsToldWhatToDo) {
  const auto says = [&](VariableRead read, absl::string_view text) {
    const absl::Status refused = Check(std::move(read));
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(refused.message(), text)) << refused;
  };
  says({"w", Ids({1}), PullWant::kRecords}, "declare it as a DynamicTable");
  says({"w", std::nullopt, PullWant::kStats}, "is no dynamic table");
  says({"user", std::nullopt, PullWant::kRecords}, "records are of keys: name them");
  says({"user", Ids({1}), PullWant::kStats}, "give no keys");
  EXPECT_TRUE(absl::IsNotFound(Check({"users", Ids({1}), PullWant::kRecords})));
  EXPECT_TRUE(Check({"user", Ids({}), PullWant::kRecords}).ok());
  EXPECT_TRUE(Check({"user", std::nullopt, PullWant::kStats}).ok());
}

TEST(PullPlanTest, AVariableThatIsReadWholeTwiceIsAskedForOnce) {
  const auto layout = Layout::Empty()->With(Cut(1, "w", 2, 2, {0}));
  const PullPlan plan(*layout, {VariableRead{"w", std::nullopt}, VariableRead{"w", std::nullopt}});
  ASSERT_EQ(plan.parts().at(0).size(), 1u);
  std::map<int, PullReply> replies;
  replies[0].parts.push_back({Matrix(2, 2, {0, 1, 2, 3}), 1, false});
  const std::vector<Tensor> values = *plan.Assemble(replies);
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(Flat(values[0]), Values({0, 1, 2, 3}));
  EXPECT_EQ(Flat(values[1]), Values({0, 1, 2, 3}));
}

// ---- against a model ----------------------------------------------------------------------------

// The trivial model: each variable is one array. The cluster has the same array, cut into shards. A
// plan must change the shards as the write changes the array.
class TransferModel {
 public:
  explicit TransferModel(uint64_t seed) : random_(seed) {
    const int variables = 1 + random_.Below(4);
    layout_ = Layout::Empty();
    for (int v = 0; v < variables; ++v) {
      const int64_t rows = 1 + random_.Below(9), width = 1 + random_.Below(3);
      std::vector<int> ps;
      for (int64_t part = 0, parts = 1 + random_.Below(std::min<int64_t>(rows, 4)); part < parts;
           ++part)
        ps.push_back(random_.Below(3));
      layout_ = layout_->With(Cut(v + 1, "v" + std::to_string(v), rows, width, ps, Sgd{1.0}));
    }
    for (const auto& [id, variable] : layout_->variables()) {
      Values& values = whole_[variable.spec.name];
      for (int64_t i = 0; i < variable.spec.shape.num_elements(); ++i) values.push_back(Number());
      for (int part = 0; part < variable.num_shards(); ++part)
        shards_[ShardKey{id, 0, static_cast<uint16_t>(part)}] = PartOf(variable, part, values);
    }
  }

  void WriteSomething() {
    std::vector<StagedWrite> writes;
    std::set<std::string> done;
    for (int n = 1 + random_.Below(3); n > 0; --n) {
      StagedWrite write = AnyWrite();
      // At most one gradient for each variable.
      if (write.op == WriteOp::kGradient && !done.insert(write.variable).second) continue;
      ASSERT_TRUE(CheckWrite(*layout_, write).ok()) << CheckWrite(*layout_, write);
      writes.push_back(std::move(write));
    }
    for (const StagedWrite& write : writes) ApplyWhole(write);
    for (const auto& [ps, parts] : PlanCommits(*layout_, writes, 3, 1)) {
      for (const CommitPart& part : parts) {
        ASSERT_EQ(layout_->Find(part.shard.variable)->ps[part.shard.part], ps);
        ApplyPart(part);
      }
    }
    for (const auto& [key, values] : shards_) {
      const VariableLayout& variable = *layout_->Find(key.variable);
      ASSERT_EQ(values, PartOf(variable, key.part, whole_[variable.spec.name])) << key;
    }
  }

  void ReadSomething() {
    std::vector<VariableRead> reads;
    for (int n = 1 + random_.Below(4); n > 0; --n) {
      const VariableLayout& variable = Any();
      reads.push_back({variable.spec.name, random_.Chance(0.5)
                                               ? std::optional<Tensor>(AnyIds(variable))
                                               : std::nullopt});
    }
    const PullPlan plan(*layout_, reads);
    std::map<int, PullReply> replies;
    for (const auto& [ps, parts] : plan.parts()) {
      for (const PullPart& part : parts) {
        EXPECT_TRUE(!part.may_lend || !part.rows) << "only whole shards are lent";
        const Tensor values = Pull(part);
        replies[ps].parts.push_back({values, 1, false});
        if (!part.may_lend || !random_.Chance(0.7)) continue;
        const auto lent = std::make_shared<ScatteredTensor>(values.dtype(), values.shape());
        lent->AddCopy(
            absl::string_view(values.data_as<char>(), static_cast<size_t>(values.size_bytes())));
        replies[ps].parts.back() = {Tensor(), 1, false, lent};
      }
    }
    const absl::StatusOr<std::vector<Tensor>> values = plan.Assemble(replies);
    ASSERT_TRUE(values.ok()) << values.status();
    for (size_t i = 0; i < reads.size(); ++i)
      ASSERT_EQ(Flat((*values)[i]), Expected(reads[i])) << reads[i].variable;
  }

 private:
  // small whole numbers: sums are exact in any order
  float Number() { return static_cast<float>(random_.Below(9)) - 4; }
  const VariableLayout& Any() {
    return *layout_->Find(VariableId(1 + random_.Below(layout_->variables().size())));
  }
  int64_t Width(const VariableLayout& variable) { return variable.spec.shape.dim(1); }

  Tensor AnyIds(const VariableLayout& variable) {
    std::vector<int64_t> ids;
    for (int n = random_.Below(6); n > 0; --n) ids.push_back(random_.Below(variable.rows()));
    return Ids(ids);
  }

  Tensor AnyRows(const VariableLayout& variable, int64_t rows) {
    Values values;
    for (int64_t i = 0; i < rows * Width(variable); ++i) values.push_back(Number());
    return Matrix(rows, Width(variable), values);
  }

  StagedWrite AnyWrite() {
    const VariableLayout& variable = Any();
    const std::vector<WriteOp> dense = {WriteOp::kAssign, WriteOp::kAdd, WriteOp::kSub,
                                        WriteOp::kGradient};
    const std::vector<WriteOp> sparse = {WriteOp::kScatterUpdate, WriteOp::kScatterAdd,
                                         WriteOp::kScatterSub,    WriteOp::kScatterMin,
                                         WriteOp::kScatterMax,    WriteOp::kGradient};
    if (random_.Chance(0.4))
      return Write(variable.spec.name, dense[random_.Below(dense.size())],
                   AnyRows(variable, variable.rows()));
    const Tensor ids = AnyIds(variable);
    return WriteRows(variable.spec.name, sparse[random_.Below(sparse.size())], ids,
                     AnyRows(variable, ids.shape().dim(0)));
  }

  static Values PartOf(const VariableLayout& variable, int part, const Values& whole) {
    const int64_t width = variable.spec.shape.dim(1);
    return Values(whole.begin() + variable.offsets[part] * width,
                  whole.begin() + variable.offsets[part + 1] * width);
  }

  // A gradient is subtracted: Sgd with rate 1.
  static void Apply(WriteOp op, const std::vector<int64_t>& rows, const Values& values,
                    int64_t width, Values& out) {
    for (size_t i = 0; i < rows.size() * width; ++i) {
      float& old = out[rows[i / width] * width + i % width];
      switch (op) {
        case WriteOp::kAdd:
        case WriteOp::kScatterAdd: old += values[i]; break;
        case WriteOp::kSub:
        case WriteOp::kScatterSub:
        case WriteOp::kGradient: old -= values[i]; break;
        case WriteOp::kScatterMin: old = std::min(old, values[i]); break;
        case WriteOp::kScatterMax: old = std::max(old, values[i]); break;
        default: old = values[i];
      }
    }
  }

  static std::vector<int64_t> RowsOf(const std::optional<Tensor>& ids, const Tensor& values) {
    if (ids) return IdsOf(*ids);
    std::vector<int64_t> all(values.shape().dim(0));
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    return all;
  }

  void ApplyWhole(const StagedWrite& write) {
    Apply(write.op, RowsOf(write.ids, write.value), Flat(write.value),
          Width(*layout_->Find(write.variable)), whole_[write.variable]);
  }
  void ApplyPart(const CommitPart& part) {
    const std::vector<int64_t> rows = RowsOf(part.rows, part.values);
    if (part.op == WriteOp::kGradient) {
      ASSERT_TRUE(std::is_sorted(rows.begin(), rows.end()));
      ASSERT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), rows.size()) << "each row once";
      ASSERT_TRUE(part.optimizer.has_value());
    }
    Apply(part.op, rows, Flat(part.values), Width(*layout_->Find(part.shard.variable)),
          shards_[part.shard]);
  }

  Tensor Pull(const PullPart& part) {
    const int64_t width = Width(*layout_->Find(part.shard.variable));
    const Values& shard = shards_[part.shard];
    if (!part.rows) return Matrix(shard.size() / width, width, shard);
    Values values;
    for (const int64_t row : IdsOf(*part.rows))
      values.insert(values.end(), shard.begin() + row * width, shard.begin() + (row + 1) * width);
    return Matrix(part.rows->shape().dim(0), width, values);
  }

  Values Expected(const VariableRead& read) {
    const int64_t width = Width(*layout_->Find(read.variable));
    const Values& whole = whole_[read.variable];
    if (!read.ids) return whole;
    Values values;
    for (const int64_t row : IdsOf(*read.ids))
      values.insert(values.end(), whole.begin() + row * width, whole.begin() + (row + 1) * width);
    return values;
  }

  Random random_;
  std::shared_ptr<const Layout> layout_;
  std::map<std::string, Values> whole_;
  std::map<ShardKey, Values> shards_;
};

TEST(TransferPlanTest, WhatAPlanDoesToTheShardsIsWhatTheWritesDoToTheWhole) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    TransferModel model(seed);
    for (int i = 0; i < 10; ++i) {
      model.WriteSomething();
      model.ReadSomething();
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

// ---- tables

class TableWriteTest : public CheckWriteTest {
 protected:
  TableWriteTest() {
    VariableLayout table = Cut(4, "table", kTableBuckets, 2, {0, 1}, Sgd{0.1});
    table.spec.table.emplace();
    layout_ = layout_->With(std::move(table));
  }
};

TEST_F(TableWriteTest, RowsAndCountsAreAssignedByKeyAndTheLastOneOfAKeyStays) {
  const Tensor keys = Ids({-3, 8, -3});
  const StagedWrite rows = WriteRows("table", WriteOp::kAssign, keys,
                                     Matrix(3, 2, {1, 2, 3, 4, 5, 6})),
                    counts = WriteRows("table", WriteOp::kAssign, keys, Ids({10, 11, 12}));
  EXPECT_TRUE(CheckWrite(*layout_, rows).ok()) << CheckWrite(*layout_, rows);
  EXPECT_TRUE(CheckWrite(*layout_, counts).ok()) << CheckWrite(*layout_, counts);
  std::map<int64_t, std::pair<Values, int64_t>> found;
  for (const auto& [ps, parts] : PlanCommits(*layout_, {rows, counts}, 0, 1)) {
    ASSERT_EQ(parts.size() % 2, 0);
    for (size_t i = 0; i < parts.size(); i += 2) {
      const std::vector<int64_t> of_part = IdsOf(*parts[i].rows);
      EXPECT_EQ(IdsOf(*parts[i + 1].rows), of_part);
      for (size_t k = 0; k < of_part.size(); ++k)
        found[of_part[k]] = {{Flat(parts[i].values)[2 * k], Flat(parts[i].values)[2 * k + 1]},
                             IdsOf(parts[i + 1].values)[k]};
    }
  }
  EXPECT_EQ(found,
            (std::map<int64_t, std::pair<Values, int64_t>>{{-3, {{5, 6}, 12}}, {8, {{3, 4}, 11}}}));
}

TEST_F(TableWriteTest, OtherShapesAndCountsOfVariablesAreRefused) {
  const auto refused = absl::StatusCode::kInvalidArgument;
  ExpectRefused(WriteRows("table", WriteOp::kAssign, Ids({1, 2}), Ids({1})), refused, "[2, 2]");
  ExpectRefused(WriteRows("table", WriteOp::kScatterUpdate, Ids({1, 2}), Ids({1, 2})), refused,
                "[2, 2]");
  ExpectRefused(WriteRows("table", WriteOp::kAssign, Ids({1}), Matrix(1, 3, {1, 2, 3})), refused,
                "[1, 2]");
  ExpectRefused(WriteRows("plain", WriteOp::kAssign, Ids({1}), Ids({1})), refused, "[1, 2]");
  ExpectRefused(Write("table", WriteOp::kAssign, Ids({1})), refused, "give ids");
}

}  // namespace
}  // namespace divvy
