// The parts that all of Kubernetes' formats have in common: pods, Jobs, and what stands beside
// them.
#ifndef DIVVY_TOOLS_CTL_GEN_POD_H_
#define DIVVY_TOOLS_CTL_GEN_POD_H_

#include <string>
#include <vector>

#include "tools/ctl/gen/job.h"
#include "tools/ctl/gen/yaml.h"

namespace divvy::gen {

// The metadata of an object that belongs to the whole job, or to one of its roles. Adds the
// namespace, if there is one.
Yaml Metadata(const Job& job, const std::string& name, const RolePlan* role = nullptr);
// The labels by which objects select the pods of the job, or of one role.
Yaml SelectorLabels(const Job& job, const RolePlan* role = nullptr);

// An object of Kubernetes.
Yaml Object(const std::string& api_version, const std::string& kind, const Yaml& metadata,
            const Yaml& spec);

// A template of pods (PodTemplateSpec). `restart_policy` is "" where Kubernetes' operator sets it.
// `subdomain` is the headless Service that gives the pods their names; "": none.
Yaml PodTemplate(const Job& job, const RolePlan& role, const std::string& restart_policy,
                 const std::string& subdomain);
// The spec of an Indexed Job (batch/v1) with a pod for each task of the role. It restarts a pod
// that exits with 128 or more. With a permanent code, a worker alone is given up, and the others go
// on; for another role the Job fails.
Yaml IndexedJobSpec(const Job& job, const RolePlan& role, const std::string& subdomain);

// The claims, the PodDisruptionBudget of the parameter servers, and the NetworkPolicy: documents of
// their own.
std::vector<Yaml> ObjectsBeside(const Job& job);

// What to do before `kubectl apply`, and after the job's end. `object` ("job/digits-chief") has the
// condition `complete` or Failed at the end.
std::vector<std::string> HowToApply(const Job& job, const std::string& kind,
                                    const std::string& object, const std::string& complete);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_POD_H_
