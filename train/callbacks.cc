#include "train/callbacks.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/path.h"
#include "base/status_macros.h"

namespace divvy {

// ---- the learning rate

LearningRateByEpoch::LearningRateByEpoch(std::function<double(int epoch)> scale)
    : scale_(std::move(scale)) {}

absl::Status LearningRateByEpoch::Set(TrainingRun& run) const {
  const double scale = scale_(run.epoch());
  if (!std::isfinite(scale) || scale < 0) {
    return absl::InvalidArgumentError(absl::StrCat("LearningRateByEpoch: the factor after ",
                                                   run.epoch(), " epochs is ", scale,
                                                   ", must be finite and at least 0"));
  }
  run.coordinator().SetLearningRateScale(scale);
  return absl::OkStatus();
}

absl::Status LearningRateByEpoch::OnFitBegin(TrainingRun& run) { return Set(run); }
absl::Status LearningRateByEpoch::OnEpochEnd(TrainingRun& run) { return Set(run); }

ReduceLrOnPlateau::ReduceLrOnPlateau(std::string metric, const PlateauOptions& options)
    : best_("ReduceLrOnPlateau", std::move(metric), options.min_delta, options.mode),
      options_(options) {}

absl::Status ReduceLrOnPlateau::OnFitBegin(TrainingRun& run) {
  std::vector<std::string> problems;
  if (!(options_.factor > 0 && options_.factor < 1))
    problems.push_back(absl::StrCat("factor is ", options_.factor, ", must be between 0 and 1"));
  if (options_.patience < 1)
    problems.push_back(absl::StrCat("patience is ", options_.patience, ", must be at least 1"));
  if (!(options_.min_scale >= 0 && options_.min_scale <= 1))
    problems.push_back(absl::StrCat("min_scale is ", options_.min_scale, ", must be in [0, 1]"));
  RETURN_IF_ERROR(best_.Begin(std::move(problems)));
  scale_ = 1;
  waited_ = 0;
  run.coordinator().SetLearningRateScale(scale_);
  return absl::OkStatus();
}

absl::Status ReduceLrOnPlateau::OnEpochEnd(TrainingRun& run) {
  ASSIGN_OR_RETURN(const bool improves, best_.Improves(run));
  waited_ = improves ? 0 : waited_ + 1;
  if (waited_ < options_.patience || scale_ <= options_.min_scale) return absl::OkStatus();
  waited_ = 0;
  scale_ = std::max(scale_ * options_.factor, options_.min_scale);
  run.coordinator().SetLearningRateScale(scale_);
  DIVVY_LOG(INFO) << "epoch " << run.epoch() << ": " << best_.metric() << " has not improved in "
                  << options_.patience << " epochs; the learning rate is now multiplied by "
                  << scale_;
  return absl::OkStatus();
}

// ---- a training that diverges

TerminateOnNan::TerminateOnNan(std::string metric) : metric_(std::move(metric)) {}

absl::Status TerminateOnNan::OnReport(TrainingRun& run) {
  const auto found = run.metrics().find(metric_);
  if (found != run.metrics().end() && !std::isfinite(found->second))
    run.Stop(absl::StrCat(metric_, " is ", found->second, " at step ", run.step()));
  return absl::OkStatus();
}

absl::Status TerminateOnNan::OnEpochEnd(TrainingRun& run) {
  if (run.metrics().count(metric_) > 0) return OnReport(run);
  return absl::InvalidArgumentError(absl::StrCat(
      "TerminateOnNan: there is no metric \"", metric_, "\"; the metrics are: ",
      absl::StrJoin(run.metrics(), ", ",
                    [](std::string* out, const auto& metric) { out->append(metric.first); })));
}

// ---- the best model

SaveBest::SaveBest(std::string path, std::string metric, MetricMode mode,
                   const ExportOptions& options)
    : SaveBest(std::move(path), std::move(metric), mode, options, FileSystem::Real()) {}

SaveBest::SaveBest(std::string path, std::string metric, MetricMode mode,
                   const ExportOptions& options, FileSystem& files)
    : path_(std::move(path)),
      options_(options),
      files_(files),
      best_("SaveBest", std::move(metric), /*min_delta=*/0, mode) {}

absl::Status SaveBest::OnFitBegin(TrainingRun& run) {
  const std::optional<double> before = best_.best();
  RETURN_IF_ERROR(best_.Begin({}));
  // A second Fit of the same Trainer continues with the best value of the first.
  if (before) best_.set_best(*before);
  if (before || run.epoch() == 0) return absl::OkStatus();
  const absl::StatusOr<std::string> text = files_.ReadFile(FigureFile());
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  const std::pair<absl::string_view, absl::string_view> figure_and_metric =
      absl::StrSplit(*text, absl::MaxSplits(' ', 1));
  double figure = 0;
  if (absl::SimpleAtod(figure_and_metric.first, &figure) &&
      absl::StartsWith(figure_and_metric.second, absl::StrCat(best_.metric(), " at step "))) {
    best_.set_best(figure);
  } else {
    DIVVY_LOG(WARNING) << "SaveBest: " << FigureFile() << " has no best value of " << best_.metric()
                       << ": the next epoch counts as the best";
  }
  return absl::OkStatus();
}

absl::Status SaveBest::OnEpochEnd(TrainingRun& run) {
  ASSIGN_OR_RETURN(const bool improves, best_.Improves(run));
  if (!improves) return absl::OkStatus();
  RETURN_IF_ERROR(run.coordinator().Export(path_, options_));
  return files_.ReplaceFile(FigureFile(), absl::StrFormat("%.17g %s at step %d\n", *best_.best(),
                                                          best_.metric(), run.step()));
}

// ---- a log

namespace {

constexpr absl::string_view kEpoch = "epoch", kStep = "step";

std::string Field(double value) { return absl::StrFormat("%.9g", value); }

}  // namespace

CsvLogger::CsvLogger(std::string path) : CsvLogger(std::move(path), FileSystem::Real()) {}
CsvLogger::CsvLogger(std::string path, FileSystem& files) : path_(std::move(path)), files_(files) {}

// Loads the lines of the first `epochs` epochs.
absl::Status CsvLogger::Load(int epochs) {
  rows_.clear();
  const absl::StatusOr<std::string> text = files_.ReadFile(path_);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  RETURN_IF_ERROR(text.status());
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  if (lines.empty()) return absl::OkStatus();
  const std::vector<std::string> columns = absl::StrSplit(lines[0], ',');
  const auto foreign = [&](size_t line) {
    return absl::InvalidArgumentError(absl::StrCat(
        "CsvLogger: ", path_, ", line ", line + 1,
        " is not a line of a log of epochs: give another name, or move the file away"));
  };
  if (columns.size() < 2 || columns[0] != kEpoch || columns[1] != kStep) return foreign(0);
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::vector<std::string> fields = absl::StrSplit(lines[i], ',');
    int epoch = 0;
    if (fields.size() != columns.size() || !absl::SimpleAtoi(fields[0], &epoch)) return foreign(i);
    if (epoch > epochs) continue;  // will be trained again
    for (size_t column = 1; column < columns.size(); ++column)
      rows_[epoch][columns[column]] = fields[column];
  }
  return absl::OkStatus();
}

std::string CsvLogger::Text() const {
  std::set<std::string> names;
  for (const auto& [epoch, row] : rows_) {
    for (const auto& [name, field] : row) names.insert(name);
  }
  names.erase(std::string(kStep));
  std::string text = absl::StrCat(kEpoch, ",", kStep);
  for (const std::string& name : names) absl::StrAppend(&text, ",", name);
  text += "\n";
  for (const auto& [epoch, row] : rows_) {
    const auto field = [&row = row](const std::string& name) {
      const auto found = row.find(name);
      return found == row.end() ? std::string() : found->second;
    };
    absl::StrAppend(&text, epoch, ",", field(std::string(kStep)));
    for (const std::string& name : names) absl::StrAppend(&text, ",", field(name));
    text += "\n";
  }
  return text;
}

absl::Status CsvLogger::OnFitBegin(TrainingRun& run) {
  RETURN_IF_ERROR(Load(run.epoch()));
  RETURN_IF_ERROR(files_.CreateDirectory(DirectoryOf(path_)));
  return files_.ReplaceFile(path_, Text());
}

absl::Status CsvLogger::OnEpochEnd(TrainingRun& run) {
  Row& row = rows_[run.epoch()];
  for (const auto& [name, value] : run.metrics()) {
    // Rename metrics whose names would break a line into more columns, or equal one of the log's
    // own columns.
    std::string column = absl::StrReplaceAll(name, {{",", "_"}, {"\n", "_"}});
    if (column == kEpoch || column == kStep) column += "_";
    row[column] = Field(value);
  }
  row[std::string(kStep)] = absl::StrCat(run.step());
  const absl::Status written = files_.ReplaceFile(path_, Text());
  if (!written.ok())
    DIVVY_LOG(WARNING) << "CsvLogger: cannot write epoch " << run.epoch() << ": " << written;
  return absl::OkStatus();
}

}  // namespace divvy
