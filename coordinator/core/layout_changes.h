// Layout changes: the creation of variables and slots, one change at a time.
//
// 1. Every ps makes its shards of the change.
// 2. If a ps refuses, the shards that the others have made are deleted, and the change is refused.
// 3. If all ps have made theirs, the change is stored. Then the workers get the new layout, and
//    last the caller gets its answer.
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
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/layout_plan.h"
#include "coordinator/core/worker_set.h"
#include "protocol/messages.h"

namespace divvy {

// Carries out the changes that LayoutPlan plans. Calls LayoutPlan, WorkerSet and its Host. Never
// blocks. Not thread-safe: the coordinator's lock guards it.
class LayoutChanges {
 public:
  using Shards = std::map<int, std::vector<ShardSpec>>;  // by ps

  // The calls that LayoutChanges makes to the coordinator that owns it. No method blocks.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether the servers may be changed now.
    virtual bool MayChangeLayout() const = 0;
    // Whether the state of the job is not chosen yet. Variables are then only declared.
    virtual bool IsChoosing() const = 0;
    // Sends CreateRequestFor (or DeleteRequestFor) to the ps and passes its answer to OnCreated (or
    // OnDeleted).
    virtual void CreateShardsAt(int ps) = 0;
    virtual void DeleteShardsAt(int ps) = 0;
    // Stores the layout with this variable, if the store has layouts at all, and then calls
    // OnStored.
    virtual void StoreLayout(const VariableLayout& variable,
                             std::shared_ptr<const Layout> next) = 0;
    // The servers have these shards from layout `version` on.
    virtual void OnShardsMade(uint64_t version, const Shards& shards) = 0;
  };

  // REQUIRES: the references outlive it.
  LayoutChanges(const CoordinatorOptions& options, Outbox& outbox, LayoutPlan& plan,
                WorkerSet& workers, Host& host)
      : options_(options), outbox_(outbox), plan_(plan), workers_(workers), host_(host) {}

  // ---- requests ----

  // A variable waits until its id is stored. NumberStored then creates it; `done` gets the result.
  void AwaitNumber(VariableId id, StatusCallback done) { unnumbered_[id] = std::move(done); }
  void NumberStored(const VariableSpec& spec, const std::optional<Colocation>& with, VariableId id);
  // Creates the slots that `optimizer` needs for `variable`, unless they exist. Requests for the
  // same slots share one change.
  void CreateSlots(const std::string& variable, const Optimizer& optimizer, StatusCallback done);
  // Makes shards of the current layout before any other change. Those of the tables `existing` are
  // there, and only get their options. REQUIRES: no change is under way.
  void MakeAll(Shards shards, std::set<VariableId> existing, StatusCallback done);
  // Drops the MakeAll under way, because a server has restarted. The caller begins another MakeAll.
  void CancelMakeAll();
  // Turns the variables that wait into declarations, because the state of the job has to be chosen
  // first.
  void DeclareAll();

  // ---- events ----
  // Begins the next change if it may begin. Call it whenever MayChangeLayout may have become true.
  void StartNext();
  // The request for this ps, without the fence. Nullopt: this ps has nothing more to do.
  std::optional<CreateShardsRequest> CreateRequestFor(int ps) const;
  std::optional<DeleteShardsRequest> DeleteRequestFor(int ps) const;
  // Whether an answer of a ps still counts.
  bool AwaitsCreated() const { return work_ && !work_->undoing; }
  bool AwaitsDeleted() const { return work_ && work_->undoing; }
  // REQUIRES: AwaitsCreated. `answer`: OK, or why the ps refuses.
  void OnCreated(int ps, absl::Status answer);
  // REQUIRES: AwaitsDeleted.
  void OnDeleted(int ps);
  // The layout `next` is durable.
  void OnStored(const std::shared_ptr<const Layout>& next);
  // The servers lose all shards made since the newest checkpoint. The change under way begins
  // again.
  void Rewind() { work_.reset(); }
  // The job has failed: moves the waiting completions to `calls`. Later changes fail with `error`.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----
  bool is_changing() const { return work_.has_value(); }
  // Whether a change waits or is under way.
  bool has_jobs() const { return !jobs_.empty(); }
  // The size of each structure, for CoordinatorCore::Sizes.
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
    // The entry in slots_wanted_. Every call that waits there gets the answer.
    std::string key;
  };
  // A requested change. The job of MakeAll has neither a variable nor slots.
  struct Job {
    std::optional<NewVariable> variable;
    std::optional<NewSlots> slots;
    StatusCallback done;
  };
  // The change under way.
  struct Work {
    LayoutPlan::Change change;
    // Tables of which the shards of the change are there. They are not deleted if the change fails.
    std::set<VariableId> existing;
    std::shared_ptr<const Layout> next;
    // The ps that have not answered.
    std::set<int> waiting;
    // The first refusal of a ps. The change ends when the shards of the other ps are deleted.
    absl::Status refusal;
    // The shards are being deleted.
    bool undoing = false;
  };

  // Queues a change, or declares its variable while the state is not chosen.
  void Add(Job job);
  void Declare(Job job);
  // Plans the first change and sends it to the servers.
  void Start();
  absl::StatusOr<std::optional<LayoutPlan::Change>> Prepare(const Job& job);
  // Ends the first change without asking the servers. `why` is OK if it needs nothing.
  void Refuse(absl::Status why);
  void Send();
  void Finish();
  // Ends the first change: applies it if it was not refused, and answers.
  void Settle(Work work);
  // Answers the job's caller, and every call that waits for the same slots.
  void Answer(Job job, const absl::Status& status);
  void Reply(StatusCallback done, const absl::Status& status);

  const CoordinatorOptions& options_;
  Outbox& outbox_;
  LayoutPlan& plan_;
  WorkerSet& workers_;
  Host& host_;

  // The first one is under way if work_ has a value.
  std::deque<Job> jobs_;
  std::optional<Work> work_;
  // Every worker asks for the slots of its first step. One job answers all of them.
  std::map<std::string, std::vector<StatusCallback>> slots_wanted_;
  // Variables whose ids are being stored.
  std::map<VariableId, StatusCallback> unnumbered_;
  // Not OK: the job has failed.
  absl::Status failed_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LAYOUT_CHANGES_H_
