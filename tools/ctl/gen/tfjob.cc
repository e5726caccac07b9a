#include "absl/strings/str_cat.h"
#include "tools/ctl/gen/formats.h"
#include "tools/ctl/gen/pod.h"

namespace divvy::gen {
namespace {

// The operator's names of the roles.
std::string ReplicaType(const RolePlan& role) {
  switch (role.role) {
    case Role::kChief: return "Chief";
    case Role::kPs: return "PS";
    case Role::kWorker: return "Worker";
    case Role::kEvaluator: break;
  }
  return "Evaluator";
}

// ExitCode restarts a pod that exits with 128 or more, which is our own rule.
Yaml ReplicaSpec(const Job& job, const RolePlan& role) {
  return Yaml::Map({{"replicas", role.count},
                    {"restartPolicy", "ExitCode"},
                    {"template", PodTemplate(job, role, "", "")}});
}

}  // namespace

std::string TfJobFile(const Job& job) {
  Yaml replicas = Yaml::Map({});
  for (const RolePlan& role : job.roles) replicas.Add(ReplicaType(role), ReplicaSpec(job, role));
  std::vector<Yaml> objects = ObjectsBeside(job);
  objects.push_back(Object("kubeflow.org/v1", "TFJob", Metadata(job, job.name),
                           Yaml::Map({{"runPolicy", Yaml::Map({{"cleanPodPolicy", "Running"},
                                                               {"backoffLimit", kRestarts}})},
                                      {"tfReplicaSpecs", replicas}})));
  return PrintYaml(HowToApply(job, "tfjob", absl::StrCat("tfjob/", job.name), "Succeeded"),
                   objects);
}

}  // namespace divvy::gen
