#include "program/main.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/log.h"
#include "base/process.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "base/termination.h"
#include "base/version.h"
#include "cluster/error.h"
#include "coordinator/service/chief_task.h"
#include "ops/blas_threads.h"
#include "program/embedded.h"
#include "program/program_flags.h"
#include "program/program_library.h"
#include "ps_server/service/run.h"
#include "rpc/task_end.h"
#include "rpc/task_flags.h"
#include "worker/service/worker_task.h"

ABSL_FLAG(int, ps, 2, "parameter servers of the embedded cluster");
ABSL_FLAG(int, workers, 2, "workers of the embedded cluster");
ABSL_FLAG(int, replicas_per_worker, 1, "replicas of a worker, each on a thread of its own");
ABSL_FLAG(uint64_t, seed, 1, "of the job: initial values and the order of the data follow from it");
ABSL_FLAG(int, blas_threads, 0, "threads a matrix product may use; 0: cores / replicas, at least 1");
ABSL_FLAG(bool, check_numerics, false, "a step that writes a value that is not finite fails, and leaves no trace");
ABSL_FLAG(absl::Duration, report_every, absl::Seconds(5), "a line of progress, where there is no terminal");
ABSL_FLAG(std::string, tensorboard_dir, "", "where the chief writes event files for TensorBoard: points each --report_every, validations, the configuration");
ABSL_FLAG(absl::Duration, orphan_timeout, absl::Hours(1), "a worker that hears of no coordinator for so long ends (138)");
ABSL_FLAG(std::string, state_dir, "", "where the chief keeps the job's row; without it a restarted chief begins a new job");
ABSL_FLAG(std::string, job_name, "", "the job's number follows from it; without it the number is random");
ABSL_FLAG(int, min_workers, 1, "the job begins when so many workers are known: listed in the cluster, or registered");
ABSL_FLAG(absl::Duration, ps_timeout, absl::Minutes(10), "a parameter server that does not answer for so long fails the job (138)");
ABSL_FLAG(int, max_step_attempts, 10, "a step that loses so many workers is given up");
ABSL_FLAG(absl::Duration, step_deadline, absl::Minutes(10), "of one attempt of a step; time blocked on a parameter server is not counted");
ABSL_FLAG(absl::Duration, watchdog, absl::ZeroDuration(), "the chief's log says what every worker does when no step has finished for so long; 0: never");
ABSL_FLAG(std::string, program, "", "a program as a shared library (lib….so), for the stock binaries worker and coordinator");

namespace divvy {
namespace {

std::optional<ReportOptions> ReportFromFlags() {
  ReportOptions report;
  report.terminal = StandardErrorTerminal();
  report.report_every = std::max(absl::Milliseconds(100), absl::GetFlag(FLAGS_report_every));
  report.write = WriteStandardError;
  report.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  for (const auto& [name, value] : ChangedFlags()) report.configuration[absl::StrCat("--", name)] = value;
  return report;
}

// Told at once, not by points that are missing in the end.
absl::Status MakeTensorboardDir() {
  const std::string directory = absl::GetFlag(FLAGS_tensorboard_dir);
  const absl::Status made = directory.empty() ? absl::OkStatus() : FileSystem::Real().CreateDirectory(directory);
  return made.ok() ? made : absl::InvalidArgumentError(absl::StrCat("--tensorboard_dir: ", made.message()));
}

// The program's own code: what it throws ends it, with a message instead of a core.
absl::Status CallTrain(TrainFunction* train, Coordinator& coordinator) {
  try {
    return train(coordinator);
  } catch (const std::exception& exception) {
    return absl::UnknownError(absl::StrCat("Train threw: ", exception.what()));
  }
}

int Misused(const absl::Status& why) {
  WriteStandardError(absl::StrCat(why.message(), "\n"));
  return exit_codes::kUsage;
}

int EndWith(const absl::Status& result) {
  if (!result.ok()) WriteStandardError(absl::StrCat(absl::StatusCodeToString(result.code()), ": ", result.message(), "\n"));
  return ExitCodeOf(result);
}

// ---- the whole cluster in this process -------------------------------------------------------------------------------------------------------------------

EmbeddedSetup SetupFromFlags(const StrategyOptions& strategy) {
  EmbeddedSetup setup;
  setup.options = {absl::GetFlag(FLAGS_ps), absl::GetFlag(FLAGS_workers), absl::GetFlag(FLAGS_replicas_per_worker), strategy, absl::GetFlag(FLAGS_seed)};
  setup.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  setup.report = ReportFromFlags();
  return setup;
}

int RunEmbedded(const RegisteredProgram& program) {
  if (const absl::Status made = MakeTensorboardDir(); !made.ok()) return RefuseToStart(made);
  auto cluster = EmbeddedCluster::Start(SetupFromFlags(program.options));
  if (!cluster.ok()) return RefuseToStart(cluster.status());
  if (absl::GetFlag(FLAGS_blas_threads) > 0) SetBlasThreads(absl::GetFlag(FLAGS_blas_threads));
  WriteStandardError(absl::StrCat("embedded cluster: chief, ", absl::GetFlag(FLAGS_ps), " ps, ", absl::GetFlag(FLAGS_workers),
                                  " workers in this process (no network, no TLS)\n"));
  BlockingCoordinator& coordinator = (*cluster)->coordinator();
  const absl::Status result = coordinator.Finish(CallTrain(program.train, coordinator));
  (*cluster)->reporter()->Summarize(PeakMemoryBytes());
  return EndWith(result);
}

// ---- a worker --------------------------------------------------------------------------------------------------------------------------------------------

int RunWorker(const TaskOptions& task) {
  Termination termination;
  WorkerTaskOptions options;
  options.task = task;
  options.replicas = absl::GetFlag(FLAGS_replicas_per_worker);
  options.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  options.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  options.orphan_timeout = absl::GetFlag(FLAGS_orphan_timeout);
  options.drain_timeout = DrainTimeoutFromFlags();
  options.apply_program_flags = SetProgramFlags;
  const auto worker = WorkerTask::Start(options, [&termination](int exit_code, std::string why) { termination.Request(exit_code, std::move(why)); });
  if (!worker.ok()) return RefuseToStart(worker.status());
  termination.OnStatusAsked([&worker] { return (*worker)->StatusText(); });
  DIVVY_LOG(INFO) << task.name() << " is at " << (*worker)->address() << " and waits for the coordinator";
  return AwaitEnd(
      termination, task.name(), [&worker] { (*worker)->Drain(); }, DrainTimeoutFromFlags());
}

// ---- the chief -------------------------------------------------------------------------------------------------------------------------------------------

ChiefTaskOptions ChiefOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy) {
  ChiefTaskOptions options;
  options.task = task;
  options.strategy = strategy;
  options.replicas_per_worker = absl::GetFlag(FLAGS_replicas_per_worker);
  options.state_dir = absl::GetFlag(FLAGS_state_dir);
  options.job_name = absl::GetFlag(FLAGS_job_name);
  options.report = ReportFromFlags();
  options.core.job_seed = absl::GetFlag(FLAGS_seed);
  options.core.min_workers = absl::GetFlag(FLAGS_min_workers);
  options.core.ps_timeout = absl::GetFlag(FLAGS_ps_timeout);
  options.core.max_step_attempts = absl::GetFlag(FLAGS_max_step_attempts);
  options.core.step_deadline = absl::GetFlag(FLAGS_step_deadline);
  options.core.watchdog = absl::GetFlag(FLAGS_watchdog);
  options.core.program_flags = ChangedProgramFlags();
  return options;
}

// Waits for a signal while the program runs on the main thread; a drain ends the program's calls, and with them Train.
class SignalWatch {
 public:
  SignalWatch(Termination& termination, ChiefTask& chief) : termination_(termination), chief_(chief), thread_(1) {
    thread_.PostBlocking("signals", [this] { Watch(); });
  }
  // The exit code that a signal asks for; nullopt: none came.
  std::optional<int> Stop() {
    termination_.Request(0, "");
    thread_.Stop();
    return code_;
  }

 private:
  void Watch() {
    const Termination::Event event = termination_.Wait();
    if (event.signal == 0) return;
    code_ = event.exit_code;
    DIVVY_LOG(INFO) << "chief: asked to end: waits for the steps in flight, for " << absl::FormatDuration(DrainTimeoutFromFlags()) << " at most";
    chief_.Drain([] {});
    Termination::LetSignalsKill();
    if (termination_.WaitFor(DrainTimeoutFromFlags())) return;
    DIVVY_LOG(WARNING) << "chief: not drained in time";
    std::_Exit(event.exit_code);  // the program does not come back
  }

  Termination& termination_;
  ChiefTask& chief_;
  std::optional<int> code_;
  ThreadPoolExecutor thread_;
};

int RunChief(const TaskOptions& task, const RegisteredProgram& program) {
  if (const absl::Status made = MakeTensorboardDir(); !made.ok()) return RefuseToStart(made);
  Termination termination;
  const auto chief = ChiefTask::Start(ChiefOptionsFromFlags(task, program.options));
  if (!chief.ok()) return RefuseToStart(chief.status());
  termination.OnStatusAsked([&chief] { return (*chief)->StatusText(); });
  DIVVY_LOG(INFO) << "chief is at " << (*chief)->address();
  SignalWatch signals(termination, **chief);
  BlockingCoordinator& coordinator = (*chief)->coordinator();
  absl::Status result = coordinator.WaitUntilReady();
  if (result.ok()) result = CallTrain(program.train, coordinator);
  result = (*chief)->Finish(std::move(result));
  (*chief)->reporter()->Summarize(PeakMemoryBytes());
  if (const std::optional<int> signalled = signals.Stop(); signalled && !result.ok()) return *signalled;
  return EndWith(result);
}

// ---- which of them ---------------------------------------------------------------------------------------------------------------------------------------

void DescribeBinary(const std::string& usage) {
  absl::SetProgramUsageMessage(usage);
  absl::FlagsUsageConfig config;
  config.version_string = [] { return absl::StrCat("Divvy ", kVersion, "\n"); };
  absl::SetFlagsUsageConfig(config);
}

int Play(const TaskOptions& task) {
  if (const absl::Status log = SetLogFromFlags(task.name()); !log.ok()) return RefuseToStart(log);
  if (task.job == JobName::kPs) return RunParameterServer(task);
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  if (!program.ok()) return RefuseToStart(program.status());
  return task.job == JobName::kWorker ? RunWorker(task) : RunChief(task, **program);
}

}  // namespace

int Main(int argc, char** argv) {
  DescribeBinary("a Divvy program. With TF_CONFIG it plays one task of a cluster; without, --ps=P --workers=W is the size of the embedded cluster");
  if (const absl::Status flags = CheckFlagsOnly(absl::ParseCommandLine(argc, argv)); !flags.ok()) return Misused(flags);
  const absl::StatusOr<std::optional<TaskOptions>> task = TaskOptionsFromFlags();
  if (!task.ok()) return RefuseToStart(task.status());
  if (*task) return Play(**task);
  const absl::StatusOr<const RegisteredProgram*> program = FindProgram();
  return program.ok() ? RunEmbedded(**program) : RefuseToStart(program.status());
}

int StockMain(int argc, char** argv, const char* binary, const char* role) {
  const std::optional<std::string> library = ProgramFlag(argc, argv);
  if (library) {
    if (const absl::Status loaded = LoadProgramLibrary(*library); !loaded.ok()) return RefuseToStart(absl::InvalidArgumentError(loaded.message()));
  }
  DescribeBinary(absl::StrCat("the ", role, " of a cluster, with a program as a shared library: ", binary, " --program=lib.so"));
  if (const absl::Status flags = CheckFlagsOnly(absl::ParseCommandLine(argc, argv)); !flags.ok()) return Misused(flags);
  if (!library) return RefuseToStart(absl::InvalidArgumentError(absl::StrCat(binary, " has no program of its own: give it one by --program=lib.so")));
  const absl::StatusOr<std::optional<TaskOptions>> task = TaskOptionsFromFlags();
  if (!task.ok()) return RefuseToStart(task.status());
  if (*task && JobNameText((*task)->job) == role) return Play(**task);
  return RefuseToStart(
      absl::InvalidArgumentError(absl::StrCat("this is ", binary, ", but TF_CONFIG's task.type is not \"", role, "\": start the binary of that role")));
}

}  // namespace divvy
