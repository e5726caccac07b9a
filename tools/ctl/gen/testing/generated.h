// Generated files, read back for tests.
#ifndef DIVVY_TOOLS_CTL_GEN_TESTING_GENERATED_H_
#define DIVVY_TOOLS_CTL_GEN_TESTING_GENERATED_H_

#include <string>
#include <vector>

#include "tools/ctl/gen/generate.h"
#include "yaml-cpp/yaml.h"

namespace divvy::gen {

// `./digits --epochs=3`, and nothing else.
GenOptions Digits();

// The documents of a generated file. An empty list, and a failure of the test, if there is an
// error.
std::vector<YAML::Node> Documents(Kind kind, const GenOptions& options);
// The object of this kind and name. A failure of the test if there is none.
YAML::Node Find(const std::vector<YAML::Node>& documents, const std::string& kind,
                const std::string& name);

// A list of texts.
std::vector<std::string> Texts(const YAML::Node& list);
// The value of an environment variable in a container; "" if there is none.
std::string Variable(const YAML::Node& container, const std::string& name);

// A job on Kubernetes, whatever its format: the pods of each role, by the role's name.
struct Pods {
  std::string role;
  int count = 0;
  YAML::Node template_spec;  // PodSpec
  YAML::Node labels;         // of the pods
  YAML::Node container() const { return template_spec["containers"][0]; }
};
std::vector<Pods> PodsIn(const std::vector<YAML::Node>& documents);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_TESTING_GENERATED_H_
