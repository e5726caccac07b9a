#include "tools/ctl/gen/testing/kube_schema.h"

#include <algorithm>
#include <map>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace divvy::gen {
namespace {

// A type: "int", "bool", "text"; "size" (8Gi); "name" (an object's name); "int|text"; "[]T", a
// list;
// "{}T", a map; "a,b", one of these texts; or a key of kSchemas.
struct Field {
  std::string name, type;
  bool is_required = false;
};
using Schema = std::vector<Field>;
constexpr bool kRequired = true;

// The keys of objects are "apiVersion Kind".
const std::map<std::string, Schema>& Schemas() {
  static const auto& schemas = *new std::map<std::string, Schema>{
      {"v1 Service", {{"metadata", "Metadata", kRequired}, {"spec", "ServiceSpec", kRequired}}},
      {"v1 PersistentVolumeClaim",
       {{"metadata", "Metadata", kRequired}, {"spec", "ClaimSpec", kRequired}}},
      {"apps/v1 StatefulSet",
       {{"metadata", "Metadata", kRequired}, {"spec", "StatefulSetSpec", kRequired}}},
      {"batch/v1 Job", {{"metadata", "Metadata", kRequired}, {"spec", "JobSpec", kRequired}}},
      {"policy/v1 PodDisruptionBudget",
       {{"metadata", "Metadata", kRequired}, {"spec", "BudgetSpec", kRequired}}},
      {"networking.k8s.io/v1 NetworkPolicy",
       {{"metadata", "Metadata", kRequired}, {"spec", "PolicySpec", kRequired}}},
      {"kubeflow.org/v1 TFJob",
       {{"metadata", "Metadata", kRequired}, {"spec", "TFJobSpec", kRequired}}},
      {"jobset.x-k8s.io/v1alpha2 JobSet",
       {{"metadata", "Metadata", kRequired}, {"spec", "JobSetSpec", kRequired}}},
      {"Metadata", {{"name", "name", kRequired}, {"namespace", "name"}, {"labels", "{}label"}}},
      {"Selector", {{"matchLabels", "{}label", kRequired}}},
      // ---- core
      {"ServiceSpec",
       {{"clusterIP", "None", kRequired},
        {"publishNotReadyAddresses", "bool"},
        {"selector", "{}label", kRequired},
        {"ports", "[]ServicePort", kRequired}}},
      {"ServicePort",
       {{"name", "port name", kRequired}, {"port", "int", kRequired}, {"targetPort", "int|text"}}},
      {"ClaimSpec",
       {{"accessModes", "[]ReadWriteOnce,ReadWriteMany", kRequired},
        {"storageClassName", "name"},
        {"resources", "ClaimResources", kRequired}}},
      {"ClaimResources", {{"requests", "{}size", kRequired}}},
      // ---- apps, batch, policy, networking
      {"StatefulSetSpec",
       {{"serviceName", "name", kRequired},
        {"replicas", "int"},
        {"podManagementPolicy", "OrderedReady,Parallel"},
        {"selector", "Selector", kRequired},
        {"template", "PodTemplate", kRequired}}},
      {"JobSpec",
       {{"completionMode", "NonIndexed,Indexed"},
        {"completions", "int"},
        {"parallelism", "int"},
        {"backoffLimit", "int"},
        {"backoffLimitPerIndex", "int"},
        {"podFailurePolicy", "FailurePolicy"},
        {"template", "PodTemplate", kRequired}}},
      {"FailurePolicy", {{"rules", "[]FailureRule", kRequired}}},
      {"FailureRule",
       {{"action", "FailJob,FailIndex,Ignore,Count", kRequired},
        {"onExitCodes", "ExitCodes"},
        {"onPodConditions", "[]PodCondition"}}},
      {"ExitCodes",
       {{"containerName", "name"},
        {"operator", "In,NotIn", kRequired},
        {"values", "[]int", kRequired}}},
      {"PodCondition", {{"type", "text", kRequired}, {"status", "True,False,Unknown", kRequired}}},
      {"BudgetSpec",
       {{"maxUnavailable", "int|text"},
        {"minAvailable", "int|text"},
        {"selector", "Selector", kRequired}}},
      {"PolicySpec",
       {{"podSelector", "Selector", kRequired},
        {"policyTypes", "[]Ingress,Egress"},
        {"ingress", "[]IngressRule"}}},
      {"IngressRule", {{"from", "[]Peer"}, {"ports", "[]PolicyPort"}}},
      {"Peer", {{"podSelector", "Selector"}}},
      {"PolicyPort", {{"protocol", "TCP,UDP"}, {"port", "int|text"}}},
      // ---- pods
      {"PodTemplate", {{"metadata", "PodMetadata"}, {"spec", "PodSpec", kRequired}}},
      {"PodMetadata", {{"labels", "{}label"}}},
      {"PodSpec",
       {{"restartPolicy", "Always,OnFailure,Never"},
        {"subdomain", "name"},
        {"automountServiceAccountToken", "bool"},
        {"enableServiceLinks", "bool"},
        {"terminationGracePeriodSeconds", "int"},
        {"securityContext", "PodSecurity"},
        {"containers", "[]Container", kRequired},
        {"volumes", "[]Volume"}}},
      {"PodSecurity",
       {{"runAsNonRoot", "bool"},
        {"runAsUser", "int"},
        {"runAsGroup", "int"},
        {"fsGroup", "int"},
        {"fsGroupChangePolicy", "OnRootMismatch,Always"},
        {"seccompProfile", "Seccomp"}}},
      {"Seccomp", {{"type", "RuntimeDefault,Unconfined", kRequired}}},
      {"Container",
       {{"name", "name", kRequired},
        {"image", "text", kRequired},
        {"command", "[]text"},
        {"args", "[]text"},
        {"env", "[]Variable"},
        {"ports", "[]ContainerPort"},
        {"resources", "Resources"},
        {"securityContext", "ContainerSecurity"},
        {"startupProbe", "Probe"},
        {"readinessProbe", "Probe"},
        {"livenessProbe", "Probe"},
        {"volumeMounts", "[]Mount"}}},
      {"Variable", {{"name", "text", kRequired}, {"value", "text"}, {"valueFrom", "Source"}}},
      {"Source", {{"fieldRef", "FieldRef"}}},
      {"FieldRef", {{"fieldPath", "text", kRequired}}},
      {"ContainerPort", {{"name", "port name"}, {"containerPort", "int", kRequired}}},
      {"Resources", {{"requests", "{}size"}, {"limits", "{}size"}}},
      {"ContainerSecurity",
       {{"allowPrivilegeEscalation", "bool"},
        {"readOnlyRootFilesystem", "bool"},
        {"capabilities", "Capabilities"}}},
      {"Capabilities", {{"drop", "[]text"}}},
      {"Probe",
       {{"httpGet", "HttpGet"},
        {"periodSeconds", "int"},
        {"timeoutSeconds", "int"},
        {"failureThreshold", "int"}}},
      {"HttpGet", {{"path", "text"}, {"port", "int|text", kRequired}}},
      {"Mount",
       {{"name", "name", kRequired},
        {"mountPath", "text", kRequired},
        {"subPath", "text"},
        {"subPathExpr", "text"},
        {"readOnly", "bool"}}},
      {"Volume",
       {{"name", "name", kRequired},
        {"emptyDir", "EmptyDir"},
        {"secret", "SecretVolume"},
        {"persistentVolumeClaim", "ClaimVolume"}}},
      {"EmptyDir", {{"medium", "Memory"}, {"sizeLimit", "size"}}},
      {"SecretVolume", {{"secretName", "name"}, {"defaultMode", "int"}}},
      {"ClaimVolume", {{"claimName", "name", kRequired}}},
      // ---- Kubeflow
      {"TFJobSpec", {{"runPolicy", "RunPolicy"}, {"tfReplicaSpecs", "TFReplicaSpecs", kRequired}}},
      {"RunPolicy", {{"cleanPodPolicy", "All,Running,None"}, {"backoffLimit", "int"}}},
      {"TFReplicaSpecs",
       {{"Chief", "ReplicaSpec"},
        {"PS", "ReplicaSpec"},
        {"Worker", "ReplicaSpec"},
        {"Evaluator", "ReplicaSpec"}}},
      {"ReplicaSpec",
       {{"replicas", "int"},
        {"restartPolicy", "Always,OnFailure,Never,ExitCode"},
        {"template", "PodTemplate", kRequired}}},
      // ---- JobSet
      {"JobSetSpec",
       {{"network", "Network"},
        {"successPolicy", "SuccessPolicy"},
        {"failurePolicy", "JobSetFailurePolicy"},
        {"replicatedJobs", "[]ReplicatedJob", kRequired}}},
      {"Network",
       {{"enableDNSHostnames", "bool"},
        {"subdomain", "name"},
        {"publishNotReadyAddresses", "bool"}}},
      {"SuccessPolicy", {{"operator", "All,Any", kRequired}, {"targetReplicatedJobs", "[]name"}}},
      {"JobSetFailurePolicy", {{"maxRestarts", "int"}}},
      {"ReplicatedJob",
       {{"name", "name", kRequired}, {"replicas", "int"}, {"template", "JobTemplate", kRequired}}},
      {"JobTemplate", {{"spec", "JobSpec", kRequired}}},
  };
  return schemas;
}

bool Matches(const std::string& text, const char* pattern) {
  return std::regex_match(text, std::regex(pattern));
}

bool IsInteger(const YAML::Node& node) {
  return node.Tag() == "?" && Matches(node.Scalar(), "0|[1-9][0-9]*");
}
bool IsBool(const YAML::Node& node) {
  return node.Tag() == "?" && Matches(node.Scalar(), "true|false");
}

bool IsOneOf(const std::string& text, const std::string& words) {
  return absl::StrContains(absl::StrCat(",", words, ","), absl::StrCat(",", text, ","));
}

// nullopt-like: "" for a scalar of this type.
std::string ProblemOfScalar(const YAML::Node& node, const std::string& type) {
  if (!node.IsScalar()) return "no scalar";
  const std::string& text = node.Scalar();
  bool is_good = false;
  if (type == "int") {
    is_good = IsInteger(node);
  } else if (type == "bool") {
    is_good = IsBool(node);
  } else if (type == "int|text") {
    is_good = IsInteger(node) || IsText(node);
  } else if (type == "size") {
    is_good = IsInteger(node) || (IsText(node) && Matches(text, "[0-9]+(Ki|Mi|Gi|Ti)"));
  } else if (type == "name") {
    is_good = IsText(node) && text.size() <= 63 && Matches(text, "[a-z]([-a-z0-9]*[a-z0-9])?");
  } else if (type == "port name") {
    is_good = IsText(node) && text.size() <= 15 && Matches(text, "[a-z]([-a-z0-9]*[a-z0-9])?");
  } else if (type == "label") {
    is_good = IsText(node) && text.size() <= 63 &&
              Matches(text, "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?");
  } else {
    is_good = IsText(node) && (type == "text" || IsOneOf(text, type));
  }
  return is_good ? "" : absl::StrCat("\"", text, "\" is no ", type);
}

void Check(const YAML::Node& node, const std::string& type, const std::string& path,
           std::vector<std::string>& problems);

void CheckFields(const YAML::Node& node, const Schema& schema, const std::string& path,
                 std::vector<std::string>& problems) {
  if (!node.IsMap()) return problems.push_back(absl::StrCat(path, ": no map"));
  for (const Field& field : schema) {
    if (field.is_required && !node[field.name])
      problems.push_back(absl::StrCat(path, ".", field.name, ": missing"));
  }
  for (const auto& entry : node) {
    const std::string& name = entry.first.Scalar();
    const auto field = std::find_if(schema.begin(), schema.end(),
                                    [&name](const Field& field) { return field.name == name; });
    if (field == schema.end()) {
      problems.push_back(absl::StrCat(path, ".", name, ": unknown"));
    } else {
      Check(entry.second, field->type, absl::StrCat(path, ".", name), problems);
    }
  }
}

void Check(const YAML::Node& node, const std::string& type, const std::string& path,
           std::vector<std::string>& problems) {
  absl::string_view of = type;
  if (absl::ConsumePrefix(&of, "[]")) {
    if (!node.IsSequence() || node.size() == 0)
      return problems.push_back(absl::StrCat(path, ": no list, or an empty one"));
    int index = 0;
    for (const YAML::Node& item : node)
      Check(item, std::string(of), absl::StrCat(path, "[", index++, "]"), problems);
  } else if (absl::ConsumePrefix(&of, "{}")) {
    if (!node.IsMap()) return problems.push_back(absl::StrCat(path, ": no map"));
    for (const auto& entry : node)
      Check(entry.second, std::string(of), absl::StrCat(path, ".", entry.first.Scalar()), problems);
  } else if (const auto schema = Schemas().find(type); schema != Schemas().end()) {
    CheckFields(node, schema->second, path, problems);
  } else if (const std::string problem = ProblemOfScalar(node, type); !problem.empty()) {
    problems.push_back(absl::StrCat(path, ": ", problem));
  }
}

}  // namespace

bool IsText(const YAML::Node& scalar) {
  if (scalar.Tag() != "?") return true;  // quoted
  return !std::regex_match(
      scalar.Scalar(),
      std::regex(
          "~?|null|y|n|yes|no|on|off|true|false|[-+.]?[0-9][-+0-9a-fxo_.:]*|[-+]?\\.(inf|nan)",
          std::regex::icase));
}

std::vector<std::string> ProblemsOf(const YAML::Node& object) {
  const std::string kind = absl::StrCat(object["apiVersion"].as<std::string>(""), " ",
                                        object["kind"].as<std::string>(""));
  const auto schema = Schemas().find(kind);
  if (schema == Schemas().end()) return {absl::StrCat("unknown kind ", kind)};
  Schema fields = schema->second;
  fields.push_back({"apiVersion", "text", kRequired});
  fields.push_back({"kind", "text", kRequired});
  std::vector<std::string> problems;
  CheckFields(object, fields, kind, problems);
  return problems;
}

}  // namespace divvy::gen
