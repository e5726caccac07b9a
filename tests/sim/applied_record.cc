#include "tests/sim/applied_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tests/sim/program_site.h"

namespace divvy::sim {

void AppliedRecord::Applied(Incarnation ps, Epoch lineage, const CommitRequest& request) {
  Entry& entry = applied_[{ps, lineage}][request.entry];
  ++entry.times;
  entry.participants = request.participants;
}

bool AppliedRecord::AllWhole(const std::vector<Incarnation>& servers, Epoch lineage) const {
  std::map<EntryId, int> missing;
  for (const Incarnation ps : servers) {
    const auto record = applied_.find({ps, lineage});
    if (record == applied_.end()) continue;
    for (const auto& [id, entry] : record->second)
      missing[id] += missing.count(id) == 0 ? entry.participants - 1 : -1;
  }
  return std::all_of(missing.begin(), missing.end(),
                     [](const auto& entry) { return entry.second == 0; });
}

std::string AppliedRecord::Contradiction(Incarnation ps,
                                         const ParameterServerSnapshot& seen) const {
  const auto record = applied_.find({ps, seen.lineage});
  if (record == applied_.end()) return "";
  for (const auto& [id, entry] : record->second) {
    if (entry.times > 1)
      return absl::StrCat("has applied id ", id.value(), " ", entry.times, " times in a lineage");
    if (seen.history.count(id) == 0)
      return absl::StrCat("has applied id ", id.value(), ", and its own history does not say so");
  }
  return "";
}

std::optional<int64_t> SerialOf(const CommitRequest& request) {
  if (request.kind != EntryKind::kWrite) return std::nullopt;
  return (*request.parts[0].values.values<int64_t>())[0] / kWriteUnit;
}

}  // namespace divvy::sim
