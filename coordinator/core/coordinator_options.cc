#include "coordinator/core/coordinator_options.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {

absl::Status CoordinatorOptions::Validate() const {
  std::vector<std::string> problems;
  if (incarnation == Incarnation()) problems.push_back("incarnation is 0");
  if (ps_addresses.empty()) problems.push_back("there is no parameter server");
  if (min_workers < 1)
    problems.push_back(absl::StrCat("min_workers is ", min_workers, ", wanted at least 1"));
  if (replicas_per_worker < 0)
    problems.push_back(
        absl::StrCat("--replicas_per_worker is ", replicas_per_worker, ", wanted at least 0"));
  if (queue_ahead < 0)
    problems.push_back(absl::StrCat("queue_ahead is ", queue_ahead, ", wanted at least 0"));
  if (most_ahead < queue_ahead)
    problems.push_back(
        absl::StrCat("most_ahead is ", most_ahead, ", wanted at least queue_ahead, ", queue_ahead));
  if (id_block < 2)
    problems.push_back(absl::StrCat("id_block is ", id_block, ", wanted at least 2"));
  if (redo_log_bytes < 1)
    problems.push_back(absl::StrCat("--redo_log_bytes is ", redo_log_bytes, ", wanted at least 1"));
  if (max_recoveries < 0)
    problems.push_back(absl::StrCat("--max_recoveries is ", max_recoveries, ", wanted at least 0"));
  if (keep_checkpoints < 2)
    problems.push_back(absl::StrCat("--keep is ", keep_checkpoints,
                                    ", wanted at least 2: the newest may turn out to be damaged"));
  if (max_step_attempts < 1)
    problems.push_back(
        absl::StrCat("max_step_attempts is ", max_step_attempts, ", wanted at least 1"));
  const std::pair<const char*, absl::Duration> timeouts[] = {{"--step_deadline", step_deadline},
                                                             {"--ps_timeout", ps_timeout},
                                                             {"worker_silence", worker_silence},
                                                             {"reconnect_limit", reconnect_limit}};
  for (const auto& [name, timeout] : timeouts) {
    if (timeout <= absl::ZeroDuration())
      problems.push_back(
          absl::StrCat(name, " is ", absl::FormatDuration(timeout), ", wanted more than 0"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("coordinator options: ", absl::StrJoin(problems, "; ")));
}

}  // namespace divvy
