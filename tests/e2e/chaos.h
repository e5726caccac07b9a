// Tasks of every role killed, stopped and cut off at random while the counter program counts.
#ifndef DIVVY_TESTS_E2E_CHAOS_H_
#define DIVVY_TESTS_E2E_CHAOS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/launch/restart_policy.h"

namespace divvy {

struct ChaosResult {
  std::map<TaskType, int> kills;
  int pauses = 0;          // SIGSTOP, and SIGCONT later
  int breaks = 0;          // of connections: cut, delayed, half-open, stalled, refused
  int restarts = 0;        // of tasks that ended by themselves and asked for it, for what others had done
  absl::Duration slowest;  // until the next round of steps was finished, after a fault
  int64_t steps = 0;       // of the job, each counted once

  int all_kills() const;
  int faults() const { return all_kills() + pauses + breaks; }
};

struct ChaosOptions {
  std::string program;    // counter_program
  std::string directory;  // for the file that ends it
  int num_ps = 3, num_workers = 4;
  std::vector<TaskType> roles = {TaskType::kWorker};  // whom faults hit
  bool only_kills = true;                             // else one fault in four is of another kind
  int64_t records = 0;                                // that the steps read, each once in a pass; 0: they read none
  std::string durability;                             // the job's --durability; empty: its own default
  int faults = 50;                                    // at least so many,
  absl::Duration time;                                // for at least so long
  absl::Duration pause = absl::Milliseconds(400);     // between two of them, at most
  uint64_t seed = 1;                                  // of all that is random
  std::function<void(const ChaosResult& so_far)> on_fault = [](const ChaosResult&) {};
};

// Whatever ends with a code from 128 on is started again. Blocks until the job is over. An error: a counter was not exact, a task ended that should not have,
// no round of steps was finished for a minute, or the end did not come; with the last lines of every task.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

// "12 kills (7 worker, 3 ps, 2 coordinator), 3 pauses, 4 broken connections, 5 more restarts; the slowest recovery took 2.1s".
std::string ToString(const ChaosResult& result);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_CHAOS_H_
