// The backends that this process has.
#ifndef DIVVY_OPS_BACKENDS_H_
#define DIVVY_OPS_BACKENDS_H_

#include "absl/status/statusor.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// The backend of a device; it lives as long as the process. Unimplemented: `device` is a GPU and
// this process uses none.
absl::StatusOr<const Backend*> BackendFor(Device device);

// Sets the backend of all GPUs; null means none. Do not call it while a GPU is in use.
void SetGpuBackend(const Backend* backend);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_BACKENDS_H_
