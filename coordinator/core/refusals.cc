#include "coordinator/core/refusals.h"

#include "absl/strings/str_cat.h"
#include "cluster/error.h"

namespace divvy {
namespace {

std::string TaskOf(const RegisterRequest& request) { return absl::StrCat(JobNameText(request.job), " ", request.index); }

absl::string_view RemedyOf(Reason reason) {
  switch (reason) {
    case Reason::kWrongJob:
      return ". Is this the same job begun again? Then give the coordinator the --state_dir or the --job_name it had. Is it another? Then stop the old job's "
             "tasks first";
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator: return ". Another coordinator of this job has taken over, and this one ends";
    default: return "";
  }
}

}  // namespace

absl::Status RunsAlready(const RegisterRequest& request, const std::string& known) {
  return MakeError(Reason::kDuplicateTask, absl::StrCat(TaskOf(request), " runs already, at ", known, ", and answers. Give the one at ", request.address,
                                                        " another index, or do not start it"));
}

absl::Status MayRunAlready(const RegisterRequest& request, const std::string& known) {
  return MakeError(Reason::kNotReady, absl::StrCat(TaskOf(request), " is known as another process, at ", known, ": whether it lives is being found out"));
}

absl::Status OtherReplicas(int index, int replicas, int other, int replicas_of_other) {
  return MakeError(Reason::kClusterMismatch,
                   absl::StrCat("worker ", index, " has ", replicas, " replicas, and worker ", other, " has ", replicas_of_other,
                                ": all workers of a job have as many. Give each the same number of GPUs (--gpus), or, on the CPU, the "
                                "same --replicas_per_worker"));
}

absl::Status WithRemedy(const absl::Status& refusal) {
  const ErrorDetail detail = DetailOf(refusal);
  const absl::string_view remedy = RemedyOf(detail.reason);
  return remedy.empty() ? refusal : MakeError(detail, absl::StrCat(refusal.message(), remedy));
}

}  // namespace divvy
