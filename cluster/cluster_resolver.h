// Who is in the cluster: TensorFlow's ClusterSpec and ClusterResolver.
#ifndef DIVVY_CLUSTER_CLUSTER_RESOLVER_H_
#define DIVVY_CLUSTER_CLUSTER_RESOLVER_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// job -> index -> address; indices may have holes and are kept as they are. An immutable value.
class ClusterSpec {
 public:
  using Jobs = std::map<std::string, std::map<int, std::string>>;
  ClusterSpec() = default;
  explicit ClusterSpec(Jobs jobs) : jobs_(std::move(jobs)) {}

  std::vector<std::string> jobs() const;        // sorted
  int num_tasks(absl::string_view job) const;   // of defined tasks; 0 for an unknown job
  std::vector<int> task_indices(absl::string_view job) const;
  absl::StatusOr<std::string> task_address(absl::string_view job, int index) const;   // InvalidArgument: no such task
  std::vector<std::optional<std::string>> job_tasks(absl::string_view job) const;     // holes are nullopt

 private:
  Jobs jobs_;
};

// Thread-safe; never blocks.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;
  virtual absl::StatusOr<ClusterSpec> cluster_spec() const = 0;
  virtual std::string task_type() const = 0;   // "" if none
  virtual std::optional<int> task_id() const = 0;
  virtual std::string rpc_layer() const = 0;     // "grpc"
  virtual std::string environment() const = 0;   // "" unless set
  // The address of the given task, or of this one. InvalidArgument: no such task.
  virtual absl::StatusOr<std::string> master(absl::string_view task_type = "", std::optional<int> task_id = {}) const = 0;
  virtual absl::StatusOr<std::map<std::string, int>> num_accelerators(absl::string_view task_type = "", std::optional<int> task_id = {}) const = 0;
};

// Describes the cluster that embedded mode plays: one chief, and ps and workers at the addresses "embedded:<job>/<index>". Seen from the chief, or from
// the given task.
std::unique_ptr<ClusterResolver> EmbeddedClusterResolver(int num_ps, int num_workers, std::string task_type = "chief", int task_id = 0);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_RESOLVER_H_
