#include "coordinator/core/refusals.h"

#include "absl/strings/str_cat.h"
#include "cluster/error.h"

namespace divvy {
namespace {

std::string TaskOf(const RegisterRequest& request) { return absl::StrCat(JobNameText(request.job), " ", request.index); }

std::string TextOf(const WorkerReplicas& worker) {
  return absl::StrCat("worker ", worker.index, " (", worker.address, ") has ", worker.replicas, worker.replicas == 1 ? " replica" : " replicas");
}

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

absl::Status OtherReplicas(const WorkerReplicas& worker, const WorkerReplicas& first) {
  return MakeError(
      Reason::kClusterMismatch,
      absl::StrCat(TextOf(worker), ", and ", TextOf(first), " and was here first: all workers of a job have as many. Give each the same number of GPUs ",
                   "(--gpus) or, on the CPU, the same --replicas_per_worker; where it is the first that is wrong, --replicas_per_worker=", worker.replicas,
                   " of the coordinator lets only the others in"));
}

absl::Status UnwantedReplicas(const WorkerReplicas& worker, int wanted) {
  return MakeError(Reason::kClusterMismatch,
                   absl::StrCat(TextOf(worker), ", and the coordinator's --replicas_per_worker is ", wanted, ": give the worker ", wanted,
                                " GPUs (--gpus; with \"all\" or their numbers it ends where one is missing) or, on the CPU, --replicas_per_worker=", wanted));
}

absl::Status WithRemedy(const absl::Status& refusal) {
  const ErrorDetail detail = DetailOf(refusal);
  const absl::string_view remedy = RemedyOf(detail.reason);
  return remedy.empty() ? refusal : MakeError(detail, absl::StrCat(refusal.message(), remedy));
}

}  // namespace divvy
