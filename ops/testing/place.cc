#include "ops/testing/place.h"

namespace divvy {

Tensor There(const Tensor& x) {
  const absl::StatusOr<Device> device = TestDevice();
  return device.ok() ? *x.To(*device) : x;
}

}  // namespace divvy
