#include "ps_server/service/ps_status.h"

#include <limits>

#include "base/build_info.h"
#include "wire/messages.h"

namespace divvy {
namespace {

const char* StateText(const ParameterServerSnapshot& snapshot) {
  if (snapshot.shutting_down) return "ending";
  switch (snapshot.state) {
    case PsState::kEmpty: return "empty";
    case PsState::kLoading: return "loading";
    case PsState::kReady: return "ready";
    case PsState::kFrozen: return "frozen";
  }
  return "";
}

}  // namespace

v1::TaskStatus PsTaskStatus(const ParameterServerOptions& options,
                            const ParameterServerSnapshot& snapshot, const PsTraffic& traffic) {
  v1::TaskStatus status;
  status.set_job(v1::PS);
  status.set_index(options.index);
  status.set_incarnation(options.incarnation.value());
  status.set_build(BuildName());
  status.set_job_id(snapshot.job.value());
  status.set_epoch(snapshot.epoch.value());
  status.set_state(StateText(snapshot));
  v1::PsStatus& ps = *status.mutable_ps();
  ps.set_memory_bytes(snapshot.memory_bytes);
  ps.set_shards(static_cast<int32_t>(snapshot.shards.size()));
  ps.set_applied_seq(snapshot.applied_seq);
  ps.set_commits(static_cast<int32_t>(snapshot.running + snapshot.queued));
  ps.set_sessions(static_cast<int32_t>(snapshot.sessions.size()));
  if (options.memory_limit_bytes < std::numeric_limits<int64_t>::max())
    ps.set_memory_limit_bytes(options.memory_limit_bytes);
  ps.set_parameter_bytes(snapshot.parameter_bytes);
  ps.set_slot_bytes(snapshot.slot_bytes);
  ps.set_table_bytes(snapshot.table_bytes);
  ps.set_buffer_bytes(traffic.commit_buffer_bytes + traffic.reply_buffer_bytes);
  ps.set_inflight_bytes(traffic.commit_buffer_bytes);
  ps.set_pull_rows(traffic.pull_rows);
  ps.set_push_rows(traffic.push_rows);
  ps.set_pull_bytes(traffic.pull_bytes);
  ps.set_push_bytes(traffic.push_bytes);
  ps.set_fenced_sessions(snapshot.fenced_sessions);
  for (const auto& [name, stats] : snapshot.tables) {
    v1::PsStatus::TablePart& table = *ps.add_tables();
    table.set_name(name);
    *table.mutable_stats() = wire::ToProto(stats);
  }
  return status;
}

}  // namespace divvy
