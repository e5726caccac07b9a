// What a parameter server measures of pulls and commits.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_METRICS_H_
#define DIVVY_PS_SERVER_SERVICE_PS_METRICS_H_

#include <map>

#include "base/metrics.h"
#include "protocol/error.h"
#include "rpc/data_server.h"

namespace divvy {

// Thread-safe. Note is lock-free, and allocates nothing.
class PsMetrics {
 public:
  // REQUIRES: `registry` outlives this.
  explicit PsMetrics(MetricsRegistry& registry);

  // A request was answered.
  void Note(const DataOutcome& outcome);

  int64_t pull_rows() const { return static_cast<int64_t>(pull_rows_.value()); }
  int64_t push_rows() const { return static_cast<int64_t>(push_rows_.value()); }
  int64_t pull_bytes() const { return static_cast<int64_t>(pull_bytes_.value()); }
  int64_t push_bytes() const { return static_cast<int64_t>(push_bytes_.value()); }

 private:
  void NoteCommit(const DataOutcome& outcome);

  Counter& pull_rows_;
  Counter& push_rows_;
  Counter& pull_bytes_;
  Counter& push_bytes_;
  Counter& duplicates_;
  Counter& stale_epochs_;
  Histogram& apply_seconds_;
  // By Reason; the reasons for which commits are refused, and the rest together.
  std::map<Reason, Counter*> rejected_;
  Counter& rejected_otherwise_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_METRICS_H_
