// A fake of the coordinator that owns a StepQueue, for tests.
#ifndef DIVVY_COORDINATOR_CORE_TESTING_FAKE_STEP_HOST_H_
#define DIVVY_COORDINATOR_CORE_TESTING_FAKE_STEP_HOST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/step_queue.h"

namespace divvy {

// Lets every step begin and allows a rewind, unless the test says otherwise. Records the calls of
// the queue in public members. Not thread-safe.
class FakeStepHost : public StepQueue::Host {
 public:
  using Step = coordinator_records::Step;

  void StoreState() override {}
  bool MayBeginStep() override { return may_begin; }
  EntryId GiveId() override { return EntryId(++given); }
  void OnLogGrown() override {}
  void OnFinished(const Step& step, const Report&) override { finished.push_back(step.id); }
  void SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict,
                      const absl::Status&) override {
    replayed.emplace_back(step->id, verdict);
  }
  bool FailUnlessRewindable(const std::string&) override { return can_rewind; }
  void Rewind(std::string why) override { rewinds.push_back(std::move(why)); }
  void DispatchLater(absl::Duration) override {}

  // The answers of MayBeginStep and FailUnlessRewindable.
  bool may_begin = true, can_rewind = true;
  // The last id that was given.
  uint64_t given = 0;
  // Steps reported to OnFinished and SettleReplayed, and the reasons given to Rewind, in order.
  std::vector<EntryId> finished;
  std::vector<std::pair<EntryId, StepVerdict>> replayed;
  std::vector<std::string> rewinds;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_TESTING_FAKE_STEP_HOST_H_
