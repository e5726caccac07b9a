// The options of a coordinator. They do not change after its start.
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
#include "coordinator/core/arrangement.h"
#include "coordinator/core/checkpoint_catalog.h"
#include "coordinator/core/coordinator_metrics.h"
#include "partitioners/placement.h"
#include "protocol/ids.h"
#include "protocol/messages.h"
#include "protocol/trace_log.h"
#include "strategy/strategy_options.h"

namespace divvy {

// When shards move from parameter servers that have more to do than others.
enum class Rebalancing : uint8_t {
  // Shards move only when an operator asks.
  kOff,
  // They also move by themselves if the load is uneven for long (RebalanceSchedule), in a job that
  // keeps checkpoints.
  kAuto,
};

// What happens to a job that has lost a parameter server.
enum class Durability : uint8_t {
  // The job returns to the newest checkpoint and runs everything since then again. No finished step
  // is lost.
  kReplay,
  // The job ends, as TensorFlow's does. The next start continues from the newest checkpoint.
  kCheckpoint,
};

// Plain data. The incarnation and the number of ps addresses have no usable default; all other
// members have one.
struct CoordinatorOptions {
  // Identifies this process; not 0. REQUIRES: no other process of this task, earlier or later, has
  // the same.
  Incarnation incarnation;
  // The seed from which initial values, shuffles and dropout follow.
  uint64_t job_seed = 1;
  // The id of a job that the store does not know yet; nullopt: a random one. If the store knows the
  // job, a different id is refused (kWrongJob).
  std::optional<JobId> job;
  // Addresses of ps 0, 1, ...; the size is the number of servers. An empty address is learnt when
  // the ps registers.
  std::vector<std::string> ps_addresses;
  // Addresses of the workers that are known in advance, by index. Others are learnt when they
  // register.
  std::map<int, std::string> worker_addresses;
  // The job begins once so many workers are known.
  int min_workers = 1;
  // A worker with another number of replicas is refused. 0: a worker with another number than most
  // workers is refused (WorkerSet::CheckReplicas).
  int replicas_per_worker = 0;
  // The cluster in the coordinator's TF_CONFIG; may be empty. A task whose own TF_CONFIG
  // contradicts it is refused.
  ClusterView cluster;
  // The program's own flags, name -> value. Every worker gets them before its first step.
  std::map<std::string, std::string> program_flags;
  // The program that runs in this process. A worker that runs another program is refused. Empty
  // members are not compared.
  ProgramDescription program;
  // How many steps may wait at a worker besides those that it runs. The next step is then there
  // when a step ends, and the worker does not wait for a dispatch. More steps wait there, up to
  // most_ahead, while all of them together are expected to take no longer than ahead_time: short
  // steps then travel in few messages.
  int queue_ahead = 2;
  int most_ahead = 64;
  absl::Duration ahead_time = absl::Milliseconds(2);
  // With so many steps queued, Schedule waits. 0 or less: it never waits.
  int64_t max_queued_steps = 262'144;
  // Entry ids are made durable in blocks of this size before the first id of a block is given. A
  // restart skips up to one and a half blocks of ids.
  uint64_t id_block = uint64_t{1} << 20;
  // Attempts of one step before it is given up.
  int max_step_attempts = 10;
  // The largest arguments of a step or a data source. They travel in one message, and a worker's
  // default limit for a message is 16 MiB.
  int64_t max_args_bytes = 15 << 20;
  // The largest message that tells workers where all variables lie. A variable that would exceed it
  // is refused.
  int64_t max_layout_bytes = 15 << 20;
  // The limit for one attempt of a step. Time in which the worker waits for a ps counts half. It
  // does not count while that ps does not answer the coordinator either.
  absl::Duration step_deadline = absl::Minutes(10);
  // The job ends if a ps does not answer for so long.
  absl::Duration ps_timeout = absl::Minutes(10);
  // A worker that sends nothing for so long is lost.
  absl::Duration worker_silence = absl::Seconds(5);
  // A worker whose broken Steps stream is not back within this time is lost.
  absl::Duration reconnect_limit = absl::Seconds(1);
  // If steps exist and none finishes for so long, the log says what each task is doing. 0: never.
  absl::Duration watchdog;
  // Null: the job keeps no checkpoints. REQUIRES: outlives the core and its tasks.
  CheckpointCatalog* checkpoints = nullptr;
  // Where the core notes what it measures. Null: nowhere. REQUIRES: outlives the core.
  CoordinatorMetrics* metrics = nullptr;
  // Decides which steps are traced, and keeps their times. Null: none is. REQUIRES: as metrics.
  TraceLog* traces = nullptr;
  // The interval of scheduled checkpoints. 0: checkpoints are made only on request and at the end.
  absl::Duration checkpoint_every;
  // How long the end of a job tries to write its last checkpoint while a disk is full or broken. A
  // full redo log waits equally long.
  absl::Duration checkpoint_stall_timeout = absl::Minutes(10);
  // Whether a checkpoint is made when the job is complete.
  bool final_checkpoint = true;
  // How many of the newest checkpoints are kept; at least 2.
  int keep_checkpoints = 3;
  // What happens when a parameter server is lost.
  Durability durability = Durability::kReplay;
  // kReplay: memory for the log of everything done since the last checkpoint. When it is half full,
  // a checkpoint is made. When it is full, no step begins until a checkpoint is committed. Without
  // a catalog the log begins with the job, and once it is full the durability is kCheckpoint from
  // then on.
  int64_t redo_log_bytes = 256 << 20;
  // kReplay: the allowed number of recoveries within 10 minutes. One more ends the job with
  // Internal.
  int max_recoveries = 20;
  // Makes the partitioner for a number of servers. Empty: variables are not cut.
  std::function<Partitioner(int num_ps)> partitioner;
  // How shards are placed on the servers.
  StrategyOptions::Placement placement = StrategyOptions::Placement::kRoundRobin;
  // When CoordinatorCore::Rebalance moves shards.
  ArrangeOptions rebalance;
  // Whether shards also move by themselves.
  Rebalancing rebalancing = Rebalancing::kOff;
  // See StrategyOptions::wire.
  std::function<WireFormat(const VariableSpec& spec)> wire;

  // InvalidArgument that lists every problem. Pure.
  absl::Status Validate() const;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_OPTIONS_H_
