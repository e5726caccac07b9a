#include "rpc/findings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

constexpr size_t kLeastPoints = 6;
constexpr absl::Duration kLeastSpan = absl::Seconds(20), kMostForecast = absl::Hours(7 * 24);
constexpr double kHot = 3, kStraggler = 2, kInputBound = 0.5, kBusy = 1.0 / 3;
constexpr size_t kLeastWorkers = 3;
// Rows a second, of all servers together. Below this nothing is bound by a server.
constexpr double kIdle = 1;

// The growth a second of points from `first` on, by least squares.
double GrowthOf(const std::vector<TimedValue>& points, size_t first) {
  const auto count = static_cast<double>(points.size() - first);
  double mean_time = 0, mean_value = 0;
  const auto time = [&](size_t i) {
    return absl::ToDoubleSeconds(points[i].at - points[first].at);
  };
  for (size_t i = first; i < points.size(); ++i) {
    mean_time += time(i) / count;
    mean_value += points[i].value / count;
  }
  double product = 0, square = 0;
  for (size_t i = first; i < points.size(); ++i) {
    product += (time(i) - mean_time) * (points[i].value - mean_value);
    square += (time(i) - mean_time) * (time(i) - mean_time);
  }
  return square == 0 ? 0 : product / square;
}

}  // namespace

std::optional<absl::Duration> TimeUntil(const std::vector<TimedValue>& points, double limit) {
  if (points.size() < kLeastPoints || points.back().at - points.front().at < kLeastSpan)
    return std::nullopt;
  const double growth = std::min(GrowthOf(points, 0), GrowthOf(points, points.size() / 2));
  if (growth <= 0) return std::nullopt;
  const double left = std::max(0.0, limit - points.back().value);
  if (left > growth * absl::ToDoubleSeconds(kMostForecast)) return std::nullopt;
  return absl::Seconds(left / growth);
}

std::vector<Outlier> HotServers(const std::map<int, double>& loads) {
  double sum = 0;
  for (const auto& [index, load] : loads) sum += load;
  std::vector<Outlier> hot;
  if (loads.size() < 2 || sum < kIdle) return hot;
  const auto count = static_cast<double>(loads.size());
  for (const auto& [index, load] : loads) {
    if (load * (count - 1) > kHot * (sum - load)) hot.push_back({index, load * count / sum});
  }
  return hot;
}

std::vector<Outlier> Stragglers(const std::map<int, double>& medians) {
  std::vector<double> sorted;
  for (const auto& [index, median] : medians) {
    if (median > 0) sorted.push_back(median);
  }
  std::vector<Outlier> slow;
  if (sorted.size() < kLeastWorkers) return slow;
  // Of an even number the lower one of the two in the middle, because a straggler is slow.
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  for (const auto& [index, median] : medians) {
    if (median > kStraggler * *middle) slow.push_back({index, median / *middle});
  }
  return slow;
}

bool IsInputBound(double waited, double busy, double seconds) {
  return busy > kBusy * seconds && waited > kInputBound * busy;
}

std::string SpanText(absl::Duration span) {
  const int64_t seconds = absl::ToInt64Seconds(span);
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) return absl::StrCat(seconds / 60, " min ", seconds % 60, " s");
  if (seconds < 48 * 3600) return absl::StrCat(seconds / 3600, " h ", seconds % 3600 / 60, " min");
  return absl::StrCat(seconds / 86400, " d ", seconds % 86400 / 3600, " h");
}

}  // namespace divvy
