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

// Sorts the ids, and then finds each id among the unique ones. So no other table needs to fit in a
// cache.
std::shared_ptr<const UniqueIds> UniqueOf(const Tensor& ids) {
  if (auto known = UniqueIfKnown(ids)) return known;
  const absl::Span<const int64_t> values =
      absl::MakeConstSpan(ids.data_as<int64_t>(), ids.shape().num_elements());
  std::vector<int64_t> unique(values.begin(), values.end());
  std::sort(unique.begin(), unique.end());
  unique.erase(std::unique(unique.begin(), unique.end()), unique.end());
  if (unique.size() == values.size()) return nullptr;
  absl::StatusOr<Tensor> places = Tensor::Uninitialized(DType::kInt64, ids.shape());
  if (!places.ok()) return nullptr;  // no memory: each row is sent as often as it is asked for
  auto* const at = places->fresh_data<int64_t>();
  std::transform(values.begin(), values.end(), at, [&](int64_t id) {
    return static_cast<int64_t>(std::lower_bound(unique.begin(), unique.end(), id) -
                                unique.begin());
  });
  auto found =
      std::make_shared<const UniqueIds>(Tensor::Vector<int64_t>(unique), *std::move(places));
  ids.SetNote(found);
  return found;
}

}  // namespace divvy::internal
