#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/testing/place.h"
#ifdef DIVVY_HOST_THREADS
#include "ops/cuda/testing/host_threads.h"
#endif

namespace divvy {
namespace {

// Does all as late as it may, and every value that comes from the CPU is waited for only when it is
// used: an operation that does not say what it uses computes with what is not there.
Device Open() {
  static auto* const math = new cuda::HostMath(1, cuda::HostQueues::Manner::kLate);
#ifdef DIVVY_HOST_THREADS
  static auto* const threads = new cuda::HostThreads(
      cuda::HostThreads::Order::kTogether, 1, [](const char* wrong) { math->Note(0, wrong); });
  math->UseBlock(0, threads);
#endif
  cuda::TransferOptions transfers;
  transfers.large_bytes = 0;
  static auto* const backend = new internal::GpuBackend(*math, 0, transfers);
  math->keep_log = false;
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
