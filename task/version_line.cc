#include "task/version_line.h"

#include "absl/strings/str_cat.h"
#include "base/version.h"

namespace divvy {

std::string VersionLine(absl::string_view program, absl::string_view commit) {
  return absl::StrCat(program, " ", kVersion,
                      commit.empty() ? "" : absl::StrCat(" (commit ", commit, ")"), "\n");
}

}  // namespace divvy
