#include "ops/collectives.h"

#include <atomic>

namespace divvy::internal {
namespace {

std::atomic<const Collectives*> gpu_collectives{nullptr};

}  // namespace

void SetGpuCollectives(const Collectives* collectives) { gpu_collectives = collectives; }

const Collectives* GpuCollectives() { return gpu_collectives; }

}  // namespace divvy::internal
