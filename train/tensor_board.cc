#include "train/tensor_board.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "strategy/trainer_support.h"

namespace divvy {
namespace {

constexpr char kTrain[] = "train";
constexpr char kValidation[] = "validation";

// The values of a run's metrics by name.
std::map<std::string, double> MetricsOf(const TrainingRun& run, bool validation) {
  std::map<std::string, double> metrics;
  for (const auto& [name, value] : run.metrics()) {
    absl::string_view own = name;
    if (absl::ConsumePrefix(&own, absl::StrCat(kValidation, "/")) == validation)
      metrics[std::string(own)] = value;
  }
  return metrics;
}

void LogError(const absl::Status& status) {
  if (!status.ok())
    DIVVY_LOG(WARNING) << "TensorBoard: points of the event files are lost: " << status;
}

absl::string_view WithoutSlashAtEnd(absl::string_view directory) {
  while (directory.size() > 1 && absl::ConsumeSuffix(&directory, "/")) {
  }
  return directory;
}

}  // namespace

TensorBoard::TensorBoard(std::string directory)
    : directory_(directory), summaries_(std::move(directory)) {}

TensorBoard::TensorBoard(std::string directory, FileSystem& files, const Clock& clock)
    : directory_(directory), summaries_(std::move(directory), files, clock) {}

absl::Status TensorBoard::OnFitBegin(TrainingRun& run) {
  if (WithoutSlashAtEnd(internal::SupportOf(run.coordinator()).event_directory()) ==
      WithoutSlashAtEnd(directory_)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "TensorBoard: with --tensorboard_dir the coordinator already writes to ", directory_,
        ", so every point would appear twice: leave out the flag or the "
        "callback, or give them two directories"));
  }
  last_step_ = run.step();
  reported_ = false;
  return summaries_.Text(kTrain, run.step(), "configuration",
                         SummaryWriter::Table(run.configuration()));
}

bool TensorBoard::WriteTrain(TrainingRun& run) {
  if (run.step() == last_step_) return false;  // no step has ended since
  last_step_ = run.step();
  LogError(summaries_.Scalars(kTrain, run.step(), MetricsOf(run, /*validation=*/false)));
  return true;
}

absl::Status TensorBoard::OnReport(TrainingRun& run) {
  if (WriteTrain(run)) reported_ = true;
  return absl::OkStatus();
}

absl::Status TensorBoard::OnEpochEnd(TrainingRun& run) {
  if (!std::exchange(reported_, false)) WriteTrain(run);
  LogError(summaries_.Scalars(kValidation, run.step(), MetricsOf(run, /*validation=*/true)));
  LogError(summaries_.Sync());
  return absl::OkStatus();
}

}  // namespace divvy
