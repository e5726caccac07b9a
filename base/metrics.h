// How often and how much, for machines to read (logs tell people what changed). Named as Prometheus
// advises: prefix divvy_, base units in the name (_seconds, _bytes), counters end in _total; labels
// have few values: role, task, method, code; never a step, a uuid or a variable's name.
//
//   Counter& commits = metrics.GetCounter("divvy_commits_total", "Commits applied.", {{"code",
//   "ok"}});
//   // keep the reference: finding it takes a lock, adding does not
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

// All three: thread-safe, lock-free, owned by their registry.

// Only ever grows.
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

// The bounds first, first * factor, first * factor^2, ... of `count` buckets; one more takes what
// is above them all. Fixed: histograms of several processes can then be added up.
struct BucketOptions {
  // By default 10 us to about 84 s: for durations in seconds.
  double first = 1e-5;
  double factor = 2;
  int count = 24;
};

// How observed values are spread. A reader may see an observation in a bucket before it sees it in
// the sum.
class Histogram {
 public:
  // REQUIRES: first > 0, factor > 1, 1 <= count <= 200.
  explicit Histogram(const BucketOptions& options);

  // NaN is not counted.
  void Observe(double value);

  // The upper ones, inclusive; that of the last bucket, infinity, is left out.
  const std::vector<double>& bounds() const { return bounds_; }
  // Of each bucket; bounds().size() + 1.
  std::vector<uint64_t> counts() const;
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::deque<std::atomic<uint64_t>> counts_;  // a deque: atomics do not move
  std::atomic<double> sum_{0};
};

// The metrics of a process or of one role in it. Thread-safe; its metrics live as long as it does.
class MetricsRegistry {
 public:
  using Labels = std::map<std::string, std::string>;

  MetricsRegistry();
  ~MetricsRegistry();

  // The metric of this name and these labels, made at the first call. Help and buckets are those of
  // the name's first call. REQUIRES: `name` and the labels' names are [a-zA-Z_][a-zA-Z0-9_]*, a
  // name is always the same kind of metric, no label of a histogram is "le". These are literals in
  // the source; a mistake aborts at the first call. The labels' values may be any text.
  Counter& GetCounter(const std::string& name, const std::string& help, const Labels& labels = {});
  Gauge& GetGauge(const std::string& name, const std::string& help, const Labels& labels = {});
  Histogram& GetHistogram(const std::string& name, const std::string& help,
                          const Labels& labels = {}, const BucketOptions& buckets = {});

  // All metrics in Prometheus' text format 0.0.4, sorted by name and labels: serve it as
  // "text/plain; version=0.0.4".
  std::string ToPrometheusText() const;

  // That of the process, for what has no other at hand; never destroyed.
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
