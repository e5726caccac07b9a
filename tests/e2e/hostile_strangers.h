// Attacks by strangers, who have no certificate of the job, and connections that do nothing.
#ifndef DIVVY_TESTS_E2E_HOSTILE_STRANGERS_H_
#define DIVVY_TESTS_E2E_HOSTILE_STRANGERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/e2e/hostile_job.h"

namespace divvy {

// Bytes before TLS, certificates that every task must refuse, endless connections, and a task
// without file descriptors. Used by the hostile side's thread only.
class Strangers {
 public:
  explicit Strangers(HostileJob& job) : job_(job) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this object outlives them

 private:
  void SendPlain(HostileKind& kind, TaskId task, const std::string& bytes);
  void RandomBytesBeforeTls(HostileKind& kind, int64_t tries);
  void PlaintextBeforeTls(HostileKind& kind, int64_t tries);
  void ChangedHandshakes(HostileKind& kind, int64_t tries);
  void OddCertificates(HostileKind& kind, int64_t tries);
  void ShowOddCertificate(HostileKind& kind, const OddCertificate& odd, const std::string& call);
  void IdleConnections(HostileKind& kind, int64_t tries);
  void TooManyConnections(HostileKind& kind, int64_t tries);
  void FewDescriptors(HostileKind& kind, int64_t tries);

  HostileJob& job_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_STRANGERS_H_
