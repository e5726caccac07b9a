// Who is in the cluster, and who we are in it: TensorFlow's ClusterResolver.
#ifndef DIVVY_CLUSTER_CLUSTER_RESOLVER_H_
#define DIVVY_CLUSTER_CLUSTER_RESOLVER_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/cluster_spec.h"

namespace divvy {

// Thread-safe; never blocks.
class ClusterResolver {
 public:
  virtual ~ClusterResolver() = default;
  virtual absl::StatusOr<ClusterSpec> cluster_spec() const = 0;
  // "" if none, or if what says it cannot be read: cluster_spec() tells why
  virtual std::string task_type() const = 0;
  virtual std::optional<int> task_id() const = 0;
  virtual std::string rpc_layer() const = 0;    // "grpc"; "" if none is set
  virtual std::string environment() const = 0;  // "" unless set
  // The address of the given task, or of this one, behind "<rpc_layer>://" if there is one.
  // InvalidArgument: no such task, or none known.
  virtual absl::StatusOr<std::string> master(absl::string_view task_type = "",
                                             std::optional<int> task_id = {}) const = 0;
  // Devices of that task that compute, by type; none that is known: empty. InvalidArgument as
  // above.
  virtual absl::StatusOr<std::map<std::string, int>> num_accelerators(
      absl::string_view task_type = "", std::optional<int> task_id = {}) const = 0;
};

// Describes the cluster that embedded mode plays: one chief, and ps and workers at the addresses
// "embedded:<job>/<index>". Seen from the chief, or from the given task.
std::unique_ptr<ClusterResolver> EmbeddedClusterResolver(int num_ps, int num_workers,
                                                         std::string task_type = "chief",
                                                         int task_id = 0);

// `resolver`, and what its own task has to compute with: {{"GPU", 2}}.
std::unique_ptr<ClusterResolver> WithAccelerators(std::unique_ptr<ClusterResolver> resolver,
                                                  std::map<std::string, int> own);

// What wins over TF_CONFIG. `environment` is known from here alone: the key of that name in
// TF_CONFIG ("cloud") means something else.
struct TfConfigOverrides {
  std::optional<std::string> task_type;
  std::optional<int> task_id;
  std::optional<std::string> rpc_layer, environment;
};

// Where TF_CONFIG is read: nullopt if it is not set. Called at each access, from any thread.
using TfConfigSource = std::function<std::optional<std::string>()>;
// The environment's variable TF_CONFIG.
std::optional<std::string> TfConfigOfTheEnvironment();

// Reads TF_CONFIG again at each call, as TensorFlow does; not set is an empty cluster.
// cluster_spec() and master() answer a text that cannot be read with InvalidArgument (ParseTfConfig
// in cluster_config.h). master() is session_master where TF_CONFIG has it, and "" where the cluster
// is empty or has one task.
std::unique_ptr<ClusterResolver> TfConfigClusterResolver(
    TfConfigOverrides overrides = {}, TfConfigSource source = TfConfigOfTheEnvironment);

// Of a cluster given as JSON ({"ps": ["host:2222"], ...}: TF_CONFIG's key "cluster").
// InvalidArgument: every problem of the text.
absl::StatusOr<std::unique_ptr<ClusterResolver>> SimpleClusterResolver(
    absl::string_view cluster_json, std::string task_type, int task_id);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_RESOLVER_H_
