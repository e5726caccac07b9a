// Continues with what the servers hold (adoption.h), and writes the facts that an adoption needs to
// the store.
//
// 1. CHOOSING: all servers are attached and hold one state, and the store has the rest. The program
//    may choose this state.
// 2. LOADING: the program has chosen it. Every server keeps what it has. A server that restarts
//    meanwhile has lost its part, and the choice begins again without the adoption.
// 3. RUNNING: a checkpoint is made at once. Until it is committed, a lost server ends the job,
//    because the redo log was lost with the former coordinator.
//
// Between a rewind and the end of its replay, nothing is written to the store. It then still
// describes the lost state, which cannot be adopted. Everything besides the layout is durable in
// the store before the next entry gets an id. So the servers' state is never later than the store's
// description of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {

// ---- 1 ----

void CoordinatorCore::NoteHeldByServers() {
  std::vector<PsAttachReply> replies;
  for (const Ps& ps : servers_) replies.push_back(ps.attach_reply);
  origin_.NoteHeld(replies);
}

// ---- 2 ----

// A server that gets a new horizon forgets which ordinals were given. So the next ordinal is made
// durable before any server gets a new horizon.
void CoordinatorCore::StoreAdoption() {
  StoreChange change;
  change.state = stored_.RowNow(*origin_.held()->layout);
  // kAll is true of the held layout, because it does not have the variables that the program has
  // only declared.
  change.state->held = StateRow::Held::kAll;
  StateRow row = *change.state;
  PutThen(std::move(change), [epoch = stored_.row().epoch, row = std::move(row)](
                                 CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    if (!core.phase_.Is(Phase::kLoading) || !core.origin_.is_adopting() ||
        core.stored_.row().epoch != epoch)
      return;
    core.origin_.NoteStored(row);
    for (Ps& ps : core.servers_) core.LoadPs(ps);
  });
}

// A server has restarted, and other servers may already serve what they hold. A new epoch begins,
// in which all servers report again what they hold.
void CoordinatorCore::TakeBackAdoption() {
  origin_.TakeBack();
  stored_.Forget();
  RestoreState(JobState());
  JobState nothing;
  nothing.layout = Layout::Empty();
  if (const absl::Status declared = layout_plan_.Relayout(nothing, NewIds()); !declared.ok())
    return FailJob(declared);
  phase_.Enter(JobPhase::Attaching());
  RestartEpoch(stored_.row().epoch);
}

// ---- 3 ----

void CoordinatorCore::FinishAdopting() {
  const bool wants_checkpoint = RuleHolds(Rule::kCheckpointAfterAdopting);
  origin_.NoteAdopted(steps_.totals().finished_steps,
                      wants_checkpoint && options_.checkpoints != nullptr);
  for (Ps& ps : servers_) ps.attach_reply.remembered.clear();
  outbox_.Add([text = absl::StrCat("adopted what ", servers_.size(),
                                   " parameter servers hold: ", steps_.totals().finished_steps,
                                   " steps finished")] { DIVVY_LOG(INFO) << text; });
  if (wants_checkpoint && options_.checkpoints == nullptr) recovery_.log().GiveUp();
}

// ---- changes for the store ----

// Called after every ps has carried out the change and before the variable may be used.
void CoordinatorCore::StoreLayout(const VariableLayout& variable,
                                  std::shared_ptr<const Layout> next) {
  if (next == layout_plan_.layout() || !stored_.is_told()) return layout_changes_.OnStored(next);
  StoreChange change = stored_.With(variable, *next);
  PutThen(std::move(change), [next](CoordinatorCore& core)
                                 DIVVY_REQUIRES(core.mu_) { core.layout_changes_.OnStored(next); });
}

void CoordinatorCore::StoreState() {
  if (phase_.Is(Phase::kFailed)) return;
  std::optional<StoreChange> change = stored_.TakeChange(*layout_plan_.layout());
  if (!change) return;
  PutThen(*std::move(change),
          [mark = stored_.MarkNow()](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
            core.stored_.NotePut();
            core.NoteStored(mark);
            // Stores the changes made meanwhile, in every phase of the job.
            core.StoreState();
          });
}

}  // namespace divvy
