// What a coordinator is told when it starts.
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_OPTIONS_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cluster/ids.h"
#include "cluster/messages.h"
#include "coordinator/core/checkpoint_catalog.h"
#include "partitioners/placement.h"
#include "strategy/strategy_options.h"

namespace divvy {

// What becomes of a job that has lost a parameter server.
enum class Durability : uint8_t {
  // Nothing that has finished is lost: it goes back to the newest checkpoint, and all since is run
  // again.
  kReplay,
  // It ends, as TensorFlow's does: the next start goes on from the newest checkpoint.
  kCheckpoint,
};

struct CoordinatorOptions {
  // Of this process life; not 0.
  Incarnation incarnation;
  // initial values, shuffles and dropout follow from it
  uint64_t job_seed = 1;
  // Of a job that the store does not know yet; none: random.
  std::optional<JobId> job;
  // Of ps 0, 1, ... as many as there are; an empty one is learnt by Register.
  std::vector<std::string> ps_addresses;
  // Of those known in advance; others are learnt by Register.
  std::map<int, std::string> worker_addresses;
  // The job begins when so many are known.
  int min_workers = 1;
  // A worker with another number is refused; 0: with another than those that are here.
  int replicas_per_worker = 0;
  // What the coordinator's TF_CONFIG says: a task whose own contradicts it is refused; may be
  // empty.
  ClusterView cluster;
  // The program's own, name -> value: every worker is given them before its first step.
  std::map<std::string, std::string> program_flags;
  // What runs here: a worker that runs another program is refused; members that are empty are not
  // compared.
  ProgramDescription program;
  // steps that wait at a worker beside those it runs, so that dispatch costs nothing
  int queue_ahead = 2;
  // Schedule waits beyond; 0 or less: it never does
  int64_t max_queued_steps = 262'144;
  // step ids made durable at a time, before the first of them is given: a restart loses up to one
  // and a half
  uint64_t id_block = uint64_t{1} << 20;
  int max_step_attempts = 10;
  // Of a step or a data source: they travel in one message of 16 MiB, what a worker takes by
  // default.
  int64_t max_args_bytes = 15 << 20;
  // Of the message that tells workers where all variables lie: a create that would pass it is
  // refused.
  int64_t max_layout_bytes = 15 << 20;
  // Of one attempt; a wait for a ps counts half, and not at all while that ps is lost.
  absl::Duration step_deadline = absl::Minutes(10);
  // A ps that does not answer for so long fails the job.
  absl::Duration ps_timeout = absl::Minutes(10);
  // A worker that says nothing for so long is lost.
  absl::Duration worker_silence = absl::Seconds(5);
  // A broken Steps stream that is not back by then: lost.
  absl::Duration reconnect_limit = absl::Seconds(1);
  // With no step finished for so long, though some are there: the log says what all do. 0: never.
  absl::Duration watchdog;
  // null: this job keeps none. Outlives the core and its tasks
  CheckpointCatalog* checkpoints = nullptr;
  // 0: only when asked, and at the end
  absl::Duration checkpoint_every;
  // What the end of a job waits for its last checkpoint, where a disk is full or broken.
  absl::Duration checkpoint_stall_timeout = absl::Minutes(10);
  // One is made when the job is complete.
  bool final_checkpoint = true;
  // The newest so many; at least 2.
  int keep_checkpoints = 3;
  Durability durability = Durability::kReplay;
  // kReplay: memory for what was done since the last checkpoint. Half full, one is made; full, no
  // step begins until it is. Without a catalog the log begins with the job, and when it is full
  // durability is kCheckpoint from there on
  int64_t redo_log_bytes = 256 << 20;
  // kReplay: more of them within 10 minutes end the job with Internal
  int max_recoveries = 20;
  // Empty: variables are not cut.
  std::function<Partitioner(int num_ps)> partitioner;
  StrategyOptions::Placement placement = StrategyOptions::Placement::kRoundRobin;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_OPTIONS_H_
