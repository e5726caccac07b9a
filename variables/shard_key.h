// Which variable, and which part of it.
#ifndef DIVVY_VARIABLES_SHARD_KEY_H_
#define DIVVY_VARIABLES_SHARD_KEY_H_

#include <cstdint>
#include <ostream>

#include "base/strong_id.h"

namespace divvy {

// Given by the coordinator when the variable is created. Never reused in a job. 0: none.
DIVVY_STRONG_ID(VariableId, uint32_t);

// The most shards of one variable: what ShardKey::part counts.
constexpr int64_t kMaxShards = 1 << 16;

// One shard of a variable (slot 0) or of one of its optimizer slots (from 1). Ids are never reused,
// so "does this shard exist" is the whole version check of a commit.
struct ShardKey {
  VariableId variable;
  uint8_t slot = 0;   // VariableLayout::slots[slot - 1]
  uint16_t part = 0;  // by first row, from 0
  // All three in one number, in the order of the keys: variable, then slot, then part.
  uint64_t packed() const {
    return (static_cast<uint64_t>(variable.value()) << 24) | (static_cast<uint64_t>(slot) << 16) |
           part;
  }
  friend bool operator==(ShardKey a, ShardKey b) { return a.packed() == b.packed(); }
  friend bool operator!=(ShardKey a, ShardKey b) { return !(a == b); }
  friend bool operator<(ShardKey a, ShardKey b) { return a.packed() < b.packed(); }
  friend std::ostream& operator<<(std::ostream& out, ShardKey key) {
    return out << key.variable << "/slot " << int{key.slot} << "/part " << key.part;
  }
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_SHARD_KEY_H_
