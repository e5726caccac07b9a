// Hand-made HTTP/2 behind a valid certificate: frames that no gRPC client sends.
#ifndef DIVVY_TESTS_E2E_HOSTILE_FRAMES_H_
#define DIVVY_TESTS_E2E_HOSTILE_FRAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/hostile_job.h"

namespace divvy {

// Malformed frames, floods of valid ones, messages that are never completed, and clients that read
// no answer. Used by the hostile side's thread only.
class Frames {
 public:
  explicit Frames(HostileJob& job) : job_(job), random_(job.random()) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this object outlives them
  // Attacks for the end of a run, because the process keeps the memory that gRPC takes for them.
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
