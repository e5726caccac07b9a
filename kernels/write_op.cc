#include "kernels/write_op.h"

namespace divvy {

absl::string_view WriteOpName(WriteOp op) {
  switch (op) {
    case WriteOp::kAssign: return "assign";
    case WriteOp::kAdd: return "add";
    case WriteOp::kSub: return "sub";
    case WriteOp::kScatterUpdate: return "scatter_update";
    case WriteOp::kScatterAdd: return "scatter_add";
    case WriteOp::kScatterSub: return "scatter_sub";
    case WriteOp::kScatterMul: return "scatter_mul";
    case WriteOp::kScatterDiv: return "scatter_div";
    case WriteOp::kScatterMin: return "scatter_min";
    case WriteOp::kScatterMax: return "scatter_max";
    case WriteOp::kGradient: return "gradient";
    case WriteOp::kEvict: return "evict";
  }
  return "unknown";
}

}  // namespace divvy
