#include "absl/strings/str_cat.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/yaml.h"

namespace divvy::gen {
namespace {

// A pod's name is complete for Prometheus only with its namespace.
std::string TargetOf(const Job& job, const Task& task) {
  return absl::StrCat(
      HostOf(job, task),
      IsOnKubernetes(job.kind)
          ? absl::StrCat(".", job.options.kube_namespace.value_or("default"), ".svc")
          : "",
      ":", PortOf(job, task, kHttpPort));
}

// Each task has a configuration of its own, since only there Prometheus can be told the name in the
// task's certificate. The label `job` is that of the whole job.
Yaml ScrapeOf(const Job& job, const Task& task) {
  const std::string directory = absl::StrCat(*job.options.tls_dir, "/");
  return Yaml::Map(
      {{"job_name", absl::StrCat(job.name, "/", task.name())},
       {"scheme", "https"},
       {"tls_config", Yaml::Map({{"ca_file", directory + "ca.pem"},
                                 {"cert_file", directory + "admin-0.pem"},
                                 {"key_file", directory + "admin-0.key"},
                                 {"server_name", task.name()}})},
       {"static_configs",
        Yaml::List({Yaml::Map({{"targets", Yaml::Texts({TargetOf(job, task)})},
                               {"labels", Yaml::Map({{"job", job.name},
                                                     {"role", std::string(RoleName(task.role))},
                                                     {"task", absl::StrCat(task.index)}})}})})}});
}

}  // namespace

std::string PrometheusFile(const Job& job) {
  std::vector<Yaml> scrapes;
  for (const Task& task : TasksOf(job)) {
    if (task.role != Role::kEvaluator) scrapes.push_back(ScrapeOf(job, task));
  }
  const std::optional<std::string>& rules = job.options.rules;
  return PrintYaml(
      {"Made by divvyctl gen prometheus. The tasks answer callers with a certificate of the job:",
       "the pair admin-0 of divvyctl certs, which Prometheus must be able to read. It can also "
       "drain",
       "the job. Certificates must name their task as a host (ps-0), as those of divvyctl certs "
       "do."},
      {Yaml::Map({{"global", Yaml::Map({{"scrape_interval", "15s"}})},
                  {"rule_files", rules ? Yaml::Texts({*rules}) : Yaml()},
                  {"scrape_configs", Yaml::List(scrapes)}})});
}

}  // namespace divvy::gen
