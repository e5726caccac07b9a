// The parts of a pull and of a commit, one for each shard (PullRequest, PullReply and
// CommitRequest, protocol/messages.h). Plain values. Tensors lie on the CPU, and no code writes to
// them again.
#ifndef DIVVY_VARIABLES_SHARD_TRANSFER_H_
#define DIVVY_VARIABLES_SHARD_TRANSFER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/write_op.h"
#include "optimizers/optimizer.h"
#include "tensor/scattered_tensor.h"
#include "tensor/tensor.h"
#include "variables/shard_key.h"

namespace divvy {

// What a read of a shard asks for.
enum class PullWant : uint8_t {
  kValues,
  // Of a table: int64 [n, 2]. For each key the number of finished steps that named it since its row
  // began, -1 if it has none; and the latest minute of these steps.
  kRecords,
  // Of a table, without rows: int64 [1, 6], the numbers of TablePartStats.
  kStats,
};

// A read of one shard: all rows, or those at `rows` (int64 [n], local to the shard, any order,
// repeats allowed).
struct PullPart {
  ShardKey shard;
  std::optional<Tensor> rows;
  // The size of the reply's values, by the layout that the caller knows; not sent. A reply that
  // announces another size is refused before memory is allocated for it. -1: not known.
  int64_t reply_bytes = -1;
  // Of a float32 shard: the values are wanted as bfloat16, rounded to nearest.
  bool as_bfloat16 = false;
  // Of a whole shard: the reply may have PullPartReply::lent. A commit copies each block that it
  // meets lent, so let go of the reply soon. Not sent: the client decides about what it gets, and
  // the server about what it sends.
  bool may_lend = false;
  PullWant want = PullWant::kValues;
};
struct PullPartReply {
  // [rows, ...]: the rows that were requested
  Tensor values;
  // The version of the shard when the read began.
  uint64_t version = 0;
  // A commit was applied during the read. Each block of rows is consistent, but the shard is not.
  bool torn = false;
  // Instead of `values`, if it is set (PullPart::may_lend): the memory of the shard itself, or the
  // messages that brought the values. It does not change as long as somebody holds it.
  std::shared_ptr<const ScatteredTensor> lent = nullptr;
};
struct PullReply {
  // in the order of the request
  std::vector<PullPartReply> parts;
  // From the whole request until the reply was known; 0: not said. For people only.
  absl::Duration served = {};
};

// One write to one shard. Parts of one variable are applied in the given order.
struct CommitPart {
  // slot 0
  ShardKey shard;
  WriteOp op = WriteOp::kAssign;
  // int64 [n], local to the shard. Set for scatters and for sparse gradients, whose rows are unique
  // and rising.
  std::optional<Tensor> rows;
  // The shard's shape, or [n, ...] if `rows` is set. The shard's dtype; a gradient without rows may
  // be bfloat16.
  Tensor values;
  // Instead of `values`, if it is set: the values as they arrived at a ps. Not for scatters.
  std::shared_ptr<const ScatteredTensor> arrived = nullptr;
  // set for kGradient
  std::optional<OptimizerStep> optimizer;
  // set for kGradient: slot numbers, in the order of SlotsOf
  std::vector<uint8_t> slots;
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_SHARD_TRANSFER_H_
