// The sizes of the coordinator's structures, for the soak benchmark. A structure that grows with
// the running time of a job is a bug.
#include <map>
#include <string>

#include "coordinator/core/coordinator_core.h"

namespace divvy {

std::map<std::string, int64_t> CoordinatorCore::Sizes() const {
  MutexLock lock(mu_);
  int64_t unacknowledged = 0, dispatched = 0;
  for (const auto& [index, worker] : workers_.all()) {
    unacknowledged +=
        worker.stream == nullptr ? 0 : static_cast<int64_t>(worker.stream->unacknowledged());
    dispatched += static_cast<int64_t>(worker.in_flight.size());
  }
  const auto size = [](const auto& structure) { return static_cast<int64_t>(structure.size()); };
  std::map<std::string, int64_t> sizes = {
      {"dispatched steps", dispatched},
      {"ids of syncs", static_cast<int64_t>(ids_.num_syncs())},
      {"open reads", size(open_reads_)},
      {"unacknowledged messages", unacknowledged},
  };
  sizes.merge(recovery_.Sizes());
  sizes.merge(servers_.Sizes());
  sizes.merge(workers_.Sizes());
  sizes.merge(writes_.Sizes());
  sizes.merge(steps_.Sizes());
  sizes.merge(passes_.Sizes());
  sizes.merge(layout_plan_.Sizes());
  sizes.merge(layout_changes_.Sizes());
  return sizes;
}

}  // namespace divvy
