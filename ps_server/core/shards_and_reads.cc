// Shards and reads: create, delete, pull.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"

namespace divvy {

// ---- CreateShards ------------------------------------------------------------------------------------------------------------------------------------

void ParameterServerCore::CreateShards(CreateShardsRequest request, ResultCallback<LayoutReply> done) {
  CoreLock lock(mu_, outbox_);
  EnterCreate({std::move(request), std::move(done)});
}

void ParameterServerCore::EnterCreate(HeldCreate call) {
  absl::Status status = CheckFromCoordinator(call.request.fence, Ready());
  if (!status.ok()) return Answer(call.done, std::move(status));
  for (const ShardSpec& spec : call.request.shards) {
    if (creating_.count(spec.key) > 0) return held_creates_.push_back(std::move(call));
  }
  auto run = std::make_shared<CreateRun>(std::move(call), options_.block_bytes);
  // A variable before its slots.
  const auto by_key = [](const ShardSpec& a, const ShardSpec& b) { return a.key < b.key; };
  std::sort(run->call.request.shards.begin(), run->call.request.shards.end(), by_key);
  status = PlanCreate(*run);
  if (!status.ok()) return Answer(run->call.done, std::move(status));
  StartCreate(run);
}

// Checks all, then takes memory for all: nothing is made if one cannot be.
absl::Status ParameterServerCore::PlanCreate(CreateRun& run) const {
  for (const ShardSpec& spec : run.call.request.shards) RETURN_IF_ERROR(AddToPlan(spec, run));
  for (auto& [key, shard] : run.fresh) {
    const Shard* variable = nullptr;
    const ShardKey whole{key.variable, 0, key.part};
    if (key.slot != 0) variable = (run.fresh.count(whole) > 0 ? run.fresh : *shards_).at(whole).get();
    absl::StatusOr<std::shared_ptr<Shard>> made = Shard::Create(*run.specs.at(key), run.call.request.job_seed, options_.block_bytes, variable);
    if (!made.ok()) return Refusal(Reason::kMemoryLimit, made.status().message());
    shard = *std::move(made);
  }
  return absl::OkStatus();
}

absl::Status ParameterServerCore::AddToPlan(const ShardSpec& spec, CreateRun& run) const {
  const auto named = [&](absl::string_view why) { return absl::StrCat("CreateShards, ", ShardText(spec), ": ", why); };
  if (const auto known = shards_->find(spec.key); known != shards_->end()) {
    if (known->second->MadeFrom(spec, run.call.request.job_seed)) return absl::OkStatus();
    return Refusal(Reason::kInvalid, named("it exists already, made from another spec"));
  }
  if (run.specs.count(spec.key) > 0) return Refusal(Reason::kInvalid, named("it is named twice"));
  if (spec.key.slot == 0 && deleted_.count(spec.key.variable) > 0) return Refusal(Reason::kInvalid, named("it was deleted, and ids are never used again"));
  const ShardKey whole{spec.key.variable, 0, spec.key.part};
  const ShardSpec* variable = nullptr;
  if (const auto found = run.specs.find(whole); found != run.specs.end())
    variable = found->second;
  else if (const auto known = shards_->find(whole); known != shards_->end())
    variable = &known->second->spec();
  if (const absl::Status status = Shard::Check(spec, variable); !status.ok()) return Refusal(Reason::kInvalid, status.message());
  const int64_t bytes = spec.shape.num_elements() * DTypeSize(spec.dtype);
  const int64_t free_bytes = options_.memory_limit_bytes - memory_bytes_ - creating_bytes_ - run.bytes;
  if (bytes > free_bytes) {
    return Refusal(Reason::kMemoryLimit, absl::StrCat(ShardText(spec), " takes ", bytes, " bytes, and ", free_bytes, " of --memory_limit_bytes=",
                                                      options_.memory_limit_bytes, " are left. Raise it, or add parameter servers"));
  }
  run.bytes += bytes;
  run.specs[spec.key] = &spec;
  run.fresh[spec.key] = nullptr;
  return absl::OkStatus();
}

void ParameterServerCore::StartCreate(const std::shared_ptr<CreateRun>& run) {
  for (const auto& [key, shard] : run->fresh) {
    creating_[key] = run.get();
    const Blocks& blocks = shard->blocks();
    for (int64_t block = 0; block < blocks.count(); ++block) {
      run->pieces.emplace_back(shard.get(), block);
      run->units.AddPiece((blocks.end_row(block) - blocks.first_row(block)) * shard->row_bytes());
    }
  }
  creating_bytes_ += run->bytes;
  if (run->fresh.empty()) return FinishCreate(*run);
  outbox_.Add([this, run] {
    RunUnits(
        executor_, weak_from_this(), run->units.count(), [run](int64_t unit) { run->Initialize(unit); },
        [this, run] {
          CoreLock lock(mu_, outbox_);
          FinishCreate(*run);
        });
  });
}

void ParameterServerCore::CreateRun::Initialize(int64_t unit) {
  const auto [begin, end] = units.pieces(unit);
  for (size_t i = begin; i < end; ++i) {
    const absl::Status status = pieces[i].first->Initialize(pieces[i].second);
    if (status.ok()) continue;
    MutexLock lock(mu);
    error.Update(status);
  }
}

void ParameterServerCore::FinishCreate(CreateRun& run) {
  const absl::Status status = CheckCreated(run);
  for (const auto& [key, shard] : run.fresh) {
    if (const auto found = creating_.find(key); found != creating_.end() && found->second == &run) creating_.erase(found);
  }
  creating_bytes_ -= run.bytes;
  if (status.ok()) {
    Install(run);
    Answer(run.call.done, LayoutReply{layout_version_});
  } else {
    Answer(run.call.done, status);
  }
  std::vector<HeldCreate> held;
  held.swap(held_creates_);
  for (HeldCreate& call : held) EnterCreate(std::move(call));
}

// Its epoch still holds, nobody deleted a shard of it meanwhile, and all values could be computed.
absl::Status ParameterServerCore::CheckCreated(CreateRun& run) const {
  RETURN_IF_ERROR(CheckCall(run.call.request.fence, Ready()));
  for (const auto& [key, shard] : run.fresh) {
    const auto found = creating_.find(key);
    if (found == creating_.end() || found->second != &run)
      return Refusal(Reason::kInvalid, absl::StrCat(ShardText(shard->spec()), " was deleted while it was made"));
  }
  MutexLock lock(run.mu);
  return run.error.ok() ? absl::OkStatus() : Refusal(Reason::kInvalid, run.error.message());
}

void ParameterServerCore::Install(const CreateRun& run) {
  auto table = std::make_shared<ShardTable>(*shards_);
  table->insert(run.fresh.begin(), run.fresh.end());
  shards_ = std::move(table);
  memory_bytes_ += run.bytes;
  SetLayout(run.call.request.layout_version, run.call.request.layout_hash);
}

// A request that changes the layout and comes late does not turn it back. Only a Load does (BecomeReady).
void ParameterServerCore::SetLayout(uint64_t version, uint64_t hash) {
  if (version < layout_version_) return;
  layout_version_ = version;
  layout_hash_ = hash;
}

// ---- DeleteShards ------------------------------------------------------------------------------------------------------------------------------------

void ParameterServerCore::DeleteShards(DeleteShardsRequest request, ResultCallback<LayoutReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status status = CheckFromCoordinator(request.fence, Ready());
  if (!status.ok()) return Answer(done, std::move(status));
  auto table = std::make_shared<ShardTable>(*shards_);
  for (ShardKey key : request.shards) {
    if (key.slot == 0) deleted_.insert(key.variable);
    creating_.erase(key);
    const auto found = table->find(key);
    if (found == table->end()) continue;
    memory_bytes_ -= found->second->size_bytes();
    table->erase(found);
  }
  outbox_.Add([dead = std::move(shards_)] {});  // freed outside the lock
  shards_ = std::move(table);
  SetLayout(request.layout_version, request.layout_hash);
  Answer(done, LayoutReply{layout_version_});
}

// ---- Pull --------------------------------------------------------------------------------------------------------------------------------------------

void ParameterServerCore::Pull(PullRequest request, ResultCallback<PullReply> done) {
  std::shared_ptr<const ShardTable> shards;
  {
    CoreLock lock(mu_, outbox_);
    absl::Status status = CheckCall(request.fence, Ready());
    if (!status.ok()) return Answer(done, std::move(status));
    shards = shards_;
  }
  absl::StatusOr<ReadPlan> plan = ReadPlan::Make(std::move(request.parts), *shards, options_.max_pull_bytes, options_.block_bytes);
  CoreLock lock(mu_, outbox_);
  if (!plan.ok()) {
    const Reason reason = ReasonOf(plan.status());
    return Answer(done, reason == Reason::kNone ? plan.status() : Refusal(reason, plan.status().message()));
  }
  HitFailpoint(Failpoint::kPullBegun);
  auto run = std::make_shared<ReadRun>(ReadRun{request.fence, std::move(done), *std::move(plan), {}});
  for (const ReadPlan::Part& part : run->plan.parts()) run->at_start.push_back({part.shard->version, BeingWritten(part.asked.shard)});
  outbox_.Add([this, run] {
    RunUnits(
        executor_, weak_from_this(), run->plan.units(),
        [run](int64_t unit) {
          run->plan.Read(unit);
          HitFailpoint(Failpoint::kPullMidRead);
        },
        [this, run] { FinishRead(*run); });
  });
}

int64_t ParameterServerCore::PullReplyBytes(const PullRequest& request) const {
  std::shared_ptr<const ShardTable> shards;
  {
    MutexLock lock(mu_);
    if (!CheckCall(request.fence, Ready()).ok()) return 0;
    shards = shards_;
  }
  return ReadPlan::Bytes(request.parts, *shards, options_.max_pull_bytes).value_or(0);
}

absl::Status ParameterServerCore::CheckPull(const Fence& fence) const {
  MutexLock lock(mu_);
  return CheckCall(fence, Ready());
}

bool ParameterServerCore::BeingWritten(ShardKey key) const {
  const std::shared_ptr<CommitRun>* const first = writers_.First(ShardKey{key.variable, 0, key.part});
  return first != nullptr && running_.count(*first) > 0;
}

void ParameterServerCore::FinishRead(ReadRun& run) {
  CoreLock lock(mu_, outbox_);
  const absl::Status status = CheckCall(run.fence, Ready());
  if (!status.ok()) return Answer(run.done, status);
  PullReply reply;
  for (size_t i = 0; i < run.at_start.size(); ++i) {
    ReadPlan::Part& part = run.plan.parts()[i];
    const ReadRun::Seen& seen = run.at_start[i];
    const bool torn = seen.being_written || seen.version != part.shard->version || BeingWritten(part.asked.shard);
    reply.parts.push_back({std::move(part.values), seen.version, torn});
  }
  Answer(run.done, std::move(reply));
}

}  // namespace divvy
