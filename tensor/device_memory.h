// The interface to the memory of GPUs, for tensors.
#ifndef DIVVY_TENSOR_DEVICE_MEMORY_H_
#define DIVVY_TENSOR_DEVICE_MEMORY_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"

namespace divvy {

// A point in the sequence of operations that were issued to a device. It stands for all operations
// before it.
class DeviceMark {
 public:
  virtual ~DeviceMark() = default;
};

// A copy of a value from a device to the CPU.
struct Download {
  Device from_device;
  const void* from = nullptr;
  void* to = nullptr;  // in memory of the CPU
  int64_t bytes = 0;
  // The point after the last computation that writes `from`. Null: everything issued so far counts.
  std::shared_ptr<const DeviceMark> written = nullptr;
};

// The failures found on a device so far, by any thread.
struct DeviceFailures {
  int64_t count = 0;
  absl::Status last;
  // Unavailable, with the reason: this process can never use the device again. OK otherwise.
  absl::Status lost;
};

// When a thread's copies from the CPU to GPUs take place.
enum class Travel : uint8_t {
  kNow,
  // Copies of integers may wait until the GPU first uses them. Often only lookups on the CPU read
  // the integers of a batch.
  kIntegersWhenUsed,
  // At once, but only into free memory; nothing else is evicted. ResourceExhausted: no memory is
  // free.
  kIfRoom,
};

// While it lives, copies that this thread makes to GPUs take place as `travel` says. Outside any
// scope it is kNow. Scopes nest.
class TravelScope {
 public:
  explicit TravelScope(Travel travel);
  ~TravelScope();
  TravelScope(const TravelScope&) = delete;
  TravelScope& operator=(const TravelScope&) = delete;
  // The setting of the calling thread.
  static Travel Now();

 private:
  const Travel before_;
};

// The memory of all GPUs. Thread-safe. Operations on a device are asynchronous and run in the order
// of the calls; copies run concurrently with computations. A computation that uses memory returned
// by a call below waits for that copy. REQUIRES (all): bytes > 0.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // New memory on the device. ResourceExhausted: none is left. NotFound: there is no such device.
  virtual absl::StatusOr<void*> Allocate(Device device, int64_t bytes) = 0;
  // Frees the memory after all operations that were issued to the device before this call.
  virtual void Free(Device device, void* data) = 0;

  // New memory on the device, into which these bytes are copied asynchronously. `owner` owns `from`
  // and is held until the copy is done, which may be after the call. `from` must not be written to
  // while it is held. Errors as Allocate.
  virtual absl::StatusOr<void*> Upload(Device device, const void* from, int64_t bytes,
                                       std::shared_ptr<const void> owner) = 0;
  // As Upload, but the copy may wait until the memory is first computed with or copied from. If
  // that never happens the bytes are not copied at all.
  virtual absl::StatusOr<void*> UploadWhenUsed(Device device, const void* from, int64_t bytes,
                                               std::shared_ptr<const void> owner) {
    return Upload(device, from, bytes, std::move(owner));
  }
  // New memory on `device`, into which the bytes of another device's value are copied
  // asynchronously. Errors as Allocate.
  virtual absl::StatusOr<void*> CopyAcross(Device device, const Download& from) = 0;
  // Copies the values to the CPU. Blocks until the computations before each value's mark and the
  // copies are done; does not wait for operations issued later. After an error the values are
  // unspecified.
  //
  // InvalidArgument: an earlier computation found bad data. ResourceExhausted: an earlier
  // computation found too little memory for its own work. Internal: a copy or a computation failed.
  // Unavailable: this process has lost the device. Every later call then returns this error,
  // Allocate and Upload as well. Restart the process; another process may find the device usable.
  virtual absl::Status Bring(absl::Span<const Download> values) = 0;
  virtual std::shared_ptr<const DeviceMark> Mark(Device device) = 0;
  // Waits for all operations that were issued to the device, and returns the failures so far. A
  // device reports a failure once, to the thread that waits, and then forgets it. So to know
  // whether a whole piece of work succeeded, compare the counts before and after it.
  virtual DeviceFailures FindFailures(Device device) = 0;

  // Host memory that is copied to and from devices without a staging buffer (pinned). Null: no more
  // is available; use other memory.
  virtual void* AllocateHost(int64_t bytes) = 0;
  virtual void FreeHost(void* data) = 0;
};

// Sets the memory of all GPUs; null means that there are none, as initially. `memory` lives as long
// as the process. Do not call it while tensors are on a GPU or in memory of AllocateHost.
void SetGpuMemory(DeviceMemory* memory);
// The memory that was set. Unimplemented: none has been set.
absl::StatusOr<DeviceMemory*> GpuMemory();
// The memory that was set, or null.
DeviceMemory* GpuMemoryIfAny();

}  // namespace divvy

#endif  // DIVVY_TENSOR_DEVICE_MEMORY_H_
