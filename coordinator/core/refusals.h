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

// CLUSTER_MISMATCH: worker `index` has another number of replicas than worker `other`.
absl::Status OtherReplicas(int index, int replicas, int other, int replicas_of_other);

// The same refusal with what a person can do about it, where the receiver could not know.
absl::Status WithRemedy(const absl::Status& refusal);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REFUSALS_H_
