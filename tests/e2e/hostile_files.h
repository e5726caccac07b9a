// Checkpoints, state directories and flags' files that somebody else has made.
#ifndef DIVVY_TESTS_E2E_HOSTILE_FILES_H_
#define DIVVY_TESTS_E2E_HOSTILE_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/random.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {

// Runs `program`, a counter_program, as a small job, so often on a copy of a good job's directory
// in which something has become odd: a file cut short, changed, huge, or a link, a pipe, a device
// or a directory in its place. Each must end within half a minute, within 4 GiB of addresses, by an
// exit code and not by a signal, and with an exact result if it says that all is well. Blocks. An
// error: there is no good job to begin with.
absl::Status TryOddFiles(const std::string& program, const std::string& directory, int64_t tries,
                         Random& random, HostileKind& kind);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_FILES_H_
