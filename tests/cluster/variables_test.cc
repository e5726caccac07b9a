// Variables on a whole cluster in this process: how they are cut and named, who may create them,
// and what replicas and workers write to variables with several shards.
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "divvy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/main.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// ---- steps --------------------------------------------------------------------------------------

// Replica 0 adds the ones, replica 1 the threes.
absl::Status AddFromEachReplica(ReplicaContext& replica, const std::string& name) {
  ASSIGN_OR_RETURN(Variable variable, replica.strategy().FindVariable(name));
  const float mine = replica.replica_id_in_sync_group() == 0 ? 1 : 3;
  return variable.AssignAdd(
      Tensor::Vector<float>(std::vector<float>(variable.spec().shape.dim(0), mine)));
}
absl::Status AddFromEachReplicaStep(WorkerContext& worker, std::string name) {
  return worker.strategy().Run(AddFromEachReplica, name).status();
}
const Step kAddFromEachReplica("variables_test/add_from_each_replica", AddFromEachReplicaStep);

// Adds to rows 0 and 6 of a table, which are in different shards.
absl::Status AddToTwoRows(WorkerContext& worker) {
  ASSIGN_OR_RETURN(Variable table, worker.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(Tensor ones, Tensor::Copy<float>({3, 1}, {1, 1, 1}));
  return table.ScatterRows(Variable::Scatter::kAdd, {Tensor::Vector<int64_t>({6, 0, 6}), ones, 7});
}
const Step kAddToTwoRows("variables_test/add_to_two_rows", AddToTwoRows);

absl::StatusOr<Metrics> TakeBatch(WorkerContext& worker, Iterator batches) {
  RETURN_IF_ERROR(worker.Next(batches).status());
  return Metrics();
}
const Step kTakeBatch("variables_test/take_batch", TakeBatch);

absl::StatusOr<Dataset> CreatesAVariable(const InputContext&) {
  RETURN_IF_ERROR(CreateVariable({"in_a_data_source", {2}}).status());
  return Dataset::FromTensorSlices(Tensor::Vector<float>({1})).Batch(1);
}
const DataSource kCreatesAVariable("variables_test/creates_a_variable", CreatesAVariable);

// The first element of a variable, as the step sees it. Then a gradient of the value for each
// element.
absl::StatusOr<float> ReadAndDescend(WorkerContext& worker, std::string name, float value) {
  ASSIGN_OR_RETURN(const Variable variable, worker.strategy().FindVariable(name));
  ASSIGN_OR_RETURN(const Tensor seen, variable.Read());
  const auto descend = [&](ReplicaContext& replica) -> absl::Status {
    Gradients gradients;
    gradients.Set(name, Tensor::Vector<float>(
                            std::vector<float>(static_cast<size_t>(seen.shape().dim(0)), value)));
    return replica.ApplyGradients(gradients);
  };
  RETURN_IF_ERROR(worker.strategy().Run(descend).status());
  return seen.data_as<float>()[0];
}
const Step kReadAndDescend("variables_test/read_and_descend", ReadAndDescend);

// ---- the cluster --------------------------------------------------------------------------------

class VariablesTest : public testing::Test {
 protected:
  void Start(const StrategyOptions& strategy, int replicas = 1) {
    EmbeddedOptions options;
    options.replicas_per_worker = replicas;
    options.strategy = strategy;
    auto coordinator = StartEmbedded(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
  }
  Strategy& strategy() { return coordinator_->strategy(); }
  std::vector<int64_t> OffsetsOf(const VariableSpec& spec) {
    const absl::StatusOr<Variable> variable = strategy().CreateVariable(spec);
    EXPECT_TRUE(variable.ok()) << variable.status();
    return {variable->shard_offsets().begin(), variable->shard_offsets().end()};
  }
  std::vector<float> ValuesOf(const std::string& name) {
    const Tensor value = *strategy().FindVariable(name)->Read();
    const absl::Span<const float> values = *value.values<float>();
    return {values.begin(), values.end()};
  }

  std::unique_ptr<Coordinator> coordinator_;
};

VariableSpec CutInTwo(std::string name, Shape shape) {
  VariableSpec spec{std::move(name), std::move(shape)};
  spec.partitioner = FixedShardsPartitioner{2};
  return spec;
}

StrategyOptions InShards(int64_t shards_more_than_ps) {
  return {[=](int num_ps) -> Partitioner {
    return FixedShardsPartitioner{num_ps + shards_more_than_ps};
  }};
}

TEST_F(VariablesTest, AreCutByTheStrategysPartitionerUnlessTheirSpecHasItsOwn) {
  Start(InShards(2));  // more shards than the 2 parameter servers
  EXPECT_THAT(OffsetsOf({"by_the_strategy", {9}}), ElementsAre(0, 3, 5, 7, 9));
  EXPECT_THAT(OffsetsOf(CutInTwo("by_its_spec", {9})), ElementsAre(0, 5, 9));
  EXPECT_THAT(OffsetsOf({"fewer_rows", {3, 8}}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(OffsetsOf({"scalar", {}}), ElementsAre(0, 1));
  EXPECT_THAT(OffsetsOf({"no_rows", {0, 4}}), ElementsAre(0, 0));
}

// bfloat16 has 1 and 1 + 1/128, and no number between them.
constexpr float kBetween = 1 + 1.0f / 512;

TEST_F(VariablesTest, ThatTravelAsBFloat16AreRoundedInStepsAlone) {
  StrategyOptions strategy_options = InShards(2);
  strategy_options.wire = [](const VariableSpec& spec) {
    return spec.name == "exact" ? WireFormat::kExact : WireFormat::kBFloat16;
  };
  Start(strategy_options);
  VariableSpec spec{"by_the_strategy", {9}, Constant{kBetween}, Sgd{1.0}};
  for (const WireFormat wire : {WireFormat::kExact, WireFormat::kBFloat16Random}) {
    spec.wire = wire;
    const absl::StatusOr<Variable> variable = strategy().CreateVariable(spec);
    ASSERT_TRUE(variable.ok()) << variable.status();
    EXPECT_EQ(ValuesOf(spec.name), std::vector<float>(9, kBetween));
    auto seen = coordinator_->Schedule(kReadAndDescend, spec.name, kBetween);
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(*seen->Fetch(), 1);
    // The gradient was 1, or perhaps 1 + 1/128.
    for (const float value : ValuesOf(spec.name)) {
      EXPECT_TRUE(value == kBetween - 1 ||
                  (wire == WireFormat::kBFloat16Random && value == kBetween - 1 - 1.0f / 128))
          << value;
    }
    spec.name = "of_its_own";
  }
  ASSERT_TRUE(strategy().CreateVariable({"exact", {9}, Constant{kBetween}, Sgd{1.0}}).ok());
  auto seen = coordinator_->Schedule(kReadAndDescend, "exact", kBetween);
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_EQ(*seen->Fetch(), kBetween);
  EXPECT_EQ(ValuesOf("exact"), std::vector<float>(9, 0));
  const absl::StatusOr<Variable> count =
      strategy().CreateVariable({"count", {3}, Zeros(), {}, DType::kInt64});
  EXPECT_TRUE(count.ok()) << "others than float32 travel as they are: " << count.status();
  VariableSpec wrong{"wrong", {3}, Zeros(), {}, DType::kInt64};
  wrong.wire = WireFormat::kBFloat16;
  EXPECT_THAT(std::string(strategy().CreateVariable(wrong).status().message()),
              HasSubstr("only float32 travels as bfloat16"));
}

// The elements of a float32 tensor. Its shape is checked elsewhere.
std::vector<float> FloatsIn(const absl::StatusOr<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  if (!tensor.ok()) return {};
  const absl::Span<const float> values = *tensor->values<float>();
  return {values.begin(), values.end()};
}

TEST_F(VariablesTest, AreReadInPartsAcrossTheirShardsByPythonsRules) {
  Start(InShards(2));
  const absl::StatusOr<Variable> made = strategy().CreateVariable({"table", {9, 2}});
  ASSERT_TRUE(made.ok()) << made.status();
  const Variable& table = *made;
  ASSERT_THAT(table.shard_offsets(), ElementsAre(0, 3, 5, 7, 9));
  EXPECT_THAT(table.shard_servers(), ElementsAre(0, 1, 0, 1));
  std::vector<float> numbers;  // row i is {i, 10 + i}
  for (int i = 0; i < 9; ++i) {
    numbers.push_back(static_cast<float>(i));
    numbers.push_back(static_cast<float>(10 + i));
  }
  ASSERT_TRUE(table.Assign(*Tensor::Copy<float>({9, 2}, numbers)).ok());

  EXPECT_THAT(FloatsIn(table.Slice(2, 7)), ElementsAre(2, 12, 3, 13, 4, 14, 5, 15, 6, 16));
  EXPECT_THAT(FloatsIn(table.Slice(std::nullopt, std::nullopt, -4)),
              ElementsAre(8, 18, 4, 14, 0, 10));
  EXPECT_THAT(FloatsIn(table.Slice(-3, std::nullopt)), ElementsAre(6, 16, 7, 17, 8, 18));
  EXPECT_THAT(FloatsIn(table.Slice(7, 2, -3)), ElementsAre(7, 17, 4, 14));
  EXPECT_EQ(table.Slice(5, 5)->shape(), (Shape{0, 2}));
  EXPECT_THAT(FloatsIn(table.At({-1})), ElementsAre(8, 18));
  EXPECT_THAT(FloatsIn(table.At({IndexSlice{1, 9, 3}, 1})), ElementsAre(11, 14, 17));
  EXPECT_THAT(FloatsIn(table.At({Ellipsis{}, IndexSlice{{}, {}, -1}, 0})),
              ElementsAre(8, 7, 6, 5, 4, 3, 2, 1, 0));
  EXPECT_EQ(table.At({NewAxis{}, IndexSlice{4, 6}})->shape(), (Shape{1, 2, 2}));
  EXPECT_THAT(FloatsIn(table.At({NewAxis{}, IndexSlice{4, 6}})), ElementsAre(4, 14, 5, 15));
  EXPECT_THAT(FloatsIn(table.Rows(Tensor::Vector<int64_t>({8, 0, 4, 8}))),
              ElementsAre(8, 18, 0, 10, 4, 14, 8, 18));
}

TEST_F(VariablesTest, AreWholeWithoutAPartitioner) {
  Start(StrategyOptions());
  EXPECT_THAT(OffsetsOf({"large", {1 << 18}}), ElementsAre(0, 1 << 18));
}

TEST_F(VariablesTest, AreCutAboveAQuarterOfAMebibyteByTheRunnersOptions) {
  Start(runner::ParameterServerStrategy());
  EXPECT_THAT(OffsetsOf({"at_the_minimum", {65'536}}), ElementsAre(0, 65'536));
  EXPECT_THAT(OffsetsOf({"above_it", {65'537}}), ElementsAre(0, 32'769, 65'537));
  EXPECT_THAT(OffsetsOf({"as_many_as_ps", {1 << 20}}), SizeIs(3));
}

TEST_F(VariablesTest, AStrategysPartitionerThatMakesNoSenseFailsTheFirstVariableNotTheStart) {
  Start({[](int) -> Partitioner {
    return [](const Shape&, DType) { return std::vector<int64_t>{2, 2}; };
  }});
  const absl::Status refused = strategy().CreateVariable({"matrix", {4, 4}}).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("[2, 2]"));
  EXPECT_TRUE(strategy().CreateVariable({"scalar", {}}).ok());  // the partitioner is not called
}

TEST_F(VariablesTest, AreColocatedWithAShardOfOneThatIsCut) {
  Start(InShards(0));
  const absl::StatusOr<Variable> cut = strategy().CreateVariable({"cut", {9}});
  ASSERT_TRUE(cut.ok()) << cut.status();
  const StrategyScope scope = strategy().Scope();
  const absl::Status refused = strategy().extended().ColocateVarsWith(*cut).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("has 2 shards, on several parameter servers: name one shard"));
  const absl::StatusOr<StrategyScope> beside = strategy().extended().ColocateVarsWith(*cut, 1);
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_THAT(OffsetsOf({"beside", {9}}), ElementsAre(0, 9));  // never cut
}

TEST_F(VariablesTest, AreNotCreatedByADataSource) {
  Start(StrategyOptions());
  const absl::Status status = coordinator_->RunEpoch(kTakeBatch, kCreatesAVariable()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("variables_test/creates_a_variable"));
  EXPECT_EQ(strategy().FindVariable("in_a_data_source").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(VariablesTest, AreCreatedInTheScopeAndUsedOutsideIt) {
  Start(InShards(0));
  absl::StatusOr<Variable> variable = absl::UnknownError("not created");
  {
    const StrategyScope scope = strategy().Scope();
    variable = CreateVariable({"v", {3}, Ones()});
  }
  ASSERT_TRUE(variable.ok()) << variable.status();
  EXPECT_FALSE(InCrossReplicaContext());
  EXPECT_TRUE(variable->AssignSub(Tensor::Vector<float>({1, 2, 3})).ok());
  EXPECT_THAT(ValuesOf("v"), ElementsAre(0, -1, -2));
}

TEST_F(VariablesTest, RowsMadeOnTheCoordinatorAreSentBlockByBlock) {
  Start(StrategyOptions());
  constexpr int64_t kWidth = 1 << 20;  // a row has 4 MiB, a block 16
  std::vector<std::pair<int64_t, int64_t>> asked;
  VariableSpec spec = CutInTwo("rows", {6, kWidth});
  spec.initializer = FromRows{[&asked](int64_t first, int64_t count) -> absl::StatusOr<Tensor> {
    asked.emplace_back(first, count);
    std::vector<float> values;
    for (int64_t row = first; row < first + count; ++row)
      values.insert(values.end(), kWidth, static_cast<float>(row));
    return Tensor::Copy<float>({count, kWidth}, values);
  }};
  const absl::StatusOr<Variable> rows = strategy().CreateVariable(spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(asked,
              ElementsAre(std::pair<int64_t, int64_t>(0, 4), std::pair<int64_t, int64_t>(4, 2)));
  for (int64_t row = 0; row < 6; ++row)
    EXPECT_EQ(*rows->At({row, kWidth - 1})->scalar<float>(), static_cast<float>(row));
}

TEST_F(VariablesTest, ReplicasAssignsAreCombinedInEveryShard) {
  Start(StrategyOptions(), /*replicas=*/2);
  const std::vector<std::pair<VariableAggregation, float>> cases = {
      {VariableAggregation::kSum, 4},
      {VariableAggregation::kMean, 2},
      {VariableAggregation::kOnlyFirstReplica, 1}};
  for (const auto& [aggregation, expected] : cases) {
    VariableSpec spec = CutInTwo("v" + std::to_string(static_cast<int>(aggregation)), {3});
    spec.aggregation = aggregation;
    EXPECT_THAT(OffsetsOf(spec), ElementsAre(0, 2, 3));
    ASSERT_TRUE(coordinator_->Schedule(kAddFromEachReplica, spec.name).ok());
    ASSERT_TRUE(coordinator_->Join().ok());
    EXPECT_THAT(ValuesOf(spec.name), ElementsAre(expected, expected, expected));
  }
}

TEST_F(VariablesTest, EveryRowThatWorkersAddToCounts) {
  Start(StrategyOptions());
  OffsetsOf(CutInTwo("table", {7, 1}));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(coordinator_->Schedule(kAddToTwoRows).ok());
  ASSERT_TRUE(coordinator_->Join().ok());
  EXPECT_THAT(ValuesOf("table"), ElementsAre(100, 0, 0, 0, 0, 0, 200));
}

template <typename T, typename = void>
constexpr bool kAdds = false;
template <typename T>
constexpr bool kAdds<T, std::void_t<decltype(std::declval<T>() + std::declval<T>())>> = true;
template <typename T, typename Index, typename = void>
constexpr bool kIsIndexedBy = false;
template <typename T, typename Index>
constexpr bool
    kIsIndexedBy<T, Index, std::void_t<decltype(std::declval<T>().At({std::declval<Index>()}))>> =
        true;

TEST_F(VariablesTest, AreHandlesWithoutArithmetic) {
  static_assert(kAdds<Var> && !kAdds<Variable>);
  static_assert(kIsIndexedBy<Variable, int> && !kIsIndexedBy<Variable, Tensor>);
}

TEST_F(VariablesTest, TheirStrategyDescribesTheClusterItPlays) {
  Start(StrategyOptions(), /*replicas=*/2);
  const ClusterResolver* resolver = strategy().cluster_resolver();
  ASSERT_NE(resolver, nullptr);
  EXPECT_EQ(resolver->task_type(), "chief");
  EXPECT_EQ(resolver->task_id(), 0);
  EXPECT_EQ(resolver->cluster_spec()->task_address("worker", 1).value_or("none"),
            "embedded:worker/1");
  EXPECT_EQ(strategy().num_replicas_in_sync(), 2);
  EXPECT_THAT(strategy().extended().parameter_devices(),
              ElementsAre("/job:ps/replica:0/task:0/device:CPU:0",
                          "/job:ps/replica:0/task:1/device:CPU:0"));
}

}  // namespace
}  // namespace divvy
