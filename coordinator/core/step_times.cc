#include "coordinator/core/step_times.h"

namespace divvy {
namespace {

// The first steps of a function make its slots, and find no memory that is in a cache.
constexpr int kFewest = 8;
// Older steps lose half of their weight each time so many have been counted.
constexpr int kMost = 64;

}  // namespace

void StepTimes::Note(const std::string& function, absl::Duration took) {
  Sum& sum = functions_[function];
  ++sum.steps;
  sum.took += took;
  if (sum.steps < kMost) return;
  sum.steps /= 2;
  sum.took /= 2;
}

absl::Duration StepTimes::Expected(const std::string& function) const {
  const auto sum = functions_.find(function);
  if (sum == functions_.end() || sum->second.steps < kFewest) return absl::InfiniteDuration();
  return sum->second.took / sum->second.steps;
}

}  // namespace divvy
