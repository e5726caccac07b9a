// What the numbers of a job's tasks say to an operator: memory that will be full, a parameter
// server that has too much to do, a worker that is too slow. All functions are pure.
#ifndef DIVVY_RPC_FINDINGS_H_
#define DIVVY_RPC_FINDINGS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace divvy {

// A value at a time.
struct TimedValue {
  absl::Duration at;
  double value = 0;
};

// How long from the last point a value takes to reach `limit`, if it goes on growing as it has. The
// rate is the smaller of two: that of all points, and that of their newer half. So a leap, such as
// that of a start, is no growth. Nullopt: there are fewer than 6 points, or they span less than 20
// s; the value does not grow; or it takes longer than a week. 0: the limit is reached.
std::optional<absl::Duration> TimeUntil(const std::vector<TimedValue>& points, double limit);

// A task that differs from the others.
struct Outlier {
  int index = 0;
  // The factor by which it does.
  double multiple = 0;
  friend bool operator==(const Outlier& a, const Outlier& b) {
    return a.index == b.index && a.multiple == b.multiple;
  }
};

// The parameter servers with more than three times the load of the mean of the others; the factor
// is that of the mean of all. `loads`: rows a second, by index. Empty: there is none, or only one
// server, or all are idle.
std::vector<Outlier> HotServers(const std::map<int, double>& loads);

// The workers whose median step takes more than twice the median of all medians. `medians`: by
// index; a worker with 0 has run no step and does not count. Empty: there is none, or fewer than
// three workers count, because of two nobody can tell which is the odd one.
std::vector<Outlier> Stragglers(const std::map<int, double>& medians);

// Whether steps wait for their data too long: more than half of `busy` seconds in step functions,
// which must be more than a third of `seconds`.
bool IsInputBound(double waited, double busy, double seconds);

// "3 h 10 min", "25 s"
std::string SpanText(absl::Duration span);

}  // namespace divvy

#endif  // DIVVY_RPC_FINDINGS_H_
