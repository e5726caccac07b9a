#include "train/callback.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

// Whether less of it is better.
bool Falls(absl::string_view metric) {
  const absl::string_view name = metric.substr(metric.rfind('/') + 1);  // npos + 1 is 0
  for (const absl::string_view cost : {"loss", "error", "rmse"}) {
    if (absl::StrContains(name, cost)) return true;
  }
  return false;
}

}  // namespace

EarlyStopping::EarlyStopping(std::string metric, int patience, double min_delta)
    : metric_(std::move(metric)), patience_(patience), min_delta_(min_delta), falls_(Falls(metric_)) {}

absl::Status EarlyStopping::OnFitBegin(TrainingRun&) {
  best_.reset();
  epochs_ = waited_ = 0;
  std::vector<std::string> problems;
  if (patience_ < 0) problems.push_back(absl::StrCat("patience is ", patience_, ", must be at least 0"));
  if (!(min_delta_ >= 0)) problems.push_back(absl::StrCat("min_delta is ", min_delta_, ", must be at least 0"));
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("EarlyStopping: ", absl::StrJoin(problems, "; ")));
}

bool EarlyStopping::Improves(double value) const {
  if (std::isnan(value)) return false;
  if (!best_) return true;
  return falls_ ? value < *best_ - min_delta_ : value > *best_ + min_delta_;
}

absl::Status EarlyStopping::OnEpochEnd(TrainingRun& run) {
  const auto found = run.metrics().find(metric_);
  if (found == run.metrics().end()) {
    const std::string names = absl::StrJoin(run.metrics(), ", ", [](std::string* out, const auto& metric) { out->append(metric.first); });
    return absl::InvalidArgumentError(absl::StrCat("EarlyStopping: there is no metric \"", metric_, "\", there are: ", names));
  }
  ++epochs_;
  if (Improves(found->second)) {
    best_ = found->second;
    waited_ = 0;
  } else if (++waited_ >= patience_ && epochs_ > 1) {  // one epoch is nothing to compare with
    run.Stop(
        absl::StrCat(metric_, " has not improved in ", waited_, waited_ == 1 ? " epoch" : " epochs", best_ ? absl::StrCat("; its best was ", *best_) : ""));
  }
  return absl::OkStatus();
}

}  // namespace divvy
