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
//
// The window is cut into ten slices, and the slowest of each slice are kept. So a value that was
// faster than older ones is still known when those leave the window.
template <typename T>
class RecentAndSlowest {
 public:
  struct Options {
    // How many are kept; each at least 1. `slowest` is for each slice: eleven slices, the oldest
    // and the newest of them incomplete, may be in the window.
    size_t last = 64, slowest = 32;
    // For how long a slow one is kept. More than 0.
    absl::Duration window = absl::Minutes(10);
  };

  explicit RecentAndSlowest(Options options = {}) : options_(options) {}

  // In all methods `now` never goes back.

  // The value ended at `now`. It is one of the last, and of the slowest if it was slow.
  void Add(absl::Duration now, absl::Duration took, T value) {
    AddIfSlow(now, took, value);
    AddToLast(std::move(value));
  }
  // It does not count as slow, however long it took.
  void AddToLast(T value) {
    MutexLock lock(mu_);
    last_.push_back(std::move(value));
    if (last_.size() > options_.last) last_.pop_front();
  }
  // It is not one of the last.
  void AddIfSlow(absl::Duration now, absl::Duration took, const T& value) {
    MutexLock lock(mu_);
    Slice& slice = NewestSlice(now);
    if (slice.slow.size() < options_.slowest) {
      slice.slow.push_back({now, took, value});
    } else if (took > slice.least) {
      *Least(slice) = {now, took, value};
    } else {
      return;
    }
    slice.least = Least(slice)->took;
  }
  // AddIfSlow at `now` keeps a value that took longer than this; -infinite: any value.
  absl::Duration Threshold(absl::Duration now) const {
    MutexLock lock(mu_);
    if (slices_.empty() || slices_.back().number != NumberAt(now) ||
        slices_.back().slow.size() < options_.slowest)
      return -absl::InfiniteDuration();
    return slices_.back().least;
  }

  // The oldest first.
  std::vector<T> Last() const {
    MutexLock lock(mu_);
    return {last_.begin(), last_.end()};
  }
  // At most Options::slowest, the slowest first, of those that ended within the window before
  // `now`.
  std::vector<T> Slowest(absl::Duration now) const {
    std::vector<Slow> slow;
    {
      MutexLock lock(mu_);
      for (const Slice& slice : slices_) {
        for (const Slow& each : slice.slow) {
          if (now - each.at <= options_.window) slow.push_back(each);
        }
      }
    }
    std::stable_sort(slow.begin(), slow.end(),
                     [](const Slow& a, const Slow& b) { return a.took > b.took; });
    std::vector<T> values;
    for (size_t i = 0; i < std::min(slow.size(), options_.slowest); ++i)
      values.push_back(std::move(slow[i].value));
    return values;
  }

 private:
  static constexpr int64_t kSlices = 10;

  struct Slow {
    absl::Duration at, took;
    T value;
  };
  struct Slice {
    // The time of its begin, in slices.
    int64_t number = 0;
    std::vector<Slow> slow = {};
    // The least time in `slow`.
    absl::Duration least = {};
  };
  static typename std::vector<Slow>::iterator Least(Slice& slice) {
    return std::min_element(slice.slow.begin(), slice.slow.end(),
                            [](const Slow& a, const Slow& b) { return a.took < b.took; });
  }
  int64_t NumberAt(absl::Duration now) const {
    absl::Duration rest;
    return absl::IDivDuration(now, options_.window / kSlices, &rest);
  }
  // Forgets the slices that are wholly before the window.
  Slice& NewestSlice(absl::Duration now) DIVVY_REQUIRES(mu_) {
    const int64_t number = NumberAt(now);
    if (slices_.empty() || slices_.back().number < number) slices_.push_back({number});
    while (slices_.front().number < number - kSlices) slices_.pop_front();
    return slices_.back();
  }

  const Options options_;
  mutable Mutex mu_;
  std::deque<T> last_ DIVVY_GUARDED_BY(mu_);
  std::deque<Slice> slices_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_RECENT_AND_SLOWEST_H_
