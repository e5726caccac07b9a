// Workers that are SIGKILLed at random while the counter program counts.
#ifndef DIVVY_TESTS_E2E_CHAOS_H_
#define DIVVY_TESTS_E2E_CHAOS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace divvy {

struct ChaosOptions {
  std::string program;    // counter_program
  std::string directory;  // for the file that ends it
  int num_ps = 3, num_workers = 4;
  int kills = 50;                                  // at least so many,
  absl::Duration time;                             // for at least so long
  absl::Duration pause = absl::Milliseconds(400);  // between two kills, at most
  uint64_t seed = 1;                               // of victims and pauses
  std::function<void(int kills)> on_kill;          // may be empty
};

struct ChaosResult {
  int kills = 0;
  int64_t steps = 0;
};

// Blocks until the job is over. An error: a counter was not exact, a task ended that should not have, or something hung; with the last lines of every task.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_CHAOS_H_
