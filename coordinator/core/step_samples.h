// What event files tell of finished steps: how long they took on each worker, how stale they were,
// and how their gradients are distributed.
#ifndef DIVVY_COORDINATOR_CORE_STEP_SAMPLES_H_
#define DIVVY_COORDINATOR_CORE_STEP_SAMPLES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// The training steps of one worker since they were last taken.
struct WorkerSteps {
  int64_t steps = 0;
  // The sum of what these steps took.
  absl::Duration took;
};

// How the gradients of one step are distributed.
struct GradientSample {
  // Training steps that had finished when this step finished, itself included.
  int64_t step = 0;
  // Empty: no step has told them since they were last taken.
  std::vector<GradientHistogram> gradients = {};
};

// Keeps nothing before Begin, so a job without event files pays nothing for it. Not thread-safe:
// the coordinator's lock guards it.
class StepSamples {
 public:
  void Begin() { kept_ = true; }
  // Training steps are asked for their gradients, one after another, until one has told them. At
  // most kMostAsked are: a function may have no gradients.
  static constexpr int kMostAsked = 16;
  void WantGradients() { asks_left_ = kept_ ? kMostAsked : 0; }
  // Whether this attempt of a training step, which begins now, is to be asked. If so, no other is
  // before OnEnd.
  bool Ask(EntryId step, uint32_t attempt);
  // The attempt is over: its report was noted if it counts, or its worker was lost.
  void OnEnd(EntryId step, uint32_t attempt);
  // All attempts are over.
  void OnRewind() { asked_.reset(); }
  // A training step has finished for the first time, as number `step`. Gradients of an attempt that
  // was not asked are ignored.
  void Note(int worker, int64_t step, const Report& report);
  // What has been noted since it was last taken. By worker.
  std::map<int, WorkerSteps> TakeWorkers() { return std::exchange(workers_, {}); }
  // Of the last step that has told its gradients.
  GradientSample TakeGradients() { return std::exchange(gradients_, {}); }
  // Staleness -> the number of steps that had it. From 128 on only the seven highest bits of a
  // staleness are kept, so the map has at most 3,776 entries.
  std::map<uint64_t, int64_t> TakeStaleness() { return std::exchange(staleness_, {}); }

 private:
  using Attempt = std::pair<EntryId, uint32_t>;

  bool kept_ = false;
  // How many steps may still be asked. 0: no gradients are wanted.
  int asks_left_ = 0;
  std::optional<Attempt> asked_;
  std::map<int, WorkerSteps> workers_;
  GradientSample gradients_;
  std::map<uint64_t, int64_t> staleness_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_SAMPLES_H_
