// Where the rows of one variable live.
#ifndef DIVVY_VARIABLES_VARIABLE_LAYOUT_H_
#define DIVVY_VARIABLES_VARIABLE_LAYOUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "variables/shard_key.h"
#include "variables/variable_spec.h"

namespace divvy {

// One variable, as the coordinator cut and placed it. Slots are cut and placed as their variable
// is: shard `part` of a slot lies beside shard `part` of the variable. `spec.partitioner` has no
// meaning here and is empty, and so is `spec.initializer` unless the variable is a table. A table's
// slots are part of its rows, so `slots` is empty. A plain value.
//
//   [1000, 64] in 3 shards: offsets {0, 334, 667, 1000}, ps {0, 1, 2}; row 500 is row 166 of part 1
struct VariableLayout {
  VariableId id;
  VariableSpec spec;
  // [shards + 1] the first row of each shard, then the number of rows, by the div rule; {0, 1} for
  // rank 0
  std::vector<int64_t> offsets;
  // [shards] the parameter server of each shard
  std::vector<int> ps;
  // The slots of every optimizer used so far. Slot number i + 1 is slots[i].
  std::vector<SlotSpec> slots;
  // [slots] the optimizer that each slot belongs to, "Adam"
  std::vector<std::string> slot_optimizers;

  int num_shards() const { return static_cast<int>(ps.size()); }
  int64_t rows() const { return offsets.back(); }
  // As IndexedSlices::num_rows.
  int64_t num_rows() const { return spec.table ? IndexedSlices::kAnyId : rows(); }
  // The shape of shard `part` of the variable itself. REQUIRES: 0 <= part < num_shards().
  Shape ShardShape(int part) const;
  // The shard that holds `row`. REQUIRES: 0 <= row < rows().
  int PartOf(int64_t row) const;
  // The number of the slot "<variable>/<optimizer>/<slot>"; nullopt if it was never created.
  std::optional<uint8_t> SlotNumber(absl::string_view optimizer, absl::string_view slot) const;
  // The numbers of the slots of `optimizer`, in the order of SlotsOf; nullopt if one of them was
  // never created. Empty for an optimizer without slots, and for a table.
  std::optional<std::vector<uint8_t>> SlotsFor(const Optimizer& optimizer) const;
  // "<variable>/<optimizer>/<slot>". REQUIRES: 0 <= slot_index < slots.size()
  std::string SlotName(int slot_index) const;
  // Bytes of all shards of the variable; 0 for a table, whose size changes.
  int64_t value_bytes() const;
  // Bytes of all shards of all its slots.
  int64_t slot_bytes() const;
  // The approximate size of its description in the message that tells workers of the layout.
  int64_t message_bytes() const;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_VARIABLE_LAYOUT_H_
