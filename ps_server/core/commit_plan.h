// A commit, checked and cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
#define DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/messages.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/frozen_shards.h"
#include "ps_server/core/shard.h"

namespace divvy {

// Everything that could be refused has been: applying cannot fail and allocates nothing but what
// `frozen` keeps. All parts of one shard are applied to a block at once, in the order given, under
// the block's lock; so a read of a block sees all of a commit's writes to it or none. Blocks are
// independent of each other (every operation works row by row), so the result does not depend on
// the order of the units. Immutable; holds its shards and the commit's tensors.
class CommitPlan {
 public:
  // Errors with a Reason, naming the part, the shard and both shapes or dtypes. kUnknownShard: a
  // shard or slot is not in `shards`. kBadCommit: no parts; a part that does not name a slot 0;
  // rows where the operation takes none, or none where it does; rows that are not int64 [n], out of
  // range, or (gradients) not unique and rising; values of another dtype or shape, or not in host
  // memory; an operation that the dtype does not take; a gradient of something else than float32,
  // with an invalid OptimizerStep, or with slots that are not those of its kind.
  // Pure. A unit is as much work as `unit_bytes` of parameters.
  static absl::StatusOr<CommitPlan> Make(std::vector<CommitPart> parts, const ShardTable& shards,
                                         int64_t unit_bytes);

  const UnitList& units() const { return units_; }
  // Writes the blocks of one unit, each after `frozen` (null: none) has been told which rows.
  // REQUIRES: the commit has its turn at all shards of queues(); each unit is applied once, in any
  // order, on any thread.
  void Apply(int64_t unit, FrozenShards* frozen = nullptr) const;

  // At most what Apply has `frozen` keep, all units together.
  int64_t most_kept_bytes() const { return most_kept_bytes_; }

  // The variables' shards it writes to (slot 0), rising: a turn at each of them covers the slots
  // too.
  std::vector<ShardKey> queues() const;
  // All shards it writes to, slots included.
  const ShardTable& shards() const { return touched_; }
  // The shard of each part, as requested.
  const std::vector<std::shared_ptr<Shard>>& part_shards() const { return part_shards_; }

 private:
  struct Op {
    CommitPart part;
    // Of a gradient.
    std::vector<Shard*> slots;
    // Of a scatter: positions of `rows`, by block, within a block as given.
    std::vector<int64_t> order;
  };
  struct Target {
    std::shared_ptr<Shard> shard;
    std::vector<Op> ops;
  };
  explicit CommitPlan(int64_t unit_bytes) : units_(unit_bytes) {}
  absl::Status AddPart(CommitPart part, const ShardTable& shards);
  absl::Status AddSlots(const ShardTable& shards, const Shard& shard, Op& op);
  void CutIntoBlocks();
  static std::set<int64_t> BlocksOf(const Target& target);
  static void Keep(FrozenShards& frozen, const Target& target, int64_t block);
  static void ApplyOp(const Op& op, Shard& shard, int64_t block);
  static void ApplyRows(const Op& op, Shard& shard, int64_t block);
  static void ApplyGradient(const Op& op, Shard& shard, int64_t block);

  std::map<ShardKey, Target> targets_;
  // target and block; targets_ does not change any more
  std::vector<std::pair<const Target*, int64_t>> pieces_;
  UnitList units_;
  int64_t most_kept_bytes_ = 0;
  ShardTable touched_;
  std::vector<std::shared_ptr<Shard>> part_shards_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
