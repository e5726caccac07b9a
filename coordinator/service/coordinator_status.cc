#include "coordinator/service/coordinator_status.h"

#include "base/version.h"

namespace divvy {
namespace {

const char* PhaseText(CoordinatorSnapshot::Phase phase) {
  switch (phase) {
    case CoordinatorSnapshot::Phase::kAttaching: return "attaching";
    case CoordinatorSnapshot::Phase::kChoosing: return "choosing";
    case CoordinatorSnapshot::Phase::kLoading: return "loading";
    case CoordinatorSnapshot::Phase::kRunning: return "running";
    case CoordinatorSnapshot::Phase::kEnding: return "ending";
    case CoordinatorSnapshot::Phase::kOver: return "over";
    case CoordinatorSnapshot::Phase::kFailed: return "failed";
  }
  return "";
}

}  // namespace

v1::TaskStatus CoordinatorTaskStatus(const CoordinatorOptions& options, const CoordinatorSnapshot& snapshot) {
  v1::TaskStatus status;
  status.set_job(v1::CHIEF);
  status.set_incarnation(options.incarnation.value());
  status.set_build(kVersion);
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
  if (snapshot.last_checkpoint) coordinator.set_last_checkpoint(snapshot.last_checkpoint->name());
  return status;
}

}  // namespace divvy
