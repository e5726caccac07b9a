// Which tasks a cluster has and where: TensorFlow's ClusterSpec.
#ifndef DIVVY_CLUSTER_CLUSTER_SPEC_H_
#define DIVVY_CLUSTER_CLUSTER_SPEC_H_

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// job -> index -> address; indices may have holes and are kept as they are (TensorFlow's strategy
// counts them anew: docs/reference/deviations.md). An immutable value; thread-safe. Nothing is
// checked here: ParseClusterSpec and ParseTfConfig (cluster_config.h) refuse what no cluster is.
//
//   const ClusterSpec spec({{"ps", {{0, "a:2222"}}}, {"worker", {{1, "b:2222"}, {3, "c:2222"}}}});
//   spec.num_tasks("worker") == 2
class ClusterSpec {
 public:
  using Jobs = std::map<std::string, std::map<int, std::string>>;
  ClusterSpec() = default;
  explicit ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {}

  // sorted
  std::vector<std::string> jobs() const;
  // Of defined tasks; 0 for an unknown job.
  int num_tasks(absl::string_view job) const;
  // rising; none for an unknown job
  std::vector<int> task_indices(absl::string_view job) const;
  // InvalidArgument: no such task; lists those there are
  absl::StatusOr<std::string> task_address(absl::string_view job, int index) const;
  // [greatest index + 1] addresses; holes are nullopt. None for an unknown or empty job. REQUIRES:
  // its indices are not negative.
  std::vector<std::optional<std::string>> job_tasks(absl::string_view job) const;
  const Jobs& as_map() const { return jobs_; }

  friend bool operator==(const ClusterSpec& a, const ClusterSpec& b) { return a.jobs_ == b.jobs_; }
  friend bool operator!=(const ClusterSpec& a, const ClusterSpec& b) { return !(a == b); }

 private:
  Jobs jobs_;
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_SPEC_H_
