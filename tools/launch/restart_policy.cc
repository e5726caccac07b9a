#include "tools/launch/restart_policy.h"

namespace divvy {
namespace {

constexpr int kCrashLoop = 70;  // EX_SOFTWARE
constexpr int kFirstRetryable = 128;

Verdict WorkerVerdict(const EndedTask& task) {
  if (task.status.code() < kFirstRetryable) return {Reaction::kDrain, task.status.code()};
  if (task.by_chaos || task.restarts < task.max_restarts) return {Reaction::kRestart, 0};
  return {Reaction::kDrain, kCrashLoop};
}

}  // namespace

Verdict RestartPolicy(const EndedTask& task) {
  if (task.type == TaskType::kChief) return {task.status.ok() ? Reaction::kLinger : Reaction::kDrain, task.status.code()};
  if (task.status.ok()) return {Reaction::kLetGo, 0};
  if (task.type == TaskType::kPs) return {Reaction::kDrain, task.status.code()};
  return WorkerVerdict(task);
}

}  // namespace divvy
