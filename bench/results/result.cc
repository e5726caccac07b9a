#include "bench/results/result.h"

#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "bench/results/measures.h"

ABSL_FLAG(std::string, train, "", "the file of the training set");
ABSL_FLAG(std::string, test, "", "the file of the test set");
ABSL_FLAG(int, fold, -1,
          "0 to 4: measure the examples of the training set whose number leaves this rest when "
          "divided by 5, and train on the others; the test set is not used. -1: measure the test "
          "set");

namespace divvy::results {
namespace {

constexpr char kCounts[] = "examples";
// The counts are float32, which holds integers up to 2^24 exactly. So each of four elements sums up
// one digit, to this base, of the numbers of examples.
constexpr int64_t kBase = 32;
constexpr int kDigits = 4;

}  // namespace

Dataset PartOf(const Dataset& training, const Dataset& test, bool to_train) {
  const int fold = absl::GetFlag(FLAGS_fold);
  if (fold < 0) return to_train ? training : test;
  // The dataset refuses a fold that does not exist.
  return to_train ? training.HoldOut(kFolds, fold) : training.Shard(kFolds, fold);
}

ExampleCounter::ExampleCounter() { variables = {{kCounts, Shape{1 + kDigits}, Zeros(), Sgd{1.0}}}; }

Var ExampleCounter::operator()(GradientTape& tape, const Var& losses) const {
  if (tape.mode() == GradientTape::Mode::kInference) return losses;
  int64_t rows = losses.shape().rank() == 0 ? 0 : losses.shape().dim(0);
  std::vector<float> digits = {1};
  for (int i = 0; i < kDigits; ++i, rows /= kBase)
    digits.push_back(static_cast<float>(rows % kBase));
  const Tensor step = Tensor::Vector<float>(digits);
  const Var counts = tape.Read(kCounts);
  // The difference is 0, and its gradient is -1. A model takes the mean over the batch, so SGD
  // with the rate 1 adds `step`.
  return losses - ReduceSum((counts - StopGradient(counts)) * Var(step));
}

absl::StatusOr<Counts> CountPasses(const BoundDataSource& source, const char* leaf, int epochs) {
  ASSIGN_OR_RETURN(const Dataset data, DataSourceRegistry::Open(source, InputContext()));
  const std::unique_ptr<DatasetIterator> pass = data.Iterate();
  Counts counts;
  for (;;) {
    ASSIGN_OR_RETURN(const std::optional<Nest> batch, pass->Next());
    if (!batch.has_value()) break;
    ASSIGN_OR_RETURN(const Tensor rows, (*batch)[leaf].tensor());
    counts.steps += epochs;
    counts.examples += epochs * rows.shape().dim(0);
  }
  return counts;
}

absl::StatusOr<Counts> ReadCounts(Coordinator& coordinator) {
  ASSIGN_OR_RETURN(const Variable variable, coordinator.strategy().FindVariable(kCounts));
  ASSIGN_OR_RETURN(const Tensor value, variable.Read());
  ASSIGN_OR_RETURN(const absl::Span<const float> counts, value.values<float>());
  const auto whole = [&](size_t i) { return static_cast<int64_t>(std::llround(counts[i])); };
  Counts all{whole(0), 0};
  int64_t worth = 1;
  for (size_t i = 1; i <= kDigits; ++i, worth *= kBase) all.examples += whole(i) * worth;
  return all;
}

absl::StatusOr<std::vector<float>> ValuesOf(const Outputs& outputs, const std::string& name) {
  const auto found = outputs.find(name);
  if (found == outputs.end())
    return absl::NotFoundError(absl::StrCat("there is no output ", name, ": the data is empty"));
  ASSIGN_OR_RETURN(const absl::Span<const float> values, found->second.values<float>());
  return std::vector<float>(values.begin(), values.end());
}

absl::StatusOr<std::map<std::string, double>> MeasureClassifier(Trainer& trainer,
                                                                const BoundDataSource& test) {
  ASSIGN_OR_RETURN(const Outputs outputs, trainer.Predict(test));
  ASSIGN_OR_RETURN(const std::vector<float> logits, ValuesOf(outputs, "logit"));
  ASSIGN_OR_RETURN(const std::vector<float> labels, ValuesOf(outputs, "label"));
  std::map<std::string, double> figures;
  ASSIGN_OR_RETURN(figures["auc"], AreaUnderCurve(logits, labels));
  ASSIGN_OR_RETURN(figures["log_loss"], LogLoss(logits, labels));
  if (outputs.count("planted") == 0) return figures;
  ASSIGN_OR_RETURN(const std::vector<float> planted, ValuesOf(outputs, "planted"));
  ASSIGN_OR_RETURN(figures["ceiling"], AreaUnderCurve(planted, labels));
  figures["auc_of_ceiling"] = figures["auc"] / figures["ceiling"];
  return figures;
}

absl::Status PrintResult(Coordinator& coordinator, absl::string_view name,
                         const std::map<std::string, double>& figures, const Counts& expected) {
  ASSIGN_OR_RETURN(const Counts counted, ReadCounts(coordinator));
  std::string line = absl::StrCat("{\"result\": \"", name, "\"");
  for (const auto& [figure, value] : figures) {
    if (!std::isfinite(value))
      return absl::InvalidArgumentError(
          absl::StrCat(figure, " is ", value, ": the training diverged; try a smaller rate"));
    absl::StrAppend(&line, ", \"", figure, "\": ", absl::StrFormat("%.6f", value));
  }
  absl::StrAppend(&line, ", \"steps\": ", coordinator.step(),
                  ", \"steps_counted\": ", counted.steps, ", \"steps_expected\": ", expected.steps,
                  ", \"examples_counted\": ", counted.examples,
                  ", \"examples_expected\": ", expected.examples, "}\n");
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  return absl::OkStatus();
}

}  // namespace divvy::results
