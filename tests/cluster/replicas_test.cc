// Several replicas on each worker of a whole cluster in this process: collectives, gradients and
// merge functions inside steps, and on the coordinator.
#include <memory>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "divvy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/main.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kReplicas = 3;

const VariableSpec kWeights{"weights", {2}, Zeros(), Sgd{1.0}};
const VariableSpec kTable{"table",
                          {6, 1},
                          Zeros(),
                          Sgd{1.0},
                          DType::kFloat32,
                          VariableAggregation::kNone,
                          FixedShardsPartitioner{2}};
const VariableSpec kTotal{"total", {1}, Zeros(), {}, DType::kFloat32, VariableAggregation::kMean};

Tensor Floats(std::vector<float> values) { return Tensor::Vector<float>(values); }

// ---- steps --------------------------------------------------------------------------------------

// Calls every kind of collective. Returns the result of each as text.
absl::StatusOr<std::string> MeetInAllWays(ReplicaContext& replica, const Nest& mine) {
  ASSIGN_OR_RETURN(const Nest sum, replica.AllReduce(ReduceOp::kSum, mine));
  ASSIGN_OR_RETURN(const Nest all, replica.AllGather(mine, 0));
  const auto add = [](Strategy& strategy, const PerReplica<Nest>& values) -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const Nest total, strategy.Reduce(ReduceOp::kSum, values, 0));
    ASSIGN_OR_RETURN(const Tensor x, total["x"].tensor());
    ASSIGN_OR_RETURN(Variable variable, strategy.FindVariable("total"));
    RETURN_IF_ERROR(strategy.extended().Update(variable, Variable::Scatter::kAdd, *x.Reshape({1})));
    return values.size();
  };
  ASSIGN_OR_RETURN(const int merged, replica.MergeCall(add, mine));
  ASSIGN_OR_RETURN(const Tensor gathered, all["x"].tensor());
  ASSIGN_OR_RETURN(const Tensor summed, sum["x"].tensor());
  return absl::StrCat(gathered.shape().ToString(), " ", (*summed.values<float>())[0], " of ",
                      merged, " on ", replica.devices()[0]);
}
absl::StatusOr<std::vector<std::string>> MeetStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(
      PerReplica<Nest> values, worker.strategy().DistributeValuesFromFunction([](ValueContext c) {
        return Nest{{"x", Floats({1.0f + static_cast<float>(c.replica_id_in_sync_group)})}};
      }));
  ASSIGN_OR_RETURN(PerReplica<std::string> got, worker.strategy().Run(MeetInAllWays, values));
  return worker.strategy().LocalResults(got);
}
const Step kMeet("replicas/meet", MeetStep);

// Replica i gives the dense gradient (i, 1), and the gradient 1 of the table's rows i and 5.
absl::Status Differentiate(ReplicaContext& replica, bool sums) {
  GradientTape tape(replica);
  const int id = replica.replica_id_in_sync_group();
  const Var rows = tape.Lookup("table", Var(Tensor::Vector<int64_t>({id, 5})));
  const Var loss =
      ReduceSum(tape.Read("weights") * Var(Floats({static_cast<float>(id), 1}))) + ReduceSum(rows);
  return replica.ApplyGradients(tape.Gradient(loss), sums ? ReduceOp::kSum : ReduceOp::kMean);
}
absl::Status DifferentiateStep(WorkerContext& worker, bool sums) {
  return worker.strategy().Run(Differentiate, sums).status();
}
const Step kDifferentiate("replicas/differentiate", DifferentiateStep);

// The loss (m - 4)^2 on each replica, where m is the mean over all replicas of x = weights[0] + id.
// Each replica has the gradient of the mean.
absl::Status ThroughACollective(ReplicaContext& replica) {
  GradientTape tape(replica);
  const Var x = ReduceSum(tape.Read("weights") * Var(Floats({1, 0}))) +
                static_cast<float>(replica.replica_id_in_sync_group());
  const Var mean = replica.AllReduce(ReduceOp::kMean, x);
  return replica.ApplyGradients(tape.Gradient(Square(mean - 4.0f)));
}
absl::Status ThroughACollectiveStep(WorkerContext& worker) {
  return worker.strategy().Run(ThroughACollective).status();
}
const Step kThroughACollective("replicas/through_a_collective", ThroughACollectiveStep);

// All replicas stage a write. Then one does something else than the others.
absl::Status StrayReplica(ReplicaContext& replica, const std::string& how) {
  ASSIGN_OR_RETURN(Variable total, replica.strategy().FindVariable("total"));
  RETURN_IF_ERROR(total.AssignAdd(Floats({1})));
  if (replica.replica_id_in_sync_group() != 2)
    return replica.AllReduce(ReduceOp::kSum, 1.0f).status();
  if (how == "fails") return absl::DataLossError("the stray one");
  if (how == "gathers") return replica.AllGather(Floats({1}), 0).status();
  return absl::OkStatus();
}
absl::Status StrayStep(WorkerContext& worker, std::string how) {
  return worker.strategy().Run(StrayReplica, how).status();
}
const Step kStray("replicas/stray", StrayStep);

// A model without the tape: prediction = weights . x + table[id], loss (prediction - 1)^2,
// differentiated by hand on plain memory.
struct HandMade {
  std::vector<VariableSpec> specs = {kWeights};
  std::vector<float> weights_gradient;
  float row_gradient = 0;
  int uses = 0;

  void Backward(const float* weights, float row, const float* x) {
    const float slope = 2 * (weights[0] * x[0] + weights[1] * x[1] + row - 1);
    weights_gradient = {slope * x[0], slope * x[1]};
    row_gradient = slope;
    ++uses;
  }
};

absl::StatusOr<int> TrainByHand(ReplicaContext& replica) {
  HandMade& model = replica.Local<HandMade>("model", [] { return std::make_unique<HandMade>(); });
  const int id = replica.replica_id_in_sync_group();
  ASSIGN_OR_RETURN(const std::vector<Tensor> parameters, replica.ReadAll(model.specs));
  ReadRequest row;
  row.name = kTable.name;
  row.ids = Tensor::Vector<int64_t>({id});
  RETURN_IF_ERROR(replica.Read(absl::MakeSpan(&row, 1)));
  const float x[] = {1, static_cast<float>(id)};
  model.Backward(static_cast<const float*>(parameters[0].data()),
                 *static_cast<const float*>(row.value.data()), x);
  Gradients gradients;
  ASSIGN_OR_RETURN(
      Tensor weights,
      Tensor::Borrow(DType::kFloat32, {2}, model.weights_gradient.data(), replica.device(), [] {}));
  ASSIGN_OR_RETURN(Tensor rows, Tensor::Borrow(DType::kFloat32, {1, 1}, &model.row_gradient,
                                               replica.device(), [] {}));
  gradients.Set(kWeights.name, std::move(weights));
  gradients.Set(kTable.name, IndexedSlices{*row.ids, std::move(rows), row.num_rows});
  RETURN_IF_ERROR(replica.ApplyGradients(gradients));
  return model.uses;
}
absl::StatusOr<std::vector<int>> TrainByHandStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(PerReplica<int> uses, worker.strategy().Run(TrainByHand));
  return worker.strategy().LocalResults(uses);
}
const Step kTrainByHand("replicas/train_by_hand", TrainByHandStep);

// The same with the tape.
absl::Status TrainByTape(ReplicaContext& replica) {
  GradientTape tape(replica);
  const int id = replica.replica_id_in_sync_group();
  const Var weights = tape.Read(kWeights),
            row = tape.Lookup(kTable, Var(Tensor::Vector<int64_t>({id})));
  const Var prediction =
      ReduceSum(weights * Var(Floats({1, static_cast<float>(id)}))) + ReduceSum(row);
  return replica.ApplyGradients(tape.Gradient(Square(prediction - 1.0f)));
}
absl::Status TrainByTapeStep(WorkerContext& worker) {
  return worker.strategy().Run(TrainByTape).status();
}
const Step kTrainByTape("replicas/train_by_tape", TrainByTapeStep);

absl::StatusOr<Dataset> Ones(const InputContext&) {
  return Dataset::FromTensorSlices({{"x", Floats({1, 1, 1, 1, 1, 1})}}).Batch(1);
}
const DataSource kOnes("replicas/ones", Ones);

absl::Status NextInsideStep(WorkerContext& worker, Iterator ones) {
  return worker.strategy()
      .Run([&](ReplicaContext&) { return worker.Next(ones).status(); })
      .status();
}
const Step kNextInside("replicas/next_inside", NextInsideStep);

// ---- the cluster --------------------------------------------------------------------------------

class ReplicasTest : public testing::Test {
 protected:
  void SetUp() override {
    EmbeddedOptions options;
    options.replicas_per_worker = kReplicas;
    auto coordinator = StartEmbedded(options);
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    for (const VariableSpec& spec : {kWeights, kTable, kTotal})
      ASSERT_TRUE(strategy().CreateVariable(spec).ok());
  }
  Strategy& strategy() { return coordinator_->strategy(); }
  std::vector<float> Read(const VariableSpec& spec) {
    const Tensor value = *strategy().FindVariable(spec.name)->Read();
    const absl::Span<const float> values = *value.values<float>();
    return {values.begin(), values.end()};
  }

  std::unique_ptr<Coordinator> coordinator_;
};

TEST_F(ReplicasTest, MeetInEveryWayWithinAStep) {
  const auto result = coordinator_->Schedule(kMeet);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto got = result->Fetch();
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_EQ(got->size(), kReplicas);
  for (const std::string& text : *got)
    EXPECT_THAT(text, AllOf(HasSubstr("[3] 6 of 3 on /job:worker/replica:0/task:"),
                            HasSubstr("/device:CPU:0")));
  ASSERT_TRUE(coordinator_->Join().ok());
  EXPECT_THAT(Read(kTotal), ElementsAre(6));
}

TEST_F(ReplicasTest, GradientsAreAveragedUnlessToldToBeSummedAndRowsAreConcatenated) {
  ASSERT_TRUE(coordinator_->Schedule(kDifferentiate, true).ok());
  ASSERT_TRUE(coordinator_->Join().ok());
  EXPECT_THAT(Read(kWeights), ElementsAre(-3, -3));  // 0 + 1 + 2, and 1 + 1 + 1
  EXPECT_THAT(Read(kTable), ElementsAre(-1, -1, -1, 0, 0, -3));
  ASSERT_TRUE(coordinator_->Schedule(kDifferentiate, false).ok());
  ASSERT_TRUE(coordinator_->Join().ok());
  EXPECT_THAT(Read(kWeights), ElementsAre(-4, -4));
  EXPECT_FLOAT_EQ(Read(kTable)[5], -4);
}

TEST_F(ReplicasTest, AGradientGoesThroughACollective) {
  ASSERT_TRUE(coordinator_->Schedule(kThroughACollective).ok());
  ASSERT_TRUE(coordinator_->Join().ok());
  // d/dx_i of the mean of (m - 4)^2 with m = 1 is 2 (1 - 4) = -6.
  EXPECT_THAT(Read(kWeights), ElementsAre(6, 0));
}

TEST_F(ReplicasTest, AStepThatBringsItsOwnGradientsTrainsAsOneWithTheTape) {
  constexpr int kSteps = 3;
  for (int i = 0; i < kSteps; ++i) {
    const auto result = coordinator_->Schedule(kTrainByHand);
    ASSERT_TRUE(result.ok()) << result.status();
    const auto got = result->Fetch();
    ASSERT_TRUE(got.ok()) << got.status();
    for (int count : *got) EXPECT_GE(count, 1);
  }
  ASSERT_TRUE(coordinator_->Join().ok());
  const std::vector<float> weights = Read(kWeights), table = Read(kTable);
  ASSERT_NE(weights, std::vector<float>(2, 0));
  for (const VariableSpec& spec : {kWeights, kTable})
    ASSERT_TRUE(
        strategy().FindVariable(spec.name)->Assign(*Tensor::Zeros(spec.dtype, spec.shape)).ok());
  for (int i = 0; i < kSteps; ++i) {
    ASSERT_TRUE(coordinator_->Schedule(kTrainByTape).ok());
    ASSERT_TRUE(coordinator_->Join().ok());
  }
  EXPECT_THAT(Read(kWeights), testing::Pointwise(testing::FloatNear(1e-3f), weights));
  EXPECT_THAT(Read(kTable), testing::Pointwise(testing::FloatNear(1e-3f), table));
}

TEST_F(ReplicasTest, OneThatStraysFailsTheStepWhichLeavesNoTrace) {
  const struct {
    std::string how, words;
    absl::StatusCode code;
  } cases[] = {
      {"fails", "the stray one", absl::StatusCode::kDataLoss},
      {"gathers", "calls AllGather along axis 0", absl::StatusCode::kInvalidArgument},
      {"returns", "replica 2 has returned without it", absl::StatusCode::kFailedPrecondition},
  };
  for (const auto& [how, words, code] : cases) {
    SCOPED_TRACE(how);
    ASSERT_TRUE(coordinator_->Schedule(kStray, how).ok());
    const absl::Status status = coordinator_->Join();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(Read(kTotal), ElementsAre(0));
  }
}

TEST_F(ReplicasTest, AReplicaMayNotTakeTheStepsElements) {
  const auto dataset = coordinator_->CreatePerWorkerDataset(kOnes());
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_TRUE(coordinator_->Schedule(kNextInside, dataset->MakeIterator()).ok());
  const absl::Status status = coordinator_->Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the batch that Run gave this replica"));
}

TEST_F(ReplicasTest, RunOnTheCoordinatorToo) {
  const auto result = strategy().Run([](ReplicaContext& replica) -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(Variable total, replica.strategy().FindVariable("total"));
    RETURN_IF_ERROR(
        total.AssignAdd(Floats({static_cast<float>(replica.replica_id_in_sync_group())})));
    return replica.devices()[0];
  });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ((*result)[2], "/job:chief/replica:0/task:0/device:CPU:0");
  EXPECT_THAT(Read(kTotal), ElementsAre(1));  // the mean of 0, 1 and 2
}

}  // namespace
}  // namespace divvy
