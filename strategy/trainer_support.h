// The part of a coordinator that only a Trainer and its callbacks use.
#ifndef DIVVY_STRATEGY_TRAINER_SUPPORT_H_
#define DIVVY_STRATEGY_TRAINER_SUPPORT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace divvy {

class Coordinator;

namespace internal {

// Each coordinator implements it; SupportOf returns it. Thread-safe.
class TrainerSupport {
 public:
  virtual ~TrainerSupport() = default;
  // Calls RestoreLatest, unless the program has already called it or has begun to use the
  // variables. Returns the number of steps restored. Blocks for at most `timeout`. Errors:
  // RestoreLatest's.
  virtual absl::StatusOr<int64_t> RestoreUnlessBegun(absl::Duration timeout) = 0;
  // Call TakeRestoredEpochs and TakeRestoredSteps after RestoreUnlessBegun. They return how many of
  // the program's next `at_most` RunEpochs of training steps, or next `at_most` training steps, the
  // restored state already contains. Each epoch and each step is returned once, so a restarted
  // program with several Trainers skips all work that it has already done. They return 0 if
  // RestoreUnlessBegun restored nothing.
  virtual int64_t TakeRestoredEpochs(int64_t at_most) = 0;
  virtual int64_t TakeRestoredSteps(int64_t at_most) = 0;
  // Announces that the program will run `epochs` more epochs. Only the progress line uses it.
  virtual void SetGoal(int64_t epochs) = 0;
  // The directory to which this job already writes event files (--tensorboard_dir). Empty: none.
  virtual std::string event_directory() const = 0;
};

// The support of `coordinator`; it lives as long as the coordinator.
TrainerSupport& SupportOf(Coordinator& coordinator);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_STRATEGY_TRAINER_SUPPORT_H_
