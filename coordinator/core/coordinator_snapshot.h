// The state of a coordinator at one moment, as status pages and the live line show it.
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "protocol/ids.h"
#include "variables/table_stats.h"

namespace divvy {

// The checkpoints of this life of the coordinator.
struct CheckpointStats {
  // How many are on the disk, or were; and how many attempts failed because of a disk.
  int64_t made = 0, failed = 0;
  // Whether an attempt failed because of a disk, and no checkpoint has been made since.
  bool failing = false;
  // Clock::WallTime() when the last one was complete.
  std::optional<absl::Time> last_success;
  // Of the last one.
  absl::Duration last_took;
  int64_t last_bytes = 0;
  // How long commits were held for all of them together.
  absl::Duration held;
};

// Plain data. It is a copy and does not change with the coordinator. CoordinatorCore::Snapshot
// makes it.
struct CoordinatorSnapshot {
  enum class Phase : uint8_t {
    // Waits until every ps has answered in this epoch and min_workers workers are known.
    kAttaching,
    // There is a state to restore. Waits until the program restores it or begins anew.
    kChoosing,
    // The servers load the state that the job continues with, or keep what they hold.
    kLoading,
    // A rewind has happened. Everything finished since the last checkpoint is run again.
    kReplaying,
    // Steps run.
    kRunning,
    // EndJob was called. Every server has to confirm a last time that it is still the same process.
    // Then the tasks are told to exit.
    kEnding,
    // The job's end is durable, and every task was told or did not answer.
    kOver,
    // Every call returns the error that ended the job.
    kFailed,
  };
  Phase phase = Phase::kAttaching;
  JobId job;
  Epoch epoch_id;
  int64_t finished_steps = 0;  // training steps
  int64_t finished_reads = 0;  // read-only steps
  int64_t queued = 0, in_flight = 0;
  // How often a worker was given up for any reason except its own leave.
  int64_t lost_workers = 0;
  int ps_up = 0, num_ps = 0, workers_up = 0, num_workers = 0;
  // The progress of the loop that is running (RunRequest).
  struct Progress {
    bool read_only = false;
    // The number of epochs of training that were complete before the loop.
    int64_t pass = 0;
    // Finished steps of this pass. With RunRequest::last_step: finished training steps of the job.
    int64_t done = 0;
    // The expected final value of `done`. Nullopt: not known.
    std::optional<int64_t> total;
  };
  std::optional<Progress> progress;
  // A dynamic table of the job.
  struct Table {
    std::string name;
    // The sum over its parts, as their servers last told.
    TablePartStats stats;
    // 0: no limit.
    int64_t max_rows = 0;
  };
  // In the order in which they were created.
  std::vector<Table> tables;
  // Something that the job waits for.
  struct Wait {
    // "ps 1 (10.0.0.9:2222): connection refused"
    std::string text;
    // How long the job has waited for it.
    absl::Duration since;
  };
  // The longest first.
  std::vector<Wait> waits;
  // Long work of which the coordinator knows how much is done.
  struct Work {
    enum class Kind : uint8_t {
      // The parameter servers load a checkpoint: bytes.
      kRestore,
      // They write one, while steps go on: bytes.
      kCheckpoint,
      // Steps are run again after a rewind: steps.
      kReplay,
    };
    Kind kind = Kind::kRestore;
    // `total` 0: not known yet.
    int64_t done = 0, total = 0;
    // How long it has been going on.
    absl::Duration since;
  };
  std::optional<Work> work;
  // Drain was called.
  bool draining = false;
  // Training steps covered by a checkpoint.
  int64_t durable_steps = 0;
  // The last checkpoint that was committed or restored from.
  std::optional<CheckpointId> last_checkpoint;
  // The checkpoint that is being made.
  std::optional<CheckpointId> checkpoint;
  // The newest checkpoint when this life of the coordinator began.
  std::optional<CheckpointId> newest_found;
  // Set if this life of the coordinator continued with what the servers held: the number of
  // training steps in that state.
  std::optional<int64_t> adopted_steps;
  // The longest time that commits were held while a checkpoint was cut.
  absl::Duration longest_hold;
  // How often the job has returned to its last checkpoint.
  int64_t recoveries = 0;
  int64_t redo_log_entries = 0, redo_log_bytes = 0;
  // The age of the oldest step that has not ended; 0: there is none.
  absl::Duration oldest_step;
  // How often a worker that was lost was replaced or came back, and how often another process took
  // the place of a ps.
  int64_t worker_recoveries = 0, ps_recoveries = 0;
  // Steps that had finished and were run again after a rewind.
  int64_t replayed_steps = 0;
  // Runs of steps that have ended, and those that finished a step for the first time.
  int64_t runs = 0, counted_runs = 0;
  // Sessions of workers that have lost their right to commit.
  int64_t fenced_sessions = 0;
  // Positions of data that open steps have.
  int64_t leased_positions = 0;
  CheckpointStats checkpoints;
  // Clock::Elapsed() of the snapshot.
  absl::Duration at;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_
