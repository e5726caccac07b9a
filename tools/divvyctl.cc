// divvyctl: the one tool for people. `divvyctl help` lists its commands; each prints its own flags with `divvyctl COMMAND --help`.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/flags/usage_config.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_codes.h"
#include "base/process.h"
#include "base/terminal.h"
#include "base/version.h"
#include "tools/ctl/commands.h"

namespace divvy {
namespace {

struct Command {
  absl::string_view name;
  absl::string_view what;
  int (*run)(const std::vector<std::string>& args);  // what stands behind the command and is no flag
};

constexpr Command kCommands[] = {
    {"launch", "--ps=P --workers=W -- ./program ARGS: a cluster of processes on this machine", LaunchCommand},
    {"status", "what the tasks of a cluster are and do (TF_CONFIG, or --addr=HOST:PORT,...)", StatusCommand},
    {"checkpoint", "save | list DIR | show PATH | verify PATH | export PATH TO | import FROM PREFIX: PATH is a directory (its newest) or a checkpoint",
     CheckpointCommand},
    {"drain", "the coordinator ends as by SIGTERM: what is in flight is finished, what is there is saved (TF_CONFIG, or --addr=HOST:PORT)", DrainCommand},
    {"resize", "--ps=N: the job goes on with so many parameter servers; start those that join while it waits", ResizeCommand},
    {"config", "the cluster as each task would understand it, from TF_CONFIG and flags, with everything wrong with it", ConfigCommand},
    {"health", "--addr=HOST:PORT: for probes; flags and exit codes of grpc_health_probe", HealthCommand},
    {"certs", "--out=DIR: a development CA and a certificate for each task", CertsCommand},
    {"gen", "compose --ps=P --workers=W --image=I -- ARGS: a docker-compose file", GenCommand},
};

std::string Usage() {
  std::string text = "usage: divvyctl COMMAND [FLAGS]\n";
  for (const Command& command : kCommands) absl::StrAppend(&text, "  ", command.name, std::string(12 - command.name.size(), ' '), command.what, "\n");
  return text;
}

int Main(int argc, char** argv) {
  SurviveLargeFiles();
  absl::SetProgramUsageMessage(Usage());
  absl::FlagsUsageConfig config;
  config.version_string = [] { return absl::StrCat("divvyctl ", kVersion, "\n"); };
  absl::SetFlagsUsageConfig(config);
  const std::vector<char*> words = absl::ParseCommandLine(argc, argv);
  const std::string name = words.size() > 1 ? words[1] : "help";
  if (name == "help") {
    std::fputs(Usage().c_str(), stdout);
    return EXIT_SUCCESS;
  }
  for (const Command& command : kCommands) {
    if (command.name == name) return command.run(std::vector<std::string>(words.begin() + 2, words.end()));
  }
  WriteStandardError(absl::StrCat("divvyctl: there is no command \"", name, "\"\n", Usage()));
  return exit_codes::kUsage;
}

}  // namespace
}  // namespace divvy

int main(int argc, char** argv) { return divvy::Main(argc, argv); }
