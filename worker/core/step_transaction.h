// A step's view of the variables: what it pulls, and what it stages.
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
#include "worker/core/row_cache.h"
#include "worker/core/step_runner.h"

namespace divvy {

// How a session reaches the parameter servers: by the view of its Attach. Immutable; shared by the
// session's transactions.
struct SessionLinks {
  struct Ps {
    std::shared_ptr<ParameterClient> client;
    Incarnation incarnation;
    int64_t max_commit_bytes = 0;  // 0: any
  };
  Fence fence;  // of every request; `target` is filled in
  std::map<int, Ps> ps;

  Fence FenceFor(int index) const;  // REQUIRES: ps has it
};

// Waits for a ps: which, and since when.
struct PsWait {
  int ps = 0;
  absl::Duration since;  // on the Clock
};

// What a step leaves when its function has returned.
struct StepRecord {
  // In order.
  std::vector<StagedWrite> writes;
  // variables that the function asked for whole
  std::set<std::string> read_whole;
  // The version of each shard when it was first read; where rows of it were kept from before: when
  // those were pulled.
  std::map<ShardKey, uint64_t> pulled;
};

// The StepTransaction of WorkerCore. Thread-safe; its lock is taken after the core's, never before,
// and the core takes none but that of waiting(): what a step reads and writes may be gigabytes. A
// ps that does not answer, or cannot yet, is asked again
// until it does (JudgePsAnswer); one that refuses the request itself fails the pull; one that says
// that the session is over is reported by on_session_over, and whoever hears that cancels.
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
    // Of the jitter of its waits.
    uint64_t seed = 0;
    // A ps said so, with this. Called without a lock, perhaps more than once.
    std::function<void(absl::Status)> on_session_over;
    // Where rows read by id are looked for, and kept; let go when the step is over. Null: they are
    // pulled.
    std::shared_ptr<RowCache> rows = nullptr;
    // What copies less is put together at once, under the lock; the rest on a thread of its own.
    int64_t at_once_bytes = 256 << 10;
  };
  // REQUIRES: executor and clock outlive the transaction and all its tasks.
  WorkerTransaction(Options options, Executor& executor, Clock& clock);

  JobId job() const override { return options_.links->fence.job; }
  std::shared_ptr<const Layout> layout() const override { return options_.layout; }
  void Pull(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done) override;
  absl::Status Stage(std::vector<StagedWrite> writes) override;
  bool cancelled() const override;

  // Begins to pull these variables whole; unknown ones are left out. `ahead`: before the step
  // begins. Then what is read by id of one of them is taken from it as well, where no rows are
  // kept, so that the step sees one value of it, however old.
  void Prefetch(const std::vector<std::string>& variables, bool ahead = false);
  // Tells `take` the values that have been pulled ahead and are there, and later those that come
  // while nobody waits for them. Called without a lock. REQUIRES: not called before.
  void TellAhead(std::function<void(std::vector<WholeValue>)> take);
  // The step is over: what it did. Every later call is refused, every Pull under way is answered
  // FailedPrecondition.
  StepRecord Finish();
  // Forgets everything; every Pull under way is answered Cancelled. May be called again, and after
  // Finish. Not under the core's lock: completions run.
  void Cancel();
  // The ps waited for longest, if any. Waits for no other method.
  std::optional<PsWait> waiting() const;

 private:
  enum class Phase : uint8_t { kOpen, kFinished, kCancelled };
  // A read of rows that is pulled in part only: some are kept, or one is named twice.
  struct MissingRows {
    // The rest.
    Tensor values;
    // Where a value is missing, and which row of what is pulled is the one.
    std::vector<int64_t> places, rows;
  };
  struct Waiter {  // one Pull
    std::vector<VariableRead> reads;
    std::vector<std::vector<StagedWrite>> own;  // of each read: the writes it must see
    std::vector<MissingRows> gaps;              // of each read
    std::vector<Tensor> base;
    size_t missing = 0;
    ResultCallback<std::vector<Tensor>> done;

    int64_t CopiedBytes() const;  // by Results
    absl::StatusOr<std::vector<Tensor>> Results();
  };
  struct Place {  // where a value goes
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
    // Of each read; nullopt: a whole variable, kept in whole_.
    std::vector<std::optional<Place>> places;
    PullPlan plan;
    std::map<int, PullReply> replies;
    struct Asked {
      absl::Duration since;
      Backoff backoff;
    };
    std::map<int, Asked> asked;  // not answered yet

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
  static std::vector<int64_t> Missing(const Tensor& ids, const RowCache::Found& found,
                                      MissingRows& gaps);
  static Tensor Filled(MissingRows gaps, const Tensor& rows);
  void WantRows(Place place, Fetch& fetch) DIVVY_REQUIRES(mu_);
  void RememberKept(const VariableLayout& variable, const RowCache::Found& found)
      DIVVY_REQUIRES(mu_);
  void KeepRows(const Fetch& fetch) DIVVY_REQUIRES(mu_);
  void Begin(Fetch fetch);
  void Send(uint64_t fetch, int ps) DIVVY_REQUIRES(mu_);
  void SendAgain(uint64_t fetch, int ps);
  void OnReply(uint64_t fetch, int ps, absl::StatusOr<PullReply> reply);
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
  // null from Finish or Cancel on: a step may keep the transaction as long as its worker lives
  std::shared_ptr<RowCache> rows_ DIVVY_GUARDED_BY(mu_);
  uint64_t next_id_ DIVVY_GUARDED_BY(mu_) = 1;
  // What misses nothing any more is not changed: its results are being made.
  std::map<uint64_t, std::shared_ptr<Waiter>> waiters_ DIVVY_GUARDED_BY(mu_);
  // What has been answered is not changed: its values are being assembled.
  std::map<uint64_t, std::shared_ptr<Fetch>> fetches_ DIVVY_GUARDED_BY(mu_);
  std::map<std::string, Whole> whole_ DIVVY_GUARDED_BY(mu_);
  std::function<void(std::vector<WholeValue>)> take_ahead_ DIVVY_GUARDED_BY(mu_);
  // staged writes by variable
  std::map<std::string, std::vector<StagedWrite>> own_ DIVVY_GUARDED_BY(mu_);
  StepRecord record_ DIVVY_GUARDED_BY(mu_);
  mutable Mutex waiting_mu_;  // behind mu_; held for a copy only
  std::optional<PsWait> waiting_ DIVVY_GUARDED_BY(waiting_mu_);
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STEP_TRANSACTION_H_
