#include "tests/sim/applied_record.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/sim/program_site.h"

namespace divvy::sim {

void AppliedRecord::Applied(Incarnation ps, Epoch lineage, const CommitRequest& request) {
  Entry& entry = applied_[{ps, lineage}][request.entry];
  ++commits_;
  if (entry.times++ == 0) entry.since = commits_;
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

std::vector<EntryId> AppliedRecord::InOrder(const std::map<EntryId, std::set<int>>& applied,
                                            Epoch lineage) const {
  std::vector<std::pair<int64_t, EntryId>> order;
  for (const auto& [id, where] : applied) {
    int64_t first = std::numeric_limits<int64_t>::max();
    for (const auto& [of, record] : applied_) {
      const auto entry = record.find(id);
      if (of.second == lineage && entry != record.end())
        first = std::min(first, entry->second.since);
    }
    order.emplace_back(first, id);
  }
  std::sort(order.begin(), order.end());
  std::vector<EntryId> ids;
  for (const auto& [first, id] : order) ids.push_back(id);
  return ids;
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
  if (request.parts[0].op == WriteOp::kEvict) return kSerialOfEvictions;
  return (*request.parts[0].values.values<int64_t>())[0] / kWriteUnit;
}

}  // namespace divvy::sim
