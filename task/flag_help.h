// --help, for binaries whose flags are defined in libraries: Abseil's own lists only those of the
// file that has main.
#ifndef DIVVY_TASK_FLAG_HELP_H_
#define DIVVY_TASK_FLAG_HELP_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace divvy {

// To be asked before absl::ParseCommandLine, which ends the process where it finds --help.
// Everything here is pure but for the flags that are registered.

// Whether the words ask for help: --help, -help or -h ahead of a "--".
bool HelpIsAsked(int argc, const char* const* argv);
// The names of the flags that the words give, ahead of a "--"; a name with "no" before it only
// where there is a flag of the rest alone.
std::vector<std::string> FlagsGiven(int argc, const char* const* argv);
// Whether Abseil defines it (flagfile, version, ...): every binary has those.
bool IsAbseilFlag(absl::string_view name);

// The names of all flags of this binary that Abseil does not define, in order.
std::vector<std::string> FlagsOfThisBinary();

// Under a heading, each of these flags with its default and what it means, in lines of at most 100
// columns. Names that are no flag of this binary are left out; where all are, the text is empty.
std::string FlagHelp(absl::string_view heading, absl::Span<const std::string> names);

}  // namespace divvy

#endif  // DIVVY_TASK_FLAG_HELP_H_
