// Metrics: counts and sizes for machines to read. (The log tells people about changes.) Names
// follow Prometheus' advice: they begin with divvy_ and contain the base unit (_seconds, _bytes),
// and names of counters end in _total. A label has few values, such as role, task, method or code.
// It never has a step, a uuid or the name of a variable.
//
//   Counter& commits =
//       metrics.GetCounter("divvy_commits_total", "Commits applied.", {{"code", "ok"}});
//   // Keep the reference: GetCounter takes a lock, Add does not.
//   commits.Add(1);
#ifndef DIVVY_BASE_METRICS_H_
#define DIVVY_BASE_METRICS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace divvy {

// Counter, Gauge and Histogram are thread-safe and lock-free. Their registry owns them.

// A number that never decreases.
class Counter {
 public:
  void Add(uint64_t amount) { value_.fetch_add(amount, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// A number that goes up and down.
class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double amount);
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

// The upper bounds of `count` buckets: first, first * factor, first * factor^2, ... One more bucket
// takes larger values. The bounds are fixed, so the histograms of several processes can be added
// up.
struct BucketOptions {
  // By default 10 us to about 84 s, for durations in seconds.
  double first = 1e-5;
  double factor = 2;
  int count = 24;
};

// The distribution of observed values. A reader may see an observation in a bucket before it sees
// it in the sum.
class Histogram {
 public:
  // REQUIRES: first > 0, factor > 1, 1 <= count <= 200.
  explicit Histogram(const BucketOptions& options);

  // Adds an observation. A NaN is ignored.
  void Observe(double value);

  // The upper bounds of the buckets, inclusive. The bound of the last bucket, infinity, is left
  // out.
  const std::vector<double>& bounds() const { return bounds_; }
  // The number of observations in each bucket; there are bounds().size() + 1 buckets.
  std::vector<uint64_t> counts() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::deque<std::atomic<uint64_t>> counts_;  // a deque: atomics do not move
  std::atomic<double> sum_{0};
};

// The metrics of a process, or of one role in it. Thread-safe. Its metrics live as long as the
// registry.
class MetricsRegistry {
 public:
  using Labels = std::map<std::string, std::string>;

  MetricsRegistry();
  ~MetricsRegistry();

  // Returns the metric with this name and these labels; the first call creates it. `help` and
  // `buckets` count only in the first call for a name.
  //
  // REQUIRES: `name` and the names of labels match [a-zA-Z_][a-zA-Z0-9_]*; a name always has the
  // same kind of metric; no label of a histogram is "le". These are literals in the source, so a
  // mistake aborts the process. The values of labels may be any text.
  Counter& GetCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& GetGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  // A counter of seconds, or of another number with a fraction. The caller never lowers it.
  Gauge& GetSecondsCounter(const std::string& name, const std::string& help,
                           const Labels& labels = {});
  Histogram& GetHistogram(const std::string& name, const std::string& help,
                          const Labels& labels = {}, const BucketOptions& buckets = {});

  // All metrics in Prometheus' text format 0.0.4, sorted by name and labels. Serve it as
  // "text/plain; version=0.0.4".
  std::string ToPrometheusText() const;

  // The registry of the process, for code that has no other one. Never destroyed.
  static MetricsRegistry& Default();

 private:
  struct Family;
  Family& FindFamily(const std::string& name, const std::string& help, const Labels& labels,
                     int kind) DIVVY_REQUIRES(mu_);

  mutable Mutex mu_;
  std::map<std::string, std::unique_ptr<Family>> families_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_METRICS_H_
