// The device on which the tests of operations run. It is chosen by the library that a test links:
// one of :cpu_place, //ops/cuda/testing:host_place (a GPU that is emulated on the host) and
// //ops/cuda/testing:gpu_place (a real GPU of this machine). Each defines TestDevice.
#ifndef DIVVY_OPS_TESTING_PLACE_H_
#define DIVVY_OPS_TESTING_PLACE_H_

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace divvy {

// The device. An error: this machine has no such device; its tests are then skipped with this
// message.
absl::StatusOr<Device> TestDevice();

// x on that device; x itself if there is no such device.
Tensor There(const Tensor& x);

}  // namespace divvy

#endif  // DIVVY_OPS_TESTING_PLACE_H_
