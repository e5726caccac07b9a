#include "train/callback.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

using Mode = MetricMode;

constexpr absl::string_view kFalling[] = {"loss", "error",   "rmse",       "mse",
                                          "mae",  "mape",    "msle",       "perplexity",
                                          "nll",  "entropy", "divergence", "hinge"};
constexpr absl::string_view kRising[] = {"accuracy", "acc",  "auc",  "precision", "recall",
                                         "f1",       "ndcg", "map",  "mrr",       "hits",
                                         "iou",      "dice", "bleu", "cosine",    "r2"};

// The direction that the words of a metric's name imply. kAuto: none, or both.
Mode ModeOf(absl::string_view metric) {
  // npos + 1 is 0.
  const absl::string_view name = metric.substr(metric.rfind('/') + 1);
  bool falls = false, rises = false;
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("_-@. "))) {
    falls |= absl::c_linear_search(kFalling, word);
    rises |= absl::c_linear_search(kRising, word);
  }
  if (falls == rises) return Mode::kAuto;
  return falls ? Mode::kMin : Mode::kMax;
}

}  // namespace

namespace internal {

BestMetric::BestMetric(std::string callback, std::string metric, double min_delta, Mode mode)
    : callback_(std::move(callback)),
      metric_(std::move(metric)),
      min_delta_(min_delta),
      mode_(mode == Mode::kAuto ? ModeOf(metric_) : mode) {}

absl::Status BestMetric::Begin(std::vector<std::string> problems) {
  best_.reset();
  if (!(min_delta_ >= 0))
    problems.push_back(absl::StrCat("min_delta is ", min_delta_, ", must be at least 0"));
  if (mode_ == Mode::kAuto) {
    problems.push_back(absl::StrCat("whether a lower or a higher \"", metric_,
                                    "\" is better does not follow "
                                    "from its name: give MetricMode::kMin or MetricMode::kMax"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(callback_, ": ", absl::StrJoin(problems, "; ")));
}

absl::StatusOr<bool> BestMetric::Improves(const TrainingRun& run) {
  const auto found = run.metrics().find(metric_);
  if (found == run.metrics().end()) {
    const std::string names =
        absl::StrJoin(run.metrics(), ", ",
                      [](std::string* out, const auto& metric) { out->append(metric.first); });
    return absl::InvalidArgumentError(absl::StrCat(callback_, ": there is no metric \"", metric_,
                                                   "\"; the metrics are: ", names));
  }
  const double value = found->second;
  if (std::isnan(value)) return false;
  const bool improves =
      !best_ || (mode_ == Mode::kMin ? value < *best_ - min_delta_ : value > *best_ + min_delta_);
  if (improves) best_ = value;
  return improves;
}

}  // namespace internal

EarlyStopping::EarlyStopping(std::string metric, int patience, double min_delta, Mode mode)
    : best_("EarlyStopping", std::move(metric), min_delta, mode), patience_(patience) {}

absl::Status EarlyStopping::OnFitBegin(TrainingRun&) {
  epochs_ = waited_ = 0;
  std::vector<std::string> problems;
  if (patience_ < 0)
    problems.push_back(absl::StrCat("patience is ", patience_, ", must be at least 0"));
  return best_.Begin(std::move(problems));
}

absl::Status EarlyStopping::OnEpochEnd(TrainingRun& run) {
  ASSIGN_OR_RETURN(const bool improves, best_.Improves(run));
  ++epochs_;
  if (improves) {
    waited_ = 0;
  } else if (++waited_ >= patience_ && epochs_ > 1) {  // nothing precedes the first
    run.Stop(absl::StrCat(best_.metric(), " has not improved in ", waited_,
                          waited_ == 1 ? " epoch" : " epochs",
                          best_.best() ? absl::StrCat("; its best was ", *best_.best()) : ""));
  }
  return absl::OkStatus();
}

}  // namespace divvy
