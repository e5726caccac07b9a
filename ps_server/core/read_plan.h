// A pull, checked and cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_READ_PLAN_H_
#define DIVVY_PS_SERVER_CORE_READ_PLAN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protocol/messages.h"
#include "ps_server/core/block_work.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/table/table_shard.h"

namespace divvy {

// Copies or lends blocks, each under its lock. A commit may be applied between two blocks. The plan
// holds its shards, so a deletion meanwhile does no harm.
class ReadPlan {
 public:
  // The memory in bytes that Make allocates for the values of `parts`. Does not check the rows
  // themselves: the memory of a pull is reserved first, and the pull is planned afterwards, with
  // the shards of that moment.
  //
  // Errors have a Reason and name the shard. kUnknownShard: a shard is not in `shards`. kInvalid:
  // rows are not int64 [n] in host memory; a shard is named whole twice; the number of bytes
  // overflows; or the values are larger than `most_bytes` (0: no limit) and than all shards named
  // together, which is possible only if rows are named repeatedly.
  static absl::StatusOr<int64_t> Bytes(absl::Span<const PullPart> parts, const ShardTable& shards,
                                       int64_t most_bytes);
  // Plans the pull. Errors as Bytes. Also kInvalid: a row is out of range. ResourceExhausted
  // without a Reason: no memory for the values, or no room in `target`. `target` is used only
  // within the call; null: the plan allocates memory. Keys of a table must be unique, in its order
  // and of its buckets, and a table is not read as a whole; else kInvalid.
  //
  // A whole shard of at least `least_lent` bytes that may be lent, and of which no single rows are
  // written, is not copied: Part::lent borrows its blocks.
  static absl::StatusOr<ReadPlan> Make(std::vector<PullPart> parts, const ShardTable& shards,
                                       int64_t most_bytes, int64_t unit_bytes,
                                       PullTarget* target = nullptr, int64_t least_lent = 0);

  const UnitList& units() const { return units_; }
  // Copies the blocks of one unit. REQUIRES: each unit is read once, in any order, on any thread.
  void Read(int64_t unit);

  struct Part {
    PullPart asked;
    std::shared_ptr<Shard> shard;
    Tensor values;                          // the values read; complete after all units
    std::shared_ptr<ScatteredTensor> lent;  // instead of `values`
    std::vector<int64_t> order;             // positions in the requested rows, sorted by row
    std::vector<TableKey> keys;             // of a table, instead of rows
    char* to = nullptr;                     // buffer of `values`
  };
  std::vector<Part>& parts() { return parts_; }

 private:
  explicit ReadPlan(int64_t unit_bytes) : units_(unit_bytes) {}
  absl::Status AddPart(PullPart asked, std::shared_ptr<Shard> shard, PullTarget* target,
                       int64_t least_lent);
  void CutIntoBlocks(size_t index);
  // What is copied under one block's lock.
  struct Piece {
    size_t part = 0;
    // Of a part that is lent, all blocks form one piece.
    int64_t block = 0;
    // For a part with rows: the positions order[begin] to order[end].
    size_t begin = 0, end = 0;
  };
  static void ReadBlock(const Part& part, const Piece& piece);
  static void ReadKeys(const Part& part, const Piece& piece, TableSegment& segment);

  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  UnitList units_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_READ_PLAN_H_
