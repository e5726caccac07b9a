// A program as a shared library, loaded by a binary that has none of its own: `worker
// --program=libmine.so`.
//
// The library is linked with libdivvy.so (//:divvy, or the SDK), as is the binary that loads it: so
// both see one registry of steps, one of flags, one of everything. It is trusted as the binary
// itself is: it runs in this process, with its rights (docs/operations.md).
#ifndef DIVVY_PROGRAM_PROGRAM_LIBRARY_H_
#define DIVVY_PROGRAM_PROGRAM_LIBRARY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"

namespace divvy {

// The value of --program on the command line (`--program=X`, `--program X`, one dash or two; the
// last one; none behind `--`). It is looked for by hand, because the library's own flags must be
// known before absl::ParseCommandLine reads the line. Nothing else is looked at: a --program inside
// a --flagfile is not seen. "" where the value is missing.
std::optional<std::string> ProgramFlag(int argc, const char* const* argv);

// Loads the library at `path` into this process, for good: its steps, data sources, flags and its
// one DIVVY_PROGRAM are registered when this returns OK. Call it before absl::ParseCommandLine,
// from one thread. Blocks on the disk. A name without '/' is a file of the working directory, not
// of the system's library path.
//
// Each error is one line that names the file and what to do; none can be mended by trying again:
//   NotFound            there is no such file
//   PermissionDenied    it belongs neither to root nor to this user, or others may write it:
//                       whoever may, could run code here
//   InvalidArgument     it is no shared library; it was linked without something it needs; it has
//                       no DIVVY_PROGRAM, or two, or one whose options cannot be used
//   FailedPrecondition  it was built for another version of Divvy's headers; this binary has a
//   program already; or it is static and cannot load anything
absl::Status LoadProgramLibrary(const std::string& path);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_PROGRAM_LIBRARY_H_
