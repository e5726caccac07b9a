// Starting a program: `divvy::Main` for those linked with //program:main, StartEmbedded for those
// with a main of their own.
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

// What `main` of //program:main does: parses the flags, finds out from TF_CONFIG and flags which
// task of a cluster this process is, plays it, and returns the exit code (docs/operations.md).
// Where nothing speaks of a cluster, the whole of it is started in this process (--ps, --workers,
// --replicas_per_worker). The chief runs the program's Train. To be called once.
int Main(int argc, char** argv);

struct EmbeddedOptions {
  int num_ps = 2;
  int num_workers = 2;
  // 0: one on each of the worker's GPUs, or one on the CPU
  int replicas_per_worker = 0;
  StrategyOptions strategy = runner::ParameterServerStrategy();
  // Of the job: initial values, shuffles.
  uint64_t seed = 1;
  // Where checkpoints are: the next one on the same directory can go on from them. Empty: none are
  // made.
  std::string checkpoint_dir;
  // Where replicas compute, as the flag --gpus says it: "none", "auto" (all GPUs there are, else
  // the CPU), "all", or numbers as CUDA counts ("0,2"). Each worker has as many of its own, the
  // first worker the first of them. GPUs that do not go round evenly are InvalidArgument; "auto"
  // leaves them over, and computes on the CPU where there are fewer GPUs than workers. A process
  // opens its GPUs once: other GPUs later are FailedPrecondition, "none" is always well.
  std::string gpus = "none";
  // Of each GPU, for the tensors of this process; 0: no limit.
  int64_t gpu_memory_bytes = 0;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// The whole cluster in this process, without a network: for a program that keeps its own main, and
// for tests of step functions. No flags, no environment, no signal handlers. Blocks until the
// cluster is ready (milliseconds). The coordinator owns it: when it goes, what runs is stopped.
// InvalidArgument: an option out of its range, or steps and data sources registered twice.
// FailedPrecondition: GPUs that are asked for and cannot be had.
absl::StatusOr<std::unique_ptr<Coordinator>> StartEmbedded(const EmbeddedOptions& options = {});

// The coordinator of a cluster that runs elsewhere. When it goes without Finish, that is as if its
// process had been killed: workers and parameter servers wait for the next one (--orphan_timeout).
class ConnectedCoordinator : public Coordinator {
 public:
  // The end of a program that ended with `result`: joins what is queued if that is OK, and tells
  // every task of the end of the job. Returns what the job ended with. Blocks; up to 10 s more
  // where a task is away. To be called once, last.
  virtual absl::Status Finish(absl::Status result) = 0;
};

// As the chief of the cluster that `resolver` describes, for a program that keeps its own main;
// workers and parameter servers run elsewhere. Listens at the address that the cluster has for its
// chief. No signal handlers; flags count (--tls_cert, --state_dir, --bind_address, ...) if the
// program has had Abseil parse them. Blocks until the cluster takes steps: says on standard error
// for whom it waits, for a parameter server at most --ps_timeout. InvalidArgument: every problem of
// the cluster. FailedPrecondition: the resolver speaks for another role; certificates, the address,
// the state directory. Else what ended the job.
absl::StatusOr<std::unique_ptr<ConnectedCoordinator>> Connect(
    std::unique_ptr<ClusterResolver> resolver, const StrategyOptions& options);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_MAIN_H_
