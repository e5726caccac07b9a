#include "cluster/cluster_resolver.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cluster/cluster_config.h"
#include "cluster/cluster_config_resolver.h"

namespace divvy {
namespace {

class EmbeddedResolver : public ClusterResolver {
 public:
  EmbeddedResolver(ClusterSpec spec, std::string task_type, int task_id)
      : spec_(std::move(spec)), task_type_(std::move(task_type)), task_id_(task_id) {}

  absl::StatusOr<ClusterSpec> cluster_spec() const override { return spec_; }
  std::string task_type() const override { return task_type_; }
  std::optional<int> task_id() const override { return task_id_; }
  std::string rpc_layer() const override { return "grpc"; }
  std::string environment() const override { return ""; }
  absl::StatusOr<std::string> master(absl::string_view task_type,
                                     std::optional<int> task_id) const override {
    return spec_.task_address(task_type.empty() ? task_type_ : task_type,
                              task_id.value_or(task_id_));
  }
  absl::StatusOr<std::map<std::string, int>> num_accelerators(
      absl::string_view task_type, std::optional<int> task_id) const override {
    if (const auto address = master(task_type, task_id); !address.ok()) return address.status();
    // ResolverWithAccelerators overrides this.
    return std::map<std::string, int>();
  }

 private:
  const ClusterSpec spec_;
  const std::string task_type_;
  const int task_id_;
};

class ResolverWithAccelerators : public ClusterResolver {
 public:
  ResolverWithAccelerators(std::unique_ptr<ClusterResolver> base, std::map<std::string, int> own)
      : base_(std::move(base)), own_(std::move(own)) {}

  absl::StatusOr<ClusterSpec> cluster_spec() const override { return base_->cluster_spec(); }
  std::string task_type() const override { return base_->task_type(); }
  std::optional<int> task_id() const override { return base_->task_id(); }
  std::string rpc_layer() const override { return base_->rpc_layer(); }
  std::string environment() const override { return base_->environment(); }
  absl::StatusOr<std::string> master(absl::string_view task_type,
                                     std::optional<int> task_id) const override {
    return base_->master(task_type, task_id);
  }
  absl::StatusOr<std::map<std::string, int>> num_accelerators(
      absl::string_view task_type, std::optional<int> task_id) const override {
    ASSIGN_OR_RETURN(auto known, base_->num_accelerators(task_type, task_id));
    const bool is_own = (task_type.empty() || task_type == base_->task_type()) &&
                        (!task_id || task_id == base_->task_id());
    return is_own ? own_ : known;
  }

 private:
  const std::unique_ptr<ClusterResolver> base_;
  const std::map<std::string, int> own_;
};

std::map<int, std::string> EmbeddedTasks(absl::string_view job, int number) {
  std::map<int, std::string> tasks;
  for (int i = 0; i < number; ++i) tasks[i] = absl::StrCat("embedded:", job, "/", i);
  return tasks;
}

// A cluster with at most one task has no other task to name, so its master is "". TensorFlow counts
// the places in the list of the only job, so a single task at index 1 has a master.
bool NeedsNoMaster(const ClusterSpec& spec) {
  const std::vector<std::string> jobs = spec.jobs();
  return jobs.empty() || (jobs.size() == 1 && spec.job_tasks(jobs[0]).size() == 1);
}

// Returns the configuration, at each call.
using ConfigSource = std::function<absl::StatusOr<ClusterConfig>()>;

class ConfigResolver : public ClusterResolver {
 public:
  ConfigResolver(TfConfigOverrides overrides, ConfigSource source)
      : overrides_(std::move(overrides)), source_(std::move(source)) {}

  absl::StatusOr<ClusterSpec> cluster_spec() const override {
    ASSIGN_OR_RETURN(ClusterConfig config, Read());
    return std::move(config.spec);
  }
  std::string task_type() const override { return ReadOrEmpty().task_type.value_or(""); }
  std::optional<int> task_id() const override { return ReadOrEmpty().task_index; }
  std::string rpc_layer() const override { return ReadOrEmpty().rpc_layer; }
  std::string environment() const override { return overrides_.environment.value_or(""); }

  absl::StatusOr<std::string> master(absl::string_view task_type,
                                     std::optional<int> task_id) const override {
    ASSIGN_OR_RETURN(const ClusterConfig config, Read());
    if (config.session_master.has_value()) return *config.session_master;
    if (NeedsNoMaster(config.spec)) return "";
    const std::string type =
        task_type.empty() ? config.task_type.value_or("") : std::string(task_type);
    const std::optional<int> id = task_id.has_value() ? task_id : config.task_index;
    if (type.empty() || !id.has_value())
      return absl::InvalidArgumentError(
          "TF_CONFIG has no task.type or no task.index: pass a task type and index to master()");
    ASSIGN_OR_RETURN(std::string address, config.spec.task_address(type, *id));
    return config.rpc_layer.empty() ? address : absl::StrCat(config.rpc_layer, "://", address);
  }

  absl::StatusOr<std::map<std::string, int>> num_accelerators(
      absl::string_view task_type, std::optional<int> task_id) const override {
    RETURN_IF_ERROR(master(task_type, task_id));
    // Accelerators of other tasks are known only after an attach.
    return std::map<std::string, int>();
  }

 private:
  absl::StatusOr<ClusterConfig> Read() const {
    ASSIGN_OR_RETURN(ClusterConfig config, source_());
    Override(config);
    return config;
  }

  ClusterConfig ReadOrEmpty() const {
    absl::StatusOr<ClusterConfig> config = Read();
    if (config.ok()) return *std::move(config);
    ClusterConfig empty;
    Override(empty);
    return empty;
  }

  void Override(ClusterConfig& config) const {
    if (overrides_.task_type.has_value()) config.task_type = overrides_.task_type;
    if (overrides_.task_id.has_value()) config.task_index = overrides_.task_id;
    if (overrides_.rpc_layer.has_value()) config.rpc_layer = *overrides_.rpc_layer;
  }

  const TfConfigOverrides overrides_;
  const ConfigSource source_;
};

}  // namespace

std::unique_ptr<ClusterResolver> WithAccelerators(std::unique_ptr<ClusterResolver> resolver,
                                                  std::map<std::string, int> own) {
  return std::make_unique<ResolverWithAccelerators>(std::move(resolver), std::move(own));
}

std::unique_ptr<ClusterResolver> EmbeddedClusterResolver(int num_ps, int num_workers,
                                                         std::string task_type, int task_id) {
  ClusterSpec spec({{"chief", EmbeddedTasks("chief", 1)},
                    {"ps", EmbeddedTasks("ps", num_ps)},
                    {"worker", EmbeddedTasks("worker", num_workers)}});
  return std::make_unique<EmbeddedResolver>(std::move(spec), std::move(task_type), task_id);
}

std::optional<std::string> TfConfigOfTheEnvironment() {
  const char* text = std::getenv("TF_CONFIG");
  if (text == nullptr) return std::nullopt;
  return text;
}

std::unique_ptr<ClusterResolver> TfConfigClusterResolver(TfConfigOverrides overrides,
                                                         TfConfigSource source) {
  const auto read = [source = std::move(source)]() -> absl::StatusOr<ClusterConfig> {
    const std::optional<std::string> text = source();
    return text.has_value() ? ParseTfConfig(*text) : ClusterConfig();
  };
  return std::make_unique<ConfigResolver>(std::move(overrides), read);
}

std::unique_ptr<ClusterResolver> ClusterConfigResolver(const ClusterConfig& config) {
  return std::make_unique<ConfigResolver>(TfConfigOverrides(), [config] { return config; });
}

absl::StatusOr<std::unique_ptr<ClusterResolver>> SimpleClusterResolver(
    absl::string_view cluster_json, std::string task_type, int task_id) {
  ClusterConfig config;
  ASSIGN_OR_RETURN(config.spec, ParseClusterSpec(cluster_json));
  config.task_type = std::move(task_type);
  config.task_index = task_id;
  return ClusterConfigResolver(config);
}

}  // namespace divvy
