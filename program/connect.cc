#include <utility>

#include "absl/strings/str_cat.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "cluster/cluster_config.h"
#include "coordinator/service/chief_task.h"
#include "program/embedded.h"
#include "program/forwarding_coordinator.h"
#include "program/main.h"
#include "program/role_flags.h"
#include "protocol/role.h"
#include "task/task_flags.h"

namespace divvy {
namespace {

class Chief : public ForwardingCoordinator<ConnectedCoordinator, ChiefTask> {
 public:
  using ForwardingCoordinator::ForwardingCoordinator;
  absl::Status Finish(absl::Status result) override {
    result = owner().Finish(std::move(result));
    owner().reporter()->Summarize(PeakMemoryBytes());
    return result;
  }
};

// The cluster as the resolver describes it, in the form that the chief's TF_CONFIG would give.
absl::StatusOr<ClusterConfig> ConfigOf(const ClusterResolver& resolver) {
  ClusterConfig config;
  ASSIGN_OR_RETURN(config.spec, resolver.cluster_spec());
  const std::string type = resolver.task_type();
  if (!type.empty() && type != RoleName(Role::kChief)) {
    return absl::FailedPreconditionError(
        absl::StrCat("Connect plays the chief, and the resolver says that this is a ", type,
                     ": give it the chief's resolver, or let divvy::Main run this role"));
  }
  config.task_type = std::string(RoleName(Role::kChief));
  config.task_index = 0;
  config.rpc_layer = resolver.rpc_layer();
  return CheckedParameterServerCluster(std::move(config));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ConnectedCoordinator>> Connect(
    std::unique_ptr<ClusterResolver> resolver, const StrategyOptions& options) {
  if (resolver == nullptr) return absl::InvalidArgumentError("Connect: the resolver is null");
  RETURN_IF_ERROR(CheckRegistrations());
  ASSIGN_OR_RETURN(ClusterConfig cluster, ConfigOf(*resolver));
  ASSIGN_OR_RETURN(const TaskOptions task, TaskOptionsOf(std::move(cluster)));
  RETURN_IF_ERROR(MakeTensorboardDir());
  ChiefTaskOptions chief_options = ChiefOptionsFromFlags(task, options);
  chief_options.setup.resolver = std::move(resolver);
  ASSIGN_OR_RETURN(std::unique_ptr<ChiefTask> chief, ChiefTask::Start(chief_options));
  RETURN_IF_ERROR(chief->coordinator().WaitUntilReady());
  return std::unique_ptr<ConnectedCoordinator>(std::make_unique<Chief>(std::move(chief)));
}

}  // namespace divvy
