// A commit, checked and cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
#define DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "optimizers/apply.h"
#include "protocol/messages.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/frozen_shards.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/table/table_shard.h"

namespace divvy {

// Make checks everything that could be refused, so applying cannot fail. Applying allocates only
// the copies that `frozen` keeps, places for blocks that pulls have borrowed (Shard), and buffers
// of 64 KiB, or of a row if that is longer. All parts of one shard are applied to a block at once,
// in the order given, under the block's lock, so a read of a block sees all of a commit's writes to
// it or none. Every operation works row by row, so blocks are independent, and the result does not
// depend on the order of the units. Immutable; holds its shards and the commit's tensors.
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
  //   invalid OptimizerStep, or names slots that are not those of its optimizer. Of a table: keys
  //   are not unique, in its order and of its buckets; the operation is none that a table takes; or
  //   the optimizer is not the table's own.
  // `stamp` is for tables.
  static absl::StatusOr<CommitPlan> Make(std::vector<CommitPart> parts, const ShardTable& shards,
                                         int64_t unit_bytes, const TableStamp& stamp = {});

  const UnitList& units() const { return units_; }
  // Writes the blocks of one unit. Before it writes a block, it calls `frozen` (null: none) with
  // the rows that will change. REQUIRES: the commit has its turn at all shards of queues(); each
  // unit is applied once, in any order, on any thread.
  void Apply(int64_t unit, FrozenShards* frozen = nullptr) const;

  // Whether it lets rows of tables go.
  bool evicts() const;
  // Counts the step once more for the keys of tables that it names. For the simulation, which
  // breaks rules (base/breakable.h).
  void CountAgain() const;

  // Upper bound of the bytes that Apply makes `frozen` keep, for all units together.
  int64_t most_kept_bytes() const { return most_kept_bytes_; }

  // The variables' shards (slot 0) that the commit writes to, in rising order. A turn at each of
  // them covers the slots, too.
  std::vector<ShardKey> queues() const;
  // All shards that the commit writes to, with slots; each once.
  const std::vector<std::shared_ptr<Shard>>& shards() const { return touched_; }
  // The shard of each part, as requested.
  const std::vector<std::shared_ptr<Shard>>& part_shards() const { return part_shards_; }

 private:
  struct Op {
    CommitPart part;
    // Slots of a gradient.
    absl::InlinedVector<Shard*, ParameterBlock::kMaxSlots> slots;
    // Of a scatter: positions in `rows`, sorted by row; in the given order of one row.
    std::vector<int64_t> order;
    // Of a table: `rows`. Empty for kEvict.
    std::vector<TableKey> keys;
  };
  struct Target {
    std::shared_ptr<Shard> shard;
    absl::InlinedVector<Op, 1> ops;
  };
  CommitPlan(int64_t unit_bytes, const TableStamp& stamp) : stamp_(stamp), units_(unit_bytes) {}
  // REQUIRES: the parts of one shard come one after another.
  absl::Status AddPart(size_t index, CommitPart part, const ShardTable& shards);
  absl::Status AddTablePart(size_t index, CommitPart part, const std::shared_ptr<Shard>& shard);
  Target& TargetOf(const std::shared_ptr<Shard>& shard);
  absl::Status AddSlots(const ShardTable& shards, const Shard& shard, Op& op);
  void CutIntoBlocks();
  void AddPiece(size_t target, int64_t block, int64_t rows);
  // The blocks that a target's operations touch, each with the number of rows that they touch.
  static std::map<int64_t, int64_t> RowsByBlock(const Target& target);
  static void Keep(FrozenShards& frozen, const Target& target, int64_t block);
  static void ApplyOp(const Op& op, Shard& shard, int64_t block);
  static void ApplyRows(const Op& op, Shard& shard, int64_t block);
  // Rows [first, end) of a block, with their slots.
  static ParameterBlock RowsAt(const Op& op, Shard& shard, int64_t block, int64_t first,
                               int64_t end);
  static void ApplyGradient(const Op& op, Shard& shard, int64_t block);
  void ApplyToTable(const Target& target, int64_t block) const;
  // The keys of an operation that lie in a segment.
  static absl::Span<const TableKey> KeysIn(const Op& op, const Shard& shard, int64_t block);
  TableCounts ApplyToSegment(const Op& op, const Shard& shard, absl::Span<const TableKey> keys,
                             const NamedKeys& named, TableSegment& segment) const;
  static int64_t MostKept(const Op& op, const Shard& shard);

  TableStamp stamp_;
  // in rising order of their keys
  std::vector<Target> targets_;
  // Target (an index) and block of each piece.
  std::vector<std::pair<size_t, int64_t>> pieces_;
  UnitList units_;
  int64_t most_kept_bytes_ = 0;
  std::vector<std::shared_ptr<Shard>> touched_;
  std::vector<std::shared_ptr<Shard>> part_shards_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_COMMIT_PLAN_H_
