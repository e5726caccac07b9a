#include "train/trainer.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "train/configuration.h"
#include "train/examples_seen.h"

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
  if (std::count(options.callbacks.begin(), options.callbacks.end(), nullptr) > 0) problems.push_back("a callback is null");
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("FitOptions: ", absl::StrJoin(problems, "; ")));
}

void Append(absl::string_view prefix, const Metrics& metrics, std::map<std::string, double>& values) {
  for (const auto& [name, metric] : metrics) values[absl::StrCat(prefix, name)] = metric.value();
}

using Event = absl::Status (Callback::*)(TrainingRun&);

// All of them, also where one has stopped the run: each sees the epoch's end.
absl::Status Tell(const FitOptions& options, Event event, TrainingRun& run) {
  for (const std::shared_ptr<Callback>& callback : options.callbacks) RETURN_IF_ERROR(((*callback).*event)(run));
  return absl::OkStatus();
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

absl::StatusOr<Metrics> Trainer::TrainEpoch(const BoundDataSource& data, const FitOptions& options, TrainingRun& run) {
  absl::Status told;
  LoopObserver observer;
  if (!options.callbacks.empty()) {
    observer = [&](const Metrics& recent) {
      if (!told.ok() || run.stopped()) return false;
      Append("", recent, run.metrics_);
      told = Tell(options, &Callback::OnReport, run);
      return told.ok() && !run.stopped();
    };
  }
  const Model::TrainStep& step = model_.train_step();
  absl::StatusOr<Metrics> metrics = options.steps_per_epoch ? coordinator_.RunUntil(std::move(observer), coordinator_.step() + *options.steps_per_epoch, step,
                                                                                    data, model_.name(), options.clip_norm)
                                                            : coordinator_.RunEpoch(std::move(observer), step, data, model_.name(), options.clip_norm);
  RETURN_IF_ERROR(told);
  if (metrics.ok() && !run.stopped()) RETURN_IF_ERROR(CheckExamplesSeen(*metrics, data));
  return metrics;
}

absl::StatusOr<Metrics> Trainer::EvaluateEpoch(const BoundDataSource& data) {
  ASSIGN_OR_RETURN(Metrics metrics, coordinator_.RunEpoch(model_.evaluate_step(), data, model_.name()));
  RETURN_IF_ERROR(CheckExamplesSeen(metrics, data));
  return metrics;
}

absl::Status Trainer::FitEpoch(const BoundDataSource& data, const FitOptions& options, TrainingRun& run) {
  ASSIGN_OR_RETURN(const Metrics trained, TrainEpoch(data, options, run));
  Append("", trained, run.metrics_);
  if (run.stopped()) return absl::OkStatus();  // in the middle of the epoch
  if (options.validation) {
    ASSIGN_OR_RETURN(const Metrics validated, EvaluateEpoch(*options.validation));
    Append(absl::StrCat(kValidation, "/"), validated, run.metrics_);
    RETURN_IF_ERROR(coordinator_.Report(kValidation, coordinator_.step(), validated));
  }
  run.epoch_ = ++epochs_;
  return Tell(options, &Callback::OnEpochEnd, run);
}

absl::StatusOr<std::map<std::string, double>> Trainer::Fit(const BoundDataSource& data, const FitOptions& options) {
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(Validate(optimizer_));
  RETURN_IF_ERROR(CreateVariables());
  coordinator_.SetGoal(options.epochs);
  TrainingRun run(coordinator_, epochs_, DescribeFit(coordinator_.strategy(), model_, optimizer_, data, options));
  RETURN_IF_ERROR(Tell(options, &Callback::OnFitBegin, run));
  for (int epoch = 0; epoch < options.epochs && !run.stopped(); ++epoch) RETURN_IF_ERROR(FitEpoch(data, options, run));
  if (run.stopped()) DIVVY_LOG(INFO) << "training ended after " << epochs_ << " epochs: " << *run.stop_reason_;
  return run.metrics_;
}

absl::StatusOr<std::map<std::string, double>> Trainer::Evaluate(const BoundDataSource& data) {
  RETURN_IF_ERROR(CreateVariables());
  ASSIGN_OR_RETURN(const Metrics metrics, EvaluateEpoch(data));
  std::map<std::string, double> values;
  Append("", metrics, values);
  return values;
}

}  // namespace divvy
