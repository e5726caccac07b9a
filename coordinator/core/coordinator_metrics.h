// What a coordinator's core measures besides the counts of its snapshot.
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_METRICS_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_METRICS_H_

#include "base/metrics.h"

namespace divvy {

// The metrics, in a registry that outlives this.
struct CoordinatorMetrics {
  explicit CoordinatorMetrics(MetricsRegistry& registry)
      : checkpoint_duration_seconds(
            registry.GetHistogram("divvy_checkpoint_duration_seconds",
                                  "From the begin of a checkpoint until it is on the disk.")),
        checkpoint_stall_seconds(registry.GetHistogram(
            "divvy_checkpoint_stall_seconds", "How long commits were held for a checkpoint.")) {}
  Histogram& checkpoint_duration_seconds;
  Histogram& checkpoint_stall_seconds;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_METRICS_H_
