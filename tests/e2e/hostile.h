// Strangers, members with the wrong certificate, and a worker that lies, at the ports of a job that
// trains; and a parameter server that lies, in another.
#ifndef DIVVY_TESTS_E2E_HOSTILE_H_
#define DIVVY_TESTS_E2E_HOSTILE_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {

struct HostileOptions {
  // counter_program
  std::string program;
  // An empty one, for certificates, checkpoints and odd files.
  std::string directory;
  // Of all that is random.
  uint64_t seed = 1;
  // 1: some thousand tries; the number of tries grows with it
  double scale = 1;
  // kinds whose names hold this; empty: all
  std::string only;
  std::function<void(const HostileKind& done)> on_kind = [](const HostileKind&) {};
};

// Starts 2 parameter servers and 2 workers with certificates, which count; a third worker of the
// cluster is the hostile one. Tries every kind of hostility, one after another, from this machine
// alone, and looks after each whether every task runs and answers and the job goes on. Then it does
// the same to small jobs on odd files, and to one with a parameter server that lies. Blocks until
// the job has ended. Faults are in the result; an error: the job could not begin, or did not end,
// or its result was not exact.
absl::StatusOr<HostileResult> RunHostile(const HostileOptions& options);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_H_
