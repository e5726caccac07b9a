// A program as a shared library. A binary without a program of its own loads it: `worker
// --program=libmine.so`.
//
// The library and the binary that loads it are both linked with libdivvy.so (//:divvy, or the SDK),
// so they share one registry of steps and one of flags. The library is as trusted as the binary: it
// runs in this process, with its rights (docs/operating/operations.md).
#ifndef DIVVY_PROGRAM_PROGRAM_LIBRARY_H_
#define DIVVY_PROGRAM_PROGRAM_LIBRARY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace divvy {

// The value of --program on the command line: `--program=X` or `--program X`, with one dash or two,
// not behind `--`. The last one counts. It is parsed by hand, because the library's own flags must
// be known before absl::ParseCommandLine reads the command line. A --program inside a --flagfile is
// not seen. nullopt: there is none. "": its value is missing. Pure.
std::optional<std::string> ProgramFlag(int argc, const char* const* argv);

// Loads the library at `path` into this process for good. When this returns OK, its steps, data
// sources, flags and its one DIVVY_PROGRAM are registered. Call it before absl::ParseCommandLine,
// from one thread. Blocks on the disk. A name without '/' is a file of the working directory; the
// system's library path is not searched.
//
// Each error is one line that names the file and the remedy. Retrying does not help:
//   NotFound            there is no such file
//   PermissionDenied    it belongs neither to root nor to this user, or others may write to it and
//                       could run code here
//   InvalidArgument     it is not a shared library; it was linked without something it needs; it
//   has
//                       no DIVVY_PROGRAM, or two, or one whose options cannot be used
//   FailedPrecondition  it was built for another version of Divvy's headers; this binary already
//   has
//                       a program; or this binary is static and cannot load anything
absl::Status LoadProgramLibrary(const std::string& path);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_PROGRAM_LIBRARY_H_
