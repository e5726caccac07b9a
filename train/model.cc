#include "train/model.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/named_registry.h"
#include "base/status_macros.h"
#include "strategy/replica_context.h"

namespace divvy {

struct Model::Definition {
  std::string name;
  std::vector<Layer> layers;
  Forward* forward;
  std::vector<std::string> read_whole;  // names of variables
  std::vector<Layer::Penalty> penalties;
};

// The models of this process, which the steps find by name. A duplicate model is reported through
// its steps, which are duplicates too.
struct Model::Registry {
  using Models = internal::NamedRegistry<std::shared_ptr<const Definition>>;
  // Never destroyed, so the order of initialisation and destruction does not matter.
  static Models& Get() {
    static Models* const models = new Models("model");
    return *models;
  }
};

namespace {

// The reported loss: the mean of the losses plus the penalty once, as in Keras.
absl::StatusOr<Metric> LossOf(const absl::StatusOr<Metric>& mean,
                              const std::optional<Var>& penalty) {
  if (!penalty || !mean.ok()) return mean;
  ASSIGN_OR_RETURN(const Metric added, MeanOf(*penalty));
  return Metric::Mean((mean->value() + added.value()) * mean->count(), mean->count());
}

// The metrics of `forward`, and the loss. `mean` is the mean of the losses.
absl::StatusOr<Metrics> CollectMetrics(const ModelOutput& output,
                                       const absl::StatusOr<Metric>& mean,
                                       const std::optional<Var>& penalty) {
  std::map<std::string, absl::StatusOr<Metric>> metrics = output.metrics;
  metrics.insert_or_assign("loss", LossOf(mean, penalty));
  return Collect(metrics);
}

// The sum of the layers' penalties. None: no layer has one.
absl::StatusOr<std::optional<Var>> PenaltyOf(const std::vector<Layer::Penalty>& penalties,
                                             GradientTape& tape, DType dtype) {
  std::optional<Var> sum;
  for (const Layer::Penalty& penalty : penalties) {
    if (!(penalty.l2 >= 0))
      return absl::InvalidArgumentError(
          absl::StrCat("the l2 of ", penalty.variable, " is ", penalty.l2, ", wanted at least 0"));
    const Var squares = ReduceSum(Square(tape.Read(penalty.variable)));
    const Var term = Cast(squares, dtype) * penalty.l2;
    sum = sum ? *sum + term : term;
  }
  if (sum) RETURN_IF_ERROR(sum->status());
  return sum;
}

// A missing variable usually belongs to a layer that is not in the Model's list.
absl::Status Explained(const std::string& model, const absl::Status& status) {
  if (!absl::IsNotFound(status) || !absl::StrContains(status.message(), "no variable"))
    return status;
  return absl::NotFoundError(
      absl::StrCat(status.message(), ": is its layer among those of Model \"", model, "\"?"));
}

absl::Status CheckLosses(const std::string& model, const Var& losses) {
  RETURN_IF_ERROR(Explained(model, losses.status()));
  const Shape& shape = losses.shape();
  if (shape.rank() == 1 || (shape.rank() == 2 && shape.dim(1) == 1)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("model ", model, ": losses are ", shape.ToString(),
                   "; return one loss for each example, [batch], without reducing them"));
}

// The outputs of a batch, on the CPU.
absl::StatusOr<Nest> OutputsOf(const std::string& model, const ModelOutput& output) {
  if (output.outputs.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model,
        " has nothing to predict: its function sets no ModelOutput::outputs, {{\"name\", Var}}"));
  }
  Nest::Dict outputs;
  std::optional<int64_t> rows;
  for (const auto& [name, var] : output.outputs) {
    absl::StatusOr<Tensor> value = var.Value();
    if (value.ok()) value = value->To(Device{});
    if (!value.ok())
      return absl::Status(
          value.status().code(),
          absl::StrCat("output \"", name, "\": ", Explained(model, value.status()).message()));
    if (value->shape().rank() == 0 ||
        value->shape().rows() != rows.value_or(value->shape().rows())) {
      return absl::InvalidArgumentError(absl::StrCat("model ", model, ": output \"", name, "\" is ",
                                                     value->ToString(),
                                                     "; return a row for each example"));
    }
    rows = value->shape().rows();
    outputs.emplace(name, Nest(*std::move(value)));
  }
  return Nest(std::move(outputs));
}

// The factor that turns the sum over all replicas' losses into a mean.
absl::StatusOr<double> OverExamples(ReplicaContext& replica, const Var& losses) {
  ASSIGN_OR_RETURN(const int64_t examples,
                   replica.AllReduce(ReduceOp::kSum, losses.shape().num_elements()));
  return examples == 0 ? 0 : 1 / static_cast<double>(examples);
}

// Clips by the norm of the sum of all replicas' gradients. Each replica scales its own part by the
// same factor.
absl::Status ClipTogether(ReplicaContext& replica, double norm, Gradients& gradients) {
  if (replica.num_replicas_in_sync() == 1) return gradients.ClipByGlobalNorm(norm);
  ASSIGN_OR_RETURN(Gradients sum, replica.AllReduce(ReduceOp::kSum, gradients));
  ASSIGN_OR_RETURN(const double global_norm, sum.GlobalNorm());
  RETURN_IF_ERROR(sum.ClipByGlobalNorm(norm));  // the same errors as with one replica
  return global_norm > norm ? gradients.Scale(norm / global_norm) : absl::OkStatus();
}

// The replicas' shares of a penalty add up to 1. In a step without examples all shares are 0, so
// such a step changes nothing.
absl::StatusOr<Gradients> GradientsOf(GradientTape& tape, const Var& losses,
                                      const std::optional<Var>& penalty, double factor) {
  if (!penalty) return tape.GradientOfSum(losses, factor);
  const double share = factor * static_cast<double>(losses.shape().num_elements());
  return tape.Gradient(ReduceSum(losses) * factor + *penalty * share);
}

// Copies the losses to the CPU together with the dense gradients, which are sent next, so that the
// step waits for the GPU only once.
absl::Status BringTogether(Tensor& losses, Gradients& gradients) {
  std::vector<Tensor> tensors = {losses};
  std::vector<std::string> names;
  for (const auto& [name, gradient] : gradients.entries()) {
    if (!std::holds_alternative<Tensor>(gradient)) continue;
    names.push_back(name);
    tensors.push_back(std::get<Tensor>(gradient));
  }
  ASSIGN_OR_RETURN(tensors, ToHost(tensors));
  losses = tensors[0];
  for (size_t i = 0; i < names.size(); ++i) gradients.Set(names[i], tensors[i + 1]);
  return absl::OkStatus();
}

}  // namespace

Model::Model(std::string name, std::vector<Layer> layers, Forward* forward)
    : train_step_(absl::StrCat(name, "/train"), &RunTrainStep),
      evaluate_step_(absl::StrCat(name, "/evaluate"), &RunEvaluateStep, StepKind::kReadOnly),
      predict_step_(absl::StrCat(name, "/predict"), &RunPredictStep, StepKind::kReadOnly) {
  auto definition =
      std::make_shared<Definition>(Definition{std::move(name), std::move(layers), forward, {}, {}});
  for (const Layer& layer : definition->layers) {
    definition->penalties.insert(definition->penalties.end(), layer.penalties.begin(),
                                 layer.penalties.end());
    if (layer.access != Layer::Access::kWhole) continue;
    for (const VariableSpec& variable : layer.variables)
      definition->read_whole.push_back(variable.name);
  }
  definition_ = std::move(definition);
  Registry::Get().Add(definition_->name, definition_);
}

const std::string& Model::name() const { return definition_->name; }

absl::Status Model::status() const {
  for (const Layer& layer : definition_->layers) RETURN_IF_ERROR(layer.problem);
  return absl::OkStatus();
}

std::vector<VariableSpec> Model::variables() const {
  std::vector<VariableSpec> all;
  for (const Layer& layer : definition_->layers)
    all.insert(all.end(), layer.variables.begin(), layer.variables.end());
  return all;
}

absl::StatusOr<Metrics> Model::RunTrainStep(WorkerContext& worker, Iterator batches,
                                            std::string model, std::optional<double> clip_norm) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Definition>* const found,
                   Registry::Get().Get(model));
  const Definition& definition = **found;
  const auto train = [&](ReplicaContext& replica, const Nest& batch) -> absl::StatusOr<Metrics> {
    GradientTape tape(replica);
    tape.Prefetch(definition.read_whole);
    const ModelOutput output = definition.forward(tape, batch);
    RETURN_IF_ERROR(CheckLosses(model, output.losses));
    ASSIGN_OR_RETURN(const std::optional<Var> penalty,
                     PenaltyOf(definition.penalties, tape, output.losses.dtype()));
    ASSIGN_OR_RETURN(const double factor, OverExamples(replica, output.losses));
    ASSIGN_OR_RETURN(Gradients gradients, GradientsOf(tape, output.losses, penalty, factor));
    if (clip_norm) RETURN_IF_ERROR(ClipTogether(replica, *clip_norm, gradients));
    ASSIGN_OR_RETURN(Tensor losses, output.losses.Value());
    if (replica.num_replicas_in_sync() == 1) RETURN_IF_ERROR(BringTogether(losses, gradients));
    RETURN_IF_ERROR(replica.ApplyGradients(std::move(gradients), ReduceOp::kSum));
    return CollectMetrics(output, MeanOf(losses), penalty);
  };
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics, worker.strategy().Run(train, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}

absl::StatusOr<Metrics> Model::RunEvaluateStep(WorkerContext& worker, Iterator batches,
                                               std::string model) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Definition>* const found,
                   Registry::Get().Get(model));
  const Definition& definition = **found;
  const auto evaluate = [&](ReplicaContext& replica, const Nest& batch) -> absl::StatusOr<Metrics> {
    GradientTape tape(replica, GradientTape::Mode::kInference);
    tape.Prefetch(definition.read_whole);
    const ModelOutput output = definition.forward(tape, batch);
    RETURN_IF_ERROR(CheckLosses(model, output.losses));
    ASSIGN_OR_RETURN(const std::optional<Var> penalty,
                     PenaltyOf(definition.penalties, tape, output.losses.dtype()));
    return CollectMetrics(output, MeanOf(output.losses), penalty);
  };
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(const PerReplica<Metrics> metrics, worker.strategy().Run(evaluate, batch));
  return worker.strategy().Reduce(ReduceOp::kSum, metrics, kNoAxis);
}

absl::StatusOr<Nest> Model::RunPredictStep(WorkerContext& worker, Iterator batches,
                                           std::string model) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Definition>* const found,
                   Registry::Get().Get(model));
  const Definition& definition = **found;
  const auto predict = [&](ReplicaContext& replica, const Nest& element) -> absl::StatusOr<Nest> {
    GradientTape tape(replica, GradientTape::Mode::kInference);
    tape.Prefetch(definition.read_whole);
    const ModelOutput output = definition.forward(tape, element["batch"]);
    ASSIGN_OR_RETURN(Nest outputs, OutputsOf(model, output));
    ASSIGN_OR_RETURN(Tensor at, element["at"].tensor());
    ASSIGN_OR_RETURN(at, at.To(Device{}));
    return Nest{{"at", Nest(std::move(at))}, {"outputs", std::move(outputs)}};
  };
  ASSIGN_OR_RETURN(const PerReplica<Nest> batch, worker.Next(batches));
  ASSIGN_OR_RETURN(const PerReplica<Nest> predicted, worker.strategy().Run(predict, batch));
  return Nest(Nest::List(worker.strategy().LocalResults(predicted)));
}

}  // namespace divvy
