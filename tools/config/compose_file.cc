#include "tools/config/compose_file.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "cluster/cluster_config.h"
#include "cluster/config_json.h"
#include "protocol/role.h"
#include "task/own_flags.h"

namespace divvy {
namespace {

constexpr int kPort = 2222;
// Of one job; a Compose network has room for some more.
constexpr int kMaxTasks = 1000;
// Of one worker; hosts have fewer.
constexpr int kMaxGpus = 64;

struct Task {
  Role role = Role::kChief;
  int index = 0;
  std::string name() const { return absl::StrCat(RoleName(role), "-", index); }
};

std::vector<Task> TasksOf(const ComposeOptions& options) {
  std::vector<Task> tasks = {{Role::kChief, 0}};
  for (int i = 0; i < options.num_ps; ++i) tasks.push_back({Role::kPs, i});
  for (int i = 0; i < options.num_workers; ++i) tasks.push_back({Role::kWorker, i});
  if (options.evaluator) tasks.push_back({Role::kEvaluator, 0});
  return tasks;
}

// ---- whose flag it is ---------------------------------------------------------------------------

// An argument of the program: a flag with its value, also where that is the next word.
struct Argument {
  std::vector<std::string> words;
  const OwnFlag* own = nullptr;  // null: the program's
  std::string value;             // of a flag that has one
};

// "--name=value", "-name", "--noname" -> "name"; "": no flag.
absl::string_view FlagName(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return "";
  absl::ConsumePrefix(&word, "-");
  return word.substr(0, word.find('='));
}

std::vector<Argument> ArgumentsOf(const std::vector<std::string>& command) {
  std::vector<Argument> arguments;
  for (size_t i = 1; i < command.size(); ++i) {
    Argument argument{{command[i]}, FindOwnFlag(FlagName(command[i])), ""};
    const size_t equals = command[i].find('=');
    if (equals != command[i].npos) argument.value = command[i].substr(equals + 1);
    const bool value_follows = argument.own != nullptr && !argument.own->is_switch &&
                               equals == command[i].npos && i + 1 < command.size();
    if (value_follows) argument.words.push_back(argument.value = command[++i]);
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

// Those that the task reads. The chief hands the program's own to the workers; an evaluator has
// nobody to hand them to it.
std::vector<std::string> ArgumentsFor(const Task& task, const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (const Argument& argument : ArgumentsOf(command)) {
    const uint8_t users =
        argument.own != nullptr ? argument.own->users : kUsedByChief | kUsedByEvaluator;
    if ((users & UserOf(task.role)) != 0)
      words.insert(words.end(), argument.words.begin(), argument.words.end());
  }
  return words;
}

// Where the tasks keep checkpoints: what --checkpoint_dir among the arguments says, or a directory
// that the image has; "": nowhere.
std::string CheckpointDir(const ComposeOptions& options) {
  std::string directory = "/checkpoints";
  for (const Argument& argument : ArgumentsOf(options.command)) {
    if (argument.own != nullptr && argument.own->name == "checkpoint_dir")
      directory = argument.value;
  }
  return directory;
}

bool SaysCheckpointDir(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return FlagName(word) == "checkpoint_dir"; });
}

// What this file says of each task, and nobody else may.
constexpr absl::string_view kSaidHere[] = {"task_type", "task_index",      "coordinator_address",
                                           "num_ps",    "cluster_file",    "bind_address",
                                           "tls_cert",  "tls_key",         "tls_ca",
                                           "state_dir", "workers_per_host"};

void CheckArguments(const ComposeOptions& options, std::vector<std::string>& problems) {
  for (const Argument& argument : ArgumentsOf(options.command)) {
    const absl::string_view name = argument.own == nullptr ? "" : argument.own->name;
    if (std::find(std::begin(kSaidHere), std::end(kSaidHere), name) != std::end(kSaidHere)) {
      problems.push_back(absl::StrCat(
          "--", name, " is each task's own, and is written into the file for each: leave it out"));
    }
  }
  const std::string directory = CheckpointDir(options);
  if (!directory.empty() && directory[0] != '/')
    problems.push_back(absl::StrCat("--checkpoint_dir is ", ShowText(directory),
                                    ": a path in the containers begins with /"));
}

// ---- what may be asked for ----------------------------------------------------------------------

bool HasControlCharacter(absl::string_view text) {
  return std::any_of(text.begin(), text.end(), absl::ascii_iscntrl);
}

// The name of a volume has no slash.
bool IsVolume(const std::string& checkpoints) { return !absl::StrContains(checkpoints, "/"); }

void CheckVolume(const std::string& name, std::vector<std::string>& problems) {
  const auto is_odd = [](char c) {
    return !absl::ascii_isalnum(c) && c != '_' && c != '-' && c != '.';
  };
  if (!IsVolume(name) || HasControlCharacter(name)) return;
  if (name == "state")
    problems.push_back(
        "--checkpoints=state: the chief's state directory has that volume: give another name");
  if (std::any_of(name.begin(), name.end(), is_odd)) {
    problems.push_back(absl::StrCat("--checkpoints=", name,
                                    ": the name of a volume has letters, digits, '_', '-' and '.'; "
                                    "a directory of the host has a slash"));
  }
}

absl::Status Validate(const ComposeOptions& options) {
  std::vector<std::string> problems;
  const auto check_count = [&](absl::string_view flag, int count) {
    if (count < 1 || count > kMaxTasks)
      problems.push_back(absl::StrCat(flag, "=", count, ": wanted 1 to ", kMaxTasks));
  };
  const auto check_text = [&](absl::string_view what, absl::string_view text,
                              absl::string_view wanted) {
    if (text.empty()) problems.push_back(absl::StrCat(what, " is missing: ", wanted));
    if (HasControlCharacter(text))
      problems.push_back(absl::StrCat(what, " has a control character: ", ShowText(text)));
  };
  check_count("--ps", options.num_ps);
  check_count("--workers", options.num_workers);
  if (options.gpus_per_worker < 0 || options.gpus_per_worker > kMaxGpus) {
    problems.push_back(
        absl::StrCat("--gpus_per_worker=", options.gpus_per_worker, ": wanted 0 to ", kMaxGpus));
  }
  check_text("--image", options.image, "the name of an image that has the program");
  if (HasControlCharacter(options.data))
    problems.push_back(absl::StrCat("--data has a control character: ", ShowText(options.data)));
  check_text("--checkpoints", options.checkpoints,
             "the name of a volume, or a directory of the host that all containers may write to "
             "(--checkpoint_dir= of the program keeps none)");
  CheckVolume(options.checkpoints, problems);
  check_text("--tls_dir", options.tls_dir,
             "containers are not on loopback, so every task needs a certificate (divvyctl certs)");
  check_text("the program", options.command.empty() ? "" : options.command[0],
             "write its path in the image behind \"--\"");
  for (size_t i = 1; i < options.command.size(); ++i) {
    if (HasControlCharacter(options.command[i]))
      problems.push_back(
          absl::StrCat("argument ", i, " has a control character: ", ShowText(options.command[i])));
  }
  CheckArguments(options, problems);
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gen compose: ", absl::StrJoin(problems, "; ")));
}

// ---- YAML ---------------------------------------------------------------------------------------

// Compose would put variables in for "$".
std::string Literal(absl::string_view text) { return absl::StrReplaceAll(text, {{"$", "$$"}}); }

// A JSON string is a YAML string as well.
std::string List(const std::vector<std::string>& words) {
  return absl::StrCat("[",
                      absl::StrJoin(words, ", ",
                                    [](std::string* out, const std::string& word) {
                                      absl::StrAppend(out, QuoteJson(Literal(word)));
                                    }),
                      "]");
}

std::string SingleQuoted(absl::string_view text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'");
}

// ---- one task -----------------------------------------------------------------------------------

std::string TfConfigOf(const Task& self, const std::vector<Task>& tasks) {
  ClusterSpec::Jobs jobs;
  for (const Task& task : tasks) {
    if (task.role != Role::kEvaluator)
      jobs[std::string(RoleName(task.role))][task.index] = absl::StrCat(task.name(), ":", kPort);
  }
  ClusterConfig config;
  if (self.role != Role::kEvaluator) config.spec = ClusterSpec(std::move(jobs));
  config.task_type = std::string(RoleName(self.role));
  config.task_index = self.index;
  return TfConfigText(config);
}

std::vector<std::string> TlsFlags(const Task& task) {
  return {absl::StrCat("--tls_cert=/certs/", task.name(), ".pem"),
          absl::StrCat("--tls_key=/certs/", task.name(), ".key"), "--tls_ca=/certs/ca.pem"};
}

std::vector<std::string> CommandOf(const Task& task, const ComposeOptions& options) {
  const bool is_chief = task.role == Role::kChief, is_worker = task.role == Role::kWorker;
  std::vector<std::string> words;
  if (task.role != Role::kEvaluator) {
    words.push_back(absl::StrCat("--bind_address=0.0.0.0:", kPort));
    for (std::string& flag : TlsFlags(task)) words.push_back(std::move(flag));
  }
  if (is_chief) words.push_back("--state_dir=/state");
  const std::vector<std::string> given = ArgumentsFor(task, options.command);
  const std::string checkpoints = CheckpointDir(options);
  if (!is_worker && !checkpoints.empty() && !SaysCheckpointDir(given))
    words.push_back(absl::StrCat("--checkpoint_dir=", checkpoints));
  if (is_worker && options.num_workers > 1)
    words.push_back(absl::StrCat("--workers_per_host=", options.num_workers));
  if (is_worker && options.gpus_per_worker > 0) words.push_back("--gpus=all");
  if (is_chief && options.gpus_per_worker > 0)
    words.push_back(absl::StrCat("--replicas_per_worker=", options.gpus_per_worker));
  words.insert(words.end(), given.begin(), given.end());
  return words;
}

std::string HealthCheckOf(const Task& task) {
  std::vector<std::string> words = {"CMD", "/divvyctl", "health",
                                    absl::StrCat("--addr=localhost:", kPort)};
  for (std::string& flag : TlsFlags(task)) words.push_back(std::move(flag));
  return absl::StrCat(
      "    healthcheck:\n      test: ", List(words),
      "\n      interval: 2s\n      timeout: 5s\n      start_period: 10s\n      retries: 5\n");
}

// Compose takes a path without a dot or slash at its head for the name of a volume.
std::string HostPath(absl::string_view directory) {
  const bool is_path = absl::StartsWith(directory, "/") || absl::StartsWith(directory, ".") ||
                       absl::StartsWith(directory, "~");
  return Literal(absl::StrCat(is_path ? "" : "./", directory));
}

enum class Access { kRead, kWrite };

// The long form: where the file is not there, it is an error, and not a new folder.
std::string Bind(const std::string& source, const std::string& target, Access access) {
  return absl::StrCat("      - {type: bind, source: ", QuoteJson(source),
                      ", target: ", QuoteJson(target),
                      access == Access::kRead ? ", read_only: true}\n" : "}\n");
}

std::string Volume(absl::string_view name, absl::string_view target, Access access) {
  return absl::StrCat("      - {type: volume, source: ", name, ", target: ", target,
                      access == Access::kRead ? ", read_only: true}\n" : "}\n");
}

std::string CheckpointsOf(const Task& task, const ComposeOptions& options) {
  const std::string directory = Literal(CheckpointDir(options));
  if (directory.empty() || task.role == Role::kWorker) return "";
  const Access access = task.role == Role::kEvaluator ? Access::kRead : Access::kWrite;
  if (!IsVolume(options.checkpoints)) return Bind(HostPath(options.checkpoints), directory, access);
  return Volume(options.checkpoints, QuoteJson(directory), access);
}

// Each task sees its own key alone.
std::string VolumesOf(const Task& task, const ComposeOptions& options) {
  std::string text;
  for (const std::string& file :
       {task.name() + ".pem", task.name() + ".key", std::string("ca.pem")}) {
    if (task.role != Role::kEvaluator)
      absl::StrAppend(&text, Bind(absl::StrCat(HostPath(options.tls_dir), "/", file),
                                  absl::StrCat("/certs/", file), Access::kRead));
  }
  if (task.role == Role::kChief) absl::StrAppend(&text, Volume("state", "/state", Access::kWrite));
  absl::StrAppend(&text, CheckpointsOf(task, options));
  if (!options.data.empty() && task.role != Role::kPs)
    absl::StrAppend(&text, Bind(HostPath(options.data), "/data", Access::kRead));
  return text.empty() ? "" : absl::StrCat("    volumes:\n", text);
}

// By number and not by count: an engine hands the first so many to everyone who asks for a count.
std::string GpusOf(const Task& task, int gpus_per_worker) {
  if (task.role != Role::kWorker || gpus_per_worker == 0) return "";
  std::vector<std::string> numbers;
  for (int i = 0; i < gpus_per_worker; ++i)
    numbers.push_back(absl::StrCat(task.index * gpus_per_worker + i));
  return absl::StrCat(
      "    deploy:\n      resources:\n        reservations:\n          devices:\n            - "
      "{driver: nvidia, device_ids: ",
      List(numbers), ", capabilities: [gpu]}\n");
}

std::string DependenciesOfChief(const std::vector<Task>& tasks) {
  std::string text = "    depends_on:\n";
  for (const Task& task : tasks) {
    if (task.role != Role::kChief && task.role != Role::kEvaluator)
      absl::StrAppend(&text, "      ", task.name(), ": {condition: service_healthy}\n");
  }
  return text;
}

std::string ServiceOf(const Task& task, const std::vector<Task>& tasks,
                      const ComposeOptions& options) {
  std::string text =
      absl::StrCat("  ", task.name(), ":\n    <<: *task\n    hostname: ", task.name(),
                   "\n    command: ", List(CommandOf(task, options)),
                   "\n    environment:\n      TF_CONFIG: ", SingleQuoted(TfConfigOf(task, tasks)),
                   "\n", VolumesOf(task, options));
  if (task.role != Role::kEvaluator) absl::StrAppend(&text, HealthCheckOf(task));
  absl::StrAppend(&text, GpusOf(task, options.gpus_per_worker));
  if (task.role == Role::kChief)
    absl::StrAppend(&text, "    restart: on-failure:5\n", DependenciesOfChief(tasks));
  return text;
}

// ---- the file -----------------------------------------------------------------------------------

std::string Head(const ComposeOptions& options) {
  return absl::StrCat(
      "# Valid for docker-compose from ", options.gpus_per_worker > 0 ? "1.28" : "1.27",
      " and for `docker compose` v2. Made by divvyctl gen compose.\n"
      "# The certificates: divvyctl certs. Each key must be readable by uid 65532, "
      "as whom the tasks run.\n"
      "# Checkpoints are written by the chief and every ps, as uid 65532: into a "
      "volume that has them already whose they are, or else the image's.\n"
      "# Exit codes from 128 on mean \"start it again\", lower ones are permanent "
      "(docs/operating/operations.md). Docker cannot tell them apart, so it starts nothing\n"
      "# again for ever.\n"
      "x-task: &task\n"
      "  image: ",
      QuoteJson(options.image),
      "\n"
      "  entrypoint: ",
      List({options.command[0]}),
      "\n"
      "  user: \"65532:65532\"\n"
      "  init: true\n"
      "  read_only: true\n"
      "  tmpfs: [\"/tmp\"]\n"
      "  cap_drop: [\"ALL\"]\n"
      "  security_opt: [\"no-new-privileges:true\"]\n"
      "  stop_grace_period: 30s\n"
      "  restart: on-failure:50\n"
      "\n"
      "services:\n");
}

}  // namespace

absl::StatusOr<std::string> ComposeFile(const ComposeOptions& options) {
  RETURN_IF_ERROR(Validate(options));
  const std::vector<Task> tasks = TasksOf(options);
  std::string text = Head(options);
  for (const Task& task : tasks) absl::StrAppend(&text, ServiceOf(task, tasks, options));
  absl::StrAppend(&text, "\nvolumes:\n  state: {}\n");
  if (IsVolume(options.checkpoints) && !CheckpointDir(options).empty())
    absl::StrAppend(&text, "  ", options.checkpoints, ": {}\n");
  return text;
}

}  // namespace divvy
