// What benchmarks of copies to a device wait by.
#ifndef DIVVY_BENCH_GPU_COPIES_H_
#define DIVVY_BENCH_GPU_COPIES_H_

#include "absl/status/status.h"
#include "tensor/tensor.h"

namespace divvy::bench {

// Waits until the device has done all that this thread has told it, and brings an element that it
// computes behind that. So Divvy knows that the device is done with the memory of tensors that are
// gone, and copies into it again. After a wait that Divvy does not know of (cudaDeviceSynchronize,
// for one) each copy would get memory of its own, and a benchmark would measure how that is got.
absl::Status AwaitCopies(Device device);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_COPIES_H_
