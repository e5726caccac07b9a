// `divvyctl gen`.
#ifndef DIVVY_TOOLS_CTL_GEN_COMMAND_H_
#define DIVVY_TOOLS_CTL_GEN_COMMAND_H_

#include <string>
#include <vector>

namespace divvy {

// As the commands of tools/ctl/commands.h. `args`: the kind of file, then the program and its
// arguments.
int GenCommand(const std::vector<std::string>& args);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_GEN_COMMAND_H_
