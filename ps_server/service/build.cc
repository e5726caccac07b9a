#include "ps_server/service/build.h"

#include <utility>

#include "base/random.h"
#include "base/version.h"

namespace divvy {

absl::StatusOr<std::shared_ptr<ParameterServerCore>> BuildPs(
    ParameterServerOptions options, Executor& executor,
    std::shared_ptr<CoordinatorClient> coordinator, OnExit on_exit) {
  options.seed = EntropySeed();
  options.build = kVersion;
  return ParameterServerCore::Start(std::move(options), executor, std::move(coordinator),
                                    std::move(on_exit));
}

}  // namespace divvy
