#include "base/metrics.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/log.h"

namespace divvy {
namespace {

// C++17's atomic<double> has no fetch_add.
void AddTo(std::atomic<double>& sum, double amount) {
  double before = sum.load(std::memory_order_relaxed);
  while (!sum.compare_exchange_weak(before, before + amount, std::memory_order_relaxed)) {
  }
}

bool IsName(absl::string_view text) {
  const auto is_letter = [](char c) { return absl::ascii_isalpha(c) || c == '_'; };
  return !text.empty() && is_letter(text[0]) && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter(c) || absl::ascii_isdigit(c);
  });
}

// The shortest text that reads back as the same number.
std::string FormatNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::string text = absl::StrFormat("%.15g", value);
  double back = 0;
  if (!absl::SimpleAtod(text, &back) || back != value) text = absl::StrFormat("%.17g", value);
  return text;
}

std::string FormatLabels(const MetricsRegistry::Labels& labels, absl::string_view le = "") {
  std::vector<std::string> parts;
  for (const auto& [name, value] : labels) {
    parts.push_back(absl::StrCat(
        name, "=\"", absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}),
        "\""));
  }
  if (!le.empty()) parts.push_back(absl::StrCat("le=\"", le, "\""));
  return parts.empty() ? "" : absl::StrCat("{", absl::StrJoin(parts, ","), "}");
}

void AppendHistogram(const std::string& name, const MetricsRegistry::Labels& labels,
                     const Histogram& histogram, std::string& text) {
  const std::vector<uint64_t> counts = histogram.counts();
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    // The count of a Prometheus bucket includes all smaller buckets.
    total += counts[i];
    const std::string bound =
        i < histogram.bounds().size() ? FormatNumber(histogram.bounds()[i]) : "+Inf";
    absl::StrAppend(&text, name, "_bucket", FormatLabels(labels, bound), " ", total, "\n");
  }
  absl::StrAppend(&text, name, "_sum", FormatLabels(labels), " ", FormatNumber(histogram.sum()),
                  "\n");
  absl::StrAppend(&text, name, "_count", FormatLabels(labels), " ", total, "\n");
}

constexpr int kCounter = 0, kGauge = 1, kHistogram = 2, kSeconds = 3;
constexpr const char* kKindNames[] = {"counter", "gauge", "histogram", "counter"};

}  // namespace

// All metrics of one name.
struct MetricsRegistry::Family {
  std::string help;
  int kind = kCounter;
  BucketOptions buckets;
  std::map<Labels, Counter> counters;
  std::map<Labels, Gauge> gauges;
  std::map<Labels, Histogram> histograms;
};

void Gauge::Add(double amount) { AddTo(value_, amount); }

Histogram::Histogram(const BucketOptions& options) {
  DIVVY_CHECK(options.first > 0 && options.factor > 1 && options.count >= 1 &&
              options.count <= 200);
  double bound = options.first;
  for (int i = 0; i < options.count; ++i, bound *= options.factor) bounds_.push_back(bound);
  for (size_t i = 0; i <= bounds_.size(); ++i) counts_.emplace_back(0);
}

void Histogram::Observe(double value) {
  if (std::isnan(value)) return;
  const size_t bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[bucket].fetch_add(1, std::memory_order_relaxed);
  AddTo(sum_, value);
}

std::vector<uint64_t> Histogram::counts() const {
  std::vector<uint64_t> counts;
  for (const std::atomic<uint64_t>& count : counts_)
    counts.push_back(count.load(std::memory_order_relaxed));
  return counts;
}

MetricsRegistry::MetricsRegistry() = default;
MetricsRegistry::~MetricsRegistry() = default;

MetricsRegistry::Family& MetricsRegistry::FindFamily(const std::string& name,
                                                     const std::string& help, const Labels& labels,
                                                     int kind) {
  DIVVY_CHECK(IsName(name));
  for (const auto& [label, value] : labels)
    DIVVY_CHECK(IsName(label) && (kind != kHistogram || label != "le"));
  std::unique_ptr<Family>& family = families_[name];
  if (family == nullptr) {
    family = std::make_unique<Family>();
    family->help = help;
    family->kind = kind;
  }
  DIVVY_CHECK(family->kind == kind);
  return *family;
}

Counter& MetricsRegistry::GetCounter(const std::string& name, const std::string& help,
                                     const Labels& labels) {
  MutexLock lock(mu_);
  return FindFamily(name, help, labels, kCounter).counters[labels];
}

Gauge& MetricsRegistry::GetGauge(const std::string& name, const std::string& help,
                                 const Labels& labels) {
  MutexLock lock(mu_);
  return FindFamily(name, help, labels, kGauge).gauges[labels];
}

Gauge& MetricsRegistry::GetSecondsCounter(const std::string& name, const std::string& help,
                                          const Labels& labels) {
  MutexLock lock(mu_);
  return FindFamily(name, help, labels, kSeconds).gauges[labels];
}

Histogram& MetricsRegistry::GetHistogram(const std::string& name, const std::string& help,
                                         const Labels& labels, const BucketOptions& buckets) {
  MutexLock lock(mu_);
  Family& family = FindFamily(name, help, labels, kHistogram);
  if (family.histograms.empty()) family.buckets = buckets;
  return family.histograms.try_emplace(labels, family.buckets).first->second;
}

std::string MetricsRegistry::ToPrometheusText() const {
  MutexLock lock(mu_);
  std::string text;
  for (const auto& [name, family] : families_) {
    absl::StrAppend(&text, "# HELP ", name, " ",
                    absl::StrReplaceAll(family->help, {{"\\", "\\\\"}, {"\n", "\\n"}}), "\n");
    absl::StrAppend(&text, "# TYPE ", name, " ", kKindNames[family->kind], "\n");
    for (const auto& [labels, counter] : family->counters)
      absl::StrAppend(&text, name, FormatLabels(labels), " ", counter.value(), "\n");
    for (const auto& [labels, gauge] : family->gauges)
      absl::StrAppend(&text, name, FormatLabels(labels), " ", FormatNumber(gauge.value()), "\n");
    for (const auto& [labels, histogram] : family->histograms)
      AppendHistogram(name, labels, histogram, text);
  }
  return text;
}

MetricsRegistry& MetricsRegistry::Default() {
  static MetricsRegistry* const registry = new MetricsRegistry;
  return *registry;
}

}  // namespace divvy
