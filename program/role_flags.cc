#include "program/role_flags.h"

#include <algorithm>
#include <iterator>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/terminal.h"
#include "program/own_flags.h"
#include "program/own_program.h"
#include "program/program_flags.h"
#include "ps_server/service/run.h"
#include "task/task_flags.h"

namespace divvy {

// Found by ABSL_FLAG.
bool AbslParseFlag(absl::string_view text, Durability* durability, std::string* error) {
  if (text == "replay" || text == "checkpoint") {
    *durability = text == "replay" ? Durability::kReplay : Durability::kCheckpoint;
    return true;
  }
  *error = "wanted replay or checkpoint";
  return false;
}
std::string AbslUnparseFlag(Durability durability) {
  return durability == Durability::kReplay ? "replay" : "checkpoint";
}

}  // namespace divvy

ABSL_FLAG(int, ps, 2, "parameter servers of the embedded cluster, and of an evaluator's");
ABSL_FLAG(int, workers, 2, "workers of the embedded cluster, and of an evaluator's");
ABSL_FLAG(int, replicas_per_worker, 0,
          "replicas of a worker, each on a thread of its own; 0: one for each of its GPUs, or one "
          "on the CPU");
ABSL_FLAG(divvy::GpuChoice, gpus, {divvy::GpuChoice::Kind::kAuto},
          "the GPUs that a worker computes on, with a replica each: auto (all there are, else the "
          "CPU), all, none, or numbers as in 0,2");
ABSL_FLAG(int64_t, gpu_memory_bytes, 0,
          "of each GPU, for the tensors of this process; 0: no limit");
ABSL_FLAG(bool, tf32, false,
          "GPUs round the factors of float32 products to 10 bits of mantissa, which is faster; "
          "sums stay float32");
ABSL_FLAG(bool, deterministic, false,
          "GPUs give equal bits for equal inputs, at some cost in speed");
ABSL_FLAG(uint64_t, seed, 1, "of the job: initial values and the order of the data follow from it");
ABSL_FLAG(int, blas_threads, 0,
          "threads a matrix product may use; 0: the cores of this process divided by the replicas "
          "that share them, at least 1");
ABSL_FLAG(int, workers_per_host, 0,
          "workers that share the cores of this worker's machine; 0: as many as TF_CONFIG names "
          "with this worker's host");
ABSL_FLAG(bool, check_numerics, false,
          "a step that writes a value that is not finite fails, and leaves no trace");
ABSL_FLAG(int, pipeline_depth, 1,
          "so many steps of a worker overlap (1 to 3): with d, what the d - 1 training steps "
          "behind the one that runs will read is pulled already, and a step may "
          "miss what the last d - 1 before it on its worker add, never what they assign. 1: a step "
          "sees all that those before it on its worker have written");
ABSL_FLAG(int64_t, row_cache_bytes, 0,
          "memory of a worker for rows that its training steps have looked up, to be used again "
          "without asking the parameter server; 0: none are kept");
ABSL_FLAG(int, row_cache_staleness, 0,
          "so many steps of its worker after the one that looked a row up may use the row that was "
          "kept; its worker's own writes are always seen, those of others "
          "are missed so long. 0: that step alone");
ABSL_FLAG(absl::Duration, report_every, absl::Seconds(5),
          "a line of progress, where there is no terminal");
ABSL_FLAG(std::string, tensorboard_dir, "",
          "where the chief writes event files for TensorBoard: points each --report_every, "
          "validations, the configuration; and an evaluator its scores");
ABSL_FLAG(absl::Duration, orphan_timeout, absl::Hours(1),
          "a worker that hears of no coordinator for so long ends (138)");
ABSL_FLAG(divvy::DirectoryFlag, state_dir, {},
          "where the chief keeps the job's row; without it a restarted chief begins a new job");
ABSL_FLAG(absl::Duration, checkpoint_every, absl::Minutes(10),
          "a checkpoint is made so often, where there is a --checkpoint_dir. 0: only at the end");
ABSL_FLAG(int, keep, 3, "checkpoints that are kept, at least 2");
ABSL_FLAG(divvy::Durability, durability, divvy::Durability::kReplay,
          "what becomes of the job when a parameter server is lost: replay (back to the newest "
          "checkpoint, then all since is run again) or checkpoint (it "
          "ends, 138)");
ABSL_FLAG(int64_t, redo_log_bytes, 256 << 20,
          "durability replay: memory for what was done since the newest checkpoint; at half of it "
          "one is made");
ABSL_FLAG(int, max_recoveries, 20,
          "durability replay: more of them within 10 minutes end the job (70)");
ABSL_FLAG(std::string, job_name, "",
          "the job's number follows from it; without it the number is random");
ABSL_FLAG(int, min_workers, 1,
          "the job begins when so many workers are known: listed in the cluster, or registered");
ABSL_FLAG(absl::Duration, ps_timeout, absl::Minutes(10),
          "a parameter server that does not answer for so long fails the job (138)");
ABSL_FLAG(int, max_step_attempts, 10, "a step that loses so many workers is given up");
ABSL_FLAG(absl::Duration, step_deadline, absl::Minutes(10),
          "of one attempt of a step; time in which it waits for a parameter server counts half, "
          "and not at all while that server is lost");
ABSL_FLAG(
    absl::Duration, watchdog, absl::ZeroDuration(),
    "the chief's log says what every worker does when no step has finished for so long; 0: never");
ABSL_FLAG(std::string, program, "",
          "a program as a shared library (lib….so), for the stock binaries worker and coordinator");

namespace divvy {
namespace {

PullOptions PullsFromFlags() {
  PullOptions pulls;
  pulls.pipeline_depth = absl::GetFlag(FLAGS_pipeline_depth);
  pulls.row_cache_bytes = absl::GetFlag(FLAGS_row_cache_bytes);
  pulls.row_cache_staleness = absl::GetFlag(FLAGS_row_cache_staleness);
  return pulls;
}

// By the words of its name: what a chief writes for TensorBoard is read by more people than may
// know it.
bool HoldsASecret(absl::string_view flag) {
  constexpr absl::string_view kWords[] = {"password",   "passwd",      "secret", "token",
                                          "credential", "credentials", "key",    "apikey"};
  for (const absl::string_view word : absl::StrSplit(flag, '_')) {
    if (std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords)) return true;
  }
  return false;
}

std::optional<ReportOptions> ReportFromFlags() {
  ReportOptions report;
  report.terminal = StandardErrorTerminal();
  report.report_every = std::max(absl::Milliseconds(100), absl::GetFlag(FLAGS_report_every));
  report.write = WriteStandardError;
  report.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  for (const auto& [name, value] : ChangedFlags())
    report.configuration[absl::StrCat("--", name)] = HoldsASecret(name) ? "(not shown)" : value;
  return report;
}

void SetDurability(CoordinatorOptions& options) {
  options.durability = absl::GetFlag(FLAGS_durability);
  options.redo_log_bytes = absl::GetFlag(FLAGS_redo_log_bytes);
  options.max_recoveries = absl::GetFlag(FLAGS_max_recoveries);
}

void SetStepLimits(CoordinatorOptions& options) {
  options.ps_timeout = absl::GetFlag(FLAGS_ps_timeout);
  options.max_step_attempts = absl::GetFlag(FLAGS_max_step_attempts);
  options.step_deadline = absl::GetFlag(FLAGS_step_deadline);
  options.watchdog = absl::GetFlag(FLAGS_watchdog);
}

cuda::DeviceOptions GpuMathFromFlags() {
  return {absl::GetFlag(FLAGS_tf32), absl::GetFlag(FLAGS_deterministic)};
}

}  // namespace

absl::Status MakeTensorboardDir() {
  const std::string directory = absl::GetFlag(FLAGS_tensorboard_dir);
  const absl::Status made =
      directory.empty() ? absl::OkStatus() : FileSystem::Real().CreateDirectory(directory);
  return made.ok()
             ? made
             : absl::InvalidArgumentError(absl::StrCat("--tensorboard_dir: ", made.message()));
}

absl::Status CheckEmbeddedFlags() {
  std::vector<std::string> problems;
  for (const OwnFlag& own : OwnFlags()) {
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(own.name);
    if ((own.users & kUsedByEmbedded) != 0 || flag == nullptr ||
        flag->CurrentValue() == flag->DefaultValue())
      continue;
    problems.push_back(absl::StrCat("--", own.name, ": ", own.why_not_embedded));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      absl::StrJoin(problems, "; "),
      ". Leave them out, or set TF_CONFIG for one task of a cluster (divvyctl launch does)"));
}

EmbeddedSetup EmbeddedSetupFromFlags(const StrategyOptions& strategy) {
  EmbeddedSetup setup;
  setup.options.num_ps = absl::GetFlag(FLAGS_ps);
  setup.options.num_workers = absl::GetFlag(FLAGS_workers);
  setup.options.replicas_per_worker = absl::GetFlag(FLAGS_replicas_per_worker);
  setup.options.strategy = strategy;
  setup.options.seed = absl::GetFlag(FLAGS_seed);
  setup.options.checkpoint_dir = CheckpointDirFromFlags();
  setup.options.gpus = AbslUnparseFlag(absl::GetFlag(FLAGS_gpus));
  setup.options.gpu_memory_bytes = absl::GetFlag(FLAGS_gpu_memory_bytes);
  setup.limits.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
  setup.limits.keep_checkpoints = absl::GetFlag(FLAGS_keep);
  SetDurability(setup.limits);
  SetStepLimits(setup.limits);
  setup.limits.job = JobNamed(absl::GetFlag(FLAGS_job_name));
  setup.ps = PsLimitsFromFlags();
  setup.gpu_math = GpuMathFromFlags();
  setup.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  setup.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  setup.pulls = PullsFromFlags();
  setup.report = ReportFromFlags();
  return setup;
}

EvaluatorOptions EvaluatorOptionsFromFlags(const StrategyOptions& strategy) {
  EvaluatorOptions options;
  options.cluster = EmbeddedSetupFromFlags(strategy);
  options.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  return options;
}

WorkerTaskOptions WorkerOptionsFromFlags(const TaskOptions& task) {
  WorkerTaskOptions options;
  options.task = task;
  options.replicas = absl::GetFlag(FLAGS_replicas_per_worker);
  options.gpus = {absl::GetFlag(FLAGS_gpus), absl::GetFlag(FLAGS_gpu_memory_bytes),
                  GpuMathFromFlags()};
  options.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  options.workers_per_host = absl::GetFlag(FLAGS_workers_per_host);
  options.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  options.pulls = PullsFromFlags();
  options.orphan_timeout = absl::GetFlag(FLAGS_orphan_timeout);
  options.drain_timeout = DrainTimeoutFromFlags();
  options.apply_program_flags = SetProgramFlags;
  options.program = DescribeOwnProgram();
  return options;
}

ChiefTaskOptions ChiefOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy) {
  ChiefTaskOptions options;
  options.task = task;
  options.strategy = strategy;
  if (const int replicas = absl::GetFlag(FLAGS_replicas_per_worker); replicas != 0)
    options.replicas_per_worker = options.core.replicas_per_worker = replicas;
  options.state_dir = OrFromEnvironment(absl::GetFlag(FLAGS_state_dir), "DIVVY_STATE_DIR");
  options.checkpoint_dir = CheckpointDirFromFlags();
  options.core.final_checkpoint = !CheckpointDirIsTemporary();
  options.core.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
  options.core.keep_checkpoints = absl::GetFlag(FLAGS_keep);
  SetDurability(options.core);
  options.job_name = absl::GetFlag(FLAGS_job_name);
  options.report = ReportFromFlags();
  options.core.job_seed = absl::GetFlag(FLAGS_seed);
  options.core.min_workers = absl::GetFlag(FLAGS_min_workers);
  SetStepLimits(options.core);
  options.core.program_flags = ChangedProgramFlags();
  options.core.program = DescribeOwnProgram();
  return options;
}

}  // namespace divvy
