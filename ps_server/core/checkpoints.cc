// The checkpoint methods of ParameterServerCore. A server writes its part of a checkpoint while
// commits continue, and reads one before it accepts any.
//
//   Snapshot   1. mark: freeze all shards as they are now; nothing is copied
//              2. a chain of background tasks, one for each slice: read the slice (the copies of
//                 pages that commits have changed since, else the live bytes), append it to the
//                 file, and pause if commits come
//              3. finish: sync the file, and answer all waiting requests with the list of slices
//   Load       1. clear everything, and allocate all shards
//              2. a chain of blocking tasks, one for each slice: read the slice
//              3. READY
//
// Each task ends early if its run is no longer the current one: another epoch has begun, or another
// checkpoint was asked for.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"

namespace divvy {
namespace {

// The longest wait before an answer, because the caller has a deadline.
constexpr absl::Duration kLongestWait = absl::Milliseconds(500);

Reason WhyNotLoaded(const absl::Status& status) {
  if (absl::IsNotFound(status)) return Reason::kCheckpointMissing;
  // The device failed. The coordinator sends the Load again, and reports what it waits for.
  if (absl::IsUnavailable(status)) return Reason::kNotReady;
  if (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status))
    return Reason::kCheckpointCorrupt;
  if (absl::IsResourceExhausted(status)) return Reason::kMemoryLimit;
  return Reason::kDisk;
}

}  // namespace

// ---- Snapshot -----------------------------------------------------------------------------------

void ParameterServerCore::Call(SnapshotRequest request, ResultCallback<SnapshotReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckFromCoordinator(request.fence, Ready());
  if (status.ok()) status = CheckSnapshot(request);
  if (!status.ok()) return Answer(done, std::move(status));
  if (snapshot_ == nullptr || snapshot_->request.checkpoint != request.checkpoint)
    BeginSnapshot(request);
  snapshot_->waiting.push_back(std::move(done));
  if (!request.wait || snapshot_->over) return AnswerSnapshot(*snapshot_);
  AnswerLater([run = std::weak_ptr<SnapshotRun>(snapshot_)](ParameterServerCore& core)
                  DIVVY_REQUIRES(core.mu_) {
                    if (const auto waiting = run.lock()) core.AnswerSnapshot(*waiting);
                  });
}

absl::Status ParameterServerCore::CheckSnapshot(const SnapshotRequest& request) const {
  if (options_.checkpoint_files == nullptr) {
    return Refusal(Reason::kDisk,
                   "it has no directory for checkpoints: give every task the same "
                   "--checkpoint_dir, one that all of them can reach");
  }
  if (request.checkpoint == CheckpointId() || request.file < 0 ||
      request.file >= request.num_files) {
    return Refusal(
        Reason::kInvalid,
        "a snapshot must name its checkpoint, its data file and the number of data files");
  }
  if (snapshot_ != nullptr && request.checkpoint < snapshot_->request.checkpoint) {
    return Refusal(Reason::kInvalid,
                   absl::StrCat(request.checkpoint.name(), " has been given up: the newer ",
                                snapshot_->request.checkpoint.name(), " has begun"));
  }
  const bool begins = snapshot_ == nullptr || snapshot_->request.checkpoint != request.checkpoint;
  if (begins && !commits_.is_idle())
    return Refusal(Reason::kNotReady,
                   "commits are being applied, and a checkpoint begins only when none is: send the "
                   "request again");
  return absl::OkStatus();
}

void ParameterServerCore::BeginSnapshot(const SnapshotRequest& request) {
  HitFailpoint(Failpoint::kSnapshotBeforeMark);
  DropSnapshot();
  snapshot_ = std::make_shared<SnapshotRun>(request, *shards_.table(), options_.slice_bytes);
  HitFailpoint(Failpoint::kSnapshotMarked);
  snapshot_->applied_seq = applied_.applied_seq();
  WriteSliceAfter(absl::ZeroDuration(), snapshot_);
}

// Nobody needs the part any more.
void ParameterServerCore::DropSnapshot() {
  if (snapshot_ == nullptr) return;
  for (auto& waiting : std::exchange(snapshot_->waiting, {}))
    Answer(waiting, Refusal(Reason::kNotReady,
                            absl::StrCat(snapshot_->request.checkpoint.name(),
                                         " was given up: another checkpoint or epoch has begun")));
  snapshot_->dropped = true;
  outbox_.Add([dropped = std::exchange(snapshot_, nullptr)] {});  // freed outside the lock
}

void ParameterServerCore::WriteSliceAfter(absl::Duration pause,
                                          const std::shared_ptr<SnapshotRun>& run) {
  run->is_pausing = true;
  if (pause <= absl::ZeroDuration()) return EndPause(run);
  outbox_.Add([this, pause, run] {
    executor_.PostAfter(pause, [weak = weak_from_this(), weak_run = std::weak_ptr(run)] {
      const auto self = weak.lock();
      const auto still = weak_run.lock();
      if (self != nullptr && still != nullptr) self->OnPauseOver(still);
    });
  });
}

void ParameterServerCore::OnPauseOver(const std::shared_ptr<SnapshotRun>& run) {
  CoreLock lock(mu_, outbox_);
  EndPause(run);
}

// The timer may come after the pause was cut short, even in the next pause. Only the first of them
// goes on writing.
void ParameterServerCore::EndPause(const std::shared_ptr<SnapshotRun>& run) {
  if (std::exchange(run->is_pausing, false)) outbox_.Add([this, run] { WriteSlice(run); });
}

// Only the writing runs with background priority. A thread that may not get the processor holds no
// lock of the core, and a block's lock only while it copies the block.
void ParameterServerCore::WriteSlice(const std::shared_ptr<SnapshotRun>& run) {
  executor_.PostBackground("snapshot", [this, weak = weak_from_this(), run] {
    const auto self = weak.lock();
    if (self == nullptr || run->dropped) return;
    const absl::Duration began = options_.clock->Elapsed();
    const absl::Status status = run->WriteNext(*options_.checkpoint_files);
    const absl::Duration took = options_.clock->Elapsed() - began;
    executor_.Post([weak, run, status, took] {
      if (const auto alive = weak.lock()) alive->OnSliceWritten(run, status, took);
    });
  });
}

// How long the writer pauses after a slice that took so long: not at all if nobody commits, or if
// commits wait for the memory that writing frees.
absl::Duration ParameterServerCore::PauseAfter(SnapshotRun& run, absl::Duration took) const {
  const uint64_t before = std::exchange(run.applied_seq, applied_.applied_seq());
  const bool commits_come = before != run.applied_seq || !commits_.is_idle();
  if (!commits_come || commits_.has_ready()) return absl::ZeroDuration();
  const absl::Duration pause =
      std::min(took * (1 / options_.snapshot_share - 1), options_.snapshot_pacing - run.paused);
  run.paused += pause;
  return pause;
}

void ParameterServerCore::OnSliceWritten(const std::shared_ptr<SnapshotRun>& run,
                                         const absl::Status& status, absl::Duration took) {
  CoreLock lock(mu_, outbox_);
  if (snapshot_ != run) return;
  run->told_bytes = run->written_bytes;
  if (!status.ok()) run->error = Refusal(Reason::kDisk, status.message());
  if (status.ok() && !run->finished()) {
    WriteSliceAfter(PauseAfter(*run, took), run);
  } else {
    run->over = true;
    AnswerSnapshot(*run);
    outbox_.Add([frozen = std::exchange(run->frozen, nullptr)] {});  // freed outside the lock
  }
  StartNext();  // commits may have waited for memory of copies
  outbox_.Add([this] { RunStarted(); });
}

absl::Status ParameterServerCore::SnapshotRun::WriteNext(CheckpointFiles& files) {
  if (part == nullptr) {
    ASSIGN_OR_RETURN(part, files.Create(request.checkpoint, request.file, request.num_files));
  }
  if (next < frozen->slices().size()) {
    const ShardSlice& slice = frozen->slices()[next++];
    RETURN_IF_ERROR(Write(slice));
    written_bytes += slice.bytes();
    HitFailpoint(Failpoint::kSnapshotMidData);
  }
  if (next < frozen->slices().size()) return absl::OkStatus();
  HitFailpoint(Failpoint::kSnapshotBeforeSync);
  ASSIGN_OR_RETURN(slices, part->Finish());
  HitFailpoint(Failpoint::kSnapshotSynced);
  part = nullptr;
  return absl::OkStatus();
}

absl::Status ParameterServerCore::SnapshotRun::Write(const ShardSlice& slice) {
  const ShardSpec& spec = slice.shard->spec();
  const int64_t first_row = spec.first_row + slice.first_row;
  if (slice.shard->table() != nullptr) {
    ASSIGN_OR_RETURN(const TableImage image, frozen->ReadTable(slice));
    return AppendImage(*slice.shard, first_row, image, *part);
  }
  const auto pieces = [&](const TakePiece& take) { return frozen->Read(slice, take); };
  return part->Append(spec, first_row, slice.rows, pieces);
}

void ParameterServerCore::AnswerSnapshot(SnapshotRun& run) {
  for (auto& waiting : run.waiting) {
    if (!run.error.ok())
      Answer(waiting, run.error);
    else
      Answer(waiting,
             SnapshotReply{run.over, run.told_bytes,
                           run.over ? run.slices : std::vector<SavedSlice>(), run.total_bytes});
  }
  run.waiting.clear();
}

// ---- Load of a checkpoint -----------------------------------------------------------------------

void ParameterServerCore::LoadCheckpoint(LoadRequest request, ResultCallback<LoadReply> done) {
  if (state_ != PsState::kLoading) {
    const absl::Status begun = BeginLoading(request);
    if (!begun.ok()) return Answer(done, begun);
  }
  if (loading_->request.checkpoint != request.checkpoint) {
    return Answer(done, Refusal(Reason::kInvalid,
                                absl::StrCat("it is already loading another checkpoint in this "
                                             "epoch, ",
                                             loading_->request.checkpoint.name())));
  }
  loading_->waiting.push_back(std::move(done));
  AnswerLater([run = std::weak_ptr<LoadRun>(loading_)](ParameterServerCore& core)
                  DIVVY_REQUIRES(core.mu_) {
                    if (const auto waiting = run.lock())
                      core.AnswerLoading(*waiting, absl::OkStatus());
                  });
}

absl::Status ParameterServerCore::BeginLoading(LoadRequest request) {
  if (options_.checkpoint_files == nullptr) {
    return Refusal(Reason::kCheckpointMissing,
                   "it has no directory for checkpoints: give every task the same "
                   "--checkpoint_dir, one that all of them can reach");
  }
  Clear();
  state_ = PsState::kEmpty;
  CreateShardsRequest create{request.fence, request.layout_version, request.layout_hash,
                             request.job_seed, std::move(request.shards)};
  auto run = std::make_shared<LoadRun>(std::move(request), std::move(create));
  if (const absl::Status begun = shards_.Begin(run->batch); !begun.ok()) return Refusal(begun);
  run->slices = SlicesOf(run->batch.fresh, options_.slice_bytes);
  run->bytes_to_read = TotalBytes(run->slices);
  const auto is_table = [](const ShardSlice& slice) { return slice.shard->table() != nullptr; };
  if (std::none_of(run->slices.begin(), run->slices.end(), is_table))
    run->total_bytes = run->bytes_to_read;
  state_ = PsState::kLoading;
  loading_ = run;
  ReadSlice(run);
  return absl::OkStatus();
}

void ParameterServerCore::ReadSlice(const std::shared_ptr<LoadRun>& run) {
  outbox_.Add([this, run] {
    executor_.PostBlocking("load", [this, weak = weak_from_this(), run] {
      const auto self = weak.lock();
      if (self != nullptr && IsCurrent(run))
        OnSliceRead(run, run->ReadNext(*options_.checkpoint_files));
    });
  });
}

bool ParameterServerCore::IsCurrent(const std::shared_ptr<LoadRun>& run) {
  MutexLock lock(mu_);
  return loading_ == run;
}

absl::Status ParameterServerCore::LoadRun::ReadNext(CheckpointFiles& files) {
  if (values == nullptr) {
    ASSIGN_OR_RETURN(values, files.Open(request.checkpoint));
    HitFailpoint(Failpoint::kLoadIndexRead);
    for (const auto& [key, shard] : batch.fresh) {
      if (shard->table() == nullptr) continue;
      ASSIGN_OR_RETURN(const int64_t bytes, TableReader(*values, *shard).BytesToRead());
      bytes_to_read += bytes;
    }
  }
  if (next == slices.size()) return absl::OkStatus();
  const ShardSlice& slice = slices[next++];
  HitFailpoint(Failpoint::kLoadMidData);
  Shard& shard = *batch.fresh.at(slice.shard->spec().key);
  if (shard.table() != nullptr) {
    if (slice.first_block == 0) table = std::make_unique<TableReader>(*values, shard);
    ASSIGN_OR_RETURN(const int64_t bytes, table->ReadNext());
    read_bytes += bytes;
    return absl::OkStatus();
  }
  read_bytes += slice.bytes();
  return values->Read(
      shard.spec(), shard.spec().first_row + slice.first_row,
      absl::MakeSpan(shard.new_row(slice.first_row), static_cast<size_t>(slice.bytes())));
}

void ParameterServerCore::OnSliceRead(const std::shared_ptr<LoadRun>& run,
                                      const absl::Status& status) {
  CoreLock lock(mu_, outbox_);
  if (loading_ != run) return;
  run->told_bytes = run->read_bytes;
  run->total_bytes = run->bytes_to_read;
  if (status.ok() && run->next < run->slices.size()) return ReadSlice(run);
  absl::Status read = status;
  read.Update(shards_.End(run->batch));
  loading_ = nullptr;
  if (read.ok()) {
    HitFailpoint(Failpoint::kLoadBeforeReady);
    shards_.Install(run->batch);
    BecomeReady(run->request);
    return AnswerLoading(*run, absl::OkStatus());
  }
  state_ = PsState::kEmpty;
  AnswerLoading(*run,
                Refusal(WhyNotLoaded(read), absl::StrCat("loading ", run->request.checkpoint.name(),
                                                         ": ", read.message())));
}

// Another epoch has begun.
void ParameterServerCore::DropLoading() {
  if (loading_ == nullptr) return;
  shards_.End(loading_->batch).IgnoreError();  // the batch is dropped in any case
  state_ = PsState::kEmpty;
  AnswerLoading(*loading_, Refusal(Reason::kNotReady, "another epoch has begun"));
  outbox_.Add([dropped = std::exchange(loading_, nullptr)] {});  // freed outside the lock
}

void ParameterServerCore::AnswerLoading(LoadRun& run, const absl::Status& status) {
  for (auto& waiting : run.waiting) {
    if (!status.ok())
      Answer(waiting, status);
    else
      Answer(waiting, LoadReply{state_ != PsState::kReady, run.told_bytes, shards_.layout_hash(),
                                run.total_bytes});
  }
  run.waiting.clear();
}

void ParameterServerCore::AnswerLater(std::function<void(ParameterServerCore&)> answer) {
  outbox_.Add([this, weak = weak_from_this(), answer = std::move(answer)] {
    executor_.PostAfter(kLongestWait, [weak, answer] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      CoreLock lock(self->mu_, self->outbox_);
      answer(*self);
    });
  });
}

}  // namespace divvy
