// Layout changes: variables and slots that are created, one change at a time.
//
//   1. every ps makes its shards
//   2. a ps refused: what the others made is deleted again, and the change is refused
//   3. all have made theirs: the store is told, then the workers, then whoever asked
#ifndef DIVVY_COORDINATOR_CORE_LAYOUT_CHANGES_H_
#define DIVVY_COORDINATOR_CORE_LAYOUT_CHANGES_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/layout_plan.h"
#include "coordinator/core/worker_set.h"

namespace divvy {

// Calls LayoutPlan and WorkerSet, and its Host. Not thread-safe: the coordinator's lock guards it.
class LayoutChanges {
 public:
  using Shards = std::map<int, std::vector<ShardSpec>>;  // by ps

  // What it asks and tells the coordinator that owns it.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether the servers may be changed now.
    virtual bool MayChangeLayout() const = 0;
    // Whether the state of the job is not chosen yet: then variables are declared.
    virtual bool IsChoosing() const = 0;
    // Sends CreateRequestFor, or DeleteRequestFor, to the ps, and gives its answer to OnCreated or
    // OnDeleted.
    virtual void CreateShardsAt(int ps) = 0;
    virtual void DeleteShardsAt(int ps) = 0;
    // Stores the layout with this variable, if the store is told of layouts at all, then calls
    // OnStored.
    virtual void StoreLayout(const VariableLayout& variable,
                             std::shared_ptr<const Layout> next) = 0;
    // The servers have these shards since layout `version`.
    virtual void OnShardsMade(uint64_t version, const Shards& shards) = 0;
  };

  // REQUIRES: the references outlive it.
  LayoutChanges(const CoordinatorOptions& options, Outbox& outbox, LayoutPlan& plan,
                WorkerSet& workers, Host& host)
      : options_(options), outbox_(outbox), plan_(plan), workers_(workers), host_(host) {}

  // ---- what to change ----

  // A variable whose number is being stored. When it is, NumberStored creates it.
  void AwaitNumber(VariableId id, StatusCallback done) { unnumbered_[id] = std::move(done); }
  void NumberStored(const VariableSpec& spec, const std::optional<Colocation>& with, VariableId id);
  // The slots that `optimizer` needs for `variable`, unless they exist. Requests for the same slots
  // share one change.
  void CreateSlots(const std::string& variable, const Optimizer& optimizer, StatusCallback done);
  // Makes shards of the layout as it is, before anything else. REQUIRES: nothing is under way.
  void MakeAll(Shards shards, StatusCallback done);
  // A server restarted before that was over: MakeAll comes again.
  void CancelMakeAll();
  // The state of the job has to be chosen first: variables that wait are declared.
  void DeclareAll();

  // ---- events ----
  // Begins the next change if it may. To be called when MayChangeLayout may have become true.
  void StartNext();
  // But for the fence; nullopt: nothing any more.
  std::optional<CreateShardsRequest> CreateRequestFor(int ps) const;
  std::optional<DeleteShardsRequest> DeleteRequestFor(int ps) const;
  bool AwaitsCreated() const { return work_ && !work_->undoing; }
  bool AwaitsDeleted() const { return work_ && work_->undoing; }
  // `answer`: OK, or why the ps refuses.
  void OnCreated(int ps, absl::Status answer);
  void OnDeleted(int ps);
  void OnStored(const std::shared_ptr<const Layout>& next);
  // The servers lose what has been made since the newest checkpoint. The change under way begins
  // anew.
  void Rewind() { work_.reset(); }
  // The job has failed: moves the completions that wait to `calls`. Later changes fail with
  // `error`.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----
  bool is_changing() const { return work_.has_value(); }
  bool has_jobs() const { return !jobs_.empty(); }
  std::map<std::string, int64_t> Sizes() const;

 private:
  struct NewVariable {
    VariableSpec spec;
    std::optional<Colocation> with;
    VariableId id;
  };
  struct NewSlots {
    std::string variable;
    Optimizer optimizer;
    // In slots_wanted_: everybody who waits there is answered.
    std::string key;
  };
  // Neither: MakeAll.
  struct Job {
    std::optional<NewVariable> variable;
    std::optional<NewSlots> slots;
    StatusCallback done;
  };
  struct Work {
    LayoutPlan::Change change;
    std::shared_ptr<const Layout> next;
    // ps that have not answered
    std::set<int> waiting;
    // Of the first that refused; what the others made is taken back before the change ends.
    absl::Status refusal;
    bool undoing = false;
  };

  void Add(Job job);
  void Declare(Job job);
  void Start();
  absl::StatusOr<std::optional<LayoutPlan::Change>> Prepare(const Job& job);
  void Refuse(absl::Status why);
  void Send();
  void Finish();
  void Settle(Work work);
  void Answer(Job job, const absl::Status& status);
  void Reply(StatusCallback done, const absl::Status& status);

  const CoordinatorOptions& options_;
  Outbox& outbox_;
  LayoutPlan& plan_;
  WorkerSet& workers_;
  Host& host_;

  std::deque<Job> jobs_;  // the first is under way
  std::optional<Work> work_;
  // Every worker asks for the slots of its first step: one job answers all of them.
  std::map<std::string, std::vector<StatusCallback>> slots_wanted_;
  std::map<VariableId, StatusCallback> unnumbered_;
  absl::Status failed_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LAYOUT_CHANGES_H_
