#include "kernels/duplicates.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace divvy {

RowGroups GroupById(absl::Span<const int64_t> ids) {
  // Pairs of (id, place). No two are equal, so within an id the places stay in order.
  std::vector<std::pair<int64_t, int64_t>> order;
  order.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) order.emplace_back(ids[i], static_cast<int64_t>(i));
  std::sort(order.begin(), order.end());
  RowGroups groups;
  groups.rows.reserve(order.size());
  for (const auto& [id, place] : order) {
    if (groups.ids.empty() || groups.ids.back() != id) {
      groups.ids.push_back(id);
      groups.splits.push_back(static_cast<int64_t>(groups.rows.size()));
    }
    groups.rows.push_back(place);
  }
  groups.splits.push_back(static_cast<int64_t>(groups.rows.size()));
  return groups;
}

void SumGroups(const RowGroups& groups, const float* in, int64_t width, float* sums) {
  for (size_t i = 0; i < groups.ids.size(); ++i) {
    float* const sum = sums + static_cast<int64_t>(i) * width;
    const float* const first = in + groups.rows[groups.splits[i]] * width;
    std::copy(first, first + width, sum);
    for (int64_t j = groups.splits[i] + 1; j < groups.splits[i + 1]; ++j) {
      const float* const row = in + groups.rows[j] * width;
      std::transform(row, row + width, sum, sum,
                     [](float addend, float before) { return before + addend; });
    }
  }
}

}  // namespace divvy
