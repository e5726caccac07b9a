#include "variables/table_tensors.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace divvy {

TableTensors::TableTensors(const std::string& table, int64_t width,
                           const std::optional<Optimizer>& optimizer, DType dtype)
    : keys{absl::StrCat(table, "-keys")},
      counts{absl::StrCat(table, "-freqs")},
      ticks{absl::StrCat(table, "-versions")},
      values{absl::StrCat(table, "-values"), dtype, Shape{1, width}},
      waiting_keys{absl::StrCat(table, "-filter-keys")},
      waiting_counts{absl::StrCat(table, "-filter-freqs")},
      waiting_ticks{absl::StrCat(table, "-filter-versions")},
      filter(absl::StrCat(table, "-filter-counters")) {
  if (!optimizer) return;
  for (const SlotSpec& slot : SlotsOf(*optimizer))
    slots.push_back({absl::StrCat(values.name, "/", OptimizerName(*optimizer), "/", slot.name),
                     slot.dtype(), slot.ShapeFor(Shape{1, width})});
}

std::vector<std::string> TableTensors::names() const {
  std::vector<std::string> names = {
      keys.name,         counts.name,         ticks.name,         values.name,
      waiting_keys.name, waiting_counts.name, waiting_ticks.name, filter};
  for (const TableTensor& slot : slots) names.push_back(slot.name);
  return names;
}

std::vector<std::string> TablesOfTensor(absl::string_view tensor) {
  std::vector<std::string> tables;
  const absl::string_view before_slot = tensor.substr(0, tensor.find("-values/"));
  if (before_slot.size() < tensor.size()) tables.emplace_back(before_slot);
  for (const absl::string_view suffix :
       {"-filter-keys", "-filter-freqs", "-filter-versions", "-filter-counters", "-keys", "-freqs",
        "-versions", "-values"}) {
    if (absl::EndsWith(tensor, suffix))
      tables.emplace_back(tensor.substr(0, tensor.size() - suffix.size()));
  }
  return tables;
}

bool HaveSameSlots(const std::optional<Optimizer>& a, const std::optional<Optimizer>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  const std::vector<SlotSpec> slots = SlotsOf(*a), others = SlotsOf(*b);
  return KindOf(*a) == KindOf(*b) &&
         std::equal(slots.begin(), slots.end(), others.begin(), others.end(),
                    [](const SlotSpec& one, const SlotSpec& other) {
                      return one.name == other.name && one.kind == other.kind;
                    });
}

}  // namespace divvy
