#include "train/trainer.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr char kValidation[] = "validation";

absl::Status CheckOptions(const FitOptions& options) {
  std::vector<std::string> problems;
  if (options.epochs < 1) problems.push_back(absl::StrCat("epochs is ", options.epochs, ", must be at least 1"));
  if (options.steps_per_epoch && *options.steps_per_epoch < 1) {
    problems.push_back(absl::StrCat("steps_per_epoch is ", *options.steps_per_epoch, ", must be at least 1 (leave it out for one pass over the data)"));
  }
  if (options.clip_norm && !(*options.clip_norm > 0)) problems.push_back(absl::StrCat("clip_norm is ", *options.clip_norm, ", must be above 0"));
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("FitOptions: ", absl::StrJoin(problems, "; ")));
}

// A pass that saw nothing is a mistake in the data, not a result of 0.
absl::Status CheckExamples(const Metrics& metrics, const BoundDataSource& data) {
  const auto loss = metrics.find("loss");
  if (loss != metrics.end() && loss->second.count() > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the data source \"", data.name(), "\" gave no examples: look at its files and at what Take, Skip, Filter or HoldOut leave of them"));
}

void Append(absl::string_view prefix, const Metrics& metrics, std::map<std::string, double>& values) {
  for (const auto& [name, metric] : metrics) values[absl::StrCat(prefix, name)] = metric.value();
}

}  // namespace

Trainer::Trainer(Coordinator& coordinator, const Model& model, Optimizer optimizer)
    : coordinator_(coordinator), model_(model), optimizer_(std::move(optimizer)) {}

absl::Status Trainer::CreateVariables() {
  std::vector<VariableSpec> variables = model_.variables();
  for (; num_created_ < variables.size(); ++num_created_) {
    VariableSpec& spec = variables[num_created_];
    if (!spec.optimizer) spec.optimizer = optimizer_;
    RETURN_IF_ERROR(coordinator_.strategy().CreateVariable(spec));
  }
  return absl::OkStatus();
}

absl::StatusOr<Metrics> Trainer::TrainEpoch(const BoundDataSource& data, const FitOptions& options) {
  const Model::TrainStep& step = model_.train_step();
  absl::StatusOr<Metrics> metrics = options.steps_per_epoch
                                        ? coordinator_.RunUntil(coordinator_.step() + *options.steps_per_epoch, step, data, model_.name(), options.clip_norm)
                                        : coordinator_.RunEpoch(step, data, model_.name(), options.clip_norm);
  if (metrics.ok()) RETURN_IF_ERROR(CheckExamples(*metrics, data));
  return metrics;
}

absl::StatusOr<Metrics> Trainer::EvaluateEpoch(const BoundDataSource& data) {
  ASSIGN_OR_RETURN(Metrics metrics, coordinator_.RunEpoch(model_.evaluate_step(), data, model_.name()));
  RETURN_IF_ERROR(CheckExamples(metrics, data));
  return metrics;
}

absl::StatusOr<std::map<std::string, double>> Trainer::Fit(const BoundDataSource& data, const FitOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(CreateVariables());
  coordinator_.SetGoal(options.epochs);
  std::map<std::string, double> values;
  for (int epoch = 0; epoch < options.epochs; ++epoch) {
    values.clear();
    ASSIGN_OR_RETURN(const Metrics trained, TrainEpoch(data, options));
    Append("", trained, values);
    if (!options.validation) continue;
    ASSIGN_OR_RETURN(const Metrics validated, EvaluateEpoch(*options.validation));
    Append(absl::StrCat(kValidation, "/"), validated, values);
    RETURN_IF_ERROR(coordinator_.Report(kValidation, coordinator_.step(), validated));
  }
  return values;
}

absl::StatusOr<std::map<std::string, double>> Trainer::Evaluate(const BoundDataSource& data) {
  RETURN_IF_ERROR(CreateVariables());
  ASSIGN_OR_RETURN(const Metrics metrics, EvaluateEpoch(data));
  std::map<std::string, double> values;
  Append("", metrics, values);
  return values;
}

}  // namespace divvy
