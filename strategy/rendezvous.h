// Where the replicas of one Run meet.
//
// Meetings are numbered: the n-th of each replica is the n-th of all others, whatever became of
// those before. A replica that arrives waits until all have arrived; the last one carries the
// meeting out while the others wait. Never hangs on a replica that has gone: who waits for it gets
// an error (TensorFlow hangs). A meeting that one replica has given up after its timeout is over
// for all: whoever waits in it or comes to it later is told so, and does not meet the others' next
// one. A replica that cannot take part (its value is an error) comes all the same and says why, so
// that its error is everybody's.
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

  // Blocks until the others have arrived and the meeting was carried out. Returns what `complete`
  // returned. All errors are told to all alike: an arrival's error; InvalidArgument: the replicas
  // do not agree, two are named; FailedPrecondition: another replica has returned, it will never
  // come; that one's error: it has failed; DeadlineExceeded: one replica has waited for its
  // timeout, and others had not come: names it, its call and them. After an error the replica may
  // meet again, in its next meeting.
  absl::Status Meet(int replica, Arrival arrival);

  // The replica has ended with `status` and will meet nobody any more. Once for each replica.
  void Leave(int replica, absl::Status status);

  // Blocks until all replicas have left; returns the first error in time.
  absl::Status WaitForAll();

 private:
  // A meeting. Once it is done nobody touches its arrivals: their payloads end with Meet.
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
  absl::Status Deserted(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status GivenUp(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status Disagreement(const Round& round) const;
  absl::Status CarryOut(Round& round) const;

  const int num_replicas_;
  Mutex mu_;
  CondVar changed_;
  // How many meetings each has come to; kLeft: it comes to none any more.
  std::vector<int64_t> met_ DIVVY_GUARDED_BY(mu_);
  // By number, those to which a replica may come yet.
  std::map<int64_t, std::shared_ptr<Round>> rounds_ DIVVY_GUARDED_BY(mu_);
  // In the order of time.
  std::vector<Left> left_ DIVVY_GUARDED_BY(mu_);
  absl::Status first_error_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_RENDEZVOUS_H_
