// The element type in which the values of a variable travel.
#ifndef DIVVY_VARIABLES_TRANSFER_DTYPE_H_
#define DIVVY_VARIABLES_TRANSFER_DTYPE_H_

#include "tensor/dtype.h"

namespace divvy {

// The dtype of what a program reads from a variable and writes to it: that of its spec
// (VariableSpec or ShardSpec). The rows of a dynamic table may be stored as halves, and are float32
// wherever they are not stored.
template <typename Spec>
DType TransferDType(const Spec& spec) {
  return spec.table ? DType::kFloat32 : spec.dtype;
}

}  // namespace divvy

#endif  // DIVVY_VARIABLES_TRANSFER_DTYPE_H_
