#include "coordinator/service/build.h"

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/exchange.h"

namespace divvy {

absl::StatusOr<BuiltCoordinator> BuildCoordinator(CoordinatorSetup setup, Executor& executor,
                                                  Dialer& dialer, Store& store) {
  setup.core.partitioner = setup.strategy.partitioner;
  setup.core.placement = setup.strategy.placement;
  setup.core.wire = setup.strategy.wire;
  BuiltCoordinator built;
  ASSIGN_OR_RETURN(built.core, CoordinatorCore::Start(std::move(setup.core), executor,
                                                      Clock::Real(), dialer, store));
  if (setup.report) {
    built.reporter = std::make_shared<Reporter>(*setup.report, executor, Clock::Real());
    built.reporter->Watch(built.core);
  }
  built.calls = std::make_unique<BlockingCoordinator>(
      built.core, executor, std::move(setup.resolver), setup.replicas_per_worker,
      built.reporter != nullptr ? built.reporter.get() : setup.sink,
      setup.report.value_or(ReportOptions()).report_every,
      [](const LiveVariables& live, const std::string& path) {
        return ExportVariables(FileSystem::Real(), live, path);
      },
      setup.strategy.communication);
  return built;
}

}  // namespace divvy
