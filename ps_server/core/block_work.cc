#include "ps_server/core/block_work.h"

#include <algorithm>
#include <atomic>

namespace divvy {
namespace {

// Enough to keep several cores busy with one large transfer, and few enough that other tasks get
// their turn between.
constexpr int64_t kLanes = 4;

struct Work : std::enable_shared_from_this<Work> {
  Work(Executor& executor, std::weak_ptr<void> owner, int64_t count,
       std::function<void(int64_t)> unit, std::function<void()> done)
      : executor(executor),
        owner(std::move(owner)),
        count(count),
        unit(std::move(unit)),
        done(std::move(done)) {}

  void PostLane() {
    executor.Post([self = shared_from_this()] { self->RunLane(); });
  }
  void RunLane() {
    const std::shared_ptr<void> alive = owner.lock();
    if (alive == nullptr) return;
    const int64_t index = next.fetch_add(1);
    if (index < count) {
      unit(index);
    } else if (count > 0) {
      return;  // another lane took the last unit
    }
    if (finished.fetch_add(1) + 1 == std::max<int64_t>(count, 1)) return done();
    if (next.load() < count) PostLane();
  }

  Executor& executor;
  const std::weak_ptr<void> owner;
  const int64_t count;
  const std::function<void(int64_t)> unit;
  const std::function<void()> done;
  std::atomic<int64_t> next{0}, finished{0};
};

}  // namespace

void UnitList::AddPiece(int64_t bytes) {
  if (begins_.empty() || last_bytes_ + bytes > unit_bytes_) {
    begins_.push_back(pieces_);
    last_bytes_ = 0;
  }
  last_bytes_ += bytes;
  bytes_ += bytes;
  ++pieces_;
}

std::pair<size_t, size_t> UnitList::pieces(int64_t unit) const {
  const size_t index = static_cast<size_t>(unit);
  return {begins_[index], index + 1 < begins_.size() ? begins_[index + 1] : pieces_};
}

void RunUnits(Executor& executor, std::weak_ptr<void> owner, const UnitList& units,
              int64_t at_once_bytes, std::function<void(int64_t)> unit,
              std::function<void()> done) {
  const int64_t count = units.count();
  if (units.bytes() <= at_once_bytes) {
    const std::shared_ptr<void> alive = owner.lock();
    if (alive == nullptr) return;
    for (int64_t i = 0; i < count; ++i) unit(i);
    return done();
  }
  auto work =
      std::make_shared<Work>(executor, std::move(owner), count, std::move(unit), std::move(done));
  const int64_t lanes = std::clamp<int64_t>(count, 1, kLanes);
  for (int64_t i = 0; i < lanes; ++i) work->PostLane();
}

}  // namespace divvy
