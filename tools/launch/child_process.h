// A process started here, and watched without blocking.
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
  // standard output and error come together, in the order written, through output()
  kPipe,
  // The same through a terminal of its own, of the size of ours: the child draws as it would for a
  // person.
  kTerminal,
};

struct ChildOptions {
  // The program, then its arguments; a name without a slash is looked for in PATH.
  std::vector<std::string> command;
  // set besides what this process has
  std::map<std::string, std::string> environment;
  ChildOutput output = ChildOutput::kPipe;
};

// One child. It has a process group of its own: signals reach what it starts as well, and a
// terminal's Ctrl-C reaches it only through Signal. Its standard input is empty. It dies by SIGKILL
// with the thread that started it (so even if this process is SIGKILLed), which is promised of the
// child alone, not of what it starts. Not thread-safe.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child, ChildProcess::Start({{"./program",
//   "--flag"}}));
//   ... poll() child->output() and child->exit_event(); then Read, and Reap ...
class ChildProcess {
 public:
  // Blocks until the child runs its program, or cannot. NotFound, PermissionDenied (no such
  // program; not executable) and other errors of the operating system name the program.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(const ChildOptions& options);

  // Kills by SIGKILL what still runs, and waits until it is gone.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // Polls readable when there is something to Read, or its end; -1 after the end.
  int output() const { return output_.get(); }
  // Polls readable once the child has ended; -1 after Reap has said how.
  int exit_event() const { return exit_event_.get(); }

  // Adds to `text` what the child has written and nobody has read, up to about 256 KiB (output()
  // then still polls readable); never blocks. False: that was the end.
  bool Read(std::string& text);
  // How the child ended; nullopt if it has not. Then kills what it has left behind in its process
  // group. Never blocks.
  std::optional<ExitStatus> Reap();
  // What it and the children it waited for have used. Zero until Reap has said how it ended.
  Usage usage() const { return usage_; }
  // To the whole process group. Does nothing once Reap has said how it ended.
  void Signal(int signal);
  // Gives the child's terminal the size of ours. Of kTerminal.
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
