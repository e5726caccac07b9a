#include "train/model.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "ops/recording.h"
#include "strategy/replica_context.h"

namespace divvy {

struct Model::Definition {
  std::string name;
  std::vector<Layer> layers;
  Forward* forward;
  std::vector<std::string> read_whole;  // names of variables
};

// The models of this process, which the steps find by name. Never destroyed, so that no order of initialisation or destruction matters.
struct Model::Registry {
  static Registry& Get() {
    static Registry* const registry = new Registry();
    return *registry;
  }
  // Of a double name the first counts; the double is reported as that of its steps is.
  void Add(std::shared_ptr<const Definition> definition) {
    MutexLock lock(mu);
    models.emplace(definition->name, std::move(definition));
  }
  absl::StatusOr<std::shared_ptr<const Definition>> Find(const std::string& name) {
    MutexLock lock(mu);
    const auto found = models.find(name);
    if (found == models.end()) return absl::NotFoundError(absl::StrCat("this program has no model \"", name, "\""));
    return found->second;
  }

  Mutex mu;
  std::map<std::string, std::shared_ptr<const Definition>> models DIVVY_GUARDED_BY(mu);
};

namespace {

// The metrics that `forward` gave, and the loss.
absl::StatusOr<Metrics> CollectMetrics(const ModelOutput& output) {
  std::map<std::string, absl::StatusOr<Metric>> metrics = output.metrics;
  metrics.insert_or_assign("loss", MeanOf(output.losses));
  return Collect(metrics);
}

absl::Status CheckLosses(const std::string& model, const Var& losses) {
  RETURN_IF_ERROR(losses.status());
  const Shape& shape = losses.shape();
  if (shape.rank() == 1 || (shape.rank() == 2 && shape.dim(1) == 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("model ", model, ": losses are ", shape.ToString(), "; return one for each example, [batch], not reduced"));
}

// What `forward` makes of a batch. A variable that does not exist is mostly that of a layer that the Model was not given.
ModelOutput CallForward(const std::string& model, Model::Forward* forward, GradientTape& tape, const Nest& batch) {
  ModelOutput output = forward(tape, batch);
  const absl::Status status = output.losses.status();
  if (status.code() != absl::StatusCode::kNotFound) return output;
  output.losses = internal::FailedVar(absl::Status(status.code(), absl::StrCat(status.message(), ": is its layer among those of Model \"", model, "\"?")));
  return output;
}

// The factor that makes the sum over all replicas' losses a mean.
absl::StatusOr<double> OverExamples(ReplicaContext& replica, const Var& losses) {
  ASSIGN_OR_RETURN(const int64_t examples, replica.AllReduce(ReduceOp::kSum, losses.shape().num_elements()));
  return examples == 0 ? 0 : 1 / static_cast<double>(examples);
}

// Clips the sum of all replicas' gradients: each scales its own part by what the sum calls for.
absl::Status ClipTogether(ReplicaContext& replica, double norm, Gradients& gradients) {
  if (replica.num_replicas_in_sync() == 1) return gradients.ClipByGlobalNorm(norm);
  ASSIGN_OR_RETURN(Gradients sum, replica.AllReduce(ReduceOp::kSum, gradients));
  ASSIGN_OR_RETURN(const double global_norm, sum.GlobalNorm());
  RETURN_IF_ERROR(sum.ClipByGlobalNorm(norm));  // the same errors as with one replica
  return global_norm > norm ? gradients.Scale(norm / global_norm) : absl::OkStatus();
}

}  // namespace

Model::Model(std::string name, std::vector<Layer> layers, Forward* forward)
    : train_step_(absl::StrCat(name, "/train"), &RunTrainStep), evaluate_step_(absl::StrCat(name, "/evaluate"), &RunEvaluateStep, StepKind::kReadOnly) {
  auto definition = std::make_shared<Definition>(Definition{std::move(name), std::move(layers), forward, {}});
  for (const Layer& layer : definition->layers) {
    if (layer.access != Layer::Access::kWhole) continue;
    for (const VariableSpec& variable : layer.variables) definition->read_whole.push_back(variable.name);
  }
  definition_ = std::move(definition);
  Registry::Get().Add(definition_);
}

const std::string& Model::name() const { return definition_->name; }

std::vector<VariableSpec> Model::variables() const {
  std::vector<VariableSpec> all;
  for (const Layer& layer : definition_->layers) all.insert(all.end(), layer.variables.begin(), layer.variables.end());
  return all;
}

absl::StatusOr<Metrics> Model::RunTrainStep(WorkerContext& worker, Iterator batches, std::string model, std::optional<double> clip_norm) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Definition> definition, Registry::Get().Find(model));
  const auto train = [&](ReplicaContext& replica, const Nest& batch) -> absl::StatusOr<Metrics> {
    GradientTape tape(replica);
    tape.Prefetch(definition->read_whole);
    const ModelOutput output = CallForward(model, definition->forward, tape, batch);
    RETURN_IF_ERROR(CheckLosses(model, output.losses));
    ASSIGN_OR_RETURN(const double factor, OverExamples(replica, output.losses));
    const Var mean = ReduceSum(output.losses) * Cast(Tensor::Scalar(factor), output.losses.dtype());
    ASSIGN_OR_RETURN(Gradients gradients, tape.Gradient(mean));
    if (clip_norm) RETURN_IF_ERROR(ClipTogether(replica, *clip_norm, gradients));
    RETURN_IF_ERROR(replica.ApplyGradients(std::move(gradients), ReduceOp::kSum));
    return CollectMetrics(output);
  };
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics, worker.strategy().Run(train, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}

absl::StatusOr<Metrics> Model::RunEvaluateStep(WorkerContext& worker, Iterator batches, std::string model) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Definition> definition, Registry::Get().Find(model));
  const auto evaluate = [&](ReplicaContext& replica, const Nest& batch) -> absl::StatusOr<Metrics> {
    GradientTape tape(replica, GradientTape::Mode::kInference);
    tape.Prefetch(definition->read_whole);
    const ModelOutput output = CallForward(model, definition->forward, tape, batch);
    RETURN_IF_ERROR(CheckLosses(model, output.losses));
    return CollectMetrics(output);
  };
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics, worker.strategy().Run(evaluate, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}

}  // namespace divvy
