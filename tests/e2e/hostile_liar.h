// A lying worker of the cluster. It lies to the coordinator about itself, and to the parameter
// servers in its commits.
#ifndef DIVVY_TESTS_E2E_HOSTILE_LIAR_H_
#define DIVVY_TESTS_E2E_HOSTILE_LIAR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/hostile_job.h"
#include "tests/e2e/hostile_methods.h"

namespace divvy {

// Plays worker 2 of the job, with that worker's certificate. A commit that is applied without right
// would show in the job's sum. Used by the hostile side's thread only.
class Liar {
 public:
  explicit Liar(HostileJob& job) : job_(job), random_(job.random()) {}
  // Starts its service. Called once, before the first attack. REQUIRES: the job has begun.
  absl::Status Start(uint64_t seed);
  // REQUIRES: this object outlives the attacks.
  std::vector<HostileAttack> Attacks();

 private:
  struct BadCommit {
    std::string bytes, what;
  };

  // ---- data streams ----

  void StreamMustBeRefused(HostileKind& kind, RawCalls& calls, const char* method,
                           const std::vector<std::string>& messages, const std::string& what);
  template <typename Request>
  std::vector<std::string> AnyTransfer();
  std::vector<std::string> OddTransfer();
  std::string OtherKind();
  void OddStreams(HostileKind& kind, int64_t tries);

  // ---- the coordinator ----

  std::string Registration(const std::string& address);
  bool RegisterAt(const std::string& address);
  void Registrations(HostileKind& kind, int64_t tries);
  void Lies(HostileKind& kind, int64_t tries);
  // The newest Attach request, which carries its right to commit; nullopt if none comes.
  std::optional<v1::WorkerAttachRequest> Attached();

  // ---- commits ----

  v1::FrameHeader CommitOf(const v1::WorkerAttachRequest& attached, int ps);
  std::string Poison(v1::FrameHeader header, uint32_t variable);
  void SpoilFence(v1::Fence& fence);
  // Sends commits that `spoil` makes from the header of an honest one. None may be applied.
  void BadCommits(HostileKind& kind, int64_t tries,
                  const std::function<BadCommit(v1::FrameHeader)>& spoil);
  void WrongFences(HostileKind& kind, int64_t tries);
  void OthersSessions(HostileKind& kind, int64_t tries);
  void UnfitCommits(HostileKind& kind, int64_t tries);
  void Announced(HostileKind& kind, int64_t tries);

  RawCalls CallsTo(TaskId task) const { return job_.As(HostileJob::kLiarsCertificate, task); }

  HostileJob& job_;
  Random& random_;
  std::unique_ptr<LyingWorker> service_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_HOSTILE_LIAR_H_
