// The commands of divvyctl. Each reads its flags, calls a library, and maps the result to an exit
// code.
#ifndef DIVVY_TOOLS_CTL_COMMANDS_H_
#define DIVVY_TOOLS_CTL_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tools/ctl/status.h"

namespace divvy {

// --ps, or the number of parameter servers without it.
int NumPsFromFlags();
// The tasks to ask, those of --addr or TF_CONFIG, and the credentials for that. Blocks on files.
absl::StatusOr<StatusOptions> TasksFromFlags();
// Says on standard error what is wrong with the command line. Returns the exit code for that.
int Misuse(absl::string_view what);

// `args` are the words after the command that are no flags, including those after "--". Each
// function blocks until the command is done, prints the result to standard output and errors to
// standard error, and returns the process' exit code (docs/operating/operations.md). Called once.
int LaunchCommand(const std::vector<std::string>& args);
int StatusCommand(const std::vector<std::string>& args);
int TopCommand(const std::vector<std::string>& args);
int TraceCommand(const std::vector<std::string>& args);
int LogsCommand(const std::vector<std::string>& args);
int TableCommand(const std::vector<std::string>& args);
int ConfigCommand(const std::vector<std::string>& args);
int CheckpointCommand(const std::vector<std::string>& args);
int StateCommand(const std::vector<std::string>& args);
int DrainCommand(const std::vector<std::string>& args);
int ResizeCommand(const std::vector<std::string>& args);
int RebalanceCommand(const std::vector<std::string>& args);
int HealthCommand(const std::vector<std::string>& args);
int CertsCommand(const std::vector<std::string>& args);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_COMMANDS_H_
