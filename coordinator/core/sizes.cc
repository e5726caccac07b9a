// How much the coordinator holds, for the soak benchmark: what grows with the time a job runs is a fault.
#include <map>
#include <string>

#include "coordinator/core/coordinator_core.h"

namespace divvy {

std::map<std::string, int64_t> CoordinatorCore::Sizes() const {
  MutexLock lock(mu_);
  int64_t reads = 0, unacknowledged = 0, dispatched = 0;
  for (const auto& [index, worker] : workers_) {
    reads += static_cast<int64_t>(worker.reads.size());
    unacknowledged += worker.stream == nullptr ? 0 : static_cast<int64_t>(worker.stream->unacknowledged());
    dispatched += static_cast<int64_t>(worker.in_flight.size());
  }
  int64_t numbers = 0;
  for (const auto& [name, series] : series_) numbers += static_cast<int64_t>(series.scheduled.size());
  const auto size = [](const auto& structure) { return static_cast<int64_t>(structure.size()); };
  return {
      {"colocated variables", size(colocated_)},
      {"dispatched steps", dispatched},
      {"early parameter servers", size(early_ps_)},
      {"iterators of workers", reads},
      {"declared variables", size(declared_)},
      {"fences", size(fences_)},
      {"ids of syncs", size(ids_at_sync_)},
      {"iterators", size(iterators_)},
      {"joins", size(joins_)},
      {"known sizes of data", size(known_sizes_)},
      {"layout jobs", size(layout_jobs_)},
      {"open reads", size(open_reads_)},
      {"open steps", size(open_steps_)},
      {"open writes", size(open_writes_)},
      {"numbers of lost ids", size(lost_ids_)},
      {"passes begun, by source", size(passes_)},
      {"passes that have ended", size(ended_passes_)},
      {"queued steps", size(queue_)},
      {"raisers", size(raisers_)},
      {"redo log", size(log_)},
      {"replicas, by worker", size(replica_claims_)},
      {"rewinds", size(rewinds_)},
      {"runs", size(runs_)},
      {"scheduled numbers of series", numbers},
      {"series", size(series_)},
      {"shards made before the first step", size(made_)},
      {"slots wanted", size(slots_wanted_)},
      {"unacknowledged messages", unacknowledged},
      {"unclaimed variables", size(unclaimed_)},
      {"unfinished passes", size(unfinished_passes_)},
      {"waiting schedules", size(waiting_schedules_)},
      {"waiting writes", size(waiting_writes_)},
  };
}

}  // namespace divvy
