// --help for binaries whose flags are defined in libraries: Abseil's own --help lists only the
// flags of the file with main.
#ifndef DIVVY_TASK_FLAG_HELP_H_
#define DIVVY_TASK_FLAG_HELP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace divvy {

// Call these before absl::ParseCommandLine, which ends the process when it finds --help. The
// functions are pure, except that they look at the registered flags. Thread-safe.

// Whether the command line asks for help: --help, -help or -h before a "--".
bool HelpIsAsked(int argc, const char* const* argv);
// The names of the flags on the command line, before a "--". For "--noNAME" the result is NAME if
// there is a flag NAME and no flag noNAME.
std::vector<std::string> FlagsGiven(int argc, const char* const* argv);
// Whether Abseil defines this flag (flagfile, version, ...). Every binary has those.
bool IsAbseilFlag(absl::string_view name);

// The names of all flags of this binary that Abseil does not define, sorted.
std::vector<std::string> FlagsOfThisBinary();

// A heading, then each of these flags with its default and its meaning, in lines of at most 100
// columns. Unknown names are left out. The text is empty if no name is known.
std::string FlagHelp(absl::string_view heading, absl::Span<const std::string> names);

}  // namespace divvy

#endif  // DIVVY_TASK_FLAG_HELP_H_
