// The operations that a write applies to the elements of a variable.
#ifndef DIVVY_KERNELS_WRITE_OP_H_
#define DIVVY_KERNELS_WRITE_OP_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace divvy {

// What one write does. The first three, and a dense gradient, apply to the whole variable. The
// scatters, and a sparse gradient, apply to the rows that the write names. A scatter applies every
// occurrence of an id, in the order given; kScatterUpdate keeps the last. A sparse gradient's rows
// of one id are summed first (kernels/duplicates.h).
enum class WriteOp : uint8_t {
  kAssign,
  kAdd,
  kSub,
  kScatterUpdate,
  kScatterAdd,
  kScatterSub,
  kScatterMul,
  kScatterDiv,
  kScatterMin,
  kScatterMax,
  kGradient,
  // Of tables alone: rows go by the table's rule. The write names what Evict of
  // ps_server/core/table needs instead of rows, and has no values.
  kEvict
};

// Whether the operation writes single rows.
constexpr bool IsScatter(WriteOp op) {
  return op >= WriteOp::kScatterUpdate && op <= WriteOp::kScatterMax;
}
// "assign", "scatter_add", ...: for messages.
absl::string_view WriteOpName(WriteOp op);

}  // namespace divvy

#endif  // DIVVY_KERNELS_WRITE_OP_H_
