// Arithmetic across the GPUs of this process.
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
  // For each GPU a new tensor with the elementwise sum of what all have, added in an order that is
  // not told. Empty, and nothing is done: there is no library for it on this machine, or it does
  // not take these, or sums must be deterministic; then add them one after the other. REQUIRES: two
  // or more, each on another GPU; of one dtype and shape, not empty.
  virtual absl::StatusOr<std::vector<Tensor>> AllReduce(absl::Span<const Tensor> values) const = 0;
};

// Of all GPUs; lives as long as the process. Null for none, as at the start. Not while any is in
// use.
void SetGpuCollectives(const Collectives* collectives);
const Collectives* GpuCollectives();

}  // namespace divvy::internal

#endif  // DIVVY_OPS_COLLECTIVES_H_
