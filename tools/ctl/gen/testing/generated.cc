#include "tools/ctl/gen/testing/generated.h"

#include "absl/strings/ascii.h"
#include "gtest/gtest.h"

namespace divvy::gen {
namespace {

Pods PodsOf(const YAML::Node& pod_template, const std::string& role, int count) {
  return {role, count, pod_template["spec"], pod_template["metadata"]["labels"]};
}

Pods PodsOfJob(const YAML::Node& spec, const std::string& role) {
  return PodsOf(spec["template"], role, spec["completions"].as<int>());
}

}  // namespace

GenOptions Digits() {
  GenOptions options;
  options.command = {"./digits", "--epochs=3"};
  return options;
}

std::vector<YAML::Node> Documents(Kind kind, const GenOptions& options) {
  const absl::StatusOr<std::string> text = Generate(kind, options);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? YAML::LoadAll(*text) : std::vector<YAML::Node>();
}

YAML::Node Find(const std::vector<YAML::Node>& documents, const std::string& kind,
                const std::string& name) {
  for (const YAML::Node& document : documents) {
    if (document["kind"].as<std::string>() == kind &&
        document["metadata"]["name"].as<std::string>() == name)
      return document;
  }
  ADD_FAILURE() << "no " << kind << " " << name;
  return YAML::Node(YAML::NodeType::Map);
}

std::vector<std::string> Texts(const YAML::Node& list) {
  return list ? list.as<std::vector<std::string>>() : std::vector<std::string>();
}

std::string Variable(const YAML::Node& container, const std::string& name) {
  for (const YAML::Node& variable : container["env"]) {
    if (variable["name"].as<std::string>() == name) return variable["value"].as<std::string>();
  }
  return "";
}

std::vector<Pods> PodsIn(const std::vector<YAML::Node>& documents) {
  std::vector<Pods> pods;
  for (const YAML::Node& document : documents) {
    const std::string kind = document["kind"].as<std::string>();
    const YAML::Node spec = document["spec"];
    const YAML::Node labels = document["metadata"]["labels"];
    if (kind == "StatefulSet")
      pods.push_back(PodsOf(spec["template"], "ps", spec["replicas"].as<int>()));
    if (kind == "Job")
      pods.push_back(PodsOfJob(spec, labels["app.kubernetes.io/component"].as<std::string>()));
    for (const YAML::Node& job : spec["replicatedJobs"])
      pods.push_back(PodsOfJob(job["template"]["spec"], job["name"].as<std::string>()));
    for (const auto& replicas : spec["tfReplicaSpecs"])
      pods.push_back(PodsOf(replicas.second["template"],
                            absl::AsciiStrToLower(replicas.first.as<std::string>()),
                            replicas.second["replicas"].as<int>()));
  }
  return pods;
}

}  // namespace divvy::gen
