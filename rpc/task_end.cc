#include "rpc/task_end.h"

#include <string.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/terminal.h"
#include "cluster/error.h"

namespace divvy {

constexpr int kExitConfiguration = 78;   // EX_CONFIG

int AwaitEnd(Termination& termination, absl::string_view task, const std::function<void()>& drain, absl::Duration drain_timeout) {
  const Termination::Event event = termination.Wait();
  if (event.signal == 0) {
    if (!event.why.empty()) DIVVY_LOG(ERROR) << task << ": " << event.why;
    return event.exit_code;
  }
  DIVVY_LOG(INFO) << task << ": " << strsignal(event.signal) << ": draining, for " << absl::FormatDuration(drain_timeout) << " at most; a second signal ends it at once";
  drain();
  Termination::LetSignalsKill();
  if (!termination.WaitFor(drain_timeout)) DIVVY_LOG(WARNING) << task << ": not drained after " << absl::FormatDuration(drain_timeout);
  return event.exit_code;
}

int RefuseToStart(const absl::Status& why) {
  WriteStandardError(absl::StrCat(why.message(), "\n"));
  const bool configuration = (absl::IsInvalidArgument(why) || absl::IsFailedPrecondition(why)) && ReasonOf(why) == Reason::kNone;
  return configuration ? kExitConfiguration : ExitCodeOf(why);
}

}  // namespace divvy
