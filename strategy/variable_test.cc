// Variables and gradients, as a step sees them.
#include "strategy/variable.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/ops.h"
#include "ops/testing/place.h"
#include "strategy/replica_context.h"
#include "strategy/testing/test_strategy.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tensor Floats(Shape shape, std::vector<float> values) {
  return *Tensor::Copy<float>(shape, values);
}
Tensor Floats(std::vector<float> values) { return Tensor::Vector<float>(values); }
Tensor Ids(std::vector<int64_t> ids) { return Tensor::Vector<int64_t>(ids); }

std::vector<float> Values(const absl::StatusOr<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  const auto values = tensor->values<float>();
  return std::vector<float>(values->begin(), values->end());
}

// A variable "v" with these values.
Variable Make(TestStrategy& strategy, Tensor value,
              VariableAggregation aggregation = VariableAggregation::kNone) {
  VariableSpec spec{"v", value.shape(), value};
  spec.aggregation = aggregation;
  return *strategy->CreateVariable(spec);
}
Variable MakeRange(TestStrategy& strategy, int n) {
  std::vector<float> values;
  for (int i = 0; i < n; ++i) values.push_back(i);
  return Make(strategy, Floats(values));
}

// ---- reading ------------------------------------------------------------------------------------

struct SliceCase {
  std::optional<int64_t> start, stop;
  int64_t step;
  std::vector<float> rows;
};

TEST(VariableSliceTest, FollowsPythonsRules) {
  TestStrategy strategy(1);
  const Variable v = MakeRange(strategy, 8);
  const std::optional<int64_t> none;
  const std::vector<SliceCase> cases = {
      {none, none, 1, {0, 1, 2, 3, 4, 5, 6, 7}},
      {2, 6, 1, {2, 3, 4, 5}},
      {none, none, 4, {0, 4}},
      {none, none, -3, {7, 4, 1}},
      {-3, none, 1, {5, 6, 7}},
      {none, -6, 1, {0, 1}},
      {4, 4, 1, {}},
      {6, 2, 1, {}},
      {-12, none, 3, {0, 3, 6}},    // TensorFlow's container gives rows 2, 5
      {8, none, -2, {7, 5, 3, 1}},  // and here 6, 4, 2, 0
      {none, -100, -5, {7, 2}},
      {100, 200, 1, {}},
      {none, none, INT64_MAX, {0}},
      {none, none, INT64_MIN, {7}},
      {INT64_MIN, INT64_MAX, 7, {0, 7}},
      {INT64_MAX, INT64_MIN, -7, {7, 0}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(Values(v.Slice(cases[i].start, cases[i].stop, cases[i].step)), cases[i].rows);
  }
}

TEST(VariableSliceTest, ASliceOfNothingKeepsTheOtherAxes) {
  TestStrategy strategy(1);
  EXPECT_EQ(Make(strategy, Floats({2, 3}, std::vector<float>(6))).Slice(1, 1)->shape(),
            Shape({0, 3}));
}

struct IndexCase {
  std::vector<IndexItem> index;
  std::vector<float> values;
  Shape shape;
};

TEST(VariableIndexTest, FollowsNumPysRules) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({3, 2}, {0, 1, 2, 3, 4, 5}));
  const std::vector<IndexCase> cases = {
      {{}, {0, 1, 2, 3, 4, 5}, {3, 2}},
      {{-1}, {4, 5}, {2}},
      {{1, 0}, {2}, {}},
      {{IndexSlice{{}, {}, -1}, IndexSlice{{}, {}, -1}}, {5, 4, 3, 2, 1, 0}, {3, 2}},
      {{Ellipsis{}, 1}, {1, 3, 5}, {3}},
      {{IndexSlice{0, 2}, Ellipsis{}}, {0, 1, 2, 3}, {2, 2}},
      {{NewAxis{}, IndexSlice{1, {}}, NewAxis{}}, {2, 3, 4, 5}, {1, 2, 1, 2}},
      {{Ellipsis{}, IndexSlice{0, 2}, IndexSlice{1, 2}}, {1, 3}, {2, 1}},
      {{IndexSlice{1, 1}, 1}, {}, {0}},
  };
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(i);
    const auto got = v.At(cases[i].index);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Values(got), cases[i].values);
    EXPECT_EQ(got->shape(), cases[i].shape);
  }
  // As a program writes it.
  EXPECT_EQ(Values(v.At({IndexSlice{1, 3}, -1})), (std::vector<float>{3, 5}));
}

TEST(VariableIndexTest, RefusesWhatIsOutsideOrMakesNoSense) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({3, 2}, {0, 1, 2, 3, 4, 5}));
  EXPECT_THAT(v.At({3}).status().message(), HasSubstr("index 3 is outside axis 0"));
  EXPECT_EQ(v.At({-4}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(v.At({0, 2}).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(v.At({IndexSlice{0, 1, 0}}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(v.At({0, 0, 0}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(v.At({Ellipsis{}, Ellipsis{}}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(VariableIndexTest, OfRankZeroTakesNewAxesOnly) {
  TestStrategy strategy(1);
  const Variable scalar = Make(strategy, Tensor::Scalar(7.0f));
  EXPECT_EQ(scalar.At({NewAxis{}, Ellipsis{}})->shape(), Shape({1}));
  EXPECT_EQ(scalar.At({0}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(VariableSliceTest, RefusesStepZeroAndRankZero) {
  TestStrategy strategy(1);
  EXPECT_THAT(MakeRange(strategy, 3).Slice(0, 1, 0).status().message(),
              HasSubstr("step must not be 0"));
  const Variable scalar = *strategy->CreateVariable({"s", {}});
  EXPECT_EQ(scalar.Slice(0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(scalar.Rows(Ids({0})).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(VariableRowsTest, ComeInTheOrderAskedForIdsOfAnyShape) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({3, 2}, {0, 1, 10, 11, 20, 21}));
  EXPECT_EQ(Values(v.Rows(Ids({2, 0, 2}))), (std::vector<float>{20, 21, 0, 1, 20, 21}));
  const auto square = v.Rows(*Tensor::Copy<int32_t>({2, 2}, {2, 1, 0, 0}));
  EXPECT_EQ(square->shape(), Shape({2, 2, 2}));
  EXPECT_EQ(Values(square), (std::vector<float>{20, 21, 10, 11, 0, 1, 0, 1}));
  EXPECT_EQ(v.Rows(Ids({}))->shape(), Shape({0, 2}));
  for (int64_t bad : {-1, 3})
    EXPECT_EQ(v.Rows(Ids({bad})).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- writing ------------------------------------------------------------------------------------

TEST(VariableTest, CarriesItsSpecAndIsFoundByName) {
  TestStrategy strategy(1);
  const Variable v = MakeRange(strategy, 4);
  EXPECT_EQ(absl::string_view(v), "v");
  EXPECT_EQ(v.spec().shape, Shape({4}));
  EXPECT_THAT(v.shard_offsets(), ElementsAre(0, 4));
  EXPECT_TRUE(strategy->FindVariable("v").ok());
  const absl::Status unknown = strategy->FindVariable("w").status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(unknown.message(), HasSubstr("v"));
  EXPECT_EQ(strategy->CreateVariable({"v", {4}}).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(strategy->CreateVariable({"bad name", {4}}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(VariableTest, AssignsAddsAndSubtractsWhole) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({1, 2}));
  EXPECT_TRUE(v.AssignAdd(Floats({10, 20})).ok());
  EXPECT_TRUE(v.AssignSub(Floats({1, 1})).ok());
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{10, 21}));
  EXPECT_TRUE(v.Assign(Floats({5, 6})).ok());
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{5, 6}));
}

TEST(VariableTest, RefusesAnotherShapeOrDtypeBeforeAnythingIsWritten) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({1, 2}));
  for (const Tensor& bad : {Floats({1, 2, 3}), Floats({1}), Floats({1, 2}, {1, 2}),
                            Tensor::Scalar(1.0f), Tensor::Vector<double>({1, 2})}) {
    SCOPED_TRACE(bad.ToString());
    EXPECT_EQ(v.Assign(bad).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(v.AssignAdd(bad).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{1, 2}));
}

struct ScatterCase {
  Variable::Scatter op;
  std::vector<float> result;
};

TEST(VariableTest, ScattersEveryOccurrenceOfARowAndUpdatesKeepTheLast) {
  const std::vector<ScatterCase> cases = {
      {Variable::Scatter::kUpdate, {4, 8, 3}},     {Variable::Scatter::kAdd, {14, 8, 11}},
      {Variable::Scatter::kSub, {2, 8, 5}},        {Variable::Scatter::kMul, {64, 8, 24}},
      {Variable::Scatter::kDiv, {1, 8, 8.0f / 3}}, {Variable::Scatter::kMin, {2, 8, 3}},
      {Variable::Scatter::kMax, {8, 8, 8}},
  };
  for (const ScatterCase& scatter : cases) {
    SCOPED_TRACE(static_cast<int>(scatter.op));
    TestStrategy strategy(1);
    const Variable v = Make(strategy, Floats({8, 8, 8}));
    ASSERT_TRUE(v.ScatterRows(scatter.op, {Ids({0, 2, 0}), Floats({2, 3, 4}), 3}).ok());
    EXPECT_EQ(Values(v.Read()), scatter.result);
  }
}

TEST(VariableTest, AScatterThatDoesNotFitWritesNothing) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({3, 1}, {8, 8, 8}));
  const std::vector<IndexedSlices> bad = {
      {Ids({0, 3}), Floats({2, 1}, {1, 1}), 3},  // an id outside
      {Ids({0}), Floats({1, 1}, {1}), 4},        // num_rows of another tensor
      {Ids({0, 1}), Floats({1, 1}, {1}), 3},     // more ids than rows
      {Ids({0}), Floats({1, 2}, {1, 1}), 3},     // another row shape
  };
  for (const IndexedSlices& slices : bad)
    EXPECT_EQ(v.ScatterRows(Variable::Scatter::kAdd, slices).code(),
              absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{8, 8, 8}));
}

TEST(VariableTest, UpdateOfTheExtendedApiWritesWholeOrByRows) {
  TestStrategy strategy(1);
  const Variable v = Make(strategy, Floats({1, 2}));
  StrategyExtended& extended = strategy->extended();
  EXPECT_TRUE(extended.Update(v, Variable::Scatter::kUpdate, Nest(Floats({3, 4}))).ok());
  EXPECT_TRUE(extended.Update(v, Variable::Scatter::kAdd, Nest(Floats({1, 1}))).ok());
  EXPECT_TRUE(extended.Update(v, Variable::Scatter::kSub, Nest(Floats({0, 2}))).ok());
  EXPECT_TRUE(
      extended.Update(v, Variable::Scatter::kMul, Nest(IndexedSlices{Ids({1}), Floats({5}), 2}))
          .ok());
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{4, 15}));
  EXPECT_EQ(extended.Update(v, Variable::Scatter::kMul, Nest(Floats({1, 1}))).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(extended.Update(v, Variable::Scatter::kAdd, Nest("text")).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(VariableTest, AHandleFromElsewhereWorksForTheStrategyThatIsCurrent) {
  TestStrategy coordinator(1), step(1);
  const Variable handle = Make(coordinator, Floats({1}));
  Make(step, Floats({100}));
  {
    auto scope = step->Scope();
    EXPECT_EQ(Values(handle.Read()), std::vector<float>{100});
    EXPECT_TRUE(handle.AssignAdd(Floats({1})).ok());
  }
  EXPECT_EQ(Values(handle.Read()), std::vector<float>{1});
  EXPECT_EQ(Values(step.store().Value("v")), std::vector<float>{101});
}

TEST(VariableTest, AHandleOfAnotherJobIsRefusedWhereAStrategyIsCurrentAndBothAreNamed) {
  TestStrategy mine(1, /*job=*/0xabc), other(1, /*job=*/0xdef);
  const Variable handle = Make(mine, Floats({1}));
  Make(other, Floats({100}));
  {
    auto scope = other->Scope();
    for (const absl::Status& refused :
         {handle.Read().status(), handle.Rows(Ids({0})).status(), handle.Slice(0, 1, 1).status(),
          handle.Assign(Floats({2})), handle.AssignAdd(Floats({2})),
          handle.ScatterRows(Variable::Scatter::kAdd, {Ids({0}), Tensor::Vector<float>({2}), 1}),
          other->Run([&](ReplicaContext&) { return handle.AssignAdd(Floats({2})); }).status()}) {
      EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
      EXPECT_THAT(
          refused.message(),
          HasSubstr(
              "\"v\" belongs to the strategy of job abc, and the strategy of job def is current"));
    }
  }
  EXPECT_EQ(Values(handle.Read()), std::vector<float>{1});
  EXPECT_EQ(Values(other.store().Value("v")), std::vector<float>{100});
}

// ---- several replicas ---------------------------------------------------------------------------

// The value of "v" after replica 0 has added 1 and replica 1 has added 3. It was 0 before.
absl::StatusOr<std::vector<float>> AddOneAndThree(VariableAggregation aggregation) {
  TestStrategy strategy(2);
  const Variable v = Make(strategy, Floats({0}), aggregation);
  RETURN_IF_ERROR(strategy->Run([&](ReplicaContext& replica) {
    return v.AssignAdd(Floats({replica.replica_id_in_sync_group() == 0 ? 1.f : 3.f}));
  }));
  return Values(v.Read());
}

TEST(AggregationTest, CombinesTheReplicasAsTheSpecSays) {
  EXPECT_THAT(*AddOneAndThree(VariableAggregation::kSum), ElementsAre(4));
  EXPECT_THAT(*AddOneAndThree(VariableAggregation::kMean), ElementsAre(2));
  EXPECT_THAT(*AddOneAndThree(VariableAggregation::kOnlyFirstReplica), ElementsAre(1));
  const absl::Status none = AddOneAndThree(VariableAggregation::kNone).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("set `aggregation`"));
}

TEST(AggregationTest, DoesNotMatterForOneReplicaOrOutsideRun) {
  TestStrategy one(1), two(2);
  const Variable v = Make(one, Floats({0}));
  EXPECT_TRUE(one->Run([&](ReplicaContext&) { return v.AssignAdd(Floats({1})); }).ok());
  EXPECT_EQ(Values(v.Read()), std::vector<float>{1});
  EXPECT_TRUE(Make(two, Floats({0})).AssignAdd(Floats({1})).ok());
}

TEST(AggregationTest, ScattersCountOncePerReplica) {
  TestStrategy strategy(2);
  const Variable v = Make(strategy, Floats({0, 0}), VariableAggregation::kMean);
  const auto add = [&](ReplicaContext&) {
    return v.ScatterRows(Variable::Scatter::kAdd, {Ids({1}), Floats({1}), 2});
  };
  ASSERT_TRUE(strategy->Run(add).ok());
  EXPECT_EQ(Values(v.Read()), (std::vector<float>{0, 2}));
}

TEST(AggregationTest, ReplicasThatAssignDifferentVariablesDisagree) {
  TestStrategy strategy(2);
  VariableSpec spec{"w", {1}};
  spec.aggregation = VariableAggregation::kSum;
  const Variable v = Make(strategy, Floats({0}), VariableAggregation::kSum),
                 w = *strategy->CreateVariable(spec);
  const auto assign = [&](ReplicaContext& replica) {
    return (replica.replica_id_in_sync_group() == 0 ? v : w).Assign(Floats({1}));
  };
  EXPECT_EQ(strategy->Run(assign).status().code(), absl::StatusCode::kInvalidArgument);
}

// ---- gradients ----------------------------------------------------------------------------------

const VariableSpec kWeights{"weights", {2}, Zeros(), Sgd{0.5}};
const VariableSpec kTable{"table", {4, 1}, Zeros(), Sgd{1.0}};

Gradients GradientOf(const std::string& name, GradientValue value) {
  Gradients gradients;
  gradients.Set(name, std::move(value));
  return gradients;
}

std::vector<float> AfterDense(ReduceOp op) {
  TestStrategy strategy(2);
  EXPECT_TRUE(strategy->CreateVariable(kWeights).ok());
  const auto apply = [op](ReplicaContext& replica) {
    return replica.ApplyGradients(
        GradientOf("weights",
                   replica.replica_id_in_sync_group() == 0 ? Floats({1, 2}) : Floats({3, 6})),
        op);
  };
  EXPECT_TRUE(strategy->Run(apply).ok());
  return Values(strategy.store().Value("weights"));
}

TEST(ApplyGradientsTest, TakesTheMeanOfTheReplicasUnlessToldOtherwise) {
  EXPECT_THAT(AfterDense(ReduceOp::kMean), ElementsAre(-1, -2));
  EXPECT_THAT(AfterDense(ReduceOp::kSum), ElementsAre(-2, -4));
}

TEST(ApplyGradientsTest, ConcatenatesIndexedSlices) {
  TestStrategy strategy(2);
  ASSERT_TRUE(strategy->CreateVariable(kTable).ok());
  const auto apply = [](ReplicaContext& replica) {
    const IndexedSlices mine = replica.replica_id_in_sync_group() == 0
                                   ? IndexedSlices{Ids({0, 2}), Floats({2, 1}, {1, 2}), 4}
                                   : IndexedSlices{Ids({2}), Floats({1, 1}, {5}), 4};
    return replica.ApplyGradients(GradientOf("table", mine), ReduceOp::kSum);
  };
  ASSERT_TRUE(strategy->Run(apply).ok());
  EXPECT_EQ(Values(strategy.store().Value("table")), (std::vector<float>{-1, 0, -7, 0}));
}

TEST(CopyToCpuTest, SumsTheRowsOfOneIdOfAGradientBeforeTheyLeaveAGpu) {
  const Tensor rows = There(Floats({3, 1}, {1, 2, 5}));
  ASSERT_EQ(rows.device().kind, Device::Kind::kGpu);
  std::vector<StagedWrite> writes;
  for (const WriteOp op : {WriteOp::kGradient, WriteOp::kScatterMul})
    writes.push_back({"table", op, rows, Ids({2, 0, 2}), std::nullopt});
  writes.push_back({"weights", WriteOp::kGradient, There(Floats({7})), std::nullopt, std::nullopt});
  ASSERT_EQ(CopyToCpu(writes), absl::OkStatus());
  EXPECT_TRUE(BitwiseEqual(*writes[0].ids, Ids({0, 2})));
  EXPECT_THAT(Values(writes[0].value), ElementsAre(2, 6));
  EXPECT_TRUE(BitwiseEqual(*writes[1].ids, Ids({2, 0, 2})));
  EXPECT_THAT(Values(writes[1].value), ElementsAre(1, 2, 5));
  EXPECT_THAT(Values(writes[2].value), ElementsAre(7));
}

TEST(ApplyGradientsTest, CountsOncePerStepAndVariable) {
  TestStrategy strategy(2);
  ASSERT_TRUE(strategy->CreateVariable(kWeights).ok());
  const auto apply = [](ReplicaContext& replica) {
    return replica.ApplyGradients(GradientOf("weights", Floats({1, 2})));
  };
  EXPECT_TRUE(strategy->Run(apply).ok());
  const absl::Status second = strategy->Run(apply).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  // Only the variable's parameter server can compute the effect.
  EXPECT_EQ(strategy->FindVariable("weights")->Read().status().code(),
            absl::StatusCode::kFailedPrecondition);
  strategy.store().BeginStep(1);
  EXPECT_TRUE(strategy->Run(apply).ok());
}

TEST(ApplyGradientsTest, NeedsAnOptimizerFromTheSpecOrTheCall) {
  TestStrategy strategy(1);
  ASSERT_TRUE(strategy->CreateVariable({"plain", {1}}).ok());
  const Gradients gradients = GradientOf("plain", Floats({2}));
  const auto without = [&](ReplicaContext& replica) { return replica.ApplyGradients(gradients); };
  const absl::Status none = strategy->Run(without).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(none.message(), HasSubstr("optimizer"));
  const auto with = [&](ReplicaContext& replica) {
    return replica.ApplyGradients(gradients, Sgd{0.25});
  };
  ASSERT_TRUE(strategy->Run(with).ok());
  EXPECT_EQ(Values(strategy.store().Value("plain")), std::vector<float>{-0.5});
}

TEST(ApplyGradientsTest, StagesAllVariablesOrNone) {
  TestStrategy strategy(1);
  ASSERT_TRUE(strategy->CreateVariable(kWeights).ok());
  Gradients gradients = GradientOf("weights", Floats({1, 1}));
  gradients.Set("unknown", Floats({1}));
  const auto apply = [&](ReplicaContext& replica) { return replica.ApplyGradients(gradients); };
  EXPECT_EQ(strategy->Run(apply).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Values(strategy.store().Value("weights")), (std::vector<float>{0, 0}));
}

TEST(ApplyGradientsTest, PassesOnTheErrorOfTheGradient) {
  TestStrategy strategy(2);
  const auto apply = [](ReplicaContext& replica) {
    return replica.ApplyGradients(absl::InternalError("no gradient"));
  };
  EXPECT_EQ(strategy->Run(apply).status(), absl::InternalError("no gradient"));
}

TEST(ApplyGradientsTest, IsRefusedInAReadOnlyStep) {
  TestStrategy strategy(1);
  ASSERT_TRUE(strategy->CreateVariable(kWeights).ok());
  strategy.store().BeginStep(0, MapVariableStore::Kind::kReadOnly);
  const auto apply = [](ReplicaContext& replica) {
    return replica.ApplyGradients(GradientOf("weights", Floats({1, 2})));
  };
  EXPECT_EQ(strategy->Run(apply).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ReadAllTest, IsOneRoundTripAndComparesTheSpecs) {
  TestStrategy strategy(1);
  ASSERT_TRUE(strategy->CreateVariable(kWeights).ok());
  ASSERT_TRUE(strategy->CreateVariable(kTable).ok());
  const auto read = [](ReplicaContext& replica) { return replica.ReadAll({kWeights, kTable}); };
  const auto values = strategy->Run(read);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0][1].shape(), Shape({4, 1}));
  EXPECT_EQ(strategy.store().num_reads(), 1);
  const auto differs = [](ReplicaContext& replica) {
    return replica.ReadAll({VariableSpec{"weights", {3}}});
  };
  const absl::Status status = strategy->Run(differs).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(),
              HasSubstr("was created as float32 [2], but this spec says float32 [3]"));
}

TEST(TrainingTest, ATapeOverAReplicaLearnsALine) {
  TestStrategy strategy(2);
  const VariableSpec slope{"slope", {1, 1}, Zeros(), Adam{0.1}},
      offset{"offset", {1}, Zeros(), Adam{0.1}};
  ASSERT_TRUE(strategy->CreateVariable(slope).ok());
  ASSERT_TRUE(strategy->CreateVariable(offset).ok());
  const PerReplica<Tensor> xs({Floats({2, 1}, {0, 1}), Floats({2, 1}, {2, 3})}),
      ys({Floats({2, 1}, {1, 3}), Floats({2, 1}, {5, 7})});
  for (int step = 0; step < 400; ++step) {
    strategy.store().BeginStep(step);
    const absl::Status trained =
        strategy
            ->Run(
                [&](ReplicaContext& replica, const Tensor& x, const Tensor& y) {
                  GradientTape tape(replica);
                  Var a = tape.Read(slope), b = tape.Read(offset);
                  return replica.ApplyGradients(
                      tape.Gradient(ReduceMean(Square(MatMul(Var(x), a) + b - Var(y)))));
                },
                xs, ys)
            .status();
    ASSERT_TRUE(trained.ok()) << trained;
  }
  EXPECT_NEAR(Values(strategy.store().Value("slope"))[0], 2, 0.05);
  EXPECT_NEAR(Values(strategy.store().Value("offset"))[0], 1, 0.05);
}

}  // namespace
}  // namespace divvy
