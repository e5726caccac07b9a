// The memory of devices other than the CPU, for tensors.
#ifndef DIVVY_TENSOR_DEVICE_MEMORY_H_
#define DIVVY_TENSOR_DEVICE_MEMORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace divvy {

// Thread-safe. A device does what it is told in the order of the calls, later.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // REQUIRES (all): bytes > 0. ResourceExhausted: none is left. NotFound: there is no such device.
  virtual absl::StatusOr<void*> Allocate(Device device, int64_t bytes) = 0;
  // After all that the device has been told to do with it.
  virtual void Free(Device device, void* data) = 0;
  // `from` may be written to again when it returns.
  virtual absl::Status CopyIn(Device device, void* to, const void* from, int64_t bytes) = 0;
  // Waits for the device. An error: of the copy, or what a computation before it has found wrong with its data (InvalidArgument), or the device's (Internal).
  virtual absl::Status CopyOut(Device device, void* to, const void* from, int64_t bytes) = 0;
};

// Of all GPUs; lives as long as the process. Null: there are none, as at the start. Not while tensors are on one.
void SetGpuMemory(DeviceMemory* memory);
// Unimplemented: none has been set.
absl::StatusOr<DeviceMemory*> GpuMemory();

}  // namespace divvy

#endif  // DIVVY_TENSOR_DEVICE_MEMORY_H_
