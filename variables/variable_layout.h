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

// One variable as the coordinator cut and placed it. `spec.initializer` and `spec.partitioner` mean
// nothing any more and are left empty. A plain value. Slots are cut and placed as their variable
// is: shard `part` of each lies beside shard `part` of it.
//
//   [1000, 64] in 3 shards: offsets {0, 334, 667, 1000}, ps {0, 1, 2}; row 500 is row 166 of part 1
struct VariableLayout {
  VariableId id;
  VariableSpec spec;
  // [shards + 1] first rows, by the div rule; {0, 1} for rank 0
  std::vector<int64_t> offsets;
  // [shards] the parameter server of each
  std::vector<int> ps;
  // slot number i + 1 is slots[i]; of every optimizer used so far
  std::vector<SlotSpec> slots;
  // [slots] the optimizer each belongs to, "Adam"
  std::vector<std::string> slot_optimizers;

  int num_shards() const { return static_cast<int>(ps.size()); }
  int64_t rows() const { return offsets.back(); }
  // The shape of shard `part` of the variable itself. REQUIRES: 0 <= part < num_shards().
  Shape ShardShape(int part) const;
  // The shard that holds `row`. REQUIRES: 0 <= row < rows().
  int PartOf(int64_t row) const;
  // The slot called "<variable>/<optimizer>/<slot>"; nullopt: never made.
  std::optional<uint8_t> SlotNumber(absl::string_view optimizer, absl::string_view slot) const;
  // Slot numbers of `optimizer`, in the order of SlotsOf; nullopt if one of them was never made.
  // Empty for one without slots.
  std::optional<std::vector<uint8_t>> SlotsFor(const Optimizer& optimizer) const;
  // "<variable>/<optimizer>/<slot>". REQUIRES: 0 <= slot_index < slots.size()
  std::string SlotName(int slot_index) const;
  // Of all shards of the variable.
  int64_t value_bytes() const;
  // Of all shards of all its slots.
  int64_t slot_bytes() const;
  // About what its description takes in the message that tells workers of the layout.
  int64_t message_bytes() const;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_VARIABLE_LAYOUT_H_
