#include "data/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "data/progress.h"
#include "data/recipes.h"
#include "formats/inflate.h"

namespace divvy::data_internal {
namespace {

constexpr absl::string_view kWildcards = "*?[";
// The limit for a decompressed file. Half of the memory is a further limit.
constexpr int64_t kMaxBytes = int64_t{16} << 30;
// The largest number of files that five digits can number.
constexpr int kMaxShards = 99999;

int64_t MostBytes() { return std::min(kMaxBytes, MostMemoryBytes() / 2); }

bool HasWildcard(absl::string_view text) {
  return text.find_first_of(kWildcards) != absl::string_view::npos;
}

// The parts of "name@count".
struct Sharded {
  absl::string_view name;
  int count = 0;
};

// nullopt: there is something other than digits after the last "@".
std::optional<Sharded> ParseSharded(absl::string_view pattern) {
  const size_t at = pattern.rfind('@');
  if (at == absl::string_view::npos || at + 1 == pattern.size()) return std::nullopt;
  const absl::string_view digits = pattern.substr(at + 1);
  if (!std::all_of(digits.begin(), digits.end(),
                   [](unsigned char c) { return absl::ascii_isdigit(c); }))
    return std::nullopt;
  Sharded sharded{pattern.substr(0, at), 0};
  if (!absl::SimpleAtoi(digits, &sharded.count)) sharded.count = kMaxShards + 1;
  return sharded;
}

absl::StatusOr<std::vector<std::string>> ShardNames(const Sharded& sharded) {
  if (sharded.count < 1 || sharded.count > kMaxShards)
    return absl::InvalidArgumentError(
        absl::StrCat(sharded.name, "@N: N must be from 1 to ", kMaxShards));
  std::vector<std::string> names;
  for (int i = 0; i < sharded.count; ++i)
    names.push_back(absl::StrFormat("%s-%05d-of-%05d", sharded.name, i, sharded.count));
  return names;
}

absl::StatusOr<std::vector<std::string>> Matches(FileSystem& files, absl::string_view pattern) {
  const size_t slash = pattern.rfind('/');
  const std::string directory(slash == absl::string_view::npos ? "."
                              : slash == 0                     ? "/"
                                                               : pattern.substr(0, slash));
  const std::string prefix(pattern.substr(0, slash == absl::string_view::npos ? 0 : slash + 1));
  const std::string last(pattern.substr(prefix.size()));
  if (HasWildcard(directory))
    return absl::InvalidArgumentError(
        absl::StrCat(pattern, ": only the last part of a path may have wildcards"));
  ASSIGN_OR_RETURN(const std::vector<std::string> children, files.ListDirectory(directory));
  std::vector<std::string> names;
  for (const std::string& child : children) {
    if (fnmatch(last.c_str(), child.c_str(), FNM_PERIOD) == 0)
      names.push_back(absl::StrCat(prefix, child));
  }
  if (names.empty()) return absl::NotFoundError(absl::StrCat("no file matches ", pattern));
  std::sort(names.begin(), names.end());
  return names;
}

// As FileSystem::ReadFile, but in pieces, so that progress can be logged.
absl::StatusOr<std::string> ReadWhole(FileSystem& files, const Clock& clock,
                                      const std::string& name) {
  constexpr size_t kLeastPiece = size_t{64} << 10, kMostPiece = size_t{16} << 20;
  ASSIGN_OR_RETURN(const std::unique_ptr<SequentialFile> file, files.OpenSequential(name));
  const absl::StatusOr<FileInfo> info = files.Stat(name);
  // Only an estimate: a pipe reports 0, and a file may grow.
  const size_t size = info.ok() ? info->size_bytes : 0;
  const auto most = static_cast<size_t>(MostBytes());
  std::string bytes;
  Progress progress(clock);
  while (true) {
    const size_t had = bytes.size();
    if (std::max(had, size) > most) {
      return absl::ResourceExhaustedError(
          absl::StrCat(name, ": a file of a dataset is read whole, and may have at most ",
                       most >> 20, " MiB on this machine: split it into several files"));
    }
    const size_t piece = std::clamp(had < size ? size - had + 1 : 0, kLeastPiece, kMostPiece);
    bytes.resize(had + piece);
    ASSIGN_OR_RETURN(const size_t got, file->Read(absl::MakeSpan(&bytes[had], piece)));
    bytes.resize(had + got);
    if (got < piece) return bytes;
    progress.Tick([&] {
      return absl::StrCat("read ", bytes.size() >> 20, " of ", size >> 20, " MiB of ", name);
    });
  }
}

}  // namespace

FileSystem& FilesOf(const DataEnvironment& environment) {
  return environment.files == nullptr ? FileSystem::Real() : *environment.files;
}

absl::StatusOr<std::vector<std::string>> ExpandFiles(FileSystem& files, absl::string_view pattern) {
  if (pattern.empty()) return absl::InvalidArgumentError("the file name of a dataset is empty");
  if (HasWildcard(pattern)) return Matches(files, pattern);
  if (const std::optional<Sharded> sharded = ParseSharded(pattern)) return ShardNames(*sharded);
  return std::vector<std::string>{std::string(pattern)};
}

absl::StatusOr<std::string> ReadDecompressed(FileSystem& files, const Clock& clock,
                                             const std::string& name, const IsPlain& is_plain) {
  ASSIGN_OR_RETURN(std::string bytes, ReadWhole(files, clock, name));
  if (is_plain != nullptr && is_plain(bytes)) return bytes;
  const int64_t packed = static_cast<int64_t>(bytes.size()), most = MostBytes(),
                believable = MostUnpacked(packed, most);
  absl::StatusOr<std::string> content = Inflate(std::move(bytes), believable);
  if (absl::IsResourceExhausted(content.status()) && believable < most) {
    return absl::ResourceExhaustedError(
        absl::StrCat(name, ": ", packed, " bytes decompress to more than ", believable,
                     " bytes, far more than real data: if the file is right, gunzip it first"));
  }
  if (!content.ok()) return WithContext(content.status(), name);
  return content;
}

}  // namespace divvy::data_internal
