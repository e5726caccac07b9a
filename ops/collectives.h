// Collectives: arithmetic across the GPUs of this process.
#ifndef DIVVY_OPS_COLLECTIVES_H_
#define DIVVY_OPS_COLLECTIVES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// Thread-safe. Does not wait for the GPUs.
class Collectives {
 public:
  virtual ~Collectives() = default;
  // Returns a new tensor on each GPU with the elementwise sum of all `values`; the order of
  // additions is unspecified. Returns an empty vector and does nothing if this machine has no
  // library for it, if the library does not support these values, or if sums must be deterministic.
  // Then add the values one after another. REQUIRES: two or more values, not empty, of the same
  // dtype and shape, each on another GPU.
  virtual absl::StatusOr<std::vector<Tensor>> AllReduce(absl::Span<const Tensor> values) const = 0;
};

// Sets the collectives of all GPUs; null means none, as initially. They live as long as the
// process. Do not call it while a GPU is in use.
void SetGpuCollectives(const Collectives* collectives);
const Collectives* GpuCollectives();

}  // namespace divvy::internal

#endif  // DIVVY_OPS_COLLECTIVES_H_
