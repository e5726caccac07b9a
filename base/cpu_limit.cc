#include "base/cpu_limit.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace divvy {
namespace {

constexpr absl::string_view kRoot = "/sys/fs/cgroup";

std::optional<double> Ratio(absl::string_view quota, absl::string_view period) {
  double used = 0, whole = 0;
  // Not a number, or below 0: there is no limit ("max" in version 2, -1 in version 1).
  if (!absl::SimpleAtod(quota, &used) || !absl::SimpleAtod(period, &whole) || used <= 0 ||
      whole <= 0)
    return std::nullopt;
  return used / whole;
}

// The format is "200000 100000" or "max 100000".
std::optional<double> LimitOfVersion2(const std::string& directory, const FileReader& read) {
  const std::optional<std::string> text = read(absl::StrCat(directory, "/cpu.max"));
  const std::vector<std::string> words =
      absl::StrSplit(text.value_or(""), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return words.size() == 2 ? Ratio(words[0], words[1]) : std::nullopt;
}

std::optional<double> LimitOfVersion1(const std::string& directory, const FileReader& read) {
  const auto quota = read(absl::StrCat(directory, "/cpu.cfs_quota_us")),
             period = read(absl::StrCat(directory, "/cpu.cfs_period_us"));
  return quota && period ? Ratio(*quota, *period) : std::nullopt;
}

std::optional<double> Bytes(const std::optional<std::string>& text) {
  double bytes = 0;
  // "max" stands for no limit.
  return absl::SimpleAtod(absl::StripAsciiWhitespace(text.value_or("")), &bytes) && bytes > 0
             ? std::optional<double>(bytes)
             : std::nullopt;
}
std::optional<double> MemoryOfVersion2(const std::string& directory, const FileReader& read) {
  return Bytes(read(absl::StrCat(directory, "/memory.max")));
}
std::optional<double> MemoryOfVersion1(const std::string& directory, const FileReader& read) {
  return Bytes(read(absl::StrCat(directory, "/memory.limit_in_bytes")));
}

using Limit = std::optional<double> (*)(const std::string& directory, const FileReader& read);

// Takes the limits of the group at `path` and of each group above it. In a container `path` may be
// a path of the host that does not exist here. The container's own group is then at the root.
void TakeTightest(const std::string& root, std::string path, Limit limit_of, const FileReader& read,
                  std::optional<double>& tightest) {
  while (true) {
    const std::optional<double> limit = limit_of(root + path, read);
    if (limit) tightest = std::min(tightest.value_or(*limit), *limit);
    if (path.empty()) return;
    path.resize(path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  }
}

// The tightest limit among all groups: every group of version 2, and of version 1 the groups of
// `controller`.
std::optional<double> Tightest(absl::string_view groups, absl::string_view controller,
                               Limit version2, Limit version1, const FileReader& read) {
  std::optional<double> tightest;
  for (const absl::string_view line : absl::StrSplit(groups, '\n', absl::SkipEmpty())) {
    // number, controllers, path
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const std::string path = parts[2] == "/" ? "" : parts[2];
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (parts[1].empty()) TakeTightest(std::string(kRoot), path, version2, read, tightest);
    if (std::find(controllers.begin(), controllers.end(), controller) != controllers.end()) {
      TakeTightest(absl::StrCat(kRoot, "/", controller), path, version1, read, tightest);
    }
  }
  return tightest;
}

}  // namespace

std::optional<int> CpuLimit(absl::string_view groups, const FileReader& read) {
  const std::optional<double> tightest =
      Tightest(groups, "cpu", LimitOfVersion2, LimitOfVersion1, read);
  if (!tightest) return std::nullopt;
  return std::max(1, static_cast<int>(std::ceil(std::min(*tightest, 1e6))));
}

std::optional<int64_t> MemoryLimit(absl::string_view groups, const FileReader& read) {
  const std::optional<double> tightest =
      Tightest(groups, "memory", MemoryOfVersion2, MemoryOfVersion1, read);
  if (!tightest) return std::nullopt;
  // Version 1 expresses "no limit" by a number that is larger than any memory.
  return static_cast<int64_t>(std::min(*tightest, 1e18));
}

}  // namespace divvy
