// The memory of devices other than the CPU, for tensors.
#ifndef DIVVY_TENSOR_DEVICE_MEMORY_H_
#define DIVVY_TENSOR_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy {

// A point in what a device has been told to compute: all of it before.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
};

// A value on its way from a device to the CPU.
struct Download {
  Device from_device;
  const void* from = nullptr;
  void* to = nullptr;  // the CPU's
  int64_t bytes = 0;
  // When the last computation that writes to `from` was told; null: now.
  std::shared_ptr<const DeviceMark> written = nullptr;
};

// What was found wrong on a device so far: by whom it was looked for does not matter.
struct DeviceFailures {
  int64_t count = 0;
  absl::Status last;
  // Unavailable, with why: this process cannot use the device any more
  absl::Status lost;
};

// How the values of the CPU travel that a thread brings to GPUs.
enum class Travel : uint8_t {
  kNow,
  // Integers may wait until the GPU first uses them. Of a batch often only lookups on the CPU read
  // them.
  kIntegersWhenUsed,
  // Now, but only into memory that is free: nothing is given up for them. ResourceExhausted: none
  // is free.
  kIfRoom,
};

// While it lives, values that this thread brings to GPUs travel in this manner. Outside any: kNow.
// Scopes nest.
class TravelScope {
 public:
  explicit TravelScope(Travel travel);
  ~TravelScope();
  TravelScope(const TravelScope&) = delete;
  TravelScope& operator=(const TravelScope&) = delete;
  // The calling thread's.
  static Travel Now();

 private:
  const Travel before_;
};

// Thread-safe. A device computes what it is told in the order of the calls, later; copies run
// beside it. What is computed with memory that a call returned waits for that copy by itself.
// REQUIRES (all): bytes > 0.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // ResourceExhausted: none is left. NotFound: there is no such device.
  virtual absl::StatusOr<void*> Allocate(Device device, int64_t bytes) = 0;
  // After all that the device has been told to do with it.
  virtual void Free(Device device, void* data) = 0;

  // New memory of the device with these bytes, later. `owner` owns `from`, which is not written to
  // while it is held: perhaps for longer than the call. Errors as Allocate.
  virtual absl::StatusOr<void*> Upload(Device device, const void* from, int64_t bytes,
                                       std::shared_ptr<const void> owner) = 0;
  // As Upload, but the bytes may travel later: when the memory is first computed with or copied
  // from. Where that never happens they do not travel at all.
  virtual absl::StatusOr<void*> UploadWhenUsed(Device device, const void* from, int64_t bytes,
                                               std::shared_ptr<const void> owner) {
    return Upload(device, from, bytes, std::move(owner));
  }
  // New memory of `device` with the bytes of another's, later. Errors as Allocate.
  virtual absl::StatusOr<void*> CopyAcross(Device device, const Download& from) = 0;
  // Waits for the computations that each value's mark stands for and for the copies, not for what
  // the devices were told since. An error: of a copy, or what a computation before it has found
  // wrong with its data (InvalidArgument), or the device's (Internal); nothing may then be said of
  // the values. Unavailable: the device is lost to this process, and every later call says so,
  // Allocate and Upload as well: only another process may find it well.
  virtual absl::Status Bring(absl::Span<const Download> values) = 0;
  virtual std::shared_ptr<const DeviceMark> Mark(Device device) = 0;
  // Waits for all that the device was told. What goes wrong is told to one who waits, and the
  // device forgets it; so whoever must know whether all of a piece of work was done well compares
  // the counts before and after it.
  virtual DeviceFailures FindFailures(Device device) = 0;

  // Memory of the CPU that is copied from and to devices without a detour. Null: no more is to be
  // had; take other memory.
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* data) = 0;
};

// Of all GPUs; lives as long as the process. Null: there are none, as at the start. Not while
// tensors are on one, or in memory of AllocateHost.
void SetGpuMemory(DeviceMemory* memory);
// Unimplemented: none has been set.
absl::StatusOr<DeviceMemory*> GpuMemory();
// Null: none has been set.
DeviceMemory* GpuMemoryIfAny();

}  // namespace divvy

#endif  // DIVVY_TENSOR_DEVICE_MEMORY_H_
