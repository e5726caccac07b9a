// The program's entry points: the functions that run on the coordinator and on an evaluator.
#ifndef DIVVY_STRATEGY_PROGRAM_H_
#define DIVVY_STRATEGY_PROGRAM_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strategy/coordinator.h"
#include "strategy/strategy_options.h"

namespace divvy {

// The program's main function; it runs on the coordinator. When it returns, the coordinator joins
// the steps that are still queued and tells the cluster that the job is done.
//
// Its result determines the exit code of the process (ExitCodeOf in protocol/error.h; the table is
// in docs/operating/operations.md):
//   OK            0: the job is complete
//   Unavailable   138, unless a step function returned it. Only this process ends; workers and
//                 parameter servers wait for the next start, which resumes the job
//   others        every task of the job ends. The exit code follows the error's Reason, if it has
//                 one, else its code: DataLoss 65, NotFound 66; unless a step function returned it,
//                 also Internal 70, ResourceExhausted 74, PermissionDenied and Unauthenticated 77.
//                 All other errors and exceptions: 1
//
// The function may therefore run more than once in the life of a job. It should begin with
// RestoreLatest (a Trainer does this) and count from Coordinator::step() or epoch(), never from 0.
using TrainFunction = absl::Status(Coordinator& coordinator);
// The function of the evaluator task, a process that is not connected to the cluster. It ends with
// the job (train/evaluator.h).
class Evaluator;
using EvaluateFunction = absl::Status(Evaluator& evaluator);

// The API version, as part of a symbol's name. Increase it with each change of a public header. A
// library that was built against another version then fails in dlopen (RTLD_NOW), before any of its
// code runs.
extern "C" const char divvy_program_api_1;

// Registers the program, and does nothing else. A program defines exactly one, at namespace scope,
// with DIVVY_PROGRAM. Leave `api` at its default: it links the API version.
struct Program {
  explicit Program(TrainFunction* train,
                   StrategyOptions options = runner::ParameterServerStrategy(),
                   const char& api = divvy_program_api_1);
  Program(TrainFunction* train, EvaluateFunction* evaluate,
          StrategyOptions options = runner::ParameterServerStrategy(),
          const char& api = divvy_program_api_1);
};

// The result of FindProgram.
struct RegisteredProgram {
  TrainFunction* train = nullptr;
  // Null: the program has no Evaluate.
  EvaluateFunction* evaluate = nullptr;
  StrategyOptions options;
};

// The program of this process. The pointer is valid forever. Thread-safe; does not block.
// FailedPrecondition: there is no program, or more than one. InvalidArgument: its options cannot be
// used (StrategyOptions::problem).
absl::StatusOr<const RegisteredProgram*> FindProgram();

}  // namespace divvy

// Defines the program of this binary or library: DIVVY_PROGRAM(Train) or DIVVY_PROGRAM(Train,
// Evaluate), each optionally followed by StrategyOptions. Use it once, at namespace scope, in the
// file that defines Train.
//
//   absl::Status Train(Coordinator& coordinator) { ... }
//   DIVVY_PROGRAM(Train, runner::ParameterServerStrategy(/*min_shard_bytes=*/1 << 20));
#define DIVVY_PROGRAM(...) static const ::divvy::Program divvy_program(__VA_ARGS__)

#endif  // DIVVY_STRATEGY_PROGRAM_H_
