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

namespace divvy {
namespace {

constexpr int kPort = 2222;
constexpr int kMaxTasks = 1000;  // of one job; a Compose network has room for some more
constexpr int kMaxGpus = 64;     // of one worker; hosts have fewer

struct Task {
  std::string job;
  int index = 0;
  std::string name() const { return absl::StrCat(job, "-", index); }
};

std::vector<Task> TasksOf(const ComposeOptions& options) {
  std::vector<Task> tasks = {{"chief", 0}};
  for (int i = 0; i < options.num_ps; ++i) tasks.push_back({"ps", i});
  for (int i = 0; i < options.num_workers; ++i) tasks.push_back({"worker", i});
  return tasks;
}

// ---- what may be asked for -----------------------------------------------------------------------------------------------------------------------------

bool HasControlCharacter(absl::string_view text) { return std::any_of(text.begin(), text.end(), absl::ascii_iscntrl); }

absl::Status Validate(const ComposeOptions& options) {
  std::vector<std::string> problems;
  const auto check_count = [&](absl::string_view flag, int count) {
    if (count < 1 || count > kMaxTasks) problems.push_back(absl::StrCat(flag, "=", count, ": wanted 1 to ", kMaxTasks));
  };
  const auto check_text = [&](absl::string_view what, absl::string_view text, absl::string_view wanted) {
    if (text.empty()) problems.push_back(absl::StrCat(what, " is missing: ", wanted));
    if (HasControlCharacter(text)) problems.push_back(absl::StrCat(what, " has a control character: ", ShowText(text)));
  };
  check_count("--ps", options.num_ps);
  check_count("--workers", options.num_workers);
  if (options.gpus_per_worker < 0 || options.gpus_per_worker > kMaxGpus) {
    problems.push_back(absl::StrCat("--gpus_per_worker=", options.gpus_per_worker, ": wanted 0 to ", kMaxGpus));
  }
  check_text("--image", options.image, "the name of an image that has the program");
  check_text("--tls_dir", options.tls_dir, "containers are not on loopback, so every task needs a certificate (divvyctl certs)");
  check_text("the program", options.command.empty() ? "" : options.command[0], "write its path in the image behind \"--\"");
  for (size_t i = 1; i < options.command.size(); ++i) {
    if (HasControlCharacter(options.command[i])) problems.push_back(absl::StrCat("argument ", i, " has a control character: ", ShowText(options.command[i])));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gen compose: ", absl::StrJoin(problems, "; ")));
}

// ---- whose flag it is ----------------------------------------------------------------------------------------------------------------------------------

// Flags of Divvy that a worker or a parameter server reads. All others are the chief's, which hands those of the program to the workers.
constexpr absl::string_view kFlagsOfOthers[] = {"replicas_per_worker", "gpus",       "gpu_memory_bytes", "blas_threads",       "orphan_timeout",
                                                "drain_timeout",       "log_format", "rpc_memory_bytes", "memory_limit_bytes", "commit_buffer_bytes"};
constexpr absl::string_view kSwitchesOfOthers[] = {"check_numerics", "tf32", "deterministic"};  // those that need no value

template <size_t kSize>
bool IsAmong(const absl::string_view (&names)[kSize], absl::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// "--name=value", "-name", "--noname" -> "name"; "": no flag.
absl::string_view FlagName(absl::string_view word) {
  if (!absl::ConsumePrefix(&word, "-")) return "";
  absl::ConsumePrefix(&word, "-");
  return word.substr(0, word.find('='));
}

bool IsSwitchOfOthers(absl::string_view name) {
  return IsAmong(kSwitchesOfOthers, name) || (absl::ConsumePrefix(&name, "no") && IsAmong(kSwitchesOfOthers, name));
}

// The arguments of the program that every task is to see.
std::vector<std::string> ArgumentsOfAll(const std::vector<std::string>& command) {
  std::vector<std::string> words;
  for (size_t i = 1; i < command.size(); ++i) {
    const absl::string_view name = FlagName(command[i]);
    if (!IsAmong(kFlagsOfOthers, name) && !IsSwitchOfOthers(name)) continue;
    words.push_back(command[i]);
    const bool value_follows = IsAmong(kFlagsOfOthers, name) && !absl::StrContains(command[i], "=") && i + 1 < command.size();
    if (value_follows) words.push_back(command[++i]);
  }
  return words;
}

// ---- YAML ----------------------------------------------------------------------------------------------------------------------------------------------

// Compose would put variables in for "$".
std::string Literal(absl::string_view text) { return absl::StrReplaceAll(text, {{"$", "$$"}}); }

// A JSON string is a YAML string as well.
std::string List(const std::vector<std::string>& words) {
  return absl::StrCat("[", absl::StrJoin(words, ", ", [](std::string* out, const std::string& word) { absl::StrAppend(out, QuoteJson(Literal(word))); }), "]");
}

std::string SingleQuoted(absl::string_view text) { return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "''"}}), "'"); }

// ---- one task ------------------------------------------------------------------------------------------------------------------------------------------

std::string TfConfigOf(const Task& self, const std::vector<Task>& tasks) {
  ClusterSpec::Jobs jobs;
  for (const Task& task : tasks) jobs[task.job][task.index] = absl::StrCat(task.name(), ":", kPort);
  ClusterConfig config;
  config.spec = ClusterSpec(std::move(jobs));
  config.task_type = self.job;
  config.task_index = self.index;
  return TfConfigText(config);
}

std::vector<std::string> TlsFlags(const Task& task) {
  return {absl::StrCat("--tls_cert=/certs/", task.name(), ".pem"), absl::StrCat("--tls_key=/certs/", task.name(), ".key"), "--tls_ca=/certs/ca.pem"};
}

std::vector<std::string> CommandOf(const Task& task, const ComposeOptions& options) {
  std::vector<std::string> words = {absl::StrCat("--bind_address=0.0.0.0:", kPort)};
  for (std::string& flag : TlsFlags(task)) words.push_back(std::move(flag));
  if (task.job == "worker" && options.gpus_per_worker > 0) words.push_back("--gpus=all");
  if (task.job != "chief") {
    const std::vector<std::string> given = ArgumentsOfAll(options.command);
    words.insert(words.end(), given.begin(), given.end());
    return words;
  }
  words.push_back("--state_dir=/state");
  if (options.gpus_per_worker > 0) words.push_back(absl::StrCat("--replicas_per_worker=", options.gpus_per_worker));
  words.insert(words.end(), options.command.begin() + 1, options.command.end());
  return words;
}

std::string HealthCheckOf(const Task& task) {
  std::vector<std::string> words = {"CMD", "/divvyctl", "health", absl::StrCat("--addr=localhost:", kPort)};
  for (std::string& flag : TlsFlags(task)) words.push_back(std::move(flag));
  return absl::StrCat("    healthcheck:\n      test: ", List(words), "\n      interval: 2s\n      timeout: 5s\n      start_period: 10s\n      retries: 5\n");
}

// The long form: where the file is not there, it is an error, and not a new folder. Each task sees its own key alone.
std::string VolumesOf(const Task& task, const std::string& tls_dir) {
  std::string text = "    volumes:\n";
  for (const std::string& file : {task.name() + ".pem", task.name() + ".key", std::string("ca.pem")}) {
    absl::StrAppend(&text, "      - {type: bind, source: ", QuoteJson(absl::StrCat(tls_dir, "/", file)), ", target: \"/certs/", file, "\", read_only: true}\n");
  }
  if (task.job == "chief") absl::StrAppend(&text, "      - {type: volume, source: state, target: /state}\n");
  return text;
}

// By number and not by count: an engine hands the first so many to everyone who asks for a count.
std::string GpusOf(const Task& task, int gpus_per_worker) {
  if (task.job != "worker" || gpus_per_worker == 0) return "";
  std::vector<std::string> numbers;
  for (int i = 0; i < gpus_per_worker; ++i) numbers.push_back(absl::StrCat(task.index * gpus_per_worker + i));
  return absl::StrCat("    deploy:\n      resources:\n        reservations:\n          devices:\n            - {driver: nvidia, device_ids: ", List(numbers),
                      ", capabilities: [gpu]}\n");
}

std::string DependenciesOfChief(const std::vector<Task>& tasks) {
  std::string text = "    depends_on:\n";
  for (const Task& task : tasks) {
    if (task.job != "chief") absl::StrAppend(&text, "      ", task.name(), ": {condition: service_healthy}\n");
  }
  return text;
}

std::string ServiceOf(const Task& task, const std::vector<Task>& tasks, const std::string& tls_dir, const ComposeOptions& options) {
  std::string text = absl::StrCat("  ", task.name(), ":\n    <<: *task\n    hostname: ", task.name(), "\n    command: ", List(CommandOf(task, options)),
                                  "\n    environment:\n      TF_CONFIG: ", SingleQuoted(TfConfigOf(task, tasks)), "\n", VolumesOf(task, tls_dir),
                                  HealthCheckOf(task), GpusOf(task, options.gpus_per_worker));
  if (task.job == "chief") absl::StrAppend(&text, "    restart: on-failure:5\n", DependenciesOfChief(tasks));
  return text;
}

// ---- the file ------------------------------------------------------------------------------------------------------------------------------------------

// Compose takes a path without a dot or slash at its head for the name of a volume.
std::string HostPath(absl::string_view directory) {
  const bool is_path = absl::StartsWith(directory, "/") || absl::StartsWith(directory, ".") || absl::StartsWith(directory, "~");
  return Literal(absl::StrCat(is_path ? "" : "./", directory));
}

std::string Head(const ComposeOptions& options) {
  return absl::StrCat(
      "# Valid for docker-compose from ", options.gpus_per_worker > 0 ? "1.28" : "1.27",
      " and for `docker compose` v2. Made by divvyctl gen compose.\n"
      "# The certificates: divvyctl certs. Each key must be readable by uid 65532, as whom the tasks run.\n"
      "# Exit codes from 128 on mean \"start it again\", lower ones are permanent (docs/operations.md). Docker cannot tell them apart, so it starts nothing\n"
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
  const std::string tls_dir = HostPath(options.tls_dir);
  std::string text = Head(options);
  for (const Task& task : tasks) absl::StrAppend(&text, ServiceOf(task, tasks, tls_dir, options));
  return absl::StrCat(text, "\nvolumes:\n  state: {}\n");
}

}  // namespace divvy
