// A commit, checked and cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
#define DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "protocol/messages.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/frozen_shards.h"
#include "ps_server/core/shard.h"

namespace divvy {

// Make checks everything that could be refused, so applying cannot fail. Applying allocates nothing
// but the copies that `frozen` keeps. All parts of one shard are applied to a block at once, in the
// order given, under the block's lock, so a read of a block sees all of a commit's writes to it or
// none. Every operation works row by row, so blocks are independent, and the result does not depend
// on the order of the units. Immutable; holds its shards and the commit's tensors.
class CommitPlan {
 public:
  // Checks the parts and cuts them into blocks. A unit has about `unit_bytes` of parameters. Pure.
  //
  // Errors have a Reason and name the operation and the shard, and both shapes or dtypes if they
  // differ.
  // - kUnknownShard: a shard or slot is not in `shards`.
  // - kBadCommit: there are no parts; a part does not name slot 0; the operation takes no rows and
  //   has some, or needs rows and has none; rows are not int64 [n], out of range, or (gradients)
  //   not unique and rising; values have another dtype or shape, or are not in host memory; the
  //   dtype does not take the operation; a gradient is for a dtype other than float32, has an
  //   invalid OptimizerStep, or names slots that are not those of its optimizer.
  static absl::StatusOr<CommitPlan> Make(std::vector<CommitPart> parts, const ShardTable& shards,
                                         int64_t unit_bytes);

  const UnitList& units() const { return units_; }
  // Writes the blocks of one unit. Before it writes a block, it calls `frozen` (null: none) with
  // the rows that will change. REQUIRES: the commit has its turn at all shards of queues(); each
  // unit is applied once, in any order, on any thread.
  void Apply(int64_t unit, FrozenShards* frozen = nullptr) const;

  // Upper bound of the bytes that Apply makes `frozen` keep, for all units together.
  int64_t most_kept_bytes() const { return most_kept_bytes_; }

  // The variables' shards (slot 0) that the commit writes to, in rising order. A turn at each of
  // them covers the slots, too.
  std::vector<ShardKey> queues() const;
  // All shards that the commit writes to, with slots.
  const ShardTable& shards() const { return touched_; }
  // The shard of each part, as requested.
  const std::vector<std::shared_ptr<Shard>>& part_shards() const { return part_shards_; }

 private:
  struct Op {
    CommitPart part;
    // Slots of a gradient.
    std::vector<Shard*> slots;
    // Of a scatter: positions in `rows`, sorted by row; in the given order of one row.
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
  // The blocks that a target's operations touch, each with the number of rows that they touch.
  static std::map<int64_t, int64_t> RowsByBlock(const Target& target);
  static void Keep(FrozenShards& frozen, const Target& target, int64_t block);
  static void ApplyOp(const Op& op, Shard& shard, int64_t block);
  static void ApplyRows(const Op& op, Shard& shard, int64_t block);
  static void ApplyGradient(const Op& op, Shard& shard, int64_t block);

  std::map<ShardKey, Target> targets_;
  // Target and block of each piece. The pointers stay valid because targets_ no longer changes.
  std::vector<std::pair<const Target*, int64_t>> pieces_;
  UnitList units_;
  int64_t most_kept_bytes_ = 0;
  ShardTable touched_;
  std::vector<std::shared_ptr<Shard>> part_shards_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
