#include "tools/ctl/gen/quote.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace divvy::gen {

bool IsHarmless(absl::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::string_view("/._-=:,+@").find(c) != std::string::npos;
  });
}

std::string ShellWord(absl::string_view word) {
  if (IsHarmless(word)) return std::string(word);
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

std::string UnitWord(absl::string_view word) {
  if (IsHarmless(word)) return std::string(word);
  return absl::StrCat(
      "\"", absl::StrReplaceAll(word, {{"\\", "\\\\"}, {"\"", "\\\""}, {"%", "%%"}, {"$", "$$"}}),
      "\"");
}

}  // namespace divvy::gen
