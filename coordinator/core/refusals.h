// What is said to a task that may not join, and to a person whose job another task refuses.
#ifndef DIVVY_COORDINATOR_CORE_REFUSALS_H_
#define DIVVY_COORDINATOR_CORE_REFUSALS_H_

#include <string>

#include "absl/status/status.h"
#include "cluster/messages.h"

namespace divvy {

// DUPLICATE_TASK: the process at `known` has the job and index of `request`, and lives.
absl::Status RunsAlready(const RegisterRequest& request, const std::string& known);
// NOT_READY: whether the process at `known` lives is being found out.
absl::Status MayRunAlready(const RegisterRequest& request, const std::string& known);

struct WorkerReplicas {
  int index;
  std::string address;
  int replicas;
};
// CLUSTER_MISMATCH: `worker` has another number of replicas than `first`, who is here.
absl::Status OtherReplicas(const WorkerReplicas& worker, const WorkerReplicas& first);
// CLUSTER_MISMATCH: and another than the coordinator was told.
absl::Status UnwantedReplicas(const WorkerReplicas& worker, int wanted);

// The same refusal with what a person can do about it, where the receiver could not know.
absl::Status WithRemedy(const absl::Status& refusal);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REFUSALS_H_
