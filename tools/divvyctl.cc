// divvyctl, the command line tool for operators. `divvyctl help` lists its commands, and `divvyctl
// COMMAND --help` the flags of one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/build_info.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/terminal.h"
#include "task/flag_help.h"
#include "task/version_line.h"
#include "tools/ctl/commands.h"
#include "tools/ctl/doctor/command.h"
#include "tools/ctl/gen/command.h"
#include "tools/ctl/gen/generate.h"

namespace divvy {
namespace {

using Names = std::vector<std::string>;

struct Command {
  absl::string_view name;
  absl::string_view words;  // its arguments, for the usage text
  absl::string_view what;
  Names flags;                    // all flags that it accepts
  int (*run)(const Names& args);  // gets the arguments that are no flags
};

Names operator+(Names a, const Names& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<Command>& Commands() {
  static const Names tls = {"tls_cert", "tls_key", "tls_ca"};
  static const Names cluster = {"cluster_file", "task_type", "task_index", "coordinator_address",
                                "num_ps"};
  static const auto& commands = *new std::vector<Command>{
      {"launch",
       "--ps=P --workers=W -- ./program ARGS",
       "starts a cluster of processes on this machine",
       {"ps", "workers", "logs", "evaluator", "usage", "max_restarts", "chaos", "chaos_roles",
        "seed"},
       LaunchCommand},
      {"status", "", "shows what each task of a cluster does (TF_CONFIG, or --addr=HOST:PORT,...)",
       Names{"addr", "format"} + tls + cluster, StatusCommand},
      {"top", "",
       "shows the tasks of a job, redrawn each second (TF_CONFIG, or --addr=HOST:PORT,...). Keys: "
       "q "
       "quits; p, w, c: the order; arrows and digits: one task",
       Names{"addr", "once"} + tls + cluster, TopCommand},
      {"trace", "",
       "shows where the time of a step went, over all roles: the last step that was traced, the "
       "last ones, a training step, or the slowest ones (TF_CONFIG, or --addr=HOST:PORT of the "
       "coordinator)",
       Names{"addr", "step", "slowest", "last", "format"} + tls + cluster, TraceCommand},
      {"logs", "[chief | ps-N | worker-N]",
       "shows the last entries of the tasks' logs, ordered by time (TF_CONFIG, or "
       "--addr=HOST:PORT,...)",
       Names{"addr", "lines", "format"} + tls + cluster, LogsCommand},
      {"doctor", "",
       "looks at this machine and at what the flags name: a cluster (TF_CONFIG or --addr), a "
       "directory of checkpoints, certificates. Says what is wrong, why, and the command that "
       "mends "
       "it",
       Names{"addr", "checkpoint_dir", "blas_threads", "fix"} + tls + cluster, DoctorCommand},
      {"table", "list | show NAME | find NAME KEY... | top NAME",
       "shows the dynamic tables of a running job: how many rows each has, the rows of keys, and "
       "the largest rows (TF_CONFIG, or --addr=HOST:PORT,...). Negative keys come after --",
       Names{"addr", "format", "by", "limit", "timeout"} + tls + cluster, TableCommand},
      {"checkpoint",
       "save | list DIR | show PATH | verify PATH | export PATH TO | import FROM PREFIX",
       "shows, checks and converts checkpoints, without a cluster. PATH is a checkpoint or a "
       "directory (its newest checkpoint). `save` asks the coordinator to make a checkpoint",
       Names{"format", "no_slots", "max_shard_bytes", "addr", "timeout"} + tls + cluster,
       CheckpointCommand},
      {"state",
       "show DIR | repair DIR",
       "shows or repairs a coordinator's --state_dir. `repair` replaces epochs that are not valid, "
       "while no coordinator runs on the directory",
       {},
       StateCommand},
      {"drain", "",
       "ends the coordinator as SIGTERM does: it finishes the steps in flight and saves a "
       "checkpoint (TF_CONFIG, or --addr=HOST:PORT)",
       Names{"addr", "timeout"} + tls + cluster, DrainCommand},
      {"resize", "--ps=N",
       "changes the number of parameter servers of a running job. Start new ones while it waits",
       Names{"ps", "addr", "timeout"} + tls + cluster, ResizeCommand},
      {"rebalance", "",
       "moves shards of a running job from parameter servers that have more to do than others",
       Names{"addr", "timeout"} + tls + cluster, RebalanceCommand},
      {"config", "",
       "shows the cluster as each task understands it from TF_CONFIG and flags, and every problem "
       "with it",
       cluster, ConfigCommand},
      {"health", "--addr=HOST:PORT", "checks one task, with the exit codes of grpc_health_probe",
       Names{"addr", "service", "connect_timeout", "rpc_timeout"} + tls, HealthCommand},
      {"certs",
       "--out=DIR --ps=P --workers=W",
       "makes a development CA and a certificate for each task. With --add, makes only the missing "
       "certificates, with the existing CA",
       {"out", "job", "ps", "workers", "days", "add", "force"},
       CertsCommand},
      {"gen",
       "kubernetes | tfjob | jobset | slurm | systemd | prometheus | compose -- ./program ARGS",
       "prints the files that run a program as a job on Kubernetes (also with Kubeflow or JobSet), "
       "Slurm, systemd or Compose, and Prometheus' configuration for a job. Applies nothing. The "
       "help of a flag begins with the kinds that use it",
       gen::FlagNames(), GenCommand},
  };
  return commands;
}

const Command* FindCommand(absl::string_view name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::string Usage() {
  std::string text =
      "usage: divvyctl COMMAND [FLAGS]; `divvyctl COMMAND --help` shows the flags of a command\n";
  for (const Command& command : Commands()) {
    absl::StrAppend(&text, "  ", command.name, command.words.empty() ? "" : " ", command.words,
                    "\n      ", command.what, "\n");
  }
  return text;
}

std::string UsageOf(const Command& command) {
  return absl::StrCat("usage: divvyctl ", command.name, " ", command.words, "\n", command.what,
                      "\n", FlagHelp("flags, with their defaults:", command.flags));
}

// The first command among the words. It stops at "--", where a program's own words begin.
const Command* CommandIn(int argc, const char* const* argv) {
  for (int i = 1; i < argc && absl::string_view(argv[i]) != "--"; ++i) {
    if (const Command* const command = FindCommand(argv[i])) return command;
  }
  return nullptr;
}

// The commands that have this flag: "`divvyctl gen`, `divvyctl certs`".
std::string CommandsWith(const std::string& flag) {
  Names names;
  for (const Command& command : Commands()) {
    if (std::find(command.flags.begin(), command.flags.end(), flag) != command.flags.end())
      names.push_back(absl::StrCat("`divvyctl ", command.name, "`"));
  }
  return absl::StrJoin(names, ", ");
}

// Refuses flags of other commands, because they would have no effect here.
int CheckFlags(const Command& command, const Names& given) {
  for (const std::string& name : given) {
    if (IsAbseilFlag(name) ||
        std::find(command.flags.begin(), command.flags.end(), name) != command.flags.end())
      continue;
    const std::string others = CommandsWith(name);
    WriteStandardError(absl::StrCat(
        "divvyctl ", command.name, " has no flag --", name,
        others.empty() ? "" : absl::StrCat(", which belongs to ", others), ". Its flags: ",
        command.flags.empty() ? "none" : absl::StrCat("--", absl::StrJoin(command.flags, ", --")),
        "\n"));
    return exit_codes::kUsage;
  }
  return EXIT_SUCCESS;
}

int Help(const Command* command) {
  std::fputs(command == nullptr ? Usage().c_str() : UsageOf(*command).c_str(), stdout);
  return EXIT_SUCCESS;
}

int Main(int argc, char** argv) {
  SurviveLargeFiles();
  if (HelpIsAsked(argc, argv)) return Help(CommandIn(argc, argv));
  absl::SetProgramUsageMessage(Usage());
  absl::FlagsUsageConfig config;
  config.version_string = [] { return VersionLine("divvyctl", BuildCommit()); };
  absl::SetFlagsUsageConfig(config);
  const Names given = FlagsGiven(argc, argv);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const std::string name = words.size() > 1 ? words[1] : "help";
  if (name == "help") return Help(words.size() > 2 ? FindCommand(words[2]) : nullptr);
  const Command* const command = FindCommand(name);
  if (command == nullptr) {
    WriteStandardError(absl::StrCat("divvyctl: unknown command \"", name, "\"\n", Usage()));
    return exit_codes::kUsage;
  }
  if (const int misused = CheckFlags(*command, given); misused != EXIT_SUCCESS) return misused;
  return command->run(Names(words.begin() + 2, words.end()));
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) { return divvy::Main(argc, argv); }
