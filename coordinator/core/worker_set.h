// The workers of a job, by index, and what is said to them.
#ifndef DIVVY_COORDINATOR_CORE_WORKER_SET_H_
#define DIVVY_COORDINATOR_CORE_WORKER_SET_H_

#include <functional>
#include <map>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/outbox.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"

namespace divvy {

// All workers that the coordinator has heard of, whether they are here or not. Calls nobody but the
// outbox. Not thread-safe: the coordinator's lock guards it.
class WorkerSet {
 public:
  using Worker = coordinator_records::Worker;

  // Workers that are told to hold begin no commit for so long at most.
  static constexpr absl::Duration kLongestHold = absl::Seconds(5);
  // The pause after a hold that was given up.
  static constexpr absl::Duration kTryHoldAgain = absl::Seconds(1);

  // REQUIRES: the references outlive it.
  WorkerSet(const CoordinatorOptions& options, Clock& clock, Outbox& outbox) : options_(options), clock_(clock), outbox_(outbox) {}

  std::map<int, Worker>& all() { return workers_; }
  const std::map<int, Worker>& all() const { return workers_; }

  // Sends on the worker's Steps stream. Does nothing if the worker has no session.
  void Send(Worker& worker, ToWorker message);
  void SendToAll(const ToWorker& message);
  // From here on nothing is sent to any worker.
  void Close() { closed_ = true; }

  // The number of shares that data is cut into: one for each index up to the last that counts.
  int NumShares() const;
  // Whether `says` holds for more than half of the workers that have a session.
  bool MostHere(const std::function<bool(const Worker&)>& says) const;
  // Whether nobody expects the worker any more. REQUIRES: it has no session.
  bool IsGoneForLong(const Worker& worker) const;

 private:
  bool MayServe(const Worker& worker) const;
  bool CountsForData(const Worker& worker, int served, int expected) const;

  const CoordinatorOptions& options_;
  Clock& clock_;
  Outbox& outbox_;
  std::map<int, Worker> workers_;
  bool closed_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_WORKER_SET_H_
