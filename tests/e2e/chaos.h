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
  int pauses = 0;                   // SIGSTOP, and SIGCONT later
  int breaks = 0;                   // of connections: cut, delayed, half-open, stalled, refused
  int full_disks = 0;               // a task can write nothing for a while
  int resizes = 0;                  // with one parameter server fewer, and then with all again
  int adoptions = 0;                // by a coordinator, of what the servers held
  int64_t lies = 0;                 // that one worker told
  int64_t given_back = 0;           // steps that this worker was given, and said that another must run
  int not_adopted = 0;              // it went back to a checkpoint, or to the beginning, instead
  std::map<std::string, int> ends;  // "chief 138" -> how often a task ended so by itself and was started again, for what was done to others or to its disk
  absl::Duration longest_gap;       // without a finished round of steps
  int64_t steps = 0;                // of the job, each counted once

  int all_kills() const;
  int faults() const { return all_kills() + pauses + breaks + full_disks + resizes; }
};

struct ChaosOptions {
  std::string program;    // counter_program
  std::string directory;  // for the file that ends it
  int num_ps = 3, num_workers = 4;
  std::vector<TaskType> roles = {TaskType::kWorker};  // whom faults hit
  bool only_kills = true;                             // else one strike in four is of another kind
  int64_t records = 0;                                // that the steps read, each once in a pass; 0: they read none
  bool changes = false;                               // the program assigns and creates variables while its steps run, and one strike in six resizes the job
  bool tls = false;                                   // every task has a certificate
  bool liar = false;                                  // one more worker answers anything (LyingWorker, hostile_peers.h); wants tls
  std::string divvyctl;                               // makes the certificates, and asks for a resize
  std::string gpus;                                   // the job's --gpus, and workers must compute on them; empty: its own default
  std::string durability;                             // the job's --durability; empty: its own default
  int faults = 50;                                    // ends after so many; 0: any number
  int kills = 0;                                      // or, of them, so many kills; 0: any number
  absl::Duration time = absl::InfiniteDuration();     // or so long
  absl::Duration pause = absl::Milliseconds(400);     // between two of them, at most
  uint64_t seed = 1;                                  // of all that is random
  std::function<void(const ChaosResult& so_far)> on_fault = [](const ChaosResult&) {};
};

// Blocks until the job is over. Whatever was killed, and ended with 138 because others were, is started again. An error: a counter was not exact; a task ended
// with a code or by a signal that nothing done to it or to others explains, or other than by 0 in the end; no round of steps was finished for a minute; no
// checkpoint was made once a disk had room again; or the end did not come. It has the last lines of every task.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

// "12 kills (2 coordinator, 3 ps, 7 worker), 3 pauses, 4 broken connections, 1 full disks, 1 resizes, 2 adoptions (1 not), 0 lies (0 steps given back); ended
// by themselves: chief 138 2 times; at most 2.1s without a finished round of steps".
std::string ToString(const ChaosResult& result);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_CHAOS_H_
