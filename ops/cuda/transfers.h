// Copies between the host and the devices of a library, beside what these compute.
//
// A device has a queue for what it computes and one for each way that values travel. Between them:
//   1. Memory into which a value travels is got on the queue on which it travels: it need not wait
//      until the device has computed what it was told before.
//   2. Before a call returns that lets another queue touch a device's memory, either the host has
//      waited for that queue, or kCompute has been told to wait for it. So the order of calls on
//      kCompute alone says when memory is written and when it may be freed. Uploads on kIn are the
//      exception: kCompute waits for one of them when its memory is first used or freed, and Arrive
//      and Leave must be called then. Computation with other memory does not wait for such an
//      upload. Nor do small uploads, which have the queue kInSmall to themselves. A large value
//      that travels when it is used (UploadWhenUsed) has its memory from kIn at once, and its copy
//      is told to kIn by the first Arrive. It then comes behind all that kIn was told before. So
//      only values wait of a size of which none was ever used: when one was, those that follow
//      travel at once.
//   3. Pinned memory is used again when the event after its copy has come, not before. The host
//      asks (Reap) whenever it has to do with the device.
//   4. Devices are told to wait for each other under one lock (together), so that copies across and
//      collectives stand in one order on all of them.
// The order of locks: together, then a lane's. No lock is held while the host waits for a device,
// or while an owner of what has been copied goes.
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
  // pinned for tensors of the host (AllocateHost), all devices together; at most an eighth of it
  // for one
  size_t host_bytes = size_t{4} << 30;
  // pinned for what lies in other memory while it is copied; for each device
  size_t staging_bytes = size_t{64} << 20;
  // Uploads from here on travel on kIn, smaller ones on kInSmall. It is what tensors may have
  // pinned memory for (tensor.cc), and a few microseconds of copying.
  size_t large_bytes = size_t{64} << 10;
  // Memory that is freed is kept for what needs as much next. What is kept is given back where a
  // device has no more, not before.
  bool keeps_memory = false;
};

// Thread-safe. Devices are the library's numbers, and must exist.
class Transfers {
  struct Lane;

 public:
  explicit Transfers(DeviceMath& math, const TransferOptions& options = {});
  // Waits for what travels.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Those of DeviceMemory. Null: no memory is left on the device, or what DeviceMath::TakeError
  // says.
  void* Allocate(int device, size_t bytes) { return Obtain(device, Queue::kCompute, bytes); }
  // REQUIRES: this is its beginning.
  void Free(int device, void* data);
  void* Upload(int device, const void* from, size_t bytes, std::shared_ptr<const void> owner);
  // Small values, and those of a size that has been used on a device, travel at once.
  void* UploadWhenUsed(int device, const void* from, size_t bytes,
                       std::shared_ptr<const void> owner);
  void* CopyAcross(int device, const Download& from);
  // A thread makes one before it asks a device what is wrong, and keeps it until it has counted the
  // answer. In between only that thread knows the answer, since the device forgets what it has
  // told. AwaitLooks waits until that is over.
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
  // Waits for those that look at the device now. REQUIRES: this thread does not.
  void AwaitLooks(int device) const;

  // What one device has done wrong: its error, or a fault, which is then forgotten there.
  struct Failure {
    int device = 0;
    const char* error = nullptr;
    Fault fault = {};
  };
  // To be kept until all failures have been counted.
  struct Found {
    std::vector<Failure> failures = {};   // of each device at most one
    std::map<int, int64_t> settled = {};  // for Settle, once they have been counted
    std::vector<std::unique_ptr<Look>> looks = {};
  };
  Found Bring(absl::Span<const Download> values);
  std::shared_ptr<const DeviceMark> Mark(int device);

  // To be called before kCompute is told to read memory that Upload or UploadWhenUsed gave, or to
  // write to it.
  void Arrive(int device, const void* data) { Arrive(device, data, device, Queue::kCompute); }
  // To be called after kCompute was told an operation.
  void Told(int device);
  // Whether Bring has waited for all operations that were told, and what it found has been told
  // (Settle).
  bool IsSettled(int device) const;
  void Settle(const Found& found);
  // Gives the device what is kept and nobody uses.
  void Trim(int device);

  // Memory for a tensor of the host. Null: not pinned. What travels is pinned, that is what has a
  // size in which something has travelled before, to a device or from it: pulled values and batches
  // have the sizes of the step before. A dataset and the tables of a parameter server in the same
  // process stay, travel never or in parts, and would leave none for what comes and goes; so would
  // what is very large.
  void* TakeHost(size_t bytes);
  PinnedPool& host_memory() { return host_memory_; }

  // To be held while devices are told of a collective (DeviceMath::AllReduce); a copy across holds
  // it while its two devices are told to wait for each other. The parts of a collective wait for
  // each other: if one device were told of its part, then of a copy's wait, and the other of the
  // copy before its own part, each would wait for the other for ever, and so would all steps that
  // share them. Whoever holds it only tells; it may wait for the library's own lock and for a
  // lane's (both taken after this one), whose holders wait only for what devices have been told in
  // full.
  Mutex& together() const { return together_; }

 private:
  class EventMark;
  // What may be let go when an event has come.
  struct Travelling {
    Event come;
    std::shared_ptr<const void> owner;
    void* staged;
  };
  // Where a value will come from that travels when it is used.
  struct Source {
    const void* data;
    std::shared_ptr<const void> owner;
  };
  struct Arriving {
    size_t bytes;
    Event come;    // before its copy is told (source): the memory has
    bool is_told;  // to kCompute
    int64_t number;
    // null: its copy has been told, or is being told
    std::shared_ptr<const Source> source = nullptr;
    // A thread is telling its copy.
    bool is_sending = false;
  };
  struct Lane {
    Lane(DeviceMath& math, size_t staging_bytes) : staging(math, staging_bytes) {}
    PinnedPool staging;
    Mutex mu;
    // Of each queue, in the order of their events.
    std::deque<Travelling> travelling[kNumQueues] DIVVY_GUARDED_BY(mu);
    // Where they begin; till they have been seen to have come.
    std::map<const char*, Arriving> arriving DIVVY_GUARDED_BY(mu);
    // With their numbers; some may have been forgotten.
    std::deque<std::pair<const char*, int64_t>> arriving_in_order DIVVY_GUARDED_BY(mu);
    int64_t last_arriving DIVVY_GUARDED_BY(mu) = 0;
    CondVar sent;  // a value has been sent that waited for its use
    std::atomic<int64_t> num_arriving{0};
    // Points of kCompute, counted: each operation and each block that is freed is one more.
    std::atomic<int64_t> told{0};
    std::atomic<int64_t> operations{0};  // the last that is an operation
    std::atomic<int64_t> reached{0};     // it has come to, as far as the host has seen
    std::atomic<int64_t> settled{0};     // of those the last whose failures have been told
    std::unique_ptr<DevicePool> memory;  // null: none is kept
    Mutex looks_mu;
    CondVar looked;
    std::set<int64_t> looks DIVVY_GUARDED_BY(looks_mu);  // that are under way, by number
    int64_t last_look DIVVY_GUARDED_BY(looks_mu) = 0;
  };
  struct Staged;

  // Bytes of the host have travelled that were not pinned.
  void NoteTravel(size_t bytes);
  // Values of this size that might wait for their use are used.
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
  // The point of kCompute of the value's device that is waited for.
  int64_t WaitForValue(int device, Queue queue, const Download& from);
  // `point`: of kCompute, for which the queue kOut waits.
  Failure AwaitValues(int device, const Fault* fault, int64_t point);
  static void Raise(std::atomic<int64_t>& number, int64_t to);

  DeviceMath& math_;
  const size_t large_bytes_, host_bytes_;
  mutable Mutex together_;
  PinnedPool host_memory_;
  Mutex travels_mu_;
  // classes of host_memory_
  std::set<size_t> travels_ DIVVY_GUARDED_BY(travels_mu_);
  // Such classes: of values that waited for their use, and were used.
  std::set<size_t> used_ DIVVY_GUARDED_BY(travels_mu_);
  std::atomic<bool> is_full_logged_{false};
  std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TRANSFERS_H_
