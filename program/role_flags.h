// The flags of a program's binary, as options of the role it plays.
#ifndef DIVVY_PROGRAM_ROLE_FLAGS_H_
#define DIVVY_PROGRAM_ROLE_FLAGS_H_

#include "coordinator/service/chief_task.h"
#include "program/embedded.h"
#include "program/evaluator_task.h"
#include "strategy/strategy_options.h"
#include "task/task_server.h"
#include "worker/service/worker_task.h"

namespace divvy {

// To be called after the flags were parsed; they have their defaults in a process that parses none.
EmbeddedSetup EmbeddedSetupFromFlags(const StrategyOptions& strategy);
EvaluatorOptions EvaluatorOptionsFromFlags(const StrategyOptions& strategy);
WorkerTaskOptions WorkerOptionsFromFlags(const TaskOptions& task);
ChiefTaskOptions ChiefOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy);
// A flag that a cluster in this process would take and not obey is an error: InvalidArgument, each
// with its reason, all at once.
absl::Status CheckEmbeddedFlags();
// For the chief and the evaluator: a directory that cannot be made is told at once
// (InvalidArgument), not by points that are missing in the end.
absl::Status MakeTensorboardDir();

}  // namespace divvy

#endif  // DIVVY_PROGRAM_ROLE_FLAGS_H_
