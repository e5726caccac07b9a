// The key of a shard: a variable, and a part of it.
#ifndef DIVVY_VARIABLES_SHARD_KEY_H_
#define DIVVY_VARIABLES_SHARD_KEY_H_

#include <cstdint>
#include <ostream>

#include "base/strong_id.h"

namespace divvy {

// The coordinator assigns it when it creates the variable. Never reused in a job. 0: none.
DIVVY_STRONG_ID(VariableId, uint32_t);

// The most shards of one variable: ShardKey::part has 16 bits.
constexpr int64_t kMaxShards = 1 << 16;

// One shard of a variable (slot 0) or of one of its optimizer slots (from 1). Ids are never reused.
// So a commit needs no other version check than whether its shards exist.
struct ShardKey {
  VariableId variable;
  // VariableLayout::slots[slot - 1]
  uint8_t slot = 0;
  // parts are numbered from 0, by first row
  uint16_t part = 0;
  // The three fields in one number that sorts like the keys: by variable, then slot, then part.
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
