// The refusals that a task gets when it may not join, and the error texts for a job that another
// task refuses. All functions are pure. If a person must act, the message says how.
#ifndef DIVVY_COORDINATOR_CORE_REFUSALS_H_
#define DIVVY_COORDINATOR_CORE_REFUSALS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "protocol/messages.h"

namespace divvy {

// DUPLICATE_TASK: the process at `known` has the job and index of `request`, and it lives.
absl::Status RunsAlready(const RegisterRequest& request, const std::string& known);
// NOT_READY: it is not known yet whether the process at `known` lives.
absl::Status MayRunAlready(const RegisterRequest& request, const std::string& known);
// NOT_READY: worker `known` serves at the address that `request` gives for another index.
absl::Status ServesAs(const RegisterRequest& request, int known);

// A worker's report of its replicas.
struct WorkerReplicas {
  int index;
  std::string address;
  int replicas;
};
// CLUSTER_MISMATCH: `worker` has another number of replicas than `first`, which is present.
absl::Status OtherReplicas(const WorkerReplicas& worker, const WorkerReplicas& first);
// NOT_READY: the same difference, while it is not known which of the two is wrong.
absl::Status OtherReplicasYet(const WorkerReplicas& worker, const WorkerReplicas& first);
// CLUSTER_MISMATCH: `worker` has another number of replicas than `wanted`, which the coordinator's
// options say.
absl::Status UnwantedReplicas(const WorkerReplicas& worker, int wanted);

// CLUSTER_MISMATCH that names the first differences: worker `index` lacks a step or a flag of the
// coordinator's program, or one of its steps has other types. OK: both run the same program, or one
// of them gave no description. `flags`: the program's flags that the coordinator was started with.
absl::Status CheckSameProgram(const ProgramDescription& own,
                              const std::map<std::string, std::string>& flags,
                              const ProgramDescription& theirs, int index,
                              const std::string& address);
// CLUSTER_MISMATCH: the ps has no checkpoint directory, and the job keeps checkpoints.
absl::Status WithoutCheckpoints(int ps, const std::string& address);

// Whether a coordinator of this job can have begun epoch `said`; `own` is the epoch of this
// coordinator. A task that names any other epoch is faulty or lies, and its epoch is ignored.
bool IsPlausible(Epoch said, Epoch own);
// INVALID: ps `ps` names an epoch that is not plausible.
absl::Status ImplausibleEpoch(int ps, const std::string& address, Epoch said);

// NOT_READY: the job has `num_ps` servers and does not have the index of this ps yet.
absl::Status ComesBeforeResize(const RegisterRequest& request, int num_ps);

// The same refusal, with a remedy added where the task that made it could not know one.
absl::Status WithRemedy(const absl::Status& refusal);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REFUSALS_H_
