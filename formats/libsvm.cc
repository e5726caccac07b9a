#include "formats/libsvm.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "formats/text.h"

namespace divvy {
namespace {

constexpr absl::string_view kSpaces = " \t";
constexpr absl::string_view kRankingGroup = "qid:";

// Removes the next field from the front of `line`. Empty: nothing is left.
absl::string_view TakeField(absl::string_view& line) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  size_t begin = 0;
  while (begin < line.size() && is_space(line[begin])) ++begin;
  size_t end = begin;
  while (end < line.size() && !is_space(line[end])) ++end;
  const absl::string_view field = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return field;
}

absl::Status AddFeature(absl::string_view field, LibsvmRow& row) {
  const size_t colon = field.find(':');
  if (colon == absl::string_view::npos)
    return absl::DataLossError(absl::StrCat(QuoteForMessage(field), " is not \"id:value\""));
  const absl::string_view id_text = field.substr(0, colon), value_text = field.substr(colon + 1);
  int64_t id = 0;
  float value = 0;
  if (!TryParseInt64(id_text, &id)) return ParseInt64(id_text).status();
  if (id < 0) return absl::DataLossError(absl::StrCat("the id ", id, " is negative"));
  if (!TryParseFloat(value_text, &value) || !std::isfinite(value))
    return ParseFiniteFloat(value_text).status();
  row.ids.push_back(id);
  row.values.push_back(value);
  return absl::OkStatus();
}

// In most files the ids rise, and one comparison suffices.
absl::Status CheckNoDuplicate(const std::vector<int64_t>& ids) {
  if (std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end())
    return absl::OkStatus();
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice == sorted.end()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the id ", *twice, " occurs more than once in the line"));
}

}  // namespace

bool IsBlankLibsvmLine(absl::string_view line) {
  const size_t begin = line.find_first_not_of(kSpaces);
  return begin == absl::string_view::npos || line[begin] == '#';
}

absl::StatusOr<bool> ReadLibsvmLine(absl::string_view line, LibsvmRow& row) {
  if (IsBlankLibsvmLine(line)) return false;
  line = line.substr(0, line.find('#'));
  const absl::string_view label = TakeField(line);
  row.ids.clear();
  row.values.clear();
  ASSIGN_OR_RETURN(row.label, ParseFiniteFloat(label));
  absl::string_view field = TakeField(line);
  if (absl::ConsumePrefix(&field, kRankingGroup)) {
    RETURN_IF_ERROR(ParseInt64(field));
    field = TakeField(line);
  }
  for (; !field.empty(); field = TakeField(line)) RETURN_IF_ERROR(AddFeature(field, row));
  RETURN_IF_ERROR(CheckNoDuplicate(row.ids));
  return true;
}

}  // namespace divvy
