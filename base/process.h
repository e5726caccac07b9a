// What this process may use and has used.
#ifndef DIVVY_BASE_PROCESS_H_
#define DIVVY_BASE_PROCESS_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"

namespace divvy {

// Linux. Thread-safe; none blocks.

// processors this process may run on; at least 1
int NumCores();
// The most memory it ever held resident.
int64_t PeakMemoryBytes();
// That it may hold: what the machine has, or its control groups leave it.
int64_t MostMemoryBytes();
int ProcessId();
// The file this process runs; empty: unknown.
std::string ExecutablePath();
// Of this machine, as it calls itself; "localhost" if it has no name.
std::string HostName();

// How many files and connections this process may have open at a time (`ulimit -n`).
struct OpenFileLimit {
  int64_t before = 0, now = 0;
};
// Raises it to what the process may have at most (`ulimit -Hn`), up to a million: services are
// often started with 1,024, and a server keeps a descriptor for each connection. A second call
// changes nothing.
OpenFileLimit RaiseOpenFileLimit();

// From now on a write that would make a file larger than it may be (`ulimit -f`) fails, and whoever
// wrote says what that means; else it kills the process (SIGXFSZ). For the beginning of a process.
void SurviveLargeFiles();

// Ends the process with `exit_code` if it has not ended within `delay`: for a process that ends
// while a thread runs code that may never return. Nothing is cleaned up then. Never blocks; cannot
// be taken back.
void ExitAfter(absl::Duration delay, int exit_code);

}  // namespace divvy

#endif  // DIVVY_BASE_PROCESS_H_
