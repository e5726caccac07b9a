#include "task/flag_help.h"

#include <set>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace divvy {
namespace {

constexpr size_t kColumns = 100;
constexpr absl::string_view kIndent = "      ";

// "--name=value" -> "name"; "" if the word is not a flag.
absl::string_view NameIn(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return "";
  absl::ConsumePrefix(&word, "-");
  return word.substr(0, word.find('='));
}

std::string Wrapped(absl::string_view text) {
  std::string lines, line(kIndent);
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    const bool is_first = line.size() == kIndent.size();
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      absl::StrAppend(&lines, line, "\n");
      line = std::string(kIndent);
    }
    absl::StrAppend(&line, line.size() == kIndent.size() ? "" : " ", word);
  }
  return absl::StrCat(lines, line, "\n");
}

}  // namespace

bool HelpIsAsked(int argc, const char* const* argv) {
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    const absl::string_view word = argv[i];
    if (word == "--help" || word == "-help" ||
        (word == "-h" && absl::FindCommandLineFlag("h") == nullptr))
      return true;
  }
  return false;
}

std::vector<std::string> FlagsGiven(int argc, const char* const* argv) {
  std::vector<std::string> names;
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    absl::string_view name = NameIn(argv[i]);
    if (name.empty()) continue;
    absl::string_view rest = name;
    if (absl::FindCommandLineFlag(name) == nullptr && absl::ConsumePrefix(&rest, "no") &&
        absl::FindCommandLineFlag(rest) != nullptr)
      name = rest;
    names.push_back(std::string(name));
  }
  return names;
}

bool IsAbseilFlag(absl::string_view name) {
  const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
  return flag != nullptr && absl::StrContains(flag->Filename(), "absl/flags/");
}

std::vector<std::string> FlagsOfThisBinary() {
  std::set<std::string> names;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    if (!IsAbseilFlag(name)) names.insert(std::string(name));
  }
  return std::vector<std::string>(names.begin(), names.end());
}

std::string FlagHelp(absl::string_view heading, absl::Span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    if (flag != nullptr)
      absl::StrAppend(&text, "  --", name, "=", flag->DefaultValue(), "\n", Wrapped(flag->Help()));
  }
  return text.empty() ? "" : absl::StrCat(heading, "\n", text);
}

}  // namespace divvy
