// The workers of a job, by index: their sessions, what is said to them, which of them fit together,
// and which are being shut out.
#ifndef DIVVY_COORDINATOR_CORE_WORKER_SET_H_
#define DIVVY_COORDINATOR_CORE_WORKER_SET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
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
  using FenceWait = coordinator_records::FenceWait;

  // Workers that are told to hold begin no commit for so long at most.
  static constexpr absl::Duration kLongestHold = absl::Seconds(5);
  // The pause after a hold that was given up.
  static constexpr absl::Duration kTryHoldAgain = absl::Seconds(1);

  // REQUIRES: the references outlive it.
  WorkerSet(const CoordinatorOptions& options, Clock& clock, Outbox& outbox)
      : options_(options), clock_(clock), outbox_(outbox) {}

  std::map<int, Worker>& all() { return workers_; }
  const std::map<int, Worker>& all() const { return workers_; }

  // Sends on the worker's Steps stream. Does nothing if the worker has no session.
  void Send(Worker& worker, ToWorker message);
  void SendToAll(const ToWorker& message);
  // From here on nothing is sent to any worker.
  void Close() { closed_ = true; }

  // ---- sessions ----

  // A number that no session of this coordinator has had, nor one of an epoch near to it.
  SessionId NextSession(Epoch epoch);
  uint64_t NextConnection() { return next_connection_++; }
  // The sessions that the servers accept, each with its worker.
  std::map<SessionId, int> Sessions() const;
  // Nothing more is said or heard in the worker's session. Returns the steps that were in flight
  // there.
  std::vector<std::shared_ptr<coordinator_records::Step>> EndSession(Worker& worker);
  // The worker is lost: ends its session, and shuts it out. Its steps go on elsewhere when every ps
  // has acknowledged Sync number `seq`, which does not have the session.
  void Fence(Worker& worker, absl::string_view why, uint64_t seq);
  // A ps has answered a Sync. Returns the fences that are complete by it.
  std::vector<FenceWait> NoteFences(int ps, size_t num_ps, const SyncReply& reply);
  const std::vector<FenceWait>& fences() const { return fences_; }
  void DropFences() { fences_.clear(); }
  // The number of workers that were lost, but for those that said that they leave.
  int64_t num_lost() const { return num_lost_; }

  // ---- who fits ----

  // Whether a worker with so many replicas may serve. Where the coordinator was told the number:
  // CLUSTER_MISMATCH for every other one. Where it was not, notes what the worker says, and
  // compares it with the first of the workers that are here with another number. OK: there is none,
  // or more workers have last said this number than that worker's. So all workers may be replaced
  // by others. NOT_READY: as many have said either, and more may come. CLUSTER_MISMATCH: fewer
  // have, or as many, and every worker of TF_CONFIG has spoken.
  absl::Status CheckReplicas(int index, const std::string& address, int replicas);
  // Those that are here and have another number. Where CheckReplicas is OK they are let go: one
  // that came first and is wrong, or lies, would keep all others out.
  std::vector<Worker*> WithOtherReplicas(int index, int replicas);
  // Warns, once, if a worker runs another build of the program than the coordinator.
  void CompareBuild(const Worker& worker, const std::string& build);
  // The worker says that it serves another job, or another coordinator. Notes since when no worker
  // serves this coordinator. True: for worker_silence if all workers say so, else for ps_timeout,
  // and it has to give way.
  bool MustGiveWay(const Worker& refused);
  void NoteServed() { unserved_since_.reset(); }

  // ---- how many ----

  // The number of shares that data is cut into: one for each index up to the last that counts.
  int NumShares() const;
  // Whether `says` holds for more than half of the workers that have a session.
  bool MostHere(const std::function<bool(const Worker&)>& says) const;
  // Whether nobody expects the worker any more. REQUIRES: it has no session.
  bool IsGoneForLong(const Worker& worker) const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  bool MayServe(const Worker& worker) const;
  bool CountsForData(const Worker& worker, int served, int expected) const;

  const CoordinatorOptions& options_;
  Clock& clock_;
  Outbox& outbox_;
  std::map<int, Worker> workers_;
  bool closed_ = false;
  uint32_t next_session_ = 1;
  uint64_t next_connection_ = 1;
  std::vector<FenceWait> fences_;
  int64_t num_lost_ = 0;
  // By worker: how many replicas it said last that it has.
  std::map<int, int> replica_claims_;
  bool other_build_told_ = false;
  // Workers say that they serve another coordinator, and none serves this one.
  std::optional<absl::Duration> unserved_since_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_WORKER_SET_H_
