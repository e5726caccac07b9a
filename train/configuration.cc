#include "train/configuration.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

std::string DescribeData(const BoundDataSource& data) {
  return data.args().size() == 0 ? std::string(data.name())
                                 : absl::StrCat(data.name(), " ", data.args().ToString());
}

std::string DescribeModel(const Model& model) {
  int64_t elements = 0;
  const std::vector<VariableSpec> variables = model.variables();
  for (const VariableSpec& variable : variables) elements += variable.shape.num_elements();
  return absl::StrCat(model.name(), ": ", variables.size(), " variables of ", elements,
                      " elements");
}

void AddCluster(const Strategy& strategy, std::map<std::string, std::string>& texts) {
  if (strategy.cluster_resolver() == nullptr) return;
  const absl::StatusOr<ClusterSpec> cluster = strategy.cluster_resolver()->cluster_spec();
  if (!cluster.ok()) return;
  texts["parameter servers"] = absl::StrCat(cluster->num_tasks("ps"));
  texts["workers"] = absl::StrCat(cluster->num_tasks("worker"));
}

}  // namespace

std::string DescribeOptimizer(const Optimizer& optimizer) {
  const OptimizerStep step = StepOf(optimizer, 0);
  std::vector<std::string> parts = {
      absl::StrCat("learning_rate ", step.learning_rate, " at step 0")};
  const std::pair<const char*, float> numbers[] = {
      {"momentum", step.momentum},
      {"rho", step.rho},
      {"beta1", step.beta1},
      {"beta2", step.beta2},
      {"epsilon", step.epsilon},
      {"weight_decay", step.weight_decay},
      {"l1", step.l1},
      {"l2", step.l2},
      {"learning_rate_power", step.learning_rate_power},
      {"beta", step.beta},
      {"l2_shrinkage", step.l2_shrinkage}};
  for (const auto& [name, value] : numbers) {
    if (value != 0) parts.push_back(absl::StrCat(name, " ", value));
  }
  const std::pair<const char*, bool> options[] = {
      {"nesterov", step.nesterov}, {"amsgrad", step.amsgrad}, {"centered", step.centered}};
  for (const auto& [name, is_on] : options) {
    if (is_on) parts.push_back(name);
  }
  return absl::StrCat(OptimizerName(optimizer), ": ", absl::StrJoin(parts, ", "));
}

std::map<std::string, std::string> DescribeFit(const Strategy& strategy, const Model& model,
                                               const Optimizer& optimizer,
                                               const BoundDataSource& data,
                                               const FitOptions& options) {
  std::map<std::string, std::string> texts = {{"model", DescribeModel(model)},
                                              {"optimizer", DescribeOptimizer(optimizer)},
                                              {"data", DescribeData(data)},
                                              {"epochs", absl::StrCat(options.epochs)}};
  if (options.steps_per_epoch) texts["steps per epoch"] = absl::StrCat(*options.steps_per_epoch);
  if (options.validation) texts["validation"] = DescribeData(*options.validation);
  if (options.clip_norm) texts["clip norm"] = absl::StrCat(*options.clip_norm);
  AddCluster(strategy, texts);
  return texts;
}

}  // namespace divvy
