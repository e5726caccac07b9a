// Words of a command line as the readers of generated files want them.
#ifndef DIVVY_TOOLS_CTL_GEN_QUOTE_H_
#define DIVVY_TOOLS_CTL_GEN_QUOTE_H_

#include <string>

#include "absl/strings/string_view.h"

namespace divvy::gen {

// Whether the word needs no quotes anywhere: letters, digits and "/._-=:,+@". Pure.
bool IsHarmless(absl::string_view word);
// For a shell: in single quotes, unless the word has harmless characters only. Pure.
std::string ShellWord(absl::string_view word);
// For ExecStart= of systemd: its specifiers (%), variables ($), quotes and backslashes stay as they
// are in the word. Pure.
std::string UnitWord(absl::string_view word);

}  // namespace divvy::gen

#endif  // DIVVY_TOOLS_CTL_GEN_QUOTE_H_
