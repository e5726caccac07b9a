// Attacks by members: tasks with a certificate of the job that make calls of other roles, or send
// garbage.
#ifndef DIVVY_TESTS_E2E_HOSTILE_MEMBERS_H_
#define DIVVY_TESTS_E2E_HOSTILE_MEMBERS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/e2e/hostile_job.h"
#include "tests/e2e/hostile_methods.h"

namespace divvy {

// gRPC calls that must be refused, each with the right status. Used by the hostile side's thread
// only.
class Members {
 public:
  explicit Members(HostileJob& job) : job_(job), random_(job.random()) {}
  std::vector<HostileAttack> Attacks();  // REQUIRES: this object outlives them

 private:
  // Calls of one method by one member to one task.
  struct Portion {
    TaskId task;
    std::string member, role;
    const Method* method;
  };
  using MakeMessage = std::function<std::string()>;

  Portion AnyPortion();
  void MustBeRefused(HostileKind& kind, const Portion& portion, int count, const MakeMessage& make,
                     RawCalls::Options options = RawCalls::Options());
  // Calls by a role that may make them. They must be refused for their content. An admin's requests
  // are left out: a changed one could be a real request.
  void AllowedCalls(HostileKind& kind, int64_t tries,
                    const std::function<std::string(const Method&)>& make);

  void WrongRoles(HostileKind& kind, int64_t tries);
  void Garbage(HostileKind& kind, int64_t tries);
  void OfAnotherJob(HostileKind& kind, int64_t tries);
  void Changed(HostileKind& kind, int64_t tries);
  void CutShort(HostileKind& kind, int64_t tries);
  void TooLarge(HostileKind& kind, int64_t tries);
  void Bombs(HostileKind& kind, int64_t tries);
  void LargeHeaders(HostileKind& kind, int64_t tries);
  void Floods(HostileKind& kind, int64_t tries);

  HostileJob& job_;
  Random& random_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_MEMBERS_H_
