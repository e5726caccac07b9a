// Whoever reaches --health_address, where nobody shows a certificate.
#ifndef DIVVY_TESTS_E2E_HOSTILE_PROBES_H_
#define DIVVY_TESTS_E2E_HOSTILE_PROBES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"
#include "tests/e2e/hostile_job.h"

namespace divvy {

// Bytes that are no request, requests without end, slow senders and thousands of connections. A
// probe that asks as it should is answered beside them. To be used by the hostile side's thread.
class Probes {
 public:
  explicit Probes(HostileJob& job) : job_(job), random_(job.random()) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this outlives them

 private:
  Descriptor Connect(HostileKind& kind, TaskId task);
  // Sends `bytes`, and notes what comes back: nothing, or one short answer of HTTP.
  void Ask(HostileKind& kind, const std::string& bytes);
  // An honest probe of every task: a hang if it is not told that the task serves.
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
