// The parts of Kubernetes' schemas that `divvyctl gen` uses, written down from the API references
// of apps/v1, batch/v1, policy/v1, networking.k8s.io/v1, core/v1 (1.29), kubeflow.org/v1 (TFJob)
// and jobset.x-k8s.io/v1alpha2. There is no cluster in the tests that could check the files.
#ifndef DIVVY_TOOLS_CTL_GEN_TESTING_KUBE_SCHEMA_H_
#define DIVVY_TOOLS_CTL_GEN_TESTING_KUBE_SCHEMA_H_

#include <string>
#include <vector>

#include "yaml-cpp/yaml.h"

namespace divvy::gen {

// What is wrong with an object, each with its path: an unknown kind, an unknown field, a missing
// one, or a value of another type. Types are found as YAML 1.1 does: a plain `yes` is a bool.
std::vector<std::string> ProblemsOf(const YAML::Node& object);

// Whether a reader takes the scalar for a text.
bool IsText(const YAML::Node& scalar);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_TESTING_KUBE_SCHEMA_H_
