// The resources that this process may use and has used, and its identity.
#ifndef DIVVY_BASE_PROCESS_H_
#define DIVVY_BASE_PROCESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace divvy {

// For Linux. All functions are thread-safe; none blocks.

// The number of processors that this process may run on, as its affinity and its control groups
// allow; at least 1.
int NumCores();
// The largest resident memory that this process ever had.
int64_t PeakMemoryBytes();
// The memory that this process may have: the machine's, or the limit of its control groups if that
// is smaller.
int64_t MostMemoryBytes();
int ProcessId();
// The path of the executable file of this process. Empty if it is unknown.
std::string ExecutablePath();
// The name of this machine. "localhost" if it has none.
std::string HostName();

// The limit on the files and connections that this process may have open at a time (`ulimit -n`).
struct OpenFileLimit {
  int64_t before = 0, now = 0;
};
// Raises that limit to the largest that the process may set (`ulimit -Hn`), but at most to about a
// million. Services are often started with a limit of 1,024, and a server needs a descriptor for
// each connection. A second call changes nothing.
OpenFileLimit RaiseOpenFileLimit();

// From now on a write that would make a file larger than the limit (`ulimit -f`) fails with an
// error. Without this call the signal SIGXFSZ kills the process. Call it at the start of the
// process.
void SurviveLargeFiles();

// Ends the process with `exit_code`, without any cleanup, if it still runs after `delay`. For a
// process that ends while a thread runs code that may never return. Never blocks.
void ExitAfter(absl::Duration delay, int exit_code);
// Undoes all earlier calls of ExitAfter whose delay is not over: the process has more to do. Never
// blocks.
void CancelExit();

}  // namespace divvy

#endif  // DIVVY_BASE_PROCESS_H_
