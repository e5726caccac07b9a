// Runs jobs on damaged checkpoints, state directories and flag files.
#ifndef DIVVY_TESTS_E2E_HOSTILE_FILES_H_
#define DIVVY_TESTS_E2E_HOSTILE_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/random.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {

// Runs `program`, a counter_program, `tries` times as a small job. Each run gets a copy of a good
// job's directory in which one file was damaged: cut short, changed, made huge, or replaced by a
// link, a pipe, a device or a directory. Each run must end within half a minute and within 4 GiB of
// address space, by an exit code and not by a signal. If it reports success, its result must be
// exact. Blocks. Returns an error if the good job cannot be made.
absl::Status TryOddFiles(const std::string& program, const std::string& directory, int64_t tries,
                         Random& random, HostileKind& kind);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_FILES_H_
