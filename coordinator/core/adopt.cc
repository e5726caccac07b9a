// Going on with what the servers hold (adoption.h), and what the store is told for it.
//
//   1. CHOOSING   all servers are attached, hold one state, and the store knows the rest: the
//      program may have it
//   2. LOADING    the program has asked: every server keeps what it has. One that restarts
//      meanwhile has lost its part: all begins again, without it
//   3. RUNNING    a checkpoint is made at once. Until it is committed a lost server ends the job:
//      what the former coordinator had logged is gone with it
//
// The store is told nothing between a rewind and the end of its replay: it then still speaks of the
// state that has been lost, which nobody can adopt. What it is told beside the layout is durable
// before the next entry is given an id: so what the servers hold is never of a later moment than
// what the store says of it.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {

// ---- 1 ----

void CoordinatorCore::LookAtServers() {
  std::vector<PsAttachReply> replies;
  for (const Ps& ps : servers_) replies.push_back(ps.attach_reply);
  origin_.NoteHeld(replies);
}

// ---- 2 ----

// The ordinals from here on are durable before a server forgets, with its new horizon, which were
// given before it.
void CoordinatorCore::TellStoreThenKeep() {
  StoreChange change;
  change.state = stored_.RowNow(*origin_.held()->layout);
  // Of that layout; what the program declares beside it is in no server yet.
  change.state->held = StateRow::Held::kAll;
  PutThen(std::move(change),
          [epoch = stored_.row().epoch](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
            if (!core.phase_.Is(Phase::kLoading) || !core.origin_.is_adopting() ||
                core.stored_.row().epoch != epoch)
              return;
            for (Ps& ps : core.servers_) core.LoadPs(ps);
          });
}

// A server has restarted after others may have begun to serve what they hold: a new epoch, in which
// all of them say again what they have.
void CoordinatorCore::TakeBackAdoption() {
  origin_.TakeBack();
  stored_.Forget();
  TakeUp(JobState());
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

// ---- what the store is told ----

// After every ps has carried the change out, before anybody may use it.
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
            // What has changed meanwhile, however the job goes on.
            core.StoreState();
          });
}

}  // namespace divvy
