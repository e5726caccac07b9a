// The cluster and this task's place in it: TensorFlow's ClusterResolver.
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
  // "" if there is none, or if the source cannot be read: cluster_spec() returns the error.
  virtual std::string task_type() const = 0;
  virtual std::optional<int> task_id() const = 0;
  // "grpc"; "" if none is set
  virtual std::string rpc_layer() const = 0;
  // "" unless set
  virtual std::string environment() const = 0;
  // The address of the given task, or of this task, prefixed with "<rpc_layer>://" if there is a
  // layer. InvalidArgument: the task does not exist, or no task is given and this task is not
  // known.
  virtual absl::StatusOr<std::string> master(absl::string_view task_type = "",
                                             std::optional<int> task_id = {}) const = 0;
  // The accelerators of the given task, or of this task: type -> number. Empty if none is known.
  // InvalidArgument as above.
  virtual absl::StatusOr<std::map<std::string, int>> num_accelerators(
      absl::string_view task_type = "", std::optional<int> task_id = {}) const = 0;
};

// A resolver for the cluster of embedded mode: one chief, and ps and workers at the addresses
// "embedded:<job>/<index>". The own task is the chief, or the given task.
std::unique_ptr<ClusterResolver> EmbeddedClusterResolver(int num_ps, int num_workers,
                                                         std::string task_type = "chief",
                                                         int task_id = 0);

// `resolver`, but with the accelerators of its own task: {{"GPU", 2}}.
std::unique_ptr<ClusterResolver> WithAccelerators(std::unique_ptr<ClusterResolver> resolver,
                                                  std::map<std::string, int> own);

// Values that win over TF_CONFIG. `environment` can only be set here: the key of that name in
// TF_CONFIG ("cloud") has another meaning.
struct TfConfigOverrides {
  std::optional<std::string> task_type;
  std::optional<int> task_id;
  std::optional<std::string> rpc_layer, environment;
};

// The source of TF_CONFIG; nullopt if it is not set. It is called at each access, from any thread.
using TfConfigSource = std::function<std::optional<std::string>()>;
// The environment variable TF_CONFIG.
std::optional<std::string> TfConfigOfTheEnvironment();

// Reads TF_CONFIG again at each call, as TensorFlow does. If it is not set, the cluster is empty.
// If it cannot be read, cluster_spec() and master() return InvalidArgument (ParseTfConfig in
// cluster_config.h). master() returns TF_CONFIG's session_master if there is one, and "" if the
// cluster is empty or has one task.
std::unique_ptr<ClusterResolver> TfConfigClusterResolver(
    TfConfigOverrides overrides = {}, TfConfigSource source = TfConfigOfTheEnvironment);

// A resolver for a cluster given as JSON ({"ps": ["host:2222"], ...}: the value of TF_CONFIG's key
// "cluster"). InvalidArgument: every problem of the text.
absl::StatusOr<std::unique_ptr<ClusterResolver>> SimpleClusterResolver(
    absl::string_view cluster_json, std::string task_type, int task_id);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_RESOLVER_H_
