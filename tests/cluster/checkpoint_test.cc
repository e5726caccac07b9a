// Checkpoints as a program sees them: a whole cluster in this process, with its files in a
// directory of the test.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "formats/safetensors.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/embedded.h"
#include "strategy/trainer_support.h"
#include "tests/cluster/one_worker_test.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

const VariableSpec kTable{"table",
                          {10, 4},
                          RandomNormal{0, 1, 7},
                          Adam{0.1},
                          DType::kFloat32,
                          VariableAggregation::kNone,
                          FixedShardsPartitioner{3}};
// The coordinator makes its initial values.
const VariableSpec kBasis{"basis", {4, 4}, Orthogonal{}, {}};
const VariableSpec kCount{"count", {}, Zeros(), {}, DType::kInt64};

// The gradient depends on the table's values, so a slot that was not restored changes the result.
absl::Status Descend(ReplicaContext& replica) {
  GradientTape tape(replica);
  return replica.ApplyGradients(tape.Gradient(ReduceSum(Square(tape.Read("table")))));
}
absl::Status Train(WorkerContext& worker, int64_t amount) {
  RETURN_IF_ERROR(worker.strategy().Run(Descend).status());
  ASSIGN_OR_RETURN(Variable count, worker.strategy().FindVariable("count"));
  return count.AssignAdd(Tensor::Scalar<int64_t>(amount));
}
const Step kTrain("test/checkpoint/train", Train);

class CheckpointTest : public OneWorkerTest {
 protected:
  static absl::Status Create(Coordinator& coordinator,
                             std::vector<VariableSpec> specs = {kTable, kBasis, kCount}) {
    for (const VariableSpec& spec : specs)
      RETURN_IF_ERROR(coordinator.strategy().CreateVariable(spec).status());
    return absl::OkStatus();
  }
  static absl::Status RunSteps(Coordinator& coordinator, int steps) {
    for (int i = 0; i < steps; ++i)
      RETURN_IF_ERROR(coordinator.Schedule(kTrain, int64_t{1}).status());
    return coordinator.Join();
  }
  static Tensor ValueOf(Coordinator& coordinator, const std::string& name) {
    const auto variable = coordinator.strategy().FindVariable(name);
    return variable.ok() ? variable->Read().value_or(Tensor()) : Tensor();
  }
  std::vector<std::string> Files(const std::string& part) {
    std::vector<std::string> found;
    const auto names = FileSystem::Real().ListDirectory(directory_);
    for (const std::string& name : names.value_or(std::vector<std::string>())) {
      if (absl::StrContains(name, part)) found.push_back(absl::StrCat(directory_, "/", name));
    }
    return found;
  }
  static void FlipAByte(const std::string& file) {
    std::string bytes = *FileSystem::Real().ReadFile(file);
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(FileSystem::Real().ReplaceFile(file, bytes).ok());
  }
};

TEST_F(CheckpointTest, TrainingGoesOnWithOtherServersAsIfNothingHadHappened) {
  Tensor uninterrupted, basis;
  {
    const auto cluster = *Start(2);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(Create(coordinator).ok());
    ASSERT_TRUE(RunSteps(coordinator, 12).ok());
    coordinator.SetProgramState("after twelve");
    const auto saved = coordinator.SaveCheckpoint();
    ASSERT_TRUE(saved.ok()) << saved.status();
    EXPECT_EQ(Files(absl::StrCat(*saved, ".index")).size(), 1u);
    EXPECT_EQ(coordinator.durable_steps(), 12);
    ASSERT_TRUE(RunSteps(coordinator, 5).ok());
    uninterrupted = ValueOf(coordinator, "table");
    basis = ValueOf(coordinator, "basis");
  }
  for (const int num_ps : {1, 3}) {
    SCOPED_TRACE(num_ps);
    const auto cluster = *Start(num_ps);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(Create(coordinator).ok());
    const auto steps = coordinator.RestoreLatest();
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*steps, 12);
    EXPECT_EQ(coordinator.step(), 12);
    EXPECT_EQ(coordinator.program_state(), "after twelve");
    EXPECT_TRUE(BitwiseEqual(ValueOf(coordinator, "basis"), basis));
    ASSERT_TRUE(RunSteps(coordinator, 5).ok());
    EXPECT_TRUE(BitwiseEqual(ValueOf(coordinator, "table"), uninterrupted));
    EXPECT_EQ(*ValueOf(coordinator, "count").scalar<int64_t>(), 17);
  }
}

TEST_F(CheckpointTest, ATimeoutEndsTheWaitAndNotTheCheckpoint) {
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(Create(coordinator).ok());
  ASSERT_TRUE(RunSteps(coordinator, 3).ok());
  // No checkpoint can be completed while a parameter server is away.
  cluster->KillPs(1);
  const absl::Status early = coordinator.SaveCheckpoint(absl::Milliseconds(20)).status();
  EXPECT_EQ(early.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(early.message().find("not complete after 20ms"), absl::string_view::npos) << early;
  EXPECT_FALSE(coordinator.SaveCheckpoint(absl::ZeroDuration()).ok())
      << "it waits for the same one";
  ASSERT_TRUE(cluster->RestartPs(1).ok());
  const auto saved = coordinator.SaveCheckpoint();
  EXPECT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(coordinator.durable_steps(), 3);
}

class RestoreTimeoutTest : public CheckpointTest {
 protected:
  // A second cluster after one that has saved 3 steps. Nothing can be loaded before HealPs(1).
  void SetUp() override {
    {
      const auto first = *Start(2);
      ASSERT_TRUE(Create(first->coordinator()).ok());
      ASSERT_TRUE(RunSteps(first->coordinator(), 3).ok());
      ASSERT_TRUE(first->coordinator().SaveCheckpoint().ok());
    }
    cluster_ = *Start(2);
    ASSERT_TRUE(Create(cluster_->coordinator()).ok());
    cluster_->CutPs(1);
  }
  std::unique_ptr<EmbeddedCluster> cluster_;
};

TEST_F(RestoreTimeoutTest, ATimeoutEndsTheWaitAndNotTheRestore) {
  Coordinator& coordinator = cluster_->coordinator();
  for (int i = 0; i < 3; ++i) {
    const absl::Status early = coordinator.RestoreLatest(absl::ZeroDuration()).status();
    EXPECT_EQ(early.code(), absl::StatusCode::kDeadlineExceeded) << early;
    EXPECT_THAT(std::string(early.message()), HasSubstr("call again"));
  }
  cluster_->HealPs(1);
  const auto steps = coordinator.RestoreLatest();
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_EQ(*steps, 3);
  EXPECT_EQ(*ValueOf(coordinator, "count").scalar<int64_t>(), 3);
  EXPECT_EQ(*internal::SupportOf(coordinator).RestoreUnlessBegun(absl::InfiniteDuration()), 0)
      << "the program counts itself";
}

TEST_F(RestoreTimeoutTest, OfATrainerIsTakenUpByItsNextCall) {
  internal::TrainerSupport& support = internal::SupportOf(cluster_->coordinator());
  EXPECT_EQ(support.RestoreUnlessBegun(absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(support.TakeRestoredSteps(10), 0);
  cluster_->HealPs(1);
  EXPECT_EQ(*support.RestoreUnlessBegun(absl::InfiniteDuration()), 3);
  EXPECT_EQ(support.TakeRestoredSteps(10), 3);
}

TEST_F(CheckpointTest, WhereThereIsNoneTheJobBeginsAtNothing) {
  const auto cluster = *Start(2);
  ASSERT_TRUE(Create(cluster->coordinator()).ok());
  EXPECT_EQ(*cluster->coordinator().RestoreLatest(), 0);
  EXPECT_TRUE(RunSteps(cluster->coordinator(), 1).ok());
}

TEST_F(CheckpointTest,
       VariablesThatItHasNotGotBeginWithTheirInitialValuesAndOthersAreThereWhenTheyAreAskedFor) {
  Tensor table;
  {
    const auto cluster = *Start(2);
    ASSERT_TRUE(Create(cluster->coordinator(), {kTable, kCount}).ok());
    ASSERT_TRUE(RunSteps(cluster->coordinator(), 3).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
    table = ValueOf(cluster->coordinator(), "table");
  }
  const auto cluster = *Start(2);
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(Create(coordinator, {{"late", {2}, Constant{5}}, kBasis, kCount}).ok());
  ASSERT_EQ(*coordinator.RestoreLatest(), 3);
  EXPECT_EQ((*ValueOf(coordinator, "late").values<float>())[1], 5);
  EXPECT_NE((*ValueOf(coordinator, "basis").values<float>())[0], 0)
      << "made by the coordinator, after the restore";
  ASSERT_TRUE(Create(coordinator, {kTable}).ok()) << "declared after the restore";
  EXPECT_TRUE(BitwiseEqual(ValueOf(coordinator, "table"), table));
  EXPECT_TRUE(absl::IsAlreadyExists(Create(coordinator, {kTable}))) << "declared twice";
}

TEST_F(CheckpointTest, AVariableOfAnotherShapeIsNamedAndNothingIsRestored) {
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = *Start(1);
  VariableSpec other = kTable;
  other.shape = {11, 4};
  ASSERT_TRUE(Create(cluster->coordinator(), {other}).ok());
  const absl::Status refused = cluster->coordinator().RestoreLatest().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("\"table\" is float32 [11, 4]"));
  EXPECT_EQ(ValueOf(cluster->coordinator(), "table").shape(), Shape({11, 4}))
      << "the program may begin anew";
}

// A renamed layer, or another job's directory, would otherwise go unnoticed: training would
// continue, but skip epochs and ignore the restored weights.
TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefusedAndStaysWhatItIs) {
  {
    const auto cluster = *Start(2);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    ASSERT_TRUE(RunSteps(cluster->coordinator(), 3).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto other = *Start(2);
  ASSERT_TRUE(
      Create(other->coordinator(), {{"weights", {2}, Zeros()}, {"bias", {1}, Zeros()}}).ok());
  const absl::Status refused = other->coordinator().RestoreLatest().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  for (const char* word : {"bias, weights", "basis, count, table", "--checkpoint_dir"})
    EXPECT_THAT(std::string(refused.message()), HasSubstr(word));
  const auto own = *Start(2);
  ASSERT_TRUE(Create(own->coordinator()).ok());
  EXPECT_EQ(*own->coordinator().RestoreLatest(), 3);
}

TEST_F(CheckpointTest, AProgramThatDoesNotAskBeginsAnewAndCannotAskLater) {
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    ASSERT_TRUE(RunSteps(cluster->coordinator(), 3).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = *Start(1);
  ASSERT_TRUE(Create(cluster->coordinator()).ok());
  ASSERT_TRUE(RunSteps(cluster->coordinator(), 1).ok());
  EXPECT_EQ(*ValueOf(cluster->coordinator(), "count").scalar<int64_t>(), 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(cluster->coordinator().RestoreLatest().status()));
}

TEST_F(CheckpointTest, AProgramThatUsesNothingEndsAndLeavesWhatIsThereAsItIs) {
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    ASSERT_TRUE(RunSteps(cluster->coordinator(), 3).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const std::vector<std::string> before = Files("ckpt");
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    EXPECT_TRUE(cluster->coordinator().Join(absl::InfiniteDuration()).ok());
    EXPECT_TRUE(cluster->coordinator().Finish(absl::OkStatus()).ok());
  }
  EXPECT_EQ(Files("ckpt"), before);
}

TEST_F(CheckpointTest, ALoopOfNumberedStepsGoesOnExactlyWhereItWas) {
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    for (int64_t i = 0; i < 10; i += 3)
      ASSERT_TRUE(cluster->coordinator().ScheduleOnce("rounds", i, kTrain, int64_t{1}).ok());
    ASSERT_TRUE(cluster->coordinator().Join(absl::InfiniteDuration()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = *Start(2);
  ASSERT_TRUE(Create(cluster->coordinator()).ok());
  ASSERT_EQ(*cluster->coordinator().RestoreLatest(), 4);
  int64_t left_out = 0;
  for (int64_t i = 0; i < 10; ++i) {
    const auto scheduled = cluster->coordinator().ScheduleOnce("rounds", i, kTrain, int64_t{1});
    ASSERT_TRUE(scheduled.ok()) << scheduled.status();
    left_out += !scheduled->has_value();
  }
  ASSERT_TRUE(cluster->coordinator().Join(absl::InfiniteDuration()).ok());
  EXPECT_EQ(left_out, 4);
  EXPECT_EQ(*ValueOf(cluster->coordinator(), "count").scalar<int64_t>(), 10);
}

// ---- warm start

TEST_F(CheckpointTest, AnotherJobsVariablesStartFromItWhateverItsServersAndNothingElseDoes) {
  Tensor table;
  std::string name;
  {
    const auto cluster = *Start(3);
    ASSERT_TRUE(Create(cluster->coordinator()).ok());
    ASSERT_TRUE(RunSteps(cluster->coordinator(), 4).ok());
    name = *cluster->coordinator().SaveCheckpoint();
    table = ValueOf(cluster->coordinator(), "table");
  }
  EmbeddedSetup elsewhere;
  elsewhere.options.num_ps = 2;
  const auto cluster = *EmbeddedCluster::Start(elsewhere);
  const auto start = WarmStart::Open(directory_, {{"tower/", ""}});
  ASSERT_TRUE(start.ok()) << start.status();
  EXPECT_EQ(start->prefix(), absl::StrCat(directory_, "/", name));
  VariableSpec tower = kTable;
  tower.name = "tower/table";
  for (const VariableSpec& declared : {tower, kCount}) {
    const auto spec = start->Apply(declared);
    ASSERT_TRUE(spec.ok()) << spec.status();
    ASSERT_TRUE(cluster->coordinator().strategy().CreateVariable(*spec).ok());
  }
  EXPECT_TRUE(BitwiseEqual(ValueOf(cluster->coordinator(), "tower/table"), table));
  EXPECT_EQ(*ValueOf(cluster->coordinator(), "count").scalar<int64_t>(), 0) << "no name matches it";
  EXPECT_EQ(cluster->coordinator().step(), 0);
}

const Dense kLine("line", 2, 1);
ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  return {SquaredError(Reshape(kLine(tape, batch["x"]), {-1}), batch["y"])};
}
const Model kModel("test/checkpoint/line", {kLine}, Forward);

absl::StatusOr<Dataset> Points(const InputContext& input) {
  const auto point = [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
    const float a = static_cast<float>(i % 7) - 3, b = static_cast<float>(i % 5) - 2;
    return Nest{{"x", Tensor::Vector<float>({a, b})}, {"y", Tensor::Scalar(2 * a - b + 1)}};
  };
  return Dataset::Generator(point, 70).Batch(10);
}
const DataSource kPoints("test/checkpoint/points", Points);

TEST_F(CheckpointTest, ATrainersModelStartsFromIt) {
  double loss = 0;
  {
    const auto cluster = *Start(2);
    Trainer trainer(cluster->coordinator(), kModel, Adam{0.1});
    ASSERT_TRUE(trainer.Fit(kPoints()).ok());
    loss = trainer.Evaluate(kPoints())->at("loss");
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = *EmbeddedCluster::Start({});
  Trainer trainer(cluster->coordinator(), kModel, Sgd{0.1});
  trainer.StartFrom(*WarmStart::Open(directory_));
  const auto metrics = trainer.Evaluate(kPoints());
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_NEAR(metrics->at("loss"), loss, 1e-9);
  Trainer stranger(cluster->coordinator(), kModel, Sgd{0.1});
  stranger.StartFrom(*WarmStart::Open(directory_, {{"line/", "lime/"}}));
  EXPECT_TRUE(absl::IsNotFound(stranger.Fit(kPoints()).status()));
}

class DamageTest : public CheckpointTest {
 protected:
  // Makes checkpoints of 3 and of 5 steps.
  DamageTest() {
    const auto cluster = *Start(2);
    EXPECT_TRUE(Create(cluster->coordinator()).ok());
    EXPECT_TRUE(RunSteps(cluster->coordinator(), 3).ok());
    first_ = *cluster->coordinator().SaveCheckpoint();
    EXPECT_TRUE(RunSteps(cluster->coordinator(), 2).ok());
    second_ = *cluster->coordinator().SaveCheckpoint();
  }
  absl::StatusOr<int64_t> Restore() {
    ASSIGN_OR_RETURN(const auto cluster, Start(1));
    RETURN_IF_ERROR(Create(cluster->coordinator()));
    return cluster->coordinator().RestoreLatest();
  }
  std::string first_, second_;
};

TEST_F(DamageTest, WhereTheNewestHasAWrongByteTheOneBeforeItIsRestored) {
  FlipAByte(Files(absl::StrCat(second_, ".data-00001")).at(0));
  EXPECT_EQ(*Restore(), 3);
}

TEST_F(DamageTest, WhereItsIndexIsDamagedTheOneBeforeItIsRestored) {
  FlipAByte(Files(absl::StrCat(second_, ".index")).at(0));
  EXPECT_EQ(*Restore(), 3);
}

TEST_F(DamageTest, WhereAllAreDamagedItIsSaidAndNothingBegins) {
  for (const std::string& index : Files(".index")) FlipAByte(index);
  const absl::Status refused = Restore().status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(directory_));
}

// ---- positions in the data ----------------------------------------------------------------------

constexpr int64_t kRecords = 40;
const VariableSpec kVisits{"visits", {kRecords}, Zeros(), {}, DType::kInt64};

// Shuffled, so that a different order in another life would show.
absl::StatusOr<Dataset> Records(const InputContext& input) {
  std::vector<int64_t> ids(kRecords);
  for (int64_t i = 0; i < kRecords; ++i) ids[i] = i;
  ASSIGN_OR_RETURN(Tensor all, Tensor::Copy<int64_t>({kRecords}, ids));
  return Dataset::FromTensorSlices(Nest(Nest::Dict{{"id", Nest(all)}}))
      .Shuffle(kRecords, input.seed)
      .Batch(3);
}
const DataSource kSource("test/checkpoint/records", Records);

absl::StatusOr<Metrics> Visit(WorkerContext& worker, Iterator records) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(records));
  ASSIGN_OR_RETURN(Tensor ids, batch[0]["id"].tensor());
  ASSIGN_OR_RETURN(
      Tensor ones,
      Tensor::Copy<int64_t>(ids.shape(), std::vector<int64_t>(ids.shape().num_elements(), 1)));
  ASSIGN_OR_RETURN(Variable visits, worker.strategy().FindVariable("visits"));
  RETURN_IF_ERROR(visits.ScatterRows(Variable::Scatter::kAdd, {ids, ones, kRecords}));
  return Metrics();
}
const Step kVisit("test/checkpoint/visit", Visit);

class PositionTest : public CheckpointTest {
 protected:
  // Begins another life of the program.
  std::unique_ptr<EmbeddedCluster> Begin(int num_ps) {
    auto cluster = *Start(num_ps);
    EXPECT_TRUE(Create(cluster->coordinator(), {kVisits}).ok());
    EXPECT_TRUE(cluster->coordinator().RestoreLatest().ok());
    return cluster;
  }
  // Schedules `steps` steps in the program's own loop.
  static void Visit(Coordinator& coordinator, const Iterator& records, int steps) {
    for (int i = 0; i < steps; ++i) ASSERT_TRUE(coordinator.Schedule(kVisit, records).ok());
    ASSERT_TRUE(coordinator.Join().ok());
  }
  static void ExpectEachVisited(Coordinator& coordinator, int64_t times) {
    const Tensor visits = ValueOf(coordinator, "visits");
    const absl::Span<const int64_t> values = *visits.values<int64_t>();
    for (const int64_t visited : values) EXPECT_EQ(visited, times);
  }
};

TEST_F(PositionTest, ALoopGoesOnInTheMiddleOfItsPass) {
  {
    const auto cluster = Begin(2);
    ASSERT_TRUE(cluster->coordinator().RunUntil(5, kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
    ASSERT_TRUE(cluster->coordinator().RunUntil(8, kVisit, kSource()).ok()) << "is lost";
  }
  const auto cluster = Begin(1);
  EXPECT_EQ(cluster->coordinator().step(), 5);
  ASSERT_TRUE(cluster->coordinator().RunUntil(14, kVisit, kSource()).ok());
  ExpectEachVisited(cluster->coordinator(), 1);
  ASSERT_TRUE(cluster->coordinator().RunUntil(28, kVisit, kSource()).ok());
  ExpectEachVisited(cluster->coordinator(), 2);
}

TEST_F(PositionTest, AnEpochThatWasBegunIsEndedAndCountsAsOne) {
  {
    const auto cluster = Begin(1);
    ASSERT_TRUE(cluster->coordinator().RunEpoch(kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().RunUntil(20, kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = Begin(2);
  EXPECT_EQ(cluster->coordinator().epoch(), 1);
  ASSERT_TRUE(cluster->coordinator().RunEpoch(kVisit, kSource()).ok());
  EXPECT_EQ(cluster->coordinator().epoch(), 2);
  EXPECT_EQ(cluster->coordinator().step(), 28) << "six steps of the pass were done before";
  ExpectEachVisited(cluster->coordinator(), 2);
}

TEST_F(PositionTest, AnIteratorOfTheProgramsOwnGoesOnToo) {
  {
    const auto cluster = Begin(2);
    const auto dataset = cluster->coordinator().CreatePerWorkerDataset(kSource());
    const Iterator records = dataset->MakeIterator();
    Visit(cluster->coordinator(), records, 6);
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = Begin(2);
  const auto dataset = cluster->coordinator().CreatePerWorkerDataset(kSource());
  const Iterator records = dataset->MakeIterator();
  Visit(cluster->coordinator(), records, 8);
  ExpectEachVisited(cluster->coordinator(), 1);
}

TEST_F(PositionTest, AnIteratorThatWasMadeBeforeTheCheckpointWasAskedForGoesOnToo) {
  {
    const auto cluster = Begin(1);
    ASSERT_TRUE(cluster->coordinator().RunUntil(6, kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = *Start(1);
  Coordinator& coordinator = cluster->coordinator();
  const auto dataset = coordinator.CreatePerWorkerDataset(kSource());
  const Iterator records = dataset->MakeIterator();
  ASSERT_TRUE(Create(coordinator, {kVisits}).ok());
  ASSERT_EQ(*coordinator.RestoreLatest(), 6);
  Visit(coordinator, records, 8);
  ExpectEachVisited(coordinator, 1);
}

TEST_F(PositionTest, ALoopThatHasNothingToDoLeavesThePassToTheOneThatHas) {
  {
    const auto cluster = Begin(1);
    ASSERT_TRUE(cluster->coordinator().RunUntil(14, kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().RunUntil(20, kVisit, kSource()).ok());
    ASSERT_TRUE(cluster->coordinator().SaveCheckpoint().ok());
  }
  const auto cluster = Begin(1);
  ASSERT_TRUE(cluster->coordinator().RunUntil(14, kVisit, kSource()).ok()) << "was done";
  ASSERT_TRUE(cluster->coordinator().RunEpoch(kVisit, kSource()).ok());
  ExpectEachVisited(cluster->coordinator(), 2);
}

TEST_F(PositionTest, OnlyWhatWasRestoredForATrainerIsBehindIt) {
  {
    const auto cluster = *Start(1);
    Coordinator& coordinator = cluster->coordinator();
    ASSERT_TRUE(Create(coordinator, {kVisits}).ok());
    ASSERT_TRUE(coordinator.RunEpoch(kVisit, kSource()).ok());
    EXPECT_EQ(*internal::SupportOf(coordinator).RestoreUnlessBegun(absl::InfiniteDuration()), 0);
    EXPECT_EQ(internal::SupportOf(coordinator).TakeRestoredEpochs(5), 0)
        << "these steps were done in this life of the program";
    ASSERT_TRUE(coordinator.SaveCheckpoint().ok());
  }
  {
    const auto cluster = *Start(1);
    ASSERT_TRUE(Create(cluster->coordinator(), {kVisits}).ok());
    EXPECT_EQ(
        *internal::SupportOf(cluster->coordinator()).RestoreUnlessBegun(absl::InfiniteDuration()),
        14);
    EXPECT_EQ(internal::SupportOf(cluster->coordinator()).TakeRestoredEpochs(5), 1);
    EXPECT_EQ(internal::SupportOf(cluster->coordinator()).TakeRestoredEpochs(5), 0) << "told once";
    EXPECT_EQ(internal::SupportOf(cluster->coordinator()).TakeRestoredSteps(5), 5);
  }
  const auto cluster = Begin(1);
  EXPECT_EQ(
      *internal::SupportOf(cluster->coordinator()).RestoreUnlessBegun(absl::InfiniteDuration()), 0)
      << "a program that restores by itself counts by itself";
  EXPECT_EQ(internal::SupportOf(cluster->coordinator()).TakeRestoredEpochs(5), 0);
}

// ---- exports for other programs ----

std::vector<std::string> NamesIn(const std::string& safetensors) {
  std::vector<std::string> names;
  const auto file = SafetensorsReader::Open(FileSystem::Real(), safetensors);
  EXPECT_TRUE(file.ok()) << file.status();
  if (!file.ok()) return names;
  for (const SafetensorsTensor& tensor : (*file)->header().tensors) names.push_back(tensor.name);
  return names;
}

class ExportTest : public CheckpointTest {
 protected:
  ExportTest() : to_(absl::StrCat(directory_, "-exported")) {}
  void SetUp() override {
    cluster_ = *Start(2);
    ASSERT_TRUE(Create(cluster_->coordinator()).ok());
    ASSERT_TRUE(RunSteps(cluster_->coordinator(), 3).ok());
  }

  const std::string to_;
  std::unique_ptr<EmbeddedCluster> cluster_;
};

TEST_F(ExportTest, SafetensorsHoldTheVariablesAndTheirSlotsAndNothingElse) {
  Coordinator& coordinator = cluster_->coordinator();
  const std::string name = absl::StrCat(to_, "/towers.safetensors");
  ASSERT_EQ(coordinator.Export(name), absl::OkStatus());
  EXPECT_EQ(coordinator.durable_steps(), 3) << "the export makes a checkpoint of all steps";
  const auto file = SafetensorsReader::Open(FileSystem::Real(), name);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : (*file)->header().tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, UnorderedElementsAre("table", "table/Adam/m", "table/Adam/t", "table/Adam/v",
                                          "basis", "count"));
  for (const char* variable : {"table", "basis", "count"})
    EXPECT_TRUE(BitwiseEqual(*(*file)->ReadTensor(variable), ValueOf(coordinator, variable)))
        << variable;
  EXPECT_EQ((*file)->header().metadata.at("divvy.finished_steps"), "3");
}

TEST_F(ExportTest, AProgramThatRunsAgainReplacesItsExport) {
  Coordinator& coordinator = cluster_->coordinator();
  const std::string name = absl::StrCat(to_, "/towers.safetensors");
  for (const int64_t count : {3, 4}) {
    ASSERT_EQ(coordinator.Export(name), absl::OkStatus());
    EXPECT_EQ(*(*SafetensorsReader::Open(FileSystem::Real(), name))
                   ->ReadTensor("count")
                   ->scalar<int64_t>(),
              count);
    ASSERT_TRUE(RunSteps(coordinator, 1).ok());
  }
}

TEST_F(ExportTest, ADirectoryGetsTensorFlowBundlesAndNamesTheNewest) {
  Coordinator& coordinator = cluster_->coordinator();
  for (const int64_t count : {3, 4}) {
    ASSERT_EQ(coordinator.Export(to_), absl::OkStatus());
    const std::string newest = coordinator.SaveCheckpoint().ok()
                                   ? *FileSystem::Real().ReadFile(absl::StrCat(to_, "/checkpoint"))
                                   : "";
    const std::vector<std::string> words = absl::StrSplit(newest, '"');
    ASSERT_EQ(words.size(), 3u) << newest;
    const auto bundle = BundleReader::Open(FileSystem::Real(), absl::StrCat(to_, "/", words[1]));
    ASSERT_TRUE(bundle.ok()) << bundle.status();
    EXPECT_FALSE((*bundle)->index().is_own()) << "it holds something that is Divvy's only";
    EXPECT_EQ((*bundle)->index().tensors.size(), 6u);
    EXPECT_TRUE(BitwiseEqual(*(*bundle)->ReadTensor("table"), ValueOf(coordinator, "table")));
    EXPECT_EQ(*(*bundle)->ReadTensor("count")->scalar<int64_t>(), count);
    ASSERT_TRUE(RunSteps(coordinator, 1).ok());
  }
}

TEST_F(ExportTest, WhatCannotBeWrittenIsSaidAndTheJobGoesOn) {
  Coordinator& coordinator = cluster_->coordinator();
  EXPECT_EQ(coordinator.Export("").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(coordinator.Export(directory_).code(), absl::StatusCode::kAlreadyExists)
      << "the directory has checkpoints";
  ASSERT_EQ(FileSystem::Real().ReplaceFile(to_, "a file"), absl::OkStatus());
  const absl::Status refused = coordinator.Export(absl::StrCat(to_, "/towers.safetensors"));
  EXPECT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.message()), HasSubstr(to_));
  EXPECT_TRUE(RunSteps(coordinator, 1).ok());
}

TEST_F(ExportTest, TheSlotsMayBeLeftOut) {
  Coordinator& coordinator = cluster_->coordinator();
  ExportOptions options;
  options.slots = false;
  const std::string name = absl::StrCat(to_, "/towers.safetensors");
  ASSERT_EQ(coordinator.Export(name, options), absl::OkStatus());
  EXPECT_THAT(NamesIn(name), UnorderedElementsAre("table", "basis", "count"));
}

TEST_F(ExportTest, ATimeoutLeavesWhatWasThereAndTheNextCallWaitsForItsCheckpoint) {
  Coordinator& coordinator = cluster_->coordinator();
  const std::string name = absl::StrCat(to_, "/towers.safetensors");
  ASSERT_EQ(coordinator.Export(name), absl::OkStatus());
  const std::string before = *FileSystem::Real().ReadFile(name);
  ASSERT_TRUE(RunSteps(coordinator, 1).ok());
  cluster_->CutPs(1);
  ExportOptions options;
  options.timeout = absl::Milliseconds(20);
  EXPECT_EQ(coordinator.Export(name, options).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(*FileSystem::Real().ReadFile(name), before);
  cluster_->HealPs(1);
  options.timeout = absl::Hours(1);
  ASSERT_EQ(coordinator.Export(name, options), absl::OkStatus());
  EXPECT_NE(*FileSystem::Real().ReadFile(name), before);
}

TEST(NoCheckpointsTest, AnExportThatTimesOutLeavesNoFile) {
  const auto cluster = *EmbeddedCluster::Start({});
  Coordinator& coordinator = cluster->coordinator();
  ASSERT_TRUE(coordinator.strategy().CreateVariable(kCount).ok());
  const std::string to = absl::StrCat(::testing::TempDir(), "/timed_out");
  const ExportOptions options{/*slots=*/true, /*timeout=*/absl::ZeroDuration()};
  for (const std::string& name : {to, absl::StrCat(to, "/model.safetensors")})
    EXPECT_EQ(coordinator.Export(name, options).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(*FileSystem::Real().ListDirectory(to), ::testing::IsEmpty());
}

TEST(NoCheckpointsTest, WithoutADirectorySaveCheckpointNamesTheFlag) {
  const auto cluster = *EmbeddedCluster::Start({});
  const absl::Status refused = cluster->coordinator().SaveCheckpoint().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--checkpoint_dir"));
}

TEST(NoCheckpointsTest, AModelIsExportedAllTheSameInBothForms) {
  EmbeddedSetup setup;
  setup.options.num_ps = 2;
  const auto cluster = *EmbeddedCluster::Start(setup);
  Coordinator& coordinator = cluster->coordinator();
  // More than the 64 MiB that are read at once.
  const VariableSpec large{"large",
                           {4'500'000, 2},
                           RandomUniform{0, 1, 3},
                           {},
                           DType::kFloat64,
                           VariableAggregation::kNone,
                           FixedShardsPartitioner{2}};
  for (const VariableSpec& spec : {kTable, kBasis, kCount, large, {"empty", {0, 3}, Zeros()}})
    ASSERT_TRUE(coordinator.strategy().CreateVariable(spec).ok());
  ASSERT_TRUE(coordinator.Schedule(kTrain, int64_t{7}).ok());
  ASSERT_TRUE(coordinator.Join().ok());
  const std::string to = absl::StrCat(::testing::TempDir(), "/no_checkpoints"),
                    name = absl::StrCat(to, "/model.safetensors");
  for (int times = 0; times < 2; ++times) {
    ASSERT_EQ(coordinator.Export(name), absl::OkStatus());
    ASSERT_EQ(coordinator.Export(to), absl::OkStatus());
  }
  EXPECT_THAT(NamesIn(name), UnorderedElementsAre("table", "basis", "count", "large", "empty"));
  const std::vector<std::string> words =
      absl::StrSplit(*FileSystem::Real().ReadFile(absl::StrCat(to, "/checkpoint")), '"');
  const auto file = *SafetensorsReader::Open(FileSystem::Real(), name);
  const auto bundle = *BundleReader::Open(FileSystem::Real(), absl::StrCat(to, "/", words[1]));
  for (const char* variable : {"table", "basis", "count", "large"}) {
    const Tensor value = *coordinator.strategy().FindVariable(variable)->Read();
    EXPECT_TRUE(BitwiseEqual(*file->ReadTensor(variable), value)) << variable;
    EXPECT_TRUE(BitwiseEqual(*bundle->ReadTensor(variable), value)) << variable;
  }
  EXPECT_EQ(*file->ReadTensor("count")->scalar<int64_t>(), 7);
}

}  // namespace
}  // namespace divvy
