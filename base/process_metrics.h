// What Prometheus' clients tell of every process.
#ifndef DIVVY_BASE_PROCESS_METRICS_H_
#define DIVVY_BASE_PROCESS_METRICS_H_

#include "base/metrics.h"

namespace divvy {

// Adds the process's CPU time, memory, open files, threads and start to `registry`, as they are
// now, under the names that Prometheus' own clients use (process_cpu_seconds_total, ...). A figure
// that the system does not tell is left out. REQUIRES: `registry` has none of them yet.
void AddProcessMetrics(MetricsRegistry& registry);

}  // namespace divvy

#endif  // DIVVY_BASE_PROCESS_METRICS_H_
