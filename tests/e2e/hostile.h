// Attacks a training job at its ports, by strangers, by members with the wrong certificate and by a
// lying worker. Attacks a second job by a lying parameter server.
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
  // The path of counter_program.
  std::string program;
  // An empty directory, for certificates, checkpoints and damaged files.
  std::string directory;
  // The seed of all random choices.
  uint64_t seed = 1;
  // The number of tries: 1 means some thousand.
  double scale = 1;
  // Runs only the kinds whose name contains this; empty: all.
  std::string only;
  std::function<void(const HostileKind& done)> on_kind = [](const HostileKind&) {};
};

// Starts 2 parameter servers and 2 honest workers with certificates, which count. The hostile side
// plays a third worker of the cluster. Tries every kind of attack, one after another, all from this
// machine. After each kind it checks that every task runs and answers and that the job goes on.
// Then it runs small jobs on damaged files, and a job with a lying parameter server. Blocks until
// all jobs have ended. The result holds the faults. Returns an error if the job could not begin,
// did not end, or its result was not exact.
absl::StatusOr<HostileResult> RunHostile(const HostileOptions& options);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_H_
