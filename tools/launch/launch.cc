#include "tools/launch/launch.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "tools/launch/child_process.h"
#include "tools/launch/merged_log.h"
#include "tools/launch/poll_until.h"
#include "tools/launch/ps_command.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/task_list.h"
#include "tools/launch/usage.h"
#include "tools/launch/working_directory.h"

namespace divvy {
namespace {

constexpr int kChief = 0;

// The signals that a user sends. They are blocked and read from a descriptor.
class InteractiveSignals {
 public:
  InteractiveSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, &before_);
    descriptor_ = Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    ::signal(SIGPIPE, SIG_IGN);  // the cluster goes on if the reader of our output is gone
  }
  ~InteractiveSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

  int descriptor() const { return descriptor_.get(); }
  // The next signal; 0: there is none.
  int Next() {
    signalfd_siginfo info;
    return read(descriptor_.get(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t before_;
  Descriptor descriptor_;
};

// Carries out the Supervisor's actions, and reports events to it.
class Launcher {
 public:
  Launcher(const LaunchOptions& options, TaskList tasks, WorkingDirectory directory, uint64_t seed)
      : options_(options),
        tasks_(std::move(tasks)),
        ps_command_(PsCommand(options.command, InstalledPsServer())),
        directory_(std::move(directory)),
        terminal_(StandardErrorTerminal()),
        log_({tasks_.names(), "launch", terminal_.color, WriteStandardError}),
        supervisor_(SupervisorOptionsOf(options, seed), tasks_.ids()),
        children_(tasks_.size()),
        usage_(tasks_.size()) {}

  absl::Status OpenLogs() {
    return options_.logs.empty() ? absl::OkStatus()
                                 : log_.OpenFiles(FileSystem::Real(), options_.logs);
  }

  const WorkingDirectory& directory() const { return directory_; }

  int Run() {
    log_.Say(absl::StrCat(tasks_.Summary(), " on sockets of this machine that only you can reach",
                          options_.logs.empty() ? "" : absl::StrCat(". Logs: ", options_.logs)));
    log_.Say(
        absl::StrCat("state of the tasks: divvyctl status --addr=unix:", directory_.sockets()));
    Do(supervisor_.Begin(Now()));
    while (!supervisor_.over()) Turn();
    if (options_.usage) SayUsage();
    Leave();
    return supervisor_.exit_code();
  }

 private:
  static SupervisorOptions SupervisorOptionsOf(const LaunchOptions& options, uint64_t seed) {
    SupervisorOptions supervisor;
    supervisor.max_restarts = options.max_restarts;
    supervisor.chaos = options.chaos;
    supervisor.chaos_roles.clear();
    for (const std::string& role : options.chaos_roles)
      supervisor.chaos_roles.push_back(*ChaosRole(role));
    supervisor.seed = seed;
    return supervisor;
  }

  absl::Duration Now() const { return Clock::Real().Elapsed(); }
  bool DrawsForItself(int task) const { return task == kChief && terminal_.interactive; }

  // Waits for at least one event, and handles all that have come.
  void Turn() {
    std::vector<pollfd> events = {{signals_.descriptor(), POLLIN, 0}};
    for (const auto& child : children_) {
      events.push_back({child == nullptr ? -1 : child->output(), POLLIN, 0});
      events.push_back({child == nullptr ? -1 : child->exit_event(), POLLIN, 0});
    }
    PollUntil(events, supervisor_.deadline());
    for (size_t i = 0; i < children_.size(); ++i) {
      if (events[1 + 2 * i].revents != 0) PassOn(static_cast<int>(i));
      if (events[2 + 2 * i].revents != 0) ReapTask(static_cast<int>(i));
    }
    while (const int signal = signals_.Next()) Hear(signal);
    if (supervisor_.deadline() <= Now()) Do(supervisor_.OnTimer(Now()));
  }

  void Hear(int signal) {
    if (signal != SIGWINCH) return Do(supervisor_.OnSignal(signal, Now()));
    if (DrawsForItself(kChief) && children_[kChief] != nullptr)
      children_[kChief]->CopyTerminalSize();
  }

  void PassOn(int task) {
    std::string text;
    children_[task]->Read(text);
    if (DrawsForItself(task)) {
      log_.AddLive(task, text);
    } else {
      log_.Add(task, text);
    }
  }

  void ReapTask(int task) {
    const std::optional<ExitStatus> status = children_[task]->Reap();
    if (!status.has_value()) return;
    PassOn(task);  // the rest of its output
    log_.End(task);
    usage_[task].Add(children_[task]->usage());
    children_[task] = nullptr;
    Do(supervisor_.OnExit(task, *status, Now()));
  }

  void SayUsage() {
    const std::vector<std::string> names = tasks_.names();
    for (size_t i = 0; i < names.size(); ++i)
      log_.Say(absl::StrCat("usage: ", names[i], ": ", usage_[i].ToString()));
  }

  // A job that is not complete can be resumed from its checkpoint, whatever ended the launch.
  void Leave() {
    if (supervisor_.exit_code() == EXIT_SUCCESS || !directory_.HasCheckpoint())
      return directory_.Remove();
    directory_.RemoveSockets();
    log_.Say(absl::StrCat("to resume this job, launch again with the flags ", directory_.Flags()));
  }

  void Do(const Supervisor::Actions& actions) {
    for (const Supervisor::Action& action : actions) {
      switch (action.kind) {
        case Supervisor::Action::Kind::kSay: log_.Say(action.text); break;
        case Supervisor::Action::Kind::kStart: Start(action.task); break;
        case Supervisor::Action::Kind::kSignal:
          if (children_[action.task] != nullptr) children_[action.task]->Signal(action.signal);
          break;
      }
    }
  }

  void Start(int task) {
    if (!supervisor_.starts()) return Do(supervisor_.OnCannotStart(task, Now()));
    ChildOptions child;
    child.command = tasks_.ids()[task].role == Role::kPs ? ps_command_ : options_.command;
    child.environment =
        directory_.Environment(options_.evaluator ? WorkingDirectory::LastCheckpoint::kScored
                                                  : WorkingDirectory::LastCheckpoint::kUnwanted);
    child.environment["TF_CONFIG"] = tasks_.TfConfig(task);
    child.output = DrawsForItself(task) ? ChildOutput::kTerminal : ChildOutput::kPipe;
    absl::StatusOr<std::unique_ptr<ChildProcess>> started = ChildProcess::Start(child);
    if (started.ok()) {
      children_[task] = *std::move(started);
      return;
    }
    if (!std::exchange(cannot_start_, true)) log_.Say(started.status().message());
    Do(supervisor_.OnCannotStart(task, Now()));
  }

  const LaunchOptions& options_;
  const TaskList tasks_;
  const std::vector<std::string> ps_command_;
  const WorkingDirectory directory_;
  const Terminal terminal_;
  InteractiveSignals signals_;
  MergedLog log_;
  Supervisor supervisor_;
  std::vector<std::unique_ptr<ChildProcess>> children_;  // by task; null: not running
  std::vector<Usage> usage_;                             // by task, over its lives that have ended
  bool cannot_start_ = false;
};

int Fail(int exit_code, const absl::Status& status) {
  WriteStandardError(absl::StrCat("launch: ", status.message(), "\n"));
  return exit_code;
}

}  // namespace

absl::Status LaunchOptions::Validate() const {
  std::vector<std::string> wrong;
  if (ps < 1)
    wrong.push_back(absl::StrCat("--ps is ", ps, "; a cluster needs at least 1 parameter server"));
  if (workers < 1)
    wrong.push_back(absl::StrCat("--workers is ", workers, "; a cluster needs at least 1 worker"));
  if (command.empty())
    wrong.push_back(
        "no program was given; write it after --: divvyctl launch --ps=2 --workers=2 -- "
        "./program");
  if (chaos < absl::ZeroDuration())
    wrong.push_back(absl::StrCat("--chaos is ", absl::FormatDuration(chaos),
                                 "; give an interval, or 0 for none"));
  for (const std::string& role : chaos_roles) {
    if (!ChaosRole(role))
      wrong.push_back(absl::StrCat("--chaos_roles names \"", role,
                                   "\"; the roles are worker, ps, coordinator"));
  }
  if (max_restarts < 0)
    wrong.push_back(absl::StrCat("--max_restarts is ", max_restarts, "; give 0 or more"));
  return wrong.empty() ? absl::OkStatus()
                       : absl::InvalidArgumentError(absl::StrJoin(wrong, "\nlaunch: "));
}

int Launch(const LaunchOptions& options) {
  if (const absl::Status valid = options.Validate(); !valid.ok())
    return Fail(exit_codes::kUsage, valid);
  absl::StatusOr<WorkingDirectory> directory = WorkingDirectory::Make();
  if (!directory.ok()) return Fail(exit_codes::kResources, directory.status());
  TaskList tasks(directory->sockets(), options.ps, options.workers, options.evaluator ? 1 : 0);
  Launcher launcher(options, std::move(tasks), *std::move(directory),
                    options.seed != 0 ? options.seed : EntropySeed());
  if (const absl::Status opened = launcher.OpenLogs(); !opened.ok()) {
    launcher.directory().Remove();
    return Fail(exit_codes::kResources, opened);
  }
  return launcher.Run();
}

}  // namespace divvy
