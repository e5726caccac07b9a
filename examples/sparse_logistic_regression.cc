// Logistic regression on libsvm text without Model and Trainer: variables, a replica function, a
// step and a loop.
#include "absl/flags/flag.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(std::string, train, "examples/data/agaricus.train.libsvm",
          "libsvm files with labels 0 and 1, or -1 and +1, and ids below 127; a glob");
ABSL_FLAG(std::string, test, "examples/data/agaricus.test.libsvm",
          "the same for the held-out examples; a glob");

using namespace divvy;

constexpr int64_t kIds = 127;
const VariableSpec kWeights{"weights", {kIds, 1}, Zeros(), Ftrl{0.5, /*l1=*/0.001f}};
const VariableSpec kBias{"bias", {1}, Zeros(), Ftrl{0.5}};

// [batch] logits. Only the rows of features that occur in the batch are sent.
Var Logits(GradientTape& tape, const Nest& batch) {
  Var weighted = tape.LookupSparse(kWeights, batch["features"], Combiner::kSum);
  return Reshape(weighted + tape.Read(kBias), {-1});
}

absl::StatusOr<Metrics> Measure(const Var& logits, const Var& losses, const Nest& batch) {
  return Collect({{"loss", MeanOf(losses)},
                  {"accuracy", Accuracy(logits, batch["label"])},
                  {"auc", Auc(logits, batch["label"])}});
}

// Runs on one replica: one GPU of a worker, or its CPU.
absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica);
  Var logits = Logits(tape, batch);
  Var losses = SigmoidCrossEntropy(logits, batch["label"]);
  RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
  return Measure(logits, losses, batch);
}

absl::StatusOr<Metrics> TestReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica, GradientTape::Mode::kInference);
  Var logits = Logits(tape, batch);
  return Measure(logits, SigmoidCrossEntropy(logits, batch["label"]), batch);
}

// Runs on one worker. A step takes a batch for each replica, and is applied as a whole or not at
// all.
absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
  return worker.RunAndMerge(batches, TrainReplica);
}
const Step kTrain("train", TrainStep);

absl::StatusOr<Metrics> TestStep(WorkerContext& worker, Iterator batches) {
  return worker.RunAndMerge(batches, TestReplica);
}
const Step kTest("test", TestStep, StepKind::kReadOnly);

absl::StatusOr<Dataset> Mushrooms(const InputContext& input, std::string files) {
  return Dataset::Libsvm(files, kIds, LibsvmLabels::kBinary).Shuffle(10'000, input.seed).Batch(32);
}
const DataSource kMushrooms("mushrooms", Mushrooms);

// Runs on the coordinator.
absl::Status Train(Coordinator& coordinator) {
  auto scope = coordinator.strategy().Scope();
  RETURN_IF_ERROR(CreateVariable(kWeights).status());
  RETURN_IF_ERROR(CreateVariable(kBias).status());
  // A restarted program continues where it was.
  RETURN_IF_ERROR(coordinator.RestoreLatest().status());
  while (coordinator.epoch() < 5) {
    RETURN_IF_ERROR(coordinator.RunEpoch(kTrain, kMushrooms(absl::GetFlag(FLAGS_train))).status());
    ASSIGN_OR_RETURN(Metrics metrics,
                     coordinator.RunEpoch(kTest, kMushrooms(absl::GetFlag(FLAGS_test))));
    RETURN_IF_ERROR(coordinator.Report("test", coordinator.step(), metrics));
  }
  return absl::OkStatus();
}
DIVVY_PROGRAM(Train);
