// HTTP/2 by hand, behind a certificate that is right: what no client of gRPC's sends.
#ifndef DIVVY_TESTS_E2E_HOSTILE_FRAMES_H_
#define DIVVY_TESTS_E2E_HOSTILE_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/hostile_job.h"

namespace divvy {

// Odd frames, floods of right ones, messages that are never whole, and answers that nobody takes.
// To be used by the hostile side's thread.
class Frames {
 public:
  explicit Frames(HostileJob& job) : job_(job), random_(job.random()) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this outlives them
  // What is to come at the end of a run: what gRPC took for it the process keeps for later.
  std::vector<HostileAttack> LastAttacks();

 private:
  using Bytes = std::string (*)();
  HostileAttack Flood(const std::string& name, Bytes bytes, int64_t burst_bytes = 0);
  void SendHttp2(HostileKind& kind, TaskId task, const std::string& bytes);
  void OddFrames(HostileKind& kind, int64_t tries);
  void HalfMessages(HostileKind& kind, int64_t tries);
  void SlowReaders(HostileKind& kind, int64_t tries);

  HostileJob& job_;
  Random& random_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_FRAMES_H_
