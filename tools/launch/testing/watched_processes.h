// Runs processes for a test, so that none can make it hang.
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

// Named processes and their output. Every wait has a timeout, and reads the output of all processes
// meanwhile, so that none blocks on a full pipe. The destructor kills the processes that still run.
// Not thread-safe; must be used by one thread, because the processes die with it.
//
// A wait that times out returns DeadlineExceeded. The message says what was waited for, and ends
// with the last lines of every process.
class WatchedProcesses {
 public:
  // REQUIRES: no process of that name runs. The output of a later life is appended to that of
  // earlier ones. Errors are those of ChildProcess::Start.
  absl::Status Start(const std::string& name, const ChildOptions& options);

  // Signals the whole process group. Does nothing if the process does not run.
  void Signal(const std::string& name, int signal);
  bool running(const std::string& name) const;
  pid_t pid(const std::string& name) const;  // REQUIRES: the process runs

  // Waits for `text` after the place where the previous call for this name found its text, in old
  // and new output. Returns the line with the text. FailedPrecondition, with the output: the
  // process has ended without it.
  absl::StatusOr<std::string> WaitForText(const std::string& name, absl::string_view text,
                                          absl::Duration timeout);
  // Waits for the end, reads the rest of the output, and returns how the process ended.
  absl::StatusOr<ExitStatus> WaitForExit(const std::string& name, absl::Duration timeout);
  // Reads output until `done()` is true or `timeout` has passed; returns done().
  bool WaitUntil(const std::function<bool()>& done, absl::Duration timeout);
  // Lets the processes run.
  void RunFor(absl::Duration time) {
    WaitUntil([] { return false; }, time);
  }

  const std::string& output(const std::string& name) const;  // of all its lives
  std::string LastLines() const;                             // of every process

 private:
  struct Process {
    std::unique_ptr<ChildProcess> child;  // null: not running
    std::optional<ExitStatus> status;     // of the latest life, if it has ended
    std::string output;
    size_t found = 0;  // where WaitForText continues
  };

  // Waits for an event, at most until `deadline`, and handles it.
  void Turn(absl::Duration deadline);
  absl::Status InVain(absl::string_view what, absl::Duration timeout) const;

  std::map<std::string, Process> processes_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_TESTING_WATCHED_PROCESSES_H_
