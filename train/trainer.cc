#include "train/trainer.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "strategy/trainer_support.h"
#include "train/configuration.h"
#include "train/examples_seen.h"

namespace divvy {
namespace {

constexpr char kValidationRun[] = "validation";

absl::Status CheckOptions(const FitOptions& options) {
  std::vector<std::string> problems;
  if (options.epochs < 1)
    problems.push_back(absl::StrCat("epochs is ", options.epochs, ", must be at least 1"));
  if (options.steps_per_epoch && *options.steps_per_epoch < 1) {
    problems.push_back(
        absl::StrCat("steps_per_epoch is ", *options.steps_per_epoch,
                     ", must be at least 1 (leave it out for one pass over the data)"));
  }
  if (options.clip_norm && !(*options.clip_norm > 0))
    problems.push_back(absl::StrCat("clip_norm is ", *options.clip_norm, ", must be above 0"));
  if (std::count(options.callbacks.begin(), options.callbacks.end(), nullptr) > 0)
    problems.push_back("a callback is null");
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("FitOptions: ", absl::StrJoin(problems, "; ")));
}

void Append(absl::string_view prefix, const Metrics& metrics,
            std::map<std::string, double>& values) {
  for (const auto& [name, metric] : metrics) values[absl::StrCat(prefix, name)] = metric.value();
}

using Event = absl::Status (Callback::*)(TrainingRun&);

// Calls all callbacks, even if one of them stops the run, so that each sees the event. An error
// ends the calls.
absl::Status Tell(const FitOptions& options, Event event, TrainingRun& run) {
  for (const std::shared_ptr<Callback>& callback : options.callbacks)
    RETURN_IF_ERROR(((*callback).*event)(run));
  return absl::OkStatus();
}

}  // namespace

Trainer::Trainer(Coordinator& coordinator, const Model& model, Optimizer optimizer)
    : coordinator_(coordinator), model_(model), optimizer_(std::move(optimizer)) {}

// Creates the variables and restores them, once.
absl::Status Trainer::Prepare(absl::Duration end) {
  RETURN_IF_ERROR(model_.status());
  std::vector<VariableSpec> variables = model_.variables();
  for (; num_created_ < variables.size(); ++num_created_) {
    VariableSpec& spec = variables[num_created_];
    if (!spec.optimizer) spec.optimizer = optimizer_;
    if (warm_start_) {
      ASSIGN_OR_RETURN(spec, warm_start_->Apply(std::move(spec)));
    }
    RETURN_IF_ERROR(coordinator_.strategy().CreateVariable(spec));
  }
  if (restored_) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t steps,
                   internal::SupportOf(coordinator_).RestoreUnlessBegun(internal::Left(end)));
  restored_ = true;
  in_an_epoch_ = steps > 0;
  return absl::OkStatus();
}

Trainer::Behind Trainer::TakeWhatIsBehind(const FitOptions& options) {
  if (!options.steps_per_epoch)
    return {static_cast<int>(internal::SupportOf(coordinator_).TakeRestoredEpochs(options.epochs)),
            0};
  const int64_t most = std::numeric_limits<int64_t>::max() / options.epochs;
  const int64_t steps =
      internal::SupportOf(coordinator_)
          .TakeRestoredSteps(std::min(*options.steps_per_epoch, most) * options.epochs);
  return {static_cast<int>(steps / *options.steps_per_epoch), steps % *options.steps_per_epoch};
}

absl::StatusOr<Metrics> Trainer::TrainEpoch(const BoundDataSource& data, const FitOptions& options,
                                            int64_t steps_behind, absl::Duration end,
                                            TrainingRun& run) {
  absl::Status told;
  LoopOptions loop;
  loop.timeout = internal::Left(end);
  if (!options.callbacks.empty()) {
    loop.observer = [&](const Metrics& recent) {
      if (!told.ok() || run.stopped()) return false;
      Append("", recent, run.metrics_);
      told = Tell(options, &Callback::OnReport, run);
      return told.ok() && !run.stopped();
    };
  }
  const Model::TrainStep& step = model_.train_step();
  const int64_t last_step =
      coordinator_.step() + options.steps_per_epoch.value_or(0) - steps_behind;
  absl::StatusOr<Metrics> metrics =
      options.steps_per_epoch
          ? coordinator_.RunUntil(std::move(loop), last_step, step, data, model_.name(),
                                  options.clip_norm)
          : coordinator_.RunEpoch(std::move(loop), step, data, model_.name(), options.clip_norm);
  RETURN_IF_ERROR(told);
  const bool rest_may_be_empty = std::exchange(in_an_epoch_, false);
  if (metrics.ok() && !run.stopped() && !rest_may_be_empty)
    RETURN_IF_ERROR(CheckExamplesSeen(*metrics, data));
  return metrics;
}

absl::StatusOr<Metrics> Trainer::EvaluateEpoch(const BoundDataSource& data, absl::Duration end) {
  ASSIGN_OR_RETURN(Metrics metrics,
                   coordinator_.RunEpoch({/*observer=*/{}, internal::Left(end)},
                                         model_.evaluate_step(), data, model_.name()));
  RETURN_IF_ERROR(CheckExamplesSeen(metrics, data));
  return metrics;
}

absl::Status Trainer::ValidateEpoch(const FitOptions& options, absl::Duration end,
                                    TrainingRun& run) {
  if (!options.validation) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Metrics validated, EvaluateEpoch(*options.validation, end));
  Append(absl::StrCat(kValidationRun, "/"), validated, run.metrics_);
  return coordinator_.Report(kValidationRun, coordinator_.step(), validated);
}

absl::Status Trainer::FitEpoch(const BoundDataSource& data, const FitOptions& options,
                               int64_t steps_behind, absl::Duration end, TrainingRun& run) {
  ASSIGN_OR_RETURN(const Metrics trained, TrainEpoch(data, options, steps_behind, end, run));
  Append("", trained, run.metrics_);
  if (run.stopped()) return absl::OkStatus();  // in the middle of the epoch
  RETURN_IF_ERROR(ValidateEpoch(options, end, run));
  run.epoch_ = ++epochs_;
  // The checkpoint already contained the whole epoch, so there are no metrics.
  if (trained.empty()) return absl::OkStatus();
  return Tell(options, &Callback::OnEpochEnd, run);
}

absl::StatusOr<std::map<std::string, double>> Trainer::Fit(const BoundDataSource& data,
                                                           const FitOptions& options) {
  const absl::Duration end = Clock::Real().Elapsed() + options.timeout;
  RETURN_IF_ERROR(CheckOptions(options));
  RETURN_IF_ERROR(Validate(optimizer_));
  RETURN_IF_ERROR(Prepare(end));
  const Behind behind = TakeWhatIsBehind(options);
  epochs_ += behind.epochs;
  internal::SupportOf(coordinator_).SetGoal(options.epochs - behind.epochs);
  TrainingRun run(coordinator_, epochs_,
                  DescribeFit(coordinator_.strategy(), model_, optimizer_, data, options));
  RETURN_IF_ERROR(Tell(options, &Callback::OnFitBegin, run));
  int64_t steps_behind = behind.steps;
  for (int epoch = behind.epochs; epoch < options.epochs && !run.stopped(); ++epoch) {
    RETURN_IF_ERROR(FitEpoch(data, options, std::exchange(steps_behind, 0), end, run));
  }
  // Nothing was left to train, so Fit only validates.
  if (behind.epochs == options.epochs) RETURN_IF_ERROR(ValidateEpoch(options, end, run));
  if (run.stopped())
    DIVVY_LOG(INFO) << "training ended after " << epochs_ << " epochs: " << *run.stop_reason_;
  return run.metrics_;
}

absl::StatusOr<std::map<std::string, double>> Trainer::Evaluate(const BoundDataSource& data,
                                                                absl::Duration timeout) {
  const absl::Duration end = Clock::Real().Elapsed() + timeout;
  RETURN_IF_ERROR(Prepare(end));
  ASSIGN_OR_RETURN(const Metrics metrics, EvaluateEpoch(data, end));
  std::map<std::string, double> values;
  Append("", metrics, values);
  return values;
}

absl::Status Trainer::Predict(const BoundDataSource& data, const TakeOutputs& take,
                              absl::Duration timeout) {
  const absl::Duration end = Clock::Real().Elapsed() + timeout;
  RETURN_IF_ERROR(Prepare(end));
  return divvy::Predict(coordinator_, model_, data, take, internal::Left(end));
}

absl::StatusOr<Outputs> Trainer::Predict(const BoundDataSource& data, absl::Duration timeout) {
  const absl::Duration end = Clock::Real().Elapsed() + timeout;
  RETURN_IF_ERROR(Prepare(end));
  return divvy::Predict(coordinator_, model_, data, internal::Left(end));
}

}  // namespace divvy
