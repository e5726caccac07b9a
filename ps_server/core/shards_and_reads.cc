// Shards and reads: create, delete, pull.
#include <utility>

#include "base/failpoint.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"

namespace divvy {

// ---- CreateShards -------------------------------------------------------------------------------

void ParameterServerCore::Call(CreateShardsRequest request, ResultCallback<LayoutReply> done) {
  CoreLock lock(mu_, outbox_);
  EnterCreate({std::move(request), std::move(done)});
}

void ParameterServerCore::EnterCreate(HeldCreate call) {
  absl::Status status = CheckFromCoordinator(call.request.fence, Ready());
  if (!status.ok()) return Answer(call.done, std::move(status));
  if (shards_.IsMaking(call.request.shards)) return held_creates_.push_back(std::move(call));
  auto run = std::make_shared<CreateRun>(std::move(call), options_.block_bytes);
  status = shards_.Begin(run->batch);
  if (!status.ok()) return Answer(run->done, Refusal(status));
  StartCreate(run);
}

void ParameterServerCore::StartCreate(const std::shared_ptr<CreateRun>& run) {
  for (const auto& [shard, options] : run->batch.changed) shard->table()->ChangeOptions(options);
  run->CutIntoUnits();
  if (run->pieces.empty()) return FinishCreate(*run);
  outbox_.Add([this, run] {
    RunUnits(
        executor_, weak_from_this(), run->units, options_.at_once_bytes,
        [run](int64_t unit) { run->Initialize(unit); },
        [this, run] {
          CoreLock lock(mu_, outbox_);
          FinishCreate(*run);
        });
  });
}

void ParameterServerCore::CreateRun::CutIntoUnits() {
  for (const auto& [key, shard] : batch.fresh) {
    const Blocks& blocks = shard->blocks();
    for (int64_t block = 0; block < blocks.count(); ++block) {
      pieces.push_back({shard.get(), block});
      units.AddPiece((blocks.end_row(block) - blocks.first_row(block)) * shard->row_bytes());
    }
  }
  for (const auto& [shard, options] : batch.changed) {
    for (int64_t segment = 0; segment < shard->table()->segments(); ++segment) {
      pieces.push_back({shard.get(), segment, /*changes=*/true});
      units.AddPiece(shard->row_bytes());
    }
  }
}

void ParameterServerCore::CreateRun::Initialize(int64_t unit) {
  const auto [begin, end] = units.pieces(unit);
  for (size_t i = begin; i < end; ++i) {
    const Piece& piece = pieces[i];
    if (piece.changes) {
      piece.shard->table()->ChangeSegment(piece.block);
      continue;
    }
    const absl::Status status = piece.shard->Initialize(piece.block);
    if (status.ok()) continue;
    MutexLock lock(mu);
    error.Update(status);
  }
}

void ParameterServerCore::FinishCreate(CreateRun& run) {
  const absl::Status status = EndCreate(run);
  if (status.ok()) {
    shards_.Install(run.batch);
    Answer(run.done, LayoutReply{shards_.layout_version()});
  } else {
    Answer(run.done, status);
  }
  for (HeldCreate& call : std::exchange(held_creates_, {})) EnterCreate(std::move(call));
}

// OK if the epoch is still current, none of the shards has been deleted meanwhile, and all values
// have been computed.
absl::Status ParameterServerCore::EndCreate(CreateRun& run) {
  const absl::Status ended = shards_.End(run.batch);
  RETURN_IF_ERROR(CheckCall(run.batch.request.fence, Ready()));
  if (!ended.ok()) return Refusal(ended);
  MutexLock lock(run.mu);
  return run.error.ok() ? absl::OkStatus() : Refusal(Reason::kInvalid, run.error.message());
}

// ---- DeleteShards -------------------------------------------------------------------------------

void ParameterServerCore::Call(DeleteShardsRequest request, ResultCallback<LayoutReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckFromCoordinator(request.fence, Ready());
  if (!status.ok()) return Answer(done, std::move(status));
  outbox_.Add([dead = shards_.Delete(request)] {});  // freed outside the lock
  Answer(done, LayoutReply{shards_.layout_version()});
}

// ---- Pull ---------------------------------------------------------------------------------------

void ParameterServerCore::Call(PullRequest request, ResultCallback<PullReply> done) {
  std::shared_ptr<const ShardTable> shards;
  {
    CoreLock lock(mu_, outbox_);
    absl::Status status = CheckCall(request.fence, Ready());
    if (!status.ok()) return Answer(done, std::move(status));
    shards = shards_.table();
  }
  absl::StatusOr<ReadPlan> plan =
      ReadPlan::Make(std::move(request.parts), *shards, options_.max_pull_bytes,
                     options_.block_bytes, request.target.get(), options_.least_lent_bytes);
  std::shared_ptr<ReadRun> run;
  {
    CoreLock lock(mu_, outbox_);
    if (!plan.ok())
      return Answer(
          done, ReasonOf(plan.status()) == Reason::kNone ? plan.status() : Refusal(plan.status()));
    HitFailpoint(Failpoint::kPullBegun);
    run = std::make_shared<ReadRun>(ReadRun{request.fence, std::move(done), *std::move(plan), {}});
    run->at_start.reserve(run->plan.parts().size());
    for (const ReadPlan::Part& part : run->plan.parts())
      run->at_start.push_back({part.shard->version, commits_.IsBeingWritten(part.asked.shard)});
  }
  // Not as an effect of the outbox, which runs on one thread at a time.
  RunUnits(
      executor_, weak_from_this(), run->plan.units(), options_.at_once_bytes,
      [run](int64_t unit) {
        run->plan.Read(unit);
        HitFailpoint(Failpoint::kPullMidRead);
      },
      [this, run] { FinishRead(*run); });
}

int64_t ParameterServerCore::PullReplyBytes(const PullRequest& request) const {
  std::shared_ptr<const ShardTable> shards;
  {
    MutexLock lock(mu_);
    if (!CheckCall(request.fence, Ready()).ok()) return 0;
    shards = shards_.table();
  }
  return ReadPlan::Bytes(request.parts, *shards, options_.max_pull_bytes).value_or(0);
}

absl::Status ParameterServerCore::CheckPull(const Fence& fence) const {
  MutexLock lock(mu_);
  return CheckCall(fence, Ready());
}

void ParameterServerCore::FinishRead(ReadRun& run) {
  CoreLock lock(mu_, outbox_);
  const absl::Status status = CheckCall(run.fence, Ready());
  if (!status.ok()) return Answer(run.done, status);
  PullReply reply;
  reply.parts.reserve(run.at_start.size());
  for (size_t i = 0; i < run.at_start.size(); ++i) {
    ReadPlan::Part& part = run.plan.parts()[i];
    const ReadRun::Seen& seen = run.at_start[i];
    const bool torn = seen.being_written || seen.version != part.shard->version ||
                      commits_.IsBeingWritten(part.asked.shard);
    reply.parts.push_back({std::move(part.values), seen.version, torn, std::move(part.lent)});
  }
  Answer(run.done, std::move(reply));
}

}  // namespace divvy
