// Emulated devices: the kernels as the host's compiler builds them, run at once or in a manner of
// HostQueues.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "ops/cuda/kernel_math.h"
#include "ops/cuda/testing/host_clock.h"
#include "ops/cuda/testing/host_queues.h"

namespace divvy::cuda {

// Counts of the operations that were issued to a device. Each costs some microseconds, however
// little it does.
struct HostCosts {
  int64_t kernels = 0;  // and products
  int64_t uploads = 0;
  int64_t allocations = 0;
  int64_t waits = 0;  // of the host
};

// Memory is the host's, and is counted. A copy from or to memory of a device before its queue has
// allocated it, or after it was freed there, is logged as "... which the device has not". Freed
// memory is overwritten, and returned when the object is destroyed. Thread-safe.
class HostMath : public KernelMath {
 public:
  explicit HostMath(int num_devices, HostQueues::Manner manner = HostQueues::Manner::kAtOnce,
                    uint64_t seed = 1);
  ~HostMath() override;

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  // "host device 0", with the number that the device had first.
  const char* name(int device) const override { return devices_[device]->name.c_str(); }
  const char* Probe(int device) override {
    return device == sick ? "this emulated device cannot be used" : error;
  }
  const char* Choose(const int* devices, int count) override;
  void* Allocate(int device, size_t bytes) override;
  void Free(int device, void* data) override;
  void CopyIn(int device, void* to, const void* from, size_t bytes) override;
  const char* CopyOut(int device, void* to, const void* from, size_t bytes) override;
  const char* Synchronize(int device) override;
  void* AllocateFor(int device, Queue queue, size_t bytes) override;
  void Copy(int device, Queue queue, void* to, const void* from, size_t bytes) override;
  void CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                  size_t bytes) override;
  const Fault* fault_on(int device) const override { return &devices_[device]->fault; }
  Event Record(int device, Queue queue) override;
  void Wait(int device, Queue queue, Event event) override;
  bool HasCompleted(Event event) override { return queues_.HasCompleted(event); }
  const char* Await(int device, Event event) override;
  void Release(Event event) override;
  void* AllocatePinned(size_t bytes) override;
  void FreePinned(void* data) override;
  bool CanAllReduce(const int*, int, Element element) override {
    return all_reduces && element == Element::kFloat32;
  }
  bool AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                 Element element, int64_t n) override;
  void BeginRange(const char* name) override;
  void EndRange() override;
  Fault TakeFault(int device) override;
  void Note(int device, const char* error) override { devices_[device]->error.Note(error); }
  const char* TakeError(int device) override { return TakeErrorOf(*devices_[device]); }
  const char* lost(int device) const override { return devices_[device]->lost.text(); }
  // From this kernel on, counted from the very first, each wait returns `why`, as with a sticky
  // error.
  void FailFrom(int64_t kernel, const char* why) { fails_from_ = kernel, fails_with_ = why; }
  // Emulates a corrupt context: from now on every wait for the device returns `why`, and it gives
  // no memory. `why` lives as long as the process.
  void Lose(int device, const char* why) { devices_[device]->lost.Set(why); }
  void Zero(int device, void* data, size_t bytes) override;
  void MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b,
              const Array& c) override;

  // The log of operations, while `keep_log`: "1 allocate 64", "1 kernels", "1 out 64" ..., and with
  // a queue: "1 in: copy 64", "1 compute: wait". Read it while nothing computes.
  std::vector<std::string> log;
  bool keep_log = true;
  size_t free_bytes = ~size_t{0};    // of each device
  size_t pinned_bytes = ~size_t{0};  // of the host
  const char* error = nullptr;       // every wait and Choose returns this
  int sick = -1;                     // the number of a device that cannot be chosen
  bool all_reduces = false;          // float32, in the order of the devices
  size_t bytes_in_use(int device) const;
  size_t pinned_in_use() const;
  // From here on operations take time, by this model.
  void UseClock(const HostModel& model) {
    clock_ = std::make_unique<HostClock>(model, num_devices());
  }
  // Emulates the blocks of kernels that are issued from here on. Null: one thread runs a kernel.
  // `block` outlives their runs.
  void UseBlock(int device, HostBlock* block) { kernel_streams_[device]->UseBlock(block); }
  double now() const { return clock_->now(); }  // of the host, in microseconds. REQUIRES: UseClock
  HostCosts costs() const { return {kernels_, uploads_, allocations_, waits_}; }
  // Runs all queued operations.
  void FinishAll() { queues_.FinishAll(); }

 protected:
  Stream Use(int device) override;
  void Gemm(int device, const MatMulArgs& args, Element element, const void* a, const void* b,
            void* c) override;
  Fault* fault(int device) override { return &devices_[device]->fault; }

 private:
  struct Block {
    size_t bytes;
    // Valid from its allocation on its queue until it is freed there.
    bool is_there;
  };
  struct HostDevice {
    std::string name;
    std::map<const char*, Block> blocks;  // guarded by mu_
    Fault fault;                          // written by one computing thread at a time
    FirstError error;
    LastingError lost;
  };
  const char* TakeErrorOf(HostDevice& device) {
    if (kernels_ >= fails_from_) device.lost.Set(fails_with_);
    const char* const first = device.error.Take();
    if (error != nullptr) return error;
    return first != nullptr ? first : device.lost.text();
  }

  void Log(std::string line);
  void Log(int device, Queue queue, absl::string_view what);
  void SetThere(int device, void* data, bool is_there);
  void CheckThere(int device, const void* data, absl::string_view what);
  enum class Place { kDevice, kPinned, kFreed, kPageable };
  Place PlaceOf(int device, const void* data) const;

  // The stream of a device's kernels; counts them.
  class KernelStream : public HostStream {
   public:
    KernelStream(HostMath& math, int device, HostStream& queue)
        : math_(math), device_(device), queue_(queue) {}
    void Add(std::function<void()> work) override { Add(0, std::move(work)); }
    HostBlock* block() override { return block_; }
    void UseBlock(HostBlock* block) { block_ = block; }
    void Add(double multiplications, std::function<void()> work) {
      ++math_.kernels_;
      if (math_.clock_ != nullptr) math_.clock_->Kernel(device_, multiplications);
      queue_.Add(std::move(work));
    }

   private:
    HostMath& math_;
    const int device_;
    HostStream& queue_;
    HostBlock* block_ = nullptr;
  };
  double PointOf(Event event);

  mutable Mutex mu_;
  std::atomic<int64_t> kernels_{0}, uploads_{0}, allocations_{0}, waits_{0};
  int64_t fails_from_ = std::numeric_limits<int64_t>::max();
  const char* fails_with_ = nullptr;
  std::vector<std::unique_ptr<HostDevice>> devices_;
  // By the present number of a device.
  std::vector<std::unique_ptr<KernelStream>> kernel_streams_;
  // Null: nothing takes time.
  std::unique_ptr<HostClock> clock_;
  // The time of each event by the clock.
  std::map<Event, double> points_ DIVVY_GUARDED_BY(mu_);
  std::map<const char*, size_t> pinned_ DIVVY_GUARDED_BY(mu_);
  std::map<const char*, size_t> freed_ DIVVY_GUARDED_BY(mu_);
  HostQueues queues_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_
