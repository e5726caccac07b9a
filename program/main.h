// How a program starts. A program that is linked with //program:main needs no main function and
// starts with divvy::Main. A program with a main function of its own calls StartEmbedded or
// Connect.
#ifndef DIVVY_PROGRAM_MAIN_H_
#define DIVVY_PROGRAM_MAIN_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/cluster_resolver.h"
#include "strategy/coordinator.h"
#include "strategy/program.h"

namespace divvy {

// The body of the `main` of //program:main. Parses the flags, reads from TF_CONFIG and the flags
// which task of a cluster this process is, runs that task, and returns the exit code of the process
// (docs/operating/operations.md has the table). The chief runs the program's Train, and an
// evaluator its Evaluate. If neither TF_CONFIG nor a flag describes a cluster, Main starts the
// whole cluster in this process (--ps, --workers, --replicas_per_worker).
//
// Blocks until the task has ended. Handles signals: the first SIGTERM or SIGINT drains the task,
// and a second one ends the process at once. An evaluator ends at the first. Prints on standard
// error why a task cannot start. REQUIRES: called once, on the main thread.
int Main(int argc, char** argv);

// The cluster that StartEmbedded starts. A plain value.
struct EmbeddedOptions {
  // Parameter servers: at least 1. Each holds its shards of the variables.
  int num_ps = 2;
  // Workers: at least 1.
  int num_workers = 2;
  // Replicas of each worker. 0: one on each of its GPUs, or one on the CPU.
  int replicas_per_worker = 0;
  // How variables are cut into shards.
  StrategyOptions strategy = runner::ParameterServerStrategy();
  // The seed of the job, for initial values and shuffles.
  uint64_t seed = 1;
  // The directory of checkpoints. A later cluster with the same directory can resume from them
  // (Coordinator::RestoreLatest). Empty: no checkpoints are made.
  std::string checkpoint_dir;
  // The devices on which replicas compute, written as for the flag --gpus:
  // - "none": the CPU.
  // - "auto": all GPUs of this machine. Uses the CPU if there are fewer GPUs than workers, and
  //   leaves surplus GPUs unused.
  // - "all": all GPUs. Using none of them is an error.
  // - A list of CUDA's numbers, e.g. "0,2". Every worker gets the same number of GPUs, and the
  //   first worker gets the first ones. GPUs that cannot be divided evenly are InvalidArgument,
  //   except with "auto". A process opens its GPUs once: a later cluster that asks for other GPUs
  //   fails with FailedPrecondition. "none" always works.
  std::string gpus = "none";
  // The memory limit of each GPU for the tensors of this process, in bytes. 0: no limit.
  int64_t gpu_memory_bytes = 0;

  // InvalidArgument with every problem at once, e.g. a number out of its range. StartEmbedded calls
  // it.
  absl::Status Validate() const;
};

// Starts the whole cluster in this process, without a network: for a program that keeps its own
// main, and for tests of step functions. Reads no flags and no environment, and installs no signal
// handlers. Blocks until the cluster is ready (milliseconds). The returned coordinator owns the
// cluster: destroying it stops everything that runs.
//
// InvalidArgument: an option is out of its range, or two steps, models or data sources have the
// same name. FailedPrecondition: the requested GPUs are not available.
//
//   EmbeddedOptions options;
//   options.num_workers = 4;
//   ASSIGN_OR_RETURN(std::unique_ptr<Coordinator> coordinator, StartEmbedded(options));
//   RETURN_IF_ERROR(Train(*coordinator));
absl::StatusOr<std::unique_ptr<Coordinator>> StartEmbedded(const EmbeddedOptions& options = {});

// The coordinator of a cluster whose workers and parameter servers run elsewhere. Thread-safe as
// Coordinator is, except Finish. Destroying it without Finish has the same effect as killing its
// process: workers and parameter servers wait for the next coordinator (--orphan_timeout).
class ConnectedCoordinator : public Coordinator {
 public:
  // Ends the program with its `result`. If `result` is OK, first waits for the queued steps. Then
  // tells every task that the job has ended, unless the result means that another coordinator may
  // resume it (TrainFunction in strategy/program.h). Returns the status with which the job ended.
  // Blocks; if a task was away when Finish began, it stays for up to 10 s, so that this task learns
  // of the end when it registers again. REQUIRES: called once, as the last call.
  virtual absl::Status Finish(absl::Status result) = 0;
};

// Makes this process the chief of the cluster that `resolver` describes, for a program that keeps
// its own main; workers and parameter servers run elsewhere. Listens at the chief's address in the
// cluster. Installs no signal handlers. Divvy's flags (--tls_cert, --state_dir, --bind_address,
// ...) apply if the program has parsed them with Abseil.
//
// Blocks until the cluster accepts steps, and meanwhile prints on standard error for which tasks it
// waits. It waits at most --ps_timeout for a parameter server. Errors:
// - InvalidArgument: no resolver, or every problem of the cluster at once, or names registered
//   twice.
// - FailedPrecondition: the resolver describes a task of another role, or the certificates, the
//   address or the state directory cannot be used. Correct the configuration; retrying does not
//   help.
// - Otherwise the error that ended the job.
absl::StatusOr<std::unique_ptr<ConnectedCoordinator>> Connect(
    std::unique_ptr<ClusterResolver> resolver, const StrategyOptions& options);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_MAIN_H_
