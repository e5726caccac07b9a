#include "absl/strings/str_cat.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/pod.h"

namespace divvy::gen {
namespace {

// The JobSet controller sets hostname and subdomain of the pods.
Yaml ReplicatedJob(const Job& job, const RolePlan& role) {
  return Yaml::Map({{"name", role.name()},
                    {"replicas", 1},
                    {"template", Yaml::Map({{"spec", IndexedJobSpec(job, role, "")}})}});
}

}  // namespace

std::string JobSetFile(const Job& job) {
  std::vector<Yaml> replicated;
  // The JobSet ends with the coordinator, and with the evaluator, which then scores the last
  // checkpoint.
  std::vector<std::string> awaited;
  for (const RolePlan& role : job.roles) {
    replicated.push_back(ReplicatedJob(job, role));
    if (role.is_single()) awaited.push_back(role.name());
  }
  std::vector<Yaml> objects = ObjectsBeside(job);
  objects.push_back(Object(
      "jobset.x-k8s.io/v1alpha2", "JobSet", Metadata(job, job.name),
      Yaml::Map({{"network", Yaml::Map({{"enableDNSHostnames", true},
                                        {"subdomain", job.name},
                                        {"publishNotReadyAddresses", true}})},
                 {"successPolicy",
                  Yaml::Map({{"operator", "All"}, {"targetReplicatedJobs", Yaml::Texts(awaited)}})},
                 // Jobs restart their pods. A Job that fails ends the whole JobSet.
                 {"failurePolicy", Yaml::Map({{"maxRestarts", 0}})},
                 {"replicatedJobs", Yaml::List(replicated)}})));
  return PrintYaml(HowToApply(job, "jobset", absl::StrCat("jobset/", job.name), "Completed"),
                   objects);
}

}  // namespace divvy::gen
