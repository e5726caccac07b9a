#include "tensor/device_memory.h"

#include <atomic>
#include <utility>

namespace divvy {
namespace {

std::atomic<DeviceMemory*> gpu_memory{nullptr};
thread_local Travel travel_now = Travel::kNow;

}  // namespace

TravelScope::TravelScope(Travel travel) : before_(std::exchange(travel_now, travel)) {}

TravelScope::~TravelScope() { travel_now = before_; }

Travel TravelScope::Now() { return travel_now; }

void SetGpuMemory(DeviceMemory* memory) { gpu_memory = memory; }

DeviceMemory* GpuMemoryIfAny() { return gpu_memory.load(std::memory_order_acquire); }

absl::StatusOr<DeviceMemory*> GpuMemory() {
  DeviceMemory* const memory = GpuMemoryIfAny();
  if (memory == nullptr)
    return absl::UnimplementedError(
        "no GPU is in use: this process computes on the CPU (GPUs need --gpus and a build with "
        "--config=cuda)");
  return memory;
}

}  // namespace divvy
