// A parameter server that lies, among honest tasks.
#ifndef DIVVY_TESTS_E2E_HOSTILE_SERVERS_H_
#define DIVVY_TESTS_E2E_HOSTILE_SERVERS_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "tests/e2e/hostile_result.h"

namespace divvy {

struct RogueServerOptions {
  // counter_program
  std::string program;
  // That there is not yet: for the job's certificates and checkpoints.
  std::string directory;
  uint64_t seed = 1;
  double scale = 1;  // of the number of lies
  std::string only;  // kinds whose names hold this
  std::function<void(HostileKind kind)> on_kind;
};

// Runs a job whose steps read and write, and puts a RogueServer in the place of its second
// parameter server, for one kind of lie after another. What the coordinator and the workers do
// while they are lied to is theirs: they may retry, give a step up, or end by an exit code (and are
// started again). No task may be ended by a signal, or hold more memory than it may, and the job
// must go on once the server is honest again. The sum is not looked at: a parameter server is
// believed about the values that it holds. Blocks. An error: the job could not begin.
absl::Status TryRogueServer(const RogueServerOptions& options);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_SERVERS_H_
