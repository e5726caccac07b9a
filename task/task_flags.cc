#include "task/task_flags.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/status_macros.h"

ABSL_FLAG(std::string, task_type, "",
          "chief, ps, worker or evaluator: instead of task.type of TF_CONFIG");
ABSL_FLAG(std::optional<int>, task_index, std::nullopt, "instead of task.index of TF_CONFIG");
ABSL_FLAG(std::string, coordinator_address, "",
          "host:port of the chief, for a task whose TF_CONFIG does not name it");
ABSL_FLAG(std::optional<int>, num_ps, std::nullopt,
          "parameter servers of the job, for a chief whose TF_CONFIG does not name them");
ABSL_FLAG(std::string, cluster_file, "", "a file of the same shape as TF_CONFIG");
ABSL_FLAG(
    std::string, bind_address, "",
    "host:port to listen on; port 0: a free one. Default: this task's own address in TF_CONFIG");
ABSL_FLAG(std::string, health_address, "",
          "host:port (no host: 127.0.0.1) that answers HTTP GET with 200 or 503: for probes that "
          "have no certificate. Default: none");
ABSL_FLAG(std::string, tls_cert, "",
          "PEM certificate of this task; without it everything must be on loopback");
ABSL_FLAG(std::string, tls_key, "", "PEM private key of --tls_cert");
ABSL_FLAG(std::string, tls_ca, "", "PEM certificates that sign those of all tasks");
ABSL_FLAG(int64_t, rpc_memory_bytes, int64_t{1} << 30,
          "what all messages under way may take together; at least 64 MiB");
ABSL_FLAG(int, max_connections, 0,
          "that the task takes at a time; further ones are closed. 0: 256 and four for each task "
          "of the cluster, or 4096");
ABSL_FLAG(divvy::DirectoryFlag, checkpoint_dir, {},
          "where checkpoints are; one directory that the chief and every parameter server can "
          "reach. Without it none are made");
ABSL_FLAG(absl::Duration, drain_timeout, absl::Seconds(25),
          "what the process waits for at most, once it was asked to end");
ABSL_FLAG(std::string, log_format, "text", "text, or json: one object a line");

namespace divvy {
namespace {

std::optional<std::string> FromEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::optional<std::string> Given(std::string value) {
  if (value.empty()) return std::nullopt;
  return value;
}

absl::StatusOr<Role> RoleOf(const ClusterConfig& cluster) {
  const std::optional<Role> role = ParseRole(cluster.task_type.value_or(""));
  if (role) return *role;
  return absl::InvalidArgumentError(
      "task.type is missing: say which task this process is, in TF_CONFIG or by --task_type and "
      "--task_index");
}

}  // namespace

absl::StatusOr<ClusterConfigSources> ClusterSourcesFromFlags() {
  ClusterConfigSources sources;
  sources.tf_config = FromEnvironment("TF_CONFIG");
  sources.cluster_spec = FromEnvironment("CLUSTER_SPEC");
  sources.flags.task_type = Given(absl::GetFlag(FLAGS_task_type));
  sources.flags.task_index = absl::GetFlag(FLAGS_task_index);
  sources.flags.coordinator_address = Given(absl::GetFlag(FLAGS_coordinator_address));
  sources.flags.num_ps = absl::GetFlag(FLAGS_num_ps);
  if (const std::string path = absl::GetFlag(FLAGS_cluster_file); !path.empty()) {
    absl::StatusOr<std::string> text = FileSystem::Real().ReadFile(path);
    if (absl::IsPermissionDenied(text.status()))
      return absl::InvalidArgumentError(absl::StrCat("--cluster_file: ", text.status().message()));
    if (!text.ok()) return text.status();
    sources.cluster_file = *std::move(text);
  }
  return sources;
}

absl::StatusOr<std::optional<TlsFiles>> TlsFilesFromFlags() {
  const TlsFiles files{absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key),
                       absl::GetFlag(FLAGS_tls_ca)};
  const int given = !files.cert.empty() + !files.key.empty() + !files.ca.empty();
  if (given == 0) return std::optional<TlsFiles>();
  if (given == 3) return std::optional<TlsFiles>(files);
  return absl::InvalidArgumentError(
      "--tls_cert, --tls_key and --tls_ca go together: give all three, or none");
}

absl::StatusOr<TaskOptions> TaskOptionsOf(ClusterConfig cluster) {
  TaskOptions options;
  options.cluster = std::move(cluster);
  ASSIGN_OR_RETURN(options.role, RoleOf(options.cluster));
  options.index = options.cluster.task_index.value_or(0);
  options.bind_address = absl::GetFlag(FLAGS_bind_address);
  ASSIGN_OR_RETURN(options.tls, TlsFilesFromFlags());
  options.health_address = absl::GetFlag(FLAGS_health_address);
  options.rpc_memory_bytes = absl::GetFlag(FLAGS_rpc_memory_bytes);
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  return options;
}

absl::StatusOr<std::optional<TaskOptions>> TaskOptionsFromFlags() {
  ASSIGN_OR_RETURN(const ClusterConfigSources sources, ClusterSourcesFromFlags());
  if (sources.empty()) return std::optional<TaskOptions>();
  ASSIGN_OR_RETURN(ClusterConfig cluster, ResolveParameterServerCluster(sources));
  return TaskOptionsOf(std::move(cluster));
}

bool AbslParseFlag(absl::string_view text, DirectoryFlag* flag, std::string*) {
  flag->name = std::string(text);
  return true;
}

std::string AbslUnparseFlag(const DirectoryFlag& flag) { return flag.name.value_or(""); }

std::string OrFromEnvironment(const DirectoryFlag& flag, const char* variable) {
  return flag.name ? *flag.name : FromEnvironment(variable).value_or("");
}

std::string CheckpointDirFromFlags() {
  return OrFromEnvironment(absl::GetFlag(FLAGS_checkpoint_dir), "DIVVY_CHECKPOINT_DIR");
}

bool CheckpointDirIsTemporary() {
  return !absl::GetFlag(FLAGS_checkpoint_dir).name && FromEnvironment("DIVVY_TEMPORARY");
}

absl::Duration DrainTimeoutFromFlags() { return absl::GetFlag(FLAGS_drain_timeout); }

absl::Status SetLogFromFlags(const std::string& task) {
  const std::string format = absl::GetFlag(FLAGS_log_format);
  if (format != "text" && format != "json")
    return absl::InvalidArgumentError(
        absl::StrCat("--log_format is \"", format, "\", wanted text or json"));
  LogOptions options;
  options.format = format == "json" ? LogFormat::kJson : LogFormat::kText;
  options.context = {{"task", task}};
  SetLogOptions(options);
  return absl::OkStatus();
}

}  // namespace divvy
