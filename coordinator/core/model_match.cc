#include "coordinator/core/model_match.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

// "a, b, c, d and 3 more".
std::string FirstFew(const std::vector<std::string>& names) {
  constexpr size_t kShown = 4;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size()));
  const std::string shown = absl::StrJoin(names.begin(), end, ", ");
  return names.size() <= kShown ? shown
                                : absl::StrCat(shown, " and ", names.size() - kShown, " more");
}

std::string Variables(size_t count) {
  return absl::StrCat(count, count == 1 ? " variable" : " variables");
}

}  // namespace

ModelMatch MatchModel(const std::vector<std::string>& declared,
                      const std::vector<std::string>& saved) {
  const std::set<std::string> wanted(declared.begin(), declared.end()),
      there(saved.begin(), saved.end());
  ModelMatch match;
  std::set_difference(wanted.begin(), wanted.end(), there.begin(), there.end(),
                      std::back_inserter(match.not_found));
  std::set_difference(there.begin(), there.end(), wanted.begin(), wanted.end(),
                      std::back_inserter(match.unclaimed));
  match.any_found = match.not_found.size() < wanted.size();
  return match;
}

absl::Status CheckSameModel(const ModelMatch& match, absl::string_view where) {
  if (match.any_found || match.not_found.empty() || match.unclaimed.empty())
    return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("no variable of this program is in ", where, ": it has ",
                   FirstFew(match.unclaimed), ", and the program ", FirstFew(match.not_found),
                   ". Give this model a --checkpoint_dir (and --state_dir) of its own; WarmStart "
                   "takes variables under other names"));
}

std::string DescribeMatch(const ModelMatch& match, absl::string_view where) {
  std::vector<std::string> parts;
  if (!match.not_found.empty()) {
    parts.push_back(absl::StrCat(
        Variables(match.not_found.size()),
        " of the program not in it, with initial values: ", FirstFew(match.not_found)));
  }
  if (!match.unclaimed.empty()) {
    parts.push_back(
        absl::StrCat(Variables(match.unclaimed.size()),
                     " in it that the program has not created: ", FirstFew(match.unclaimed)));
  }
  return parts.empty() ? "" : absl::StrCat(where, ": ", absl::StrJoin(parts, "; "));
}

}  // namespace divvy
