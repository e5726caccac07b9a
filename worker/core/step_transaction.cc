#include "worker/core/step_transaction.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "kernels/not_finite.h"
#include "worker/core/ps_answer.h"
#include "worker/core/staged_values.h"

namespace divvy {
namespace {

// Adds the ps to a refusal that does not name it, because the step fails with this message.
absl::Status OfPs(int ps, const absl::Status& refusal) {
  const std::string name = absl::StrCat("ps ", ps);
  return absl::StrContains(refusal.message(), name)
             ? refusal
             : WithMessage(refusal, absl::StrCat(name, " refused a pull: ", refusal.message()));
}

absl::Status Cancelled() {
  return absl::CancelledError(
      "the step was cancelled, or its worker's session has ended: return soon, nothing of it will "
      "be applied");
}
absl::Status Over() {
  return absl::FailedPreconditionError(
      "the step is over: variables are read and written only while its function runs");
}

absl::Status CheckFinite(const StagedWrite& write) {
  const int64_t bad = FirstNotFinite(write.value);
  if (bad < 0) return absl::OkStatus();
  const double value = write.value.dtype() == DType::kFloat32 ? write.value.data_as<float>()[bad]
                                                              : write.value.data_as<double>()[bad];
  return absl::InvalidArgumentError(absl::StrCat(
      WriteOpName(write.op), " to variable \"", write.variable, "\": element ", bad, " is ", value,
      " (found by --check_numerics); look for a loss that overflows or a learning rate that is too "
      "high"));
}

}  // namespace

Fence SessionLinks::FenceFor(int index) const {
  Fence result = fence;
  result.target = ps.at(index).incarnation;
  return result;
}

WorkerTransaction::WorkerTransaction(Options options, Executor& executor, Clock& clock)
    : options_(std::move(options)), executor_(executor), clock_(clock) {}

// ---- called by the step -------------------------------------------------------------------------

absl::Status WorkerTransaction::CheckOpen() const {
  switch (phase_) {
    case Phase::kOpen: return absl::OkStatus();
    case Phase::kFinished: return Over();
    case Phase::kCancelled: return Cancelled();
  }
  return Over();
}

absl::Status WorkerTransaction::CheckReads(const std::vector<VariableRead>& reads) const {
  for (const VariableRead& read : reads) RETURN_IF_ERROR(CheckRead(*options_.layout, read));
  return absl::OkStatus();
}

absl::Status WorkerTransaction::CheckNoGradient(const std::vector<VariableRead>& reads) const {
  for (const VariableRead& read : reads) {
    if (!HasGradient(read.variable)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("variable \"", read.variable,
                     "\" has a staged gradient in this step: its new value exists only once the ",
                     "step has ended; read before ApplyGradients"));
  }
  return absl::OkStatus();
}

void WorkerTransaction::Pull(std::vector<VariableRead> reads,
                             ResultCallback<std::vector<Tensor>> done) {
  const absl::Status unreadable = CheckReads(reads);
  uint64_t id = 0;
  Fetch fetch;
  {
    CoreLock lock(mu_, outbox_);
    absl::Status refused = CheckOpen();
    if (refused.ok()) refused = unreadable;
    if (refused.ok()) refused = CheckNoGradient(reads);
    if (!refused.ok()) return outbox_.Add([done = std::move(done), refused] { done(refused); });
    id = next_id_++;
    const auto waiter = std::make_shared<Waiter>();
    waiters_[id] = waiter;
    waiter->reads = std::move(reads);
    waiter->own.resize(waiter->reads.size());
    waiter->base.resize(waiter->reads.size());
    // One more than the reads, so that the waiter does not finish before all reads have been added.
    waiter->missing = waiter->reads.size() + 1;
    waiter->done = std::move(done);
    for (size_t i = 0; i < waiter->reads.size(); ++i) AddRead(id, i, fetch);
  }
  Begin(std::move(fetch));
  CoreLock lock(mu_, outbox_);
  // The waiter is gone if it has been answered with an error meanwhile.
  const auto still = waiters_.find(id);
  if (still != waiters_.end() && --still->second->missing == 0) FinishWaiter(id);
}

// Decides where the value of read `index` comes from: the step's own assign, a whole variable that
// is here or in flight, or a message.
void WorkerTransaction::AddRead(uint64_t waiter_id, size_t index, Fetch& fetch) {
  Waiter& waiter = *waiters_.at(waiter_id);
  const VariableRead& read = waiter.reads[index];
  if (read.want != PullWant::kValues) {  // of finished steps, without this one
    fetch.reads.push_back(read);
    fetch.places.push_back(Place{waiter_id, index});
    return;
  }
  const auto own = own_.find(read.variable);
  if (own != own_.end()) waiter.own[index] = own->second;
  if (!read.ids) record_.read_whole.insert(read.variable);
  if (CoversVariable(waiter.own[index])) {
    --waiter.missing;
  } else if (!read.ids || PulledAhead(read.variable)) {
    WantWhole(read.variable, Place{waiter_id, index}, fetch);
  } else {
    fetch.reads.push_back(read);
    fetch.places.push_back(Place{waiter_id, index});
  }
}

bool WorkerTransaction::PulledAhead(const std::string& variable) const {
  const auto whole = whole_.find(variable);
  return whole != whole_.end() && whole->second.ahead;
}

void WorkerTransaction::WantWhole(const std::string& variable, std::optional<Place> place,
                                  Fetch& fetch) {
  const auto [entry, is_new] = whole_.try_emplace(variable);
  if (is_new) {
    fetch.reads.push_back({variable, std::nullopt});
    fetch.places.push_back(std::nullopt);
  }
  if (!place) return;
  if (entry->second.value) {
    DeliverWhole(*place, *entry->second.value);
  } else {
    entry->second.wanted_by.push_back(*place);
  }
}

bool WorkerTransaction::HasGradient(const std::string& variable) const {
  const auto own = own_.find(variable);
  return own != own_.end() && own->second.back().op == WriteOp::kGradient;
}

absl::Status WorkerTransaction::CheckValue(const StagedWrite& write) const {
  if (options_.read_only) {
    return absl::FailedPreconditionError(
        absl::StrCat(WriteOpName(write.op), " to variable \"", write.variable,
                     "\" in a read-only step: declare the Step with StepKind::kTraining, or leave "
                     "the write out"));
  }
  RETURN_IF_ERROR(CheckWrite(*options_.layout, write));
  return options_.check_numerics ? CheckFinite(write) : absl::OkStatus();
}

absl::Status WorkerTransaction::CheckOrder(const std::vector<StagedWrite>& writes) const {
  std::set<std::string> with_gradient;  // variables that have a gradient among these writes
  for (const StagedWrite& write : writes) {
    if (HasGradient(write.variable) || with_gradient.count(write.variable) > 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(WriteOpName(write.op), " to variable \"", write.variable,
                       "\" after its gradient in the same step: a step ",
                       "gives each variable one gradient, and writes nothing to it after"));
    }
    if (write.op == WriteOp::kGradient) with_gradient.insert(write.variable);
  }
  return absl::OkStatus();
}

absl::Status WorkerTransaction::Stage(std::vector<StagedWrite> writes) {
  {
    MutexLock lock(mu_);
    RETURN_IF_ERROR(CheckOpen());
  }
  for (const StagedWrite& write : writes) RETURN_IF_ERROR(CheckValue(write));
  MutexLock lock(mu_);
  RETURN_IF_ERROR(CheckOpen());
  RETURN_IF_ERROR(CheckOrder(writes));
  for (StagedWrite& write : writes) {
    own_[write.variable].push_back(write);
    record_.writes.push_back(std::move(write));
  }
  return absl::OkStatus();
}

bool WorkerTransaction::cancelled() const {
  MutexLock lock(mu_);
  return phase_ == Phase::kCancelled;
}

// ---- called by the core -------------------------------------------------------------------------

void WorkerTransaction::Prefetch(const std::vector<std::string>& variables, bool ahead) {
  Fetch fetch;
  {
    CoreLock lock(mu_, outbox_);
    if (phase_ != Phase::kOpen) return;
    for (const std::string& variable : variables) {
      if (options_.layout->Find(variable) == nullptr) continue;
      WantWhole(variable, std::nullopt, fetch);
      whole_[variable].ahead |= ahead;
    }
  }
  Begin(std::move(fetch));
}

void WorkerTransaction::TellAhead(std::function<void(std::vector<WholeValue>)> take) {
  CoreLock lock(mu_, outbox_);
  if (phase_ != Phase::kOpen) return;
  take_ahead_ = std::move(take);
  std::vector<WholeValue> there;
  for (const auto& [variable, whole] : whole_) {
    if (whole.ahead && whole.value) there.push_back({variable, *whole.value});
  }
  if (!there.empty()) outbox_.Add([take = take_ahead_, there = std::move(there)] { take(there); });
}

StepRecord WorkerTransaction::Finish() {
  CoreLock lock(mu_, outbox_);
  if (phase_ == Phase::kOpen) Close(Phase::kFinished, Over());
  return std::exchange(record_, StepRecord());
}

void WorkerTransaction::Cancel() {
  CoreLock lock(mu_, outbox_);
  Close(Phase::kCancelled, Cancelled());
}

void WorkerTransaction::Close(Phase phase, const absl::Status& status) {
  phase_ = phase;
  // The values are freed without the lock.
  outbox_.Add([fetches = std::exchange(fetches_, {}), whole = std::exchange(whole_, {})] {});
  NoteWaiting();
  take_ahead_ = nullptr;
  own_.clear();
  while (!waiters_.empty()) Answer(waiters_.begin()->first, status);
}

std::optional<PsWait> WorkerTransaction::waiting() const {
  MutexLock lock(waiting_mu_);
  return waiting_;
}

void WorkerTransaction::NoteWaiting() {
  std::optional<PsWait> longest;
  for (const auto& [id, fetch] : fetches_) {
    for (const auto& [ps, asked] : fetch->asked) {
      if (!longest || asked.since < longest->since) longest = PsWait{ps, asked.since};
    }
  }
  MutexLock lock(waiting_mu_);
  waiting_ = longest;
}

// ---- messages -----------------------------------------------------------------------------------

// Plans without the lock, because a plan for a million ids takes a while.
void WorkerTransaction::Begin(Fetch wanted) {
  if (wanted.reads.empty()) return;
  const auto fetch = std::make_shared<Fetch>(std::move(wanted));
  fetch->plan = PullPlan(*options_.layout, fetch->reads, Rounding::kAsSpecified);
  CoreLock lock(mu_, outbox_);
  if (phase_ != Phase::kOpen) return;
  const uint64_t id = next_id_++;
  for (const auto& [ps, parts] : fetch->plan.parts()) {
    fetch->asked.emplace(
        ps, Fetch::Asked{clock_.Elapsed(), Backoff(MixSeeds(options_.seed, MixSeeds(id, ps)))});
  }
  fetches_.emplace(id, fetch);
  if (fetch->asked.empty()) return Complete(id);  // no rows were asked for
  NoteWaiting();
  for (const auto& [ps, asked] : fetch->asked) Send(id, ps);
}

void WorkerTransaction::Send(uint64_t id, int ps) {
  const auto link = options_.links->ps.find(ps);
  // A ps that the session does not know is waited for, like an unreachable one.
  if (link == options_.links->ps.end()) return;
  PullRequest request{options_.links->FenceFor(ps), fetches_.at(id)->plan.parts().at(ps)};
  request.step = options_.step;
  outbox_.Add([weak = weak_from_this(), client = link->second.client, request = std::move(request),
               id, ps]() mutable {
    client->Call(std::move(request), [weak, id, ps](absl::StatusOr<PullReply> reply) {
      if (const auto self = weak.lock()) self->OnReply(id, ps, std::move(reply));
    });
  });
}

void WorkerTransaction::SendAgain(uint64_t id, int ps) {
  CoreLock lock(mu_, outbox_);
  const auto fetch = fetches_.find(id);
  if (fetch != fetches_.end() && fetch->second->asked.count(ps) > 0) Send(id, ps);
}

void WorkerTransaction::OnReply(uint64_t id, int ps, absl::StatusOr<PullReply> reply) {
  CoreLock lock(mu_, outbox_);
  const auto found = fetches_.find(id);
  if (found == fetches_.end() || found->second->asked.count(ps) == 0) return;
  Fetch& fetch = *found->second;
  switch (JudgePsAnswer(reply.status())) {
    case PsAnswer::kDone:
      RememberVersions(fetch, ps, *reply);
      NoteTime(fetch.asked.at(ps), ps, reply->served);
      fetch.replies.emplace(ps, *std::move(reply));
      fetch.asked.erase(ps);
      NoteWaiting();
      if (fetch.asked.empty()) Complete(id);
      return;
    case PsAnswer::kSendAgain: {
      const absl::Duration wait = fetch.asked.at(ps).backoff.Next();
      outbox_.Add([this, self = shared_from_this(), wait, id, ps] {
        executor_.PostAfter(wait, [weak = weak_from_this(), id, ps] {
          if (const auto self = weak.lock()) self->SendAgain(id, ps);
        });
      });
      return;
    }
    case PsAnswer::kSessionOver:
      if (options_.on_session_over)
        outbox_.Add([over = options_.on_session_over, why = reply.status()] { over(why); });
      return;
    case PsAnswer::kRefused: return FailFetch(id, OfPs(ps, reply.status()));
  }
}

void WorkerTransaction::NoteTime(const Fetch::Asked& asked, int ps, absl::Duration served) {
  const absl::Duration took = clock_.Elapsed() - asked.since;
  if (options_.metrics != nullptr)
    options_.metrics->pull_seconds.Observe(absl::ToDoubleSeconds(took));
  record_.calls.Add({/*commit=*/false, ps, asked.since, took, served,
                     static_cast<uint32_t>(asked.backoff.tries())});
}

void WorkerTransaction::RememberVersions(const Fetch& fetch, int ps, const PullReply& reply) {
  const std::vector<PullPart>& parts = fetch.plan.parts().at(ps);
  for (size_t i = 0; i < parts.size() && i < reply.parts.size(); ++i)
    record_.pulled.emplace(parts[i].shard, reply.parts[i].version);
}

// Every ps has answered. Copying gigabytes takes seconds, so large values are assembled on another
// thread.
void WorkerTransaction::Complete(uint64_t id) {
  const std::shared_ptr<const Fetch> fetch = fetches_.at(id);
  if (fetch->plan.copied_bytes() < options_.at_once_bytes) return Deliver(id, fetch->Values());
  outbox_.Add([this, self = shared_from_this(), id, fetch] {
    executor_.PostBlocking("assemble", [weak = weak_from_this(), id, fetch] {
      if (const auto self = weak.lock()) self->OnAssembled(id, fetch->Values());
    });
  });
}

void WorkerTransaction::OnAssembled(uint64_t id, absl::StatusOr<std::vector<Tensor>> values) {
  CoreLock lock(mu_, outbox_);
  if (fetches_.count(id) > 0) Deliver(id, values);  // else the step is over
}

void WorkerTransaction::Deliver(uint64_t id, const absl::StatusOr<std::vector<Tensor>>& values) {
  if (!values.ok()) return FailFetch(id, values.status());
  const std::shared_ptr<const Fetch> fetch = std::move(fetches_.extract(id).mapped());
  std::vector<WholeValue> ahead;
  for (size_t i = 0; i < fetch->reads.size(); ++i) {
    if (fetch->places[i]) {
      Deliver(*fetch->places[i], (*values)[i]);
      continue;
    }
    Whole& whole = whole_[fetch->reads[i].variable];
    whole.value = (*values)[i];
    if (whole.ahead && whole.wanted_by.empty())
      ahead.push_back({fetch->reads[i].variable, *whole.value});
    for (const Place place : std::exchange(whole.wanted_by, {})) DeliverWhole(place, *whole.value);
  }
  if (take_ahead_ && !ahead.empty())
    outbox_.Add([take = take_ahead_, ahead = std::move(ahead)] { take(ahead); });
  outbox_.Add([fetch] {});  // the replies are freed without the lock
}

// A refused pull is a bug of this worker or of the ps. The step's function gets the error and
// decides. Its next Pull tries again.
void WorkerTransaction::FailFetch(uint64_t id, const absl::Status& status) {
  const std::shared_ptr<const Fetch> failed = std::move(fetches_.extract(id).mapped());
  const Fetch& fetch = *failed;
  NoteWaiting();
  std::set<uint64_t> waiters;
  for (size_t i = 0; i < fetch.reads.size(); ++i) {
    if (fetch.places[i]) {
      waiters.insert(fetch.places[i]->waiter);
      continue;
    }
    for (const Place place : whole_[fetch.reads[i].variable].wanted_by)
      waiters.insert(place.waiter);
    whole_.erase(fetch.reads[i].variable);
  }
  for (const uint64_t waiter : waiters) Answer(waiter, status);
}

// A read by id takes its rows from the whole value as if the step itself had assigned the value.
void WorkerTransaction::DeliverWhole(Place place, const Tensor& value) {
  const auto waiter = waiters_.find(place.waiter);
  if (waiter == waiters_.end()) return;  // answered with an error
  const VariableRead& read = waiter->second->reads[place.index];
  std::vector<StagedWrite>& own = waiter->second->own[place.index];
  if (read.ids)
    own.insert(own.begin(),
               StagedWrite{read.variable, WriteOp::kAssign, value, std::nullopt, std::nullopt});
  Deliver(place, value);
}

void WorkerTransaction::Deliver(Place place, const Tensor& value) {
  const auto waiter = waiters_.find(place.waiter);
  if (waiter == waiters_.end()) return;  // answered with an error
  waiter->second->base[place.index] = value;
  if (--waiter->second->missing == 0) FinishWaiter(place.waiter);
}

int64_t WorkerTransaction::Waiter::CopiedBytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    if (own[i].empty()) continue;
    bytes += base[i].size_bytes();
    for (const StagedWrite& write : own[i]) bytes += write.value.size_bytes();
  }
  return bytes;
}

absl::StatusOr<std::vector<Tensor>> WorkerTransaction::Waiter::Results() {
  std::vector<Tensor> results;
  for (size_t i = 0; i < reads.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor value, AfterWrites(reads[i], std::move(base[i]), own[i]));
    results.push_back(std::move(value));
  }
  return results;
}

// All values have arrived. The step's own writes are added, on another thread if they are large.
void WorkerTransaction::FinishWaiter(uint64_t id) {
  const std::shared_ptr<Waiter> waiter = waiters_.at(id);
  if (waiter->CopiedBytes() < options_.at_once_bytes) return Answer(id, waiter->Results());
  outbox_.Add([this, self = shared_from_this(), id, waiter] {
    executor_.PostBlocking("assemble", [weak = weak_from_this(), id, waiter] {
      if (const auto self = weak.lock()) self->OnResults(id, waiter->Results());
    });
  });
}

void WorkerTransaction::OnResults(uint64_t id, absl::StatusOr<std::vector<Tensor>> results) {
  CoreLock lock(mu_, outbox_);
  Answer(id, std::move(results));
}

void WorkerTransaction::Answer(uint64_t id, absl::StatusOr<std::vector<Tensor>> result) {
  const auto node = waiters_.extract(id);
  if (node.empty()) return;
  outbox_.Add([done = std::move(node.mapped()->done), result = std::move(result)]() mutable {
    done(std::move(result));
  });
}

}  // namespace divvy
