// Checkpoints: one cut over all servers while training goes on, and the state that an epoch begins with.
//
//   1. NAMING      no worker is being fenced, no step is half applied. The serial is made durable before it is used
//   2. HOLDING     every worker is told to begin no commit; our own writes and layout changes wait. Computing goes on
//   3. all held: every entry is now applied everywhere or nowhere. That is the cut
//   4. MARKING     every ps marks what it holds; from then on commits do no harm
//   5. WRITING     all marked: released. The ps write their parts behind the commits
//   6. COMMITTING  all written: the catalog makes the checkpoint whole by one rename
//
// Until 5 a lost or new worker, or 5 s, gives it up; until 6 a ps that is lost, a disk's error. It is tried again under another serial.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/model_match.h"
#include "coordinator/core/shard_specs.h"

namespace divvy {
namespace {

constexpr absl::Duration kLongestPause = absl::Minutes(1);  // after checkpoints that nobody waits for: a hold that fails costs all workers its time
constexpr absl::Duration kLooksAgain = absl::Milliseconds(5);

std::vector<std::string> NamesOf(const std::vector<coordinator_records::Declared>& declared) {
  std::vector<std::string> names;
  for (const auto& variable : declared) names.push_back(variable.spec.name);
  return names;
}

std::vector<std::string> NamesOf(const Layout& layout) {
  std::vector<std::string> names;
  for (const auto& [id, variable] : layout.variables()) names.push_back(variable.spec.name);
  return names;
}

}  // namespace

// ---- the program's calls ----

void CoordinatorCore::SaveCheckpoint(ResultCallback<CheckpointId> done, Asker asker) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  absl::Status refused = job_error_;
  if (refused.ok() && options_.checkpoints == nullptr) {
    refused = absl::FailedPreconditionError("there is no directory for checkpoints: start every task with the same --checkpoint_dir");
  }
  if (!refused.ok()) return outbox_.Add([done = std::move(done), refused] { done(refused); });
  if (asker == Asker::kOperator && BeforeRunning() && !recovery_) {
    return when_running_.push_back([self = shared_from_this(), done = std::move(done)](const absl::Status& running) {
      running.ok() ? self->SaveCheckpoint(done, Asker::kOperator) : done(running);
    });
  }
  saves_wanted_.push_back(std::move(done));
  ChooseEmpty();
  Pump();
}

void CoordinatorCore::SetProgramState(std::string bytes) {
  CoreLock lock(mu_, outbox_);
  program_state_ = std::move(bytes);
  ++program_states_;
  if (!abandoned_) StoreState();
}

std::string CoordinatorCore::program_state() const {
  MutexLock lock(mu_);
  return program_state_;
}

bool CoordinatorCore::Choosing() const {
  MutexLock lock(mu_);
  return phase_ == Phase::kChoosing;
}

bool CoordinatorCore::HasBegunAnew() const {
  MutexLock lock(mu_);
  return chosen_ && !restored_;
}

CoordinatorCore::Restored CoordinatorCore::restored() const {
  MutexLock lock(mu_);
  return restored_ ? Restored{Restorable()->epochs, Restorable()->finished_steps} : Restored();
}

bool CoordinatorCore::WasRestored(const std::string& variable) const {
  MutexLock lock(mu_);
  return restored_ && Restorable()->layout->Find(variable) != nullptr;
}

void CoordinatorCore::ExpectValues(int change) {
  CoreLock lock(mu_, outbox_);
  expected_values_ += change;
  if (expected_values_ == 0) Pump();
}

int64_t CoordinatorCore::durable_steps() const {
  MutexLock lock(mu_);
  return durable_steps_;
}

// ---- 1 ----

bool CoordinatorCore::CheckpointIsDue() const {
  if (!saves_wanted_.empty() || final_wanted_ || WantsLastCheckpoint() || ResizeIsQuiet()) return true;
  if (phase_ != Phase::kRunning) return false;
  return adoption_.unsaved || log_.half_full() || (options_.checkpoint_every > absl::ZeroDuration() && clock_.Elapsed() >= next_checkpoint_);
}

// A process that was asked to end saves what is there, if it can, before it goes.
bool CoordinatorCore::WantsLastCheckpoint() const {
  if (!draining_ || options_.checkpoints == nullptr || phase_ != Phase::kRunning || last_saved_) return false;
  return expected_values_ == 0 && !HalfApplied();  // else nobody will complete it any more
}

// Whether some step was applied by some of its servers when its worker was lost, and has not been run again.
bool CoordinatorCore::HalfApplied() const {
  return std::any_of(open_steps_.begin(), open_steps_.end(), [](const auto& open) { return !open.second->applied.empty(); });
}

// After a checkpoint that was given up.
absl::Duration CoordinatorCore::Pause() const {
  const bool awaited = !saves_wanted_.empty() || final_wanted_ || draining_ || adoption_.unsaved || log_.full() || ResizeIsQuiet();
  return awaited ? kTryAgain : std::min(kTryAgain * (1 << std::min(given_up_, 6)), kLongestPause);
}

// Whether every entry is, or can be made to be, applied everywhere or nowhere.
bool CoordinatorCore::MayCut() const {
  if (phase_ != Phase::kRunning && phase_ != Phase::kEnding) return false;
  if (!fences_.empty() || layout_work_ || write_hold_ || committing_ || expected_values_ > 0 || clock_.Elapsed() < given_up_at_ + Pause()) return false;
  const bool all_answer = std::none_of(ps_.begin(), ps_.end(), [](const Ps& ps) { return ps.silent_since.has_value(); });
  return all_answer && !HalfApplied();
}

void CoordinatorCore::MaybeCheckpoint() {
  if (options_.checkpoints == nullptr || checkpoint_ || !CheckpointIsDue() || !MayCut()) return;
  checkpoint_.emplace();
  checkpoint_->id = {row_.epoch, row_.next_serial++};
  StoreChange change;
  change.job = row_;
  change.put_checkpoints = {{checkpoint_->id, CheckpointRow::State::kWriting, 0, 0}};
  PutThen(std::move(change), [id = checkpoint_->id](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    if (core.CheckpointAt(id, CheckpointRun::Stage::kNaming)) core.HoldWorkers();
  });
}

bool CoordinatorCore::CheckpointAt(CheckpointId id, CheckpointRun::Stage stage) const {
  return checkpoint_ && checkpoint_->id == id && checkpoint_->stage == stage;
}

// ---- 2 ----

void CoordinatorCore::HoldWorkers() {
  if (!MayCut()) return GiveUpCheckpoint(absl::OkStatus());
  checkpoint_->stage = CheckpointRun::Stage::kHolding;
  checkpoint_->held_since = clock_.Elapsed();
  for (auto& [index, worker] : workers_) {
    if (worker.state == Worker::State::kDialing) continue;
    checkpoint_->waiting.insert(index);
    Send(worker, Hold{checkpoint_->id.serial});
  }
  MaybeCut();
}

void CoordinatorCore::OnHeld(const Worker& worker, uint64_t number) {
  if (write_hold_ && write_hold_->number == number) return NoteHeldForWrites(worker.index);
  if (!checkpoint_ || checkpoint_->stage != CheckpointRun::Stage::kHolding || checkpoint_->id.serial != number) return;
  checkpoint_->waiting.erase(worker.index);
  HitFailpoint(Failpoint::kHoldBeforeAllHeld);
  MaybeCut();
}

// While it is so, nothing of ours is sent to a ps that would change it.
bool CoordinatorCore::Holding() const {
  return checkpoint_ && (checkpoint_->stage == CheckpointRun::Stage::kHolding || checkpoint_->stage == CheckpointRun::Stage::kMarking);
}

// ---- 3 and 4 ----

void CoordinatorCore::MaybeCut() {
  if (!checkpoint_ || checkpoint_->stage != CheckpointRun::Stage::kHolding || !checkpoint_->waiting.empty() || !open_writes_.empty()) return;
  checkpoint_->stage = CheckpointRun::Stage::kMarking;
  checkpoint_->state = StateNow();
  checkpoint_->saves = std::exchange(saves_wanted_, {});  // those that are asked for later want another
  checkpoint_->is_final = phase_ == Phase::kEnding;
  checkpoint_->is_for_resize = ResizeIsQuiet();
  checkpoint_->next_id = EntryId(next_id_);
  checkpoint_->is_last = draining_ && in_flight_ == 0;
  for (const Ps& ps : ps_) checkpoint_->waiting.insert(ps.index);
  for (Ps& ps : ps_) SendSnapshot(ps, checkpoint_->id);
}

JobState CoordinatorCore::StateNow() const {
  JobState state;
  state.job = row_.job;
  state.checkpoint = checkpoint_->id;
  state.lineage = row_.lineage;
  state.layout = layout_;
  state.cut = MakeHorizon();
  state.cut.passes.clear();  // `data` has them
  state.finished_steps = finished_steps_;
  state.finished_reads = finished_reads_;
  state.next_ordinal = next_ordinal_;
  state.epochs = epochs_;
  state.passes = passes_;
  state.data = PassesNow();
  state.program_state = program_state_;
  return state;
}

void CoordinatorCore::SendSnapshot(Ps& ps, CheckpointId id) {
  if (!checkpoint_ || checkpoint_->id != id || checkpoint_->waiting.count(ps.index) == 0) return;
  SnapshotRequest request;
  request.fence = FenceFor(ps.incarnation);
  request.checkpoint = id;
  request.file = ps.index;
  request.num_files = static_cast<int>(ps_.size()) + 1;
  request.wait = checkpoint_->stage == CheckpointRun::Stage::kWriting;
  const bool waits = request.wait;
  CallPs(ps, &ParameterClient::Snapshot, std::move(request), &CoordinatorCore::OnSnapshot, id, waits);
}

void CoordinatorCore::OnSnapshot(Ps& ps, const absl::StatusOr<SnapshotReply>& reply, CheckpointId id, bool waited) {
  const bool writing = checkpoint_ && checkpoint_->stage == CheckpointRun::Stage::kWriting;
  if (!checkpoint_ || checkpoint_->id != id || writing != waited || checkpoint_->waiting.count(ps.index) == 0) return;
  const Reason reason = ReasonOf(reply.status());
  if (reason == Reason::kDisk || reason == Reason::kInvalid) {
    OnPsAnswer(ps);
    return GiveUpCheckpoint(reply.status());
  }
  if (!reply.ok()) return RetryPs(ps, reply.status(), &CoordinatorCore::SendSnapshot, id);
  OnPsAnswer(ps);
  if (!writing) return OnMarked(ps);
  if (!reply->done) return LaterAt(ps, kLooksAgain, &CoordinatorCore::SendSnapshot, id);
  checkpoint_->bytes += static_cast<uint64_t>(reply->written_bytes);
  checkpoint_->parts[ps.index] = reply->slices;
  checkpoint_->waiting.erase(ps.index);
  if (checkpoint_->waiting.empty()) CommitCheckpoint();
}

// ---- 5 ----

void CoordinatorCore::OnMarked(Ps& ps) {
  checkpoint_->waiting.erase(ps.index);
  if (!checkpoint_->waiting.empty()) return;
  HitFailpoint(Failpoint::kMarkedBeforeRelease);
  checkpoint_->stage = CheckpointRun::Stage::kWriting;
  checkpoint_->parts.resize(ps_.size());
  for (const Ps& each : ps_) checkpoint_->waiting.insert(each.index);
  const CheckpointId id = checkpoint_->id;
  Collect(id);       // no ps writes to a file of an older one any more
  ReleaseWorkers();  // behind which a drain may end, and the checkpoint with it
  for (Ps& each : ps_) SendSnapshot(each, id);
}

// Removes what is too old, and the files of those that were given up, below `below`.
void CoordinatorCore::Collect(CheckpointId below) {
  if (std::exchange(collecting_, true)) return;
  outbox_.Add([self = shared_from_this(), base = last_checkpoint_.value_or(CheckpointId()), below] {
    self->executor_.PostBackground("collect", [self, base, below] {
      HitFailpoint(Failpoint::kCollectBegun);
      std::vector<CheckpointId> removed;
      const absl::Status collected = self->options_.checkpoints->Collect(self->options_.keep_checkpoints, base, below, removed);
      if (!collected.ok()) DIVVY_LOG(WARNING) << "old checkpoints could not be removed: " << collected.message();
      self->executor_.Post(self->Guarded([removed](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.OnCollected(removed); }));
    });
  });
}

void CoordinatorCore::OnCollected(const std::vector<CheckpointId>& removed) {
  collecting_ = false;
  if (removed.empty()) return;
  StoreChange change;
  change.deleted_checkpoints = removed;
  store_.Put(change, [](const absl::Status&) {});  // a row too many does no harm: the directory is right
}

void CoordinatorCore::ReleaseWorkers() {
  longest_hold_ = std::max(longest_hold_, clock_.Elapsed() - checkpoint_->held_since);
  SendToAll(Release{checkpoint_->id.serial});
  StartNextLayoutJob();
  Pump();
}

// ---- 6 ----

void CoordinatorCore::CommitCheckpoint() {
  checkpoint_->stage = CheckpointRun::Stage::kCommitting;
  committing_ = true;
  outbox_.Add([self = shared_from_this(), state = checkpoint_->state, parts = std::move(checkpoint_->parts)] {
    self->executor_.PostBlocking("checkpoint", [self, state, parts] {
      const absl::Status committed = self->options_.checkpoints->Commit(state, parts);
      self->Guarded([id = state.checkpoint, committed](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.OnCommitted(id, committed); })();
    });
  });
}

void CoordinatorCore::OnCommitted(CheckpointId id, const absl::Status& committed) {
  committing_ = false;
  if (!CheckpointAt(id, CheckpointRun::Stage::kCommitting)) return;  // it was dropped: a rewind, or the job has failed. It is a cut all the same
  if (absl::IsAborted(committed)) return FailJob(absl::UnavailableError(absl::StrCat(committed.message(), ". Start the coordinator again: it looks")));
  if (!committed.ok()) return GiveUpCheckpoint(MakeError(Reason::kDisk, committed.message()));
  HitFailpoint(Failpoint::kIndexRenamedBeforeStored);
  MoveBase(checkpoint_->state);
  const uint64_t checkpoint_bytes = checkpoint_->bytes;
  for (auto& done : checkpoint_->saves) outbox_.Add([done = std::move(done), id] { done(id); });
  if (checkpoint_->is_final) final_wanted_ = false;
  last_saved_ |= checkpoint_->is_last;
  const CheckpointRun run = *std::exchange(checkpoint_, std::nullopt);
  next_checkpoint_ = clock_.Elapsed() + options_.checkpoint_every;
  StoreChange change;
  change.put_checkpoints = {{id, CheckpointRow::State::kCommitted, durable_steps_, checkpoint_bytes}};
  PutThen(std::move(change), [](CoordinatorCore&) {});
  given_up_ = 0;
  Collect(id);
  if (run.is_for_resize && NothingSince(run) && ResizeIsQuiet()) return ChangeServers(run.state);  // else another checkpoint is due
  if (phase_ == Phase::kEnding) FinishEnding();
  Pump();
}

// Who waits for the checkpoint under way waits for the next one.
void CoordinatorCore::DropCheckpoint() {
  const CheckpointId id = checkpoint_->id;
  saves_wanted_.insert(saves_wanted_.begin(), checkpoint_->saves.begin(), checkpoint_->saves.end());
  checkpoint_.reset();
  given_up_at_ = clock_.Elapsed();
  StoreChange change;
  change.deleted_checkpoints = {id};
  store_.Put(change, [](const absl::Status&) {});  // a row too many does no harm: the directory is right
}

// OK: not its own fault, it is tried again at once. Else the disk's: who waits for one is told; the next is due after the usual time.
void CoordinatorCore::GiveUpCheckpoint(const absl::Status& why) {
  const bool holding = Holding();
  const CheckpointId id = checkpoint_->id;
  DropCheckpoint();
  if (holding) SendToAll(Release{id.serial});
  if (why.ok() && ++given_up_ == 3) {
    outbox_.Add([] { DIVVY_LOG(WARNING) << "checkpoints are given up again and again: a worker or parameter server does not come to rest within 5 s"; });
  }
  if (!why.ok()) {
    given_up_ = 0;
    next_checkpoint_ = clock_.Elapsed() + options_.checkpoint_every;
    outbox_.Add([text = absl::StrCat(id.name(), " could not be made, older ones stand: ", why.message())] { DIVVY_LOG(WARNING) << text; });
    for (auto& done : std::exchange(saves_wanted_, {})) outbox_.Add([done = std::move(done), why] { done(why); });
  }
  if (!why.ok() && draining_) last_saved_ = true;
  if (!why.ok() && ResizeIsQuiet()) FailResize(why);  // while it waits nothing is trained
  // Nothing is lost yet: the servers hold the values, and a disk may be emptied meanwhile.
  if (!why.ok() && final_wanted_ && clock_.Elapsed() - ending_since_ > options_.checkpoint_stall_timeout) return FailJob(why);
  StartNextLayoutJob();
  Pump();
}

void CoordinatorCore::CheckCheckpoint(absl::Duration now) {
  if (Holding() && now - checkpoint_->held_since > kLongestHold) GiveUpCheckpoint(absl::OkStatus());
  MaybeCheckpoint();
}

// ---- the state that an epoch begins with ----

void CoordinatorCore::RestoreLatest(ResultCallback<int64_t> done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  absl::Status refused = job_error_;
  const bool begun = phase_ == Phase::kRunning || phase_ == Phase::kEnding || recovery_;
  if ((begun || chosen_) && Restorable() != nullptr && restored_ != Restorable()->checkpoint) {
    refused.Update(
        absl::FailedPreconditionError("RestoreLatest comes after the variables are created and before they are first read, written or used by a step: this job "
                                      "has begun without its checkpoint"));
  }
  if (!refused.ok()) return outbox_.Add([done = std::move(done), refused] { done(refused); });
  if (begun) return outbox_.Add([done = std::move(done), steps = finished_steps_] { done(steps); });
  restores_.push_back(std::move(done));
  if (phase_ == Phase::kChoosing) ChooseCheckpoint();
}

void CoordinatorCore::ChooseEmpty() {
  if (phase_ != Phase::kChoosing) return;
  outbox_.Add([text = absl::StrCat("the program begins anew, beside ", RestorableText(), ": it did not call RestoreLatest")] { DIVVY_LOG(WARNING) << text; });
  BeginLoading();
}

void CoordinatorCore::ChooseCheckpoint() {
  adoption_.adopting = adoption_.held.ok();
  const ModelMatch match = MatchModel(NamesOf(declared_), NamesOf(*Restorable()->layout));
  absl::Status fits = CheckSameModel(match, RestorableText());
  if (fits.ok()) fits = adoption_.adopting ? AdoptLayout() : Relayout(*found_, declared_);
  if (!fits.ok()) {
    adoption_.adopting = false;
    if (chosen_) return FailJob(fits);  // of an older checkpoint, after the newest was found to be damaged
    for (auto& done : std::exchange(restores_, {})) outbox_.Add([done = std::move(done), fits] { done(fits); });
    return;
  }
  if (!adoption_.adopting && adoption_.stored.state) {
    outbox_.Add([text = absl::StrCat("what the parameter servers hold is not adopted: ", adoption_.held.status().message(), ". The job goes on from ",
                                     found_->checkpoint.name())] { DIVVY_LOG(INFO) << text; });
  }
  if (std::string text = DescribeMatch(match, RestorableText()); !text.empty()) {
    const Severity severity = match.not_found.empty() ? Severity::kInfo : Severity::kWarning;
    outbox_.Add([severity, text = std::move(text)] { Log({severity, __FILE__, __LINE__, text}); });
  }
  restored_ = Restorable()->checkpoint;
  TakeUp(*Restorable());
  BeginLoading();
}

// All that is the program's, or the coordinator's alone.
void CoordinatorCore::TakeUp(const JobState& state) {
  last_checkpoint_.reset();
  if (found_ && restored_) last_checkpoint_ = found_->checkpoint;
  durable_steps_ = last_checkpoint_ ? found_->finished_steps : 0;
  finished_steps_ = state.finished_steps;
  finished_reads_ = state.finished_reads;
  next_ordinal_ = state.next_ordinal;
  epochs_ = state.epochs;
  for (const auto& [source, begun] : state.passes) passes_[source] = std::max(passes_[source], begun);
  TakeUpPasses(state.data);
  ResumeIterators();
  program_state_ = state.program_state;
}

absl::Status CoordinatorCore::CheckSameVariable(const VariableSpec& declared, const VariableSpec& saved, const std::string& where) const {
  if (declared.dtype == saved.dtype && declared.shape == saved.shape) return absl::OkStatus();
  const std::string fix = adoption_.held.ok() ? "start the parameter servers again, and the job in an empty --state_dir (and --checkpoint_dir)"
                                              : "train in an empty --checkpoint_dir";
  return absl::FailedPreconditionError(absl::StrCat("variable \"", saved.name, "\" is ", DTypeName(declared.dtype), " ", declared.shape.ToString(), ", and in ",
                                                    where, " it is ", DTypeName(saved.dtype), " ", saved.shape.ToString(),
                                                    ": give the new one another name, or ", fix));
}

// The variable that was there before, as the program now declares it. What it lacks is made when it is needed.
VariableLayout CoordinatorCore::Claimed(VariableLayout variable, const VariableSpec& declared) {
  variable.spec.optimizer = declared.optimizer;
  variable.spec.aggregation = declared.aggregation;
  return variable;
}

namespace {

// Adds the slots that were saved to those that the variable has by now.
void AddSavedSlots(const VariableLayout& saved, VariableLayout& variable) {
  for (size_t i = 0; i < saved.slots.size(); ++i) {
    if (variable.SlotNumber(saved.slot_optimizers[i], saved.slots[i].name)) continue;
    variable.slots.push_back(saved.slots[i]);
    variable.slot_optimizers.push_back(saved.slot_optimizers[i]);
  }
}

bool HasSlot(const VariableLayout& variable, const std::string& name) {
  for (size_t i = 0; i < variable.slots.size(); ++i) {
    if (variable.SlotName(static_cast<int>(i)) == name) return true;
  }
  return false;
}

}  // namespace

// A layout does not tell who wanted a variable cut so. Where the job's own partitioner would have, it is asked again; else it keeps its number of shards.
VariableSpec CoordinatorCore::AsItWasCut(const VariableLayout& saved, const Layout& layout) const {
  int num_ps = 1;
  for (const auto& [id, variable] : layout.variables()) num_ps = std::max(num_ps, 1 + *std::max_element(variable.ps.begin(), variable.ps.end()));
  const Partitioner own = options_.partitioner ? options_.partitioner(num_ps) : Partitioner();
  VariableSpec spec = saved.spec;
  if (NumShards(own, spec.shape, spec.dtype).value_or(0) != saved.num_shards()) spec.partitioner = FixedShardsPartitioner{saved.num_shards()};
  return spec;
}

// The layout of the checkpoint's variables and of those that the program has declared, each cut and placed for the servers that there are now. What the
// checkpoint holds is loaded; the rest is made. An error: all is as it was.
absl::Status CoordinatorCore::Relayout(const JobState& saved, const std::vector<Declared>& declared) {
  const int next_placement = std::exchange(next_placement_, 0);
  absl::StatusOr<Relaid> relaid = LayOut(saved, declared);
  if (!relaid.ok()) {
    next_placement_ = next_placement;
    return relaid.status();
  }
  layout_ = std::move(relaid->layout);
  loaded_ = std::move(relaid->loaded);
  made_ = std::move(relaid->made);
  unclaimed_ = std::move(relaid->unclaimed);
  return absl::OkStatus();
}

// What the program asked for when it created the variable, as far as the other one has still so many shards.
std::optional<Colocation> CoordinatorCore::ColocationOf(const std::string& variable, const Layout& layout) const {
  const auto found = colocated_.find(variable);
  const VariableLayout* const other = found == colocated_.end() ? nullptr : layout.Find(found->second.variable);
  if (other == nullptr) return std::nullopt;
  return Colocation{found->second.variable, std::min(found->second.shard, other->num_shards() - 1)};
}

absl::StatusOr<CoordinatorCore::Relaid> CoordinatorCore::LayOut(const JobState& state, const std::vector<Declared>& declared_variables) {
  Relaid relaid;
  const auto add = [&](const VariableSpec& spec, const std::optional<Colocation>& with, VariableId id) DIVVY_REQUIRES(mu_) -> absl::Status {
    ASSIGN_OR_RETURN(std::optional<LayoutJob::Change> change, PrepareVariable(spec, with, id, *relaid.layout));
    VariableLayout variable = std::move(change->variable);
    const VariableLayout* const saved = state.layout->Find(spec.name);
    if (saved != nullptr) {
      RETURN_IF_ERROR(CheckSameVariable(spec, saved->spec, state.checkpoint.name()));
      AddSavedSlots(*saved, variable);
    }
    for (const auto& [ps, shards] : ShardSpecsOf(variable, spec.initializer)) {
      for (const ShardSpec& shard : shards) {
        const bool is_saved = saved != nullptr && (shard.key.slot == 0 || HasSlot(*saved, shard.name));
        (is_saved ? relaid.loaded : relaid.made)[ps].push_back(shard);
      }
    }
    next_placement_ += change->placed_in_turn;
    relaid.layout = relaid.layout->With(std::move(variable));
    return absl::OkStatus();
  };
  for (const Declared& declared : declared_variables) RETURN_IF_ERROR(add(declared.spec, declared.with, declared.id));
  for (const auto& [id, saved] : state.layout->variables()) {
    if (relaid.layout->Find(saved.spec.name) != nullptr) continue;
    const bool taken = relaid.layout->Find(id) != nullptr;  // by a declaration that came before the checkpoint was found
    RETURN_IF_ERROR(add(AsItWasCut(saved, *state.layout), ColocationOf(saved.spec.name, *relaid.layout), taken ? VariableId(row_.next_variable_id++) : id));
    relaid.unclaimed.insert(saved.spec.name);
  }
  return relaid;
}

// The program declares a variable that came with the checkpoint before it was declared.
std::optional<absl::StatusOr<std::optional<CoordinatorCore::LayoutJob::Change>>> CoordinatorCore::ClaimRestored(const VariableSpec& spec,
                                                                                                                const Layout& layout) {
  const VariableLayout* const restored = layout.Find(spec.name);
  if (restored == nullptr || unclaimed_.count(spec.name) == 0) return std::nullopt;
  if (const absl::Status same = CheckSameVariable(spec, restored->spec, RestorableText()); !same.ok()) return same;
  LayoutJob::Change change;
  change.variable = Claimed(*restored, spec);
  return std::optional<LayoutJob::Change>(std::move(change));
}

// While nobody knows yet what the state will be, a variable is a declaration: its shards are made, or loaded, when that is decided.
void CoordinatorCore::Declare(LayoutJob job) {
  auto change = job.prepare(*layout_);
  if (change.ok() && *change) {
    next_placement_ += (*change)->placed_in_turn;
    layout_ = layout_->With((*change)->variable);
    if (job.with) colocated_[job.spec->name] = *job.with;
    declared_.push_back({*std::move(job.spec), std::move(job.with), (*change)->variable.id, std::move((*change)->shards)});
  }
  if (job.done) outbox_.Add([done = std::move(job.done), status = change.status()] { done(status); });
}

// ---- loading a checkpoint ----

// What is loaded is whole; what the program has declared beside it is made now, before anybody uses it.
void CoordinatorCore::MakeDeclared() {
  std::map<int, std::vector<ShardSpec>> shards = made_;
  AppendShards(log_.Shards(), shards);
  if (shards.empty()) return FinishLoading();
  layout_jobs_.push_front({nullptr, [weak = weak_from_this()](const absl::Status& made) {
                             if (const auto self = weak.lock()) {
                               self->Guarded([made](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
                                 if (!made.ok()) return core.FailJob(made);
                                 core.FinishLoading();
                               })();
                             }
                           }});
  layout_work_ = LayoutWork{};
  layout_work_->change.shards = std::move(shards);
  layout_work_->next = layout_;
  for (const auto& [ps, specs] : layout_work_->change.shards) layout_work_->waiting.insert(ps);
  for (const int ps : std::set<int>(layout_work_->waiting)) SendShards(ps_[ps]);
}

// A ps cannot load what the catalog took for good. True: an older checkpoint is looked for. Without a catalog there was none to load, and the ps says so
// falsely.
bool CoordinatorCore::FallBack(const absl::Status& error) {
  if (ReasonOf(error) != Reason::kCheckpointCorrupt || !restored_ || recovery_ || options_.checkpoints == nullptr) return false;
  outbox_.Add([self = shared_from_this(), bad = *restored_, error] {
    DIVVY_LOG(ERROR) << error.message() << ". Looking for an older checkpoint";
    self->executor_.PostBlocking("checkpoint", [self, bad, error] {
      const auto older = self->options_.checkpoints->Newest(bad);
      self->Guarded([bad, error, older](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
        if (core.phase_ != Phase::kLoading || core.restored_ != bad) return;
        if (!older.ok()) return core.FailJob(older.status());
        if (!*older) return core.FailJob(error);
        core.found_ = **older;
        core.phase_ = Phase::kAttaching;
        core.reload_ = true;
        core.RestartEpoch(core.row_.epoch);  // servers that have loaded the other one are READY in this epoch
      })();
    });
  });
  return true;
}

}  // namespace divvy
