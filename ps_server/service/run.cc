#include "ps_server/service/run.h"

#include <memory>
#include <utility>

#include "absl/flags/flag.h"
#include "base/log.h"
#include "ps_server/service/ps_task.h"
#include "task/task_end.h"
#include "task/task_flags.h"

#define DIVVY_PS_FLAG(type, name, value, users, why_not_embedded, meaning) \
  ABSL_FLAG(type, name, value, meaning);
#include "task/flags.inc"

namespace divvy {

ParameterServerOptions PsLimitsFromFlags() {
  ParameterServerOptions options;
  if (const int64_t limit = absl::GetFlag(FLAGS_memory_limit_bytes); limit != 0)
    options.memory_limit_bytes = limit;
  if (const int64_t most = absl::GetFlag(FLAGS_commit_buffer_bytes);
      most != PsTaskOptions().commit_buffer_bytes)
    options.max_commit_bytes = most / 2;
  options.snapshot_buffer_bytes = absl::GetFlag(FLAGS_snapshot_buffer_bytes);
  return options;
}

int RunParameterServer(const TaskOptions& task) {
  Termination termination;
  PsTaskOptions options;
  options.task = task;
  options.core = PsLimitsFromFlags();
  options.commit_buffer_bytes = absl::GetFlag(FLAGS_commit_buffer_bytes);
  options.checkpoint_dir = CheckpointDirFromFlags();
  options.pull_buffer_bytes = absl::GetFlag(FLAGS_pull_buffer_bytes);
  const auto ps = PsTask::Start(options, [&termination](int exit_code, std::string why) {
    termination.Request(exit_code, std::move(why));
  });
  if (!ps.ok()) return RefuseToStart(ps.status());
  termination.OnStatusAsked([&ps] { return (*ps)->StatusText(); });
  DIVVY_LOG(INFO) << task.name() << " is at " << (*ps)->address()
                  << " and waits for the coordinator";
  return AwaitEnd(
      termination, task.name(), [&ps] { (*ps)->Drain(); }, DrainTimeoutFromFlags());
}

}  // namespace divvy
