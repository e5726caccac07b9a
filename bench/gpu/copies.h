// The wait that benchmarks of copies to a device use.
#ifndef DIVVY_BENCH_GPU_COPIES_H_
#define DIVVY_BENCH_GPU_COPIES_H_

#include "absl/status/status.h"
#include "tensor/tensor.h"

namespace divvy::bench {

// Waits until the device has done all work of this thread, by copying an element back that the
// device computes last. Divvy then knows that the device no longer uses the memory of destroyed
// tensors, and reuses that memory for copies. After a wait that Divvy does not see, such as
// cudaDeviceSynchronize, each copy would allocate memory, and a benchmark would measure the
// allocations. Errors: those of the copies and of the computation.
absl::Status AwaitCopies(Device device);

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_COPIES_H_
