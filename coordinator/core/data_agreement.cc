#include "coordinator/core/data_agreement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

// The tolerance, relative to the sum of absolute values. The last bit of a float is 1e-7 of the
// value. The sums of a million values of different records differ by some 1e-3, and sums of fewer
// values differ by more.
constexpr double kTolerance = 1e-5;

}  // namespace

bool Differ(const ElementDigest& a, const ElementDigest& b) {
  return a.exact != b.exact ||
         std::abs(a.projection - b.projection) > kTolerance * std::max(a.magnitude, b.magnitude);
}

bool DataAgreement::Fits(const DataSeen& a, const DataSeen& b) {
  if (a.first && b.first && Differ(*a.first, *b.first)) return false;
  return !a.elements || !b.elements || *a.elements == *b.elements;
}

void DataAgreement::Note(int worker, const DataSeen& seen) {
  const auto has = [worker](const Group& group) {
    return std::count(group.workers.begin(), group.workers.end(), worker) > 0;
  };
  const bool is_alone = groups_.size() == 1 && groups_.front().workers == std::vector<int>{worker};
  const auto same = std::find_if(groups_.begin(), groups_.end(),
                                 [&seen](const Group& group) { return Fits(group.seen, seen); });
  Group& group = same != groups_.end() ? *same : groups_.emplace_back(Group{seen, {}, {}});
  if (!group.seen.first) group.seen.first = seen.first;
  if (!group.seen.elements) group.seen.elements = seen.elements;
  if (seen.elements) group.know_size.insert(worker);
  if (has(group)) return;
  if (!is_alone) {
    for (Group& each : groups_) {
      each.workers.erase(std::remove(each.workers.begin(), each.workers.end(), worker),
                         each.workers.end());
      if (&each != &group) each.know_size.erase(worker);
    }
  }
  group.workers.push_back(worker);
  groups_.erase(std::remove_if(groups_.begin(), groups_.end(),
                               [](const Group& each) { return each.workers.empty(); }),
                groups_.end());
}

bool DataAgreement::Knows(int worker) const {
  return std::any_of(groups_.begin(), groups_.end(), [worker](const Group& group) {
    return std::count(group.workers.begin(), group.workers.end(), worker) > 0;
  });
}

const DataAgreement::Group& DataAgreement::Most() const {
  return *std::max_element(groups_.begin(), groups_.end(), [](const Group& a, const Group& b) {
    return a.workers.size() < b.workers.size();
  });
}

std::optional<int64_t> DataAgreement::elements() const {
  if (groups_.empty()) return std::nullopt;
  const Group& most = Most();
  return 2 * most.know_size.size() > most.workers.size() ? most.seen.elements : std::nullopt;
}

std::set<int> DataAgreement::odd() const {
  std::set<int> odd;
  if (groups_.empty()) return odd;
  const Group& most = Most();
  for (const Group& group : groups_) {
    if (&group != &most) odd.insert(group.workers.begin(), group.workers.end());
  }
  for (const int worker : most.workers) odd.erase(worker);
  return odd;
}

bool DataAgreement::tied() const {
  if (groups_.size() < 2) return false;
  const Group& most = Most();
  return std::any_of(groups_.begin(), groups_.end(), [&most](const Group& group) {
    return &group != &most && group.workers.size() == most.workers.size();
  });
}

absl::Status DataAgreement::Difference(const std::string& source) const {
  const Group& most = Most();
  const Group& other = *std::find_if(groups_.begin(), groups_.end(),
                                     [&most](const Group& group) { return &group != &most; });
  const int a = std::min(most.workers.front(), other.workers.front()),
            b = std::max(most.workers.front(), other.workers.front());
  const bool by_size =
      most.seen.elements && other.seen.elements && *most.seen.elements != *other.seen.elements;
  const std::string what =
      by_size
          ? absl::StrCat(most.seen.elements.value(), " elements at worker ", most.workers.front(),
                         ", ", other.seen.elements.value(), " at worker ", other.workers.front())
      : a == b ? absl::StrCat("the first elements of worker ", a,
                              ", which opened it twice, are not the same")
               : absl::StrCat("the first elements of worker ", a, " and worker ", b,
                              " are not the same");
  return absl::InvalidArgumentError(
      absl::StrCat("data source \"", source, "\" differs between workers (", what,
                   "). The coordinator hands out the positions of one dataset, so every worker "
                   "must read the same dataset: give all of them ",
                   "the same files, shuffle with input.seed, and shard nothing. If each worker has "
                   "data of its own, set ",
                   "AutoShardPolicy::kOff"));
}

}  // namespace divvy
