// The meeting point of the replicas of one Run. Each collective is one meeting.
//
// Meetings are numbered: a replica's n-th meeting is the n-th of all others, even if earlier ones
// failed. A replica that arrives waits until all have arrived. The last one carries the meeting out
// while the others wait.
//
// A meeting never waits for a replica that has ended: the replicas that wait for it get an error
// (TensorFlow hangs). If one replica gives up after its timeout, the meeting is over for all:
// replicas that wait in it, or arrive later, get the error and do not join the others' next
// meeting. A replica that cannot take part because its value is an error arrives with that error,
// which all replicas then get.
#ifndef DIVVY_STRATEGY_RENDEZVOUS_H_
#define DIVVY_STRATEGY_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "strategy/arrival.h"

namespace divvy::internal {

// Thread-safe; each replica is one thread.
class Rendezvous {
 public:
  explicit Rendezvous(int num_replicas);

  using Complete = CompleteMeeting;
  using Arrival = internal::Arrival;

  // Blocks until all others have arrived and the meeting has been carried out. Returns the result
  // of `complete`. All replicas get the same error:
  //   InvalidArgument     the replicas' calls differ; the message names two of them
  //   FailedPrecondition  another replica has returned and will never arrive
  //   DeadlineExceeded    one replica has waited for its timeout; the message names it, its call
  //                       and the missing replicas
  //   others              the error of an arrival, or the error with which another replica ended
  // After an error the replica may continue with its next meeting.
  absl::Status Meet(int replica, Arrival arrival);

  // Reports that the replica has ended with `status` and will make no more calls. Call it once for
  // each replica.
  void Leave(int replica, absl::Status status);

  // Blocks until all replicas have left. Returns the error that came first in time.
  absl::Status WaitForAll();

 private:
  // A meeting. Do not use its arrivals after it is done: their payloads are valid only until Meet
  // returns.
  struct Round {
    explicit Round(int num_replicas) : arrivals(num_replicas) {}
    std::vector<std::optional<Arrival>> arrivals;
    int arrived = 0;
    bool done = false;
    absl::Status outcome;
  };

  struct Left {
    int replica;
    absl::Status status;
  };

  std::shared_ptr<Round> NextOf(int replica) DIVVY_REQUIRES(mu_);
  void ForgetPassed() DIVVY_REQUIRES(mu_);
  absl::Status End(Round& round, absl::Status outcome) DIVVY_REQUIRES(mu_);
  absl::Status Await(Round& round, int replica) DIVVY_REQUIRES(mu_);
  absl::Status ReplicaHasLeft(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status GivenUp(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status Disagreement(const Round& round) const;
  absl::Status RunRound(Round& round) const;

  const int num_replicas_;
  Mutex mu_;
  CondVar changed_;
  // The number of meetings in which each replica has arrived; kLeft if it has ended.
  std::vector<int64_t> met_ DIVVY_GUARDED_BY(mu_);
  // By number: the meetings in which a replica may still arrive.
  std::map<int64_t, std::shared_ptr<Round>> rounds_ DIVVY_GUARDED_BY(mu_);
  // In order of time.
  std::vector<Left> left_ DIVVY_GUARDED_BY(mu_);
  absl::Status first_error_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_RENDEZVOUS_H_
