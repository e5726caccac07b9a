// The last values of a series, for figures such as a median that a histogram tells too coarsely.
#ifndef DIVVY_BASE_RECENT_VALUES_H_
#define DIVVY_BASE_RECENT_VALUES_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace divvy {

// Keeps the last 256 values. Thread-safe and lock-free. A reader may miss a value that is being
// added.
class RecentValues {
 public:
  static constexpr size_t kMost = 256;

  void Add(double value) {
    const uint64_t number = added_.fetch_add(1, std::memory_order_relaxed);
    values_[number % kMost].store(static_cast<float>(value), std::memory_order_relaxed);
  }
  // The smallest kept value that at least the share `q` of the values does not exceed; 0 if there
  // is none. REQUIRES: 0 <= q <= 1.
  double Quantile(double q) const {
    const auto size =
        static_cast<size_t>(std::min<uint64_t>(added_.load(std::memory_order_relaxed), kMost));
    if (size == 0) return 0;
    std::vector<float> sorted(size);
    for (size_t i = 0; i < size; ++i) sorted[i] = values_[i].load(std::memory_order_relaxed);
    const size_t rank = std::min(size - 1, static_cast<size_t>(q * static_cast<double>(size)));
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(rank), sorted.end());
    return sorted[rank];
  }

 private:
  std::atomic<uint64_t> added_{0};
  std::array<std::atomic<float>, kMost> values_{};
};

}  // namespace divvy

#endif  // DIVVY_BASE_RECENT_VALUES_H_
