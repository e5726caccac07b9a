// What one pull and one commit carry for each shard: PullReply, and the parts of PullRequest and
// CommitRequest (protocol/messages.h). Plain values; tensors lie on the CPU, and nobody writes to
// them again.
#ifndef DIVVY_VARIABLES_SHARD_TRANSFER_H_
#define DIVVY_VARIABLES_SHARD_TRANSFER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/write_op.h"
#include "optimizers/optimizer.h"
#include "tensor/tensor.h"
#include "variables/shard_key.h"

namespace divvy {

// Rows of one shard: all of them, or those at `rows` (int64 [n], local to the shard, any order,
// repeats allowed).
struct PullPart {
  ShardKey shard;
  std::optional<Tensor> rows;
  // What the values of the reply take, by the layout that the asker knows; not sent. A reply that
  // announces anything else is refused before there is memory for it. -1: not known.
  int64_t reply_bytes = -1;
};
struct PullPartReply {
  // [rows, ...] of the part
  Tensor values;
  // Of the shard when the reading began.
  uint64_t version = 0;
  // A commit landed while it was read: each block is whole, the shard is not.
  bool torn = false;
};
struct PullReply {
  std::vector<PullPartReply> parts;  // as requested
};

// One write to one shard. Parts of one variable apply in the order given.
struct CommitPart {
  ShardKey shard;  // slot 0
  WriteOp op = WriteOp::kAssign;
  // int64 [n], local to the shard: scatters and sparse gradients (there unique and rising)
  std::optional<Tensor> rows;
  Tensor values;                           // [rows, ...] or [n, ...]
  std::optional<OptimizerStep> optimizer;  // kGradient
  std::vector<uint8_t> slots;              // kGradient: slot numbers, in the order of SlotsOf
};

}  // namespace divvy

#endif  // DIVVY_VARIABLES_SHARD_TRANSFER_H_
