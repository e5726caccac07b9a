// How a process ended.
#ifndef DIVVY_TOOLS_LAUNCH_EXIT_STATUS_H_
#define DIVVY_TOOLS_LAUNCH_EXIT_STATUS_H_

#include <string>

namespace divvy {

// A value.
struct ExitStatus {
  int exit_code = 0;  // where no signal ended it
  int signal = 0;     // that ended it; 0: none

  bool ok() const { return code() == 0; }
  // As a shell has it: the exit code, or 128 + the signal.
  int code() const { return signal == 0 ? exit_code : 128 + signal; }
  // "ended with exit code 78 (bad configuration)", "was killed by SIGKILL": what
  // docs/operating/operations.md says of the code.
  std::string ToString() const;
};

inline bool operator==(const ExitStatus& a, const ExitStatus& b) {
  return a.exit_code == b.exit_code && a.signal == b.signal;
}

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_EXIT_STATUS_H_
