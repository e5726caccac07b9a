// How long the steps of each function take.
#ifndef DIVVY_COORDINATOR_CORE_STEP_TIMES_H_
#define DIVVY_COORDINATOR_CORE_STEP_TIMES_H_

#include <map>
#include <string>

#include "absl/time/time.h"

namespace divvy {

// A mean for each function, of the times that workers have measured. Old steps lose weight: half of
// it with every 32 to 64 newer ones. Pure. Not thread-safe: the coordinator's lock guards it.
class StepTimes {
 public:
  // A step of `function` has ended.
  void Note(const std::string& function, absl::Duration took);
  // What the next step of `function` may take. Infinite: too few have ended to tell.
  absl::Duration Expected(const std::string& function) const;

 private:
  struct Sum {
    int steps = 0;
    absl::Duration took;
  };
  std::map<std::string, Sum> functions_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_TIMES_H_
