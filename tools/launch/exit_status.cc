#include "tools/launch/exit_status.h"

#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace divvy {
namespace {

// "" where the number says all there is to say.
absl::string_view MeaningOf(int exit_code) {
  switch (exit_code) {
    case 64: return "usage";
    case 65: return "corrupt data";
    case 66: return "missing input";
    case 70: return "internal error";
    case 74: return "disk or memory limit";
    case 77: return "not authorized";
    case 78: return "bad configuration";
    case 130: return "interrupted, drained";
    case 138: return "peers unreachable or fenced; may be started again";
    case 143: return "drained, work remains";
    default: return "";
  }
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) {
    const char* const name = sigabbrev_np(signal);
    return name != nullptr ? absl::StrCat("was killed by SIG", name) : absl::StrCat("was killed by signal ", signal);
  }
  const absl::string_view meaning = MeaningOf(exit_code);
  return meaning.empty() ? absl::StrCat("ended with exit code ", exit_code) : absl::StrCat("ended with exit code ", exit_code, " (", meaning, ")");
}

}  // namespace divvy
