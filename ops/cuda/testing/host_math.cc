#include "ops/cuda/testing/host_math.h"

#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy::cuda {
namespace {

template <typename T>
void Multiply(const MatMulArgs& g, const T* a, const T* b, T* c) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < g.k; ++k)
        sum += static_cast<double>(a[g.a_transposed ? k * g.m + i : i * g.k + k]) *
               static_cast<double>(b[g.b_transposed ? j * g.k + k : k * g.n + j]);
      c[i * g.n + j] = static_cast<T>(sum);
    }
  }
}

size_t SizeOf(size_t bytes) { return bytes; }
template <typename Block>
size_t SizeOf(const Block& block) {
  return block.bytes;
}

// Whether one of the blocks contains this byte. `blocks` maps the first byte of each block to its
// size.
template <typename Blocks>
bool Holds(const Blocks& blocks, const void* data) {
  const auto after = blocks.upper_bound(static_cast<const char*>(data));
  return after != blocks.begin() && static_cast<const char*>(data) <
                                        std::prev(after)->first + SizeOf(std::prev(after)->second);
}

}  // namespace

HostMath::HostMath(int num_devices, HostQueues::Manner manner, uint64_t seed)
    : queues_(num_devices, manner, seed) {
  for (int i = 0; i < num_devices; ++i) {
    devices_.push_back(std::make_unique<HostDevice>());
    devices_.back()->name = absl::StrCat("host device ", i);
    kernel_streams_.push_back(
        std::make_unique<KernelStream>(*this, i, queues_.stream(i, Queue::kCompute)));
  }
}

HostMath::~HostMath() {
  queues_.FinishAll();
  for (const auto& device : devices_) {
    for (const auto& [data, block] : device->blocks) std::free(const_cast<char*>(data));
  }
  for (const auto& [data, bytes] : pinned_) std::free(const_cast<char*>(data));
  for (const auto& [data, bytes] : freed_) std::free(const_cast<char*>(data));
}

const char* HostMath::Choose(const int* devices, int count) {
  for (int i = 0; i < count; ++i) {
    if (const char* const wrong = Probe(devices[i]); wrong != nullptr) return wrong;
  }
  std::vector<std::unique_ptr<HostDevice>> chosen;
  for (int i = 0; i < count; ++i) chosen.push_back(std::move(devices_[devices[i]]));
  devices_ = std::move(chosen);
  return nullptr;
}

void HostMath::Log(std::string line) {
  if (!keep_log) return;
  MutexLock lock(mu_);
  log.push_back(std::move(line));
}

void HostMath::Log(int device, Queue queue, absl::string_view what) {
  static constexpr absl::string_view kNames[kNumQueues] = {"compute", "in", "out", "across",
                                                           "in small"};
  Log(absl::StrCat(device, " ", kNames[static_cast<int>(queue)], ": ", what));
}

size_t HostMath::bytes_in_use(int device) const {
  MutexLock lock(mu_);
  size_t total = 0;
  for (const auto& [data, block] : devices_[device]->blocks) total += block.bytes;
  return total;
}

size_t HostMath::pinned_in_use() const {
  MutexLock lock(mu_);
  size_t total = 0;
  for (const auto& [data, bytes] : pinned_) total += bytes;
  return total;
}

void HostMath::SetThere(int device, void* data, bool is_there) {
  MutexLock lock(mu_);
  const auto block = devices_[device]->blocks.find(static_cast<char*>(data));
  if (block == devices_[device]->blocks.end()) {
    log.push_back(absl::StrCat(device, is_there ? " gets after it was freed what it has not"
                                                : " free of what it has not"));
    return;
  }
  if (is_there) {
    block->second.is_there = true;
    return;
  }
  std::memset(data, 0x5A, block->second.bytes);  // so that a later read is noticed
  if (queues_.manner() == HostQueues::Manner::kAtOnce) {
    std::free(data);
  } else {
    freed_.emplace(block->first, block->second.bytes);
  }
  devices_[device]->blocks.erase(block);
}

void HostMath::CheckThere(int device, const void* data, absl::string_view what) {
  MutexLock lock(mu_);
  const std::map<const char*, Block>& blocks = devices_[device]->blocks;
  if (!Holds(blocks, data) ||
      !std::prev(blocks.upper_bound(static_cast<const char*>(data)))->second.is_there) {
    log.push_back(absl::StrCat(device, " ", what, " what the device has not"));
  }
}

void* HostMath::AllocateFor(int device, Queue queue, size_t bytes) {
  if (lost(device) != nullptr || bytes_in_use(device) + bytes > free_bytes) return nullptr;
  void* const data = std::malloc(bytes);
  std::memset(data, 0xA5, bytes);  // so that unwritten memory is noticed
  {
    MutexLock lock(mu_);
    devices_[device]->blocks.emplace(static_cast<char*>(data), Block{bytes, false});
  }
  Log(absl::StrCat(device, " allocate ", bytes));
  ++allocations_;
  queues_.Add(device, queue, [=] { SetThere(device, data, true); });
  return data;
}

void* HostMath::Allocate(int device, size_t bytes) {
  return AllocateFor(device, Queue::kCompute, bytes);
}

void HostMath::Free(int device, void* data) {
  Log(absl::StrCat(device, " free"));
  queues_.Add(device, Queue::kCompute, [=] { SetThere(device, data, false); });
}

void HostMath::CopyIn(int device, void* to, const void* from, size_t bytes) {
  Log(absl::StrCat(device, " in ", bytes));
  ++uploads_, ++waits_;
  if (clock_ != nullptr)
    clock_->Copy(device, Queue::kCompute, bytes),
        clock_->Await(clock_->Point(device, Queue::kCompute));
  queues_.Finish(device, Queue::kCompute);
  CheckThere(device, to, "copies to");
  std::memcpy(to, from, bytes);
}

const char* HostMath::CopyOut(int device, void* to, const void* from, size_t bytes) {
  Log(absl::StrCat(device, " out ", bytes));
  ++waits_;
  if (clock_ != nullptr)
    clock_->Copy(device, Queue::kOut, bytes), clock_->Await(clock_->Point(device, Queue::kOut));
  queues_.Finish(device, Queue::kCompute);
  CheckThere(device, from, "copies from");
  std::memcpy(to, from, bytes);
  return TakeError(device);
}

const char* HostMath::Synchronize(int device) {
  ++waits_;
  if (clock_ != nullptr) clock_->Await(clock_->Point(device, Queue::kCompute));
  queues_.Finish(device, Queue::kCompute);
  return TakeError(device);
}

Fault HostMath::TakeFault(int device) {
  Fault taken;
  queues_.Add(device, Queue::kCompute,
              [&] { taken = std::exchange(devices_[device]->fault, Fault()); });
  queues_.Finish(device, Queue::kCompute);
  return taken;
}

HostMath::Place HostMath::PlaceOf(int device, const void* data) const {
  MutexLock lock(mu_);
  if (data == &devices_[device]->fault || Holds(devices_[device]->blocks, data))
    return Place::kDevice;
  if (Holds(pinned_, data)) return Place::kPinned;
  return Holds(freed_, data) ? Place::kFreed : Place::kPageable;
}

// A copy of memory that is not pinned is done before the call returns.
void HostMath::Copy(int device, Queue queue, void* to, const void* from, size_t bytes) {
  Log(device, queue, absl::StrCat("copy ", bytes));
  if (queue == Queue::kIn || queue == Queue::kInSmall) ++uploads_;
  if (clock_ != nullptr) clock_->Copy(device, queue, bytes);
  queues_.Add(device, queue, [=] {
    for (const void* const part : {static_cast<const void*>(to), from}) {
      const Place place = PlaceOf(device, part);
      if (place == Place::kFreed || (place == Place::kDevice && part != fault_on(device)))
        CheckThere(device, part, "copies");
    }
    std::memcpy(to, from, bytes);
  });
  if (PlaceOf(device, to) == Place::kPageable || PlaceOf(device, from) == Place::kPageable)
    queues_.Finish(device, queue);
}

void HostMath::CopyAcross(int device, Queue queue, void* to, int from_device, const void* from,
                          size_t bytes) {
  Log(device, queue, absl::StrCat("copy ", bytes, " from ", from_device));
  if (clock_ != nullptr) clock_->Copy(device, queue, bytes);
  queues_.Add(device, queue, [=] {
    CheckThere(device, to, "copies to");
    CheckThere(from_device, from, "copies from");
    std::memcpy(to, from, bytes);
  });
}

Event HostMath::Record(int device, Queue queue) {
  Log(device, queue, "record");
  const Event event = queues_.Record(device, queue);
  if (clock_ == nullptr) return event;
  MutexLock lock(mu_);
  points_[event] = clock_->Point(device, queue);
  return event;
}

double HostMath::PointOf(Event event) {
  MutexLock lock(mu_);
  const auto found = points_.find(event);
  return found == points_.end() ? 0 : found->second;  // the event is older than the clock
}

void HostMath::Release(Event event) {
  {
    MutexLock lock(mu_);
    points_.erase(event);
  }
  queues_.Release(event);
}

void HostMath::Wait(int device, Queue queue, Event event) {
  Log(device, queue, "wait");
  if (clock_ != nullptr) clock_->Wait(device, queue, PointOf(event));
  queues_.Wait(device, queue, event);
}

const char* HostMath::Await(int device, Event event) {
  ++waits_;
  if (clock_ != nullptr) clock_->Await(PointOf(event));
  queues_.Await(event);
  return TakeError(device);
}

void* HostMath::AllocatePinned(size_t bytes) {
  if (pinned_in_use() + bytes > pinned_bytes) return nullptr;
  void* const data = std::malloc(bytes);
  MutexLock lock(mu_);
  pinned_.emplace(static_cast<char*>(data), bytes);
  return data;
}

void HostMath::FreePinned(void* data) {
  MutexLock lock(mu_);
  const auto block = pinned_.find(static_cast<char*>(data));
  std::memset(data, 0x5A, block->second);
  freed_.insert(*block);
  pinned_.erase(block);
}

// Each device waits until all devices have reached the collective.
bool HostMath::AllReduce(const int* devices, int count, const void* const* from, void* const* to,
                         Element element, int64_t n) {
  if (!CanAllReduce(devices, count, element)) return false;
  const std::vector<const void*> terms(from, from + count);
  std::vector<Event> come;
  for (int i = 0; i < count; ++i) come.push_back(queues_.Record(devices[i], Queue::kCompute));
  for (int i = 0; i < count; ++i) {
    for (const Event event : come) queues_.Wait(devices[i], Queue::kCompute, event);
    Log(devices[i], Queue::kCompute, absl::StrCat("all-reduce ", n));
    queues_.Add(devices[i], Queue::kCompute, [=, sum = static_cast<float*>(to[i])] {
      for (int64_t k = 0; k < n; ++k) {
        sum[k] = 0;
        for (const void* const term : terms) sum[k] += static_cast<const float*>(term)[k];
      }
    });
  }
  std::vector<Event> done;
  for (int i = 0; i < count; ++i) done.push_back(queues_.Record(devices[i], Queue::kCompute));
  for (int i = 0; i < count; ++i) {
    for (const Event event : done) queues_.Wait(devices[i], Queue::kCompute, event);
  }
  for (const Event event : come) queues_.Release(event);
  for (const Event event : done) queues_.Release(event);
  return true;
}

void HostMath::BeginRange(const char* name) { Log(absl::StrCat("begin ", name)); }

void HostMath::EndRange() { Log("end"); }

void HostMath::Zero(int device, void* data, size_t bytes) {
  AddTo(Use(device), [=] { std::memset(data, 0, bytes); });
}

void HostMath::MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b,
                      const Array& c) {
  Gemm(device, args, c.element, a.data, b.data, c.data);
}

Stream HostMath::Use(int device) {
  Log(absl::StrCat(device, " kernels"));
  return kernel_streams_[device].get();
}

void HostMath::Gemm(int device, const MatMulArgs& g, Element element, const void* a, const void* b,
                    void* c) {
  Use(device);
  KernelStream& stream = *kernel_streams_[device];
  WithFloating(element, [&](auto t) {
    using T = decltype(t);
    stream.Add(
        static_cast<double>(g.batch) * static_cast<double>(g.m * g.n) * static_cast<double>(g.k),
        [=] {
          for (int64_t i = 0; i < g.batch; ++i) {
            Multiply(g, static_cast<const T*>(a) + i * g.m * g.k,
                     static_cast<const T*>(b) + i * g.k * g.n, static_cast<T*>(c) + i * g.m * g.n);
          }
        });
  });
}

}  // namespace divvy::cuda
