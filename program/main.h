// Starting a program: `divvy::Main` for those linked with //program:main, StartEmbedded for those with a main of their own.
#ifndef DIVVY_PROGRAM_MAIN_H_
#define DIVVY_PROGRAM_MAIN_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "strategy/coordinator.h"
#include "strategy/program.h"

namespace divvy {

// What `main` of //program:main does: parses the flags, starts the whole cluster in this process (--ps, --workers, --replicas_per_worker), runs the program's
// Train, and returns the exit code. To be called once.
int Main(int argc, char** argv);

struct EmbeddedOptions {
  int num_ps = 2;
  int num_workers = 2;
  int replicas_per_worker = 1;
  StrategyOptions strategy = runner::ParameterServerStrategy();
  uint64_t seed = 1;   // of the job: initial values, shuffles
};

// The whole cluster in this process, without a network: for a program that keeps its own main, and for tests of step functions. No flags, no environment, no
// signal handlers. Blocks until the cluster is ready (milliseconds). The coordinator owns it: when it goes, what runs is stopped.
// InvalidArgument: an option out of its range, or steps and data sources registered twice.
absl::StatusOr<std::unique_ptr<Coordinator>> StartEmbedded(const EmbeddedOptions& options = {});

// The exit code that tells an operator what to do with a program that ended so (sysexits where one fits; from 128 on: start it again).
//   0 OK   65 DataLoss   66 NotFound   70 Internal   74 ResourceExhausted   77 PermissionDenied, Unauthenticated   138 Unavailable   1 all others
int ExitCodeOf(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_MAIN_H_
