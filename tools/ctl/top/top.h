// `divvyctl top` shows a job in a terminal, redrawn each second.
#ifndef DIVVY_TOOLS_CTL_TOP_TOP_H_
#define DIVVY_TOOLS_CTL_TOP_TOP_H_

#include "tools/ctl/status.h"

namespace divvy {

enum class TopMode {
  // The screen of the terminal; without one, lines each second.
  kAuto,
  // Once, as lines, after two readings.
  kOnce,
};

// Asks all tasks each second and shows them (tools/ctl/top/model.h) until a key or a signal ends
// it. Returns the process' exit code: 0; 128 + the signal's number; with kOnce 1 if a task has not
// answered. Blocks. REQUIRES: called once, by the only thread that reads standard input.
int ShowTop(const StatusOptions& options, TopMode mode);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_TOP_TOP_H_
