// A program: what runs on the coordinator, and on an evaluator.
#ifndef DIVVY_STRATEGY_PROGRAM_H_
#define DIVVY_STRATEGY_PROGRAM_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strategy/coordinator.h"
#include "strategy/strategy_options.h"

namespace divvy {

// Runs on the coordinator; when it returns, what is still queued is joined, and the cluster is told
// that the job is done.
//
// What it returns ends the process (ExitCodeOf in cluster/error.h; docs/operations.md has the
// table):
//   OK            0: the job is complete
//   Unavailable   138, unless a step function made it: this process alone ends, workers and
//                 parameter servers wait for the next start, which goes on
//   else          by its code, and every task ends with it: DataLoss 65, NotFound 66; where no step
//                 function made it also Internal 70, ResourceExhausted 74, PermissionDenied 77. All
//                 others, and what it throws, 1
//
// So it may run more than once in a job's life: let it begin with RestoreLatest (a Trainer does)
// and count from Coordinator::step() or epoch(), never from 0.
using TrainFunction = absl::Status(Coordinator& coordinator);
// Runs on the evaluator task, a process that is not connected to the cluster; ends with the job
// (train/evaluator.h).
class Evaluator;
using EvaluateFunction = absl::Status(Evaluator& evaluator);

// The symbol's name holds the API's number (bump it with each change of a public header): a library
// built against another one fails in dlopen (RTLD_NOW), before any of its code runs.
extern "C" const char divvy_program_api_1;

// One in a program, at namespace scope: registers itself and does nothing else. DIVVY_PROGRAM
// declares it; `api` is left alone.
struct Program {
  explicit Program(TrainFunction* train,
                   StrategyOptions options = runner::ParameterServerStrategy(),
                   const char& api = divvy_program_api_1);
  Program(TrainFunction* train, EvaluateFunction* evaluate,
          StrategyOptions options = runner::ParameterServerStrategy(),
          const char& api = divvy_program_api_1);
};

// What FindProgram has found.
struct RegisteredProgram {
  TrainFunction* train = nullptr;
  EvaluateFunction* evaluate = nullptr;  // null: it has none
  StrategyOptions options;
};

// The one program of this process; valid forever. Thread-safe. FailedPrecondition: there is none,
// or more than one. InvalidArgument: its options cannot be used (StrategyOptions::problem).
absl::StatusOr<const RegisteredProgram*> FindProgram();

}  // namespace divvy

// DIVVY_PROGRAM(Train), DIVVY_PROGRAM(Train, Evaluate), either with options behind: the program of
// this binary or library. Once, at namespace scope, in the file that has Train.
//
//   absl::Status Train(Coordinator& coordinator) { ... }
//   DIVVY_PROGRAM(Train, runner::ParameterServerStrategy(/*min_shard_bytes=*/1 << 20));
#define DIVVY_PROGRAM(...) static const ::divvy::Program divvy_program(__VA_ARGS__)

#endif  // DIVVY_STRATEGY_PROGRAM_H_
