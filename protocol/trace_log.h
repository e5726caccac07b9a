// What a coordinator or a worker keeps of the times of steps, and which steps are traced.
#ifndef DIVVY_PROTOCOL_TRACE_LOG_H_
#define DIVVY_PROTOCOL_TRACE_LOG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/recent_and_slowest.h"
#include "protocol/messages.h"

namespace divvy {

// A run of a step.
struct TracedStep {
  EntryId step;
  uint32_t attempt = 1;
  // Absent: the step is read-only.
  std::optional<int64_t> ordinal = {};
  std::string function = {};
  int worker = 0;
  // Absent: the worker was lost.
  std::optional<StepOutcome> outcome = {};
  // Clock::Elapsed of the task that keeps it.
  absl::Duration ended = {};
  // Coordinator: from the program's call to the dispatch, with all attempts before this one.
  // Worker: 0.
  absl::Duration queued = {};
  // Coordinator: from the dispatch to the report, or to the loss of the worker. Worker: from the
  // arrival of the dispatch to the report.
  absl::Duration total = {};
  // Absent: the worker was lost.
  std::optional<StepTrace> parts = {};
};

// Decides which steps are traced, and keeps the last of them and the slowest of ten minutes. A step
// is traced if it is sampled, or if it turns out to be one of the slowest.
//
// Sampled is each 64th step, but at most 200 a second; and where steps are rarer, up to ten a
// second. So the picture of a job with one step a second is as good as that of a job with 10,000.
//
// Thread-safe. A core writes to it, and nothing that a step does depends on it. It has no clock:
// `now` is the core's Clock::Elapsed.
class TraceLog {
 public:
  static constexpr int kEach = 64;
  static constexpr absl::Duration kLeastGap = absl::Milliseconds(5);
  static constexpr absl::Duration kMostGap = absl::Milliseconds(100);

  // Dispatch::trace_over of a step that is dispatched now; 0: it is sampled.
  absl::Duration AskFor(absl::Duration now);
  // Keeps the run. It is among the last if it was sampled (`asked` is 0) or its worker was lost,
  // and among the slowest if so few took longer than `took`.
  void Add(TracedStep run, absl::Duration took, absl::Duration asked);

  // The oldest first.
  std::vector<TracedStep> Last() const { return kept_.Last(); }
  // The slowest first.
  std::vector<TracedStep> Slowest(absl::Duration now) const { return kept_.Slowest(now); }

 private:
  RecentAndSlowest<TracedStep> kept_;
  Mutex mu_;
  int not_sampled_ DIVVY_GUARDED_BY(mu_) = 0;
  absl::Duration last_sample_ DIVVY_GUARDED_BY(mu_) = -absl::InfiniteDuration();
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_TRACE_LOG_H_
