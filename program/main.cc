#include "program/main.h"

#include <string.h>

#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/guarded.h"
#include "base/log.h"
#include "base/process.h"
#include "base/service_manager.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "base/termination.h"
#include "coordinator/checkpoint/job_end.h"
#include "coordinator/service/chief_task.h"
#include "program/embedded.h"
#include "program/evaluator_task.h"
#include "program/program_flags.h"
#include "program/program_library.h"
#include "program/role_flags.h"
#include "program/stock_main.h"
#include "protocol/error.h"
#include "ps_server/service/run.h"
#include "task/command_line.h"
#include "task/task_end.h"
#include "task/task_flags.h"
#include "worker/service/worker_task.h"

namespace divvy {
namespace {

// Runs the program's own code. An exception ends it with a message instead of a core dump.
absl::Status CallTrain(TrainFunction* train, Coordinator& coordinator) {
  return internal::Guarded<absl::Status>("Train", [&] { return train(coordinator); });
}

int EndWith(const absl::Status& result) {
  if (!result.ok())
    WriteStandardError(
        absl::StrCat(absl::StatusCodeToString(result.code()), ": ", result.message(), "\n"));
  return ExitCodeOf(result);
}

// ---- signals while the program runs -------------------------------------------------------------

// Waits for a signal while the program runs on the main thread. After a signal it calls `drain`,
// which must not block. The drain ends the program's calls, and so Train returns.
class SignalWatch {
 public:
  SignalWatch(Termination& termination, std::function<void()> drain)
      : termination_(termination), drain_(std::move(drain)), thread_(1) {
    thread_.PostBlocking("signals", [this] { Watch(); });
  }
  // The exit code that a signal asks for; nullopt: there was no signal.
  std::optional<int> Stop() {
    termination_.Request(0, "");
    thread_.Stop();
    return code_;
  }

 private:
  void Watch() {
    const Termination::Event event = termination_.Wait();
    if (event.signal == 0) {
      // An operator's drain ends the program's calls at once. So the program may return, and call
      // Stop, before this thread has seen that it was asked to end.
      if (const auto asked = termination_.WaitFor(absl::ZeroDuration())) code_ = asked->exit_code;
      return;
    }
    code_ = event.exit_code;
    DIVVY_LOG(INFO) << "chief: asked to end: waits for the steps in flight, for "
                    << absl::FormatDuration(DrainTimeoutFromFlags()) << " at most";
    drain_();
    const std::optional<Termination::Event> end = AwaitDrained(event.asked);
    if (end && end->signal == 0) return;
    if (!end) DIVVY_LOG(WARNING) << "chief: not drained within --drain_timeout";
    // The program does not return, or a second signal came before signals could kill the process.
    std::_Exit(event.exit_code);
  }

  // A second signal ends a drain at once. If an operator asked for the drain, the first signal does
  // not count as the second: Kubernetes and the launcher stop the whole cluster after an operator's
  // drain, and send that signal.
  std::optional<Termination::Event> AwaitDrained(bool asked) {
    const absl::Duration until = Clock::Real().Elapsed() + DrainTimeoutFromFlags();
    if (asked) {
      const std::optional<Termination::Event> event = termination_.WaitFor(DrainTimeoutFromFlags());
      if (!event || event->signal == 0) return event;
      code_ = event->exit_code;
      DIVVY_LOG(INFO) << "chief: " << strsignal(event->signal)
                      << ": it is draining already; another signal ends it at once";
    }
    Termination::LetSignalsKill();
    std::optional<Termination::Event> event;
    // An operator may ask for the drain again. Such an event changes nothing.
    do {
      event = termination_.WaitFor(until - Clock::Real().Elapsed());
    } while (event && event->asked);
    return event;
  }

  Termination& termination_;
  const std::function<void()> drain_;
  std::optional<int> code_;
  ThreadPoolExecutor thread_;
};

// ---- the whole cluster in this process ----------------------------------------------------------

void TellEvaluator(const EmbeddedSetup& setup, std::optional<int> exit_code) {
  const std::string& directory = setup.options.checkpoint_dir;
  if (!directory.empty()) TellEvaluator(FileSystem::Real(), directory, exit_code);
}

// Tells the service manager that the process has started. Tasks with a server do so themselves.
void TellStarted(const std::string& what) {
  TellServiceManagerOrWarn(absl::StrCat("READY=1\nSTATUS=", what));
}

int RunEmbedded(const RegisteredProgram& program) {
  if (const absl::Status made = MakeTensorboardDir(); !made.ok()) return RefuseToStart(made);
  const EmbeddedSetup setup = EmbeddedSetupFromFlags(program.options);
  Termination termination;
  auto cluster = EmbeddedCluster::Start(setup);
  if (!cluster.ok()) return RefuseToStart(cluster.status());
  WriteStandardError(absl::StrCat("embedded cluster: chief, ", setup.options.num_ps, " ps, ",
                                  setup.options.num_workers,
                                  " workers in this process (no network, no TLS)\n"));
  TellStarted("trains in this process");
  TellEvaluator(setup, std::nullopt);
  SignalWatch signals(termination, [&cluster] { (*cluster)->Drain(); });
  BlockingCoordinator& coordinator = (*cluster)->coordinator();
  const absl::Status result = coordinator.Finish(CallTrain(program.train, coordinator));
  (*cluster)->reporter()->Summarize(PeakMemoryBytes());
  const std::optional<int> signalled = signals.Stop();
  const bool drained = signalled && !result.ok() &&
                       coordinator.Snapshot().phase != CoordinatorSnapshot::Phase::kOver;
  if (!drained && ExitCodeOf(result) < exit_codes::kOfSignal)
    TellEvaluator(setup, ExitCodeOf(result));
  return EndSoon(drained ? *signalled : EndWith(result));
}

// ---- a worker -----------------------------------------------------------------------------------

int RunWorker(const TaskOptions& task, const RegisteredProgram& program) {
  Termination termination;
  const auto worker = WorkerTask::Start(WorkerOptionsFromFlags(task, program.options),
                                        [&termination](int exit_code, std::string why) {
                                          termination.Request(exit_code, std::move(why));
                                        });
  if (!worker.ok()) return RefuseToStart(worker.status());
  termination.OnStatusAsked([&worker] { return (*worker)->StatusText(); });
  DIVVY_LOG(INFO) << task.name() << " is at " << (*worker)->address()
                  << " and waits for the coordinator";
  return AwaitEnd(
      termination, task.name(), [&worker] { (*worker)->Drain(); }, DrainTimeoutFromFlags());
}

// ---- the chief ----------------------------------------------------------------------------------

int RunChief(const TaskOptions& task, const RegisteredProgram& program) {
  if (const absl::Status made = MakeTensorboardDir(); !made.ok()) return RefuseToStart(made);
  Termination termination;
  ChiefTaskOptions options = ChiefOptionsFromFlags(task, program.options);
  options.on_drain_asked = [&termination] { termination.AskToEnd(); };
  const auto chief = ChiefTask::Start(options);
  if (!chief.ok()) return RefuseToStart(chief.status());
  termination.OnStatusAsked([&chief] { return (*chief)->StatusText(); });
  DIVVY_LOG(INFO) << "chief is at " << (*chief)->address();
  SignalWatch signals(termination, [&chief] { (*chief)->Drain([] {}); });
  BlockingCoordinator& coordinator = (*chief)->coordinator();
  absl::Status result = coordinator.WaitUntilReady();
  if (result.ok()) result = CallTrain(program.train, coordinator);
  result = (*chief)->Finish(std::move(result));
  (*chief)->reporter()->Summarize(PeakMemoryBytes());
  const std::optional<int> signalled = signals.Stop();
  if (signalled && !result.ok() && !(*chief)->JobIsOver()) return *signalled;
  return EndWith(result);
}

// ---- the evaluator ------------------------------------------------------------------------------

// A signal ends the evaluator at once. It holds no state that is needed later: a restarted
// evaluator scores the checkpoints that are left.
class EndAtSignal {
 public:
  EndAtSignal(Termination& termination, EvaluatorTask& evaluator)
      : termination_(termination), thread_(1) {
    thread_.PostBlocking("signals", [this, &evaluator] {
      const Termination::Event event = termination_.Wait();
      if (event.signal == 0) return;
      Termination::LetSignalsKill();
      DIVVY_LOG(INFO) << "asked to end";
      evaluator.Flush();
      std::_Exit(event.exit_code);
    });
  }
  ~EndAtSignal() {
    termination_.Request(0, "");
    thread_.Stop();
  }

 private:
  Termination& termination_;
  ThreadPoolExecutor thread_;
};

int RunEvaluator(const RegisteredProgram& program) {
  if (program.evaluate == nullptr) {
    return RefuseToStart(
        absl::InvalidArgumentError("task.type is \"evaluator\", and this program has no Evaluate: "
                                   "DIVVY_PROGRAM(Train, Evaluate) gives it one, and in Python "
                                   "divvy.run(main, evaluate)"));
  }
  if (const absl::Status made = MakeTensorboardDir(); !made.ok()) return RefuseToStart(made);
  Termination termination;
  const auto evaluator = EvaluatorTask::Start(EvaluatorOptionsFromFlags(program.options));
  if (!evaluator.ok()) return RefuseToStart(evaluator.status());
  termination.OnStatusAsked([&evaluator] { return (*evaluator)->StatusText(); });
  const EndAtSignal signals(termination, **evaluator);
  TellStarted("scores checkpoints");
  const absl::Status result =
      internal::Guarded<absl::Status>("Evaluate", [&] { return program.evaluate(**evaluator); });
  (*evaluator)->Flush();
  return result.ok() ? (*evaluator)->exit_code() : EndWith(result);
}

// ---- the choice of the role ---------------------------------------------------------------------

int Play(const TaskOptions& task) {
  if (const absl::Status log = SetLogFromFlags(task.name()); !log.ok()) return RefuseToStart(log);
  if (task.role == Role::kPs) return RunParameterServer(task);
  if (const absl::Status registered = CheckRegistrations(); !registered.ok())
    return RefuseToStart(registered);
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  if (!program.ok()) return RefuseToStart(program.status());
  switch (task.role) {
    case Role::kWorker: return RunWorker(task, **program);
    case Role::kChief: return RunChief(task, **program);
    default: return RunEvaluator(**program);
  }
}

}  // namespace

int Main(int argc, char** argv) {
  BeginProcess(argv[0]);
  const Binary binary = {
      argv[0],
      "a Divvy program. With TF_CONFIG it runs one task of a cluster; without, --ps=P --workers=W "
      "is the size of the embedded cluster",
      HelpOfProgram,
      {}};
  if (const std::optional<int> ended = ReadCommandLine(argc, argv, binary)) return *ended;
  StepRegistry::Seal();
  const absl::StatusOr<std::optional<TaskOptions>> task = TaskOptionsFromFlags();
  if (!task.ok()) return RefuseToStart(task.status());
  if (*task) return Play(**task);
  for (const absl::Status& usable : {CheckEmbeddedFlags(), SetLogFromFlags("embedded")}) {
    if (!usable.ok()) return RefuseToStart(usable);
  }
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  return program.ok() ? RunEmbedded(**program) : RefuseToStart(program.status());
}

int StockMain(int argc, char** argv, const char* binary, Role role) {
  BeginProcess(argv[0]);
  const std::optional<std::string> library = ProgramFlag(argc, argv);
  if (library) {
    if (const absl::Status loaded = LoadProgramLibrary(*library); !loaded.ok())
      return RefuseToStart(absl::InvalidArgumentError(loaded.message()));
  }
  std::vector<Role> roles = {role};
  // An evaluator runs the program's own code, as the chief does.
  if (role == Role::kChief) roles.push_back(Role::kEvaluator);
  const Binary stock = {binary,
                        absl::StrCat("the ", RoleName(role),
                                     " of a cluster, with a program as a shared library: ", binary,
                                     " --program=lib.so"),
                        [&roles] { return HelpOfTask(roles); }, roles};
  if (const std::optional<int> ended = ReadCommandLine(argc, argv, stock)) return *ended;
  StepRegistry::Seal();
  if (!library)
    return RefuseToStart(absl::InvalidArgumentError(
        absl::StrCat(binary, " has no program of its own: give it one by --program=lib.so")));
  const absl::StatusOr<TaskOptions> task = OwnTask(stock);
  return task.ok() ? Play(*task) : RefuseToStart(task.status());
}

}  // namespace divvy
