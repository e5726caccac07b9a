#include "tools/ctl/commands.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/exit_codes.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "base/terminal.h"
#include "base/trusted_file.h"
#include "cluster/cluster_config.h"
#include "coordinator/checkpoint/exchange.h"
#include "rpc/credentials.h"
#include "rpc/health_check.h"
#include "task/task_end.h"
#include "task/task_flags.h"
#include "tools/config/describe_cluster.h"
#include "tools/ctl/certs.h"
#include "tools/ctl/checkpoint.h"
#include "tools/ctl/logs.h"
#include "tools/ctl/operate.h"
#include "tools/ctl/socket_directory.h"
#include "tools/ctl/state.h"
#include "tools/ctl/status.h"
#include "tools/ctl/table.h"
#include "tools/ctl/top/top.h"
#include "tools/ctl/trace.h"
#include "tools/launch/launch.h"
#include "wire/text.h"

// Flags of several commands.
ABSL_FLAG(std::optional<int>, ps, std::nullopt,
          "number of parameter servers. Required by resize; 2 for the other commands");
ABSL_FLAG(int, workers, 2, "number of workers");
ABSL_FLAG(std::string, format, "",
          "status, table, trace, logs: table (default), or json (one object per line). trace also: "
          "chrome (trace events, for Perfetto). checkpoint export: safetensors (default), or "
          "bundle");
ABSL_FLAG(std::string, addr, "",
          "status, top, doctor, table, logs: host:port,...; trace, health, checkpoint save, drain, "
          "resize, rebalance: host:port. For a cluster of divvyctl launch: the unix:DIRECTORY that "
          "its first lines print. "
          "Default: the tasks of "
          "TF_CONFIG");
ABSL_FLAG(absl::Duration, timeout, absl::Minutes(1),
          "checkpoint save, drain, resize, rebalance: how long to wait. The operation continues "
          "afterwards. "
          "table: how long to wait for each task");
// top
ABSL_FLAG(bool, once, false, "top: show the tasks once, as lines, and end");
// trace
ABSL_FLAG(std::optional<int64_t>, step, std::nullopt,
          "trace: the number of a training step. Default: the last step that was traced");
ABSL_FLAG(std::optional<int>, slowest, std::nullopt,
          "trace: so many of the slowest steps of the last 10 minutes");
ABSL_FLAG(std::optional<int>, last, std::nullopt,
          "trace: so many of the last steps that were traced, the newest first");
// logs
ABSL_FLAG(int, lines, 50, "logs: the last so many entries of each task; 0: all that it has kept");
// table
ABSL_FLAG(std::string, by, "count",
          "table top: the order of the rows. count: how many steps named the key; norm: the "
          "Euclidean norm of the values");
ABSL_FLAG(int, limit, 10, "table top: how many rows");
// checkpoint
ABSL_FLAG(bool, no_slots, false, "checkpoint export: without the slots of optimizers");
ABSL_FLAG(int64_t, max_shard_bytes, divvy::kMaxShardBytes,
          "checkpoint export to safetensors: the most bytes of tensors in one file");
// launch
ABSL_FLAG(std::string, logs, "",
          "launch: directory for the tasks' output, one file <task>.log each");
ABSL_FLAG(absl::Duration, chaos, absl::ZeroDuration(),
          "launch: kill (SIGKILL) a random task at this interval; 0: never");
ABSL_FLAG(std::vector<std::string>, chaos_roles, {"worker"},
          "launch: roles that --chaos may kill: worker, ps, coordinator");
ABSL_FLAG(uint64_t, seed, 0, "launch: random seed of --chaos; 0: a random one, printed");
ABSL_FLAG(int, max_restarts, 5, "launch: how often a task may be restarted within 10 minutes");
ABSL_FLAG(bool, evaluator, false,
          "launch, gen: add an evaluator, which scores the job's checkpoints");
ABSL_FLAG(bool, usage, false,
          "launch: print at the end how much CPU time and memory each task has used");
// health
ABSL_FLAG(std::string, service, "", "health: the service to check; empty: the whole task");
ABSL_FLAG(absl::Duration, connect_timeout, absl::Seconds(1), "health: how long to try to connect");
ABSL_FLAG(absl::Duration, rpc_timeout, absl::Seconds(1), "health: how long to wait for an answer");
// certs
ABSL_FLAG(std::string, out, "", "certs: the directory to write to");
ABSL_FLAG(std::string, job, "",
          "certs: the trust domain of the role URIs. Default: divvy, or with --add the CA's own");
ABSL_FLAG(int, days, 365, "certs: how long the certificates are valid");
ABSL_FLAG(bool, add, false,
          "certs: keep existing files, and make the missing ones with the existing CA");
ABSL_FLAG(bool, force, false, "certs: overwrite existing files");

namespace divvy {
namespace {

constexpr int kTasksByDefault = 2;
constexpr int kBadArguments = 1;  // as grpc_health_probe has it

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials() {
  ASSIGN_OR_RETURN(const std::optional<TlsFiles> files, TlsFilesFromFlags());
  if (files) RETURN_IF_ERROR(CheckTlsFiles(*files));
  return MakeChannelCredentials(files, "");
}

// The one task that --addr names. For the directory of a launch it is the chief.
std::string TaskFromFlags() {
  const std::string given = absl::GetFlag(FLAGS_addr);
  return SocketsIn(given, FileSystem::Real()).empty() ? given : absl::StrCat(given, "/chief");
}

// Fills in the tasks to ask: those of --addr, or every task of TF_CONFIG.
absl::Status FillInTasks(StatusOptions& options) {
  if (const std::string given = absl::GetFlag(FLAGS_addr); !given.empty())
    options.addresses = absl::StrSplit(given, ',');
  if (options.addresses.size() == 1) {
    if (std::vector<std::string> sockets = SocketsIn(options.addresses[0], FileSystem::Real());
        !sockets.empty()) {
      for (const std::string& socket : sockets) options.names[socket] = TaskOfSocket(socket);
      options.addresses = std::move(sockets);
    }
  }
  const absl::StatusOr<ClusterConfigSources> sources = ClusterSourcesFromFlags();
  const absl::StatusOr<ClusterConfig> cluster =
      sources.ok() ? ResolveClusterConfig(*sources) : sources.status();
  if (!cluster.ok()) return options.addresses.empty() ? cluster.status() : absl::OkStatus();
  for (const auto& [job, tasks] : TrainingCluster(*cluster)) {
    for (const auto& [index, address] : tasks) {
      if (absl::GetFlag(FLAGS_addr).empty()) options.addresses.push_back(address);
      options.names[address] = job == "chief" ? job : absl::StrCat(job, " ", index);
    }
  }
  if (options.addresses.empty())
    return absl::InvalidArgumentError("no task to ask: give --addr=HOST:PORT,... or set TF_CONFIG");
  return absl::OkStatus();
}

// The coordinator's address comes from --addr, or from TF_CONFIG.
absl::StatusOr<OperatorOptions> OperatorOptionsFromFlags() {
  OperatorOptions options;
  options.address = TaskFromFlags();
  if (options.address.empty()) {
    ASSIGN_OR_RETURN(const ClusterConfigSources sources, ClusterSourcesFromFlags());
    ASSIGN_OR_RETURN(const ClusterConfig cluster, ResolveClusterConfig(sources));
    options.address = CoordinatorAddress(cluster);
  }
  if (options.address.empty())
    return absl::InvalidArgumentError(
        "no coordinator to ask: give --addr=HOST:PORT or set TF_CONFIG");
  ASSIGN_OR_RETURN(options.credentials, Credentials());
  options.timeout = absl::GetFlag(FLAGS_timeout);
  return options;
}

// Asks the coordinator and prints its answer. Returns the exit code.
int Operate(absl::string_view command, absl::StatusOr<std::string> (*ask)(const OperatorOptions&)) {
  const absl::StatusOr<OperatorOptions> options = OperatorOptionsFromFlags();
  if (!options.ok()) return RefuseToStart(options.status());
  const absl::StatusOr<std::string> answer = ask(*options);
  if (answer.ok()) std::printf("%s\n", answer->c_str());
  if (!answer.ok())
    WriteStandardError(
        absl::StrCat("divvyctl ", command, ": ", wire::Escaped(answer.status().message()), "\n"));
  return OperatorExitCode(answer.status());
}

// Prints an error of `command` ("checkpoint", "state") and returns the exit code.
int FilesExitCode(absl::string_view command, const absl::Status& status) {
  if (status.ok()) return EXIT_SUCCESS;
  WriteStandardError(
      absl::StrCat("divvyctl ", command, ": ", wire::Escaped(status.message()), "\n"));
  switch (status.code()) {
    case absl::StatusCode::kNotFound: return exit_codes::kNoInput;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnimplemented: return exit_codes::kCorruptData;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists: return exit_codes::kUsage;
    case absl::StatusCode::kPermissionDenied: return exit_codes::kNotAuthorized;
    default: return exit_codes::kResources;
  }
}

int Print(absl::string_view command, const absl::StatusOr<std::string>& text) {
  if (text.ok()) std::fputs(text->c_str(), stdout);
  return FilesExitCode(command, text.status());
}

int PrintExchanged(const absl::StatusOr<Exchanged>& exchanged) {
  if (!exchanged.ok()) return FilesExitCode("checkpoint", exchanged.status());
  for (const std::string& what : exchanged->left_out)
    WriteStandardError(absl::StrCat("left out: ", wire::Escaped(what), "\n"));
  for (const std::string& file : exchanged->written) std::printf("%s\n", file.c_str());
  return EXIT_SUCCESS;
}

int Verify(const std::string& path) {
  std::string report;
  const absl::Status status = VerifyCheckpoints(FileSystem::Real(), path, report);
  std::fputs(report.c_str(), stdout);
  return FilesExitCode("checkpoint", status);
}

int Export(const std::string& from, const std::string& to) {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (!format.empty() && format != "safetensors" && format != "bundle") {
    return Misuse(absl::StrCat("checkpoint export: --format is \"", format,
                               "\", wanted safetensors or bundle"));
  }
  ExchangeOptions options{
      from, to, format == "bundle" ? ExchangeFormat::kBundle : ExchangeFormat::kSafetensors,
      absl::GetFlag(FLAGS_max_shard_bytes)};
  options.slots = !absl::GetFlag(FLAGS_no_slots);
  return PrintExchanged(ExportCheckpoint(FileSystem::Real(), options));
}

}  // namespace

int LaunchCommand(const std::vector<std::string>& args) {
  LaunchOptions options;
  options.ps = NumPsFromFlags();
  options.workers = absl::GetFlag(FLAGS_workers);
  options.command = args;
  options.logs = absl::GetFlag(FLAGS_logs);
  options.chaos = absl::GetFlag(FLAGS_chaos);
  options.chaos_roles = absl::GetFlag(FLAGS_chaos_roles);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.max_restarts = absl::GetFlag(FLAGS_max_restarts);
  options.evaluator = absl::GetFlag(FLAGS_evaluator);
  options.usage = absl::GetFlag(FLAGS_usage);
  return Launch(options);
}

namespace {

// What to ask the tasks with, and how to print the answers. False: `exit_code` is why not.
bool FillIn(absl::string_view command, StatusOptions& options, int& exit_code) {
  const std::string format = absl::GetFlag(FLAGS_format);
  if (!format.empty() && format != "table" && format != "json") {
    exit_code =
        Misuse(absl::StrCat(command, ": --format is \"", format, "\", wanted table or json"));
    return false;
  }
  const absl::StatusOr<StatusOptions> tasks = TasksFromFlags();
  if (!tasks.ok()) {
    exit_code = RefuseToStart(tasks.status());
    return false;
  }
  options.addresses = tasks->addresses;
  options.names = tasks->names;
  options.credentials = tasks->credentials;
  options.json = format == "json";
  return true;
}

absl::StatusOr<std::string> AskTables(const StatusOptions& options,
                                      const std::vector<std::string>& args) {
  const std::string verb = args[0];
  if (verb == "list") return ListTables(options);
  if (verb == "show") return ShowTable(options, args[1]);
  if (verb == "find") {
    ASSIGN_OR_RETURN(const std::vector<int64_t> keys, ParseKeys({args.begin() + 2, args.end()}));
    return FindInTable(options, args[1], keys);
  }
  const TopBy by = absl::GetFlag(FLAGS_by) == "norm" ? TopBy::kNorm : TopBy::kCount;
  return TopOfTable(options, args[1], by, absl::GetFlag(FLAGS_limit));
}

}  // namespace

int StatusCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("status takes flags only");
  StatusOptions options;
  int exit_code = EXIT_SUCCESS;
  return FillIn("status", options, exit_code) ? ShowStatus(options) : exit_code;
}

int TopCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("top takes flags only");
  const absl::StatusOr<StatusOptions> options = TasksFromFlags();
  if (!options.ok()) return RefuseToStart(options.status());
  return ShowTop(*options, absl::GetFlag(FLAGS_once) ? TopMode::kOnce : TopMode::kAuto);
}

// Which steps to show. InvalidArgument: the flags contradict each other, or one is too small.
absl::StatusOr<TraceChoice> TraceChoiceFromFlags() {
  TraceChoice choice;
  choice.step = absl::GetFlag(FLAGS_step);
  choice.slowest = absl::GetFlag(FLAGS_slowest);
  choice.last = absl::GetFlag(FLAGS_last);
  if (choice.step.has_value() + choice.slowest.has_value() + choice.last.has_value() > 1)
    return absl::InvalidArgumentError("give one of --step, --slowest and --last");
  if (const int64_t step = choice.step.value_or(1); step < 1)
    return absl::InvalidArgumentError(absl::StrCat("--step is ", step, ", wanted at least 1"));
  if (const int slowest = choice.slowest.value_or(1); slowest < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--slowest is ", slowest, ", wanted at least 1"));
  if (const int last = choice.last.value_or(1); last < 1)
    return absl::InvalidArgumentError(absl::StrCat("--last is ", last, ", wanted at least 1"));
  return choice;
}

int TraceCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("trace takes flags only");
  TraceOptions options;
  const absl::StatusOr<TraceChoice> choice = TraceChoiceFromFlags();
  if (!choice.ok()) return Misuse(absl::StrCat("trace: ", choice.status().message()));
  options.choice = *choice;
  const std::string format = absl::GetFlag(FLAGS_format);
  if (!format.empty() && format != "table" && format != "json" && format != "chrome")
    return Misuse(
        absl::StrCat("trace: --format is \"", format, "\", wanted table, json or chrome"));
  if (format == "json") options.format = TraceFormat::kJson;
  if (format == "chrome") options.format = TraceFormat::kChrome;
  const absl::StatusOr<OperatorOptions> coordinator = OperatorOptionsFromFlags();
  if (!coordinator.ok()) return RefuseToStart(coordinator.status());
  options.address = coordinator->address;
  options.credentials = coordinator->credentials;
  const absl::StatusOr<std::string> text = TraceText(options);
  if (text.ok())
    std::fputs(text->c_str(), stdout);
  else
    WriteStandardError(
        absl::StrCat("divvyctl trace: ", wire::Escaped(text.status().message()), "\n"));
  return absl::IsNotFound(text.status()) ? exit_codes::kNoInput : OperatorExitCode(text.status());
}

int LogsCommand(const std::vector<std::string>& args) {
  LogsOptions options;
  options.entries = absl::GetFlag(FLAGS_lines);
  if (options.entries < 0)
    return Misuse(absl::StrCat("logs: --lines is ", options.entries,
                               ", wanted a number from 1, or 0 for all"));
  if (!args.empty()) {
    const absl::StatusOr<std::string> task = TaskOfWords(args);
    if (!task.ok()) return Misuse(absl::StrCat("logs: ", task.status().message()));
    options.task = *task;
  }
  int exit_code = EXIT_SUCCESS;
  return FillIn("logs", options.tasks, exit_code) ? ShowLogs(options) : exit_code;
}

int TableCommand(const std::vector<std::string>& args) {
  const std::string verb = args.empty() ? "" : args[0];
  const bool is_known = (verb == "list" && args.size() == 1) ||
                        ((verb == "show" || verb == "top") && args.size() == 2) ||
                        (verb == "find" && args.size() >= 3);
  if (!is_known)
    return Misuse(
        "table: wanted list, show NAME, find NAME KEY..., or top NAME "
        "--by=count|norm --limit=N");
  if (const std::string by = absl::GetFlag(FLAGS_by); by != "count" && by != "norm")
    return Misuse(absl::StrCat("table: --by is \"", by, "\", wanted count or norm"));
  if (const int limit = absl::GetFlag(FLAGS_limit); limit < 1)
    return Misuse(absl::StrCat("table: --limit is ", limit, ", wanted at least 1"));
  StatusOptions options;
  // All rows of a table may have to be looked at.
  options.timeout = absl::GetFlag(FLAGS_timeout);
  int exit_code = EXIT_SUCCESS;
  if (!FillIn("table", options, exit_code)) return exit_code;
  const absl::StatusOr<std::string> text = AskTables(options, args);
  if (text.ok())
    std::fputs(text->c_str(), stdout);
  else
    WriteStandardError(
        absl::StrCat("divvyctl table: ", wire::Escaped(text.status().message()), "\n"));
  return TableExitCode(text.status());
}

int ConfigCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("config takes flags only");
  const absl::StatusOr<ClusterConfigSources> sources = ClusterSourcesFromFlags();
  if (!sources.ok()) return RefuseToStart(sources.status());
  const ClusterDescription description = DescribeCluster(*sources);
  std::fputs(description.text.c_str(), stdout);
  return description.can_run ? EXIT_SUCCESS : exit_codes::kConfiguration;
}

namespace {

// For example "ca.pem, and a certificate with its key for ps-2, ps-3; valid for 365 days".
std::string CertificatesText(std::vector<std::string> names) {
  const bool has_authority = names[0] == "ca";
  if (has_authority) names.erase(names.begin());
  return absl::StrCat(has_authority ? "ca.pem, and " : "", "a certificate with its key for ",
                      absl::StrJoin(names, ", "), "; valid for ", absl::GetFlag(FLAGS_days),
                      " days");
}

}  // namespace

absl::StatusOr<StatusOptions> TasksFromFlags() {
  StatusOptions options;
  absl::Status problem = FillInTasks(options);
  auto credentials = Credentials();
  problem.Update(credentials.status());
  if (!problem.ok()) return problem;
  options.credentials = *std::move(credentials);
  return options;
}

int NumPsFromFlags() { return absl::GetFlag(FLAGS_ps).value_or(kTasksByDefault); }

int Misuse(absl::string_view what) {
  WriteStandardError(absl::StrCat("divvyctl ", what, "\n"));
  return exit_codes::kUsage;
}

int CertsCommand(const std::vector<std::string>& args) {
  if (!args.empty()) return Misuse("certs takes flags only");
  CertsOptions options;
  options.out = absl::GetFlag(FLAGS_out);
  options.job = absl::GetFlag(FLAGS_job);
  options.ps = NumPsFromFlags();
  options.workers = absl::GetFlag(FLAGS_workers);
  options.lifetime = absl::Hours(24) * absl::GetFlag(FLAGS_days);
  options.force = absl::GetFlag(FLAGS_force);
  options.add = absl::GetFlag(FLAGS_add);
  umask(077);  // so that only the owner can read the keys
  if (!options.out.empty()) {
    absl::Status own = FileSystem::Real().CreateDirectory(options.out);
    if (own.ok()) own = CheckOwnFolder(options.out);
    if (!own.ok())
      return RefuseToStart(absl::Status(own.code(), absl::StrCat("certs: --out: ", own.message())));
  }
  const absl::StatusOr<std::vector<std::string>> written =
      WriteCertificates(options, FileSystem::Real());
  if (absl::IsInvalidArgument(written.status())) return Misuse(written.status().message());
  if (!written.ok()) return RefuseToStart(written.status());
  std::printf("%s: %s\n", options.out.c_str(),
              written->empty() ? "no certificate is missing" : CertificatesText(*written).c_str());
  return EXIT_SUCCESS;
}

int CheckpointCommand(const std::vector<std::string>& args) {
  FileSystem& files = FileSystem::Real();
  const std::string verb = args.empty() ? "" : args[0];
  if (verb == "save" && args.size() == 1) return Operate("checkpoint save", SaveCheckpoint);
  if (verb == "list" && args.size() == 2)
    return Print("checkpoint", DescribeCheckpoints(files, args[1]));
  if (verb == "show" && args.size() == 2)
    return Print("checkpoint", DescribeCheckpoint(files, args[1]));
  if (verb == "verify" && args.size() == 2) return Verify(args[1]);
  if (verb == "export" && args.size() == 3) return Export(args[1], args[2]);
  if (verb == "import" && args.size() == 3)
    return PrintExchanged(ImportCheckpoint(files, args[1], args[2]));
  return Misuse(
      "checkpoint: wanted save, list DIR, show PATH, verify PATH, export PATH TO "
      "[--format=safetensors|bundle] [--max_shard_bytes=N] [--no_slots], or import FROM "
      "PREFIX");
}

int StateCommand(const std::vector<std::string>& args) {
  FileSystem& files = FileSystem::Real();
  const std::string verb = args.size() == 2 ? args[0] : "";
  if (verb == "show") return Print("state", DescribeState(files, args[1]));
  if (verb == "repair") return Print("state", RepairState(files, args[1]));
  return Misuse("state: wanted show DIR, or repair DIR (while no coordinator runs on it)");
}

int DrainCommand(const std::vector<std::string>& args) {
  return args.empty() ? Operate("drain", DrainCoordinator) : Misuse("drain takes flags only");
}

int ResizeCommand(const std::vector<std::string>& args) {
  const std::optional<int> num_ps = absl::GetFlag(FLAGS_ps);
  if (!args.empty()) return Misuse("resize takes flags only");
  if (!num_ps) return Misuse("resize: give the new number of parameter servers by --ps=N");
  if (*num_ps < 1) return Misuse(absl::StrCat("resize: --ps is ", *num_ps, ", wanted at least 1"));
  return Operate("resize", [](const OperatorOptions& options) {
    return ResizeJob(options, *absl::GetFlag(FLAGS_ps));
  });
}

int RebalanceCommand(const std::vector<std::string>& args) {
  return args.empty() ? Operate("rebalance", RebalanceJob) : Misuse("rebalance takes flags only");
}

int HealthCommand(const std::vector<std::string>& args) {
  HealthOptions options;
  options.address = TaskFromFlags();
  auto credentials = Credentials();
  if (!args.empty() || options.address.empty() || !credentials.ok()) {
    WriteStandardError(absl::StrCat(
        "health: ", credentials.ok() ? "give --addr=HOST:PORT" : credentials.status().message(),
        "\n"));
    return kBadArguments;
  }
  options.service = absl::GetFlag(FLAGS_service);
  options.credentials = *std::move(credentials);
  options.connect_timeout = absl::GetFlag(FLAGS_connect_timeout);
  options.rpc_timeout = absl::GetFlag(FLAGS_rpc_timeout);
  return CheckHealth(options);
}

}  // namespace divvy
