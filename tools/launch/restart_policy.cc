#include "tools/launch/restart_policy.h"

#include "base/exit_codes.h"

namespace divvy {
namespace {

constexpr int kFirstRetryable = exit_codes::kOfSignal;

}  // namespace

Verdict RestartPolicy(const EndedTask& task) {
  const int code = task.status.code();
  const Reaction final = task.role == Role::kEvaluator ? Reaction::kLetGo : Reaction::kDrain;
  if (task.status.ok()) {
    switch (task.role) {
      case Role::kChief: return {Reaction::kLinger, code};
      case Role::kWorker: return {Reaction::kAwait, code};
      default: return {Reaction::kLetGo, code};
    }
  }
  if (code < kFirstRetryable) return {final, code};
  if (task.by_chaos || task.restarts < task.max_restarts) return {Reaction::kRestart, 0};
  return {final, task.max_restarts == 0 ? code : exit_codes::kInternal};
}

}  // namespace divvy
