#include "ops/backends.h"
#include "ops/cuda/gpu_backend.h"
#include "ops/cuda/testing/host_math.h"
#include "ops/testing/place.h"
#ifdef DIVVY_HOST_THREADS
#include "ops/cuda/testing/host_threads.h"
#endif

namespace divvy {
namespace {

// Runs everything as late as possible, and waits for a value from the CPU only when it is used. So
// an operation that does not declare what it uses computes with data that have not arrived.
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
