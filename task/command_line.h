// The start of a task's process: its command line, and which task it is.
#ifndef DIVVY_TASK_COMMAND_LINE_H_
#define DIVVY_TASK_COMMAND_LINE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "protocol/role.h"
#include "task/task_server.h"

namespace divvy {

// main calls these functions in this order, on one thread. None blocks longer than it takes to read
// --cluster_file.

// Call it first. A crash then writes a stack trace to the log, and a file that grows beyond its
// limit gives an error instead of a signal. `argv0` is the path of the binary, which supplies the
// names in the trace.
void BeginProcess(const char* argv0);

// How a binary describes itself. A plain value.
struct Binary {
  absl::string_view name;  // e.g. "worker", for messages
  // What the binary is, for --help.
  std::string usage;
  // Returns the description of its flags, for --help.
  std::function<std::string()> help_of_flags;
  // The roles that it can run; its main role comes first. Empty: all roles.
  std::vector<Role> roles;
};

// Parses the flags. A result is the exit code with which the process must end now: 0 after --help,
// or 64 (EX_USAGE) with a line on standard error. 64 means that a word is not a flag, since a task
// takes nothing else, or that none of the binary's roles reads a given flag. nullopt: continue.
std::optional<int> ReadCommandLine(int argc, char** argv, const Binary& binary);

// Which task this process is, from TF_CONFIG and the flags. InvalidArgument: nothing says which
// task it is, the binary cannot run this role, or the cluster has problems; all need a corrected
// configuration. REQUIRES: binary.roles is not empty.
absl::StatusOr<TaskOptions> OwnTask(const Binary& binary);

}  // namespace divvy

#endif  // DIVVY_TASK_COMMAND_LINE_H_
