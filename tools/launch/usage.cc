#include "tools/launch/usage.h"

#include <algorithm>

#include "absl/strings/str_format.h"

namespace divvy {

Usage Usage::Of(const rusage& usage) {
  constexpr int64_t kKilobyte = 1024;  // the unit of ru_maxrss
  return {absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime),
          usage.ru_maxrss * kKilobyte};
}

void Usage::Add(const Usage& other) {
  processor += other.processor;
  peak_bytes = std::max(peak_bytes, other.peak_bytes);
}

std::string Usage::ToString() const {
  return absl::StrFormat("%.2f s of CPU time, %.1f MB at most", absl::ToDoubleSeconds(processor),
                         static_cast<double>(peak_bytes) / 1e6);
}

}  // namespace divvy
