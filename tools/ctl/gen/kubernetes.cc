#include "absl/strings/str_cat.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/pod.h"

namespace divvy::gen {
namespace {

std::string NameOf(const Job& job, const RolePlan& role) {
  return absl::StrCat(job.name, "-", role.name());
}

Yaml ServicePort(const std::string& name, int port) {
  return Yaml::Map({{"name", name}, {"port", port}, {"targetPort", name}});
}

// Gives each pod of the role a name of its own, from its start: the tasks find each other before
// they are ready.
Yaml HeadlessService(const Job& job, const RolePlan& role) {
  return Object("v1", "Service", Metadata(job, NameOf(job, role), &role),
                Yaml::Map({{"clusterIP", "None"},
                           {"publishNotReadyAddresses", true},
                           {"selector", SelectorLabels(job, &role)},
                           {"ports", Yaml::List({ServicePort("grpc", kPort),
                                                 ServicePort("metrics", kHttpPort)})}}));
}

// Never two pods of one index, and no order among them. A StatefulSet restarts every pod, whatever
// its exit code is; Kubernetes waits longer after each.
Yaml StatefulSet(const Job& job, const RolePlan& role) {
  return Object("apps/v1", "StatefulSet", Metadata(job, NameOf(job, role), &role),
                Yaml::Map({{"serviceName", NameOf(job, role)},
                           {"replicas", role.count},
                           {"podManagementPolicy", "Parallel"},
                           {"selector", Yaml::Map({{"matchLabels", SelectorLabels(job, &role)}})},
                           {"template", PodTemplate(job, role, "Always", "")}}));
}

Yaml IndexedJob(const Job& job, const RolePlan& role) {
  return Object("batch/v1", "Job", Metadata(job, NameOf(job, role), &role),
                IndexedJobSpec(job, role, role.is_in_cluster() ? NameOf(job, role) : ""));
}

}  // namespace

std::string KubernetesFile(const Job& job) {
  std::vector<Yaml> objects = ObjectsBeside(job);
  for (const RolePlan& role : job.roles) {
    if (role.is_in_cluster()) objects.push_back(HeadlessService(job, role));
    objects.push_back(role.role == Role::kPs ? StatefulSet(job, role) : IndexedJob(job, role));
  }
  std::vector<std::string> comments =
      HowToApply(job, "kubernetes", absl::StrCat("job/", job.name, "-chief"), "Complete");
  comments.push_back(
      "For Kubernetes 1.29 and later (a Job that gives up one pod). Parameter servers run on after "
      "the");
  comments.push_back(
      "end of the job, and after a failure of the coordinator workers do, too, until you delete "
      "them.");
  return PrintYaml(comments, objects);
}

}  // namespace divvy::gen
