// What a Trainer and its callbacks ask of a coordinator beside the calls of a program.
#ifndef DIVVY_STRATEGY_TRAINER_SUPPORT_H_
#define DIVVY_STRATEGY_TRAINER_SUPPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace divvy {

class Coordinator;

namespace internal {

// Implemented by each coordinator, and reached by SupportOf. Thread-safe.
class TrainerSupport {
 public:
  virtual ~TrainerSupport() = default;
  // RestoreLatest, unless the program has asked itself, and so counts itself, or has begun already.
  // What was restored so is told by the two calls below: how much of the next `at_most` RunEpochs
  // of training steps, or of the next `at_most` training steps, is behind the program. Each is told
  // once, so that a program of Trainers that runs again from its beginning leaves out what it has
  // done. Returns the steps restored. Blocks; errors: RestoreLatest's.
  virtual absl::StatusOr<int64_t> RestoreUnlessBegun() = 0;
  virtual int64_t TakeRestoredEpochs(int64_t at_most) = 0;
  virtual int64_t TakeRestoredSteps(int64_t at_most) = 0;
  // The program means to run so many epochs more: for the progress line alone.
  virtual void SetGoal(int64_t epochs) = 0;
  // Where event files of this job are written already (--tensorboard_dir); empty: nowhere.
  virtual std::string event_directory() const = 0;
};

// Of this coordinator; lives as long as it does.
TrainerSupport& SupportOf(Coordinator& coordinator);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_TRAINER_SUPPORT_H_
