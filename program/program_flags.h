// The program's own flags: how they reach the workers, and --help.
#ifndef DIVVY_PROGRAM_PROGRAM_FLAGS_H_
#define DIVVY_PROGRAM_PROGRAM_FLAGS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "protocol/role.h"

namespace divvy {

// A user starts the program with flags on the coordinator's command line. Its steps run on workers
// and must see the same values. The program's own flags are all flags that neither Divvy nor Abseil
// defines. Nothing here blocks.

// The names of the program's own flags.
std::set<std::string> ProgramFlagNames();

// The program's own flags that differ from their defaults, name -> value. Call it after the flags
// were parsed.
std::map<std::string, std::string> ChangedProgramFlags();

// The same for all flags but Abseil's: what the user asked for.
std::map<std::string, std::string> ChangedFlags();

// For --help: the program's own flags, then the flags of a cluster in one process, then the flags
// that only tasks of a cluster have.
std::string HelpOfProgram();
// For --help of a binary that runs only some roles: the program's own flags, then the flags that
// these roles read.
std::string HelpOfTask(const std::vector<Role>& roles);

// Sets the program's own flags to the coordinator's values. Flags that are not in `values` get
// their defaults. Errors:
// - FailedPrecondition, with nothing set: this binary lacks a flag, so it is another program.
//   Deploy one binary to all tasks.
// - InvalidArgument: a flag does not accept the value. Flags before it are already set.
absl::Status SetProgramFlags(const std::map<std::string, std::string>& values);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_PROGRAM_FLAGS_H_
