// One function for each kind of file. Each is pure.
#ifndef DIVVY_TOOLS_CTL_GEN_FORMATS_H_
#define DIVVY_TOOLS_CTL_GEN_FORMATS_H_

#include <string>

#include "tools/ctl/gen/job.h"

namespace divvy::gen {

// Kubernetes' own objects (1.29 and later): a StatefulSet for the parameter servers, Indexed Jobs
// for the other roles, headless Services, claims, a PodDisruptionBudget and a NetworkPolicy.
std::string KubernetesFile(const Job& job);
// A TFJob (kubeflow.org/v1) for Kubeflow's training operator, which sets TF_CONFIG.
std::string TfJobFile(const Job& job);
// A JobSet (jobset.x-k8s.io/v1alpha2): a replicated job for each role.
std::string JobSetFile(const Job& job);
// A batch script. It learns the nodes when it runs, and makes TF_CONFIG of them.
std::string SlurmFile(const Job& job);
// A unit for each role, and a file with the environment of each task. A line "# file: NAME" comes
// before each.
std::string SystemdFiles(const Job& job);
// Prometheus' configuration for a job of job.kind.
std::string PrometheusFile(const Job& job);
// For docker-compose from 1.27 (with GPUs: 1.28), and for Compose v2.
std::string ComposeFile(const Job& job);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_FORMATS_H_
