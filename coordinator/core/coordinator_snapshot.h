// What a coordinator says of itself.
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cluster/ids.h"

namespace divvy {

// What a coordinator is doing, for the live line and status pages.
struct CoordinatorSnapshot {
  enum class Phase : uint8_t {
    // Until every ps has answered in this epoch, and min_workers are known.
    kAttaching,
    // There is something to restore: until the program restores it, or begins without.
    kChoosing,
    // The servers are told what to begin with.
    kLoading,
    // A server was lost: what had finished since the last checkpoint is run again.
    kReplaying,
    // steps run
    kRunning,
    // EndJob: the last word of every server is asked for, the tasks are told to exit
    kEnding,
    // It is durable how the job ended, and every task has been told, or did not answer.
    kOver,
    // Every call is answered with what ended the job.
    kFailed,
  };
  Phase phase = Phase::kAttaching;
  JobId job;
  Epoch epoch_id;
  int64_t finished_steps = 0;  // training steps
  int64_t finished_reads = 0;  // read-only steps
  int64_t queued = 0, in_flight = 0;
  // How often one was given up, for whatever reason but its own leave.
  int64_t lost_workers = 0;
  int ps_up = 0, num_ps = 0, workers_up = 0, num_workers = 0;
  struct Progress {  // of the running RunRequest
    bool read_only = false;
    int64_t pass = 0;              // RunEpochs of training steps completed before it
    int64_t done = 0;              // steps of this pass finished
    std::optional<int64_t> total;  // of this pass, where known
  };
  std::optional<Progress> progress;
  struct Wait {
    std::string text;  // "ps 1 (10.0.0.9:2222): connection refused"
    absl::Duration since;
  };
  std::vector<Wait> waits;                      // longest first
  bool draining = false;                        // Drain was called
  int64_t durable_steps = 0;                    // covered by a checkpoint
  std::optional<CheckpointId> last_checkpoint;  // committed, or restored from
  std::optional<CheckpointId> checkpoint;       // that is being made
  std::optional<CheckpointId> newest_found;     // when this life of the coordinator began
  std::optional<int64_t> adopted_steps;  // this life of the coordinator went on with what the
                                         // servers held: steps in it
  absl::Duration longest_hold;           // of commits, while a checkpoint was cut
  int64_t recoveries = 0;                // how often the job went back to its last checkpoint
  int64_t redo_log_entries = 0, redo_log_bytes = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_SNAPSHOT_H_
