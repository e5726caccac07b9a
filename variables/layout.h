// Where the rows of every variable live.
#ifndef DIVVY_VARIABLES_LAYOUT_H_
#define DIVVY_VARIABLES_LAYOUT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
};

// All variables of a job. Immutable, so thread-safe: each change makes the next version. Shared by
// pointer; whoever works by a version holds it.
//
//   layout = layout->With(variable);
//   const VariableLayout* const found = layout->Find(name);
//   if (found == nullptr) return layout->UnknownVariable(name);
class Layout {
 public:
  static std::shared_ptr<const Layout> Empty();
  // The layout that another process calls `version`, as it was sent. REQUIRES: each key is its
  // variable's id, and names differ.
  static std::shared_ptr<const Layout> Received(uint64_t version,
                                                std::map<VariableId, VariableLayout> variables);

  uint64_t version() const { return version_; }
  // Of everything that two processes must agree on, in id order; equal layouts have equal hashes in
  // every process.
  uint64_t hash() const { return hash_; }
  const std::map<VariableId, VariableLayout>& variables() const { return variables_; }
  // Null: no such variable. Valid while this layout lives.
  const VariableLayout* Find(absl::string_view name) const;
  const VariableLayout* Find(VariableId id) const;
  // NotFound: lists the names nearest to `name`.
  absl::Status UnknownVariable(absl::string_view name) const;

  // The next version, with `variable` added or (same id) replaced.
  std::shared_ptr<const Layout> With(VariableLayout variable) const;

 private:
  uint64_t version_ = 0;
  uint64_t hash_ = 0;
  std::map<VariableId, VariableLayout> variables_;
  std::map<std::string, VariableId, std::less<>> by_name_;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_LAYOUT_H_
