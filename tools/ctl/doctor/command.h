// `divvyctl doctor`.
#ifndef DIVVY_TOOLS_CTL_DOCTOR_COMMAND_H_
#define DIVVY_TOOLS_CTL_DOCTOR_COMMAND_H_

#include <string>
#include <vector>

namespace divvy {

// As the commands of tools/ctl/commands.h. Returns 0 if nothing is wrong, or all that was has been
// mended (--fix); 1 if something is wrong, or a directory was made that somebody must look at; 64
// for a misuse.
int DoctorCommand(const std::vector<std::string>& args);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_DOCTOR_COMMAND_H_
