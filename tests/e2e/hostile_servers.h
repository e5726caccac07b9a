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
  // The path of counter_program.
  std::string program;
  // A directory that does not exist yet, for the job's certificates and checkpoints.
  std::string directory;
  uint64_t seed = 1;
  double scale = 1;  // of the number of lies
  std::string only;  // runs only the kinds whose name contains this
  std::function<void(HostileKind kind)> on_kind;
};

// Runs a job whose steps read and write, and replaces its second parameter server by a RogueServer,
// for one kind of lie after another. While the server lies, the coordinator and the workers may
// retry, give a step up, or end by an exit code; they are then restarted. No task may end by a
// signal or hold more memory than it may, and the job must go on once the server is honest again.
// The sum is not checked, because a parameter server is trusted with the values that it holds.
// Blocks. Returns an error if the job could not begin.
absl::Status TryRogueServer(const RogueServerOptions& options);

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_SERVERS_H_
