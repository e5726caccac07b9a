// Checkpoints (checkpoint_maker.h has the steps), and the state that an epoch begins with.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/model_match.h"
#include "coordinator/core/shard_specs.h"

namespace divvy {
namespace {

constexpr absl::Duration kLooksAgain = absl::Milliseconds(5);

std::vector<std::string> NamesOf(const Layout& layout) {
  std::vector<std::string> names;
  for (const auto& [id, variable] : layout.variables()) names.push_back(variable.spec.name);
  return names;
}

}  // namespace

// ---- the program's calls ----

void CoordinatorCore::SaveCheckpoint(ResultCallback<CheckpointId> done, Asker asker) {
  Event event(*this);
  if (abandoned_) return;
  absl::Status refused = phase_.error();
  if (refused.ok() && options_.checkpoints == nullptr) {
    refused = absl::FailedPreconditionError(
        "there is no directory for checkpoints: start every task with the same --checkpoint_dir");
  }
  if (!refused.ok()) return outbox_.Add([done = std::move(done), refused] { done(refused); });
  if (asker == Asker::kOperator && BeforeRunning() && !recovery_.rewind()) {
    return when_running_.push_back(
        [self = shared_from_this(), done = std::move(done)](const absl::Status& running) {
          running.ok() ? self->SaveCheckpoint(done, Asker::kOperator) : done(running);
        });
  }
  checkpoint_maker_.Want(std::move(done));
  ChooseEmpty();
}

void CoordinatorCore::SetProgramState(std::string bytes) {
  Event event(*this);
  stored_.SetProgramState(std::move(bytes));
  if (!abandoned_) StoreState();
}

std::string CoordinatorCore::program_state() const {
  MutexLock lock(mu_);
  return stored_.program_state();
}

bool CoordinatorCore::Choosing() const {
  MutexLock lock(mu_);
  return phase_.Is(Phase::kChoosing);
}

bool CoordinatorCore::HasStartedFresh() const {
  MutexLock lock(mu_);
  return origin_.is_chosen() && !origin_.restored();
}

CoordinatorCore::Restored CoordinatorCore::restored() const {
  MutexLock lock(mu_);
  return origin_.restored()
             ? Restored{origin_.Restorable()->epochs, origin_.Restorable()->finished_steps}
             : Restored();
}

bool CoordinatorCore::WasRestored(const std::string& variable) const {
  MutexLock lock(mu_);
  return origin_.restored() && origin_.Restorable()->layout->Find(variable) != nullptr;
}

void CoordinatorCore::ExpectValues(int change) {
  Event event(*this);
  stored_.ExpectValues(change);
}

int64_t CoordinatorCore::durable_steps() const {
  MutexLock lock(mu_);
  return checkpoint_maker_.durable_steps();
}

// ---- calls of the maker ----

// A process that was asked to end saves its state first, if it can.
bool CoordinatorCore::WantsLastCheckpoint() const {
  if (!IsDraining() || options_.checkpoints == nullptr || !phase_.Is(Phase::kRunning) ||
      checkpoint_maker_.last_is_saved())
    return false;
  // No cut is possible while first values are missing or a step is half applied. A process that
  // ends completes neither.
  return !stored_.awaits_values() && !steps_.IsHalfApplied();
}

bool CoordinatorCore::NeedsCheckpoint() const {
  if (WantsLastCheckpoint() || ResizeIsQuiet()) return true;
  return phase_.Is(Phase::kRunning) && (origin_.is_unsaved() || recovery_.log().half_full());
}

bool CoordinatorCore::AwaitsCheckpoint() const {
  return IsDraining() || origin_.is_unsaved() || recovery_.log().full() || ResizeIsQuiet();
}

bool CoordinatorCore::MayCut() const {
  if (!phase_.Is(Phase::kRunning) && !phase_.Is(Phase::kEnding)) return false;
  if (!workers_.fences().empty() || layout_changes_.is_changing() || writes_.is_holding() ||
      stored_.awaits_values())
    return false;
  return !servers_.AnySilent() && !steps_.IsHalfApplied();
}

CheckpointId CoordinatorCore::Name() {
  const CheckpointId id{stored_.row().epoch, stored_.row().next_serial++};
  StoreChange change;
  change.job = stored_.row();
  change.put_checkpoints = {{id, CheckpointRow::State::kWriting, 0, 0}};
  PutThen(std::move(change), [id](CoordinatorCore& core)
                                 DIVVY_REQUIRES(core.mu_) { core.checkpoint_maker_.OnNamed(id); });
  return id;
}

CheckpointMaker::Cut CoordinatorCore::CutNow(CheckpointId id) {
  CheckpointMaker::Cut cut;
  JobState& state = cut.state;
  state.job = stored_.row().job;
  state.checkpoint = id;
  state.lineage = stored_.row().lineage;
  state.layout = layout_plan_.layout();
  state.cut = MakeHorizon();
  // state.data has the passes.
  state.cut.passes.clear();
  state.finished_steps = steps_.totals().finished_steps;
  state.finished_reads = steps_.totals().finished_reads;
  state.next_ordinal = steps_.totals().next_ordinal;
  state.epochs = steps_.totals().epochs;
  state.tick = steps_.tick();
  state.passes = passes_.begun();
  state.data = passes_.PassesNow(steps_.OpenLeases());
  state.program_state = stored_.program_state();
  cut.num_ps = servers_.size();
  cut.ends_job = phase_.Is(Phase::kEnding);
  cut.ends_process = IsDraining() && steps_.in_flight() == 0;
  cut.is_for_resize = ResizeIsQuiet();
  cut.next_id = ids_.next();
  return cut;
}

void CoordinatorCore::SendSnapshots(CheckpointId id) {
  for (Ps& ps : servers_) SendSnapshot(ps, id);
}

void CoordinatorCore::PollAgain(int ps, CheckpointId id) {
  LaterAt(servers_[ps], kLooksAgain, &CoordinatorCore::SendSnapshot, id);
}

void CoordinatorCore::SendSnapshot(Ps& ps, CheckpointId id) {
  std::optional<SnapshotRequest> request = checkpoint_maker_.RequestFor(ps.index, id);
  if (!request) return;
  request->fence = FenceFor(ps.incarnation);
  const bool waits = request->wait;
  CallPs(ps, *std::move(request), &CoordinatorCore::OnSnapshot, id, waits);
}

void CoordinatorCore::OnSnapshot(Ps& ps, const absl::StatusOr<SnapshotReply>& reply,
                                 CheckpointId id, bool waited) {
  if (!checkpoint_maker_.Awaits(ps.index, id, waited)) return;
  const Reason reason = ReasonOf(reply.status());
  const bool has_failed = reason == Reason::kDisk || reason == Reason::kInvalid;
  if (!reply.ok() && !has_failed)
    return RetryPs(ps, reply.status(), &CoordinatorCore::SendSnapshot, id);
  servers_.NoteAnswer(ps);
  checkpoint_maker_.OnSnapshot(ps.index, reply);
}

void CoordinatorCore::Collect(CheckpointId base, CheckpointId below) {
  outbox_.Add([self = shared_from_this(), base, below] {
    self->executor_.PostBackground("collect", [self, base, below] {
      HitFailpoint(Failpoint::kCollectBegun);
      std::vector<CheckpointId> removed;
      const absl::Status collected = self->options_.checkpoints->Collect(
          self->options_.keep_checkpoints, base, below, removed);
      if (!collected.ok())
        DIVVY_LOG(WARNING) << "old checkpoints could not be removed: " << collected.message();
      self->executor_.Post(self->Guarded([removed](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
        core.checkpoint_maker_.OnCollected(removed);
      }));
    });
  });
}

void CoordinatorCore::Commit(const JobState& state, std::vector<std::vector<SavedSlice>> parts) {
  outbox_.Add([self = shared_from_this(), state, parts = std::move(parts)] {
    self->executor_.PostBlocking("checkpoint", [self, state, parts] {
      const absl::Status committed = self->options_.checkpoints->Commit(state, parts);
      self->Guarded([id = state.checkpoint, committed](CoordinatorCore& core) DIVVY_REQUIRES(
                        core.mu_) { core.checkpoint_maker_.OnCommitted(id, committed); })();
    });
  });
}

void CoordinatorCore::OnWorkContinues() { layout_changes_.StartNext(); }

void CoordinatorCore::OnSaved(const CheckpointMaker::Cut& cut) {
  // If the condition is false, the resize makes another checkpoint.
  if (cut.is_for_resize && IsUnchangedSince(cut) && ResizeIsQuiet())
    return ChangeServers(cut.state);
  if (phase_.Is(Phase::kEnding)) FinishEnding();
}

// The resize ends, because no training step runs while a resize waits for its checkpoint.
void CoordinatorCore::OnDiskFailure(const absl::Status& why) {
  if (ResizeIsQuiet()) resizing_.Refuse(servers_.size(), why);
}

// ---- the state that an epoch begins with ----

void CoordinatorCore::RestoreLatest(ResultCallback<int64_t> done) {
  Event event(*this);
  if (abandoned_) return;
  absl::Status refused = phase_.error();
  const bool begun =
      phase_.Is(Phase::kRunning) || phase_.Is(Phase::kEnding) || recovery_.rewind() != nullptr;
  if ((begun || origin_.is_chosen()) && origin_.Restorable() != nullptr &&
      origin_.restored() != origin_.Restorable()->checkpoint) {
    refused.Update(absl::FailedPreconditionError(
        "RestoreLatest comes after the variables are created and before they are first read, "
        "written or used by a step: this job "
        "has already begun without its checkpoint"));
  }
  if (!refused.ok()) return outbox_.Add([done = std::move(done), refused] { done(refused); });
  if (begun)
    return outbox_.Add(
        [done = std::move(done), steps = steps_.totals().finished_steps] { done(steps); });
  origin_.Await(std::move(done));
  if (phase_.Is(Phase::kChoosing)) ChooseCheckpoint();
}

void CoordinatorCore::ChooseEmpty() {
  if (!phase_.Is(Phase::kChoosing)) return;
  outbox_.Add(
      [text = absl::StrCat("the program begins anew and does not use ", origin_.Text(),
                           ": it did not call RestoreLatest")] { DIVVY_LOG(WARNING) << text; });
  BeginLoading();
}

void CoordinatorCore::ChooseCheckpoint() {
  origin_.SetAdopting(origin_.held().ok());
  const ModelMatch match =
      MatchModel(layout_plan_.DeclaredNames(), NamesOf(*origin_.Restorable()->layout));
  absl::Status fits = CheckSameModel(match, origin_.Text());
  layout_plan_.SetOrigin(origin_.Text(), origin_.is_adopting()
                                             ? "start the parameter servers again, and the job in "
                                               "an empty --state_dir (and --checkpoint_dir)"
                                             : "train in an empty --checkpoint_dir");
  if (fits.ok())
    fits = origin_.is_adopting() ? layout_plan_.Adopt(origin_.held()->layout)
                                 : layout_plan_.Relayout(*origin_.found(), NewIds());
  if (!fits.ok()) {
    origin_.SetAdopting(false);
    // The newest checkpoint was damaged, and this is an older one.
    if (origin_.is_chosen()) return FailJob(fits);
    for (auto& done : origin_.TakeWaiters())
      outbox_.Add([done = std::move(done), fits] { done(fits); });
    return;
  }
  if (!origin_.is_adopting() && origin_.is_stored()) {
    outbox_.Add(
        [text = absl::StrCat("what the parameter servers hold is not adopted: ",
                             origin_.held().status().message(), ". The job goes on from ",
                             origin_.found()->checkpoint.name())] { DIVVY_LOG(INFO) << text; });
  }
  if (std::string text = DescribeMatch(match, origin_.Text()); !text.empty()) {
    const Severity severity = match.not_found.empty() ? Severity::kInfo : Severity::kWarning;
    outbox_.Add([severity, text = std::move(text)] { Log({severity, __FILE__, __LINE__, text}); });
  }
  origin_.Restore();
  RestoreState(*origin_.Restorable());
  BeginLoading();
}

// Restores everything that belongs to the program or to the coordinator alone.
void CoordinatorCore::RestoreState(const JobState& state) {
  const std::optional<JobState>& found = origin_.found();
  const bool is_restored = found && origin_.restored();
  checkpoint_maker_.SetNewest(
      is_restored ? std::optional<CheckpointId>(found->checkpoint) : std::nullopt,
      is_restored ? found->finished_steps : 0);
  steps_.RestoreState(
      {state.finished_steps, state.finished_reads, state.next_ordinal, state.epochs, state.tick});
  passes_.RestoreState(state.passes, state.data);
  stored_.RestoreState(state.program_state);
}

// ---- loading a checkpoint ----

// All variables of the checkpoint are loaded. Now the variables that only the program has declared
// are made, before any use.
void CoordinatorCore::MakeDeclared() {
  LayoutChanges::Shards shards = layout_plan_.to_make();
  AppendShards(recovery_.log().Shards(), shards);
  if (shards.empty()) return FinishLoading();
  const auto on_made = [weak = weak_from_this()](const absl::Status& made) {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->Guarded([made](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
      made.ok() ? core.FinishLoading() : core.FailJob(made);
    })();
  };
  layout_changes_.MakeAll(std::move(shards), layout_plan_.to_change(), on_made);
}

// A ps cannot load a checkpoint that the catalog considers good. Without a catalog there was no
// checkpoint to load, so the error of the ps is wrong.
bool CoordinatorCore::FallBack(const absl::Status& error) {
  if (ReasonOf(error) != Reason::kCheckpointCorrupt || !origin_.restored() ||
      recovery_.rewind() != nullptr || options_.checkpoints == nullptr)
    return false;
  outbox_.Add([self = shared_from_this(), bad = *origin_.restored(), error] {
    DIVVY_LOG(ERROR) << error.message() << ". Looking for an older checkpoint";
    self->executor_.PostBlocking("checkpoint", [self, bad, error] {
      const auto older = self->options_.checkpoints->Newest(bad);
      self->Guarded([bad, error, older](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
        if (!core.phase_.Is(Phase::kLoading) || core.origin_.restored() != bad) return;
        if (!older.ok()) return core.FailJob(older.status());
        if (!*older) return core.FailJob(error);
        core.origin_.SetFound(*older);
        core.phase_.Enter(JobPhase::Attaching{/*reload=*/true});
        // Servers that have loaded the damaged checkpoint are READY in this epoch, so another epoch
        // begins.
        core.RestartEpoch(core.stored_.row().epoch);
      })();
    });
  });
  return true;
}

}  // namespace divvy
