#include "tests/sim/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy::sim {

// ---- what the servers hold ----

// If the program of this life does not know yet which state it continues from, its model is
// that of the checkpoint that the state was made from.
void Cluster::RememberPast() {
  const CoordinatorCore::Inspection truth = core_->Inspect();
  const CoordinatorSnapshot seen = core_->Snapshot();
  if (restoring_ && seen.adopted_steps) return;
  SettleEviction(truth);
  Past past{model_, pending_writes_};
  if (model_.pass) past.model->pass->visited = Visited();
  const auto cut =
      restoring_ && seen.last_checkpoint ? cuts_.find(*seen.last_checkpoint) : cuts_.end();
  if (cut != cuts_.end()) past.model = cut->second.model;
  // The lineage may still be unknown: the life may have loaded all servers and not begun.
  past_[truth.lineage != Epoch() ? truth.lineage : seen.epoch_id] = std::move(past);
}

// `simple`: the coordinator was killed, and nothing else has happened to its store.
void Cluster::RememberLeftBehind(const StoredJob& stored, bool simple) {
  left_behind_.reset();
  const CoordinatorSnapshot seen = core_->Snapshot();
  const CoordinatorCore::Inspection truth = core_->Inspect();
  const bool odd =
      had_duplicate_ || had_zombie_ || lost_store_ || config_.changing_steps || is_resizing_;
  if (!simple || odd || seen.phase != CoordinatorSnapshot::Phase::kRunning || !stored.state) return;
  // The store does not know this lineage yet.
  if (stored.state->held != StateRow::Held::kAll || stored.state->state.lineage != truth.lineage)
    return;
  left_behind_ = {truth.ps, truth.lineage, stored.state->state.layout->version()};
}

void Cluster::OnCreateShards(const Node& ps, const CreateShardsRequest& request) {
  const Epoch lineage =
      std::static_pointer_cast<ParameterServerCore>(ps.core)->Inspect(kNoValues).lineage;
  CheckNames(request.fence.target, lineage, request.shards);
  uint64_t& told = told_layouts_[{request.fence.target, lineage}];
  told = std::max(told, request.layout_version);
}

// A variable id that was used is never given to another variable.
void Cluster::CheckNames(Incarnation ps, Epoch lineage, const std::vector<ShardSpec>& shards) {
  for (const ShardSpec& shard : shards) {
    const std::string& name =
        names_.try_emplace({ps, lineage, shard.key}, shard.name).first->second;
    if (name != shard.name && !lost_store_ && !had_zombie_)
      Violation("X14", absl::StrCat("variable ", shard.key.variable.value(), " is ", shard.name,
                                    ", and was ", name));
  }
}

void Cluster::OnAttach(const Node& worker, const WorkerAttachRequest& request) {
  const std::string& of =
      sessions_.try_emplace({request.fence.job, request.fence.session}, worker.address)
          .first->second;
  // An epoch that a lying server made up may be so far from the earlier ones that its sessions get
  // numbers that were used before.
  const bool far_epochs = has_lied_;
  if (of != worker.address && !lost_store_ && !far_epochs) {
    Violation("X14", absl::StrCat("session ", request.fence.session.value(), " is ", worker.address,
                                  "'s, and was ", of, "'s"));
  }
}

// Checks the servers at the coordinator's first Load, when they are as its predecessor left them.
void Cluster::LookBeforeLoad(const LoadRequest& request) {
  if (chief_down_ || request.fence.coordinator != chief_->incarnation ||
      std::exchange(has_loaded_, true))
    return;
  must_adopt_ = request.from != LoadRequest::From::kKeep && MustAdopt();
}

// Whether every server of the previous life is there, with the state in which that life left it,
// and no entry is half applied.
bool Cluster::MustAdopt() {
  if (!left_behind_ || core_->Inspect().ps != left_behind_->ps) return false;
  for (const Incarnation life : left_behind_->ps) {
    const auto is_it = [life](const auto& process) {
      return process->ps != nullptr && process->incarnation == life;
    };
    const auto ps = std::find_if(processes_.begin(), processes_.end(), is_it);
    if (ps == processes_.end() || !(*ps)->node->executor->alive()) return false;
    const ParameterServerSnapshot seen = (*ps)->ps->Inspect(kNoValues);
    if (seen.state != PsState::kFrozen || seen.lineage != left_behind_->lineage) return false;
    // A change of the layout was in flight.
    if (told_layouts_[{life, seen.lineage}] > left_behind_->layout_version) return false;
  }
  return applied_.AllWhole(left_behind_->ps, left_behind_->lineage);
}

// The entry with this id in the newest epoch up to now.
std::optional<Cluster::Ran> Cluster::RanAs(EntryId id) {
  const auto& ran = ran_[core_->job()];
  const auto after = ran.upper_bound({id, core_->Snapshot().epoch_id});
  if (after == ran.begin() || std::prev(after)->first.first != id) return std::nullopt;
  // An entry of an older lineage belongs to a life whose store is lost.
  const bool of_another_life = std::prev(after)->first.second < core_->Inspect().lineage;
  return of_another_life ? std::nullopt : std::optional<Ran>(std::prev(after)->second);
}

// A coordinator that has lost its store uses some epochs of its predecessors again. Nothing of the
// current life has run in them yet.
void Cluster::ForgetRunsOfLaterEpochs() {
  auto& ran = ran_[core_->job()];
  const Epoch now = core_->Snapshot().epoch_id;
  for (auto each = ran.begin(); each != ran.end();)
    each = each->first.second < now ? std::next(each) : ran.erase(each);
}

void Cluster::OnCommit(const CommitRequest& request) {
  const auto serial = SerialOf(request);
  if (!serial) return;
  ran_[request.fence.job][{request.entry, request.fence.epoch}].serial = *serial;
  if (*serial == kSerialOfEvictions) OnEviction(request);
}

void Cluster::OnApplied(const Node& ps, const CommitRequest& request) {
  const ParameterServerSnapshot seen =
      std::static_pointer_cast<ParameterServerCore>(ps.core)->Inspect(kNoValues);
  applied_.Applied(request.fence.target, seen.lineage, request);
}

// By entry id: the servers of the coordinator's view that have applied it.
std::map<EntryId, std::set<int>> Cluster::AppliedNow() {
  std::map<EntryId, std::set<int>> applied;
  for (int i = 0; i < static_cast<int>(core_->Inspect().ps.size()); ++i) {
    FindServingPs(i);
    for (const auto& [id, times] : ps_[i]->ps->Inspect(kNoValues).history) applied[id].insert(i);
  }
  return applied;
}

// Adds the entries that were applied, but not reported to the program that began them: these steps
// and writes count too. Returns their number.
int64_t Cluster::AddUnreported(const std::map<EntryId, std::set<int>>& applied) {
  int64_t added = 0;
  TakeBackEviction(applied);
  for (const EntryId id : applied_.InOrder(applied, inherited_lineage_)) {
    const std::optional<Ran> ran = RanAs(id);
    if (ran && ran->serial == kSerialOfEvictions) {
      for (const Eviction& eviction : ran->evictions) Evict(id, eviction);
    } else if (ran && ran->serial == 0 && model_.reported.count(id) == 0) {
      CountStep(*ran, /*attempt=*/1, id);
      if (ran->tag < 0 && model_.pass)
        model_.pass->visited.push_back({-1 - ran->tag, ran->positions});
      ++added;
    } else if (ran && pending_writes_.count(ran->serial) > 0) {
      CountWrite(pending_writes_.extract(ran->serial).mapped());
      ++added;
    }
  }
  pending_writes_.clear();
  return added;
}

// An adopted state must have all that a checkpoint must have, and all that had finished since.
void Cluster::OnAdopted(int64_t steps) {
  ++result_.adoptions, ++result_.restores;
  inherited_lineage_ = core_->Inspect().lineage;
  const auto past = past_.find(inherited_lineage_);
  if (past == past_.end()) return Violation("X3", "no coordinator has left the adopted state");
  if (!past->second.model) {
    result_.job_lost = over_ = true;  // the state of a zombie's program
    return;
  }
  model_ = *past->second.model;
  pending_writes_ = past->second.writes;
  inherited_ = AppliedNow();
  AdoptPass();
  result_.adoptions_in_pass += model_.pass.has_value();
  const int64_t unreported = AddUnreported(inherited_);
  Trace(absl::StrCat("program: adopted ", steps, " steps, with ", unreported,
                     " entries that had not been reported"));
  if (steps != model_.steps)
    Violation("X3",
              absl::StrCat("adopted ", steps, " steps, although ", model_.steps, " are complete"));
  const std::string told = core_->program_state();
  // A later program state need not be stored as long as no entry has begun since it was set.
  while (!model_.told.empty() && model_.told.back().first != told) {
    if (model_.effects > model_.told.back().second) {
      Violation("X3",
                absl::StrCat("adopted program state \"", told, "\", and steps that began after \"",
                             model_.told.back().first, "\" was set"));
    }
    model_.told.pop_back();
  }
  model_.program_state = told;
  model_.rounds = told.empty() ? 0 : std::stoi(told);
  rounds_done_ = model_.rounds;
  if (config_.lose_at_worst && !faults_stopped_) {
    world_.PostAfter(absl::Milliseconds(static_cast<int64_t>(random_.Below(300))), Mine([this] {
                       if (!faults_stopped_) FaultOfPs(absl::Seconds(1));
                     }));
  }
  calls_ = true;
  ClaimBrought(BroughtNames());
}

// ---- checkpoints ----

void Cluster::CheckLastCheckpoint() {
  const auto last = core_->Snapshot().last_checkpoint;
  const auto cut = last ? cuts_.find(*last) : cuts_.end();
  if (cut == cuts_.end()) return Violation("X3", "the job has ended without a checkpoint");
  if (cut->second.model->values != model_.values)
    Violation("X3", absl::StrCat(last->name(), " is the last, and lacks finished entries"));
}

std::vector<uint64_t> Cluster::AppliedSeqs() const {
  std::vector<uint64_t> seqs;
  // The servers of the coordinator's view, even if another process serves their index by now.
  for (const Incarnation life : core_->Inspect().ps) {
    for (const auto& process : processes_) {
      if (process->ps != nullptr && process->incarnation == life)
        seqs.push_back(process->ps->Inspect(kNoValues).applied_seq);
    }
  }
  return seqs;
}

// The first request of a checkpoint is sent in the event that makes the cut. So the program has
// been told of everything that finished before the cut.
void Cluster::OnSnapshot(const Node& from, CheckpointId checkpoint) {
  Cut& cut = cuts_[checkpoint];
  if (cut.by == from.core.get()) return;
  cut = Cut();
  cut.by = from.core.get();
  cut.applied_seqs = AppliedSeqs();
  // A zombie's program goes on, and the model does not follow it.
  if (from.core != core_ || chief_down_) return;
  model_.undecided.reset();  // nothing is in flight
  cut.model = model_;
  // If the store is lost, the life that loads this checkpoint gives the entry ids again.
  cut.model->reported.clear();
  cut.model->evictions.clear();
  if (model_.pass) cut.model->pass->visited = Visited();
}

void Cluster::OnMarked(const Node& from, CheckpointId checkpoint) {
  if (from.core != core_ || core_->Snapshot().checkpoint != checkpoint || chief_down_) return;
  if (AppliedSeqs() != cuts_[checkpoint].applied_seqs)
    Violation("X13", absl::StrCat("a commit was applied while ", checkpoint.name(), " was cut"));
  if (!config_.create_at_cuts || !is_resizing_ || !beside_.open() || created_at_ == checkpoint)
    return;
  created_at_ = checkpoint;
  After(absl::Milliseconds(static_cast<int64_t>(random_.Below(8))), [this] {
    if (!is_resizing_ || !beside_.open()) return;
    ++result_.created_at_cuts;
    beside_.CreateWithValues();
  });
}

}  // namespace divvy::sim
