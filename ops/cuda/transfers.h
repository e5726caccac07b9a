// Transfers: copies between the host and the devices of a library, concurrent with the devices'
// computations.
//
// A device has one queue for computations and one for each way that values travel. The rules
// between them:
//
//   1. Memory for a value that travels is allocated on the queue of its copy. So the copy need not
//      wait for the computations that were issued before it.
//   2. Before a call returns after which another queue may touch a device's memory, either the host
//      has waited for the first queue, or kCompute has been told to wait for it. So the order of
//      calls on kCompute alone says when memory is written and when it may be freed.
//      Uploads on kIn are the exception: kCompute waits for such an upload when its memory is first
//      used (Arrive) or freed (Leave). Computations with other memory do not wait for it. Small
//      uploads do not wait for it either, since they have a queue of their own, kInSmall.
//      A large value that travels when it is used (UploadWhenUsed) gets memory from kIn at once.
//      The first Arrive issues its copy to kIn, behind everything issued to kIn before. A value
//      waits for its use only if no value of its size was ever used; after the first use, values of
//      that size travel at once.
//   3. Pinned memory is reused when the event after its copy has come, not before. The host checks
//      this (Reap) whenever it deals with the device.
//   4. Devices are told to wait for each other under one lock (together), so that copies between
//      devices and collectives are in the same order on all of them.
//
// The order of locks: together, then a lane's. No lock is held while the host waits for a device,
// or while an owner of copied memory is destroyed.
#ifndef DIVVY_OPS_CUDA_TRANSFERS_H_
#define DIVVY_OPS_CUDA_TRANSFERS_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/device_pool.h"
#include "ops/cuda/pinned_pool.h"
#include "tensor/device_memory.h"

namespace divvy::cuda {

struct TransferOptions {
  // The limit on pinned memory for tensors of the host (AllocateHost), for all devices together.
  // One tensor may have at most an eighth of it.
  size_t host_bytes = size_t{4} << 30;
  // The limit on pinned staging memory, through which values in other memory are copied; for each
  // device.
  size_t staging_bytes = size_t{64} << 20;
  // Uploads of at least this size travel on kIn, smaller ones on kInSmall. It is also the size from
  // which tensors use pinned memory (tensor.cc), and takes a few microseconds to copy.
  size_t large_bytes = size_t{64} << 10;
  // Caches freed memory for later allocations of the same size. The cache is returned to a device
  // only when the device has no free memory.
  bool keeps_memory = false;
};

// Thread-safe. Devices are the library's numbers, and must exist.
class Transfers {
  struct Lane;

 public:
  explicit Transfers(DeviceMath& math, const TransferOptions& options = {});
  // Waits for all copies in progress.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // The operations of DeviceMemory. Null: no memory is left on the device, or there is an error,
  // which DeviceMath::TakeError returns.
  void* Allocate(int device, size_t bytes) { return Obtain(device, Queue::kCompute, bytes); }
  // REQUIRES: `data` is the beginning of a block.
  void Free(int device, void* data);
  void* Upload(int device, const void* from, size_t bytes, std::shared_ptr<const void> owner);
  // Copies at once if the value is small or if a value of its size has been used on a device.
  void* UploadWhenUsed(int device, const void* from, size_t bytes,
                       std::shared_ptr<const void> owner);
  void* CopyAcross(int device, const Download& from);
  // A thread creates a Look before it asks a device for its failures, and keeps it until it has
  // counted the answer. In between only that thread knows the failure, since the device forgets
  // what it has reported. AwaitLooks waits until this is over.
  class Look {
   public:
    Look(const Transfers& transfers, int device);
    ~Look();
    Look(const Look&) = delete;
    Look& operator=(const Look&) = delete;

   private:
    Lane& lane_;
    const int64_t number_;
  };
  // Waits until all present Looks at the device are destroyed. REQUIRES: this thread has none.
  void AwaitLooks(int device) const;

  // The failure of one device: its error, or a fault, which the device then forgets.
  struct Failure {
    int device = 0;
    const char* error = nullptr;
    Fault fault = {};
  };
  // The result of Bring. Keep it until all failures have been counted.
  struct Found {
    std::vector<Failure> failures = {};   // at most one for each device
    std::map<int, int64_t> settled = {};  // for Settle, once they have been counted
    std::vector<std::unique_ptr<Look>> looks = {};
  };
  Found Bring(absl::Span<const Download> values);
  std::shared_ptr<const DeviceMark> Mark(int device);

  // Call it before kCompute is told to read or write memory that Upload or UploadWhenUsed returned.
  void Arrive(int device, const void* data) { Arrive(device, data, device, Queue::kCompute); }
  // Call it after each operation that was issued to kCompute.
  void Told(int device);
  // Whether Bring has waited for all operations that were issued, and their failures have been
  // counted (Settle).
  bool IsSettled(int device) const;
  void Settle(const Found& found);
  // Frees the device's memory that is cached and unused.
  void Trim(int device);

  // Memory for a tensor of the host. Null: the tensor should not be pinned, or no pinned memory is
  // left.
  //
  // Only sizes in which something has been copied to or from a device before are pinned: pulled
  // values and batches have the sizes of the step before. A dataset and the tables of a parameter
  // server in the same process are never copied, or in parts; they would leave no pinned memory for
  // values that come and go. The same holds for very large tensors.
  void* TakeHost(size_t bytes);
  PinnedPool& host_memory() { return host_memory_; }

  // Hold it while a collective is issued to the devices (DeviceMath::AllReduce). A copy between
  // devices holds it while its two devices are told to wait for each other.
  //
  // The parts of a collective wait for each other. Suppose that one device were told of its part
  // first and then of a copy's wait, and the other device in the reverse order: both would wait
  // forever, and so would all steps that share them. The holder only issues operations. It may wait
  // for the library's own lock and for a lane's, which are both taken after this one, and whose
  // holders wait only for operations that were issued completely.
  Mutex& together() const { return together_; }

 private:
  class EventMark;
  // What can be released when an event has come.
  struct Travelling {
    Event come;
    std::shared_ptr<const void> owner;
    void* staged;
  };
  // The source of a value that is copied when it is used.
  struct Source {
    const void* data;
    std::shared_ptr<const void> owner;
  };
  struct Arriving {
    size_t bytes;
    Event come;    // of the copy; before it is issued (source): of the memory
    bool is_told;  // to kCompute
    int64_t number;
    // Null: its copy has been issued, or is being issued.
    std::shared_ptr<const Source> source = nullptr;
    // Whether a thread is issuing its copy.
    bool is_sending = false;
  };
  struct Lane {
    Lane(DeviceMath& math, size_t staging_bytes) : staging(math, staging_bytes) {}
    PinnedPool staging;
    Mutex mu;
    // For each queue, in the order of their events.
    std::deque<Travelling> travelling[kNumQueues] DIVVY_GUARDED_BY(mu);
    // By their first byte, until they are seen to have arrived.
    std::map<const char*, Arriving> arriving DIVVY_GUARDED_BY(mu);
    // With their numbers; some may already be forgotten.
    std::deque<std::pair<const char*, int64_t>> arriving_in_order DIVVY_GUARDED_BY(mu);
    int64_t last_arriving DIVVY_GUARDED_BY(mu) = 0;
    CondVar sent;  // signals that a value that waited for its use has been sent
    std::atomic<int64_t> num_arriving{0};
    // Points of kCompute, as numbers: each operation and each freed block adds one.
    std::atomic<int64_t> told{0};
    std::atomic<int64_t> operations{0};  // the last point that is an operation
    std::atomic<int64_t> reached{0};     // the last point that the host has seen reached
    std::atomic<int64_t> settled{0};     // the last point whose failures have been reported
    std::unique_ptr<DevicePool> memory;  // null: freed memory is not cached
    Mutex looks_mu;
    CondVar looked;
    std::set<int64_t> looks DIVVY_GUARDED_BY(looks_mu);  // in progress, by number
    int64_t last_look DIVVY_GUARDED_BY(looks_mu) = 0;
  };
  struct Staged;

  // Notes that memory of the host of this size was copied and was not pinned.
  void NoteTravel(size_t bytes);
  // Notes that a value of this size that waited for its use has been used.
  void NoteUse(size_t bytes);
  bool IsUsed(size_t bytes);
  void* Obtain(int device, Queue queue, size_t bytes);
  void Leave(int device, const void* data);
  void ReapArriving(Lane& lane) DIVVY_REQUIRES(lane.mu);
  bool Send(int device, Queue queue, void* to, const void* from, size_t bytes,
            std::shared_ptr<const void> owner);
  bool UploadStaged(int device, Queue queue, char* to, const char* from, size_t bytes);
  void* TakeStaging(int device, size_t bytes);
  void Reap(int device);
  bool AwaitOldest(int device);
  void Release(Lane& lane, const Travelling& done);
  void Keep(int device, Queue queue, std::shared_ptr<const void> owner, void* staged);
  void LetUseWait(int device, const void* data, size_t bytes);
  void SendIfUnsent(int device, const void* data);
  void Arrive(int device, const void* data, int waiting_device, Queue waiting_queue);
  void LetWait(int device, const void* data, int waiting_device, Queue waiting_queue);
  static std::map<const char*, Arriving>::iterator FindArriving(Lane& lane, const void* data)
      DIVVY_REQUIRES(lane.mu);
  void Forget(Lane& lane, std::map<const char*, Arriving>::iterator arrived)
      DIVVY_REQUIRES(lane.mu);
  // Returns the point of kCompute of the value's device for which the queue waits.
  int64_t WaitForValue(int device, Queue queue, const Download& from);
  // `point` is the point of kCompute for which the queue kOut waits.
  Failure AwaitValues(int device, const Fault* fault, int64_t point);
  static void Raise(std::atomic<int64_t>& number, int64_t to);

  DeviceMath& math_;
  const size_t large_bytes_, host_bytes_;
  mutable Mutex together_;
  PinnedPool host_memory_;
  Mutex travels_mu_;
  // Size classes of host_memory_ in which something was copied.
  std::set<size_t> travels_ DIVVY_GUARDED_BY(travels_mu_);
  // Size classes of values that waited for their use and were used.
  std::set<size_t> used_ DIVVY_GUARDED_BY(travels_mu_);
  std::atomic<bool> is_full_logged_{false};
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TRANSFERS_H_
