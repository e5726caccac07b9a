// The workers of a job, by index: their sessions, the messages to them, their numbers of replicas,
// and the fences under way.
#ifndef DIVVY_COORDINATOR_CORE_WORKER_SET_H_
#define DIVVY_COORDINATOR_CORE_WORKER_SET_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/outbox.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "protocol/messages.h"
#include "variables/layout.h"

namespace divvy {

// Has every worker that the coordinator has heard of, present or not. Calls only the outbox. Never
// blocks. Not thread-safe: the coordinator's lock guards it.
class WorkerSet {
 public:
  using Worker = coordinator_records::Worker;
  using FenceWait = coordinator_records::FenceWait;

  // The longest time for which workers are told to begin no commit.
  static constexpr absl::Duration kLongestHold = absl::Seconds(5);
  // The pause after a hold that was abandoned.
  static constexpr absl::Duration kTryHoldAgain = absl::Seconds(1);

  // REQUIRES: the references outlive it.
  WorkerSet(const CoordinatorOptions& options, Clock& clock, Outbox& outbox)
      : options_(options), clock_(clock), outbox_(outbox) {}

  std::map<int, Worker>& all() { return workers_; }
  const std::map<int, Worker>& all() const { return workers_; }

  // Sends on the worker's Steps stream. Does nothing if the worker has no session.
  void Send(Worker& worker, ToWorker message);
  void SendToAll(const ToWorker& message);
  // Sends the layout to every worker, to each before the next other message that it gets (a Ping
  // comes at the latest). Variables are usually created one after another, and then one message
  // tells of all of them.
  void SendSoon(std::shared_ptr<const Layout> layout);
  // Sends now what SendSoon has put off.
  void SendLayout();
  // From now on nothing is sent to any worker.
  void Close() { closed_ = true; }

  // ---- who gets steps ----

  // The worker has attached. It is kJoining until SetReady.
  void SetJoining(Worker& worker);
  // Every server accepts the worker's session: it is kReady.
  void SetReady(Worker& worker);
  // How many workers are kJoining.
  int num_joining() const { return num_joining_; }
  // The workers that are kReady, also those that leave, by their load and then by index. The load
  // is the number of a worker's steps in flight minus its slots, so it may be negative.
  const std::set<std::pair<int, int>>& by_load() const { return by_load_; }
  // Adds a step to those in flight at the worker, at the end.
  void AddInFlight(Worker& worker, std::shared_ptr<coordinator_records::Step> step);
  // Removes a step from those in flight. REQUIRES: it is one of them.
  void RemoveInFlight(Worker& worker, const coordinator_records::Step& step);

  // ---- sessions ----

  // A number that no other session of this coordinator has, and no session of an epoch close to
  // `epoch`.
  SessionId NextSession(Epoch epoch);
  // A new number for a Steps connection.
  uint64_t NextConnection() { return next_connection_++; }
  // The sessions that the servers should accept, each with its worker's index.
  std::map<SessionId, int> Sessions() const;
  // Ends the worker's session: nothing more is sent or accepted in it. Returns the steps that were
  // in flight there.
  std::vector<std::shared_ptr<coordinator_records::Step>> EndSession(Worker& worker);
  // The worker is lost: ends its session and fences it. Its steps may run on other workers once
  // every ps has acknowledged Sync number `seq`, which no longer has the session.
  void Fence(Worker& worker, absl::string_view why, uint64_t seq);
  // A ps has answered a Sync. Returns the fences that this answer completes.
  std::vector<FenceWait> NoteFences(int ps, size_t num_ps, const SyncReply& reply);
  const std::vector<FenceWait>& fences() const { return fences_; }
  void DropFences() { fences_.clear(); }
  // How often a worker was lost, without those that had announced that they leave.
  int64_t num_lost() const { return num_lost_; }
  // How often a worker that was lost has been replaced or has come back.
  int64_t num_recovered() const { return num_recovered_; }
  // How many sessions were fenced.
  int64_t num_fenced() const { return num_fenced_; }
  // How many runs of steps were lost with their workers.
  int64_t num_lost_runs() const { return num_lost_runs_; }

  // ---- which workers may serve ----

  // Whether a worker with so many replicas may serve. With a fixed replicas_per_worker, every other
  // number is CLUSTER_MISMATCH. Otherwise the worker's number is recorded and compared with that of
  // the first present worker that has another number:
  //
  // - OK: there is no such worker, or more workers last reported this number than the other one.
  //   (So all workers can be replaced by workers with another number.)
  // - NOT_READY: as many workers have last said this number as the other one, and more workers may
  //   register.
  // - CLUSTER_MISMATCH: fewer workers have last said this number than the other one. Or as many
  //   have, TF_CONFIG names the workers, and every known worker has said a number.
  absl::Status CheckReplicas(int index, const std::string& address, int replicas);
  // Present workers with another number of replicas. When CheckReplicas is OK, the caller gives
  // these workers up. If it kept them, one worker that registered first with a wrong number would
  // keep all others out.
  std::vector<Worker*> WithOtherReplicas(int index, int replicas);
  // Logs a warning, once, if a worker runs another build of the program than the coordinator.
  void CompareBuild(const Worker& worker, const std::string& build);
  // A worker refuses the coordinator because the worker serves another job or another coordinator.
  // Records since when no worker serves this coordinator. True: this coordinator must end, because
  // no worker has served it for worker_silence if all workers refuse it, or for ps_timeout
  // otherwise.
  bool MustYield(const Worker& refused);
  // A worker serves this coordinator.
  void NoteServed() { unserved_since_.reset(); }

  // ---- numbers of workers ----

  // The number of shares that data is cut into: one share for each index up to the highest index of
  // a worker that counts.
  int NumShares() const;
  // Whether `says` is true for more than half of the workers with a session.
  bool MostHere(const std::function<bool(const Worker&)>& says) const;
  // Whether the worker is not expected to return. REQUIRES: it has no session.
  bool IsGoneForLong(const Worker& worker) const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  // Whether a worker that is away may be about to serve.
  bool MayServe(const Worker& worker) const;
  // Whether the worker gets a share of data that is cut by worker.
  bool CountsForData(const Worker& worker, int served, int expected) const;

  const CoordinatorOptions& options_;
  Clock& clock_;
  Outbox& outbox_;
  static std::pair<int, int> LoadOf(const Worker& worker) {
    return {static_cast<int>(worker.in_flight.size()) - worker.slots, worker.index};
  }

  std::map<int, Worker> workers_;
  std::shared_ptr<const Layout> layout_;
  int num_joining_ = 0;
  std::set<std::pair<int, int>> by_load_;
  bool closed_ = false;
  uint32_t next_session_ = 1;
  uint64_t next_connection_ = 1;
  std::vector<FenceWait> fences_;
  int64_t num_lost_ = 0, num_recovered_ = 0, num_fenced_ = 0, num_lost_runs_ = 0;
  // Worker -> the number of replicas that it last reported.
  std::map<int, int> replica_claims_;
  bool other_build_told_ = false;
  // Since when workers say that they serve another coordinator, while none serves this one.
  std::optional<absl::Duration> unserved_since_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_WORKER_SET_H_
