#include "train/callback.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace divvy {
namespace {

using Mode = EarlyStopping::Mode;

constexpr absl::string_view kFalling[] = {"loss", "error",   "rmse",       "mse",
                                          "mae",  "mape",    "msle",       "perplexity",
                                          "nll",  "entropy", "divergence", "hinge"};
constexpr absl::string_view kRising[] = {"accuracy", "acc",  "auc",  "precision", "recall",
                                         "f1",       "ndcg", "map",  "mrr",       "hits",
                                         "iou",      "dice", "bleu", "cosine",    "r2"};

// What the words of a metric's name say of it. kAuto: nothing, or both.
Mode ModeOf(absl::string_view metric) {
  const absl::string_view name = metric.substr(metric.rfind('/') + 1);  // npos + 1 is 0
  bool falls = false, rises = false;
  for (const absl::string_view word : absl::StrSplit(name, absl::ByAnyChar("_-@. "))) {
    falls |= absl::c_linear_search(kFalling, word);
    rises |= absl::c_linear_search(kRising, word);
  }
  if (falls == rises) return Mode::kAuto;
  return falls ? Mode::kMin : Mode::kMax;
}

}  // namespace

EarlyStopping::EarlyStopping(std::string metric, int patience, double min_delta, Mode mode)
    : metric_(std::move(metric)),
      patience_(patience),
      min_delta_(min_delta),
      mode_(mode == Mode::kAuto ? ModeOf(metric_) : mode) {}

absl::Status EarlyStopping::OnFitBegin(TrainingRun&) {
  best_.reset();
  epochs_ = waited_ = 0;
  std::vector<std::string> problems;
  if (patience_ < 0)
    problems.push_back(absl::StrCat("patience is ", patience_, ", must be at least 0"));
  if (!(min_delta_ >= 0))
    problems.push_back(absl::StrCat("min_delta is ", min_delta_, ", must be at least 0"));
  if (mode_ == Mode::kAuto) {
    problems.push_back(absl::StrCat("whether \"", metric_,
                                    "\" improves when it falls or when it rises does not follow "
                                    "from its name: give Mode::kMin or kMax"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("EarlyStopping: ", absl::StrJoin(problems, "; ")));
}

bool EarlyStopping::Improves(double value) const {
  if (std::isnan(value)) return false;
  if (!best_) return true;
  return mode_ == Mode::kMin ? value < *best_ - min_delta_ : value > *best_ + min_delta_;
}

absl::Status EarlyStopping::OnEpochEnd(TrainingRun& run) {
  const auto found = run.metrics().find(metric_);
  if (found == run.metrics().end()) {
    const std::string names =
        absl::StrJoin(run.metrics(), ", ",
                      [](std::string* out, const auto& metric) { out->append(metric.first); });
    return absl::InvalidArgumentError(
        absl::StrCat("EarlyStopping: there is no metric \"", metric_, "\", there are: ", names));
  }
  ++epochs_;
  if (Improves(found->second)) {
    best_ = found->second;
    waited_ = 0;
  } else if (++waited_ >= patience_ && epochs_ > 1) {  // one epoch is nothing to compare with
    run.Stop(absl::StrCat(metric_, " has not improved in ", waited_,
                          waited_ == 1 ? " epoch" : " epochs",
                          best_ ? absl::StrCat("; its best was ", *best_) : ""));
  }
  return absl::OkStatus();
}

}  // namespace divvy
