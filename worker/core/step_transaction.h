// A step's view of the variables: its pulls and its staged writes.
#ifndef DIVVY_WORKER_CORE_STEP_TRANSACTION_H_
#define DIVVY_WORKER_CORE_STEP_TRANSACTION_H_

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
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/outbox.h"
#include "protocol/backoff.h"
#include "protocol/clients.h"
#include "protocol/messages.h"
#include "variables/transfer_plan.h"
#include "worker/core/call_times.h"
#include "worker/core/step_runner.h"
#include "worker/core/worker_metrics.h"

namespace divvy {

// The connections of a session to the parameter servers, from the view of its Attach. Immutable;
// shared by the session's transactions.
struct SessionLinks {
  struct Ps {
    std::shared_ptr<ParameterClient> client;
    Incarnation incarnation;
    int64_t max_commit_bytes = 0;  // 0: no limit
  };
  Fence fence;  // of every request, without `target`
  std::map<int, Ps> ps;

  Fence FenceFor(int index) const;  // REQUIRES: ps contains `index`
};

// A wait for a ps.
struct PsWait {
  int ps = 0;
  absl::Duration since;  // Clock::Elapsed at its begin
};

// The record of a step whose function has returned.
struct StepRecord {
  // Staged writes, in order.
  std::vector<StagedWrite> writes;
  // Variables that the function read whole.
  std::set<std::string> read_whole;
  // The version of each shard at the step's first read of it.
  std::map<ShardKey, uint64_t> pulled;
  // Its pulls that were answered.
  CallTimes calls;
};

// The StepTransaction of WorkerCore. Thread-safe. A step may read and write gigabytes, so the core
// takes no lock of a transaction except the one behind waiting(). The lock order is the core's
// lock, then the transaction's.
//
// A ps that does not answer, or that cannot answer yet, is asked again until it does
// (JudgePsAnswer). If a ps refuses the request itself, the Pull fails. If a ps says that the
// session is over, the transaction calls on_session_over, and its owner cancels the transaction.
//
//   RUNNING   Pull, Stage   ->  Finish: the record, for the core to commit
//                           ->  Cancel: nothing is left
class WorkerTransaction : public StepTransaction,
                          public std::enable_shared_from_this<WorkerTransaction> {
 public:
  struct Options {
    std::shared_ptr<const SessionLinks> links;
    std::shared_ptr<const Layout> layout;
    bool read_only = false;
    bool check_numerics = false;
    // Seed of the jitter in waits before retries.
    uint64_t seed = 0;
    // Called with the error of a ps that says that the session is over. Called without a lock,
    // perhaps more than once.
    std::function<void(absl::Status)> on_session_over;
    // Values of fewer bytes are assembled at once, under the lock; larger ones on another thread.
    int64_t at_once_bytes = 256 << 10;
    // Null: nothing is measured. REQUIRES: outlives the transaction.
    WorkerMetrics* metrics = nullptr;
    // PullRequest::step.
    EntryId step = {};
  };
  // REQUIRES: executor and clock outlive the transaction and all its tasks.
  WorkerTransaction(Options options, Executor& executor, Clock& clock);

  JobId job() const override { return options_.links->fence.job; }
  std::shared_ptr<const Layout> layout() const override { return options_.layout; }
  void Pull(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done) override;
  absl::Status Stage(std::vector<StagedWrite> writes) override;
  bool cancelled() const override;

  // Begins to pull these variables whole. Unknown variables are left out. `ahead` means that the
  // step has not begun. Then reads by id of one of these variables
  // are also served from the prefetched value, so that the step sees one value of the variable.
  void Prefetch(const std::vector<std::string>& variables, bool ahead = false);
  // Calls `take` with the prefetched values that have arrived, and later with those that arrive
  // while no read waits for them. `take` is called without a lock. REQUIRES: not called before.
  void TellAhead(std::function<void(std::vector<WholeValue>)> take);
  // Ends the step, and returns its record. Later calls are refused, and pulls in flight are
  // answered with FailedPrecondition.
  StepRecord Finish();
  // Drops everything; pulls in flight are answered with Cancelled. May be called again, and after
  // Finish. Must not be called under the core's lock, because it runs completions.
  void Cancel();
  // The longest wait for a ps, if there is one. Never waits for another method.
  std::optional<PsWait> waiting() const;

 private:
  enum class Phase : uint8_t { kOpen, kFinished, kCancelled };
  struct Waiter {  // one Pull
    std::vector<VariableRead> reads;
    std::vector<std::vector<StagedWrite>> own;  // for each read: the step's own writes before it
    std::vector<Tensor> base;
    size_t missing = 0;
    ResultCallback<std::vector<Tensor>> done;

    int64_t CopiedBytes() const;  // bytes that Results copies
    absl::StatusOr<std::vector<Tensor>> Results();
  };
  struct Place {  // the place of a value among the results
    uint64_t waiter = 0;
    size_t index = 0;
  };
  struct Whole {  // a variable that is read whole
    std::optional<Tensor> value;
    std::vector<Place> wanted_by;
    bool ahead = false;
  };
  struct Fetch {  // one message to each ps concerned
    std::vector<VariableRead> reads;
    // For each read: the place of its value. nullopt: a whole variable, which is kept in whole_.
    std::vector<std::optional<Place>> places;
    PullPlan plan;
    std::map<int, PullReply> replies;
    struct Asked {
      absl::Duration since;
      Backoff backoff;
    };
    std::map<int, Asked> asked;  // messages that have not been answered

    absl::StatusOr<std::vector<Tensor>> Values() const { return plan.Assemble(replies); }
  };

  absl::Status CheckOpen() const DIVVY_REQUIRES(mu_);
  absl::Status CheckValue(const StagedWrite& write) const;
  absl::Status CheckOrder(const std::vector<StagedWrite>& writes) const DIVVY_REQUIRES(mu_);
  bool HasGradient(const std::string& variable) const DIVVY_REQUIRES(mu_);
  absl::Status CheckReads(const std::vector<VariableRead>& reads) const;
  absl::Status CheckNoGradient(const std::vector<VariableRead>& reads) const DIVVY_REQUIRES(mu_);
  void AddRead(uint64_t waiter, size_t index, Fetch& fetch) DIVVY_REQUIRES(mu_);
  void WantWhole(const std::string& variable, std::optional<Place> place, Fetch& fetch)
      DIVVY_REQUIRES(mu_);
  bool PulledAhead(const std::string& variable) const DIVVY_REQUIRES(mu_);
  void Begin(Fetch fetch);
  void Send(uint64_t fetch, int ps) DIVVY_REQUIRES(mu_);
  void SendAgain(uint64_t fetch, int ps);
  void OnReply(uint64_t fetch, int ps, absl::StatusOr<PullReply> reply);
  void NoteTime(const Fetch::Asked& asked, int ps, absl::Duration served) DIVVY_REQUIRES(mu_);
  void RememberVersions(const Fetch& fetch, int ps, const PullReply& reply) DIVVY_REQUIRES(mu_);
  void Complete(uint64_t fetch) DIVVY_REQUIRES(mu_);
  void OnAssembled(uint64_t fetch, absl::StatusOr<std::vector<Tensor>> values);
  void Deliver(uint64_t fetch, const absl::StatusOr<std::vector<Tensor>>& values)
      DIVVY_REQUIRES(mu_);
  void FailFetch(uint64_t fetch, const absl::Status& status) DIVVY_REQUIRES(mu_);
  void DeliverWhole(Place place, const Tensor& value) DIVVY_REQUIRES(mu_);
  void Deliver(Place place, const Tensor& value) DIVVY_REQUIRES(mu_);
  void FinishWaiter(uint64_t waiter) DIVVY_REQUIRES(mu_);
  void OnResults(uint64_t waiter, absl::StatusOr<std::vector<Tensor>> results);
  void Answer(uint64_t waiter, absl::StatusOr<std::vector<Tensor>> result) DIVVY_REQUIRES(mu_);
  void Close(Phase phase, const absl::Status& status) DIVVY_REQUIRES(mu_);
  void NoteWaiting() DIVVY_REQUIRES(mu_);

  const Options options_;
  Executor& executor_;
  Clock& clock_;
  Outbox outbox_;
  mutable Mutex mu_;
  Phase phase_ DIVVY_GUARDED_BY(mu_) = Phase::kOpen;
  uint64_t next_id_ DIVVY_GUARDED_BY(mu_) = 1;
  // A waiter with nothing missing is not changed any more: its results are being made, perhaps
  // without the lock.
  std::map<uint64_t, std::shared_ptr<Waiter>> waiters_ DIVVY_GUARDED_BY(mu_);
  // A fetch that has been answered is not changed any more: its values are being assembled, perhaps
  // without the lock.
  std::map<uint64_t, std::shared_ptr<Fetch>> fetches_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, Whole> whole_ DIVVY_GUARDED_BY(mu_);
  std::function<void(std::vector<WholeValue>)> take_ahead_ DIVVY_GUARDED_BY(mu_);
  // Staged writes, by variable.
  std::map<std::string, std::vector<StagedWrite>> own_ DIVVY_GUARDED_BY(mu_);
  StepRecord record_ DIVVY_GUARDED_BY(mu_);
  mutable Mutex waiting_mu_;  // taken after mu_, and held only to copy
  std::optional<PsWait> waiting_ DIVVY_GUARDED_BY(waiting_mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STEP_TRANSACTION_H_
