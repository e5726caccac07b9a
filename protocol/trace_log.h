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
  // Coordinator: until the dispatch. The first attempt counts from the program's call, and a retry
  // from the end of the attempt before it. About 0 for a loop, which makes a step when a worker has
  // room. Worker: 0.
  absl::Duration queued = {};
  // Coordinator: from the dispatch to the report, or to the loss of the worker. Worker: from the
  // arrival of the dispatch to the report.
  absl::Duration total = {};
  // Absent: the worker was lost, or was faster than the coordinator wanted to hear of.
  std::optional<StepTrace> parts = {};
};

// Decides which steps are traced, and keeps the last of them and the slowest of ten minutes. A step
// is traced if it is sampled, or if it turns out to be one of the slowest of its minute. All times
// that are compared are TracedStep::total.
//
// Of many steps one in 64 is sampled, but at most 200 a second. Where steps are rarer, up to ten a
// second are. So the picture of a job with one step a second is as good as that of a job with
// 10,000 (`//bench:embedded_steps` shows what it costs).
//
// Thread-safe. A core writes to it, and nothing that a step does depends on it. It has no clock:
// `now` is the core's Clock::Elapsed.
class TraceLog {
 public:
  static constexpr int kEach = 64;
  static constexpr absl::Duration kLeastGap = absl::Milliseconds(5);
  static constexpr absl::Duration kMostGap = absl::Milliseconds(100);

  // `most_gap`: a step that comes so long after the last sampled one is sampled, too; 0: each is.
  explicit TraceLog(absl::Duration most_gap = kMostGap) : most_gap_(most_gap) {}

  // Dispatch::trace_over of a step that is dispatched now; 0: it is sampled.
  absl::Duration AskFor(absl::Duration now);
  // Keeps the run for Last if it was sampled (`asked` is 0), and for Slowest if it was slow. A run
  // whose worker was lost is kept for Last only: its time is that of the detection of the loss.
  void Add(TracedStep run, absl::Duration asked);

  // The oldest first.
  std::vector<TracedStep> Last() const { return kept_.Last(); }
  // The slowest first.
  std::vector<TracedStep> Slowest(absl::Duration now) const { return kept_.Slowest(now); }

 private:
  const absl::Duration most_gap_;
  RecentAndSlowest<TracedStep> kept_;
  Mutex mu_;
  int not_sampled_ DIVVY_GUARDED_BY(mu_) = 0;
  absl::Duration last_sample_ DIVVY_GUARDED_BY(mu_) = -absl::InfiniteDuration();
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_TRACE_LOG_H_
