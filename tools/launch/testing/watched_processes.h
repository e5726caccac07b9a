// Processes under test, none of which can make a test hang.
#ifndef DIVVY_TOOLS_LAUNCH_TESTING_WATCHED_PROCESSES_H_
#define DIVVY_TOOLS_LAUNCH_TESTING_WATCHED_PROCESSES_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tools/launch/child_process.h"

namespace divvy {

// Named processes and all they print. Whatever waits, waits with a timeout, and reads what every
// process prints meanwhile, so that none is held up by a full pipe. What still runs in the end is
// killed. Not thread-safe, and to be used by one thread (the processes die with it).
//
// A wait that is in vain is DeadlineExceeded; its message says for what, and ends with the last
// lines of every process.
class WatchedProcesses {
 public:
  // REQUIRES: no process of that name runs. A later life goes on with the output of the earlier
  // ones. Errors are those of ChildProcess::Start.
  absl::Status Start(const std::string& name, const ChildOptions& options);

  // To the whole process group; nothing if it does not run.
  void Signal(const std::string& name, int signal);
  bool running(const std::string& name) const;
  pid_t pid(const std::string& name) const;  // REQUIRES: it runs

  // Returns the line in which `text` stands. Looks behind the text found by the call before (of
  // this name), in what is there and what comes. If the process ends without it:
  // FailedPrecondition, with its output.
  absl::StatusOr<std::string> WaitForText(const std::string& name, absl::string_view text,
                                          absl::Duration timeout);
  // How it ended, all its output read.
  absl::StatusOr<ExitStatus> WaitForExit(const std::string& name, absl::Duration timeout);
  // Reads along until `done()` or for `timeout`; returns done().
  bool WaitUntil(const std::function<bool()>& done, absl::Duration timeout);
  // Lets the processes run.
  void RunFor(absl::Duration time) {
    WaitUntil([] { return false; }, time);
  }

  const std::string& output(const std::string& name) const;  // of all its lives
  std::string LastLines() const;                             // of every process

 private:
  struct Process {
    std::unique_ptr<ChildProcess> child;  // null: does not run
    std::optional<ExitStatus> status;     // of the latest life, once it is over
    std::string output;
    size_t found = 0;  // where WaitForText goes on
  };

  // Waits until something happens, at most until `deadline`, and sees to it.
  void Turn(absl::Duration deadline);
  absl::Status InVain(absl::string_view what, absl::Duration timeout) const;

  std::map<std::string, Process> processes_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_TESTING_WATCHED_PROCESSES_H_
