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

namespace divvy {

// Copies blocks out, each whole under its lock; a commit may land between two of them. Holds its
// shards, so a delete meanwhile does no harm.
class ReadPlan {
 public:
  // The bytes of the values that are asked for: what Make takes memory for. Looks at no row: a pull
  // is counted before it waits for that memory, and planned when it has it, by the shards of that
  // moment. Errors with a Reason, naming the shard. kUnknownShard. kInvalid: rows that are not
  // int64 [n] in host memory; a shard that is named whole twice; more bytes than can be counted; or
  // more than `most_bytes` (0: any) and than the shards named have, since rows are named again and
  // again.
  static absl::StatusOr<int64_t> Bytes(absl::Span<const PullPart> parts, const ShardTable& shards,
                                       int64_t most_bytes);
  // Errors as Bytes; kInvalid, too, for rows out of range. Else ResourceExhausted: no memory for
  // the answer.
  static absl::StatusOr<ReadPlan> Make(std::vector<PullPart> parts, const ShardTable& shards,
                                       int64_t most_bytes, int64_t unit_bytes);

  const UnitList& units() const { return units_; }
  // Copies the blocks of one unit. REQUIRES: each unit is read once, in any order, on any thread.
  void Read(int64_t unit);

  struct Part {
    PullPart asked;
    std::shared_ptr<Shard> shard;
    Tensor values;               // what is read; complete after all units
    std::vector<int64_t> order;  // positions of the rows asked for, by block
    char* to = nullptr;          // values' buffer
  };
  std::vector<Part>& parts() { return parts_; }

 private:
  explicit ReadPlan(int64_t unit_bytes) : units_(unit_bytes) {}
  absl::Status AddPart(PullPart asked, std::shared_ptr<Shard> shard);
  void CutIntoBlocks(size_t index);
  static void ReadBlock(const Part& part, int64_t block);

  std::vector<Part> parts_;
  std::vector<std::pair<size_t, int64_t>> pieces_;  // index of the part, block
  UnitList units_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_READ_PLAN_H_
