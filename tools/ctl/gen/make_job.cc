#include "tools/ctl/gen/make_job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/time/time.h"
#include "cluster/config_json.h"
#include "cluster/task_address.h"
#include "task/own_flags.h"
#include "tools/ctl/gen/arguments.h"
#include "tools/ctl/gen/budget.h"
#include "tools/ctl/gen/quote.h"
#include "wire/text.h"

namespace divvy::gen {
namespace {

using Problems = std::vector<std::string>;

// The most tasks of a role. A Compose network has room for a few more.
constexpr int kMaxTasks = 1000;
// Kubernetes refuses Secrets of more than 1 MiB, and a task's certificate and key take 1 KiB.
constexpr int kMaxTasksOfSecret = 900;
// The most GPUs of one worker. Hosts have fewer.
constexpr int kMaxGpus = 64;
constexpr int kMaxCpus = 1024;
// Names of pods add the role and an index, and have at most 63 characters.
constexpr size_t kMaxName = 40;
// Time to write the end of the log between the drain and the kill.
constexpr absl::Duration kMostDrain = absl::Seconds(kGraceSeconds - 10);

// ---- names --------------------------------------------------------------------------------------

// A name that Kubernetes takes for every object, Services included (RFC 1035).
bool IsName(absl::string_view name, size_t most) {
  const auto is_allowed = [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '-';
  };
  return !name.empty() && name.size() <= most && absl::ascii_islower(name[0]) &&
         name.back() != '-' && std::all_of(name.begin(), name.end(), is_allowed);
}

absl::string_view Basename(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

std::string NameOfProgram(const std::string& program) {
  return absl::AsciiStrToLower(absl::StrReplaceAll(Basename(program), {{"_", "-"}, {".", "-"}}));
}

bool HasControlCharacter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), absl::ascii_iscntrl);
}

// Files have one line for a text, and their readers want UTF-8.
void CheckCharacters(absl::string_view what, absl::string_view text, Problems& problems) {
  if (HasControlCharacter(text))
    problems.push_back(absl::StrCat(what, " has a control character: ", ShowText(text)));
  else if (!wire::IsUtf8(text))
    problems.push_back(absl::StrCat(what, " is not UTF-8: ", ShowText(text)));
}

void CheckName(absl::string_view flag, absl::string_view name, size_t most, Problems& problems) {
  if (IsName(name, most)) return;
  problems.push_back(absl::StrCat(flag, "=", EscapeText(name), ": wanted 1 to ", most,
                                  " lower-case letters, digits and \"-\", a letter first and no "
                                  "\"-\" at the end"));
}

void CheckText(absl::string_view flag, const std::optional<std::string>& text, Problems& problems) {
  if (text) CheckCharacters(flag, *text, problems);
}

void CheckNotEmpty(absl::string_view flag, const std::optional<std::string>& text,
                   absl::string_view wanted, Problems& problems) {
  if (text && text->empty()) problems.push_back(absl::StrCat(flag, " is empty: ", wanted));
  CheckText(flag, text, problems);
}

// Shells, units and Kubernetes read some characters of paths as their own.
void CheckPath(absl::string_view what, absl::string_view path, Problems& problems) {
  if (!path.empty() && !IsHarmless(path))
    problems.push_back(absl::StrCat(what, " is ", ShowText(path),
                                    ": wanted letters, digits and \"/._-=:,+@\" alone"));
}

void CheckNumber(absl::string_view flag, std::optional<int> number, int least, int most,
                 Problems& problems) {
  if (number && (*number < least || *number > most))
    problems.push_back(absl::StrCat(flag, "=", *number, ": wanted ", least, " to ", most));
}

// ---- checks -------------------------------------------------------------------------------------

// The flags that the files set for each task.
constexpr absl::string_view kFlagsOfFiles[] = {
    "task_type",        "task_index",   "coordinator_address",
    "num_ps",           "cluster_file", "bind_address",
    "tls_cert",         "tls_key",      "tls_ca",
    "state_dir",        "http_address", "health_address",
    "workers_per_host", "check_health"};
// Abseil's flags that name further flags, which gen does not see.
constexpr absl::string_view kFlagsWithFlags[] = {"flagfile", "fromenv", "tryfromenv"};

// A flag that no task of the job reads would have no effect. --ps and --workers are also flags of a
// program that runs the whole cluster in one process.
void CheckReaders(const GenOptions& options, const Arguments& arguments, Problems& problems) {
  uint8_t roles = kUsedByChief | kUsedByPs | kUsedByWorker;
  if (options.evaluator) roles |= kUsedByEvaluator;
  for (const absl::string_view name : arguments.OwnNames()) {
    if ((FindOwnFlag(name)->users & roles) == 0)
      problems.push_back(
          absl::StrCat("no task of the job reads --", name, ": write it before \"--\""));
  }
  for (const absl::string_view name : kFlagsWithFlags) {
    if (arguments.HasFlag(name))
      problems.push_back(absl::StrCat("--", name,
                                      ": write the flags themselves, because each goes "
                                      "to the tasks that read it"));
  }
}

void CheckArguments(const GenOptions& options, const Arguments& arguments, Problems& problems) {
  for (size_t i = 0; i < options.command.size(); ++i)
    CheckCharacters(i == 0 ? "the program" : absl::StrCat("argument ", i), options.command[i],
                    problems);
  CheckReaders(options, arguments, problems);
  for (const absl::string_view name : arguments.OwnNames()) {
    if (std::find(std::begin(kFlagsOfFiles), std::end(kFlagsOfFiles), name) !=
        std::end(kFlagsOfFiles))
      problems.push_back(absl::StrCat("--", name,
                                      " differs between tasks, and the file sets it for each: "
                                      "leave it out"));
  }
}

void FindDrain(const Arguments& arguments, Job& job, Problems& problems) {
  absl::Duration drain;
  const std::string text =
      arguments.ValueOf("drain_timeout").value_or(absl::StrCat(kDrainSeconds, "s"));
  if (!absl::ParseDuration(text, &drain) || drain < absl::ZeroDuration() || drain > kMostDrain)
    problems.push_back(absl::StrCat("--drain_timeout=", EscapeText(text), ": wanted at most ",
                                    absl::FormatDuration(kMostDrain),
                                    ", because a task is killed after ", kGraceSeconds, " s"));
  job.drain_seconds = static_cast<int>(absl::ToInt64Seconds(absl::Ceil(drain, absl::Seconds(1))));
}

void CheckCounts(Kind kind, const GenOptions& options, Problems& problems) {
  CheckNumber("--ps", options.ps, 1, kMaxTasks, problems);
  CheckNumber("--workers", options.workers, 1, kMaxTasks, problems);
  CheckNumber("--gpus_per_worker", options.gpus_per_worker, 0, kMaxGpus, problems);
  CheckNumber("--ps_cpus", options.ps_cpus, 1, kMaxCpus, problems);
  CheckNumber("--worker_cpus", options.worker_cpus, 1, kMaxCpus, problems);
  // The chief is a task, too.
  const int tasks =
      1 + std::clamp(options.ps, 0, kMaxTasks) + std::clamp(options.workers, 0, kMaxTasks);
  CheckNumber("--nodes", options.nodes, 1, tasks, problems);
  if (IsOnKubernetes(kind) && problems.empty() && options.ps + options.workers > kMaxTasksOfSecret)
    problems.push_back(absl::StrCat("--ps and --workers are ", options.ps + options.workers,
                                    " together, and a Secret has room for the certificates of ",
                                    kMaxTasksOfSecret));
}

void CheckVolume(const GenOptions& options, Problems& problems) {
  const std::string& name = *options.checkpoints;
  const auto is_odd = [](char c) {
    return !absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.';
  };
  if (!IsVolume(name) || HasControlCharacter(name)) return;
  if (name == kStateVolume)
    problems.push_back(
        "--checkpoints=state: that volume is the chief's state directory: give another name");
  if (name == kPrometheusVolume && options.monitoring)
    problems.push_back(
        "--checkpoints=prometheus: that volume has Prometheus' data: give another name");
  if (std::any_of(name.begin(), name.end(), is_odd)) {
    problems.push_back(absl::StrCat("--checkpoints=", name,
                                    ": the name of a volume may have letters, digits, '_', '-' and "
                                    "'.'; a directory of the host must have a slash"));
  }
}

void CheckTexts(Kind kind, const GenOptions& options, Problems& problems) {
  CheckNotEmpty("--image", options.image, "give the name of an image with the program", problems);
  CheckNotEmpty("--checkpoints", options.checkpoints,
                "give a directory that the chief and every ps may write to, or for Compose the "
                "name of a volume (the program's flag --checkpoint_dir= turns checkpoints off)",
                problems);
  CheckNotEmpty("--tls_dir", options.tls_dir,
                "tasks are not on loopback, so every task needs a certificate: divvyctl certs",
                problems);
  CheckNotEmpty("--rules", options.rules, "give the path of the file with the alerts", problems);
  CheckText("--data", options.data, problems);
  if (!HasContainers(kind)) CheckPath("--tls_dir", options.tls_dir.value_or(""), problems);
  if (kind == Kind::kCompose && options.checkpoints) CheckVolume(options, problems);
  const std::pair<absl::string_view, const std::optional<std::string>*> names[] = {
      {"--namespace", &options.kube_namespace},
      {"--tls_secret", &options.tls_secret},
      {"--data_claim", &options.data_claim},
      {"--checkpoint_claim", &options.checkpoint_claim},
      {"--storage_class", &options.storage_class}};
  for (const auto& [flag, name] : names) {
    if (*name) CheckName(flag, **name, 63, problems);
  }
  if (options.checkpoint_size) {
    const auto size = ParseSize("--checkpoint_size", *options.checkpoint_size);
    if (!size.ok()) problems.push_back(std::string(size.status().message()));
  }
  // --storage_class is also that of the coordinator's state.
  if (options.checkpoint_claim && options.checkpoint_size)
    problems.push_back(
        "--checkpoint_claim names a claim that exists: leave out --checkpoint_size, which is for a "
        "new one");
}

void CheckHosts(const GenOptions& options, Problems& problems) {
  if (!options.hosts) return;
  if (options.hosts->empty()) problems.push_back("--hosts is empty: name at least one");
  for (const std::string& host : *options.hosts) {
    const auto address = NormalizeAddress(absl::StrCat(host, ":1"));
    if (!address.ok() || absl::StrContains(host, "://"))
      problems.push_back(absl::StrCat("--hosts has \"", EscapeText(host),
                                      "\": wanted names or addresses without a port"));
  }
}

// ---- the job ------------------------------------------------------------------------------------

void FillInDefaults(Kind kind, Job& job) {
  GenOptions& options = job.options;
  const auto fill = [](std::optional<std::string>& field, std::string value) {
    if (!field) field = std::move(value);
  };
  fill(options.image, absl::StrCat(job.name, ":1"));
  fill(options.tls_secret, absl::StrCat(job.name, "-tls"));
  fill(options.checkpoint_size, "10Gi");
  fill(options.tls_dir, kind == Kind::kSystemd || kind == Kind::kPrometheus
                            ? absl::StrCat("/etc/", job.name, "/certs")
                            : "./certs");
  fill(options.checkpoints,
       kind == Kind::kSystemd ? absl::StrCat("/srv/", job.name, "/checkpoints") : "checkpoints");
  if (!options.hosts) options.hosts = std::vector<std::string>{"localhost"};
}

// Where the program is when it runs. Images of deploy/container/build and of the SDK have it as
// /program.
std::string PathOf(Kind kind, const std::string& name, const std::string& program) {
  if (absl::StartsWith(program, "/") || kind == Kind::kSlurm || program.empty()) return program;
  return kind == Kind::kSystemd ? absl::StrCat("/opt/", name, "/", Basename(program)) : "/program";
}

void FindCheckpointDir(Kind kind, bool says_checkpoints, const Arguments& arguments, Job& job,
                       Problems& problems) {
  const std::optional<std::string> said = arguments.ValueOf("checkpoint_dir");
  job.says_checkpoint_dir = said.has_value();
  job.checkpoint_dir =
      said.value_or(HasContainers(kind) ? "/checkpoints" : *job.options.checkpoints);
  if (said && says_checkpoints && !HasContainers(kind))
    problems.push_back("--checkpoints and --checkpoint_dir name one directory: give one of them");
  CheckPath("the directory of checkpoints", job.checkpoint_dir, problems);
  const bool is_relative = !job.checkpoint_dir.empty() && job.checkpoint_dir[0] != '/';
  if (is_relative && kind != Kind::kSlurm && kind != Kind::kPrometheus)
    problems.push_back(absl::StrCat(said ? "--checkpoint_dir" : "--checkpoints", " is ",
                                    ShowText(job.checkpoint_dir),
                                    HasContainers(kind) ? ": a path in the containers must begin "
                                                          "with /"
                                                        : ": it must begin with /"));
}

// Containers can write only to their volumes, and units only to what they name.
void FindTensorboardDir(Kind kind, const Arguments& arguments, Job& job, Problems& problems) {
  job.tensorboard_dir = arguments.ValueOf("tensorboard_dir").value_or("");
  CheckPath("--tensorboard_dir", job.tensorboard_dir, problems);
  const bool is_below =
      !job.checkpoint_dir.empty() &&
      absl::StartsWith(job.tensorboard_dir, absl::StrCat(job.checkpoint_dir, "/"));
  if (job.tensorboard_dir.empty() || kind == Kind::kSlurm || kind == Kind::kPrometheus) return;
  if (HasContainers(kind) && !is_below)
    problems.push_back(
        absl::StrCat("--tensorboard_dir=", EscapeText(job.tensorboard_dir),
                     ": containers can write only to their volumes: name a directory below ",
                     job.checkpoint_dir.empty() ? "that of checkpoints (--checkpoint_dir)"
                                                : job.checkpoint_dir));
  if (kind == Kind::kSystemd && job.tensorboard_dir[0] != '/')
    problems.push_back(absl::StrCat("--tensorboard_dir=", EscapeText(job.tensorboard_dir),
                                    ": it must begin with /"));
}

// The flags of a role that are not on the command line.
std::vector<std::string> FlagsOf(Kind kind, const RolePlan& role, const GenOptions& options,
                                 const Arguments& arguments, const Budget& budget) {
  std::vector<std::string> flags;
  const int gpus = options.gpus_per_worker.value_or(0);
  if (role.is_in_cluster() && !arguments.ValueOf("drain_timeout"))
    flags.push_back(absl::StrCat("--drain_timeout=", kDrainSeconds, "s"));
  if (budget.variable_bytes)
    flags.push_back(absl::StrCat("--memory_limit_bytes=", *budget.variable_bytes));
  if (role.role == Role::kChief && gpus > 0)
    flags.push_back(absl::StrCat("--replicas_per_worker=", gpus));
  if (role.role != Role::kWorker) return flags;
  // Compose's containers share the host's cores, and each has a host name of its own. Slurm binds
  // each task to its own cores.
  if (kind == Kind::kCompose && role.count > 1)
    flags.push_back(absl::StrCat("--workers_per_host=", role.count));
  if (kind == Kind::kSlurm) flags.push_back("--workers_per_host=1");
  // A worker that gets no GPU ends, instead of computing on the CPU.
  if (gpus > 0) flags.push_back("--gpus=all");
  return flags;
}

int64_t MemoryFiles(Kind kind, const RolePlan& role) {
  const int64_t shared_memory = HasContainers(kind) && role.gpus > 0 ? kSharedMemoryBytes : 0;
  return shared_memory + (kind == Kind::kCompose ? kTmpBytes : 0);
}

void AddRole(Kind kind, Role which, int count, const Arguments& arguments, Job& job,
             Problems& problems) {
  const GenOptions& options = job.options;
  const bool is_ps = which == Role::kPs, is_chief = which == Role::kChief;
  RolePlan role;
  role.role = which;
  role.count = count;
  role.cpus = is_chief ? 1 : is_ps ? options.ps_cpus.value_or(1) : options.worker_cpus.value_or(2);
  role.gpus = which == Role::kWorker ? options.gpus_per_worker.value_or(0) : 0;
  const auto budget = BudgetOf(which, arguments,
                               is_chief ? "--coordinator_memory"
                               : is_ps  ? "--ps_memory"
                                        : "--worker_memory",
                               is_chief ? options.coordinator_memory
                               : is_ps  ? options.ps_memory
                                        : options.worker_memory,
                               MemoryFiles(kind, role));
  if (!budget.ok()) {
    // The evaluator's memory is the workers', so its problem is theirs.
    if (which != Role::kEvaluator) problems.push_back(std::string(budget.status().message()));
    return;
  }
  role.memory_bytes = budget->memory_bytes;
  role.flags = FlagsOf(kind, role, options, arguments, *budget);
  const std::vector<std::string> given = arguments.WordsFor(which);
  role.flags.insert(role.flags.end(), given.begin(), given.end());
  job.roles.push_back(std::move(role));
}

void NameTheJob(Kind kind, Job& job, Problems& problems) {
  const GenOptions& options = job.options;
  if (options.name) CheckName("--name", *options.name, kMaxName, problems);
  const bool has_program = !options.command.empty() && !options.command[0].empty();
  job.name = options.name.value_or(has_program ? NameOfProgram(options.command[0]) : "");
  if (!has_program && (kind != Kind::kPrometheus || !options.name)) {
    problems.push_back(absl::StrCat("the program is missing: write it after \"--\"",
                                    kind == Kind::kPrometheus ? ", or give the job's --name" : ""));
  } else if (!options.name && !IsName(job.name, kMaxName)) {
    problems.push_back(absl::StrCat("the program's name ", ShowText(job.name),
                                    " cannot be the job's: give it one by --name"));
  }
}

// Prometheus' file tells where the tasks of another kind are.
Kind KindOfTasks(Kind kind, const GenOptions& options, Problems& problems) {
  if (kind != Kind::kPrometheus) return kind;
  const std::optional<Kind> of = ParseKind(options.of.value_or("kubernetes"));
  if (of && *of != Kind::kPrometheus && *of != Kind::kSlurm) {
    if (options.hosts && *of != Kind::kSystemd)
      problems.push_back(absl::StrCat("--hosts has no effect with --of=", KindName(*of),
                                      ": it is for --of=systemd"));
    if (options.kube_namespace && !IsOnKubernetes(*of))
      problems.push_back(absl::StrCat("--namespace has no effect with --of=", KindName(*of),
                                      ": it is for --of=kubernetes, tfjob and jobset"));
    return *of;
  }
  problems.push_back(absl::StrCat("--of=", EscapeText(*options.of),
                                  ": wanted kubernetes, tfjob, jobset, compose or systemd"));
  return Kind::kKubernetes;
}

}  // namespace

absl::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kKubernetes: return "kubernetes";
    case Kind::kTfJob: return "tfjob";
    case Kind::kJobSet: return "jobset";
    case Kind::kSlurm: return "slurm";
    case Kind::kSystemd: return "systemd";
    case Kind::kPrometheus: return "prometheus";
    case Kind::kCompose: break;
  }
  return "compose";
}

std::optional<Kind> ParseKind(absl::string_view name) {
  for (const Kind kind : kKinds) {
    if (KindName(kind) == name) return kind;
  }
  return std::nullopt;
}

absl::StatusOr<Job> MakeJob(Kind kind, GenOptions options) {
  Problems problems;
  Job job;
  job.options = std::move(options);
  const bool says_checkpoints = job.options.checkpoints.has_value();
  const std::vector<std::string>& command = job.options.command;
  const Arguments arguments(
      command.empty() ? command : std::vector<std::string>(command.begin() + 1, command.end()));
  job.kind = KindOfTasks(kind, job.options, problems);
  NameTheJob(kind, job, problems);
  CheckCounts(kind, job.options, problems);
  CheckTexts(kind, job.options, problems);
  CheckHosts(job.options, problems);
  CheckArguments(job.options, arguments, problems);
  FindDrain(arguments, job, problems);
  FillInDefaults(kind, job);
  job.program = PathOf(kind, job.name, command.empty() ? "" : command[0]);
  FindCheckpointDir(kind, says_checkpoints, arguments, job, problems);
  FindTensorboardDir(kind, arguments, job, problems);
  AddRole(kind, Role::kChief, 1, arguments, job, problems);
  AddRole(kind, Role::kPs, job.options.ps, arguments, job, problems);
  AddRole(kind, Role::kWorker, job.options.workers, arguments, job, problems);
  if (job.options.evaluator) AddRole(kind, Role::kEvaluator, 1, arguments, job, problems);
  if (problems.empty()) return job;
  return absl::InvalidArgumentError(
      absl::StrCat("gen ", KindName(kind), ": ", absl::StrJoin(problems, "; ")));
}

}  // namespace divvy::gen
