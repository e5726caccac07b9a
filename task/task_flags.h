// The flags that every task of a cluster has.
#ifndef DIVVY_TASK_TASK_FLAGS_H_
#define DIVVY_TASK_TASK_FLAGS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "task/task_server.h"

namespace divvy {

// Call these from main, after the flags were parsed. None blocks longer than it takes to read
// --cluster_file.

// What TF_CONFIG, CLUSTER_SPEC, --cluster_file and the flags say about the cluster. An error says
// that --cluster_file cannot be read.
absl::StatusOr<ClusterConfigSources> ClusterSourcesFromFlags();
// Which task this process is, from all of these sources. nullopt: nothing describes a cluster.
// InvalidArgument: every problem of the cluster at once. Otherwise the error of reading
// --cluster_file.
absl::StatusOr<std::optional<TaskOptions>> TaskOptionsFromFlags();
// The same for a cluster that TF_CONFIG and the flags do not describe; the other flags of the task
// apply. REQUIRES: `cluster` was checked (cluster_config.h).
absl::StatusOr<TaskOptions> TaskOptionsOf(ClusterConfig cluster);
// --tls_cert, --tls_key and --tls_ca. nullopt: none is given. InvalidArgument: only some are given.
absl::StatusOr<std::optional<TlsFiles>> TlsFilesFromFlags();
// --drain_timeout.
absl::Duration DrainTimeoutFromFlags();
// The value of a flag that names a directory. nullopt: the flag was not given. An empty name, as in
// --checkpoint_dir=, means that there is no directory.
struct DirectoryFlag {
  std::optional<std::string> name;
};
// For Abseil's flags; every text is valid.
bool AbslParseFlag(absl::string_view text, DirectoryFlag* flag, std::string* error);
std::string AbslUnparseFlag(const DirectoryFlag& flag);

// How payloads get from one task to another of the same machine.
enum class LocalPath : uint8_t {
  kAuto,  // in shared memory, where both tasks can reach it
  kOff,   // through the network
};
// For Abseil's flags: "auto" or "off".
bool AbslParseFlag(absl::string_view text, LocalPath* path, std::string* error);
std::string AbslUnparseFlag(LocalPath path);

// The value of the flag, or the environment variable's value if the flag was not given. A launcher
// of many tasks sets the variable for all of them. Empty: neither is set.
std::string OrFromEnvironment(const DirectoryFlag& flag, const char* variable);
// --checkpoint_dir, or DIVVY_CHECKPOINT_DIR. Empty: the job keeps no checkpoints.
std::string CheckpointDirFromFlags();
// Whether the checkpoint directory is deleted when the job is complete, so that a last checkpoint
// is useless: --checkpoint_dir is not given and DIVVY_TEMPORARY is set.
bool CheckpointDirIsTemporary();
// Sets up the log of the process as --log_format says. `task` (e.g. "worker 1") appears in each
// line. InvalidArgument: an unknown format.
absl::Status SetLogFromFlags(const std::string& task);

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_FLAGS_H_
