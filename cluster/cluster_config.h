// Who is in the cluster and which task this process is, from TF_CONFIG, its dialects, and flags.
// Everything here is pure and total: text in, a value or every problem at once out; no environment,
// file or name service is asked.
//
//   ClusterConfigSources sources;
//   if (const char* text = std::getenv("TF_CONFIG")) sources.tf_config = text;
//   sources.flags.num_ps = 2;
//   ASSIGN_OR_RETURN(ClusterConfig config, ResolveParameterServerCluster(sources));
//
// Dialects (shapes of TF_CONFIG in the wild):
//   TensorFlow, Vertex     job -> list of addresses; "master" is another name of "chief"
//   Kubeflow               the same; with dynamic workers job -> {index: address}, where a task
//                          knows less than all
//   Vertex' CLUSTER_SPEC   jobs workerpool0 (chief), 1 (worker), 2 (ps), 3 (evaluator)
// Rules after TensorFlow's TFConfigClusterResolver, ClusterSpec and the checks of
// ParameterServerStrategy's constructor; where ours differ: docs/reference/deviations.md.
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

// The greatest index a task may have. The number of tasks, one more, travels in 16 bits.
constexpr int kMaxTaskIndex = 65'534;

// A plain value; addresses are normalised (task_address.h).
struct ClusterConfig {
  // With its evaluators, as TensorFlow gives it; nobody dials those: TrainingCluster.
  ClusterSpec spec;
  // As written, but "chief" for "master"; absent: not said.
  std::optional<std::string> task_type;
  std::optional<int> task_index;                   // 0 or more; absent: not said
  std::string rpc_layer;                           // "" unless set
  std::optional<std::string> session_master;       // as written
  std::optional<std::string> coordinator_address;  // from its flag alone: CoordinatorAddress
  std::optional<int> num_ps;                       // from its flag alone: NumParameterServers

  friend bool operator==(const ClusterConfig& a, const ClusterConfig& b);
  friend bool operator!=(const ClusterConfig& a, const ClusterConfig& b) { return !(a == b); }
};

// Where the coordinator listens: the flag, else the chief of the cluster; "": not known, so this
// task waits until it is dialled.
std::string CoordinatorAddress(const ClusterConfig& config);
// How many there are: the flag, else those of the cluster.
int NumParameterServers(const ClusterConfig& config);
// This task's own entry in the cluster; "": it has none.
std::string OwnAddress(const ClusterConfig& config);
// Without evaluators: who works together and is dialled. Jobs without tasks are left out. It is
// also the ClusterView of protocol/messages.h, which is that type.
ClusterSpec::Jobs TrainingCluster(const ClusterConfig& config);
// Of the training cluster, whoever looks at it. Tasks that know less of the same cluster have
// another hash: compare with CheckSameView (cluster/same_view.h).
uint64_t ClusterHash(const ClusterConfig& config);

// One TF_CONFIG. `{}` is the empty configuration. InvalidArgument: every problem of the text, each
// with its key ("cluster.worker[1]") and what to write. The types and number of tasks are not
// judged here: a spec may hold any job.
absl::StatusOr<ClusterConfig> ParseTfConfig(absl::string_view json);
// The value of "cluster" alone: {"ps": ["host:2222"], ...}. InvalidArgument as above.
absl::StatusOr<ClusterSpec> ParseClusterSpec(absl::string_view json);

// As compact JSON, keys in the order cluster, task, rpc_layer, session_master; a job is a list
// where its indices have no holes. ParseTfConfig gives an equal configuration, but for what came
// from flags.
std::string TfConfigText(const ClusterConfig& config);

// ---- from everything that is said ---------------------------------------------------------------

struct ClusterFlags {
  std::optional<std::string> task_type;
  std::optional<int> task_index;
  // For tasks whose cluster does not name the chief.
  std::optional<std::string> coordinator_address;
  // For a chief whose cluster does not name the parameter servers.
  std::optional<int> num_ps;
};

// What says something about the cluster. For each of cluster, task.type, task.index, rpc_layer and
// session_master the first source that says it wins: flags, tf_config, cluster_file (of the same
// shape). Vertex' cluster_spec is read only where there is no tf_config.
struct ClusterConfigSources {
  std::optional<std::string> tf_config;     // the environment variable TF_CONFIG
  std::optional<std::string> cluster_file;  // the content of --cluster_file
  std::optional<std::string> cluster_spec;  // the environment variable CLUSTER_SPEC
  ClusterFlags flags;

  // Nothing is said: the whole cluster runs in this process.
  bool empty() const;
};

// InvalidArgument: every problem of all sources in one line. A parameter server whose cluster holds
// only itself (Kubeflow, dynamic workers) stands in the result under its own index.
absl::StatusOr<ClusterConfig> ResolveClusterConfig(const ClusterConfigSources& sources);

// Whether a job with parameter servers can run so: the checks of TensorFlow's constructor, in its
// order, against the true indices. A task whose flags tell what its cluster leaves out
// (coordinator_address, num_ps) may know less. InvalidArgument: every problem in one line.
absl::Status ValidateParameterServerCluster(const ClusterConfig& config);

// Both: what a process that starts needs. InvalidArgument: every problem of either kind in one
// line, none that only follows from another.
absl::StatusOr<ClusterConfig> ResolveParameterServerCluster(const ClusterConfigSources& sources);

// The same of a cluster that stands in no text: one that a ClusterResolver of the program
// describes. Its addresses are normalised. InvalidArgument: every problem in one line.
absl::StatusOr<ClusterConfig> CheckedParameterServerCluster(ClusterConfig config);

// The same for a person: what could be read, although something is wrong.
struct ClusterExamination {
  // What was read: "TF_CONFIG", "--cluster_file", "CLUSTER_SPEC"; "the cluster" where several texts
  // or none were.
  std::string source;
  ClusterConfig config;
  // A sentence each; empty: it can run.
  std::vector<std::string> problems;
  // worth one line of INFO: keys that nobody reads, what will be waited for
  std::vector<std::string> notes;
};
ClusterExamination ExamineCluster(const ClusterConfigSources& sources);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_CLUSTER_CONFIG_H_
