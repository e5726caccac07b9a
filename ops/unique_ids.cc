#include "ops/unique_ids.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/status_macros.h"

namespace divvy::internal {

absl::StatusOr<Tensor> UniqueIds::PlacesOn(Device device) const {
  if (device.kind == Device::Kind::kCpu) return places_;
  MutexLock lock(mu_);
  const auto found = on_gpus_.find(device.index);
  if (found != on_gpus_.end()) return found->second;
  ASSIGN_OR_RETURN(Tensor there, places_.To(device));
  return on_gpus_.emplace(device.index, std::move(there)).first->second;
}

std::shared_ptr<const UniqueIds> UniqueIfKnown(const Tensor& ids) {
  const auto known = std::dynamic_pointer_cast<const UniqueIds>(ids.note());
  return known != nullptr && known->num_ids() == ids.shape().num_elements() ? known : nullptr;
}

// Sorts the ids with their places. That takes half the time of sorting the ids alone and then
// finding each of them among the unique ones, or of a hash table (4,096 ids).
std::shared_ptr<const UniqueIds> UniqueOf(const Tensor& ids) {
  if (auto known = UniqueIfKnown(ids)) return known;
  const absl::Span<const int64_t> values =
      absl::MakeConstSpan(ids.data_as<int64_t>(), ids.shape().num_elements());
  struct Id {
    int64_t id, place;
    bool operator<(const Id& other) const { return id < other.id; }
  };
  std::vector<Id> sorted;
  sorted.reserve(values.size());
  for (const int64_t id : values) sorted.push_back({id, static_cast<int64_t>(sorted.size())});
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> unique;
  unique.reserve(values.size());
  for (const Id& id : sorted) {
    if (unique.empty() || unique.back() != id.id) unique.push_back(id.id);
  }
  if (unique.size() == values.size()) return nullptr;
  absl::StatusOr<Tensor> places = Tensor::Uninitialized(DType::kInt64, ids.shape());
  if (!places.ok()) return nullptr;  // no memory: each row is sent as often as it is asked for
  auto* const at = places->fresh_data<int64_t>();
  int64_t index = 0;
  for (const Id& id : sorted) {
    if (unique[static_cast<size_t>(index)] != id.id) ++index;
    at[id.place] = index;
  }
  auto found =
      std::make_shared<const UniqueIds>(Tensor::Vector<int64_t>(unique), *std::move(places));
  ids.SetNote(found);
  return found;
}

}  // namespace divvy::internal
