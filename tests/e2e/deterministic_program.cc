// A program that ends in the same bits on every cluster, if one worker runs its steps. It uses
// dense and sparse gradients, several optimizers, and variables that are cut into shards. At the
// end it prints "<variable> crc32c <checksum of its bytes>" for each variable.
#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"
#include "base/status_macros.h"
#include "divvy.h"

ABSL_FLAG(int, epochs, 3, "passes over the data");

using namespace divvy;

constexpr int64_t kIds = 97, kWidth = 8;

const VariableSpec kTable{"table", {kIds, kWidth}, RandomNormal{0, 0.1f}, Adagrad{0.1}};
const VariableSpec kKernel{"kernel", {kWidth, 4}, GlorotUniform(), Adam{0.01}};
const VariableSpec kBias{"bias", {4}, Zeros(), Sgd{0.1}};
const VariableSpec kSteps{"steps", {}, Zeros(), {}, DType::kInt64};

absl::StatusOr<Metrics> TrainReplica(ReplicaContext& replica, const Nest& batch) {
  GradientTape tape(replica);
  Var logits = MatMul(tape.Lookup(kTable, batch["id"]), tape.Read(kKernel)) + tape.Read(kBias);
  Var losses = SoftmaxCrossEntropy(logits, batch["label"]);
  RETURN_IF_ERROR(replica.ApplyGradients(tape.Gradient(ReduceMean(losses))));
  return Collect({{"loss", MeanOf(losses)}});
}

absl::StatusOr<Metrics> TrainStep(WorkerContext& worker, Iterator batches) {
  ASSIGN_OR_RETURN(PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(Variable steps, worker.strategy().FindVariable(kSteps.name));
  RETURN_IF_ERROR(steps.AssignAdd(Tensor::Scalar<int64_t>(1)));
  ASSIGN_OR_RETURN(PerReplica<Metrics> metrics, worker.strategy().Run(TrainReplica, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}
const Step kTrain("deterministic/train", TrainStep);

absl::StatusOr<Dataset> Numbers(const InputContext& input) {
  std::vector<int64_t> ids, labels;
  for (int64_t i = 0; i < 500; ++i) {
    ids.push_back(i * i % kIds);
    labels.push_back(i % 4);
  }
  const Nest examples = {{"id", Tensor::Vector<int64_t>(ids)},
                         {"label", Tensor::Vector<int64_t>(labels)}};
  return Dataset::FromTensorSlices(examples).Shuffle(200, input.seed).Batch(16);
}
const DataSource kNumbers("deterministic/numbers", Numbers);

absl::Status PrintChecksum(const Variable& variable) {
  ASSIGN_OR_RETURN(const Tensor value, variable.Read());
  const absl::string_view bytes(reinterpret_cast<const char*>(value.data()),
                                static_cast<size_t>(value.size_bytes()));
  std::printf("%s crc32c %08x\n", variable.spec().name.c_str(), Crc32c(bytes));
  return absl::OkStatus();
}

absl::Status Train(Coordinator& coordinator) {
  auto scope = coordinator.strategy().Scope();
  std::vector<Variable> variables;
  for (const VariableSpec* spec : {&kTable, &kKernel, &kBias, &kSteps}) {
    ASSIGN_OR_RETURN(Variable variable, CreateVariable(*spec));
    variables.push_back(std::move(variable));
  }
  while (coordinator.epoch() < absl::GetFlag(FLAGS_epochs))
    RETURN_IF_ERROR(coordinator.RunEpoch(kTrain, kNumbers()).status());
  for (const Variable& variable : variables) RETURN_IF_ERROR(PrintChecksum(variable));
  return absl::OkStatus();
}

// Three shards for each variable with three rows or more, on any number of parameter servers.
StrategyOptions Pieces() {
  StrategyOptions options = runner::ParameterServerStrategy();
  options.partitioner = [](int) { return Partitioner(FixedShardsPartitioner{3}); };
  return options;
}
DIVVY_PROGRAM(Train, Pieces());
