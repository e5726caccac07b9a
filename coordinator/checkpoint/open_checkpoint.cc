#include "coordinator/checkpoint/open_checkpoint.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "base/path.h"
#include "base/status_macros.h"
#include "protocol/error.h"

namespace divvy {
namespace {

constexpr absl::string_view kIndexEnd = ".index";
constexpr absl::string_view kNewestFile = "checkpoint";
constexpr absl::string_view kNewestField = "model_checkpoint_path: \"";

absl::StatusOr<bool> IsDirectory(FileSystem& files, const std::string& path) {
  const absl::StatusOr<FileInfo> info = files.Stat(path);
  if (absl::IsNotFound(info.status())) return false;
  RETURN_IF_ERROR(info);
  return info->is_directory;
}

std::string PrefixOf(const std::string& path) {
  return std::string(absl::StripSuffix(path, kIndexEnd));
}

// The name that NameNewest or TensorFlow wrote last; "" if there is no such file. TensorFlow may
// have written a path, of which only the last part counts.
std::string NamedNewest(FileSystem& files, const std::string& directory) {
  const std::string text = files.ReadFile(absl::StrCat(directory, "/", kNewestFile)).value_or("");
  absl::string_view rest = text;
  if (!absl::ConsumePrefix(&rest, kNewestField)) return "";
  return BaseNameOf(rest.substr(0, rest.find('"')));
}

}  // namespace

std::optional<CheckpointId> CheckpointOf(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '-');
  uint64_t epoch = 0, serial = 0;
  if (parts.size() != 3 || parts[0] != "ckpt" || !absl::SimpleAtoi(parts[1], &epoch) ||
      !absl::SimpleAtoi(parts[2], &serial))
    return std::nullopt;
  const CheckpointId checkpoint{Epoch(epoch), serial};
  if (epoch == 0 || checkpoint.name() != name) return std::nullopt;
  return checkpoint;
}

absl::Status NameNewest(FileSystem& files, const std::string& directory, absl::string_view name) {
  return files.ReplaceFile(absl::StrCat(directory, "/", kNewestFile),
                           absl::StrCat(kNewestField, name, "\"\n"));
}

absl::StatusOr<std::vector<std::string>> CheckpointPrefixes(FileSystem& files,
                                                            const std::string& directory) {
  ASSIGN_OR_RETURN(const std::vector<std::string> names, files.ListDirectory(directory));
  std::vector<std::string> prefixes;
  for (const std::string& name : names) {
    if (absl::EndsWith(name, kIndexEnd))
      prefixes.push_back(absl::StrCat(absl::StripSuffix(directory, "/"), "/", PrefixOf(name)));
  }
  if (prefixes.empty())
    return absl::NotFoundError(
        absl::StrCat("no checkpoint in ", directory, ": it has no file *", kIndexEnd));
  const auto rank = [named = NamedNewest(files, directory)](const std::string& prefix) {
    const std::string name = BaseNameOf(prefix);
    // Nullopt is less than every id, so checkpoints of other programs count as older.
    const auto own = CheckpointOf(name);
    return std::make_pair(own, !own && name == named);
  };
  std::stable_sort(prefixes.begin(), prefixes.end(),
                   [&](const std::string& a, const std::string& b) { return rank(b) < rank(a); });
  return prefixes;
}

absl::StatusOr<std::vector<std::string>> CheckpointsAt(FileSystem& files, const std::string& path) {
  ASSIGN_OR_RETURN(const bool is_directory, IsDirectory(files, path));
  return is_directory ? CheckpointPrefixes(files, path) : std::vector<std::string>{PrefixOf(path)};
}

bool IsUnreadable(const absl::Status& status) {
  const bool is_no_file = ReasonOf(status) == Reason::kNone &&
                          (absl::IsNotFound(status) || absl::IsFailedPrecondition(status));
  return absl::IsDataLoss(status) || is_no_file;
}

absl::StatusOr<std::unique_ptr<BundleReader>> OpenCheckpoint(FileSystem& files,
                                                             const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<std::string> prefixes, CheckpointsAt(files, path));
  absl::Status newest;
  for (const std::string& prefix : prefixes) {
    auto reader = BundleReader::Open(files, prefix);
    if (reader.ok() || prefixes.size() == 1 || !IsUnreadable(reader.status())) return reader;
    DIVVY_LOG(ERROR) << reader.status().message() << ". Looking for an older checkpoint";
    newest.Update(reader.status());
  }
  return newest;
}

absl::StatusOr<int64_t> FinishedStepsOf(const BundleReader& checkpoint) {
  if (checkpoint.index().Find(kFinishedStepsTensor) == nullptr) return -1;
  ASSIGN_OR_RETURN(const Tensor steps, checkpoint.ReadTensor(kFinishedStepsTensor));
  return steps.scalar<int64_t>();
}

}  // namespace divvy
