#include "task/task_end.h"

#include <string.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/log.h"
#include "base/process.h"
#include "base/terminal.h"
#include "protocol/error.h"

namespace divvy {

// The time for a step function or a connection that still runs when the rest of the task has ended.
constexpr absl::Duration kLastWords = absl::Seconds(3);

int EndSoon(int exit_code) {
  Termination::LetSignalsKill();
  ExitAfter(kLastWords, exit_code);
  return exit_code;
}

int AwaitEnd(Termination& termination, absl::string_view task, const std::function<void()>& drain,
             absl::Duration drain_timeout) {
  const Termination::Event event = termination.Wait();
  if (event.signal == 0) {
    if (!event.why.empty()) DIVVY_LOG(ERROR) << task << ": " << event.why;
    return EndSoon(event.exit_code);
  }
  DIVVY_LOG(INFO) << task << ": " << strsignal(event.signal) << ": draining, for "
                  << absl::FormatDuration(drain_timeout)
                  << " at most; a second signal ends it at once";
  drain();
  Termination::LetSignalsKill();
  if (!termination.WaitFor(drain_timeout))
    DIVVY_LOG(WARNING) << task << ": not drained after " << absl::FormatDuration(drain_timeout);
  return EndSoon(event.exit_code);
}

int RefuseToStart(const absl::Status& why) {
  WriteStandardError(absl::StrCat(why.message(), "\n"));
  const bool configuration = (absl::IsInvalidArgument(why) || absl::IsFailedPrecondition(why)) &&
                             ReasonOf(why) == Reason::kNone;
  return configuration ? exit_codes::kConfiguration : ExitCodeOf(why);
}

}  // namespace divvy
