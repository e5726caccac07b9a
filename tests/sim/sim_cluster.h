// A whole cluster of the real cores in one thread: a program of random calls, random faults, and
// the invariants of the protocol checked all the way.
//
// What is checked (protocol section 17; X7 and X16 as far as a job without checkpoints has them):
//   X1   no ps applies an id twice                             X2   at rest: each finished entry
//        applied once at each participant, no other id anywhere,
//   X5   at most one attempt of an id can be applied                and every variable holds
//        exactly the sum of what finished
//   X7   what ps, streams and redo log remember is bounded     X8   a step that failed or was
//        cancelled is in no ps once the next call has raised
//   X9   a step reads no older state than had finished when it began (X11 too: own finished writes
//        are seen), or with a pipeline_depth of d: when the (d - 1)-th step before it in its
//        session began, and what the steps before that one had added; rows that may be kept for s
//        steps: when the s-th did. What its own worker wrote to a row it sees, and what a step of
//        its session has replaced it never reads again
//   X10  leased positions tile each pass                       X12  Adam's t of a row = gradient
//   commits applied to it X6   nothing of a fenced session is applied, and no frame of a replaced
//   coordinator is taken for one of its successor X14  ids are never used twice, over restarts too
//   X16  once faults stop all ends well, within bounded virtual time X3   a state that is gone on
//   with, from a checkpoint or from what the servers hold, has exactly what had finished, and the
//   program's bytes of then X19  where the coordinator was told the number of replicas, no step
//   runs on a worker with another, and none with that number is refused for it X4   slots that are
//   sums of what their steps have used are exact (the bitwise rule: ps_server/checkpoint) X21  a
//   coordinator whose predecessor was killed, and nothing else, goes on with what the servers hold
//   X18  the same seed gives the same trace                    (X6 in full, and X15, are tested on
//   the ps alone: ps_server/core)
//
// The coordinator is one of the processes that die, drain, and are started again with their store
// or without; the program then begins anew, on empty ps. What of an older epoch reaches a ps after
// that is found as X2 or X8.
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
  // rates of each message
  double lose = 0, duplicate = 0, break_stream = 0, slow = 0, late = 0;
  // Every task has the directory, and one is made every few seconds.
  bool checkpoints = false;
  // The program calls RestoreLatest.
  bool restore = false;
  // `resize` never takes one away
  bool only_grow = false;
  // A person changes the number of parameter servers (with checkpoints).
  bool resize = false;
  // now and then it is full, or an operation on it fails
  bool disk_faults = false;
  // A parameter server is lost just before the program ends, and soon after an adoption.
  bool lose_at_worst = false;
  // now and then the coordinator's store refuses a change, and all behind it
  bool store_faults = false;
  // now and then all processes end, and the disk forgets what was not synced
  bool power_loss = false;
  // Of larger faults, each 10 ms of virtual time.
  double fault_rate = 0;
  // now and then what blocks (disks, above all) takes up to 4 s
  bool slow_work = false;
  // now and then a parameter server is stopped for a while (SIGSTOP)
  bool pause_ps = false;
  bool kill_workers = true, pause_workers = true, cut_links = true, replace_workers = true;
  // Without `replay` it ends the coordinator with Unavailable.
  bool kill_ps = false, restart_ps = false;
  // durability `replay`: with restart_ps parameter servers are killed again and again
  bool replay = true;
  int64_t redo_log_bytes = 256 << 20;
  // It is started again, as after every end that is worth another start.
  bool kill_coordinator = false;
  // now and then the killed one lives on beside its successor
  bool zombie_coordinator = false;
  // now and then its successor finds an empty state directory
  bool lose_store = false;
  // --job_name: also that one begins the same job
  bool named_job = false;
  // SIGTERM to workers, ps (with kill_ps) and coordinator
  bool drain = false;
  // now and then a worker is started with another number than the coordinator was told
  bool other_replicas = false;
  // A second process is started with the job and index of one that lives.
  bool duplicates = false;
  // The coordinator knows no ps in advance.
  bool learn_addresses = false;
  // Of each ps; 0: as much as one wants.
  int64_t commit_buffer_bytes = 0;
  // step ids that the coordinator makes durable at a time
  uint64_t id_block = uint64_t{1} << 20;
  // What the payload of a commit takes, once there is memory for it.
  absl::Duration payload_time;
  // step functions fail now and then
  bool failing_steps = false;
  // A re-run fails, or touches other ps: may end the job.
  bool changing_steps = false;
  // Then they stop.
  absl::Duration fault_time = absl::Seconds(30);
  // Of workers.
  int pipeline_depth = 1;
  // So many steps of its own worker; else as the depth allows.
  std::optional<int> may_miss;
  // Of workers; with them steps read rows, too.
  int64_t row_cache_bytes = 0;
  int row_cache_staleness = 0;
  // likewise
  std::optional<int> rows_may_miss;
  // steps also assign rows of one more variable, or the whole of it
  bool assigning_steps = false;
  // steps also change rows of integers in ways that do not commute
  bool cells = false;
  // So many of them.
  double cell_rate = 0.3;
  // The most steps that the program schedules at a time.
  int batch = 30;
  // The program makes calls while steps are in flight (beside.h).
  bool beside = false;
  // With `cells` and `beside`: it assigns while long steps run that change cells, and a server is
  // lost soon after.
  bool assign_in_steps = false;
  // With `beside`: a variable is created, with values, just when the checkpoint of a resize has
  // been cut.
  bool create_at_cuts = false;
  // steps use optimizers that the variable was not made with
  bool slots_on_demand = false;
  // now and then a server that was lost is lost again whenever it loads, until that is mended or
  // the job has ended
  bool die_loading = false;
  // faults come at any time, not each 10 ms
  bool off_grid = false;
  // now and then the machine stops with all its processes, and goes on later
  bool suspend = false;
  // steps read two datasets by iterators of the program's, and some handle the end
  bool readers = false;
  // Some of the scheduled steps.
  bool read_only_steps = false;
  // The program stops some of its loops.
  bool stop_runs = false;
  // It runs loops other than its ordinary pass (loops.h).
  bool loops = false;
  // Some of them over data that is each worker's own.
  bool own_data = false;
  // All but one worker are started while the job runs.
  bool late_workers = false;
  // One variable lies where another does.
  bool colocated = false;
  // A variable is larger than what is read, sent or saved at once.
  bool large = false;
  // With `beside`: the program asks for variables that no server has the memory for.
  bool tight_memory = false;
  // With `disk_faults`: now and then a file cannot be read.
  bool reads_fail = false;
  // now and then the GPU of a worker fails in a step, for as long as that process lives
  bool lose_devices = false;
  // With `lose_devices`: a few steps break the GPU of every worker that runs them.
  bool breaking_steps = false;
  // A few take longer than the deadline when they are first run.
  bool long_steps = false;
  // Beside the others there is a worker that says what it likes (lying_worker.h).
  bool liar = false;
  bool liar_says_done = false, liar_says_failed = false, liar_says_applied = false,
       liar_only_refuses = false;
  // An error that names it is expected: only what it leaves behind is judged.
  bool liar_may_end_job = false;
  // From some moment on, ps 0 answers what it likes (lying_server.h), until that has ended the job;
  // values are not judged.
  bool lying_ps = false;
  // Of each worker: so many elements make a step of a pass.
  int replicas = 1;
  // longer than the simulation's patience: it may hide no report that is lost
  absl::Duration step_deadline = absl::Minutes(10);
  // loss after loss is no error
  int max_step_attempts = 1000, max_recoveries = 1000;
  bool trace = false;
  // Ends the process that comes to this point for the kill_at_hit-th time; only in the build that
  // has failpoints (base/failpoint.h).
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
  // lives of the coordinator
  int64_t coordinators = 0;
  // processes that ended with 143 and with 78
  int64_t drained = 0, refused = 0;
  // How often a ps said that a commit waits for memory.
  int64_t waits = 0;
  // A worker heard nothing of them for too long.
  int64_t commits_given_up = 0;
  // That a step read and an earlier one had pulled.
  int64_t rows_reused = 0;
  // By an assign of a step that had read what was there.
  int64_t rows_replaced = 0;
  // 1: a liar made the job rewind more often than --max_recoveries allows by default, and the rest
  // was not judged
  int64_t rewound_too_often = 0;
  // steps that were seen running while the one before them at their worker committed, each counted
  // once
  int64_t beside_commits = 0;
  // steps whose first pull had left before they began, each counted once, as far as seen
  int64_t pulled_ahead = 0;
  int64_t checkpoints = 0, restores = 0, power_losses = 0;
  int64_t resizes = 0;
  int64_t read_two = 0;  // datasets, to the end
  int64_t loops = 0, loops_of_own_data = 0, own_judged = 0, ends_handled = 0, late_workers = 0;
  int64_t finished_reads = 0, stopped_runs = 0, overran = 0, given_up = 0;
  int64_t devices_lost = 0;  // workers that ended since their GPU was
  int64_t rewinds = 0;
  // variables, between the cut of a resize and its end
  int64_t created_at_cuts = 0;
  // servers
  int64_t died_loading = 0;
  // Of the adoptions: a pass over data was under way.
  int64_t adoptions_in_pass = 0;
  // lives of the coordinator
  int64_t ended_by_lies = 0;
  // steps that a liar said were done, and nobody has done
  int64_t falsely_done = 0;
  // errors that name it
  int64_t raised_by_liar = 0;
  // too much ran beside each other
  int64_t orders_not_judged = 0;
  // coordinators that went on with what the servers held
  int64_t adoptions = 0;
  // Of each failpoint.
  std::array<int64_t, kNumFailpoints> hits = {};
  int64_t killed_at_points = 0;
  bool job_lost = false;                          // ended with Unavailable, as it had to
  absl::Duration virtual_time, longest_recovery;  // the second: with all that failed there again
  std::vector<std::string> trace;                 // with SimConfig::trace
};

SimResult RunSimulation(const SimConfig& config);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_CLUSTER_H_
