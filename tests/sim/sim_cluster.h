// A whole cluster of the real cores in one thread: a program of random calls, random faults, and the invariants of the protocol checked all the way.
//
// What is checked (protocol section 17; X7 and X16 as far as a job without checkpoints has them):
//   X1   no ps applies an id twice                             X2   at rest: each finished entry applied once at each participant, no other id anywhere,
//   X5   at most one attempt of an id can be applied                and every variable holds exactly the sum of what finished
//   X7   what ps, streams and redo log remember is bounded     X8   a step that failed or was cancelled is in no ps once the next call has raised
//   X9   a step reads no older state than had finished when it began (X11 too: own finished writes are seen), or with a pipeline_depth of d: when the
//        (d - 1)-th step before it in its session began, and what the steps before that one had added; rows that may be kept for s steps: when the s-th did.
//        What its own worker wrote to a row it sees, and what a step of its session has replaced it never reads again
//   X10  leased positions tile each pass                       X12  Adam's t of a row = gradient commits applied to it
//   X6   nothing of a fenced session is applied, and no frame of a replaced coordinator is taken for one of its successor
//   X14  ids are never used twice, over restarts too           X16  once faults stop all ends well, within bounded virtual time
//   X3   a state that is gone on with, from a checkpoint or from what the servers hold, has exactly what had finished, and the program's bytes of then
//   X19  where the coordinator was told the number of replicas, no step runs on a worker with another, and none with that number is refused for it
//   X4   slots that are sums of what their steps have used are exact (the bitwise rule: ps_server/checkpoint)
//   X21  a coordinator whose predecessor was killed, and nothing else, goes on with what the servers hold
//   X18  the same seed gives the same trace                    (X6 in full, and X15, are tested on the ps alone: ps_server/core)
//
// The coordinator is one of the processes that die, drain, and are started again with their store or without; the program then begins anew, on empty ps. What
// of an older epoch reaches a ps after that is found as X2 or X8.
#ifndef DIVVY_TESTS_SIM_SIM_CLUSTER_H_
#define DIVVY_TESTS_SIM_SIM_CLUSTER_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/failpoint.h"

namespace divvy::sim {

struct SimConfig {
  uint64_t seed = 1;
  int num_ps = 2, num_workers = 2, num_variables = 3, rounds = 4;
  double lose = 0, duplicate = 0, break_stream = 0, slow = 0, late = 0;  // rates of each message
  bool checkpoints = false;                                              // every task has the directory, and one is made every few seconds
  bool restore = false;                                                  // the program calls RestoreLatest
  bool only_grow = false;                                                // `resize` never takes one away
  bool resize = false;                                                   // a person changes the number of parameter servers (with checkpoints)
  bool disk_faults = false;                                              // now and then it is full, or an operation on it fails
  bool lose_at_worst = false;                                            // a parameter server is lost just before the program ends, and soon after an adoption
  bool store_faults = false;                                             // now and then the coordinator's store refuses a change, and all behind it
  bool power_loss = false;                                               // now and then all processes end, and the disk forgets what was not synced
  double fault_rate = 0;                                                 // of larger faults, each 10 ms of virtual time
  bool slow_work = false;                                                // now and then what blocks (disks, above all) takes up to 4 s
  bool pause_ps = false;                                                 // now and then a parameter server is stopped for a while (SIGSTOP)
  bool kill_workers = true, pause_workers = true, cut_links = true, replace_workers = true;
  bool kill_ps = false, restart_ps = false;  // without `replay` it ends the coordinator with Unavailable
  bool replay = true;                        // durability `replay`: with restart_ps parameter servers are killed again and again
  int64_t redo_log_bytes = 256 << 20;
  bool kill_coordinator = false;                  // it is started again, as after every end that is worth another start
  bool zombie_coordinator = false;                // now and then the killed one lives on beside its successor
  bool lose_store = false;                        // now and then its successor finds an empty state directory
  bool named_job = false;                         // --job_name: also that one begins the same job
  bool drain = false;                             // SIGTERM to workers, ps (with kill_ps) and coordinator
  bool other_replicas = false;                    // now and then a worker is started with another number than the coordinator was told
  bool duplicates = false;                        // a second process is started with the job and index of one that lives
  bool learn_addresses = false;                   // the coordinator knows no ps in advance
  int64_t commit_buffer_bytes = 0;                // of each ps; 0: as much as one wants
  uint64_t id_block = uint64_t{1} << 20;          // step ids that the coordinator makes durable at a time
  absl::Duration payload_time;                    // what the payload of a commit takes, once there is memory for it
  bool failing_steps = false;                     // step functions fail now and then
  bool changing_steps = false;                    // a re-run fails, or touches other ps: may end the job
  absl::Duration fault_time = absl::Seconds(30);  // then they stop
  int pipeline_depth = 1;                         // of workers
  std::optional<int> may_miss;                    // so many steps of its own worker; else as the depth allows
  int64_t row_cache_bytes = 0;                    // of workers; with them steps read rows, too
  int row_cache_staleness = 0;
  std::optional<int> rows_may_miss;  // likewise
  bool assigning_steps = false;      // steps also assign rows of one more variable, or the whole of it
  bool cells = false;                // steps also change rows of integers in ways that do not commute
  double cell_rate = 0.3;            // so many of them
  int batch = 30;                    // the most steps that the program schedules at a time
  bool beside = false;               // the program makes calls while steps are in flight (beside.h)
  bool assign_in_steps = false;      // with `cells` and `beside`: it assigns while long steps run that change cells, and a server is lost soon after
  bool create_at_cuts = false;       // with `beside`: a variable is created, with values, just when the checkpoint of a resize has been cut
  bool slots_on_demand = false;      // steps use optimizers that the variable was not made with
  bool die_loading = false;          // now and then a server that was lost is lost again whenever it loads, until that is mended or the job has ended
  bool off_grid = false;             // faults come at any time, not each 10 ms
  bool suspend = false;              // now and then the machine stops with all its processes, and goes on later
  bool readers = false;              // steps read two datasets by iterators of the program's, and some handle the end
  bool read_only_steps = false;      // some of the scheduled steps
  bool stop_runs = false;            // the program stops some of its loops
  bool loops = false;                // it runs loops other than its ordinary pass (loops.h)
  bool own_data = false;             // some of them over data that is each worker's own
  bool late_workers = false;         // all but one worker are started while the job runs
  bool colocated = false;            // one variable lies where another does
  bool large = false;                // a variable is larger than what is read, sent or saved at once
  bool tight_memory = false;         // with `beside`: the program asks for variables that no server has the memory for
  bool reads_fail = false;           // with `disk_faults`: now and then a file cannot be read
  bool lose_devices = false;         // now and then the GPU of a worker fails in a step, for as long as that process lives
  bool breaking_steps = false;       // with `lose_devices`: a few steps break the GPU of every worker that runs them
  bool long_steps = false;           // a few take longer than the deadline when they are first run
  bool liar = false;                 // beside the others there is a worker that says what it likes (lying_worker.h)
  bool liar_says_done = false, liar_says_failed = false, liar_says_applied = false, liar_only_refuses = false;
  bool liar_may_end_job = false;  // an error that names it is expected: only what it leaves behind is judged
  bool lying_ps = false;          // from some moment on, ps 0 answers what it likes (lying_server.h), until that has ended the job; values are not judged
  int replicas = 1;               // of each worker: so many elements make a step of a pass
  absl::Duration step_deadline = absl::Minutes(10);     // longer than the simulation's patience: it may hide no report that is lost
  int max_step_attempts = 1000, max_recoveries = 1000;  // loss after loss is no error
  bool trace = false;
  // Ends the process that comes to this point for the kill_at_hit-th time; only in the build that has failpoints (base/failpoint.h).
  std::optional<Failpoint> kill_at;
  int64_t kill_at_hit = 1;
};

// A liar, and what has to be so that the others may be judged beside it.
void AddLiar(SimConfig& config);
void AddLyingPs(SimConfig& config);

// The configuration that the explorer runs for a seed.
SimConfig ConfigOf(uint64_t seed);

struct SimResult {
  absl::Status violation;  // OK: every invariant held
  uint64_t trace_hash = 0;
  int64_t events = 0, finished_steps = 0, failed_steps = 0, reruns = 0, faults = 0;
  int64_t coordinators = 0;          // lives of the coordinator
  int64_t drained = 0, refused = 0;  // processes that ended with 143 and with 78
  int64_t waits = 0;                 // how often a ps said that a commit waits for memory
  int64_t commits_given_up = 0;      // a worker heard nothing of them for too long
  int64_t rows_reused = 0;           // that a step read and an earlier one had pulled
  int64_t rows_replaced = 0;         // by an assign of a step that had read what was there
  int64_t rewound_too_often = 0;     // 1: a liar made the job rewind more often than --max_recoveries allows by default, and the rest was not judged
  int64_t beside_commits = 0;        // steps that were seen running while the one before them at their worker committed, each counted once
  int64_t pulled_ahead = 0;          // steps whose first pull had left before they began, each counted once, as far as seen
  int64_t checkpoints = 0, restores = 0, power_losses = 0;
  int64_t resizes = 0;
  int64_t read_two = 0;  // datasets, to the end
  int64_t loops = 0, loops_of_own_data = 0, own_judged = 0, ends_handled = 0, late_workers = 0;
  int64_t finished_reads = 0, stopped_runs = 0, overran = 0, given_up = 0;
  int64_t devices_lost = 0;  // workers that ended since their GPU was
  int64_t rewinds = 0;
  int64_t created_at_cuts = 0;                    // variables, between the cut of a resize and its end
  int64_t died_loading = 0;                       // servers
  int64_t adoptions_in_pass = 0;                  // of the adoptions: a pass over data was under way
  int64_t ended_by_lies = 0;                      // lives of the coordinator
  int64_t falsely_done = 0;                       // steps that a liar said were done, and nobody has done
  int64_t raised_by_liar = 0;                     // errors that name it
  int64_t orders_not_judged = 0;                  // too much ran beside each other
  int64_t adoptions = 0;                          // coordinators that went on with what the servers held
  std::array<int64_t, kNumFailpoints> hits = {};  // of each failpoint
  int64_t killed_at_points = 0;
  bool job_lost = false;                          // ended with Unavailable, as it had to
  absl::Duration virtual_time, longest_recovery;  // the second: with all that failed there again
  std::vector<std::string> trace;                 // with SimConfig::trace
};

SimResult RunSimulation(const SimConfig& config);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_CLUSTER_H_
