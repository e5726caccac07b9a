#include "tools/ctl/gen/yaml.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace divvy::gen {
namespace {

// The tag that YAML gives to a scalar without quotes, whose type the reader finds out. A scalar
// without it is a text.
constexpr char kTagOfPlain[] = "?";

YAML::Node Plain(const std::string& text) {
  YAML::Node node(text);
  node.SetTag(kTagOfPlain);
  return node;
}

// Whether YAML 1.1 takes the word for a bool or for null. Readers in Go and Python follow 1.1.
bool IsReserved(absl::string_view text) {
  constexpr absl::string_view kWords[] = {"y",   "n",    "yes",   "no",  "on",
                                          "off", "true", "false", "null"};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [text](absl::string_view word) { return absl::EqualsIgnoreCase(text, word); });
}

// Whether every reader takes the text without quotes for a text. A text that begins with a digit, a
// sign or a dot may be a number or a time.
bool NeedsNoQuotes(absl::string_view text) {
  const auto is_harmless = [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("/._-=$():", absl::string_view(&c, 1));
  };
  const bool is_flag = absl::StartsWith(text, "--") && text.size() > 2;
  return !text.empty() && text.back() != ':' &&
         (absl::ascii_isalpha(text[0]) || text[0] == '/' || is_flag) &&
         std::all_of(text.begin(), text.end(), is_harmless) && !IsReserved(text);
}

void Emit(const YAML::Node& node, YAML::Emitter& out);

void EmitScalar(const YAML::Node& node, YAML::Emitter& out) {
  const std::string& text = node.Scalar();
  if (node.Tag() != kTagOfPlain && !NeedsNoQuotes(text)) {
    // In single quotes JSON needs no backslashes.
    out << (absl::StrContains(text, "\"") ? YAML::SingleQuoted : YAML::DoubleQuoted);
  }
  out << text;
}

void EmitMap(const YAML::Node& node, YAML::Emitter& out) {
  if (node.size() == 0) out << YAML::Flow;
  out << YAML::BeginMap;
  for (const auto& entry : node) {
    out << YAML::Key;
    EmitScalar(entry.first, out);
    out << YAML::Value;
    Emit(entry.second, out);
  }
  out << YAML::EndMap;
}

void Emit(const YAML::Node& node, YAML::Emitter& out) {
  if (node.IsMap()) return EmitMap(node, out);
  if (!node.IsSequence()) return EmitScalar(node, out);
  if (node.size() == 0 || node.Style() == YAML::EmitterStyle::Flow) out << YAML::Flow;
  out << YAML::BeginSeq;
  for (const YAML::Node& item : node) Emit(item, out);
  out << YAML::EndSeq;
}

}  // namespace

Yaml::Yaml(const char* text) : node_(std::string(text)) {}
Yaml::Yaml(const std::string& text) : node_(text) {}
Yaml::Yaml(int64_t number) : node_(Plain(absl::StrCat(number))) {}
Yaml::Yaml(bool value) : node_(Plain(value ? "true" : "false")) {}

Yaml Yaml::Map(std::vector<Entry> entries) {
  Yaml map;
  map.node_ = YAML::Node(YAML::NodeType::Map);
  for (const auto& [key, value] : entries) map.Add(key, value);
  return map;
}

Yaml Yaml::List(const std::vector<Yaml>& items) {
  Yaml list;
  list.node_ = YAML::Node(YAML::NodeType::Sequence);
  for (const Yaml& item : items) list.node_.push_back(item.node_);
  return list;
}

Yaml Yaml::Texts(const std::vector<std::string>& texts) {
  return List(std::vector<Yaml>(texts.begin(), texts.end()));
}

Yaml Yaml::Numbers(const std::vector<int>& numbers) {
  Yaml list = List(std::vector<Yaml>(numbers.begin(), numbers.end()));
  list.node_.SetStyle(YAML::EmitterStyle::Flow);
  return list;
}

void Yaml::Add(const std::string& key, const Yaml& value) {
  if (!value.is_nothing()) node_.force_insert(key, value.node_);
}

std::string PrintYaml(const std::vector<std::string>& comments,
                      const std::vector<Yaml>& documents) {
  std::string text;
  for (const std::string& comment : comments) absl::StrAppend(&text, "# ", comment, "\n");
  for (size_t i = 0; i < documents.size(); ++i) {
    YAML::Emitter out;
    Emit(documents[i].node(), out);
    absl::StrAppend(&text, i == 0 ? "" : "---\n", out.c_str(), "\n");
  }
  return text;
}

}  // namespace divvy::gen
