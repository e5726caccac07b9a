#include "task/task_flags.h"

#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/status_macros.h"

#define DIVVY_TASK_FLAG(type, name, value, users, why_not_embedded, meaning) \
  ABSL_FLAG(type, name, value, meaning);
#include "task/flags.inc"

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
  options.http_address = absl::GetFlag(FLAGS_http_address);
  options.rpc_memory_bytes = absl::GetFlag(FLAGS_rpc_memory_bytes);
  options.max_connections = absl::GetFlag(FLAGS_max_connections);
  options.shares_memory = absl::GetFlag(FLAGS_local_path) != LocalPath::kOff;
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

bool AbslParseFlag(absl::string_view text, LocalPath* path, std::string* error) {
  *error = "wanted auto or off";
  *path = text == "off" ? LocalPath::kOff : LocalPath::kAuto;
  return text == "auto" || text == "off";
}

std::string AbslUnparseFlag(LocalPath path) { return path == LocalPath::kOff ? "off" : "auto"; }

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
