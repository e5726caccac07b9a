#include "tests/e2e/hostile_result.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

constexpr double kMib = 1 << 20;

// The most frequent outcomes first.
std::string OutcomesOf(const HostileKind& kind) {
  constexpr size_t kMost = 5;
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [outcome, count] : kind.outcomes) sorted.push_back({-count, outcome});
  std::sort(sorted.begin(), sorted.end());
  std::vector<std::string> parts;
  for (const auto& [count, outcome] : sorted) parts.push_back(absl::StrCat(outcome, " ", -count));
  if (parts.size() > kMost) parts.resize(kMost), parts.push_back("...");
  return absl::StrJoin(parts, ", ");
}

}  // namespace

int64_t HostileResult::tries() const {
  int64_t all = 0;
  for (const HostileKind& kind : kinds) all += kind.tries;
  return all;
}

std::vector<std::string> HostileResult::Faults() const {
  std::vector<std::string> faults;
  for (const HostileKind& kind : kinds) {
    for (const std::string& fault : kind.faults)
      faults.push_back(absl::StrCat(kind.name, ": ", fault));
  }
  return faults;
}

std::string HostileResult::Table() const {
  std::string table = absl::StrFormat("%-44s %8s %8s %6s %8s %5s  %s\n", "kind", "tries", "crashes",
                                      "hangs", "accepted", "MiB", "came to");
  int64_t crashes = 0, hangs = 0, accepted = 0;
  for (const HostileKind& kind : kinds) {
    absl::StrAppendFormat(&table, "%-44s %8d %8d %6d %8d %5.0f  %s\n", kind.name, kind.tries,
                          kind.crashes, kind.hangs, kind.wrong_accepts, kind.peak_bytes / kMib,
                          OutcomesOf(kind));
    crashes += kind.crashes, hangs += kind.hangs, accepted += kind.wrong_accepts;
  }
  absl::StrAppendFormat(&table, "%-44s %8d %8d %6d %8d\n", "all", tries(), crashes, hangs,
                        accepted);
  for (const HostileMemory& task : memory) {
    absl::StrAppendFormat(&table, "memory of %-34s %8.0f MiB of %.0f\n", task.task,
                          task.peak_bytes / kMib, task.allowed_bytes / kMib);
  }
  for (const HostileKind& kind : kinds) {
    if (kind.burst_bytes == 0) continue;
    absl::StrAppendFormat(&table,
                          "%s: %.0f MiB, where each task may hold %.0f MiB beyond its own, which "
                          "gRPC takes and does not count\n",
                          kind.name, kind.peak_bytes / kMib, kind.burst_bytes / kMib);
  }
  return table;
}

}  // namespace divvy
