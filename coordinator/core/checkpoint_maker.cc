#include "coordinator/core/checkpoint_maker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// The longest pause while no call waits for a checkpoint. Each failed hold costs all workers its
// time.
constexpr absl::Duration kLongestPause = absl::Minutes(1);

}  // namespace

void CheckpointMaker::WantFinal(bool wanted) {
  final_wanted_ = wanted;
  final_since_ = clock_.Elapsed();
}

// ---- 1 ----

bool CheckpointMaker::IsDue() const {
  if (!wanted_.empty() || final_wanted_ || host_.NeedsCheckpoint()) return true;
  return host_.IsRunning() && options_.checkpoint_every > absl::ZeroDuration() &&
         clock_.Elapsed() >= next_;
}

// The pause after an abandoned checkpoint.
absl::Duration CheckpointMaker::Pause() const {
  const bool awaited = !wanted_.empty() || final_wanted_ || host_.AwaitsCheckpoint();
  return awaited ? kTryAgain : std::min(kTryAgain * (1 << std::min(given_up_, 6)), kLongestPause);
}

bool CheckpointMaker::MayBegin() const {
  return !committing_ && clock_.Elapsed() >= given_up_at_ + Pause() && host_.MayCut();
}

void CheckpointMaker::MaybeBegin() {
  if (options_.checkpoints == nullptr || run_ || !IsDue() || !MayBegin()) return;
  Run run;
  run.id = host_.Name();
  run.began = clock_.Elapsed();
  run_ = std::move(run);
}

// ---- 2 ----

void CheckpointMaker::OnNamed(CheckpointId id) {
  if (!IsAt(id, Stage::kNaming)) return;
  if (!MayBegin()) return GiveUp(absl::OkStatus());
  run_->stage = Stage::kHolding;
  run_->held_since = clock_.Elapsed();
  for (auto& [index, worker] : workers_.all()) {
    if (worker.state == WorkerSet::Worker::State::kDialing) continue;
    run_->waiting.insert(index);
    workers_.Send(worker, Hold{id.serial});
  }
  MaybeCut();
}

void CheckpointMaker::OnHeld(int worker, uint64_t number) {
  if (!run_ || run_->stage != Stage::kHolding || run_->id.serial != number) return;
  run_->waiting.erase(worker);
  HitFailpoint(Failpoint::kHoldBeforeAllHeld);
  MaybeCut();
}

// ---- 3 and 4 ----

void CheckpointMaker::MaybeCut() {
  if (!run_ || run_->stage != Stage::kHolding || !run_->waiting.empty() || host_.HasOpenWrites())
    return;
  run_->stage = Stage::kMarking;
  run_->cut = host_.CutNow(run_->id);
  // Calls that come after the cut get the next checkpoint.
  run_->saves = std::exchange(wanted_, {});
  WaitForAllPs();
  host_.SendSnapshots(run_->id);
}

void CheckpointMaker::WaitForAllPs() {
  for (int ps = 0; ps < run_->cut.num_ps; ++ps) run_->waiting.insert(ps);
}

std::optional<SnapshotRequest> CheckpointMaker::RequestFor(int ps, CheckpointId id) const {
  if (!run_ || run_->id != id || run_->waiting.count(ps) == 0) return std::nullopt;
  SnapshotRequest request;
  request.checkpoint = id;
  request.file = ps;
  request.num_files = run_->cut.num_ps + 1;
  request.wait = run_->stage == Stage::kWriting;
  return request;
}

bool CheckpointMaker::Awaits(int ps, CheckpointId id, bool waited) const {
  return run_ && run_->id == id && (run_->stage == Stage::kWriting) == waited &&
         run_->waiting.count(ps) > 0;
}

void CheckpointMaker::OnSnapshot(int ps, const absl::StatusOr<SnapshotReply>& reply) {
  if (!reply.ok()) return GiveUp(reply.status());
  run_->written[ps] = {reply->written_bytes, reply->total_bytes};
  if (run_->stage == Stage::kMarking) return OnMarked(ps);
  reply->done ? OnWritten(ps, *reply) : host_.PollAgain(ps, run_->id);
}

// ---- 5 ----

void CheckpointMaker::OnMarked(int ps) {
  run_->waiting.erase(ps);
  if (!run_->waiting.empty()) return;
  HitFailpoint(Failpoint::kMarkedBeforeRelease);
  run_->stage = Stage::kWriting;
  run_->writing_since = clock_.Elapsed();
  run_->parts.resize(run_->cut.num_ps);
  WaitForAllPs();
  const CheckpointId id = run_->id;
  // From here on no ps writes to a file of an older checkpoint.
  Collect(id);
  NoteHold();
  workers_.SendToAll(Release{id.serial});
  // This call may complete a drain. The job then fails, and run_ is reset.
  host_.OnWorkContinues();
  host_.SendSnapshots(id);
}

std::optional<CoordinatorSnapshot::Work> CheckpointMaker::work() const {
  if (!after_release()) return std::nullopt;
  CoordinatorSnapshot::Work work;
  work.kind = CoordinatorSnapshot::Work::Kind::kCheckpoint;
  work.since = clock_.Elapsed() - run_->writing_since;
  for (const auto& [ps, bytes] : run_->written) {
    work.done += bytes.first;
    work.total += bytes.second;
  }
  return work;
}

void CheckpointMaker::NoteHold() {
  const absl::Duration hold = clock_.Elapsed() - run_->held_since;
  longest_hold_ = std::max(longest_hold_, hold);
  stats_.held += hold;
  if (options_.metrics != nullptr)
    options_.metrics->checkpoint_stall_seconds.Observe(absl::ToDoubleSeconds(hold));
}

// Removes old checkpoints, and the files of abandoned attempts below `below`.
void CheckpointMaker::Collect(CheckpointId below) {
  if (std::exchange(collecting_, true)) return;
  host_.Collect(newest_.value_or(CheckpointId()), below);
}

void CheckpointMaker::OnCollected(const std::vector<CheckpointId>& removed) {
  collecting_ = false;
  if (!removed.empty()) ForgetRows(removed);
}

void CheckpointMaker::ForgetRows(std::vector<CheckpointId> ids) {
  StoreChange change;
  change.deleted_checkpoints = std::move(ids);
  // A surplus row does no harm, because the directory decides.
  store_.Put(change, [](const absl::Status&) {});
}

// ---- 6 ----

void CheckpointMaker::OnWritten(int ps, const SnapshotReply& reply) {
  run_->bytes += static_cast<uint64_t>(reply.written_bytes);
  run_->parts[ps] = reply.slices;
  run_->waiting.erase(ps);
  if (!run_->waiting.empty()) return;
  run_->stage = Stage::kCommitting;
  committing_ = true;
  host_.Commit(run_->cut.state, std::move(run_->parts));
}

void CheckpointMaker::OnCommitted(CheckpointId id, const absl::Status& committed) {
  committing_ = false;
  // A rewind has dropped the attempt, or the job has failed. The checkpoint is whole anyway.
  if (!IsAt(id, Stage::kCommitting)) return;
  if (absl::IsAborted(committed))
    return host_.FailJob(absl::UnavailableError(absl::StrCat(
        committed.message(), ". Start the coordinator again: it checks the directory")));
  if (!committed.ok()) return GiveUp(MakeError(Reason::kDisk, committed.message()));
  HitFailpoint(Failpoint::kIndexRenamedBeforeStored);
  const Run run = *std::exchange(run_, std::nullopt);
  newest_ = id;
  durable_steps_ = run.cut.state.finished_steps;
  ++stats_.made;
  stats_.failing = false;
  stats_.last_success = clock_.WallTime();
  stats_.last_took = clock_.Elapsed() - run.began;
  stats_.last_bytes = static_cast<int64_t>(run.bytes);
  if (options_.metrics != nullptr)
    options_.metrics->checkpoint_duration_seconds.Observe(absl::ToDoubleSeconds(stats_.last_took));
  host_.MoveBase(run.cut.state);
  for (const SaveCallback& done : run.saves) outbox_.Add([done, id] { done(id); });
  if (run.cut.ends_job) final_wanted_ = false;
  last_saved_ |= run.cut.ends_process;
  StartSchedule();
  StoreChange change;
  change.put_checkpoints = {{id, CheckpointRow::State::kCommitted, durable_steps_, run.bytes}};
  host_.Persist(std::move(change));
  given_up_ = 0;
  Collect(id);
  host_.OnSaved(run.cut);
}

// ---- giving up ----

void CheckpointMaker::Drop() {
  if (!run_) return;
  if (holding()) NoteHold();
  const CheckpointId id = run_->id;
  wanted_.insert(wanted_.begin(), run_->saves.begin(), run_->saves.end());
  run_.reset();
  given_up_at_ = clock_.Elapsed();
  ForgetRows({id});
}

void CheckpointMaker::WorkersChanged() {
  if (holding()) GiveUp(absl::OkStatus());
}

// `why` is OK: no disk failed, and another attempt follows after Pause(). Otherwise a disk failed:
// waiting calls get the error, and the next attempt comes by the schedule.
void CheckpointMaker::GiveUp(const absl::Status& why) {
  const bool was_holding = holding();
  const CheckpointId id = run_->id;
  if (!why.ok()) {
    ++stats_.failed;
    stats_.failing = true;
  }
  Drop();
  if (was_holding) workers_.SendToAll(Release{id.serial});
  if (why.ok() && ++given_up_ == 3) {
    outbox_.Add([] {
      DIVVY_LOG(WARNING) << "checkpoints are given up again and again: a worker does not pause its "
                            "commits, or a parameter server does not mark its state, within 5 s";
    });
  }
  if (!why.ok()) {
    given_up_ = 0;
    StartSchedule();
    outbox_.Add(
        [text = absl::StrCat(id.name(), " could not be made, older checkpoints are unchanged: ",
                             why.message())] { DIVVY_LOG(WARNING) << text; });
    for (SaveCallback& done : std::exchange(wanted_, {}))
      outbox_.Add([done = std::move(done), why] { done(why); });
    last_saved_ |= host_.IsDraining();
    host_.OnDiskFailure(why);
    // Nothing is lost yet: the servers hold the values, and space may be freed on the disk
    // meanwhile.
    if (final_wanted_ && clock_.Elapsed() - final_since_ > options_.checkpoint_stall_timeout)
      return host_.FailJob(why);
  }
  host_.OnWorkContinues();
}

void CheckpointMaker::CheckTime(absl::Duration now) {
  if (holding() && now - run_->held_since > kLongestHold) GiveUp(absl::OkStatus());
  MaybeBegin();
}

void CheckpointMaker::FailAll(const absl::Status& error, std::vector<Task>& calls) {
  for (SaveCallback& done : wanted_)
    calls.push_back([done = std::move(done), error] { done(error); });
  if (run_) {
    for (SaveCallback& done : run_->saves)
      calls.push_back([done = std::move(done), error] { done(error); });
  }
  wanted_.clear();
  run_.reset();
}

}  // namespace divvy
