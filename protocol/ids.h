// The identifiers of the protocol. docs/internals/architecture.md has a table of who makes each one
// and how long it lives. 0 stands for "none" or "not known".
#ifndef DIVVY_PROTOCOL_IDS_H_
#define DIVVY_PROTOCOL_IDS_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/strong_id.h"
#include "variables/shard_key.h"

namespace divvy {

// random, made at a job's first start; 0: none yet
DIVVY_STRONG_ID(JobId, uint64_t);
// +1 at each start of a coordinator and at each rewind; durable before the epoch's first message
DIVVY_STRONG_ID(Epoch, uint64_t);
// random, one for each process life; 0: not known
DIVVY_STRONG_ID(Incarnation, uint64_t);
// A worker life's right to commit, unique within an epoch.
DIVVY_STRONG_ID(SessionId, uint32_t);
// A step or direct write. Assigned at its first dispatch and never reused, so the order of ids is
// the order of first dispatch.
DIVVY_STRONG_ID(EntryId, uint64_t);
// An iterator that every worker makes for itself; never reused in a job.
DIVVY_STRONG_ID(ResourceId, uint64_t);

constexpr SessionId kCoordinatorSession{0};  // the coordinator's own: direct reads and writes

// A checkpoint of a job. Ids grow in the order in which checkpoints are made, and none is used
// twice, so no process overwrites another's file. Each process appends name() to its own
// --checkpoint_dir: paths are never sent.
struct CheckpointId {
  // 0: none
  Epoch epoch;
  // +1 for each checkpoint of the job; durable before it is used
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

#endif  // DIVVY_PROTOCOL_IDS_H_
