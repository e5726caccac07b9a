#include "tensor/copies_ahead.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "tensor/device_memory.h"

namespace divvy {
namespace {

// Values of at least this size are copied one by one, so each is found as soon as it is copied.
// Smaller ones share one copy (ToDevice).
constexpr int64_t kAloneBytes = 64 << 10;

// Which values travel together.
std::vector<std::vector<size_t>> PartsOf(const std::vector<Tensor>& values) {
  std::vector<std::vector<size_t>> parts(1);
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].size_bytes() < kAloneBytes) {
      parts[0].push_back(i);
    } else {
      parts.push_back({i});
    }
  }
  return parts;
}

// The copies of some values on one device. Thread-safe.
//
//   state      event                                                            next state
//   PROMISED   Make                                                             UNDER WAY
//   PROMISED   Find, Drop                                                       OVER
//   UNDER WAY  all copies made, no memory, an error of the device, or a Drop    OVER
class CopyJob {
 public:
  explicit CopyJob(Device device) : device_(device) {}
  Device device() const { return device_; }

  void Make(const std::vector<Tensor>& values) {
    {
      MutexLock lock(mu_);
      if (state_ != State::kPromised) return;
      state_ = State::kUnderWay;
    }
    for (const std::vector<size_t>& part : PartsOf(values)) {
      if (!MakePart(values, part)) break;
    }
    MutexLock lock(mu_);
    state_ = State::kOver;
    changed_.NotifyAll();
  }

  // Waits only for this copy, not for later ones.
  std::optional<Tensor> Find(size_t index) {
    MutexLock lock(mu_);
    if (state_ == State::kPromised) state_ = State::kOver;
    changed_.Wait(mu_, [&]() DIVVY_REQUIRES(mu_) {
      return state_ == State::kOver || is_dropped_ || copies_.count(index) > 0;
    });
    const auto copy = copies_.find(index);
    return copy == copies_.end() ? std::nullopt : std::optional<Tensor>(copy->second);
  }

  // Drops the copies, and ends the making of more. Returns whether any copy existed or was being
  // made.
  bool Drop() {
    std::map<size_t, Tensor> dropped;  // freed without the lock
    MutexLock lock(mu_);
    dropped.swap(copies_);
    is_dropped_ = true;
    if (state_ == State::kPromised) state_ = State::kOver;
    changed_.NotifyAll();
    return !dropped.empty() || state_ == State::kUnderWay;
  }

  // Waits until no copy is being made. REQUIRES: dropped; this thread makes none.
  void AwaitEnd() {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) { return state_ != State::kUnderWay; });
  }

 private:
  enum class State : uint8_t { kPromised, kUnderWay, kOver };

  // Makes the copies of one part. False: make no more parts.
  bool MakePart(const std::vector<Tensor>& values, const std::vector<size_t>& part) {
    std::vector<Tensor> here;
    for (const size_t i : part) here.push_back(values[i]);
    // A result that was dropped meanwhile is freed without the lock, and before Make announces its
    // end. So after AwaitEnd no copy holds memory.
    absl::StatusOr<std::vector<Tensor>> made = Copied(here);
    MutexLock lock(mu_);
    if (is_dropped_ || !made.ok()) return false;
    for (size_t i = 0; i < part.size(); ++i) copies_.emplace(part[i], std::move((*made)[i]));
    changed_.NotifyAll();
    return true;
  }
  absl::StatusOr<std::vector<Tensor>> Copied(const std::vector<Tensor>& here) const {
    {
      MutexLock lock(mu_);
      if (is_dropped_) return std::vector<Tensor>();
    }
    const TravelScope scope(Travel::kIfRoom);
    return ToDevice(here, device_);
  }

  const Device device_;
  mutable Mutex mu_;
  CondVar changed_;
  State state_ DIVVY_GUARDED_BY(mu_) = State::kPromised;
  bool is_dropped_ DIVVY_GUARDED_BY(mu_) = false;
  std::map<size_t, Tensor> copies_ DIVVY_GUARDED_BY(mu_);  // the copies that have been made
};

// The note of a value: the jobs that have its copies.
class CopiesNote : public TensorNote {
 public:
  struct Copy {
    std::shared_ptr<CopyJob> job;
    size_t index = 0;
  };
  CopiesNote(DType dtype, const Shape& shape, std::vector<Copy> copies)
      : dtype_(dtype), shape_(shape), copies_(std::move(copies)) {}

  std::optional<Tensor> Find(const Tensor& value, Device device) const {
    if (value.dtype() != dtype_ || value.shape() != shape_) return std::nullopt;
    for (const Copy& copy : copies_) {
      if (copy.job->device() == device) return copy.job->Find(copy.index);
    }
    return std::nullopt;
  }

 private:
  const DType dtype_;
  const Shape shape_;
  const std::vector<Copy> copies_;
};

// All jobs whose values still live. Never destroyed, so the order of destruction does not matter.
class Jobs {
 public:
  static Jobs& Get() {
    static Jobs* const jobs = new Jobs();
    return *jobs;
  }
  void Add(const std::shared_ptr<CopyJob>& job) {
    MutexLock lock(mu_);
    jobs_.erase(std::remove_if(jobs_.begin(), jobs_.end(),
                               [](const std::weak_ptr<CopyJob>& one) { return one.expired(); }),
                jobs_.end());
    jobs_.push_back(job);
  }
  std::vector<std::shared_ptr<CopyJob>> On(Device device) {
    std::vector<std::shared_ptr<CopyJob>> found;
    MutexLock lock(mu_);
    for (const std::weak_ptr<CopyJob>& one : jobs_) {
      std::shared_ptr<CopyJob> job = one.lock();
      if (job != nullptr && job->device() == device) found.push_back(std::move(job));
    }
    return found;
  }

 private:
  Mutex mu_;
  std::vector<std::weak_ptr<CopyJob>> jobs_ DIVVY_GUARDED_BY(mu_);
};

struct Work {
  std::shared_ptr<CopyJob> job;
  std::vector<Tensor> values;
};

Work& WorkFor(Device device, std::vector<Work>& all) {
  for (Work& work : all) {
    if (work.job->device() == device) return work;
  }
  all.push_back({std::make_shared<CopyJob>(device), {}});
  return all.back();
}

}  // namespace

std::function<void()> PromiseCopies(const std::vector<CopyWanted>& wanted) {
  // A copy of integers holds the memory that it came from (Tensor::To). If that memory held the
  // copy here, neither would ever be freed.
  std::vector<Work> all;
  for (const auto& [value, devices] : wanted) {
    if (value.size_bytes() == 0 || IsInteger(value.dtype())) continue;
    std::vector<CopiesNote::Copy> copies;
    for (const Device device : devices) {
      Work& work = WorkFor(device, all);
      copies.push_back({work.job, work.values.size()});
      work.values.push_back(value);
    }
    value.SetNote(
        std::make_shared<const CopiesNote>(value.dtype(), value.shape(), std::move(copies)));
  }
  for (const Work& work : all) Jobs::Get().Add(work.job);
  return [all = std::move(all)] {
    for (const Work& work : all) work.job->Make(work.values);
  };
}

std::optional<Tensor> FindCopyAhead(const Tensor& value, Device device) {
  const auto note = std::dynamic_pointer_cast<const CopiesNote>(value.note());
  return note == nullptr ? std::nullopt : note->Find(value, device);
}

bool DropCopiesAhead(Device device) {
  bool any = false;
  const std::vector<std::shared_ptr<CopyJob>> jobs = Jobs::Get().On(device);
  // Drops all of them before it waits for any.
  for (const std::shared_ptr<CopyJob>& job : jobs) any |= job->Drop();
  // This thread is making the copies, and must not wait for itself.
  if (TravelScope::Now() == Travel::kIfRoom) return any;
  for (const std::shared_ptr<CopyJob>& job : jobs) job->AwaitEnd();
  return any;
}

}  // namespace divvy
