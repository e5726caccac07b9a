// Kills, stops and disconnects tasks of every role at random, while the counter program counts.
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
  // Pauses of a task: SIGSTOP, and SIGCONT later.
  int pauses = 0;
  // Connections that were cut, delayed, half-open, stalled or refused.
  int breaks = 0;
  // Times when a task could write nothing for a while.
  int full_disks = 0;
  // Resizes to one parameter server fewer, and back.
  int resizes = 0;
  // Coordinators that adopted what the servers held.
  int adoptions = 0;
  // False messages of the lying worker.
  int64_t lies = 0;
  // Steps that the lying worker received and returned to the coordinator.
  int64_t given_back = 0;
  // Coordinators that rewound to a checkpoint, or to the beginning, instead of adopting.
  int not_adopted = 0;
  // "chief 138" -> how often that task exited with that code by itself and was restarted. The
  // reason was a fault of another task, or of its own disk.
  std::map<std::string, int> ends;
  // The longest time without a finished round of steps.
  absl::Duration longest_gap;
  // The steps of the job, each counted once.
  int64_t steps = 0;
  // Rows of dynamic tables that were gone at the end: small ones, and old ones.
  int64_t small_rows_gone = 0, old_rows_gone = 0;

  int all_kills() const;
  int faults() const { return all_kills() + pauses + breaks + full_disks + resizes; }
};

struct ChaosOptions {
  std::string program;    // counter_program
  std::string directory;  // for the file that makes the program end
  int num_ps = 3, num_workers = 4;
  // The roles whose tasks are hit.
  std::vector<Role> roles = {Role::kWorker};
  // If false, one fault in four is a pause, a broken connection or a full disk.
  bool only_kills = true;
  // The number of records that the steps read, each once in a pass; 0: the steps read no data.
  int64_t records = 0;
  // The program assigns and creates variables while its steps run, and one fault in six is a
  // resize.
  bool changes = false;
  // The steps write to rows of dynamic tables, some of which go. Without `changes` and `records`.
  bool keys = false;
  // Every task has a certificate.
  bool tls = false;
  // One more worker sends false messages (LyingWorker, hostile_peers.h). Requires `tls`.
  bool liar = false;
  // The path of divvyctl, which makes the certificates and asks for a resize.
  std::string divvyctl;
  // The job's --gpus; its workers must then compute on GPUs. Empty: the flag's default.
  std::string gpus;
  // The job's --durability. Empty: the flag's default.
  std::string durability;
  // The run ends after this many faults; 0: no limit.
  int faults = 50;
  // The run ends after this many kills; 0: no limit.
  int kills = 0;
  // The run ends after this time.
  absl::Duration time = absl::InfiniteDuration();
  // The longest pause between two faults.
  absl::Duration pause = absl::Milliseconds(400);
  // The seed of all random choices.
  uint64_t seed = 1;
  std::function<void(const ChaosResult& so_far)> on_fault = [](const ChaosResult&) {};
};

// Runs a job under faults, and blocks until it is over. Restarts every task that was killed, and
// every task that exited with 138 because of a fault elsewhere. Returns Internal, with the last
// lines of every task, if
//   - a counter was not exact;
//   - a task ended with a code or signal that no fault explains, or other than with 0 at the end;
//   - no round of steps was finished for a minute;
//   - no checkpoint was made after a disk had room again;
//   - the job did not end.
absl::StatusOr<ChaosResult> RunChaos(const ChaosOptions& options);

// A summary on one line: "12 kills (2 coordinator, 3 ps, 7 worker), 3 pauses, 4 broken connections,
// 1 full disks, 1 resizes, 2 adoptions (1 not), 0 lies (0 steps given back); ended by themselves:
// chief 138 2 times; at most 2.1s without a finished round of steps".
std::string ToString(const ChaosResult& result);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_CHAOS_H_
