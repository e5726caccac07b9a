// A whole cluster of the real cores in one thread: a program of random calls, random faults, and
// checks of the protocol's invariants all the way.
//
// The invariants:
//   X1   No ps applies an entry id twice within a lineage.
//   X2   At rest, each finished entry is applied once at each of its participants, no other entry
//        is applied anywhere, and every variable holds exactly the sum of the finished entries.
//   X3   A state that a job continues from (a checkpoint, or what the servers hold) has exactly the
//        entries that had finished, and the program state of that time.
//   X4   Slots that are sums of what their steps have used are exact. (ps_server/checkpoint tests
//        that a loaded state is the saved one bit by bit.)
//   X5   At most one attempt of an entry can be applied.
//   X6   No commit of a fenced session is applied, and no frame of a replaced coordinator is taken
//        for one of its successor. (The rest of X6, and X15, are tested in ps_server/core.)
//   X7   The memory of ps, streams and redo log is bounded.
//   X8   After a call has raised an error, no ps holds anything of a failed or cancelled step.
//   X9   A step reads no older state than had finished when it began. With a pipeline_depth of d:
//        when the (d - 1)-th step before it in its session began, together with what the session's
//        steps before that one had added. For rows that may be kept for s steps: when the s-th step
//        before it began.
//   X10  The leased positions of a pass tile it.
//   X11  A step sees the finished writes of its own session to a row, and never reads a value that
//        a step of its session has replaced.
//   X12  Adam's t of a row is the number of gradient commits applied to it.
//   X13  No commit is applied while a checkpoint is cut.
//   X14  Ids are never used twice, not even over restarts.
//   X16  Once faults stop, everything ends well within bounded virtual time.
//   X17  A checkpoint that was committed is found again.
//   X18  The same seed gives the same trace.
//   X19  Where the coordinator was given the number of replicas, no step runs on a worker with
//        another number, and no worker with that number is refused for it.
//   X20  A read at rest shows every finished step that named a key of a table since its row began.
//   X21  If a coordinator was killed and nothing else was lost, its successor adopts what the
//        servers hold.
//   X22  At rest, the rows of a table, with counts and minutes, are those of its one history, run
//        entry by entry: of the finished steps, and of the evictions at their places among them.
//        So they are the same for any number of parameter servers.
//   X23  Nothing changes of the memory that an answer to a pull has borrowed.
//   X24  The values and the slots of a table have one set of keys.
// A job without checkpoints is checked for X7 and X16 only as far as they apply to it.
//
// The coordinator is one of the processes that die, drain, and are started again with their store
// or without it. Without checkpoints and adoption the program then begins anew, on empty servers.
// If a message of an older generation still has an effect after that, X2 or X8 shows it.
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
#include "variables/variable_spec.h"

namespace divvy::sim {

struct SimConfig {
  uint64_t seed = 1;
  int num_ps = 2, num_workers = 2, num_variables = 3, rounds = 4;
  // The probability of each network fault, for each message.
  double lose = 0, duplicate = 0, break_stream = 0, slow = 0, late = 0;
  // Every task has the checkpoint directory. A checkpoint is made every few seconds.
  bool checkpoints = false;
  // The program calls RestoreLatest.
  bool restore = false;
  // `resize` never removes a parameter server.
  bool only_grow = false;
  // The number of parameter servers changes while the job runs (with `checkpoints`).
  bool resize = false;
  // With `resize`: the shards are moved instead, and the number stays.
  bool rebalance = false;
  // Now and then the disk is full, or an operation on it fails.
  bool disk_faults = false;
  // A parameter server is lost just before the program ends, and soon after an adoption.
  bool lose_at_worst = false;
  // Now and then the coordinator's store refuses a change, and every later one.
  bool store_faults = false;
  // Now and then all processes die, and the disk loses what was not synced.
  bool power_loss = false;
  // The probability of a larger fault in each 10 ms of virtual time.
  double fault_rate = 0;
  // Now and then blocking work (disk operations above all) takes up to 4 s.
  bool slow_work = false;
  // Now and then a parameter server is paused for a while (SIGSTOP).
  bool pause_ps = false;
  bool kill_workers = true, pause_workers = true, cut_links = true, replace_workers = true;
  // Without `replay`, the loss of a ps ends the coordinator with Unavailable.
  bool kill_ps = false, restart_ps = false;
  // --durability=replay. With restart_ps, parameter servers are killed again and again.
  bool replay = true;
  int64_t redo_log_bytes = 256 << 20;
  // The coordinator is killed, and started again, as after every exit that allows a restart.
  bool kill_coordinator = false;
  // Now and then a killed coordinator lives on beside its successor.
  bool zombie_coordinator = false;
  // Now and then the successor of a coordinator finds an empty state directory.
  bool lose_store = false;
  // --job_name is set, so a coordinator with an empty state directory continues the same job.
  bool named_job = false;
  // SIGTERM to workers, to parameter servers (with kill_ps) and to the coordinator.
  bool drain = false;
  // Now and then a worker starts with another number of replicas than the coordinator was given.
  bool other_replicas = false;
  // Now and then a second process starts with the role and index of a live one.
  bool duplicates = false;
  // The coordinator does not know the servers' addresses in advance.
  bool learn_addresses = false;
  // The commit buffer of each ps; 0: no limit.
  int64_t commit_buffer_bytes = 0;
  // How many entry ids the coordinator makes durable at a time.
  uint64_t id_block = uint64_t{1} << 20;
  // How long a commit's payload takes to arrive, once memory is reserved for it.
  absl::Duration payload_time;
  // Step functions fail now and then.
  bool failing_steps = false;
  // A re-run of a step may fail, or touch other parameter servers. This may end the job.
  bool changing_steps = false;
  // After this time no more faults happen.
  absl::Duration fault_time = absl::Seconds(30);
  // --pipeline_depth of the workers.
  int pipeline_depth = 1;
  // X9 lets a step miss this many steps of its own worker; unset: as many as pipeline_depth allows.
  std::optional<int> may_miss;
  // Steps also read rows, some of them twice in one read, if pipeline_depth is 1.
  bool reads_rows = false;
  // X9 and X11 judge these rows at every depth, by the rule for depth 1.
  bool rows_at_any_depth = false;
  // Steps also assign rows of one more variable, or all of it.
  bool assigning_steps = false;
  // Steps also change rows of integers by operations that do not commute.
  bool cells = false;
  // Steps add to rows of a dynamic table, and read keys that have none.
  bool table = false;
  // With `table`: a key gets its row from so many steps that name it, counted exactly or by a
  // filter.
  int64_t admit_after = 1;
  bool admit_by_filter = false;
  // Steps write to the table by gradients, so its rows have slots.
  bool table_gradients = false;
  // Rows go: those that no step has named for so many minutes (0: none), or those with small
  // values. AddEvictions sets what they need beside.
  int evict_unused = 0;
  bool evict_below_norm = false;
  bool Evicts() const { return table && (evict_unused > 0 || evict_below_norm); }
  // The probability that a step does so.
  double cell_rate = 0.3;
  // The largest number of steps that the program schedules at a time.
  int batch = 30;
  // The program makes calls while steps are in flight (beside.h).
  bool beside = false;
  // With `cells` and `beside`: the program assigns cells while long steps change them, and a
  // parameter server is lost soon after.
  bool assign_in_steps = false;
  // With `beside`: the program creates a variable with values just after the checkpoint of a resize
  // was cut.
  bool create_at_cuts = false;
  // Steps use optimizers that the variable was not created with.
  bool slots_on_demand = false;
  // of the variable whose slots these are
  WireFormat late_wire = WireFormat::kExact;
  // Now and then a lost parameter server is lost again each time it loads, for a random number of
  // times or until the job has ended.
  bool die_loading = false;
  // Faults happen at any time, not only at multiples of 10 ms.
  bool off_grid = false;
  // Now and then the machine is suspended with all its processes, and resumes later.
  bool suspend = false;
  // Steps read two datasets by iterators that the program made. Some steps handle the end of the
  // data.
  bool readers = false;
  // Some of the scheduled steps are read-only.
  bool read_only_steps = false;
  // The program stops some of its loops before their end.
  bool stop_runs = false;
  // The program runs loops other than its ordinary pass (loops.h).
  bool loops = false;
  // Some of these loops read data of which each worker has its own share.
  bool own_data = false;
  // All workers but one are started while the job runs.
  bool late_workers = false;
  // One variable is placed with another.
  bool colocated = false;
  // One variable is larger than what is read, sent or saved at once.
  bool large = false;
  // With `beside`: the program tries to create variables that are too large for every server.
  bool tight_memory = false;
  // With `disk_faults`: now and then a file cannot be read.
  bool reads_fail = false;
  // Now and then a worker's GPU fails in a step, and stays lost while that process lives.
  bool lose_devices = false;
  // With `lose_devices`: a few steps break the GPU of every worker that runs them.
  bool breaking_steps = false;
  // A few steps take longer than the deadline at their first attempt.
  bool long_steps = false;
  // One more worker sends false messages (lying_worker.h).
  bool liar = false;
  bool liar_says_done = false, liar_says_failed = false, liar_says_applied = false,
       liar_only_refuses = false;
  // An error that names the lying worker is expected. Only its consequences are judged.
  bool liar_may_end_job = false;
  // From some moment on, ps 0 gives false answers (lying_server.h), until that has ended the job.
  // Values are not judged.
  bool lying_ps = false;
  // Replicas of each worker. A step of a pass takes one element for each replica.
  int replicas = 1;
  // Longer than the simulation waits (kPatience), so that it never hides a lost report.
  absl::Duration step_deadline = absl::Minutes(10);
  // High limits: repeated losses are no error here.
  int max_step_attempts = 1000, max_recoveries = 1000;
  bool trace = false;
  // Kills the process that reaches this failpoint for the kill_at_hit-th time. Only the build with
  // failpoints has them (base/failpoint.h).
  std::optional<Failpoint> kill_at;
  int64_t kill_at_hit = 1;
};

// Adds evictions of rows, which take minutes: a longer program, with faults less often. Draws the
// rule if neither evict_unused nor evict_below_norm is set.
void AddEvictions(SimConfig& config);
// Add a lying worker, or a lying parameter server, and turn off what cannot be judged beside it.
void AddLiar(SimConfig& config);
void AddLyingPs(SimConfig& config);

// The configuration that the explorer runs for `seed`.
SimConfig ConfigOf(uint64_t seed);

struct SimResult {
  absl::Status violation;  // OK: every invariant held
  uint64_t trace_hash = 0;
  int64_t events = 0, finished_steps = 0, failed_steps = 0, reruns = 0, faults = 0;
  // Lives of the coordinator.
  int64_t coordinators = 0;
  // Processes that exited with 143, and with 78.
  int64_t drained = 0, refused = 0;
  // How often a ps answered that a commit waits for memory.
  int64_t waits = 0;
  // Commits that a worker gave up because it heard nothing of them for too long.
  int64_t commits_given_up = 0;
  // Rows that were read and judged.
  int64_t rows_read = 0;
  // Rows that were replaced by the assign of a step that had read them.
  int64_t rows_replaced = 0;
  // 1: a liar made the job rewind more often than the default of --max_recoveries. The rest of the
  // run was not judged.
  int64_t rewound_too_often = 0;
  // Steps that ran while the previous step of their worker committed. Each step counts once.
  int64_t beside_commits = 0;
  // Steps whose first pull was sent before they began, as far as seen. Each step counts once.
  int64_t pulled_ahead = 0;
  // Rows of the table that evictions removed, and rows that were compared with the model.
  int64_t rows_evicted = 0, rows_judged = 0;
  int64_t checkpoints = 0, restores = 0, power_losses = 0;
  // Of rebalances, only those that moved a shard or cut a variable.
  int64_t resizes = 0, rebalances = 0, cuts = 0;
  int64_t read_two = 0;  // pairs of datasets that were read to the end
  int64_t loops = 0, loops_of_own_data = 0, own_judged = 0, ends_handled = 0, late_workers = 0;
  int64_t finished_reads = 0, stopped_runs = 0, overran = 0, given_up = 0;
  int64_t devices_lost = 0;  // workers that exited because their GPU was lost
  int64_t rewinds = 0;
  // Variables that were created between the cut of a resize and its end.
  int64_t created_at_cuts = 0;
  // Parameter servers that died while they loaded.
  int64_t died_loading = 0;
  // Adoptions in the middle of a pass over data.
  int64_t adoptions_in_pass = 0;
  // Lives of the coordinator that ended because of a lying parameter server.
  int64_t ended_by_lies = 0;
  // Steps that a lying worker reported as finished and that nobody has run.
  int64_t falsely_done = 0;
  // Errors that name the lying worker.
  int64_t raised_by_liar = 0;
  // Reads of cells that were not judged, because too many operations overlapped.
  int64_t orders_not_judged = 0;
  // Coordinators that adopted what the servers held.
  int64_t adoptions = 0;
  // How often each failpoint was reached.
  std::array<int64_t, kNumFailpoints> hits = {};
  int64_t killed_at_points = 0;
  bool job_lost = false;  // ended with Unavailable, as it should
  // longest_recovery counts only the time in which every process was there.
  absl::Duration virtual_time, longest_recovery;
  std::vector<std::string> trace;  // with SimConfig::trace
};

SimResult RunSimulation(const SimConfig& config);

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_SIM_CLUSTER_H_
