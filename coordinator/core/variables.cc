// Layout changes: variables and slots that are created.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/shard_specs.h"
#include "partitioners/div.h"
#include "partitioners/placement.h"

namespace divvy {
namespace {

// Adds those slots of `optimizer` that `variable` has not got (another form of the optimizer may have made some), and their shards to `shards`.
void AddSlots(const Optimizer& optimizer, VariableLayout& variable, std::map<int, std::vector<ShardSpec>>& shards) {
  for (const SlotSpec& slot : SlotsOf(optimizer)) {
    if (variable.SlotNumber(OptimizerName(optimizer), slot.name)) continue;
    variable.slots.push_back(slot);
    variable.slot_optimizers.push_back(std::string(OptimizerName(optimizer)));
    for (int part = 0; part < variable.num_shards(); ++part) {
      const int number = static_cast<int>(variable.slots.size());
      shards[variable.ps[part]].push_back(ShardSpecOf(variable, number, part, Constant{slot.initial_value}));
    }
  }
}

// In one shard, beside that of another.
absl::Status PlaceWith(const Colocation& with, const Layout& layout, VariableLayout& variable) {
  const VariableLayout* const other = layout.Find(with.variable);
  if (other == nullptr) return layout.UnknownVariable(with.variable);
  if (with.shard < 0 || with.shard >= other->num_shards()) {
    return absl::InvalidArgumentError(absl::StrCat("variable \"", with.variable, "\" has ", other->num_shards(), " shards, and no shard ", with.shard));
  }
  variable.offsets = {0, variable.spec.shape.rows()};
  variable.ps = {other->ps[with.shard]};
  return absl::OkStatus();
}

// What a number takes in a message.
int64_t VarintBytes(uint64_t value) {
  int64_t bytes = 1;
  for (; value >= 128; value >>= 7) ++bytes;
  return bytes;
}

// About what a variable takes in the message that tells a worker the layout.
int64_t BytesToSend(const VariableLayout& variable) {
  int64_t bytes = 200 + static_cast<int64_t>(variable.spec.name.size());  // shape, optimizer and the like
  for (const int64_t offset : variable.offsets) bytes += VarintBytes(static_cast<uint64_t>(offset));
  for (const int ps : variable.ps) bytes += VarintBytes(static_cast<uint64_t>(ps));
  for (size_t i = 0; i < variable.slots.size(); ++i) bytes += 20 + static_cast<int64_t>(variable.slots[i].name.size() + variable.slot_optimizers[i].size());
  return bytes;
}

// A layout that no message can carry would cost every worker its stream.
absl::Status CheckSize(const Layout& layout, const std::string& variable, int64_t most) {
  int64_t bytes = 0, shards = 0;
  for (const auto& [id, each] : layout.variables()) bytes += BytesToSend(each), shards += each.num_shards();
  if (bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("variable \"", variable, "\": with it the job has ", layout.variables().size(), " variables of ", shards,
                                                   " shards, and the message that tells workers where these lie would be ", bytes, " bytes, more than ", most,
                                                   ": let the partitioner make fewer, larger shards, or join variables"));
}

}  // namespace

std::shared_ptr<const Layout> CoordinatorCore::layout() const {
  MutexLock lock(mu_);
  return layout_;
}

// ---- creating ----

void CoordinatorCore::CreateVariable(VariableSpec spec, std::optional<Colocation> with, StatusCallback done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  absl::Status valid = job_error_.ok() ? Validate(spec) : job_error_;
  if (!valid.ok()) return outbox_.Add([done, valid] { done(valid); });
  const VariableId id(row_.next_variable_id++);
  unnumbered_[id] = std::move(done);  // until its number is stored; FailJob answers it, too
  PutThen({row_}, [spec = std::move(spec), with = std::move(with), id](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    const auto waiting = core.unnumbered_.extract(id);
    if (waiting.empty()) return;  // answered: the job has failed meanwhile
    core.ChangeLayout({[&core, spec, with, id](const Layout& layout) DIVVY_REQUIRES(core.mu_) { return core.PrepareVariable(spec, with, id, layout); },
                       waiting.mapped(), spec, with});
  });
}

absl::StatusOr<std::optional<CoordinatorCore::LayoutJob::Change>> CoordinatorCore::PrepareVariable(const VariableSpec& spec,
                                                                                                   const std::optional<Colocation>& with, VariableId id,
                                                                                                   const Layout& layout) {
  if (auto claimed = ClaimRestored(spec, layout)) return *std::move(claimed);
  if (layout.Find(spec.name) != nullptr)
    return absl::AlreadyExistsError(absl::StrCat("variable \"", spec.name, "\" exists already: names are unique in a job"));
  LayoutJob::Change change;
  VariableLayout& variable = change.variable;
  variable.id = id;
  variable.spec = spec;
  variable.spec.initializer = Zeros();
  variable.spec.partitioner.reset();
  RETURN_IF_ERROR(with ? PlaceWith(*with, layout, variable) : CutAndPlace(spec, layout, change));
  for (int part = 0; part < variable.num_shards(); ++part) change.shards[variable.ps[part]].push_back(ShardSpecOf(variable, 0, part, spec.initializer));
  if (spec.optimizer) AddSlots(*spec.optimizer, variable, change.shards);
  return std::optional<LayoutJob::Change>(std::move(change));
}

absl::Status CoordinatorCore::CutAndPlace(const VariableSpec& spec, const Layout& layout, LayoutJob::Change& change) {
  Partitioner partitioner;
  if (spec.partitioner) {
    partitioner = *spec.partitioner;
  } else if (options_.partitioner) {
    partitioner = options_.partitioner(static_cast<int>(ps_.size()));
  }
  ASSIGN_OR_RETURN(const int64_t shards, NumShards(partitioner, spec.shape, spec.dtype));
  if (shards > kMaxShards) {
    return absl::InvalidArgumentError(
        absl::StrCat("the partitioner cuts variable \"", spec.name, "\" into ", shards, " shards, more than ", kMaxShards, ": let it make larger ones"));
  }
  ASSIGN_OR_RETURN(const DivSplit split, DivSplit::Create(spec.shape.rows(), shards));
  VariableLayout& variable = change.variable;
  variable.offsets = split.offsets();
  variable.ps = std::vector<int>(split.num_shards());
  variable.ps = PlaceShards(variable, layout);
  change.placed_in_turn = variable.num_shards();
  return absl::OkStatus();
}

absl::StatusOr<std::optional<CoordinatorCore::LayoutJob::Change>> CoordinatorCore::PrepareSlots(const std::string& variable, const Optimizer& optimizer,
                                                                                                const Layout& layout) const {
  const VariableLayout* found = layout.Find(variable);
  if (found == nullptr || found->SlotsFor(optimizer)) return std::optional<LayoutJob::Change>();
  LayoutJob::Change change;
  change.variable = *found;
  AddSlots(optimizer, change.variable, change.shards);
  return std::optional<LayoutJob::Change>(std::move(change));
}

std::vector<int> CoordinatorCore::PlaceShards(const VariableLayout& variable, const Layout& layout) {
  const int num_ps = static_cast<int>(ps_.size());
  if (options_.placement == Placement::kRoundRobin) return PlaceRoundRobin(next_placement_, variable.num_shards(), num_ps);
  std::vector<int64_t> bytes(num_ps, 0);
  for (const auto& [id, other] : layout.variables()) {
    for (int part = 0; part < other.num_shards(); ++part) {
      bytes[other.ps[part]] += other.ShardShape(part).num_elements() * DTypeSize(other.spec.dtype);
    }
  }
  std::vector<int64_t> shard_bytes;
  for (int part = 0; part < variable.num_shards(); ++part) {
    shard_bytes.push_back(variable.ShardShape(part).num_elements() * DTypeSize(variable.spec.dtype));
  }
  return PlaceBalanced(bytes, shard_bytes);
}

void CoordinatorCore::ChangeLayout(LayoutJob job) {
  if (!job_error_.ok()) {
    if (job.done) outbox_.Add([done = std::move(job.done), error = job_error_] { done(error); });
    return;
  }
  if (phase_ == Phase::kChoosing) return Declare(std::move(job));
  layout_jobs_.push_back(std::move(job));
  StartNextLayoutJob();
}

// The slots that `optimizer` needs for `variable`, unless they exist. Requests for the same slots share one job.
void CoordinatorCore::CreateSlots(const std::string& variable, const Optimizer& optimizer, StatusCallback done) {
  std::string key = absl::StrCat(variable, "\n", OptimizerName(optimizer));
  for (const SlotSpec& slot : SlotsOf(optimizer)) absl::StrAppend(&key, "\n", slot.name);
  if (!job_error_.ok()) return outbox_.Add([done = std::move(done), error = job_error_] { done(error); });
  std::vector<StatusCallback>& waiting = slots_wanted_[key];
  waiting.push_back(std::move(done));
  if (waiting.size() > 1) return;
  ChangeLayout({[this, variable, optimizer](const Layout& layout) { return PrepareSlots(variable, optimizer, layout); }, nullptr, {}, {}, std::move(key)});
}

// One at a time, and none while a checkpoint is cut. A resize waits for the steps in flight, so the jobs that these need are let through.
bool CoordinatorCore::MayStartLayoutJob() const {
  if (ResizeWaits() && in_flight_ == 0) return false;
  return !layout_jobs_.empty() && !layout_work_ && MayAttachWorkers() && !checkpoint_maker_.holding();
}

// A loop: thousands of jobs in a row may have nothing to change.
void CoordinatorCore::StartNextLayoutJob() {
  while (MayStartLayoutJob()) StartLayoutJob();
}

void CoordinatorCore::StartLayoutJob() {
  auto change = layout_jobs_.front().prepare(*layout_);
  if (!change.ok() || !*change) {
    LayoutWork nothing;
    nothing.refusal = change.status();
    nothing.next = layout_;
    return SettleLayoutJob(std::move(nothing));
  }
  std::shared_ptr<const Layout> next = layout_->With((*change)->variable);
  if (absl::Status large = CheckSize(*next, (*change)->variable.spec.name, options_.max_layout_bytes); !large.ok()) {
    LayoutWork refused;
    refused.refusal = std::move(large);
    refused.next = layout_;
    return SettleLayoutJob(std::move(refused));
  }
  layout_work_ = LayoutWork{};
  layout_work_->change = **std::move(change);
  layout_work_->next = std::move(next);
  for (const auto& [ps, shards] : layout_work_->change.shards) layout_work_->waiting.insert(ps);
  if (layout_work_->waiting.empty()) return StoreLayout();
  for (const int ps : std::set<int>(layout_work_->waiting)) SendShards(ps_[ps]);
}

void CoordinatorCore::SendShards(Ps& ps) {
  if (!layout_work_ || layout_work_->waiting.count(ps.index) == 0) return;
  CreateShardsRequest request;
  request.fence = FenceFor(ps.incarnation);
  request.layout_version = layout_work_->next->version();
  request.layout_hash = layout_work_->next->hash();
  request.job_seed = options_.job_seed;
  request.shards = layout_work_->change.shards.at(ps.index);
  CallPs(ps, &ParameterClient::CreateShards, std::move(request), &CoordinatorCore::OnShards);
}

void CoordinatorCore::OnShards(Ps& ps, const absl::StatusOr<LayoutReply>& answer) {
  if (!layout_work_ || layout_work_->undoing) return;
  const Reason reason = ReasonOf(answer.status());
  const bool is_refused = reason == Reason::kMemoryLimit || reason == Reason::kInvalid;
  if (!answer.ok() && !is_refused) return RetryPs(ps, answer.status(), &CoordinatorCore::SendShards);
  OnPsAnswer(ps);
  layout_work_->refusal.Update(answer.status());
  layout_work_->waiting.erase(ps.index);
  if (layout_work_->waiting.empty()) AfterShards();
}

// All ps have answered. Where one refused, what the others made goes first: a delete that came late could take away what a later job makes.
void CoordinatorCore::AfterShards() {
  if (layout_work_->refusal.ok()) return StoreLayout();
  layout_work_->undoing = true;
  for (const auto& [ps, shards] : layout_work_->change.shards) layout_work_->waiting.insert(ps);
  for (const int ps : std::set<int>(layout_work_->waiting)) SendUndo(ps_[ps]);
}

void CoordinatorCore::SendUndo(Ps& ps) {
  if (!layout_work_ || layout_work_->waiting.count(ps.index) == 0) return;
  DeleteShardsRequest request;
  request.fence = FenceFor(ps.incarnation);
  request.layout_version = layout_->version();
  request.layout_hash = layout_->hash();
  for (const ShardSpec& shard : layout_work_->change.shards.at(ps.index)) request.shards.push_back(shard.key);
  CallPs(ps, &ParameterClient::DeleteShards, std::move(request), &CoordinatorCore::OnUndone);
}

void CoordinatorCore::OnUndone(Ps& ps, const absl::StatusOr<LayoutReply>& answer) {
  if (!layout_work_ || !layout_work_->undoing) return;
  if (!answer.ok()) return RetryPs(ps, answer.status(), &CoordinatorCore::SendUndo);
  layout_work_->waiting.erase(ps.index);
  if (layout_work_->waiting.empty()) FinishLayoutJob();
}

void CoordinatorCore::FinishLayoutJob() {
  SettleLayoutJob(*std::exchange(layout_work_, std::nullopt));
  StartNextLayoutJob();
  Pump();
}

// The first job is over, and whoever waits for it is answered.
void CoordinatorCore::SettleLayoutJob(LayoutWork work) {
  LayoutJob job = std::move(layout_jobs_.front());
  layout_jobs_.pop_front();
  if (work.refusal.ok() && work.next != layout_) {
    if (layout_->Find(work.change.variable.id) == nullptr) next_placement_ += work.change.placed_in_turn;
    layout_ = work.next;
    if (job.spec && job.with) colocated_[job.spec->name] = *job.with;
    if (job.spec) unclaimed_.erase(job.spec->name);  // not before: a rewind lets the job begin anew
    log_.AddShards(layout_->version(), work.change.shards);
    GiveUpFullLog();
    workers_.SendToAll(LayoutUpdate{layout_});
  }
  const auto tell = [this, &work](StatusCallback done) { outbox_.Add([done = std::move(done), status = work.refusal] { done(status); }); };
  if (job.done) tell(std::move(job.done));
  if (job.slots.empty()) return;
  auto waiting = slots_wanted_.extract(job.slots);
  for (StatusCallback& done : waiting.mapped()) tell(std::move(done));
}

}  // namespace divvy
