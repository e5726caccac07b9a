#include "tools/launch/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr int kCannotExec = 127;  // not used by the parent, which reads the errno from the pipe

struct Pipe {
  Descriptor read, write;
};

absl::Status SystemError(absl::string_view operation) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", operation));
}

absl::StatusOr<Pipe> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return SystemError("make a pipe");
  return Pipe{Descriptor(fds[0]), Descriptor(fds[1])};
}

void CopySize(int terminal) {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) ioctl(terminal, TIOCSWINSZ, &size);
}

// A terminal that passes output on unchanged: "\n" stays "\n".
absl::StatusOr<Pipe> MakeTerminal() {
  Pipe ends;
  ends.read = Descriptor(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!ends.read || grantpt(ends.read.get()) != 0 || unlockpt(ends.read.get()) != 0)
    return SystemError("make a terminal");
  ends.write = Descriptor(ioctl(ends.read.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios modes{};
  if (!ends.write || tcgetattr(ends.write.get(), &modes) != 0)
    return SystemError("open a terminal");
  modes.c_oflag &= ~static_cast<tcflag_t>(OPOST);
  tcsetattr(ends.write.get(), TCSANOW, &modes);
  CopySize(ends.read.get());
  return ends;
}

// The variables of `environ`, changed and extended by `changes`.
std::vector<std::string> MergedEnvironment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (changes.count(text.substr(0, text.find('='))) == 0) merged.push_back(text);
  }
  for (const auto& [name, value] : changes) merged.push_back(absl::StrCat(name, "=", value));
  return merged;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything that the child needs between fork and exec. It is prepared before the fork, because
// after it the child must not call anything that takes a lock.
struct Launchpad {
  pid_t parent;
  int input, output, failure;
  char** arguments;
  char** environment;
};

// The child must not inherit this process' signal settings. SIGTTOU stays ignored, so that the
// child may write to a terminal from its background process group.
void ResetSignals() {
  sigset_t none;
  sigemptyset(&none);
  for (const int signal :
       {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD, SIGQUIT, SIGUSR1, SIGUSR2, SIGXFSZ})
    ::signal(signal, SIG_DFL);
  ::signal(SIGTTOU, SIG_IGN);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Makes `from` the child's descriptor `to`, which stays open over exec.
void Install(int from, int to) {
  if (from == to) {
    // This process was started without a descriptor `to`, so a pipe has got that number.
    fcntl(to, F_SETFD, 0);
  } else {
    dup2(from, to);
  }
}

[[noreturn]] void RunChild(const Launchpad& pad) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // If the parent died before the prctl above, no signal will come.
  if (getppid() != pad.parent) _exit(kCannotExec);
  ResetSignals();
  Install(pad.input, STDIN_FILENO);
  Install(pad.output, STDOUT_FILENO);
  Install(pad.output, STDERR_FILENO);
  execvpe(pad.arguments[0], pad.arguments, pad.environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(pad.failure, &error, sizeof(error));
  _exit(kCannotExec);
}

// More than a pipe holds, so that one Read after the end takes the whole rest. Limited, because a
// child may write as fast as it is read.
constexpr size_t kMostOfOneRead = 256 << 10;

// The errno of the child's exec; 0 if it has succeeded, which closes the pipe.
int ReadFailure(int pipe) {
  int error = 0;
  ssize_t got;
  while ((got = read(pipe, &error, sizeof(error))) < 0 && errno == EINTR) {
  }
  return got == static_cast<ssize_t>(sizeof(error)) ? error : 0;
}

Usage WaitUntilGone(pid_t pid) {
  rusage used{};
  while (wait4(pid, nullptr, 0, &used) < 0 && errno == EINTR) {
  }
  return Usage::Of(used);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(const ChildOptions& options) {
  if (options.command.empty()) return absl::InvalidArgumentError("no program to start was given");
  ASSIGN_OR_RETURN(Pipe input, MakePipe());
  ASSIGN_OR_RETURN(Pipe failure, MakePipe());
  ASSIGN_OR_RETURN(Pipe output,
                   options.output == ChildOutput::kTerminal ? MakeTerminal() : MakePipe());
  fcntl(output.read.get(), F_SETFL, O_NONBLOCK);
  std::vector<std::string> command = options.command,
                           environment = MergedEnvironment(options.environment);
  const std::vector<char*> arguments = Pointers(command), variables = Pointers(environment);
  const Launchpad pad{getpid(),
                      input.read.get(),
                      output.write.get(),
                      failure.write.get(),
                      const_cast<char**>(arguments.data()),
                      const_cast<char**>(variables.data())};
  const pid_t pid = fork();
  if (pid < 0) return SystemError(absl::StrCat("start ", command[0]));
  if (pid == 0) RunChild(pad);
  failure.write.Close();
  // Debian 12's <sys/pidfd.h> declares pidfd_open for C only.
  Descriptor exit_event(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (const int error = exit_event ? ReadFailure(failure.read.get()) : errno; error != 0) {
    kill(pid, SIGKILL);
    WaitUntilGone(pid);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start ", command[0]));
  }
  return std::unique_ptr<ChildProcess>(
      new ChildProcess(pid, std::move(output.read), std::move(exit_event)));
}

ChildProcess::~ChildProcess() {
  if (status_.has_value()) return;
  Signal(SIGKILL);
  WaitUntilGone(pid_);
}

bool ChildProcess::Read(std::string& text) {
  if (!output_) return false;
  char buffer[16384];
  size_t taken = 0;
  for (;;) {
    if (taken >= kMostOfOneRead) return true;
    const ssize_t got = read(output_.get(), buffer, sizeof(buffer));
    if (got > 0) {
      text.append(buffer, static_cast<size_t>(got));
      taken += static_cast<size_t>(got);
    } else if (got < 0 && errno == EAGAIN) {
      return true;
    } else if (got == 0 || errno != EINTR) {  // EIO: no process has the terminal open any more
      output_.Close();
      return false;
    }
  }
}

std::optional<ExitStatus> ChildProcess::Reap() {
  if (status_.has_value()) return status_;
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return std::nullopt;
  kill(-pid_, SIGKILL);  // the number stays ours until the wait below
  usage_ = WaitUntilGone(pid_);
  exit_event_.Close();
  status_ =
      info.si_code == CLD_EXITED ? ExitStatus{info.si_status, 0} : ExitStatus{0, info.si_status};
  return status_;
}

void ChildProcess::Signal(int signal) {
  if (!status_.has_value()) kill(-pid_, signal);
}

void ChildProcess::CopyTerminalSize() {
  if (output_) CopySize(output_.get());
}

}  // namespace divvy
