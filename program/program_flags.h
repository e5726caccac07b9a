// The program's own flags, and how they travel from the coordinator to the workers.
#ifndef DIVVY_PROGRAM_PROGRAM_FLAGS_H_
#define DIVVY_PROGRAM_PROGRAM_FLAGS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cluster/role.h"

namespace divvy {

// A program is started once by a person, with its flags on the coordinator's command line; its
// steps run on workers and must see the same values. The program's own flags are all that neither
// Divvy nor Abseil define.

// The names of all of the program's own flags.
std::set<std::string> ProgramFlagNames();

// Those that differ from their defaults: name -> value. To be called after the flags were parsed.
std::map<std::string, std::string> ChangedProgramFlags();

// The same of all flags but Abseil's: what a person asked for.
std::map<std::string, std::string> ChangedFlags();

// For --help: the program's own flags, then those of a cluster in one process, then those that
// tasks of a cluster have besides.
std::string HelpOfProgram();
// For --help of a binary that plays some roles only: the program's own flags, then those that these
// roles read.
std::string HelpOfTask(const std::vector<Role>& roles);

// Sets them, so that ProgramFlags here are those of the coordinator: flags that are not named go
// back to their defaults. FailedPrecondition, nothing set: this binary has no such flag, so it is
// another program; InvalidArgument: a flag does not take the value.
absl::Status SetProgramFlags(const std::map<std::string, std::string>& values);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_PROGRAM_FLAGS_H_
