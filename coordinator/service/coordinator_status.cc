#include "coordinator/service/coordinator_status.h"

#include "base/build_info.h"
#include "coordinator/report/format.h"
#include "protocol/error.h"
#include "wire/messages.h"

namespace divvy {
namespace {

const char* PhaseText(CoordinatorSnapshot::Phase phase) {
  switch (phase) {
    case CoordinatorSnapshot::Phase::kAttaching: return "attaching";
    case CoordinatorSnapshot::Phase::kChoosing: return "choosing";
    case CoordinatorSnapshot::Phase::kLoading: return "loading";
    case CoordinatorSnapshot::Phase::kReplaying: return "replaying";
    case CoordinatorSnapshot::Phase::kRunning: return "running";
    case CoordinatorSnapshot::Phase::kEnding: return "ending";
    case CoordinatorSnapshot::Phase::kOver: return "over";
    case CoordinatorSnapshot::Phase::kFailed: return "failed";
  }
  return "";
}

v1::CoordinatorStatus::Checkpoints CheckpointsOf(const CoordinatorOptions& options,
                                                 const CoordinatorSnapshot& snapshot) {
  const CheckpointStats& stats = snapshot.checkpoints;
  v1::CoordinatorStatus::Checkpoints checkpoints;
  checkpoints.set_made(stats.made);
  checkpoints.set_failed(stats.failed);
  checkpoints.set_failing(stats.failing);
  if (stats.last_success) checkpoints.set_last_success_ns(absl::ToUnixNanos(*stats.last_success));
  checkpoints.set_last_duration_ns(absl::ToInt64Nanoseconds(stats.last_took));
  checkpoints.set_last_bytes(stats.last_bytes);
  checkpoints.set_stall_ns(absl::ToInt64Nanoseconds(stats.held));
  if (options.checkpoints != nullptr)
    checkpoints.set_interval_ns(absl::ToInt64Nanoseconds(options.checkpoint_every));
  return checkpoints;
}

}  // namespace

v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options,
                                     const CoordinatorSnapshot& snapshot,
                                     const Reporter::Reached& reached) {
  v1::TaskStatus status;
  status.set_job(v1::CHIEF);
  status.set_incarnation(options.incarnation.value());
  status.set_build(BuildName());
  status.set_job_id(snapshot.job.value());
  status.set_epoch(snapshot.epoch_id.value());
  status.set_state(PhaseText(snapshot.phase));
  for (const CoordinatorSnapshot::Wait& wait : snapshot.waits) {
    v1::TaskStatus::Wait& row = *status.add_waits();
    row.set_text(wait.text);
    row.set_since_ns(absl::ToInt64Nanoseconds(wait.since));
  }
  v1::CoordinatorStatus& coordinator = *status.mutable_coordinator();
  coordinator.set_finished_steps(snapshot.finished_steps);
  coordinator.set_finished_reads(snapshot.finished_reads);
  coordinator.set_queued(snapshot.queued);
  coordinator.set_in_flight(snapshot.in_flight);
  coordinator.set_ps_up(snapshot.ps_up);
  coordinator.set_num_ps(snapshot.num_ps);
  coordinator.set_workers_up(snapshot.workers_up);
  coordinator.set_num_workers(snapshot.num_workers);
  coordinator.set_durable_steps(snapshot.durable_steps);
  coordinator.set_oldest_step_ns(absl::ToInt64Nanoseconds(snapshot.oldest_step));
  coordinator.set_examples(reached.examples);
  if (reached.loss) coordinator.set_loss(*reached.loss);
  coordinator.set_worker_recoveries(snapshot.worker_recoveries);
  coordinator.set_ps_recoveries(snapshot.ps_recoveries);
  coordinator.set_rewinds(snapshot.recoveries);
  coordinator.set_replayed_steps(snapshot.replayed_steps);
  coordinator.set_goodput(snapshot.runs == 0 ? 1
                                             : static_cast<double>(snapshot.counted_runs) /
                                                   static_cast<double>(snapshot.runs));
  coordinator.set_fenced_sessions(snapshot.fenced_sessions);
  coordinator.set_redo_log_bytes(snapshot.redo_log_bytes);
  coordinator.set_redo_log_limit_bytes(options.redo_log_bytes);
  coordinator.set_leased_positions(snapshot.leased_positions);
  *coordinator.mutable_checkpoints() = CheckpointsOf(options, snapshot);
  if (snapshot.work && IsWorthSaying(*snapshot.work)) {
    v1::CoordinatorStatus::Work& work = *coordinator.mutable_work();
    work.set_text(FormatWork(*snapshot.work));
    work.set_done(snapshot.work->done);
    work.set_total(snapshot.work->total);
    work.set_since_ns(absl::ToInt64Nanoseconds(snapshot.work->since));
  }
  if (snapshot.last_checkpoint) coordinator.set_last_checkpoint(snapshot.last_checkpoint->name());
  for (const CoordinatorSnapshot::Table& each : snapshot.tables) {
    v1::CoordinatorStatus::Table& table = *coordinator.add_tables();
    table.set_name(each.name);
    *table.mutable_stats() = wire::ToProto(each.stats);
    table.set_max_rows(each.max_rows);
  }
  return status;
}

absl::Status RefusalToSave(const CoordinatorSnapshot& snapshot) {
  switch (snapshot.phase) {
    case CoordinatorSnapshot::Phase::kChoosing:
      return MakeError(Reason::kNotReady,
                       "the program has neither used its variables nor restored a checkpoint yet: "
                       "there is nothing to save, ask again later");
    case CoordinatorSnapshot::Phase::kOver: return MakeError(Reason::kJobOver, "the job has ended");
    default: return absl::OkStatus();
  }
}

v1::RequestCheckpointReply SavedForOperator(CheckpointId saved, int64_t durable_steps) {
  v1::RequestCheckpointReply reply;
  *reply.mutable_checkpoint() = wire::ToProto(saved);
  reply.set_durable_steps(durable_steps);
  return reply;
}

v1::DrainReply DrainedForOperator(const CoordinatorSnapshot& snapshot) {
  v1::DrainReply reply;
  reply.set_finished_steps(snapshot.finished_steps);
  reply.set_durable_steps(snapshot.durable_steps);
  if (snapshot.last_checkpoint)
    *reply.mutable_checkpoint() = wire::ToProto(*snapshot.last_checkpoint);
  return reply;
}

}  // namespace divvy
