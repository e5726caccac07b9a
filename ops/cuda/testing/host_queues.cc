#include "ops/cuda/testing/host_queues.h"

#include <utility>

namespace divvy::cuda {

class HostQueues::OneQueue : public HostStream {
 public:
  explicit OneQueue(HostQueues& all) : all_(all) {}

  void Add(std::function<void()> work) override {
    MutexLock lock(all_.mu_);
    if (all_.manner_ == Manner::kAtOnce) return work();
    work_.push_back(std::move(work));
    ++added_;
    all_.AnyTime();
  }
  int64_t added() const { return added_; }
  bool HasRun(int64_t number) const { return run_ >= number; }
  bool is_idle() const { return work_.empty(); }
  void RunOne() {
    const std::function<void()> next = std::move(work_.front());
    work_.pop_front();
    next();
    ++run_;
  }
  void RunUntil(int64_t number) {
    while (run_ < number && !work_.empty()) RunOne();
  }

 private:
  HostQueues& all_;
  std::deque<std::function<void()>> work_;
  int64_t added_ = 0, run_ = 0;
};

struct HostQueues::Point {
  OneQueue* queue;
  int64_t number;  // the number of the queue's last operation before the event
};

HostQueues::HostQueues(int num_devices, Manner manner, uint64_t seed)
    : manner_(manner), random_(seed) {
  for (int i = 0; i < num_devices * kNumQueues; ++i)
    streams_.push_back(std::make_unique<OneQueue>(*this));
}

HostQueues::~HostQueues() = default;

HostStream& HostQueues::stream(int device, Queue queue) {
  return *streams_[device * kNumQueues + static_cast<int>(queue)];
}

Event HostQueues::Record(int device, Queue queue) {
  MutexLock lock(mu_);
  OneQueue& it = *streams_[device * kNumQueues + static_cast<int>(queue)];
  return new Point{&it, it.added()};
}

void HostQueues::Wait(int device, Queue queue, Event event) {
  Add(device, queue,
      [point = *static_cast<Point*>(event)] { point.queue->RunUntil(point.number); });
}

bool HostQueues::HasCompleted(Event event) {
  MutexLock lock(mu_);
  const Point& point = *static_cast<Point*>(event);
  return point.queue->HasRun(point.number);
}

void HostQueues::Await(Event event) {
  MutexLock lock(mu_);
  const Point& point = *static_cast<Point*>(event);
  point.queue->RunUntil(point.number);
}

void HostQueues::Release(Event event) { delete static_cast<Point*>(event); }

void HostQueues::Finish(int device, Queue queue) {
  MutexLock lock(mu_);
  OneQueue& it = *streams_[device * kNumQueues + static_cast<int>(queue)];
  it.RunUntil(it.added());
}

void HostQueues::FinishAll() {
  MutexLock lock(mu_);
  for (const auto& queue : streams_) queue->RunUntil(queue->added());
}

void HostQueues::AnyTime() {
  if (manner_ != Manner::kAnyTime) return;
  while (random_.Chance(0.5)) {
    OneQueue& queue = *streams_[random_.Below(streams_.size())];
    if (!queue.is_idle()) queue.RunOne();
  }
}

}  // namespace divvy::cuda
