// A child process that is started and watched without blocking.
#ifndef DIVVY_TOOLS_LAUNCH_CHILD_PROCESS_H_
#define DIVVY_TOOLS_LAUNCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "tools/launch/exit_status.h"
#include "tools/launch/usage.h"

namespace divvy {

enum class ChildOutput {
  // Standard output and error come through output(), in the order in which they were written.
  kPipe,
  // The same, through a terminal of the child's own with the size of ours. The child draws as it
  // would on a user's terminal.
  kTerminal,
};

struct ChildOptions {
  // The program, then its arguments. A name without a slash is looked up in PATH.
  std::vector<std::string> command;
  // Variables to add to this process' environment.
  std::map<std::string, std::string> environment;
  ChildOutput output = ChildOutput::kPipe;
};

// One child. It has a process group of its own, so signals also reach the processes that it starts,
// and Ctrl-C on the terminal reaches it only through Signal. Its standard input is empty. The child
// dies by SIGKILL with the thread that started it, even if this process is SIGKILLed. The processes
// that the child has started may live on then. Not thread-safe.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child, ChildProcess::Start({{"./program",
//   "--flag"}}));
//   ... poll() child->output() and child->exit_event(); then Read, and Reap ...
class ChildProcess {
 public:
  // Blocks until the child runs its program, or cannot. Errors name the program: NotFound,
  // PermissionDenied if it is not executable, and others of the operating system.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);

  // Kills the child by SIGKILL if it still runs, and waits until it is gone.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Polls readable when there is something to Read, or the end of the output; -1 after the end.
  int output() const { return output_.get(); }
  // Polls readable once the child has ended; -1 after Reap has returned its status.
  int exit_event() const { return exit_event_.get(); }

  // Appends to `text` the output that has not been read yet, up to about 256 KiB at once. If there
  // is more, output() still polls readable. Never blocks. Returns false at the end of the output.
  bool Read(std::string& text);
  // Returns how the child ended; nullopt if it has not. At its end, also kills the processes that
  // it has left in its process group. Never blocks.
  std::optional<ExitStatus> Reap();
  // The resources used by the child and by the children that it waited for. Zero before Reap has
  // returned a status.
  Usage usage() const { return usage_; }
  // Signals the whole process group. Does nothing after Reap has returned a status.
  void Signal(int signal);
  // Gives the child's terminal the size of ours. REQUIRES: kTerminal.
  void CopyTerminalSize();

 private:
  ChildProcess(pid_t pid, Descriptor output, Descriptor exit_event)
      : pid_(pid), output_(std::move(output)), exit_event_(std::move(exit_event)) {}

  const pid_t pid_;
  Descriptor output_, exit_event_;
  std::optional<ExitStatus> status_;
  Usage usage_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_CHILD_PROCESS_H_
