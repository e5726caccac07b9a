// The flags that every task of a cluster has.
#ifndef DIVVY_TASK_TASK_FLAGS_H_
#define DIVVY_TASK_TASK_FLAGS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "task/task_server.h"

namespace divvy {

// To be called by main, after the flags were parsed. Everything below blocks no longer than reading
// --cluster_file takes.

// What TF_CONFIG, CLUSTER_SPEC, --cluster_file and the flags say of the cluster.
absl::StatusOr<ClusterConfigSources> ClusterSourcesFromFlags();
// Who this task is, from all of them. nullopt: nothing says anything of a cluster. InvalidArgument:
// every problem at once.
absl::StatusOr<std::optional<TaskOptions>> TaskOptionsFromFlags();
// The same of a cluster that is not described by TF_CONFIG and flags; other flags count. REQUIRES:
// `cluster` was checked (cluster_config.h).
absl::StatusOr<TaskOptions> TaskOptionsOf(ClusterConfig cluster);
// --tls_cert, --tls_key, --tls_ca; nullopt: none of them. InvalidArgument: some but not all.
absl::StatusOr<std::optional<TlsFiles>> TlsFilesFromFlags();
absl::Duration DrainTimeoutFromFlags();
// The value of a flag that names a directory; nullopt: it was not given. Given and empty, as in
// --checkpoint_dir=, it says that there is to be none.
struct DirectoryFlag {
  std::optional<std::string> name;
};
bool AbslParseFlag(absl::string_view text, DirectoryFlag* flag, std::string* error);
std::string AbslUnparseFlag(const DirectoryFlag& flag);

// The value of a flag, or if it was not given that of a variable of the environment: who starts
// many tasks gives those to all of them.
std::string OrFromEnvironment(const DirectoryFlag& flag, const char* variable);
// --checkpoint_dir, or DIVVY_CHECKPOINT_DIR. Empty: the job keeps no checkpoints.
std::string CheckpointDirFromFlags();
// Whether it is DIVVY_CHECKPOINT_DIR, and DIVVY_TEMPORARY says that the directory goes when the job
// is complete: then nobody wants a last checkpoint.
bool CheckpointDirIsTemporary();
// Sets up the log as --log_format says. `task`: "worker 1". InvalidArgument: an unknown format.
absl::Status SetLogFromFlags(const std::string& task);

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_FLAGS_H_
