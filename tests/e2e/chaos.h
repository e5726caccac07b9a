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
  std::map<Role, int> kills;
  // SIGSTOP, and SIGCONT later
  int pauses = 0;
  // Of connections: cut, delayed, half-open, stalled, refused.
  int breaks = 0;
  // A task can write nothing for a while.
  int full_disks = 0;
  // With one parameter server fewer, and then with all again.
  int resizes = 0;
  // By a coordinator, of what the servers held.
  int adoptions = 0;
  // That one worker told.
  int64_t lies = 0;
  // steps that this worker was given, and said that another must run
  int64_t given_back = 0;
  // It went back to a checkpoint, or to the beginning, instead.
  int not_adopted = 0;
  // "chief 138" -> how often a task ended so by itself and was started again, for what was done to
  // others or to its disk
  std::map<std::string, int> ends;
  // Without a finished round of steps.
  absl::Duration longest_gap;
  // Of the job, each counted once.
  int64_t steps = 0;

  int all_kills() const;
  int faults() const { return all_kills() + pauses + breaks + full_disks + resizes; }
};

struct ChaosOptions {
  std::string program;    // counter_program
  std::string directory;  // for the file that ends it
  int num_ps = 3, num_workers = 4;
  // whom faults hit
  std::vector<Role> roles = {Role::kWorker};
  // Else one strike in four is of another kind.
  bool only_kills = true;
  // That the steps read, each once in a pass; 0: they read none.
  int64_t records = 0;
  // The program assigns and creates variables while its steps run, and one strike in six resizes
  // the job.
  bool changes = false;
  // Every task has a certificate.
  bool tls = false;
  // One more worker answers anything (LyingWorker, hostile_peers.h); wants tls.
  bool liar = false;
  // makes the certificates, and asks for a resize
  std::string divvyctl;
  // The job's --gpus, and workers must compute on them; empty: its own default.
  std::string gpus;
  // The job's --durability; empty: its own default.
  std::string durability;
  // ends after so many; 0: any number
  int faults = 50;
  // Or, of them, so many kills; 0: any number.
  int kills = 0;
  // Or so long.
  absl::Duration time = absl::InfiniteDuration();
  // Between two of them, at most.
  absl::Duration pause = absl::Milliseconds(400);
  // Of all that is random.
  uint64_t seed = 1;
  std::function<void(const ChaosResult& so_far)> on_fault = [](const ChaosResult&) {};
};

// Blocks until the job is over. Whatever was killed, and ended with 138 because others were, is
// started again. An error: a counter was not exact; a task ended with a code or by a signal that
// nothing done to it or to others explains, or other than by 0 in the end; no round of steps was
// finished for a minute; no checkpoint was made once a disk had room again; or the end did not
// come. It has the last lines of every task.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

// "12 kills (2 coordinator, 3 ps, 7 worker), 3 pauses, 4 broken connections, 1 full disks, 1
// resizes, 2 adoptions (1 not), 0 lies (0 steps given back); ended by themselves: chief 138 2
// times; at most 2.1s without a finished round of steps".
std::string ToString(const ChaosResult& result);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_CHAOS_H_
