#include "worker/service/worker_status.h"

#include "base/build_info.h"

namespace divvy {
namespace {

const char* StateText(const WorkerSnapshot& snapshot) {
  if (!snapshot.attached) return "waiting";
  if (snapshot.silent) return "silent";
  return snapshot.live ? "running" : "idle";
}

}  // namespace

v1::TaskStatus WorkerTaskStatus(const WorkerOptions& options, const WorkerSnapshot& snapshot,
                                const std::vector<DeviceDescription>& devices) {
  v1::TaskStatus status;
  status.set_job(v1::WORKER);
  status.set_index(options.index);
  status.set_incarnation(options.incarnation.value());
  status.set_build(BuildName());
  status.set_job_id(snapshot.job.value());
  status.set_epoch(snapshot.epoch.value());
  status.set_state(StateText(snapshot));
  v1::WorkerStatus& worker = *status.mutable_worker();
  worker.set_session(snapshot.attached ? snapshot.session.value() : 0);
  worker.set_reported(snapshot.reported);
  worker.set_queued(static_cast<int32_t>(snapshot.queued.size()));
  worker.set_live_step(snapshot.live ? snapshot.live->value() : 0);
  worker.set_live_function(snapshot.live_function);
  if (snapshot.live_ordinal) worker.set_live_ordinal(*snapshot.live_ordinal);
  worker.set_committing(snapshot.step == WorkerSnapshot::Step::kCommitting ||
                        snapshot.step == WorkerSnapshot::Step::kBehind);
  if (const WorkerMetrics* const metrics = options.metrics) {
    const auto ns = [](double seconds) { return static_cast<int64_t>(seconds * 1e9); };
    worker.set_step_p50_ns(ns(metrics->recent_step_seconds.Quantile(0.5)));
    worker.set_step_p99_ns(ns(metrics->recent_step_seconds.Quantile(0.99)));
    worker.set_busy_ns(ns(metrics->busy_seconds.value()));
    worker.set_input_wait_ns(ns(metrics->input_wait_seconds.value()));
  }
  for (const DeviceDescription& device : devices) {
    v1::WorkerStatus::Device& row = *worker.add_devices();
    row.set_device(device.device);
    row.set_name(device.name);
    row.set_memory_limit_bytes(device.memory_limit_bytes);
    row.set_memory_bytes(device.memory_bytes);
  }
  return status;
}

}  // namespace divvy
