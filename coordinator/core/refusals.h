// What is said to a task that may not join, and to a person whose job another task refuses.
#ifndef DIVVY_COORDINATOR_CORE_REFUSALS_H_
#define DIVVY_COORDINATOR_CORE_REFUSALS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "cluster/messages.h"

namespace divvy {

// DUPLICATE_TASK: the process at `known` has the job and index of `request`, and lives.
absl::Status RunsAlready(const RegisterRequest& request, const std::string& known);
// NOT_READY: whether the process at `known` lives is being found out.
absl::Status MayRunAlready(const RegisterRequest& request, const std::string& known);
// NOT_READY: worker `known` serves at the address that `request` gives for another index.
absl::Status ServesAs(const RegisterRequest& request, int known);

struct WorkerReplicas {
  int index;
  std::string address;
  int replicas;
};
// CLUSTER_MISMATCH: `worker` has another number of replicas than `first`, who is here.
absl::Status OtherReplicas(const WorkerReplicas& worker, const WorkerReplicas& first);
// NOT_READY: the same, where it cannot be said yet who of them is wrong.
absl::Status OtherReplicasYet(const WorkerReplicas& worker, const WorkerReplicas& first);
// CLUSTER_MISMATCH: and another than the coordinator was told.
absl::Status UnwantedReplicas(const WorkerReplicas& worker, int wanted);

// CLUSTER_MISMATCH, naming each difference: worker `index` lacks a step or a flag of the
// coordinator's program, or its step has other types. OK: it runs the same program, or one of them
// did not tell. `flags`: those of the program that the coordinator was given.
absl::Status CheckSameProgram(const ProgramDescription& own,
                              const std::map<std::string, std::string>& flags,
                              const ProgramDescription& theirs, int index,
                              const std::string& address);
// CLUSTER_MISMATCH: a ps without a directory, of a job that keeps checkpoints.
absl::Status WithoutCheckpoints(int ps, const std::string& address);

// Whether a coordinator of this job can have begun epoch `said`, where ours is `own`. A task that
// names another one errs, or lies: it is not followed.
bool IsPlausible(Epoch said, Epoch own);
// INVALID: ps `ps` names such an epoch.
absl::Status ImplausibleEpoch(int ps, const std::string& address, Epoch said);

// NOT_READY: a ps of an index that the job of `num_ps` does not have yet.
absl::Status ComesBeforeResize(const RegisterRequest& request, int num_ps);

// The same refusal with what a person can do about it, where the receiver could not know.
absl::Status WithRemedy(const absl::Status& refusal);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REFUSALS_H_
