#include "tools/launch/exit_status.h"

#include <signal.h>
#include <string.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/exit_codes.h"

namespace divvy {
namespace {

// Empty for codes without a meaning of their own.
absl::string_view MeaningOf(int exit_code) {
  switch (exit_code) {
    case exit_codes::kUsage: return "usage";
    case exit_codes::kCorruptData: return "corrupt data";
    case exit_codes::kNoInput: return "missing input";
    case exit_codes::kInternal: return "internal error";
    case exit_codes::kResources: return "disk or memory limit";
    case exit_codes::kNotAuthorized: return "not authorized";
    case exit_codes::kConfiguration: return "bad configuration";
    case exit_codes::kOfSignal + SIGINT: return "interrupted, drained";
    case exit_codes::kTryAgain: return "peers unreachable or fenced; may be started again";
    case exit_codes::kDrained: return "drained, work remains";
    default: return "";
  }
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) {
    const char* const name = sigabbrev_np(signal);
    return name != nullptr ? absl::StrCat("was killed by SIG", name)
                           : absl::StrCat("was killed by signal ", signal);
  }
  const absl::string_view meaning = MeaningOf(exit_code);
  return meaning.empty() ? absl::StrCat("ended with exit code ", exit_code)
                         : absl::StrCat("ended with exit code ", exit_code, " (", meaning, ")");
}

}  // namespace divvy
