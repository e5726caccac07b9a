// Where the tests of operations compute: what such a test is linked with says it. One of
// :cpu_place, //ops/cuda/testing:host_place (a GPU that the host plays) and
// //ops/cuda/testing:gpu_place (one of this machine), each a TestDevice.
#ifndef DIVVY_OPS_TESTING_PLACE_H_
#define DIVVY_OPS_TESTING_PLACE_H_

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace divvy {

// An error: this machine has none such; its tests are then skipped with these words.
absl::StatusOr<Device> TestDevice();

// x on that device; x itself where there is none.
Tensor There(const Tensor& x);

}  // namespace divvy

#endif  // DIVVY_OPS_TESTING_PLACE_H_
