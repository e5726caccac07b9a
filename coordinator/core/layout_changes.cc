#include "coordinator/core/layout_changes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {

// ---- requests ----

void LayoutChanges::NumberStored(const VariableSpec& spec, const std::optional<Colocation>& with,
                                 VariableId id) {
  const auto waiting = unnumbered_.extract(id);
  // Empty: the job has failed meanwhile.
  if (!waiting.empty())
    Add({NewVariable{spec, with, id}, std::nullopt, std::move(waiting.mapped())});
}

void LayoutChanges::CreateSlots(const std::string& variable, const Optimizer& optimizer,
                                StatusCallback done) {
  std::string key = absl::StrCat(variable, "\n", OptimizerName(optimizer));
  for (const SlotSpec& slot : SlotsOf(optimizer)) absl::StrAppend(&key, "\n", slot.name);
  if (!failed_.ok()) return Reply(std::move(done), failed_);
  std::vector<StatusCallback>& waiting = slots_wanted_[key];
  waiting.push_back(std::move(done));
  if (waiting.size() == 1)
    Add({std::nullopt, NewSlots{variable, optimizer, std::move(key)}, nullptr});
}

void LayoutChanges::Add(Job job) {
  if (!failed_.ok()) return Answer(std::move(job), failed_);
  if (host_.IsChoosing() && job.variable) return Declare(std::move(job));
  jobs_.push_back(std::move(job));
  StartNext();
}

void LayoutChanges::Declare(Job job) {
  const NewVariable& variable = *job.variable;
  const absl::Status declared = plan_.Declare(variable.spec, variable.with, variable.id);
  Answer(std::move(job), declared);
}

void LayoutChanges::DeclareAll() {
  for (Job& job : std::exchange(jobs_, {}))
    job.variable ? Declare(std::move(job)) : jobs_.push_back(std::move(job));
}

void LayoutChanges::MakeAll(Shards shards, std::set<VariableId> existing, StatusCallback done) {
  jobs_.push_front({std::nullopt, std::nullopt, std::move(done)});
  work_ = Work{};
  work_->change.shards = std::move(shards);
  work_->existing = std::move(existing);
  work_->next = plan_.layout();
  Send();
}

void LayoutChanges::CancelMakeAll() {
  if (!work_) return;
  work_.reset();
  jobs_.pop_front();
}

// ---- one change at a time ----

// A loop and no recursion, because thousands of jobs in a row may have nothing to change.
void LayoutChanges::StartNext() {
  while (!jobs_.empty() && !work_ && host_.MayChangeLayout()) Start();
}

absl::StatusOr<std::optional<LayoutPlan::Change>> LayoutChanges::Prepare(const Job& job) {
  if (job.slots) return plan_.PrepareSlots(job.slots->variable, job.slots->optimizer);
  ASSIGN_OR_RETURN(LayoutPlan::Change change,
                   plan_.PrepareVariable(job.variable->spec, job.variable->with, job.variable->id));
  return std::optional<LayoutPlan::Change>(std::move(change));
}

void LayoutChanges::Start() {
  auto change = Prepare(jobs_.front());
  if (!change.ok() || !*change) return Refuse(change.status());
  auto next = plan_.With(**change);
  if (!next.ok()) return Refuse(next.status());
  work_ = Work{};
  work_->change = **std::move(change);
  if (work_->change.exists) work_->existing.insert(work_->change.variable.id);
  work_->next = *std::move(next);
  if (work_->change.shards.empty()) return host_.StoreLayout(work_->change.variable, work_->next);
  Send();
}

// The change needs no server, or is not possible.
void LayoutChanges::Refuse(absl::Status why) {
  Work nothing;
  nothing.refusal = std::move(why);
  nothing.next = plan_.layout();
  Settle(std::move(nothing));
}

void LayoutChanges::Send() {
  for (const auto& [ps, shards] : work_->change.shards) work_->waiting.insert(ps);
  for (const int ps : std::set<int>(work_->waiting))
    work_->undoing ? host_.DeleteShardsAt(ps) : host_.CreateShardsAt(ps);
}

std::optional<CreateShardsRequest> LayoutChanges::CreateRequestFor(int ps) const {
  if (!work_ || work_->waiting.count(ps) == 0) return std::nullopt;
  CreateShardsRequest request;
  request.layout_version = work_->next->version();
  request.layout_hash = work_->next->hash();
  request.job_seed = options_.job_seed;
  request.shards = work_->change.shards.at(ps);
  return request;
}

std::optional<DeleteShardsRequest> LayoutChanges::DeleteRequestFor(int ps) const {
  if (!work_ || work_->waiting.count(ps) == 0) return std::nullopt;
  DeleteShardsRequest request;
  request.layout_version = plan_.layout()->version();
  request.layout_hash = plan_.layout()->hash();
  for (const ShardSpec& shard : work_->change.shards.at(ps)) {
    if (work_->existing.count(shard.key.variable) == 0) request.shards.push_back(shard.key);
  }
  return request;
}

// When all ps have answered and one of them refused, the shards that the others made are deleted
// first. A late delete could remove shards of a later change.
void LayoutChanges::OnCreated(int ps, absl::Status answer) {
  work_->refusal.Update(std::move(answer));
  work_->waiting.erase(ps);
  if (!work_->waiting.empty()) return;
  if (work_->refusal.ok()) return host_.StoreLayout(work_->change.variable, work_->next);
  work_->undoing = true;
  Send();
}

void LayoutChanges::OnDeleted(int ps) {
  work_->waiting.erase(ps);
  if (work_->waiting.empty()) Finish();
}

void LayoutChanges::OnStored(const std::shared_ptr<const Layout>& next) {
  if (work_ && work_->next == next) Finish();
}

void LayoutChanges::Finish() {
  Settle(*std::exchange(work_, std::nullopt));
  StartNext();
}

// The first job is over: applies it, and answers the calls that wait for it.
void LayoutChanges::Settle(Work work) {
  Job job = std::move(jobs_.front());
  jobs_.pop_front();
  if (work.refusal.ok() && work.next != plan_.layout()) {
    plan_.Apply(work.change, work.next, job.variable ? job.variable->spec.name : "",
                job.variable ? job.variable->with : std::nullopt);
    host_.OnShardsMade(plan_.layout()->version(), work.change.shards);
    workers_.SendSoon(plan_.layout());
  }
  // Steps wait for slots. The slots that a step wants are usually made one after another.
  if (job.slots && (jobs_.empty() || !jobs_.front().slots)) workers_.SendLayout();
  Answer(std::move(job), work.refusal);
}

void LayoutChanges::Answer(Job job, const absl::Status& status) {
  if (job.done) Reply(std::move(job.done), status);
  if (!job.slots) return;
  auto waiting = slots_wanted_.extract(job.slots->key);
  if (waiting.empty()) return;
  for (StatusCallback& done : waiting.mapped()) Reply(std::move(done), status);
}

void LayoutChanges::Reply(StatusCallback done, const absl::Status& status) {
  outbox_.Add([done = std::move(done), status] { done(status); });
}

void LayoutChanges::FailAll(const absl::Status& error, std::vector<Task>& calls) {
  failed_ = error;
  const auto fail = [&](StatusCallback& done) {
    if (done) calls.push_back([done = std::move(done), error] { done(error); });
  };
  for (Job& job : jobs_) fail(job.done);
  for (auto& [key, waiting] : slots_wanted_) {
    for (StatusCallback& done : waiting) fail(done);
  }
  for (auto& [id, done] : unnumbered_) fail(done);
  jobs_.clear();
  slots_wanted_.clear();
  unnumbered_.clear();
  work_.reset();
}

std::map<std::string, int64_t> LayoutChanges::Sizes() const {
  return {{"layout jobs", static_cast<int64_t>(jobs_.size())},
          {"slots wanted", static_cast<int64_t>(slots_wanted_.size())}};
}

}  // namespace divvy
