// Attacks on --health_address, where peers show no certificate.
#ifndef DIVVY_TESTS_E2E_HOSTILE_PROBES_H_
#define DIVVY_TESTS_E2E_HOSTILE_PROBES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "tests/e2e/hostile_job.h"

namespace divvy {

// Bytes that are no request, endless requests, slow senders and thousands of connections. Meanwhile
// an honest probe must be answered. Used by the hostile side's thread only.
class Probes {
 public:
  explicit Probes(HostileJob& job) : job_(job), random_(job.random()) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this object outlives them

 private:
  Descriptor Connect(HostileKind& kind, TaskId task);
  // Sends `bytes` and checks the answer: none, or one short HTTP response.
  void Ask(HostileKind& kind, const std::string& bytes);
  // Sends an honest probe to every task. Records a hang for each that does not answer that it
  // serves.
  void MustServe(HostileKind& kind);

  void RandomRequests(HostileKind& kind, int64_t tries);
  void LongHeaders(HostileKind& kind, int64_t tries);
  void HalfRequests(HostileKind& kind, int64_t tries);
  void SlowSenders(HostileKind& kind, int64_t tries);
  void ManyConnections(HostileKind& kind, int64_t tries);

  HostileJob& job_;
  Random& random_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_PROBES_H_
