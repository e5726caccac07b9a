// What the parameter servers of a launch run.
#ifndef DIVVY_TOOLS_LAUNCH_PS_COMMAND_H_
#define DIVVY_TOOLS_LAUNCH_PS_COMMAND_H_

#include <string>
#include <vector>

namespace divvy {

// A parameter server needs nothing of a program, and starts faster without Python and the program's
// data. So if `command` is a Python program, this is the stock binary `ps_server` with those flags
// of the program that a parameter server reads, each in the form in which it was given. Flags that
// the program gives itself, by divvy.run(argv=[...]), are unknown here. It is `command` itself for
// any other program, and if `ps_server` is empty. Pure.
std::vector<std::string> PsCommand(const std::vector<std::string>& command,
                                   const std::string& ps_server);

// The stock binary that was installed with this one: in its folder, there as divvy-ps-server, or
// where this repository's builds have it. Empty: there is none.
std::string InstalledPsServer();

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_PS_COMMAND_H_
