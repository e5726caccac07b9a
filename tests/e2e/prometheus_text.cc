#include "tests/e2e/prometheus_text.h"

#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

absl::Status Breaks(absl::string_view line, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat(rule, ": ", line));
}

bool IsName(absl::string_view text) {
  if (text.empty() || absl::ascii_isdigit(text[0])) return false;
  for (const char c : text) {
    if (!absl::ascii_isalnum(c) && c != '_' && c != ':') return false;
  }
  return true;
}

std::optional<double> NumberOf(absl::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

// Reads `name="value"` from the front of `text`. False: it is not there.
bool TakeLabel(absl::string_view& text, std::map<std::string, std::string>& labels) {
  const size_t equals = text.find("=\"");
  if (equals == text.npos || !IsName(text.substr(0, equals))) return false;
  const std::string name(text.substr(0, equals));
  text.remove_prefix(equals + 2);
  std::string value;
  for (; !text.empty() && text[0] != '"'; text.remove_prefix(1)) {
    if (text[0] != '\\') {
      value += text[0];
      continue;
    }
    text.remove_prefix(1);
    if (text.empty() || !absl::StrContains("\\\"n", text.substr(0, 1))) return false;
    value += text[0] == 'n' ? '\n' : text[0];
  }
  return absl::ConsumePrefix(&text, "\"") && labels.emplace(name, value).second;
}

absl::StatusOr<MetricSample> SampleOf(absl::string_view line) {
  MetricSample sample;
  absl::string_view rest = line;
  const size_t end = rest.find_first_of("{ ");
  if (end == rest.npos) return Breaks(line, "a line has a name and a value");
  sample.name = std::string(rest.substr(0, end));
  if (!IsName(sample.name)) return Breaks(line, "the name is not well formed");
  rest.remove_prefix(end);
  if (absl::ConsumePrefix(&rest, "{")) {
    do {
      if (!TakeLabel(rest, sample.labels)) return Breaks(line, "a label is not well formed");
    } while (absl::ConsumePrefix(&rest, ","));
    if (!absl::ConsumePrefix(&rest, "}")) return Breaks(line, "the labels do not end");
  }
  if (!absl::ConsumePrefix(&rest, " ")) return Breaks(line, "one space comes before the value");
  const std::optional<double> value = NumberOf(rest);
  if (!value) return Breaks(line, "the value is no number");
  sample.value = *value;
  return sample;
}

absl::Status CheckCounter(const std::string& name, const MetricFamily& family) {
  if (!absl::EndsWith(name, "_total")) return Breaks(name, "a counter's name ends in _total");
  for (const MetricSample& sample : family.samples) {
    if (sample.name != name || !std::isfinite(sample.value) || sample.value < 0)
      return Breaks(name, "a counter is finite and not negative");
  }
  return absl::OkStatus();
}

// The lines of one histogram series.
struct Series {
  std::vector<std::pair<double, double>> buckets;  // le, value
  std::optional<double> sum, count;
};

absl::Status CheckSeries(const std::string& name, const Series& series) {
  double le = -std::numeric_limits<double>::infinity(), below = 0;
  for (const auto& [bound, value] : series.buckets) {
    if (bound <= le) return Breaks(name, "buckets rise in le");
    if (value < below) return Breaks(name, "buckets are cumulative");
    le = bound, below = value;
  }
  if (series.buckets.empty() || !std::isinf(le)) return Breaks(name, "the last bucket is +Inf");
  if (!series.count || !series.sum) return Breaks(name, "a histogram has _sum and _count");
  return *series.count == below ? absl::OkStatus() : Breaks(name, "+Inf equals _count");
}

absl::Status CheckHistogram(const std::string& name, const MetricFamily& family) {
  std::map<std::map<std::string, std::string>, Series> all;
  for (const MetricSample& sample : family.samples) {
    std::map<std::string, std::string> labels = sample.labels;
    const auto le = labels.extract("le");
    Series& series = all[labels];
    if (sample.name == name + "_bucket") {
      const std::optional<double> bound = le.empty() ? std::nullopt : NumberOf(le.mapped());
      if (!bound) return Breaks(name, "a bucket has le");
      series.buckets.emplace_back(*bound, sample.value);
    } else if (sample.name == name + "_sum") {
      series.sum = sample.value;
    } else if (sample.name == name + "_count") {
      series.count = sample.value;
    } else {
      return Breaks(sample.name, "a histogram has only _bucket, _sum and _count");
    }
  }
  for (const auto& [labels, series] : all) RETURN_IF_ERROR(CheckSeries(name, series));
  return absl::OkStatus();
}

absl::Status CheckFamily(const std::string& name, const MetricFamily& family) {
  if (family.samples.empty()) return Breaks(name, "a name has a value");
  std::set<std::pair<std::string, std::map<std::string, std::string>>> seen;
  for (const MetricSample& sample : family.samples) {
    if (!seen.emplace(sample.name, sample.labels).second)
      return Breaks(sample.name, "no series is there twice");
  }
  if (family.type == "counter") return CheckCounter(name, family);
  if (family.type == "histogram") return CheckHistogram(name, family);
  for (const MetricSample& sample : family.samples) {
    if (sample.name != name) return Breaks(sample.name, "a value belongs to the name above it");
  }
  return family.type == "gauge" ? absl::OkStatus() : Breaks(name, "the type is unknown");
}

}  // namespace

absl::StatusOr<std::map<std::string, MetricFamily>> ParsePrometheusText(absl::string_view page) {
  if (!absl::ConsumeSuffix(&page, "\n")) return Breaks("", "the page ends with a line feed");
  std::map<std::string, MetricFamily> families;
  std::string name, helped;
  for (const absl::string_view line : absl::StrSplit(page, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    if (absl::StartsWith(line, "# HELP ")) {
      helped = std::string(words[2]);
      if (words.size() < 4 || words[3].empty()) return Breaks(line, "HELP has a text");
      if (!IsName(helped) || families.count(helped) > 0)
        return Breaks(line, "the lines of a name stand together");
    } else if (absl::StartsWith(line, "# TYPE ")) {
      if (words.size() != 4 || words[2] != helped || families.count(helped) > 0)
        return Breaks(line, "TYPE follows HELP");
      name = helped;
      families[name].type = std::string(words[3]);
    } else {
      ASSIGN_OR_RETURN(MetricSample sample, SampleOf(line));
      if (name.empty() || helped != name || !absl::StartsWith(sample.name, name))
        return Breaks(line, "a value stands below its own HELP and TYPE");
      families[name].samples.push_back(std::move(sample));
    }
  }
  for (const auto& [of, family] : families) RETURN_IF_ERROR(CheckFamily(of, family));
  return families;
}

}  // namespace divvy
