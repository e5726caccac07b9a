// YAML documents, built in memory and printed by yaml-cpp.
#ifndef DIVVY_TOOLS_CTL_GEN_YAML_H_
#define DIVVY_TOOLS_CTL_GEN_YAML_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "yaml-cpp/yaml.h"

namespace divvy::gen {

// A text, a number, a bool, a list or a map. A text stays a text, whatever it looks like: "8080"
// and "yes" are printed in quotes. Copies share their content, so Add changes all of them. Not
// thread-safe.
//
//   Yaml::Map({{"kind", "Service"}, {"ports", Yaml::List({Yaml::Map({{"port", 2222}})})}})
class Yaml {
 public:
  // Nothing: a map leaves it out.
  Yaml() = default;
  Yaml(const char* text);
  Yaml(const std::string& text);
  Yaml(int number) : Yaml(int64_t{number}) {}
  Yaml(int64_t number);
  Yaml(bool value);

  using Entry = std::pair<std::string, Yaml>;
  // Printed in the order of the entries.
  static Yaml Map(std::vector<Entry> entries);
  static Yaml List(const std::vector<Yaml>& items);
  static Yaml Texts(const std::vector<std::string>& texts);
  // Printed in one line: [1, 2].
  static Yaml Numbers(const std::vector<int>& numbers);

  bool is_nothing() const { return node_.IsNull(); }
  // Adds an entry behind the others, unless `value` is nothing. REQUIRES: this is a map.
  void Add(const std::string& key, const Yaml& value);
  const YAML::Node& node() const { return node_; }

 private:
  YAML::Node node_;
};

// `comments` as lines that begin with "# ", then the documents, with "---" between them. Ends with
// a newline. REQUIRES: no comment has a newline.
std::string PrintYaml(const std::vector<std::string>& comments, const std::vector<Yaml>& documents);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_YAML_H_
