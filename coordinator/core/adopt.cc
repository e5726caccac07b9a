// Going on with what the servers hold (adoption.h), and what the store is told for it.
//
//   1. CHOOSING   all servers are attached, hold one state, and the store knows the rest: the program may have it
//   2. LOADING    the program has asked: every server keeps what it has. One that restarts meanwhile has lost its part: all begins again, without it
//   3. RUNNING    a checkpoint is made at once. Until it is committed a lost server ends the job: what the former coordinator had logged is gone with it
//
// The store is told nothing between a rewind and the end of its replay: it then still speaks of the state that has been lost, which nobody can adopt. What it
// is told beside the layout is durable before the next entry is given an id: so what the servers hold is never of a later moment than what the store says of
// it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/refusals.h"

namespace divvy {

// ---- 1 ----

void CoordinatorCore::LookAtServers() {
  std::vector<PsAttachReply> replies;
  for (const Ps& ps : servers_) replies.push_back(ps.attach_reply);
  adoption_.held = WhatServersHold(replies, adoption_.stored);
}

const JobState* CoordinatorCore::Restorable() const {
  if (adoption_.held.ok()) return &*adoption_.held;
  return found_ ? &*found_ : nullptr;
}

std::string CoordinatorCore::RestorableText() const {
  return adoption_.held.ok() ? "what the parameter servers hold" : found_ ? found_->checkpoint.name() : "nothing";
}

// ---- 2 ----

// The ordinals from here on are durable before a server forgets, with its new horizon, which were given before it.
void CoordinatorCore::TellStoreThenKeep() {
  StoreChange change;
  change.state = StateRowNow(*adoption_.held->layout);
  change.state->held = StateRow::Held::kAll;  // of that layout; what the program declares beside it is in no server yet
  PutThen(std::move(change), [epoch = row_.epoch](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    if (!core.phase_.Is(Phase::kLoading) || !core.adoption_.adopting || core.row_.epoch != epoch) return;
    for (Ps& ps : core.servers_) core.LoadPs(ps);
  });
}

// A server has restarted after others may have begun to serve what they hold: a new epoch, in which all of them say again what they have.
void CoordinatorCore::TakeBackAdoption() {
  adoption_.adopting = adoption_.is_told = chosen_ = false;
  restored_.reset();
  TakeUp(JobState());
  JobState nothing;
  nothing.layout = Layout::Empty();
  if (const absl::Status declared = layout_plan_.Relayout(nothing, NewIds()); !declared.ok()) return FailJob(declared);
  phase_.Enter(JobPhase::Attaching());
  RestartEpoch(row_.epoch);
}

// ---- 3 ----

void CoordinatorCore::FinishAdopting() {
  adoption_.adopting = false;
  adoption_.adopted_steps = steps_.totals().finished_steps;
  for (Ps& ps : servers_) ps.attach_reply.remembered.clear();
  outbox_.Add([text = absl::StrCat("adopted what ", servers_.size(), " parameter servers hold: ", steps_.totals().finished_steps, " steps finished")] {
    DIVVY_LOG(INFO) << text;
  });
  if (!RuleHolds(Rule::kCheckpointAfterAdopting)) return;
  if (options_.checkpoints != nullptr)
    adoption_.unsaved = true;
  else
    recovery_.log().GiveUp();
}

// ---- what the store is told ----

StoredMark CoordinatorCore::MarkNow() const {
  StoredMark mark;
  if (expected_values_ > 0) mark.held = StateRow::Held::kFirstValues;
  mark.epochs = steps_.totals().epochs;
  mark.program_states = program_states_;
  mark.lost_ordinals = steps_.lost_ordinals();
  for (const auto& [source, begun] : passes_.begun()) mark.passes += begun;
  mark.pass_changes = passes_.changes();
  return mark;
}

StateRow CoordinatorCore::StateRowNow(const Layout& layout) const {
  StateRow row;
  row.held = MarkNow().held;
  row.state.job = row_.job;
  row.state.lineage = row_.lineage;
  row.state.layout = Layout::Received(layout.version(), {});
  row.state.finished_steps = steps_.totals().finished_steps;
  row.state.finished_reads = steps_.totals().finished_reads;
  row.state.next_ordinal = steps_.NumClosedOrdinals();
  row.state.epochs = steps_.totals().epochs;
  row.state.passes = passes_.begun();
  row.state.data = passes_.PassesNow(steps_.OpenLeases());
  row.state.program_state = program_state_;
  for (const Ps& ps : servers_) row.state.servers.push_back(ps.incarnation);
  return row;
}

// The job's row and all else, when the servers' state is a new one, or has become this life's.
StoreChange CoordinatorCore::WholeState() {
  StoreChange change;
  change.job = row_;
  change.state = StateRowNow(*layout_plan_.layout());
  std::set<VariableId> gone = std::exchange(adoption_.rows, {});
  for (const auto& [id, variable] : layout_plan_.layout()->variables()) {
    change.put_variables.push_back({variable, Zeros(), VariableRow::State::kLive});
    adoption_.rows.insert(id);
    gone.erase(id);
  }
  change.deleted_variables = {gone.begin(), gone.end()};
  adoption_.told = MarkNow();
  adoption_.is_told = true;
  return change;
}

// One variable of `layout`, and that this is the layout now.
StoreChange CoordinatorCore::StoredWith(const VariableLayout& variable, const Layout& layout) {
  StoreChange change;
  change.state = StateRowNow(layout);
  change.put_variables = {{variable, Zeros(), VariableRow::State::kLive}};
  adoption_.rows.insert(variable.id);
  return change;
}

// After every ps has carried the change out, before anybody may use it.
void CoordinatorCore::StoreLayout(const VariableLayout& variable, std::shared_ptr<const Layout> next) {
  if (next == layout_plan_.layout() || !adoption_.is_told) return layout_changes_.OnStored(next);
  StoreChange change = StoredWith(variable, *next);
  PutThen(std::move(change), [next](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.layout_changes_.OnStored(next); });
}

void CoordinatorCore::StoreState() {
  if (!adoption_.is_told || adoption_.putting || phase_.Is(Phase::kFailed)) return;
  const StoredMark mark = MarkNow();
  if (mark == adoption_.told) return;
  adoption_.told = mark;
  adoption_.putting = true;
  StoreChange change;
  change.state = StateRowNow(*layout_plan_.layout());
  PutThen(std::move(change), [mark](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    core.adoption_.putting = false;
    core.NoteStored(mark);
    core.StoreState();  // what has changed meanwhile, however the job goes on
    core.Pump();
  });
}

}  // namespace divvy
