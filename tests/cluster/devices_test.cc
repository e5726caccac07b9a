// Whole clusters in this process whose replicas compute on four devices that the host emulates.
// Tests that work with any number of devices (AnyGpusTest) use those of the library that the
// process loads.
#include <cstdlib>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "divvy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/embedded.h"
#include "protocol/error.h"
#include "tests/cluster/devices_place.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

// ---- a program that does not mention devices ----------------------------------------------------

const VariableSpec kHidden{"hidden", {5, 8}, GlorotUniform(), Momentum{0.1}};
const VariableSpec kHiddenBias{"hidden_bias", {8}, Zeros(), Momentum{0.1}};
const VariableSpec kClasses{"classes", {10, 3}, GlorotUniform(), Momentum{0.1}};
const VariableSpec kTable{"table",
                          {20, 2},
                          GlorotUniform(),
                          Adagrad{0.1},
                          DType::kFloat32,
                          VariableAggregation::kNone,
                          FixedShardsPartitioner{2}};
const VariableSpec kTotal{"total", {2}, Zeros(), {}, DType::kFloat32, VariableAggregation::kSum};

// `n` examples of 5 numbers, some of which are ids, with a class by a planted rule, in batches of
// 8.
absl::StatusOr<Dataset> Examples(const InputContext&, int64_t n) {
  Random random(17);
  std::vector<float> x(5 * n);
  std::vector<int64_t> label(n), id(n);
  for (float& value : x) value = static_cast<float>(random.Uniform() * 2 - 1);
  for (int64_t i = 0; i < n; ++i) {
    id[i] = static_cast<int64_t>(random.Below(20));
    label[i] = x[5 * i] + 0.1 * static_cast<double>(id[i]) > 1.2 ? 2 : x[5 * i + 1] > 0 ? 1 : 0;
  }
  ASSIGN_OR_RETURN(Tensor rows, Tensor::Copy<float>({n, 5}, x));
  return Dataset::FromTensorSlices({{"x", rows},
                                    {"id", Tensor::Vector<int64_t>(id)},
                                    {"label", Tensor::Vector<int64_t>(label)}})
      .Batch(8);
}
const DataSource kExamples("devices_test/examples", Examples);
const DataSource kExamplesOnTheCpu("devices_test/examples_on_the_cpu", Examples,
                                   InputOptions{AutoShardPolicy::kLease,
                                                /*fetch_to_device=*/false});

absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica);
  const Var embedded = tape.Lookup("table", Var(batch["id"]));
  const Var hidden = Relu(MatMul(Var(batch["x"]), tape.Read("hidden")) + tape.Read("hidden_bias"));
  const Var logits = MatMul(Concat({hidden, embedded}, 1), tape.Read("classes"));
  const Var losses = SoftmaxCrossEntropy(logits, Var(batch["label"]));
  RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
  return Collect({{"loss", MeanOf(losses)}, {"accuracy", Accuracy(logits, Var(batch["label"]))}});
}
absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator examples) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batches, worker.Next(examples));
  ASSIGN_OR_RETURN(PerReplica<Metrics> metrics, worker.strategy().Run(TrainReplica, batches));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}
const Step kTrain("devices_test/train", TrainStep);

// ---- the cluster --------------------------------------------------------------------------------

constexpr int kSteps = 12;

enum class On { kCpu, kGpus };

class AnyGpusTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { place_ = PrepareDevices(); }
  void SetUp() override {
    if (!place_.found.ok()) GTEST_SKIP() << place_.found;
  }

  std::unique_ptr<EmbeddedCluster> Start(On on, int workers, int replicas) {
    EmbeddedSetup setup;
    setup.options.num_workers = workers;
    setup.options.replicas_per_worker = replicas;
    if (on == On::kGpus) {
      setup.options.gpus = "all";
      setup.options.gpu_memory_bytes = place_.limit_bytes;
    }
    auto cluster = EmbeddedCluster::Start(setup);
    EXPECT_TRUE(cluster.ok()) << cluster.status();
    for (const VariableSpec& spec : {kHidden, kHiddenBias, kClasses, kTable, kTotal}) {
      EXPECT_TRUE((*cluster)->coordinator().strategy().CreateVariable(spec).ok());
    }
    return *std::move(cluster);
  }
  static std::vector<float> Read(EmbeddedCluster& cluster, const std::string& name) {
    const Tensor value = *cluster.coordinator().strategy().FindVariable(name)->Read();
    const absl::Span<const float> values = *value.values<float>();
    return {values.begin(), values.end()};
  }

  template <typename Signature, typename... Args>
  static auto Run(EmbeddedCluster& cluster, const Step<Signature>& step, const Args&... args) {
    Coordinator& coordinator = cluster.coordinator();
    const auto scheduled = coordinator.Schedule(step, args...);
    EXPECT_TRUE(scheduled.ok()) << scheduled.status();
    auto result = scheduled->Fetch();
    coordinator.Join().IgnoreError();
    return result;
  }

  // Runs one step after another, so that the order is the same each time. Returns the loss of each.
  static std::vector<float> Train(EmbeddedCluster& cluster, const DataSource<int64_t>& examples) {
    // In the last step, one replica has a part of a batch and another has none.
    const int64_t replicas = NumReplicas(cluster), missing = replicas == 1 ? 4 : 12;
    const auto dataset =
        cluster.coordinator().CreatePerWorkerDataset(examples(kSteps * 8 * replicas - missing));
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    Iterator iterator = dataset->MakeIterator();
    std::vector<float> losses;
    for (int i = 0; i < kSteps; ++i) {
      const absl::StatusOr<Metrics> metrics = Run(cluster, kTrain, iterator);
      EXPECT_TRUE(metrics.ok()) << metrics.status();
      if (metrics.ok()) losses.push_back(static_cast<float>(metrics->at("loss").value()));
    }
    return losses;
  }

  static int NumReplicas(EmbeddedCluster& cluster) {
    return cluster.coordinator().strategy().num_replicas_in_sync();
  }

 private:
  static DevicesPlace place_;
};
DevicesPlace AnyGpusTest::place_;

// Tests that need four devices.
class DevicesTest : public AnyGpusTest {};

TEST_F(AnyGpusTest, TrainingOnGpusGivesTheValuesOfTrainingOnTheCpu) {
  const auto gpus = Start(On::kGpus, 1, 0), cpu = Start(On::kCpu, 1, NumReplicas(*gpus));
  EXPECT_THAT(Train(*gpus, kExamples), Pointwise(FloatNear(1e-4), Train(*cpu, kExamples)));
  for (const VariableSpec& spec : {kHidden, kHiddenBias, kClasses, kTable}) {
    EXPECT_THAT(Read(*gpus, spec.name), Pointwise(FloatNear(1e-4), Read(*cpu, spec.name)))
        << spec.name;
  }
}

TEST_F(DevicesTest, AWorkerHasAReplicaOnEachGpu) {
  EXPECT_EQ(NumReplicas(*Start(On::kGpus, 1, 0)), 4);
}

// The worker that opens the data first gets the first step, so the order in which two workers read
// differs from run to run.
TEST_F(DevicesTest, TwoWorkersShareTheGpusAndTheExamples) {
  const auto gpus = Start(On::kGpus, 2, 0);
  EXPECT_EQ(gpus->coordinator().strategy().num_replicas_in_sync(), 2);
  const std::vector<float> losses = Train(*gpus, kExamples);
  EXPECT_EQ(losses.size(), static_cast<size_t>(kSteps));
  EXPECT_LT(losses.back(), 2 * losses.front());
}

// Runs in a process of its own, because lost devices stay lost.
TEST_F(DevicesTest, GpusThatAreLostEndTheProgramSoThatItIsStartedAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto train = [this] {
    setenv("DIVVY_HOST_DEVICES_FAIL_FROM", "300", 1);
    const auto gpus = Start(On::kGpus, 2, 0);
    Coordinator& coordinator = gpus->coordinator();
    const auto dataset = coordinator.CreatePerWorkerDataset(kExamples(1'000));
    Iterator iterator = dataset->MakeIterator();
    absl::Status status;
    for (int i = 0; i < 50 && status.ok(); ++i) {
      status = coordinator.Schedule(kTrain, iterator).status();
      status.Update(coordinator.Join());
    }
    std::cerr << status << "\n";
    std::_Exit(ExitCodeOf(status));
  };
  EXPECT_EXIT(train(), ::testing::ExitedWithCode(138),
              "GPU:[0-3] .host device [0-3]. is lost: an illegal memory access was encountered");
}

// ---- options ------------------------------------------------------------------------------------

TEST_F(DevicesTest, AProgramWithAMainOfItsOwnChoosesGpusByOption) {
  EmbeddedOptions options;
  options.gpus = "all";
  options.gpu_memory_bytes = kHostLimitBytes;
  EXPECT_EQ((*StartEmbedded(options))->strategy().num_replicas_in_sync(), 2);
  EXPECT_EQ((*StartEmbedded())->strategy().num_replicas_in_sync(),
            1);  // without the option: the CPU
}

TEST_F(DevicesTest, GpusThatDoNotGoRoundAreRefusedByOption) {
  EmbeddedOptions options;
  options.num_workers = 3;
  options.gpus = "all";
  options.gpu_memory_bytes = kHostLimitBytes;
  EXPECT_THAT(StartEmbedded(options).status().message(),
              HasSubstr("--gpus=all: 4 GPUs cannot be divided evenly among 3 workers"));
}

TEST_F(DevicesTest, EveryProblemOfTheOptionsIsSaidAtOnce) {
  EmbeddedOptions options;
  options.num_ps = 0;
  options.gpus = "1,0,1";
  options.gpu_memory_bytes = -1;
  EXPECT_EQ(
      options.Validate(),
      absl::InvalidArgumentError(
          "num_ps is 0, wanted at least 1; gpu_memory_bytes is -1, wanted at least 0 (0: no "
          "limit); "
          "gpus is \"1,0,1\": wanted auto, all, none, or numbers of GPUs, each once, as in 0,2"));
  options.num_ps = 1;
  options.gpus = "0,1,2";
  const absl::Status refused = StartEmbedded(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("gpu_memory_bytes is -1"),
                    HasSubstr("3 GPUs cannot be divided evenly among 2 workers")));
}

// ---- where values are ---------------------------------------------------------------------------

absl::StatusOr<std::vector<std::string>> WhereReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica);
  ASSIGN_OR_RETURN(const Tensor whole, tape.Read("hidden").Value());
  ASSIGN_OR_RETURN(const Tensor rows, tape.Lookup("table", Var(batch["id"])).Value());
  ASSIGN_OR_RETURN(const std::vector<Tensor> all, replica.ReadAll({kHidden}));
  ASSIGN_OR_RETURN(const Variable variable, replica.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(const Tensor read, variable.Read());
  ASSIGN_OR_RETURN(const Tensor slice, variable.Slice(1, 3));
  ASSIGN_OR_RETURN(const Tensor ids, Tensor::Vector<int64_t>({3, 1}).To(replica.device()));
  ASSIGN_OR_RETURN(const Tensor some, variable.Rows(ids));
  ASSIGN_OR_RETURN(const Tensor x, batch["x"].tensor());
  std::vector<std::string> where = replica.devices();
  for (const Tensor& tensor : {whole, rows, all[0], read, slice, some, x})
    where.push_back(tensor.device().ToString());
  return where;
}
absl::StatusOr<std::vector<std::vector<std::string>>> WhereStep(WorkerContext& worker,
                                                                Iterator examples) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batches, worker.Next(examples));
  ASSIGN_OR_RETURN(PerReplica<std::vector<std::string>> where,
                   worker.strategy().Run(WhereReplica, batches));
  return worker.strategy().LocalResults(where);
}
const Step kWhere("devices_test/where", WhereStep);

TEST_F(DevicesTest, AReplicaFindsWhatItReadsAndItsBatchOnItsDevice) {
  const auto cluster = Start(On::kGpus, 2, 0);
  Iterator examples =
      cluster->coordinator().CreatePerWorkerDataset(kExamples(int64_t{100}))->MakeIterator();
  const auto where = Run(*cluster, kWhere, examples);
  ASSERT_TRUE(where.ok()) << where.status();
  ASSERT_EQ(where->size(), 2u);
  std::set<std::string> devices;
  for (std::vector<std::string> replica : *where) {
    const std::string device = replica[0].substr(replica[0].rfind("GPU:"));
    EXPECT_THAT(replica[0],
                AllOf(HasSubstr("/job:worker/replica:0/task:"), HasSubstr("/device:GPU:")));
    replica.erase(replica.begin());
    EXPECT_THAT(replica, Each(device));
    devices.insert(device);
  }
  EXPECT_EQ(devices.size(), 2u);
}

absl::StatusOr<std::vector<int>> CountStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(const auto own, worker.strategy().cluster_resolver()->num_accelerators());
  const auto devices = worker.strategy().extended().worker_devices();
  return std::vector<int>{worker.strategy().num_replicas_in_sync(), own.at("GPU"),
                          static_cast<int>(devices.size()), devices[1].index - devices[0].index};
}
const Step kCount("devices_test/count", CountStep);

TEST_F(DevicesTest, AWorkerKnowsItsGpus) {
  EXPECT_THAT(*Run(*Start(On::kGpus, 2, 0), kCount), ElementsAre(2, 2, 2, 1));
}

absl::StatusOr<std::string> BatchDeviceStep(WorkerContext& worker, Iterator examples) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batches, worker.Next(examples));
  ASSIGN_OR_RETURN(const Tensor x, batches[1]["x"].tensor());
  return x.device().ToString();
}
const Step kBatchDevice("devices_test/batch_device", BatchDeviceStep);

TEST_F(DevicesTest, ADataSourceMayKeepItsBatchesOnTheCpu) {
  const auto cluster = Start(On::kGpus, 2, 0);
  Iterator examples = cluster->coordinator()
                          .CreatePerWorkerDataset(kExamplesOnTheCpu(int64_t{100}))
                          ->MakeIterator();
  EXPECT_EQ(*Run(*cluster, kBatchDevice, examples), "CPU:0");
}

TEST_F(DevicesTest, SparseIdsStayOnTheCpu) {
  const Nest sparse =
      SparseIds{Tensor::Vector<int64_t>({1, 2}), Tensor::Vector<int64_t>({0, 2}), {}};
  Start(On::kGpus, 2, 0);
  const absl::StatusOr<Nest> moved =
      BatchOn(Nest::Dict{{"tags", sparse}, {"x", Nest(Tensor::Vector<float>({1}))}},
              {Device::Kind::kGpu, 1});
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ((*moved)["tags"].sparse_ids()->ids.device().ToString(), "CPU:0");
  EXPECT_EQ((*moved)["x"].tensor()->device().ToString(), "GPU:1");
}

// Constants of the program together with values on the device.
absl::Status ConstantsReplica(ReplicaContext& replica) {
  GradientTape tape(replica);
  const Var scores = MatMul(Var(*Tensor::Copy<float>({2, 5}, {1, 0, 0, 0, 0, 0, 1, 0, 0, 0})),
                            tape.Read("hidden")) *
                     Var(Tensor::Vector<float>({1, 1, 1, 1, 1, 1, 1, 0}));
  const Var bias = tape.Watch("hidden_bias", Tensor::Vector<float>({1, 2, 0, 0, 0, 0, 0, 0}));
  return replica.ApplyGradients(
      tape.Gradient(ReduceMean(SoftmaxCrossEntropy(scores + bias, Range(2)))));
}
absl::Status ConstantsStep(WorkerContext& worker) {
  return worker.strategy().Run(ConstantsReplica).status();
}
const Step kConstants("devices_test/constants", ConstantsStep);

TEST_F(AnyGpusTest, ConstantsOfTheProgramGoWhereItsTapeComputes) {
  const auto gpus = Start(On::kGpus, 1, 0), cpu = Start(On::kCpu, 1, NumReplicas(*gpus));
  for (EmbeddedCluster* cluster : {cpu.get(), gpus.get()}) {
    const absl::Status done = Run(*cluster, kConstants);
    EXPECT_TRUE(done.ok()) << done;
  }
  for (const std::string name : {"hidden", "hidden_bias"})
    EXPECT_THAT(Read(*gpus, name), Pointwise(FloatNear(1e-5), Read(*cpu, name)));
}

// ---- a model and its trainer --------------------------------------------------------------------

const Dense kFirst("first", 5, 8, Activation::kRelu);
const Dense kSecond("second", 8, 3);

ModelOutput Classify(GradientTape& tape, const Nest& batch) {
  const Var logits = kSecond(tape, kFirst(tape, batch["x"]));
  return {SoftmaxCrossEntropy(logits, batch["label"]),
          {{"accuracy", Accuracy(logits, batch["label"])}, {"mean_id", MeanOf(batch["id"])}}};
}
const Model kClassifier("devices_test/classifier", {kFirst, kSecond}, Classify);

TEST_F(AnyGpusTest, ATrainerLearnsOnGpus) {
  const auto cluster = Start(On::kGpus, 1, 0);
  FitOptions options;
  options.epochs = 10;
  options.validation = kExamples(int64_t{100});
  const auto values = Trainer(cluster->coordinator(), kClassifier, Adam{0.02})
                          .Fit(kExamples(int64_t{1000}), options);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_GT(values->at("validation/accuracy"), 0.6);
}

// ---- what comes back from devices ---------------------------------------------------------------

// Writes of each kind and a result, all with values on the device.
absl::StatusOr<Tensor> WriteReplica(ReplicaContext& replica) {
  const float id = static_cast<float>(replica.replica_id_in_sync_group());
  ASSIGN_OR_RETURN(const Tensor mine, Tensor::Vector<float>({id + 1, 10}).To(replica.device()));
  ASSIGN_OR_RETURN(const Variable total, replica.strategy().FindVariable("total"));
  RETURN_IF_ERROR(total.AssignAdd(mine));
  ASSIGN_OR_RETURN(const Variable table, replica.strategy().FindVariable("table"));
  ASSIGN_OR_RETURN(
      const Tensor ids,
      Tensor::Vector<int64_t>({4 + replica.replica_id_in_sync_group()}).To(replica.device()));
  ASSIGN_OR_RETURN(const Tensor rows, mine.Reshape({1, 2}));
  RETURN_IF_ERROR(table.ScatterRows(Variable::Scatter::kUpdate, IndexedSlices{ids, rows, 20}));
  return replica.AllReduce(ReduceOp::kSum, mine);
}
absl::StatusOr<std::vector<Tensor>> WriteStep(WorkerContext& worker) {
  ASSIGN_OR_RETURN(PerReplica<Tensor> sums, worker.strategy().Run(WriteReplica));
  return worker.strategy().LocalResults(sums);
}
const Step kWrite("devices_test/write", WriteStep);

TEST_F(DevicesTest, WritesAndResultsComeFromTheDevices) {
  const auto cluster = Start(On::kGpus, 2, 0);
  const auto sums = Run(*cluster, kWrite);
  ASSERT_TRUE(sums.ok()) << sums.status();
  for (const Tensor& sum : *sums) EXPECT_THAT(*sum.values<float>(), ElementsAre(3, 20));
  EXPECT_THAT(Read(*cluster, "total"), ElementsAre(3, 20));
  const std::vector<float> table = Read(*cluster, "table");
  EXPECT_THAT(std::vector<float>(table.begin() + 8, table.begin() + 12), ElementsAre(1, 10, 2, 10));
}

// Rows whose ids are on a GPU, like those of a batch.
absl::StatusOr<Nest> SlicesStep(WorkerContext& worker) {
  const Device gpu = worker.strategy().extended().worker_devices()[1];
  ASSIGN_OR_RETURN(const Tensor ids, Tensor::Vector<int64_t>({4, 2}).To(gpu));
  ASSIGN_OR_RETURN(const Tensor rows, Tensor::Vector<float>({1, 2}).To(gpu));
  return Nest(IndexedSlices{ids, rows, 20});
}
const Step kSlices("devices_test/slices", SlicesStep);

TEST_F(DevicesTest, RowsComeBackWithTheirIds) {
  const auto slices = Run(*Start(On::kGpus, 2, 0), kSlices);
  ASSERT_TRUE(slices.ok()) << slices.status();
  EXPECT_THAT(*slices->indexed_slices()->ids.values<int64_t>(), ElementsAre(4, 2));
  EXPECT_THAT(*slices->indexed_slices()->rows.values<float>(), ElementsAre(1, 2));
}

// ---- errors -------------------------------------------------------------------------------------

// Replica `bad` has a label that is no class. Its values return to the host only in a sum that
// another GPU computes.
absl::Status BadLabelReplica(ReplicaContext& replica, int64_t bad) {
  GradientTape tape(replica);
  const int64_t label = replica.replica_id_in_sync_group() == bad ? 77 : 0;
  const Var scores =
      MatMul(Var(*Tensor::Copy<float>({1, 5}, {1, 0, 0, 0, 0})), tape.Read("hidden")) +
      tape.Read("hidden_bias");
  return replica.ApplyGradients(tape.Gradient(
      ReduceMean(SoftmaxCrossEntropy(scores, Var(Tensor::Vector<int64_t>({label}))))));
}
absl::Status BadLabelStep(WorkerContext& worker, int64_t bad) {
  return worker.strategy().Run(BadLabelReplica, bad).status();
}
const Step kBadLabel("devices_test/bad_label", BadLabelStep);

TEST_F(AnyGpusTest, AStepOfWhichAnyGpuFoundSomethingWrongLeavesNoTrace) {
  const auto cluster = Start(On::kGpus, 1, 0);
  const std::vector<float> before = Read(*cluster, "hidden");
  for (int64_t bad = 0; bad < NumReplicas(*cluster); ++bad) {
    const absl::Status failed = Run(*cluster, kBadLabel, bad);
    EXPECT_EQ(failed.code(), absl::StatusCode::kInvalidArgument) << failed;
    EXPECT_THAT(std::string(failed.message()),
                HasSubstr("label 77 of example 0 is outside [0, 8)"));
    EXPECT_EQ(Read(*cluster, "hidden"), before) << bad;
  }
  EXPECT_TRUE(Run(*cluster, kBadLabel, int64_t{-1}).ok());
  EXPECT_NE(Read(*cluster, "hidden"), before);
}

absl::Status HoardReplica(ReplicaContext& replica, int64_t elements) {
  return Tensor::Uninitialized(DType::kFloat32, Shape{elements}, replica.device()).status();
}
absl::Status HoardStep(WorkerContext& worker, int64_t elements) {
  return worker.strategy().Run(HoardReplica, elements).status();
}
const Step kHoard("devices_test/hoard", HoardStep);

TEST_F(DevicesTest, AStepThatFindsNoMemoryOnItsDeviceFailsAndTheNextGoesOn) {
  const auto cluster = Start(On::kGpus, 1, 0);
  const absl::Status full = Run(*cluster, kHoard, kHostLimitBytes);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(),
              AllOf(HasSubstr("GPU:"), HasSubstr("would exceed --gpu_memory_bytes=1048576")));
  EXPECT_TRUE(Run(*cluster, kHoard, kHostLimitBytes / 8).ok());
}

// A label out of 3 classes. With `looks`, the step reads its result on the host.
absl::Status LabelReplica(ReplicaContext& replica, int64_t label, bool looks) {
  ASSIGN_OR_RETURN(const Tensor logits,
                   Tensor::Copy<float>({1, 3}, {1, 2, 3})->To(replica.device()));
  ASSIGN_OR_RETURN(const Tensor labels, Tensor::Vector<int64_t>({label}).To(replica.device()));
  const Var loss = SoftmaxCrossEntropy(Var(logits), Var(labels));
  return looks ? MeanOf(loss).status() : loss.Value().status();
}
absl::Status LabelStep(WorkerContext& worker, int64_t label, bool looks) {
  return worker.strategy().Run(LabelReplica, label, looks).status();
}
const Step kLabel("devices_test/label", LabelStep);

TEST_F(AnyGpusTest, ALabelOutOfRangeNamesItself) {
  const auto cluster = Start(On::kGpus, 1, 0);
  const absl::Status wrong = Run(*cluster, kLabel, int64_t{7}, true);
  EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(wrong.message(), HasSubstr("label 7 of example 0 is outside [0, 3)"));
  EXPECT_TRUE(Run(*cluster, kLabel, int64_t{2}, true).ok());
}

TEST_F(AnyGpusTest, WhatAStepDidNotLookAtFailsItAndNotTheNext) {
  const auto cluster = Start(On::kGpus, 1, 0);
  EXPECT_EQ(Run(*cluster, kLabel, int64_t{7}, false).code(), absl::StatusCode::kInvalidArgument);
  const absl::Status next = Run(*cluster, kLabel, int64_t{2}, true);
  EXPECT_TRUE(next.ok()) << next;
}

}  // namespace
}  // namespace divvy
