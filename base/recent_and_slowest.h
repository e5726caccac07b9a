// A bounded memory of what happened: the last of it, and the slowest of the last minutes.
#ifndef DIVVY_BASE_RECENT_AND_SLOWEST_H_
#define DIVVY_BASE_RECENT_AND_SLOWEST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Keeps copies of values of type T, each with the time that it took. Thread-safe. Its lock is held
// for a copy only.
//
//   RecentAndSlowest<Call> calls({/*last=*/64, /*slowest=*/32});
//   calls.Add(clock.Elapsed(), took, call);
template <typename T>
class RecentAndSlowest {
 public:
  struct Options {
    // How many are kept; each at least 1.
    size_t last = 64, slowest = 32;
    // For how long a slow one is kept.
    absl::Duration window = absl::Minutes(10);
  };
  // Which of the two a value is considered for.
  enum class Keep : uint8_t { kIfSlow, kAnyway };

  explicit RecentAndSlowest(Options options = {}) : options_(options) {}

  // Adds what ended at `now`, which never goes back. kAnyway: it is among the last for sure.
  void Add(absl::Duration now, absl::Duration took, T value, Keep keep = Keep::kAnyway) {
    MutexLock lock(mu_);
    DropOld(now);
    if (slowest_.size() < options_.slowest || took > least_) {
      if (slowest_.size() == options_.slowest) slowest_.erase(Least());
      slowest_.push_back({now, took, value});
      NoteLeast();
    }
    if (keep == Keep::kIfSlow) return;
    last_.push_back(std::move(value));
    if (last_.size() > options_.last) last_.pop_front();
  }
  // A value is kept among the slowest if it takes longer than this; -infinite: any is.
  absl::Duration Threshold(absl::Duration now) {
    MutexLock lock(mu_);
    DropOld(now);
    return slowest_.size() < options_.slowest ? -absl::InfiniteDuration() : least_;
  }

  // The oldest first.
  std::vector<T> Last() const {
    MutexLock lock(mu_);
    return {last_.begin(), last_.end()};
  }
  // The slowest first, of those that ended within the window before `now`.
  std::vector<T> Slowest(absl::Duration now) const {
    std::vector<Slow> slow;
    {
      MutexLock lock(mu_);
      slow = slowest_;
    }
    std::stable_sort(slow.begin(), slow.end(),
                     [](const Slow& a, const Slow& b) { return a.took > b.took; });
    std::vector<T> values;
    for (Slow& each : slow) {
      if (now - each.at <= options_.window) values.push_back(std::move(each.value));
    }
    return values;
  }

 private:
  struct Slow {
    absl::Duration at, took;
    T value;
  };
  typename std::vector<Slow>::iterator Least() DIVVY_REQUIRES(mu_) {
    return std::min_element(slowest_.begin(), slowest_.end(),
                            [](const Slow& a, const Slow& b) { return a.took < b.took; });
  }
  void NoteLeast() DIVVY_REQUIRES(mu_) {
    least_ = slowest_.empty() ? absl::ZeroDuration() : Least()->took;
  }
  // They are in the order in which they ended.
  void DropOld(absl::Duration now) DIVVY_REQUIRES(mu_) {
    if (slowest_.empty() || now - slowest_.front().at <= options_.window) return;
    slowest_.erase(slowest_.begin(),
                   std::find_if(slowest_.begin(), slowest_.end(), [&](const Slow& each) {
                     return now - each.at <= options_.window;
                   }));
    NoteLeast();
  }

  const Options options_;
  mutable Mutex mu_;
  std::deque<T> last_ DIVVY_GUARDED_BY(mu_);
  std::vector<Slow> slowest_ DIVVY_GUARDED_BY(mu_);
  // The least time in slowest_.
  absl::Duration least_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_RECENT_AND_SLOWEST_H_
