// The backends of this build.
#ifndef DIVVY_OPS_BACKENDS_H_
#define DIVVY_OPS_BACKENDS_H_

#include "absl/status/statusor.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// The backend of a device; lives as long as the process. Unimplemented: a GPU where none is in use.
absl::StatusOr<const Backend*> BackendFor(Device device);

// That of all GPUs: null for none. Not while any is in use.
void SetGpuBackend(const Backend* backend);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_BACKENDS_H_
