#include "ops/cuda/transfers.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>

#include "base/log.h"
#include "base/trace_range.h"

namespace divvy::cuda {
namespace {

// A larger value is copied in pieces, so that one piece is filled while another is copied.
constexpr size_t kPieceBytes = size_t{4} << 20;
constexpr size_t kAlignment = 64;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

class Transfers::EventMark : public DeviceMark {
 public:
  // A point of kCompute that this event does not precede.
  EventMark(DeviceMath& math, int device, Queue queue, int64_t point = 0)
      : math_(math), point_(point), event_(math.Record(device, queue)), number_(++last_number) {}
  ~EventMark() override { math_.Release(event_); }
  Event event() const { return event_; }
  int64_t number() const { return number_; }  // increases with each new mark
  int64_t point() const { return point_; }

 private:
  inline static std::atomic<int64_t> last_number{0};
  DeviceMath& math_;
  const int64_t point_;
  const Event event_;
  const int64_t number_;
};

Transfers::Transfers(DeviceMath& math, const TransferOptions& options)
    : math_(math),
      large_bytes_(options.large_bytes),
      host_bytes_(options.host_bytes),
      host_memory_(math, options.host_bytes) {
  for (int device = 0; device < math.num_devices(); ++device) {
    lanes_.push_back(std::make_unique<Lane>(math, options.staging_bytes));
    if (options.keeps_memory) lanes_.back()->memory = std::make_unique<DevicePool>(math, device);
  }
}

Transfers::~Transfers() {
  for (size_t device = 0; device < lanes_.size(); ++device) {
    while (AwaitOldest(static_cast<int>(device))) {
    }
  }
}

// ---- memory, and points of kCompute -------------------------------------------------------------

void Transfers::Raise(std::atomic<int64_t>& number, int64_t to) {
  int64_t now = number.load();
  while (now < to && !number.compare_exchange_weak(now, to)) {
  }
}

void* Transfers::Obtain(int device, Queue queue, size_t bytes) {
  Lane& lane = *lanes_[device];
  if (lane.memory == nullptr) return math_.AllocateFor(device, queue, bytes);
  if (TravelScope::Now() == Travel::kIfRoom)
    return lane.memory->TakeIfRoom(queue, bytes, lane.reached);
  return lane.memory->Take(queue, bytes, lane.reached);
}

void Transfers::Free(int device, void* data) {
  Leave(device, data);
  Lane& lane = *lanes_[device];
  lane.memory != nullptr ? lane.memory->Return(data, ++lane.told) : math_.Free(device, data);
}

void Transfers::Trim(int device) {
  if (lanes_[device]->memory != nullptr) lanes_[device]->memory->Trim();
}

void Transfers::Told(int device) {
  Lane& lane = *lanes_[device];
  Raise(lane.operations, ++lane.told);
}

void Transfers::Settle(const Found& found) {
  for (const auto& [device, point] : found.settled) Raise(lanes_[device]->settled, point);
}

bool Transfers::IsSettled(int device) const {
  return lanes_[device]->settled >= lanes_[device]->operations;
}

// ---- failures ----------------------------------------------------------------------------------

Transfers::Look::Look(const Transfers& transfers, int device)
    : lane_(*transfers.lanes_[device]), number_([this] {
        MutexLock lock(lane_.looks_mu);
        lane_.looks.insert(++lane_.last_look);
        return lane_.last_look;
      }()) {}

Transfers::Look::~Look() {
  MutexLock lock(lane_.looks_mu);
  lane_.looks.erase(number_);
  lane_.looked.NotifyAll();
}

void Transfers::AwaitLooks(int device) const {
  Lane& lane = *lanes_[device];
  MutexLock lock(lane.looks_mu);
  const int64_t last = lane.last_look;
  lane.looked.Wait(lane.looks_mu, [&]() DIVVY_REQUIRES(lane.looks_mu) {
    return lane.looks.empty() || *lane.looks.begin() > last;
  });
}

// ---- release of copied memory -----------------------------------------------------------------

void Transfers::Release(Lane& lane, const Travelling& done) {
  math_.Release(done.come);
  if (done.staged != nullptr) lane.staging.Return(done.staged);
}

// Owners are destroyed without the lock, because the last handle of a tensor may run foreign code.
void Transfers::Reap(int device) {
  Lane& lane = *lanes_[device];
  std::vector<Travelling> done;
  {
    MutexLock lock(lane.mu);
    for (std::deque<Travelling>& travelling : lane.travelling) {
      while (!travelling.empty() && math_.HasCompleted(travelling.front().come)) {
        done.push_back(std::move(travelling.front()));
        travelling.pop_front();
      }
    }
    ReapArriving(lane);
  }
  for (const Travelling& one : done) Release(lane, one);
}

// Events come in the order in which they were issued, so the search stops at the first that has not
// come.
void Transfers::ReapArriving(Lane& lane) {
  while (!lane.arriving_in_order.empty()) {
    const auto [data, number] = lane.arriving_in_order.front();
    const auto one = lane.arriving.find(data);
    const bool is_there = one != lane.arriving.end() && one->second.number == number;
    if (is_there && !math_.HasCompleted(one->second.come)) return;
    if (is_there) Forget(lane, one);
    lane.arriving_in_order.pop_front();
  }
}

// Waits for the oldest copy of one queue. False: no copy is in progress.
bool Transfers::AwaitOldest(int device) {
  Lane& lane = *lanes_[device];
  Travelling oldest;
  {
    MutexLock lock(lane.mu);
    const auto any = std::find_if(std::begin(lane.travelling), std::end(lane.travelling),
                                  [](const auto& travelling) { return !travelling.empty(); });
    if (any == std::end(lane.travelling)) return false;
    oldest = std::move(any->front());
    any->pop_front();
  }
  const Look look(*this, device);
  // No caller waits for these values here, so the next Bring reports the error.
  math_.Note(device, math_.Await(device, oldest.come));
  Release(lane, oldest);
  return true;
}

void* Transfers::TakeStaging(int device, size_t bytes) {
  Reap(device);
  PinnedPool& staging = lanes_[device]->staging;
  void* staged = staging.Take(bytes);
  while (staged == nullptr && AwaitOldest(device)) staged = staging.Take(bytes);
  return staged;
}

void Transfers::Keep(int device, Queue queue, std::shared_ptr<const void> owner, void* staged) {
  Lane& lane = *lanes_[device];
  MutexLock lock(lane.mu);
  const Event come = math_.Record(device, queue);
  if (queue == Queue::kInSmall) math_.Wait(device, Queue::kCompute, come);
  lane.travelling[static_cast<int>(queue)].push_back({come, std::move(owner), staged});
}

// ---- memory of the host -------------------------------------------------------------------------

void Transfers::NoteTravel(size_t bytes) {
  if (bytes < large_bytes_) return;  // tensors do not ask for so little
  MutexLock lock(travels_mu_);
  travels_.insert(PinnedPool::ClassOf(bytes));
}

void* Transfers::TakeHost(size_t bytes) {
  if (bytes > host_bytes_ / 8) return nullptr;
  {
    MutexLock lock(travels_mu_);
    if (travels_.count(PinnedPool::ClassOf(bytes)) == 0) return nullptr;
  }
  void* const data = host_memory_.Take(bytes);
  if (data == nullptr && !is_full_logged_.exchange(true)) {
    DIVVY_LOG(WARNING)
        << "pinned memory is used up: its limit is " << host_bytes_ << " bytes, and a tensor of "
        << bytes
        << " bytes gets none. Such tensors are copied once more on their way to or from a GPU, and "
           "steps are slower. Make batches or --pipeline_depth smaller";
  }
  return data;
}

// ---- to a device --------------------------------------------------------------------------------

void* Transfers::Upload(int device, const void* from, size_t bytes,
                        std::shared_ptr<const void> owner) {
  const TraceRange range("copy to a device");
  const Queue queue = bytes < large_bytes_ ? Queue::kInSmall : Queue::kIn;
  void* const to = Obtain(device, queue, bytes);
  if (to == nullptr) return nullptr;
  if (Send(device, queue, to, from, bytes, std::move(owner)) && queue == Queue::kIn)
    LetUseWait(device, to, bytes);
  return to;
}

// Starts the copy to the device. False: there was no pinned staging memory, so the call itself has
// copied the bytes.
bool Transfers::Send(int device, Queue queue, void* to, const void* from, size_t bytes,
                     std::shared_ptr<const void> owner) {
  if (host_memory_.Owns(from)) {
    Reap(device);
    math_.Copy(device, queue, to, from, bytes);
    Keep(device, queue, std::move(owner), nullptr);
    return true;
  }
  NoteTravel(bytes);
  if (UploadStaged(device, queue, static_cast<char*>(to), static_cast<const char*>(from), bytes))
    return true;
  // The memory, and the pieces that were copied before the staging memory ran out.
  const EventMark is_there(math_, device, queue);
  math_.Wait(device, Queue::kCompute, is_there.event());
  math_.CopyIn(device, to, from, bytes);
  return false;
}

// Copies through pinned staging memory. False: there is none, so everything must be copied in
// another way, including pieces that were already copied.
bool Transfers::UploadStaged(int device, Queue queue, char* to, const char* from, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const size_t piece = std::min(kPieceBytes, bytes - begin);
    void* const staged = TakeStaging(device, piece);
    if (staged == nullptr) return false;
    std::memcpy(staged, from + begin, piece);
    math_.Copy(device, queue, to + begin, staged, piece);
    Keep(device, queue, nullptr, staged);
  }
  return true;
}

void Transfers::LetUseWait(int device, const void* data, size_t bytes) {
  Lane& lane = *lanes_[device];
  MutexLock lock(lane.mu);
  const int64_t number = ++lane.last_arriving;
  lane.arriving[static_cast<const char*>(data)] = {bytes, math_.Record(device, Queue::kIn), false,
                                                   number};
  lane.arriving_in_order.emplace_back(static_cast<const char*>(data), number);
  lane.num_arriving.fetch_add(1, std::memory_order_release);
}

void Transfers::NoteUse(size_t bytes) {
  MutexLock lock(travels_mu_);
  used_.insert(PinnedPool::ClassOf(bytes));
}

bool Transfers::IsUsed(size_t bytes) {
  MutexLock lock(travels_mu_);
  return used_.count(PinnedPool::ClassOf(bytes)) > 0;
}

// A waiting value is not among those that arrive in order until its copy is issued.
void* Transfers::UploadWhenUsed(int device, const void* from, size_t bytes,
                                std::shared_ptr<const void> owner) {
  if (bytes < large_bytes_ || IsUsed(bytes)) return Upload(device, from, bytes, std::move(owner));
  void* const to = Obtain(device, Queue::kIn, bytes);
  if (to == nullptr) return nullptr;
  Lane& lane = *lanes_[device];
  auto source = std::make_shared<const Source>(Source{from, std::move(owner)});
  MutexLock lock(lane.mu);
  lane.arriving[static_cast<const char*>(to)] = {bytes, math_.Record(device, Queue::kIn), false,
                                                 ++lane.last_arriving, std::move(source)};
  lane.num_arriving.fetch_add(1, std::memory_order_release);
  return to;
}

// One thread sends the value. It holds no lock, since sending may wait for the device and destroy
// owners. Other threads that need the value wait until its copy has been issued.
void Transfers::SendIfUnsent(int device, const void* data) {
  Lane& lane = *lanes_[device];
  if (lane.num_arriving.load(std::memory_order_acquire) == 0) return;
  const char* to = nullptr;
  size_t bytes = 0;
  std::shared_ptr<const Source> source;  // destroyed without the lock
  {
    MutexLock lock(lane.mu);
    auto found = lane.arriving.end();
    lane.sent.Wait(lane.mu, [&]() DIVVY_REQUIRES(lane.mu) {
      found = FindArriving(lane, data);
      return found == lane.arriving.end() || !found->second.is_sending;
    });
    if (found == lane.arriving.end() || found->second.source == nullptr) return;
    to = found->first, bytes = found->second.bytes;
    source = std::move(found->second.source);
    found->second.is_sending = true;
  }
  NoteUse(bytes);
  Send(device, Queue::kIn, const_cast<char*>(to), source->data, bytes, source->owner);
  MutexLock lock(lane.mu);
  Arriving& sent = lane.arriving.at(to);
  math_.Release(sent.come);
  sent.come = math_.Record(device, Queue::kIn);
  sent.is_sending = false;
  lane.arriving_in_order.emplace_back(to, sent.number = ++lane.last_arriving);
  lane.sent.NotifyAll();
}

// The entry that contains `data`; the end of the map if there is none, or if its copy is known to
// have arrived.
std::map<const char*, Transfers::Arriving>::iterator Transfers::FindArriving(Lane& lane,
                                                                             const void* data) {
  const auto after = lane.arriving.upper_bound(static_cast<const char*>(data));
  if (after == lane.arriving.begin()) return lane.arriving.end();
  const auto found = std::prev(after);
  return static_cast<const char*>(data) < found->first + found->second.bytes ? found
                                                                             : lane.arriving.end();
}

void Transfers::Arrive(int device, const void* data, int waiting_device, Queue waiting_queue) {
  if (lanes_[device]->num_arriving.load(std::memory_order_acquire) == 0) return;
  SendIfUnsent(device, data);
  LetWait(device, data, waiting_device, waiting_queue);
}

// A value that is not found here has arrived or been freed. kCompute is told once to wait for each
// value. Another queue is told each time, since it may wait for a point of kCompute that precedes
// kCompute's own wait for the value.
void Transfers::LetWait(int device, const void* data, int waiting_device, Queue waiting_queue) {
  Lane& lane = *lanes_[device];
  MutexLock lock(lane.mu);
  const auto found = FindArriving(lane, data);
  if (found == lane.arriving.end()) return;
  Arriving& arriving = found->second;
  if (waiting_queue == Queue::kCompute && arriving.is_told) return;
  math_.Wait(waiting_device, waiting_queue, arriving.come);
  arriving.is_told |= waiting_queue == Queue::kCompute;
}

// A value that was never used is not copied. kCompute, on which it is freed, waits only for its
// memory.
void Transfers::Leave(int device, const void* data) {
  Lane& lane = *lanes_[device];
  if (lane.num_arriving.load(std::memory_order_acquire) == 0) return;
  LetWait(device, data, device, Queue::kCompute);
  std::shared_ptr<const Source> unused;  // destroyed without the lock
  MutexLock lock(lane.mu);
  const auto left = lane.arriving.find(static_cast<const char*>(data));
  if (left == lane.arriving.end()) return;
  unused = std::move(left->second.source);
  Forget(lane, left);
}

void Transfers::Forget(Lane& lane, std::map<const char*, Arriving>::iterator arrived) {
  math_.Release(arrived->second.come);
  lane.arriving.erase(arrived);
  lane.num_arriving.fetch_sub(1, std::memory_order_release);
}

// ---- from a device ------------------------------------------------------------------------------

std::shared_ptr<const DeviceMark> Transfers::Mark(int device) {
  return std::make_shared<EventMark>(math_, device, Queue::kCompute, lanes_[device]->told.load());
}

int64_t Transfers::WaitForValue(int device, Queue queue, const Download& from) {
  const int from_device = from.from_device.index;
  Arrive(from_device, from.from, device, queue);
  const std::shared_ptr<const DeviceMark> mark =
      from.written != nullptr ? from.written : Mark(from_device);
  const auto& event = static_cast<const EventMark&>(*mark);
  math_.Wait(device, queue, event.event());
  return event.point();
}

void* Transfers::CopyAcross(int device, const Download& from) {
  Reap(device);
  void* const to = Obtain(device, Queue::kAcross, static_cast<size_t>(from.bytes));
  if (to == nullptr) return nullptr;
  SendIfUnsent(from.from_device.index, from.from);  // it may wait for the device
  MutexLock lock(together_);
  WaitForValue(device, Queue::kAcross, from);
  math_.CopyAcross(device, Queue::kAcross, to, from.from_device.index, from.from,
                   static_cast<size_t>(from.bytes));
  const EventMark copied(math_, device, Queue::kAcross);
  math_.Wait(device, Queue::kCompute, copied.event());
  // kCompute of the source waits for the copy, so it does not free the memory too early.
  math_.Wait(from.from_device.index, Queue::kCompute, copied.event());
  return to;
}

// Pinned memory for each device's fault, and for all values whose destination is not pinned.
struct Transfers::Staged {
  char* data = nullptr;
  size_t used = 0;

  void* Next(size_t bytes) {
    void* const next = data + used;
    used += Aligned(bytes);
    return next;
  }
};

// Steps:
//
//   1. Each value waits for its computation on the queue kOut of its device, in the order in which
//      the values are computed, and is copied.
//   2. The device's fault is copied likewise; everything that went wrong before these computations
//      is in it by then.
//   3. The host waits for the devices, and copies values from our pinned memory to their
//      destinations.
Transfers::Found Transfers::Bring(absl::Span<const Download> values) {
  const TraceRange range("copy to the host");
  const auto number = [](const Download& value) {
    return value.written == nullptr ? INT64_MAX
                                    : static_cast<const EventMark&>(*value.written).number();
  };
  std::vector<const Download*> in_order;
  for (const Download& value : values) in_order.push_back(&value);
  std::stable_sort(in_order.begin(), in_order.end(),
                   [&](const Download* a, const Download* b) { return number(*a) < number(*b); });

  // One for each device.
  std::map<int, const Fault*> faults;
  // For each device, the last point of kCompute that is waited for.
  std::map<int, int64_t> points;
  size_t staged_bytes = 0;
  std::vector<bool> is_staged;
  for (const Download* const value : in_order) {
    faults.emplace(value->from_device.index, nullptr);
    const bool is_pinned = host_memory_.Owns(value->to);
    if (!is_pinned) NoteTravel(static_cast<size_t>(value->bytes));
    is_staged.push_back(static_cast<size_t>(value->bytes) <= kPieceBytes && !is_pinned);
    if (is_staged.back()) staged_bytes += Aligned(static_cast<size_t>(value->bytes));
  }
  staged_bytes += faults.size() * Aligned(sizeof(Fault));
  const int lane = in_order[0]->from_device.index;
  Staged staged{static_cast<char*>(TakeStaging(lane, staged_bytes))};

  std::vector<std::pair<const Download*, const void*>> arriving;
  for (size_t i = 0; i < in_order.size(); ++i) {
    const Download& value = *in_order[i];
    const int device = value.from_device.index;
    int64_t& point = points[device];
    point = std::max(point, WaitForValue(device, Queue::kOut, value));
    void* to = value.to;
    if (is_staged[i] && staged.data != nullptr)
      arriving.emplace_back(&value, to = staged.Next(static_cast<size_t>(value.bytes)));
    math_.Copy(device, Queue::kOut, to, value.from, static_cast<size_t>(value.bytes));
  }
  Found found;
  for (auto& [device, fault] : faults) {
    if (staged.data == nullptr) continue;
    void* const there = staged.Next(sizeof(Fault));
    math_.Copy(device, Queue::kOut, there, math_.fault_on(device), sizeof(Fault));
    fault = static_cast<const Fault*>(there);
  }
  for (const auto& [device, fault] : faults) {
    found.looks.push_back(std::make_unique<Look>(*this, device));
    const Failure failure = AwaitValues(device, fault, points[device]);
    if (failure.error != nullptr || failure.fault.kind != Fault::kNone)
      found.failures.push_back(failure);
  }
  found.settled = std::move(points);
  for (const auto& [value, from] : arriving)
    std::memcpy(value->to, from, static_cast<size_t>(value->bytes));
  if (staged.data != nullptr) lanes_[lane]->staging.Return(staged.data);
  return found;
}

// The fault may be copied while the device is still computing. Then it is certain that there is a
// fault, but only a device that is done has all its fields. Null: the fault was not copied.
Transfers::Failure Transfers::AwaitValues(int device, const Fault* fault, int64_t point) {
  Lane& lane = *lanes_[device];
  const EventMark copied(math_, device, Queue::kOut);
  Failure found{device, math_.Await(device, copied.event()), {}};
  Raise(lane.reached, point);
  if (found.error != nullptr || (fault != nullptr && fault->kind == Fault::kNone)) return found;
  found.error = math_.Synchronize(device);
  if (found.error != nullptr) return found;
  found.fault = math_.TakeFault(device);
  // Another thread has taken the fault from the device. The values of this call are invalid all the
  // same.
  if (found.fault.kind == Fault::kNone && fault != nullptr) found.fault = *fault;
  return found;
}

}  // namespace divvy::cuda
