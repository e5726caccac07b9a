// The C++ of docs/guide, and tests that run it. The text between "// guide: NAME" and "// guide:
// end" is in the guide word for word, which snippets.py checks.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/main.h"

using namespace divvy;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- a whole program ----------------------------------------------------------------------------

namespace program {

// guide: program
const VariableSpec kWeights{"weights", {2, 1}, Zeros(), Sgd{0.1}};
const VariableSpec kBias{"bias", {1}, Zeros(), Sgd{0.1}};

absl::StatusOr<Dataset> Points(const InputContext& input, int64_t n) {
  const auto point = [](int64_t i) -> absl::StatusOr<std::optional<Nest>> {
    const float a = static_cast<float>(i % 7) - 3, b = static_cast<float>(i % 5) - 2;
    return Nest{{"x", Tensor::Vector<float>({a, b})}, {"y", Tensor::Scalar(2 * a - b + 1)}};
  };
  return Dataset::Generator(point, n).Shuffle(1000, input.seed).Batch(8);
}
const DataSource kPoints("points", Points);

absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica);
  Var weights = tape.Read(kWeights), bias = tape.Read(kBias);
  Var losses = SquaredError(Reshape(MatMul(batch["x"], weights) + bias, {-1}), batch["y"]);
  RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
  return Collect({{"loss", MeanOf(losses)}});
}

absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(PerReplica<Metrics> metrics, worker.strategy().Run(TrainReplica, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}
const Step kTrain("train", TrainStep);

absl::Status Train(Coordinator& coordinator) {
  auto scope = coordinator.strategy().Scope();
  RETURN_IF_ERROR(CreateVariable(kWeights).status());
  RETURN_IF_ERROR(CreateVariable(kBias).status());
  // A restarted program resumes where it was.
  RETURN_IF_ERROR(coordinator.RestoreLatest().status());
  while (coordinator.epoch() < 5)
    RETURN_IF_ERROR(coordinator.RunEpoch(kTrain, kPoints(1000)).status());
  return absl::OkStatus();
}
DIVVY_PROGRAM(Train);
// guide: end

TEST(GuideTest, TheProgramLearnsItsLine) {
  const auto found = FindProgram();
  ASSERT_TRUE(found.ok()) << found.status();
  const auto coordinator = StartEmbedded();
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  ASSERT_EQ((*found)->train(**coordinator), absl::OkStatus());
  const Tensor weights = *(*coordinator)->strategy().FindVariable("weights")->Read();
  EXPECT_NEAR((*weights.values<float>())[0], 2, 1e-3);
  EXPECT_NEAR((*weights.values<float>())[1], -1, 1e-3);
}

}  // namespace program

// ---- strategy and cluster -----------------------------------------------------------------------

namespace cluster {

// guide: options
StrategyOptions CutAboveAMebibyte() {
  StrategyOptions options;
  options.partitioner = [](int num_ps) -> Partitioner {
    return MinSizePartitioner{1 << 20, num_ps};
  };
  options.placement = StrategyOptions::Placement::kBalanced;  // default: round robin
  return options;
}
// DIVVY_PROGRAM(Train, CutAboveAMebibyte());
// guide: end

TEST(GuideTest, VariablesAreCutAsTheOptionsSay) {
  EmbeddedOptions embedded;
  embedded.strategy = CutAboveAMebibyte();
  const auto coordinator = StartEmbedded(embedded);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  EXPECT_EQ((*coordinator)->strategy().CreateVariable({"large", {1 << 19}})->shard_offsets().size(),
            3u);
  EXPECT_EQ((*coordinator)->strategy().CreateVariable({"small", {1 << 18}})->shard_offsets().size(),
            2u);
}

// guide: embedded
absl::Status OnOneMachine() {
  EmbeddedOptions options;
  options.num_ps = 2;
  options.num_workers = 4;
  ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
  return program::Train(*coordinator);
}
// guide: end

TEST(GuideTest, AnEmbeddedClusterTrains) { EXPECT_EQ(OnOneMachine(), absl::OkStatus()); }

// guide: embedded_gpus
absl::StatusOr<std::unique_ptr<Coordinator>> OnTwoGpusEach() {
  EmbeddedOptions options;
  options.num_workers = 2;
  options.gpus = "0,1,2,3";  // or "auto", "all", "none"
  options.gpu_memory_bytes = int64_t{8} << 30;
  return StartEmbedded(options);
}
// guide: end

TEST(GuideTest, AnEmbeddedClusterThatIsToComputeOnGpusDoesNotStartWithoutThem) {
  EXPECT_EQ(OnTwoGpusEach().status().code(), absl::StatusCode::kFailedPrecondition);
}

// guide: resolver
absl::StatusOr<int> NumWorkers(Strategy& strategy) {
  const ClusterResolver* resolver = strategy.cluster_resolver();
  if (resolver == nullptr) return 1;  // the default strategy
  ASSIGN_OR_RETURN(const ClusterSpec cluster, resolver->cluster_spec());
  return cluster.num_tasks("worker");
}
// guide: end

TEST(GuideTest, TheResolverKnowsTheCluster) {
  EXPECT_EQ(*NumWorkers(Strategy::Current()), 1);
  EXPECT_EQ(*NumWorkers((*StartEmbedded())->strategy()), 2);
}

}  // namespace cluster

// ---- variables ----------------------------------------------------------------------------------

namespace variables {

// guide: variables
const VariableSpec kKernel{"kernel", {784, 128}, GlorotUniform()};

VariableSpec Table() {
  VariableSpec spec{"table", {1'000, 16}, RandomNormal{0, 0.05f}, RowwiseAdagrad{0.05}};
  spec.partitioner = FixedShardsPartitioner{4};  // instead of the strategy's
  return spec;
}

absl::StatusOr<Variable> Create(Strategy& strategy) {
  auto scope = strategy.Scope();
  RETURN_IF_ERROR(CreateVariable(kKernel).status());
  return CreateVariable(Table());
}
// guide: end

// guide: colocate
absl::Status Beside(Strategy& strategy, const Variable& table) {
  auto scope = strategy.Scope();
  ASSIGN_OR_RETURN(const StrategyScope colocated,
                   strategy.extended().ColocateVarsWith(table, /*shard=*/0));
  return CreateVariable({"table/counts", {250}}).status();
}
// guide: end

// guide: use_variables
absl::Status UseIt(const Variable& table) {
  ASSIGN_OR_RETURN(Tensor whole, table.Read());
  // v[2:6, -1]
  ASSIGN_OR_RETURN(Tensor part, table.At({IndexSlice{2, 6}, -1}));
  // Rows in the order of the ids.
  ASSIGN_OR_RETURN(Tensor rows, table.Rows(Tensor::Vector<int64_t>({9, 0, 9})));
  // Checks first that the value has the variable's shape.
  RETURN_IF_ERROR(table.Assign(whole));
  IndexedSlices slices{Tensor::Vector<int64_t>({9, 0, 9}), rows, /*num_rows=*/1'000};
  RETURN_IF_ERROR(table.ScatterRows(Variable::Scatter::kAdd, slices));  // row 9 is added twice
  return part.shape() == Shape({4}) ? absl::OkStatus() : absl::InternalError("another shape");
}
// guide: end

TEST(GuideTest, VariablesAreCreatedReadAndWritten) {
  const auto coordinator = StartEmbedded();
  const absl::StatusOr<Variable> table = Create((*coordinator)->strategy());
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(table->shard_offsets(), ElementsAre(0, 250, 500, 750, 1000));
  EXPECT_EQ(UseIt(*table), absl::OkStatus());
  EXPECT_EQ(Beside((*coordinator)->strategy(), *table), absl::OkStatus());
}

// guide: warm_start
absl::Status StartFrom(Coordinator& coordinator, const std::string& checkpoint) {
  // A prefix of this program's names, and the prefix in the checkpoint.
  ASSIGN_OR_RETURN(const WarmStart start, WarmStart::Open(checkpoint, {{"tower/", "encoder/"}}));
  ASSIGN_OR_RETURN(const VariableSpec kernel,
                   start.Apply({"tower/kernel", {4, 2}, GlorotUniform()}));
  // It begins with the value of "encoder/kernel" in the checkpoint.
  return coordinator.strategy().CreateVariable(kernel).status();
}
// guide: end

TEST(GuideTest, AVariableStartsFromAnotherJobsCheckpoint) {
  EmbeddedOptions options;
  options.checkpoint_dir = absl::StrCat(::testing::TempDir(), "/warm_start");
  const auto trained = StartEmbedded(options);
  ASSERT_TRUE((*trained)->strategy().CreateVariable({"encoder/kernel", {4, 2}, Constant{3}}).ok());
  const auto name = (*trained)->SaveCheckpoint();
  ASSERT_TRUE(name.ok()) << name.status();
  const auto coordinator = StartEmbedded();
  ASSERT_EQ(StartFrom(**coordinator, absl::StrCat(options.checkpoint_dir, "/", *name)),
            absl::OkStatus());
  EXPECT_EQ((*(*coordinator)->strategy().FindVariable("tower/kernel")->Read()->values<float>())[7],
            3);
}

}  // namespace variables

// ---- schedule, join, fetch ----------------------------------------------------------------------

namespace scheduling {

// guide: step
const VariableSpec kCounter{"counter", {}, Zeros(), {}, DType::kInt64};

absl::StatusOr<int64_t> Count(WorkerContext& worker, int64_t amount) {
  ASSIGN_OR_RETURN(Variable counter, worker.strategy().FindVariable(kCounter));
  RETURN_IF_ERROR(counter.AssignAdd(Tensor::Scalar(amount)));
  return amount * worker.worker_index();
}
const Step kCount("count", Count);
// guide: end

// guide: schedule
absl::StatusOr<int64_t> CountToAHundred(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kCounter).status());
  std::vector<RemoteValue<int64_t>> results;
  for (int i = 0; i < 100; ++i) {
    ASSIGN_OR_RETURN(RemoteValue<int64_t> result, coordinator.Schedule(kCount, 1));
    results.push_back(result);
  }
  RETURN_IF_ERROR(coordinator.Join());
  RETURN_IF_ERROR(FetchAll<int64_t>(results).status());
  ASSIGN_OR_RETURN(Variable counter, coordinator.strategy().FindVariable("counter"));
  ASSIGN_OR_RETURN(Tensor value, counter.Read());
  return value.scalar<int64_t>();  // 100: not 99 and not 101, whichever worker died
}
// guide: end

TEST(GuideTest, AHundredStepsCountToAHundred) {
  EXPECT_EQ(*CountToAHundred(**StartEmbedded()), 100);
}

// guide: errors
absl::Status RaisedOnce(Coordinator& coordinator) {
  // No variable "counter": the step fails.
  RETURN_IF_ERROR(coordinator.Schedule(kCount, 1).status());
  // NotFound. The message names the step, the worker and the existing variables.
  const absl::Status raised = coordinator.Join();
  if (raised.code() != absl::StatusCode::kNotFound)
    return absl::InternalError("it should have failed");
  // OK: an error is raised once, and the coordinator can be used again.
  return coordinator.Join();
}
// guide: end

TEST(GuideTest, AnErrorIsRaisedOnce) { EXPECT_EQ(RaisedOnce(**StartEmbedded()), absl::OkStatus()); }

}  // namespace scheduling

// ---- data ---------------------------------------------------------------------------------------

namespace data {

// guide: dataset
absl::StatusOr<Dataset> Clicks(const InputContext& input, std::string files, bool training) {
  const auto parse = [](absl::string_view record) {
    return ParseExample(record, {{"label", DType::kFloat32}, {"ids", DType::kInt64, {8}}});
  };
  Dataset clicks = Dataset::TfRecord(files, parse).IgnoreErrors(/*limit=*/100);
  clicks = clicks.Filter([](const Nest& click) -> absl::StatusOr<bool> {
    ASSIGN_OR_RETURN(Tensor label, click["label"].tensor());
    ASSIGN_OR_RETURN(float value, label.scalar<float>());
    return value >= 0;
  });
  return training ? clicks.Shuffle(100'000, input.seed).Batch(256).Prefetch(2) : clicks.Batch(256);
}
const DataSource kClicks("clicks", Clicks);
// guide: end

// guide: text
absl::StatusOr<Dataset> Ads(const InputContext& input, std::string files, std::string jobs_file) {
  ASSIGN_OR_RETURN(const Vocabulary jobs, Vocabulary::Load(jobs_file));
  const Dataset ads =
      Dataset::Csv(files, {{"label"},
                           CsvColumn::Text("job", jobs),
                           CsvColumn::Text("city", TextKeys::Hashed("city", 10'000))});
  return ads.MapBatches(Cross({"job", "city"}, 100'000)).Shuffle(100'000, input.seed).Batch(256);
}
const DataSource kAds("ads", Ads);

// Once, before the job.
absl::Status MakeJobs(const std::string& files, const std::string& jobs_file) {
  MostFrequentOptions options;
  options.feature = "job";
  options.max_tokens = 10'000;
  ASSIGN_OR_RETURN(
      const Vocabulary jobs,
      Vocabulary::MostFrequent(Dataset::Csv(files, {{"job", DType::kString}}), options));
  return jobs.Save(jobs_file);
}
// guide: end

TEST(GuideTest, TextBecomesKeys) {
  const std::string ads = absl::StrCat(::testing::TempDir(), "/ads.csv");
  const std::string jobs = absl::StrCat(::testing::TempDir(), "/jobs.txt");
  const absl::string_view lines = "label,city,job\n1,Paris,cook\n0,Rome,smith\n1,Paris,cook\n";
  ASSERT_TRUE(FileSystem::Real().ReplaceFile(ads, lines).ok());
  ASSERT_TRUE(MakeJobs(ads, jobs).ok());
  const absl::StatusOr<Dataset> dataset = Ads(InputContext(), ads, jobs);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  const auto batch = dataset->Iterate()->Next();
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ((**batch).ToString(),
            "{\"city\": int64 [3], \"job\": int64 [3], \"job_X_city\": int64 [3], \"label\": "
            "float32 [3]}");
}

// guide: policies
const DataSource kByFiles("clicks by files", Clicks, InputOptions{AutoShardPolicy::kFile});
// Each worker reads everything, as in TensorFlow with parameter servers.
const DataSource kEverything("clicks for each", Clicks, InputOptions{AutoShardPolicy::kOff});
// guide: end

TEST(GuideTest, FilesThatAreNotThereAreNamed) {
  const auto coordinator = StartEmbedded();
  const auto dataset = (*coordinator)->CreatePerWorkerDataset(kClicks("/nowhere/part-*", true));
  ASSERT_TRUE(dataset.ok());
  const auto metrics = (*coordinator)->RunEpoch(program::kTrain, kClicks("/nowhere/part-*", true));
  EXPECT_THAT(std::string(metrics.status().message()), HasSubstr("cannot list /nowhere"));
}

// guide: global_batches
absl::StatusOr<Dataset> GlobalBatches(const InputContext&) {
  const Tensor rows = Tensor::Vector<float>({1, 2, 3, 4, 5, 6, 7, 8});
  return Strategy::Current().DistributeDataset(Dataset::FromTensorSlices(rows).Batch(4));
}
const DataSource kGlobalBatches("global batches", GlobalBatches);
// guide: end

// guide: iterate
absl::StatusOr<Metrics> CountBatches(WorkerContext& worker, Iterator batches) {
  // A batch for each replica; OutOfRange at the end of the data.
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  double examples = 0;
  for (const Nest& one : batch.values()) {
    ASSIGN_OR_RETURN(Tensor tensor, one.tensor());
    examples += static_cast<double>(tensor.shape().dim(0));
  }
  return Metrics{{"examples of a replica", Metric::Mean(examples, batch.size())}};
}
const Step kCountBatches("count batches", CountBatches, StepKind::kReadOnly);

absl::Status LoopByHand(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(PerWorkerDataset dataset, coordinator.CreatePerWorkerDataset(kGlobalBatches()));
  const Iterator iterator = dataset.MakeIterator();
  for (int i = 0; i < 2; ++i)
    RETURN_IF_ERROR(coordinator.Schedule(kCountBatches, iterator).status());
  return coordinator.Join();
}

absl::StatusOr<Metrics> LoopDone(Coordinator& coordinator) {
  return coordinator.RunEpoch(kCountBatches, kGlobalBatches());
}
// guide: end

TEST(GuideTest, AWorkersReplicasShareAGlobalBatch) {
  EmbeddedOptions options;
  options.replicas_per_worker = 2;
  const auto coordinator = StartEmbedded(options);
  EXPECT_EQ(LoopByHand(**coordinator), absl::OkStatus());
  const auto metrics = LoopDone(**coordinator);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_EQ(metrics->at("examples of a replica").value(), 2);
}

}  // namespace data

// ---- replicas -----------------------------------------------------------------------------------

namespace replicas {

// guide: run
absl::StatusOr<Nest> Squares(ReplicaContext& replica, float x) {
  return Nest(x * x + static_cast<float>(replica.replica_id_in_sync_group()));
}

absl::StatusOr<Nest> SumOfSquares(Strategy& strategy) {
  ASSIGN_OR_RETURN(PerReplica<float> values,
                   strategy.DistributeValuesFromFunction(
                       [](ValueContext c) { return 1.0f + c.replica_id_in_sync_group; }));
  ASSIGN_OR_RETURN(PerReplica<Nest> squares, strategy.Run(Squares, values));
  return strategy.Reduce(ReduceOp::kSum, squares, kNoAxis);
}
// guide: end

// guide: collectives
absl::StatusOr<float> Meet(ReplicaContext& replica, float mine) {
  ASSIGN_OR_RETURN(float sum, replica.AllReduce(ReduceOp::kSum, mine));
  ASSIGN_OR_RETURN(Tensor all, replica.AllGather(Tensor::Vector<float>({mine}), /*axis=*/0));
  const auto largest = [](Strategy&, const PerReplica<float>& values) -> absl::StatusOr<float> {
    return *std::max_element(values.values().begin(), values.values().end());
  };
  ASSIGN_OR_RETURN(float max, replica.MergeCall(largest, mine));  // once, with all replicas' values
  return sum + max + static_cast<float>(all.shape().dim(0));
}
// guide: end

// guide: differentiable
absl::StatusOr<Gradients> ThroughTheMean(ReplicaContext& replica, const Tensor& x) {
  GradientTape tape(replica);
  Var mean = replica.AllReduce(ReduceOp::kMean, tape.Watch("x", x));
  return tape.Gradient(ReduceSum(Square(mean)));
}
// guide: end

TEST(GuideTest, ReplicasRunAndMeet) {
  EmbeddedOptions options;
  options.replicas_per_worker = 2;
  const auto coordinator = StartEmbedded(options);
  Strategy& strategy = (*coordinator)->strategy();
  EXPECT_EQ(*SumOfSquares(strategy)->tensor()->scalar<float>(), 1 + 4 + 1);
  EXPECT_THAT(strategy.Run(Meet, PerReplica<float>({3, 4}))->values(), ElementsAre(13, 13));
  const auto gradients = strategy.Run(
      ThroughTheMean, PerReplica<Tensor>({Tensor::Scalar(1.0f), Tensor::Scalar(3.0f)}));
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  EXPECT_EQ(*std::get<Tensor>((*gradients)[0].entries().at("x")).scalar<float>(), 4);
}

}  // namespace replicas

// ---- embeddings and optimizers ------------------------------------------------------------------

namespace embeddings {

// guide: embedding_layer
const Embedding kCategories("categories", 1'000, 8, RowwiseAdagrad{0.05});

Var CategoryScores(GradientTape& tape, const Nest& batch) {
  Var category = kCategories(tape, batch["category"]);  // ids of any shape -> ids.shape + [8]
  Var seen = kCategories.Bag(tape, batch["seen"]);      // lists of ids -> [batch, 8], their means
  return ReduceSum(category * seen, -1);
}
// guide: end

// guide: dynamic_table
const DynamicTable kVisitors("visitors", {.width = 8,
                                          .optimizer = RowwiseAdagrad{0.05},
                                          .admission = AdmitAfter{3},
                                          .eviction = EvictUnusedFor{absl::Hours(24 * 30)}});

Var VisitorScores(GradientTape& tape, const Nest& batch) {
  Var visitor = tape.Lookup(kVisitors, batch["visitor"]);  // any int64, also negative ones
  Var friends = tape.LookupSparse(kVisitors, batch["friends"], Combiner::kMean);
  return ReduceSum(visitor * friends, -1);
}
// guide: end

// guide: table_rows
absl::StatusOr<std::string> TellOfVisitors(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const Variable visitors, coordinator.strategy().FindVariable(kVisitors));
  ASSIGN_OR_RETURN(const TableStats stats, visitors.Stats());
  std::string text = absl::StrCat(stats.rows, " rows, ", stats.waiting, " keys wait");
  ASSIGN_OR_RETURN(const std::vector<TableRow> rows, visitors.Find({17, -42}));
  for (const TableRow& row : rows) {
    if (row.exists) absl::StrAppend(&text, "; key ", row.key, ": ", row.count, " steps");
  }
  return text;
}
// guide: end

// guide: embedding
const VariableSpec kItems{"items", {100'000, 8}, RandomUniform{}, RowwiseAdagrad{0.05}};

Var Scores(GradientTape& tape, const Nest& batch) {
  Var item = tape.Lookup(kItems, batch["item"]);  // ids of any shape -> ids.shape + [8]
  LookupOptions safe;
  safe.safe = true;  // drops ids below 0; lists left empty give zeros
  Var history = tape.LookupSparse(kItems, batch["history"], Combiner::kMean, safe);
  return ReduceSum(item * history, -1);
}
// guide: end

// guide: optimizers
const VariableSpec kDense{
    "dense",
    {8, 1},
    Zeros(),
    Momentum{ExponentialDecay{0.1, /*decay_steps=*/1'000, /*rate=*/0.5}, 0.9f}};

absl::Status Apply(ReplicaContext& replica, GradientTape& tape, const Var& losses) {
  ASSIGN_OR_RETURN(Gradients gradients, tape.Gradient(ReduceMean(losses)));
  RETURN_IF_ERROR(gradients.ClipByGlobalNorm(1.0));
  // Applies each variable's own optimizer, on its ps, to the mean over the replicas.
  return replica.ApplyGradients(gradients);
  // replica.ApplyGradients(gradients, ReduceOp::kSum);               // sum, TensorFlow's default
  // replica.ApplyGradients(gradients, Adam{1e-3}, ReduceOp::kMean);  // one optimizer for all
}
// guide: end

TEST(GuideTest, OnlyTheRowsNamedAreTrained) {
  const auto coordinator = StartEmbedded();
  Strategy& strategy = (*coordinator)->strategy();
  const absl::StatusOr<Variable> items = strategy.CreateVariable(kItems);
  ASSERT_TRUE(items.ok()) << items.status();
  const Tensor before = *items->Rows(Tensor::Vector<int64_t>({7, 8}));
  const SparseIds history{Tensor::Vector<int64_t>({7, -1}), Tensor::Vector<int64_t>({0, 2}),
                          std::nullopt};
  const Nest batch{{"item", Tensor::Vector<int64_t>({7})}, {"history", Nest(history)}};
  const auto train = [&batch](ReplicaContext& replica) {
    GradientTape tape(replica);
    return Apply(replica, tape, Scores(tape, batch));
  };
  ASSERT_EQ(strategy.Run(train).status(), absl::OkStatus());
  const Tensor after = *items->Rows(Tensor::Vector<int64_t>({7, 8}));
  EXPECT_FALSE(BitwiseEqual(*before.Rows(0, 1), *after.Rows(0, 1)));
  EXPECT_TRUE(BitwiseEqual(*before.Rows(1, 2), *after.Rows(1, 2)));
}

}  // namespace embeddings

// ---- another autograd ---------------------------------------------------------------------------

namespace own_gradients {

// guide: own_gradients
absl::Status TrainByHand(ReplicaContext& replica, const Tensor& x) {
  // Reads both in one round trip.
  ASSIGN_OR_RETURN(std::vector<Tensor> parameters,
                   replica.ReadAll({program::kWeights, program::kBias}));
  Gradients gradients;
  // The gradients that your library computes of the loss weights . x + bias.
  gradients.Set("weights", x);
  gradients.Set("bias", Tensor::Vector<float>({1}));
  return replica.ApplyGradients(gradients);
}
// guide: end

TEST(GuideTest, GradientsMayComeFromElsewhere) {
  const auto coordinator = StartEmbedded();
  Strategy& strategy = (*coordinator)->strategy();
  for (const VariableSpec& spec : {program::kWeights, program::kBias})
    ASSERT_TRUE(strategy.CreateVariable(spec).ok());
  const Tensor x = *Tensor::Copy<float>({2, 1}, {10, 20});
  ASSERT_EQ(strategy.Run(TrainByHand, x).status(), absl::OkStatus());
  EXPECT_THAT(*strategy.FindVariable("weights")->Read()->values<float>(), ElementsAre(-1, -2));
}

}  // namespace own_gradients

// ---- retrieval ----------------------------------------------------------------------------------

namespace retrieval {

// guide: two_towers
constexpr int64_t kNumUsers = 40, kNumItems = 20;
const Embedding kUsers("users", kNumUsers, 8, RowwiseAdagrad{0.3});
const Embedding kItems("items", kNumItems, 8, RowwiseAdagrad{0.3});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  // Training compares a user with the items of the batch, evaluation with all items.
  const bool training = tape.mode() == GradientTape::Mode::kTraining;
  Var users = kUsers(tape, batch["user"]),
      items = kItems(tape, training ? Var(batch["item"]) : Range(kNumItems));
  if (!training) {
    Var scores = MatMul(users, items, Transpose::kNo, Transpose::kYes);
    return {SoftmaxCrossEntropy(scores, batch["item"]),
            TopKMetrics({5}, scores, batch["bought"], batch["seen"])};
  }
  InBatchSoftmaxOptions options;
  options.item_ids = batch["item"];  // an equal item of another row is no wrong answer
  options.log_q = batch["log_q"];    // the logarithm of the item's share of the data
  return {InBatchSoftmax(users, items, options)};
}
const Model kTwoTowers("two towers", {kUsers, kItems}, Forward);
// guide: end

// Users like the five items of their group. One of them is held out.
absl::StatusOr<Dataset> Visits(const InputContext& input, bool training) {
  std::vector<int64_t> users, items, seen;
  std::vector<int64_t> splits = {0};
  for (int64_t user = 0; user < kNumUsers; ++user) {
    const int64_t held_out = user / 4 % 5;
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t item = 4 * i + user % 4;
      if (training == (i == held_out)) {
        if (!training) seen.push_back(item);
        continue;
      }
      users.push_back(user);
      items.push_back(item);
    }
    splits.push_back(static_cast<int64_t>(seen.size()));
  }
  const Tensor user = Tensor::Vector<int64_t>(users), item = Tensor::Vector<int64_t>(items);
  if (training) {
    const std::vector<float> log_q(users.size(), -std::log(20.0f));
    return Dataset::FromTensorSlices(
               {{"user", user}, {"item", item}, {"log_q", Tensor::Vector<float>(log_q)}})
        .Shuffle(1000, input.seed)
        .Batch(20);
  }
  std::vector<int64_t> one_each(kNumUsers + 1);
  for (int64_t i = 0; i <= kNumUsers; ++i) one_each[i] = i;
  const SparseIds bought{item, Tensor::Vector<int64_t>(one_each), {}};
  return Dataset::FromTensorSlices(
             {{"user", user},
              {"item", item},
              {"bought", bought},
              {"seen",
               SparseIds{Tensor::Vector<int64_t>(seen), Tensor::Vector<int64_t>(splits), {}}}})
      .Batch(7);
}
const DataSource kVisits("visits of the guide", Visits);

TEST(GuideTest, TwoTowersFindTheItemsThatWereHeldOut) {
  const auto coordinator = *StartEmbedded();
  FitOptions options;
  options.epochs = 30;
  options.validation = kVisits(false);
  auto metrics = Trainer(*coordinator, kTwoTowers, Sgd{0.1}).Fit(kVisits(true), options);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  EXPECT_GT((*metrics)["validation/recall@5"], 0.8);  // by chance 0.31
  EXPECT_GT((*metrics)["validation/ndcg@5"], 0.7);
}

}  // namespace retrieval

// ---- train/ -------------------------------------------------------------------------------------

namespace training {

// guide: model
const Mlp kNetwork("network", {2, 16, 1});

ModelOutput Forward(GradientTape& tape, const Nest& batch) {
  Var predictions = Reshape(kNetwork(tape, batch["x"]), {-1});
  return {SquaredError(predictions, batch["y"]),
          {{"rmse", Rmse(predictions, batch["y"])}},
          {{"y", predictions}}};
}
const Model kModel("points model", {kNetwork}, Forward);
// guide: end

// guide: sequential
const Sequential kStages("network", {2},
                         {Sequential::Dense(16, Activation::kRelu), Sequential::Dense(1)});
// guide: end

TEST(GuideTest, TheStagesOfASequentialFit) {
  EXPECT_EQ(kStages.status(), absl::OkStatus());
  EXPECT_EQ(kStages.output(), (Shape{1}));
}

// guide: fit
absl::StatusOr<double> Fit(Coordinator& coordinator) {
  Trainer trainer(coordinator, kModel, Adam{0.01});
  FitOptions options;
  options.epochs = 10;
  options.validation = program::kPoints(200);
  const auto halved = [](int epoch) { return std::pow(0.5, epoch); };
  options.callbacks = {std::make_shared<LearningRateByEpoch>(halved),
                       std::make_shared<EarlyStopping>("validation/loss", /*patience=*/2)};
  options.clip_norm = 10;
  ASSIGN_OR_RETURN(auto metrics, trainer.Fit(program::kPoints(1000), options));
  return metrics["validation/rmse"];
}
// guide: end

// guide: predict
absl::StatusOr<Dataset> Unlabelled(const InputContext&) {
  return Dataset::FromTensorSlices({{"x", Nest(*Tensor::Copy<float>({3, 2}, {1, 2, 3, 4, 5, 6}))}})
      .Batch(2);
}
const DataSource kUnlabelled("unlabelled points", Unlabelled);

absl::StatusOr<Tensor> Predict(Trainer& trainer) {
  ASSIGN_OR_RETURN(Outputs outputs, trainer.Predict(kUnlabelled()));
  return outputs["y"];  // [3], in the order of the data
}
// guide: end

TEST(GuideTest, TheTrainerPredictsWithoutLabels) {
  const auto coordinator = *StartEmbedded();
  Trainer trainer(*coordinator, kModel, Adam{0.01});
  const absl::StatusOr<Tensor> predictions = Predict(trainer);
  ASSERT_TRUE(predictions.ok()) << predictions.status();
  EXPECT_EQ(predictions->shape(), (Shape{3}));
}

TEST(GuideTest, TheTrainerFits) {
  const absl::StatusOr<double> rmse = Fit(**StartEmbedded());
  ASSERT_TRUE(rmse.ok()) << rmse.status();
  EXPECT_LT(*rmse, 0.5);
}

// guide: evaluator
absl::Status Evaluate(Evaluator& evaluator) {
  return evaluator.Watch(kModel, program::kPoints(200));
}
// DIVVY_PROGRAM(Train, Evaluate);
// guide: end

// Scores what one cluster holds, once.
class OneScore : public Evaluator {
 public:
  explicit OneScore(Coordinator& coordinator) : coordinator_(coordinator) {}
  absl::Status Watch(std::function<absl::Status(Coordinator&)> score) override {
    return score(coordinator_);
  }

 private:
  Coordinator& coordinator_;
};

TEST(GuideTest, AnEvaluatorScores) {
  const auto coordinator = StartEmbedded();
  OneScore evaluator(**coordinator);
  EXPECT_TRUE(absl::IsNotFound(Evaluate(evaluator))) << "there are no variables";
  ASSERT_TRUE(Fit(**coordinator).ok());
  EXPECT_EQ(Evaluate(evaluator), absl::OkStatus());
}

}  // namespace training

// ---- going on where it was ----------------------------------------------------------------------

namespace resuming {

// guide: schedule_once
const VariableSpec kSum{"sum", {}, Zeros(), {}, DType::kInt64};

absl::Status AddChunk(WorkerContext& worker, int64_t chunk) {
  ASSIGN_OR_RETURN(Variable sum, worker.strategy().FindVariable("sum"));
  return sum.AssignAdd(Tensor::Scalar(chunk));
}
const Step kAddChunk("add_chunk", AddChunk);

absl::Status AddChunks(Coordinator& coordinator) {
  RETURN_IF_ERROR(coordinator.strategy().CreateVariable(kSum).status());
  RETURN_IF_ERROR(coordinator.RestoreLatest().status());
  for (int64_t i = 0; i < 100; ++i)
    RETURN_IF_ERROR(coordinator.ScheduleOnce("chunks", i, kAddChunk, i).status());
  return coordinator.Join();
}
// guide: end

TEST(GuideTest, WhatIsScheduledOnceCountsOnce) {
  const auto coordinator = *StartEmbedded();
  ASSERT_EQ(AddChunks(*coordinator), absl::OkStatus());
  for (int64_t i = 0; i < 100; ++i)
    ASSERT_TRUE(coordinator->ScheduleOnce("chunks", i, kAddChunk, i).ok());
  ASSERT_EQ(coordinator->Join(), absl::OkStatus());
  EXPECT_EQ(*coordinator->strategy().FindVariable("sum")->Read()->scalar<int64_t>(), 4950);
}

}  // namespace resuming
