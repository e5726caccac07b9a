#include "ps_server/service/ps_status.h"

#include "base/version.h"
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
                            const ParameterServerSnapshot& snapshot) {
  v1::TaskStatus status;
  status.set_job(v1::PS);
  status.set_index(options.index);
  status.set_incarnation(options.incarnation.value());
  status.set_build(kVersion);
  status.set_job_id(snapshot.job.value());
  status.set_epoch(snapshot.epoch.value());
  status.set_state(StateText(snapshot));
  v1::PsStatus& ps = *status.mutable_ps();
  ps.set_memory_bytes(snapshot.memory_bytes);
  ps.set_shards(static_cast<int32_t>(snapshot.shards.size()));
  ps.set_applied_seq(snapshot.applied_seq);
  ps.set_commits(static_cast<int32_t>(snapshot.running + snapshot.queued));
  ps.set_sessions(static_cast<int32_t>(snapshot.sessions.size()));
  for (const auto& [name, stats] : snapshot.tables) {
    v1::PsStatus::TablePart& table = *ps.add_tables();
    table.set_name(name);
    *table.mutable_stats() = wire::ToProto(stats);
  }
  return status;
}

}  // namespace divvy
