// Turns the flags of a program's binary into the options of the role that it runs.
#ifndef DIVVY_PROGRAM_ROLE_FLAGS_H_
#define DIVVY_PROGRAM_ROLE_FLAGS_H_

#include "coordinator/service/chief_task.h"
#include "program/embedded.h"
#include "program/evaluator_task.h"
#include "strategy/strategy_options.h"
#include "task/task_server.h"
#include "worker/service/worker_task.h"

namespace divvy {

// Call these after the flags were parsed. A process that parses no flags gets their defaults. They
// may read environment variables, but block on nothing.
EmbeddedSetup EmbeddedSetupFromFlags(const StrategyOptions& strategy);
EvaluatorOptions EvaluatorOptionsFromFlags(const StrategyOptions& strategy);
WorkerTaskOptions WorkerOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy);
ChiefTaskOptions ChiefOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy);
// InvalidArgument for flags that a cluster in one process would accept without effect: all at once,
// each with its reason.
absl::Status CheckEmbeddedFlags();
// Makes --tensorboard_dir, for the chief and the evaluator. InvalidArgument if it cannot be made:
// the user learns that at start instead of missing the points at the end. Also if
// --tensorboard_histograms has no directory, or is too short. Blocks on the disk.
absl::Status MakeTensorboardDir();

}  // namespace divvy

#endif  // DIVVY_PROGRAM_ROLE_FLAGS_H_
