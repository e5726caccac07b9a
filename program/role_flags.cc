#include "program/role_flags.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/file_system.h"
#include "base/terminal.h"
#include "formats/utf8.h"
#include "program/own_program.h"
#include "program/program_flags.h"
#include "ps_server/service/run.h"
#include "task/own_flags.h"
#include "task/task_flags.h"

namespace divvy {

// ABSL_FLAG finds it by its name.
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

bool AbslParseFlag(absl::string_view text, Rebalancing* rebalancing, std::string* error) {
  if (text == "off" || text == "auto") {
    *rebalancing = text == "auto" ? Rebalancing::kAuto : Rebalancing::kOff;
    return true;
  }
  *error = "wanted off or auto";
  return false;
}
std::string AbslUnparseFlag(Rebalancing rebalancing) {
  return rebalancing == Rebalancing::kAuto ? "auto" : "off";
}

}  // namespace divvy

#define DIVVY_PROGRAM_FLAG(type, name, value, users, why_not_embedded, meaning) \
  ABSL_FLAG(type, name, value, meaning);
#include "task/flags.inc"

namespace divvy {
namespace {

// The options of a worker, in a process of its own or in an embedded cluster.
WorkerOptions WorkerLimitsFromFlags() {
  WorkerOptions options;
  options.check_numerics = absl::GetFlag(FLAGS_check_numerics);
  options.pulls.pipeline_depth = absl::GetFlag(FLAGS_pipeline_depth);
  return options;
}

// Decides by the words of the flag's name. Event files for TensorBoard are read by more people than
// may know a secret.
bool HoldsASecret(absl::string_view flag) {
  constexpr absl::string_view kWords[] = {"password",   "passwd",      "secret", "token",
                                          "credential", "credentials", "key",    "apikey"};
  for (const absl::string_view word : absl::StrSplit(flag, '_')) {
    if (std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords)) return true;
  }
  return false;
}

// Event files have text in UTF-8 alone.
std::string AsUtf8(std::string value) { return IsUtf8(value) ? value : absl::CHexEscape(value); }

// The program's own flags, also those with their default values: two jobs differ in what both have.
std::map<std::string, HParam> HParamsFromFlags() {
  std::map<std::string, HParam> hparams;
  for (const std::string& name : ProgramFlagNames()) {
    if (HoldsASecret(name)) continue;
    const absl::CommandLineFlag* const flag = absl::FindCommandLineFlag(name);
    const std::string value = flag->CurrentValue();
    double number = 0;
    if (flag->IsOfType<bool>()) {
      hparams.emplace(name, value == "true");
    } else if (absl::SimpleAtod(value, &number) && std::isfinite(number)) {
      hparams.emplace(name, number);
    } else {
      hparams.emplace(name, AsUtf8(value));
    }
  }
  return hparams;
}

std::optional<ReportOptions> ReportFromFlags() {
  ReportOptions report;
  report.terminal = StandardErrorTerminal();
  report.report_every = std::max(absl::Milliseconds(100), absl::GetFlag(FLAGS_report_every));
  report.write = WriteStandardError;
  report.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  report.histograms_every = absl::GetFlag(FLAGS_tensorboard_histograms);
  report.hparams = HParamsFromFlags();
  for (const auto& [name, value] : ChangedFlags())
    report.configuration[absl::StrCat("--", name)] =
        HoldsASecret(name) ? "(not shown)" : AsUtf8(value);
  return report;
}

// The options of a coordinator, in a process of its own or in an embedded cluster.
CoordinatorOptions CoordinatorLimitsFromFlags() {
  CoordinatorOptions options;
  options.job_seed = absl::GetFlag(FLAGS_seed);
  options.job = JobNamed(absl::GetFlag(FLAGS_job_name));
  options.checkpoint_every = absl::GetFlag(FLAGS_checkpoint_every);
  options.keep_checkpoints = absl::GetFlag(FLAGS_keep);
  options.durability = absl::GetFlag(FLAGS_durability);
  options.redo_log_bytes = absl::GetFlag(FLAGS_redo_log_bytes);
  options.max_recoveries = absl::GetFlag(FLAGS_max_recoveries);
  options.rebalancing = absl::GetFlag(FLAGS_rebalance);
  options.min_workers = absl::GetFlag(FLAGS_min_workers);
  options.ps_timeout = absl::GetFlag(FLAGS_ps_timeout);
  options.max_step_attempts = absl::GetFlag(FLAGS_max_step_attempts);
  options.step_deadline = absl::GetFlag(FLAGS_step_deadline);
  options.watchdog = absl::GetFlag(FLAGS_watchdog);
  return options;
}

cuda::DeviceOptions GpuMathFromFlags() {
  return {absl::GetFlag(FLAGS_tf32), absl::GetFlag(FLAGS_deterministic)};
}

}  // namespace

absl::Status MakeTensorboardDir() {
  const std::string directory = absl::GetFlag(FLAGS_tensorboard_dir);
  const absl::Duration histograms = absl::GetFlag(FLAGS_tensorboard_histograms);
  if (histograms != absl::ZeroDuration() && histograms < absl::Seconds(1))
    return absl::InvalidArgumentError(
        absl::StrCat("--tensorboard_histograms=", absl::FormatDuration(histograms),
                     ": give 0 for none, or at least 1s"));
  if (histograms != absl::ZeroDuration() && directory.empty())
    return absl::InvalidArgumentError(
        "--tensorboard_histograms needs --tensorboard_dir, the directory to write them to");
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
  setup.coordinator.core = CoordinatorLimitsFromFlags();
  setup.ps = PsLimitsFromFlags();
  setup.gpu_math = GpuMathFromFlags();
  setup.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  setup.worker = WorkerLimitsFromFlags();
  setup.coordinator.report = ReportFromFlags();
  return setup;
}

EvaluatorOptions EvaluatorOptionsFromFlags(const StrategyOptions& strategy) {
  EvaluatorOptions options;
  options.cluster = EmbeddedSetupFromFlags(strategy);
  options.tensorboard_dir = absl::GetFlag(FLAGS_tensorboard_dir);
  return options;
}

WorkerTaskOptions WorkerOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy) {
  WorkerTaskOptions options;
  options.task = task;
  options.core = WorkerLimitsFromFlags();
  // Only for a process: a worker beside its coordinator is never orphaned, and never drained alone.
  options.core.orphan_timeout = absl::GetFlag(FLAGS_orphan_timeout);
  options.core.drain_timeout = DrainTimeoutFromFlags();
  options.core.apply_program_flags = SetProgramFlags;
  options.core.program = DescribeOwnProgram();
  options.replicas = absl::GetFlag(FLAGS_replicas_per_worker);
  options.gpus = {absl::GetFlag(FLAGS_gpus), absl::GetFlag(FLAGS_gpu_memory_bytes),
                  GpuMathFromFlags()};
  options.blas_threads = absl::GetFlag(FLAGS_blas_threads);
  options.workers_per_host = absl::GetFlag(FLAGS_workers_per_host);
  options.communication = strategy.communication;
  return options;
}

ChiefTaskOptions ChiefOptionsFromFlags(const TaskOptions& task, const StrategyOptions& strategy) {
  ChiefTaskOptions options;
  options.task = task;
  CoordinatorSetup& setup = options.setup;
  setup.core = CoordinatorLimitsFromFlags();
  setup.core.final_checkpoint = !CheckpointDirIsTemporary();
  setup.core.program_flags = ChangedProgramFlags();
  setup.core.program = DescribeOwnProgram();
  setup.strategy = strategy;
  if (const int replicas = absl::GetFlag(FLAGS_replicas_per_worker); replicas != 0)
    setup.replicas_per_worker = setup.core.replicas_per_worker = replicas;
  setup.report = ReportFromFlags();
  options.state_dir = OrFromEnvironment(absl::GetFlag(FLAGS_state_dir), "DIVVY_STATE_DIR");
  options.checkpoint_dir = CheckpointDirFromFlags();
  return options;
}

}  // namespace divvy
