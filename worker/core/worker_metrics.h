// What a worker measures of its steps.
#ifndef DIVVY_WORKER_CORE_WORKER_METRICS_H_
#define DIVVY_WORKER_CORE_WORKER_METRICS_H_

#include "base/metrics.h"
#include "base/recent_values.h"

namespace divvy {

// The metrics, in a registry that outlives this. Thread-safe and lock-free.
struct WorkerMetrics {
  explicit WorkerMetrics(MetricsRegistry& registry)
      : step_seconds(registry.GetHistogram("divvy_step_seconds",
                                           "From the start of the step function to the report.")),
        busy_seconds(
            registry.GetSecondsCounter("divvy_step_busy_seconds_total", "Time in step functions.")),
        input_wait_seconds(registry.GetSecondsCounter(
            "divvy_input_wait_seconds_total",
            "Time in which step functions waited for the next element of their data.")),
        pull_seconds(registry.GetHistogram("divvy_pull_seconds",
                                           "From a pull to the answer of one parameter server.")),
        push_seconds(registry.GetHistogram("divvy_push_seconds",
                                           "From a commit to the answer of one parameter server.")),
        staleness(registry.GetHistogram(
            "divvy_push_staleness_versions",
            "Commits that reached a shard between a step's read and its write: the most of any "
            "shard of the step.",
            {}, {/*first=*/1, /*factor=*/2, /*count=*/16})) {}

  Histogram& step_seconds;
  Gauge& busy_seconds;
  Gauge& input_wait_seconds;
  Histogram& pull_seconds;
  Histogram& push_seconds;
  Histogram& staleness;
  // The last of step_seconds.
  RecentValues recent_step_seconds;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_WORKER_METRICS_H_
