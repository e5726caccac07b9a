// Where the replicas of one Run meet.
//
// The n-th meeting of each replica is the n-th of all others. A replica that arrives waits until all have arrived; the last one carries the meeting out while
// the others wait. Never hangs on a replica that has gone: who waits for it gets an error (TensorFlow hangs). A replica that cannot take part (its value is
// an error) comes all the same and says why, so that the counts stay equal and its error is everybody's.
#ifndef DIVVY_STRATEGY_RENDEZVOUS_H_
#define DIVVY_STRATEGY_RENDEZVOUS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"

namespace divvy::internal {

// Thread-safe; each replica is one thread.
class Rendezvous {
 public:
  explicit Rendezvous(int num_replicas);

  // Given the payloads of all replicas in order, fills in what each takes home. Runs on the thread of the replica that arrives last.
  using Complete = std::function<absl::Status(absl::Span<void* const> payloads)>;

  struct Arrival {
    std::string call;                                   // "AllReduce SUM": what all must agree on
    const std::type_info* type = nullptr;               // of *payload: what all must agree on, too
    void* payload = nullptr;                            // lives until Meet returns; touched by `complete` alone meanwhile
    Complete complete;                                  // replica 0's is the one that runs
    absl::Status error;                                 // why this replica has nothing to bring; `complete` then does not run
    absl::Duration timeout = absl::InfiniteDuration();  // how long this replica waits for the others
  };

  // Blocks until the others have arrived and the meeting was carried out. Returns what `complete` returned, to all alike.
  // An arrival's error, to all. InvalidArgument, to all: the replicas do not agree; names two of them. FailedPrecondition: another replica has returned, it
  // will never come. The other's error: it has failed. DeadlineExceeded, to this replica alone: others
  // have not come in time; names them. After an error the replica may meet again.
  absl::Status Meet(int replica, Arrival arrival);

  // The replica has ended with `status` and will meet nobody any more. Once for each replica.
  void Leave(int replica, absl::Status status);

  // Blocks until all replicas have left; returns the first error in time.
  absl::Status WaitForAll();

 private:
  struct Round {
    std::vector<std::optional<Arrival>> arrivals;
    int arrived = 0;
    bool done = false;
    absl::Status outcome;
  };

  struct Left {
    int replica;
    absl::Status status;
  };

  // Why a replica that is in this round would wait in vain; OK if it would not.
  absl::Status Deserted(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status Await(Round& round, int replica) DIVVY_REQUIRES(mu_);
  absl::Status Late(const Round& round, int replica) const DIVVY_REQUIRES(mu_);
  absl::Status Disagreement(const Round& round) const;
  absl::Status CarryOut(Round& round) const;
  static std::shared_ptr<Round> NewRound(int num_replicas);

  const int num_replicas_;
  Mutex mu_;
  CondVar changed_;
  std::shared_ptr<Round> round_ DIVVY_GUARDED_BY(mu_);  // the one being gathered
  std::vector<Left> left_ DIVVY_GUARDED_BY(mu_);        // in the order of time
  absl::Status first_error_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_RENDEZVOUS_H_
