// The tasks of the cluster and the identity of this process, from TF_CONFIG, its dialects, and
// flags. Everything here is pure and total: it takes text, and returns a value or every problem at
// once. It reads no environment variable and no file, and asks no name service.
//
//   ClusterConfigSources sources;
//   if (const char* text = std::getenv("TF_CONFIG")) sources.tf_config = text;
//   sources.flags.num_ps = 2;
//   ASSIGN_OR_RETURN(ClusterConfig config, ResolveParameterServerCluster(sources));
//
// Dialects (shapes of TF_CONFIG in the wild):
//   TensorFlow, Vertex     job -> list of addresses; "master" is another name of "chief"
//   Kubeflow               the same; with dynamic workers job -> {index: address}, and a task may
//                          know only a part of the cluster
//   Vertex' CLUSTER_SPEC   jobs workerpool0 (chief), 1 (worker), 2 (ps), 3 (evaluator)
//
// The rules are those of TensorFlow's TFConfigClusterResolver, of its ClusterSpec and of the checks
// in ParameterServerStrategy's constructor. docs/reference/deviations.md lists the differences.
#ifndef DIVVY_CLUSTER_CLUSTER_CONFIG_H_
#define DIVVY_CLUSTER_CLUSTER_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/cluster_spec.h"

namespace divvy {

// The greatest index of a task. The number of tasks is one more, and fits into 16 bits.
constexpr int kMaxTaskIndex = 65'534;

// A plain value; addresses are normalised (task_address.h).
struct ClusterConfig {
  // All tasks, evaluators included, as TensorFlow has them. No task dials an evaluator: see
  // TrainingCluster.
  ClusterSpec spec;
  // As written, but "chief" in place of "master". Absent: not given.
  std::optional<std::string> task_type;
  // 0 or more; absent: not given
  std::optional<int> task_index;
  // "" if not given
  std::string rpc_layer;
  // as written
  std::optional<std::string> session_master;
  // from the flag only; see CoordinatorAddress
  std::optional<std::string> coordinator_address;
  // from the flag only; see NumParameterServers
  std::optional<int> num_ps;

  friend bool operator==(const ClusterConfig& a, const ClusterConfig& b);
  friend bool operator!=(const ClusterConfig& a, const ClusterConfig& b) { return !(a == b); }
};

// The address at which the coordinator listens: the flag, else the cluster's chief. "": not known,
// so this task waits until the coordinator dials it.
std::string CoordinatorAddress(const ClusterConfig& config);
// The number of parameter servers: the flag, else the number in the cluster.
int NumParameterServers(const ClusterConfig& config);
// This task's own address in the cluster; "" if the cluster does not have the task.
std::string OwnAddress(const ClusterConfig& config);
// The cluster without evaluators: the tasks that work together and dial each other. Jobs without
// tasks are left out. The type is also the ClusterView of protocol/messages.h.
ClusterSpec::Jobs TrainingCluster(const ClusterConfig& config);
// A hash of the training cluster; the task that computes it makes no difference. A task that knows
// fewer tasks of the same cluster has another hash, so compare views with CheckSameView
// (cluster/same_view.h).
uint64_t ClusterHash(const ClusterConfig& config);

// Parses one TF_CONFIG. `{}` is the empty configuration. InvalidArgument: every problem of the
// text, each with its key ("cluster.worker[1]") and what to write. The names of jobs and the number
// of tasks are not checked: a spec may have any job.
absl::StatusOr<ClusterConfig> ParseTfConfig(absl::string_view json);
// Parses the value of the key "cluster": {"ps": ["host:2222"], ...}. InvalidArgument as above.
absl::StatusOr<ClusterSpec> ParseClusterSpec(absl::string_view json);

// The configuration as compact JSON, with the keys in the order cluster, task, rpc_layer,
// session_master. A job is a list if its indices have no holes. ParseTfConfig returns an equal
// configuration, except for values from flags.
std::string TfConfigText(const ClusterConfig& config);

// ---- from all sources together ------------------------------------------------------------------

struct ClusterFlags {
  std::optional<std::string> task_type;
  std::optional<int> task_index;
  // For tasks whose cluster does not name the chief.
  std::optional<std::string> coordinator_address;
  // For a chief whose cluster does not name the parameter servers.
  std::optional<int> num_ps;
};

// All sources of a cluster configuration. For each of cluster, task.type, task.index, rpc_layer and
// session_master the first source that has it wins: flags, tf_config, cluster_file (which has the
// same format). Vertex' cluster_spec is read only if there is no tf_config.
struct ClusterConfigSources {
  // the environment variable TF_CONFIG
  std::optional<std::string> tf_config;
  // the content of --cluster_file
  std::optional<std::string> cluster_file;
  // the environment variable CLUSTER_SPEC
  std::optional<std::string> cluster_spec;
  ClusterFlags flags;

  // No source is set: the whole cluster runs in this process.
  bool empty() const;
};

// Merges the sources. InvalidArgument: every problem of all sources in one line. If the cluster of
// a parameter server holds only that server (Kubeflow, dynamic workers), the result has it under
// its own index.
absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterConfigSources& sources);

// Checks whether a job with parameter servers can run on this cluster. The checks are those of
// TensorFlow's constructor, in its order, but with the true indices. The cluster may lack tasks
// that the flags coordinator_address and num_ps stand for. InvalidArgument: every problem in one
// line.
absl::Status ValidateParameterServerCluster(const ClusterConfig& config);

// ResolveClusterConfig, then ValidateParameterServerCluster. A process calls this at its start.
// InvalidArgument: every problem of either kind in one line, without problems that only follow from
// another.
absl::StatusOr<ClusterConfig> ResolveParameterServerCluster(const ClusterConfigSources& sources);

// The same for a cluster that does not come from text, but from a ClusterResolver of the program.
// The result has normalised addresses. InvalidArgument: every problem in one line.
absl::StatusOr<ClusterConfig> CheckedParameterServerCluster(ClusterConfig config);

// The same for a person: it has whatever could be read, even if there are problems.
struct ClusterExamination {
  // The source that was read: "TF_CONFIG", "--cluster_file" or "CLUSTER_SPEC". "the cluster" if
  // several texts or none were read.
  std::string source;
  ClusterConfig config;
  // One sentence each. Empty: a job can run on the cluster.
  std::vector<std::string> problems;
  // Each is worth one line of INFO: keys that are ignored, or what the task will wait for.
  std::vector<std::string> notes;
};
ClusterExamination ExamineCluster(const ClusterConfigSources& sources);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_CONFIG_H_
