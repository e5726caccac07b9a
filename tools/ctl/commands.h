// The commands of divvyctl: each reads its flags, calls a library, and maps what comes back to an
// exit code.
#ifndef DIVVY_TOOLS_CTL_COMMANDS_H_
#define DIVVY_TOOLS_CTL_COMMANDS_H_

#include <string>
#include <vector>

namespace divvy {

// `args`: the words behind the command that are no flags, those behind "--" among them. Each blocks
// until it has done what it says, prints to standard output what was asked for and to standard
// error what went wrong, and returns the process' exit code (docs/operating/operations.md). To be
// called once.
int LaunchCommand(const std::vector<std::string>& args);
int StatusCommand(const std::vector<std::string>& args);
int ConfigCommand(const std::vector<std::string>& args);
int CheckpointCommand(const std::vector<std::string>& args);
int StateCommand(const std::vector<std::string>& args);
int DrainCommand(const std::vector<std::string>& args);
int ResizeCommand(const std::vector<std::string>& args);
int HealthCommand(const std::vector<std::string>& args);
int CertsCommand(const std::vector<std::string>& args);
int GenCommand(const std::vector<std::string>& args);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_COMMANDS_H_
