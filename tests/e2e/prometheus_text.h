// A strict reader of Prometheus' text format 0.0.4, as tests want it.
#ifndef DIVVY_TESTS_E2E_PROMETHEUS_TEXT_H_
#define DIVVY_TESTS_E2E_PROMETHEUS_TEXT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// One line with a value.
struct MetricSample {
  // With the suffix of a histogram's line: "_bucket", "_sum" or "_count".
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
// All lines of one name.
struct MetricFamily {
  // "counter", "gauge" or "histogram".
  std::string type;
  std::vector<MetricSample> samples;
};

// Reads a page. InvalidArgument names the line and the rule that it breaks:
// - Each name has one HELP line, then one TYPE line, then all of its values; its lines stand
//   together. Each line ends with a line feed.
// - Names and labels are well formed, no series is there twice, and a value is a number.
// - A counter's name ends in _total and its value is finite and not negative.
// - A histogram's buckets rise in `le` and do not fall in value, end with le="+Inf", and the last
//   one equals _count. There is one _sum.
absl::StatusOr<std::map<std::string, MetricFamily>> ParsePrometheusText(absl::string_view page);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_PROMETHEUS_TEXT_H_
