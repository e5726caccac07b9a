#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/testing/place.h"

namespace divvy {
namespace {

Device Open() {
  static auto* const math = new cuda::HostMath(1);
  static auto* const backend = new internal::GpuBackend(*math);
  SetGpuMemory(backend);
  internal::SetGpuBackend(backend);
  return Device{Device::Kind::kGpu, 0};
}

}  // namespace

absl::StatusOr<Device> TestDevice() {
  static const Device device = Open();
  return device;
}

}  // namespace divvy
