// The nouns of the protocol (docs/architecture.md has the table; each says who makes it and how
// long it lives). Values of 0 stand for "none" or "not known".
#ifndef DIVVY_CLUSTER_IDS_H_
#define DIVVY_CLUSTER_IDS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/strong_id.h"

namespace divvy {

// random, made at a job's first start; 0: none yet
DIVVY_STRONG_ID(JobId, uint64_t);
// +1 at each start of a coordinator and at each rewind, durable before its first message
DIVVY_STRONG_ID(Epoch, uint64_t);
// random, one for each process life; 0: not known
DIVVY_STRONG_ID(Incarnation, uint64_t);
// A worker life's right to commit, unique within an epoch.
DIVVY_STRONG_ID(SessionId, uint32_t);
// Of a step or direct write: given at first dispatch, never reused. Id order = order of first
// dispatch.
DIVVY_STRONG_ID(EntryId, uint64_t);
// Never reused in a job.
DIVVY_STRONG_ID(VariableId, uint32_t);
// An iterator that every worker makes for itself; never reused in a job.
DIVVY_STRONG_ID(ResourceId, uint64_t);

constexpr SessionId kCoordinatorSession{0};  // the coordinator's own: direct reads and writes
constexpr int64_t kMaxShards = 1 << 16;      // of a variable: what ShardKey::part counts

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

// A checkpoint of a job. Never used twice, so nobody overwrites anybody's file; in order of making.
// Each process joins name() to its own --checkpoint_dir: no path ever travels.
struct CheckpointId {
  // 0: none
  Epoch epoch;
  // +1 in the job with each, durable before it is used
  uint64_t serial = 0;
  std::string name() const { return absl::StrCat("ckpt-", epoch.value(), "-", serial); }
  friend bool operator==(CheckpointId a, CheckpointId b) {
    return a.epoch == b.epoch && a.serial == b.serial;
  }
  friend bool operator!=(CheckpointId a, CheckpointId b) { return !(a == b); }
  friend bool operator<(CheckpointId a, CheckpointId b) {
    return a.epoch == b.epoch ? a.serial < b.serial : a.epoch < b.epoch;
  }
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_IDS_H_
