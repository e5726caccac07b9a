#include "ops/backends.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {

namespace {

std::atomic<const Backend*> gpu_backend{nullptr};

}  // namespace

void SetGpuBackend(const Backend* backend) { gpu_backend = backend; }

absl::StatusOr<const Backend*> BackendFor(Device device) {
  static const CpuBackend* const cpu = new CpuBackend();
  if (device.kind == Device::Kind::kCpu) return cpu;
  if (const Backend* const gpu = gpu_backend) return gpu;
  return absl::UnimplementedError(
      absl::StrCat("nothing computes on ", device.ToString(),
                   " in this process; move the tensor with To(Device{})"));
}

}  // namespace divvy::internal
