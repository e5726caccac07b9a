// Builds a parameter server. Used by its process and by the embedded cluster.
#ifndef DIVVY_PS_SERVER_SERVICE_BUILD_H_
#define DIVVY_PS_SERVER_SERVICE_BUILD_H_

#include <memory>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy {

// Starts the core, which registers with `coordinator` at once. `options`: seed and build are filled
// in. Otherwise, and for the errors, as ParameterServerCore::Start.
absl::StatusOr<std::shared_ptr<ParameterServerCore>> BuildPs(
    ParameterServerOptions options, Executor& executor,
    std::shared_ptr<CoordinatorClient> coordinator, OnExit on_exit);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_BUILD_H_
