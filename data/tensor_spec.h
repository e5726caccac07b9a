// The dtype and shape of a tensor that does not exist yet.
#ifndef DIVVY_DATA_TENSOR_SPEC_H_
#define DIVVY_DATA_TENSOR_SPEC_H_

#include "tensor/tensor.h"

namespace divvy {

// As tf.TensorSpec: Dataset::ElementSpec returns one for each leaf of its elements. A plain value.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  Shape shape;  // -1: varies
};

}  // namespace divvy

#endif  // DIVVY_DATA_TENSOR_SPEC_H_
