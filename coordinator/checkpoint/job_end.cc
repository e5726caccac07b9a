#include "coordinator/checkpoint/job_end.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr char kExitCode[] = "exit_code: ";

std::string FileOf(const std::string& directory) { return absl::StrCat(directory, "/job_over"); }

}  // namespace

absl::Status WriteJobEnd(FileSystem& files, const std::string& directory, int exit_code) {
  return files.ReplaceFile(FileOf(directory), absl::StrCat(kExitCode, exit_code, "\n"));
}

absl::Status RemoveJobEnd(FileSystem& files, const std::string& directory) {
  const absl::Status removed = files.Remove(FileOf(directory));
  if (absl::IsNotFound(removed)) return absl::OkStatus();
  RETURN_IF_ERROR(removed);
  return files.SyncDirectory(directory);
}

void TellEvaluator(FileSystem& files, const std::string& directory, std::optional<int> exit_code) {
  const absl::Status told =
      exit_code ? WriteJobEnd(files, directory, *exit_code) : RemoveJobEnd(files, directory);
  if (!told.ok())
    DIVVY_LOG(WARNING) << "an evaluator of this job will not learn whether the job has ended: "
                       << told.message();
}

absl::StatusOr<std::optional<int>> ReadJobEnd(FileSystem& files, const std::string& directory) {
  const absl::StatusOr<std::string> text = files.ReadFile(FileOf(directory));
  if (absl::IsNotFound(text.status())) return std::optional<int>();
  RETURN_IF_ERROR(text.status());
  absl::string_view code = *text;
  int exit_code = 0;
  if (absl::ConsumePrefix(&code, kExitCode) && absl::ConsumeSuffix(&code, "\n") &&
      absl::SimpleAtoi(code, &exit_code))
    return std::optional<int>(exit_code);
  return absl::DataLossError(absl::StrCat(
      FileOf(directory), " does not say with which exit code the job has ended: remove it"));
}

}  // namespace divvy
