#include "ops/backends.h"

#include "absl/strings/str_cat.h"
#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {

absl::StatusOr<const Backend*> BackendFor(Device device) {
  static const CpuBackend* const cpu = new CpuBackend();
  if (device.kind == Device::Kind::kCpu) return cpu;
  return absl::UnimplementedError(absl::StrCat("nothing computes on ", device.ToString(), " in this build; move the tensor with To(Device{})"));
}

}  // namespace divvy::internal
