#include "tools/ctl/gen/arguments.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cluster/config_json.h"

namespace divvy::gen {
namespace {

// "--name=value", "-name", "--noname" -> "name". Empty for a word that is no flag.
absl::string_view FlagName(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return "";
  absl::ConsumePrefix(&word, "-");
  return word.substr(0, word.find('='));
}

struct Unit {
  absl::string_view suffix;
  int64_t bytes;
};
// The largest first.
constexpr Unit kUnits[] = {{"Ti", int64_t{1} << 40},
                           {"Gi", int64_t{1} << 30},
                           {"Mi", int64_t{1} << 20},
                           {"Ki", int64_t{1} << 10}};

}  // namespace

Arguments::Arguments(const std::vector<std::string>& words) {
  for (size_t i = 0; i < words.size(); ++i) {
    Argument argument{{words[i]}, FindOwnFlag(FlagName(words[i])), ""};
    const size_t equals = words[i].find('=');
    if (equals != words[i].npos) argument.value = words[i].substr(equals + 1);
    const bool value_follows = argument.own != nullptr && !argument.own->is_switch &&
                               equals == words[i].npos && i + 1 < words.size();
    if (value_follows) argument.words.push_back(argument.value = words[++i]);
    arguments_.push_back(std::move(argument));
  }
}

std::vector<std::string> Arguments::WordsFor(Role role) const {
  std::vector<std::string> words;
  for (const Argument& argument : arguments_) {
    const uint8_t users =
        argument.own != nullptr ? argument.own->users : kUsedByChief | kUsedByEvaluator;
    if ((users & UserOf(role)) != 0)
      words.insert(words.end(), argument.words.begin(), argument.words.end());
  }
  return words;
}

std::optional<std::string> Arguments::ValueOf(absl::string_view name) const {
  std::optional<std::string> value;
  for (const Argument& argument : arguments_) {
    if (argument.own != nullptr && argument.own->name == name) value = argument.value;
  }
  return value;
}

std::vector<absl::string_view> Arguments::OwnNames() const {
  std::vector<absl::string_view> names;
  for (const Argument& argument : arguments_) {
    if (argument.own != nullptr &&
        std::find(names.begin(), names.end(), argument.own->name) == names.end())
      names.push_back(argument.own->name);
  }
  return names;
}

bool Arguments::HasFlag(absl::string_view name) const {
  return std::any_of(arguments_.begin(), arguments_.end(), [name](const Argument& argument) {
    return FlagName(argument.words[0]) == name;
  });
}

absl::StatusOr<int64_t> ParseSize(absl::string_view flag, absl::string_view text) {
  absl::string_view number = text;
  int64_t unit = 1;
  for (const Unit& candidate : kUnits) {
    if (absl::ConsumeSuffix(&number, candidate.suffix)) {
      unit = candidate.bytes;
      break;
    }
  }
  int64_t count = 0;
  const bool has_only_digits = std::all_of(number.begin(), number.end(), absl::ascii_isdigit);
  if (!has_only_digits || !absl::SimpleAtoi(number, &count) || count < 1 ||
      count > kMaxBytes / unit) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, "=", EscapeText(text), ": wanted a size such as 8Gi or 512Mi (Ki, Mi, Gi, Ti)"));
  }
  return count * unit;
}

std::string SizeText(int64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes >= unit.bytes && bytes % unit.bytes == 0)
      return absl::StrCat(bytes / unit.bytes, unit.suffix);
  }
  return absl::StrCat(bytes);
}

}  // namespace divvy::gen
