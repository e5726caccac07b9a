// The queue, dispatch, reports, and lazy cancellation (semantics of TensorFlow's ClusterCoordinator, 3.2 to 3.5).
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

void CollectIterators(const Nest& args, std::vector<ResourceId>& iterators) {
  args.MapLeaves([&iterators](const Nest& leaf) -> absl::StatusOr<Nest> {
        if (leaf.kind() == Nest::Kind::kHandle) iterators.push_back(ResourceId(leaf.handle()->id));
        return leaf;
      })
      .IgnoreError();
}

// The same error, told with where it happened.
absl::Status At(const absl::Status& error, const std::string& where) {
  return error.ok() ? error : WithMessage(error, absl::StrCat(where, ": ", error.message()));
}

// What a worker may say of its step. Reasons that concern a task or the whole job are not a worker's to give: a program that returns such an error would end
// as if its job had been taken over, or were refused.
absl::Status OfStep(const absl::Status& error) {
  if (!RuleHolds(Rule::kStepErrorsAreOfSteps)) return error;
  switch (ReasonOf(error)) {
    case Reason::kNone:
    case Reason::kInvalid:
    case Reason::kUnknownShard:
    case Reason::kBadCommit:
    case Reason::kMemoryLimit:
    case Reason::kOverloaded:
    case Reason::kInputAborted:
    case Reason::kEndOfData: return error;
    default: {
      ErrorDetail detail = DetailOf(error);
      absl::Status plain(error.code(), error.message());
      return detail.user ? MarkUser(plain) : plain;
    }
  }
}

constexpr size_t kMaxKnownSizes = 256, kMostPutOff = 64;
constexpr absl::Duration kForgottenAfter = absl::Minutes(10), kAboutToServe = absl::Seconds(30);  // of workers that are away
constexpr absl::Duration kFirstPutOff = absl::Milliseconds(100), kLongestPutOff = absl::Seconds(10);

absl::Status Cancelled(const std::string& function) {
  return MakeError(Reason::kBatchCancelled, absl::StrCat("step ", function, " was cancelled: another step of its batch failed"));
}

}  // namespace

// ---- the program's calls ----

bool CoordinatorCore::RaisesInstead(StatusCallback raise, std::function<void()> again) {
  if (!job_error_.ok()) {
    outbox_.Add([raise = std::move(raise), error = job_error_] { raise(error); });
    return true;
  }
  if (error_.ok()) return false;
  raisers_.push_back({std::move(raise), std::move(again), nullptr});
  StartCancelling();
  Pump();
  return true;
}

absl::Status CoordinatorCore::CheckArgs(const Nest& args, absl::string_view what) const {
  RETURN_IF_ERROR(args.status());
  const int64_t bytes = args.size_bytes();
  if (bytes <= options_.max_args_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the arguments of ", what, " are ", bytes, " bytes, more than the limit of ", options_.max_args_bytes,
                                                 ": keep large data in variables, or in files that a data source reads"));
}

void CoordinatorCore::Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  const auto again = [self = shared_from_this(), request, result, accepted] { self->Schedule(request, result, accepted); };
  if (RaisesInstead(accepted, again)) return;
  if (const absl::Status checked = CheckArgs(request.args, "step " + request.function); !checked.ok()) {
    return outbox_.Add([accepted = std::move(accepted), checked] { accepted(checked); });
  }
  waiting_schedules_.push_back({std::move(request), std::move(result), std::move(accepted)});
  ChooseEmpty();
  Pump();
}

void CoordinatorCore::Join(StatusCallback done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead(done, [self = shared_from_this(), done] { self->Join(done); })) return;
  const bool nothing_yet = phase_ == Phase::kChoosing && Idle() && runs_.empty();  // and nobody else will make it begin
  if (nothing_yet) return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  joins_.push_back(std::move(done));
  Pump();
}

void CoordinatorCore::Done(ResultCallback<bool> done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead([done](absl::Status error) { done(error); }, [self = shared_from_this(), done] { self->Done(done); })) return;
  outbox_.Add([done = std::move(done), idle = Idle()] { done(idle); });
}

void CoordinatorCore::Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead(done, [self = shared_from_this(), request, value, done] { self->Run(request, value, done); })) return;
  absl::Status checked = CheckArgs(request.step.args, "step " + request.step.function);
  checked.Update(CheckArgs(request.source_args, "data source " + request.source));
  if (!checked.ok()) return outbox_.Add([done = std::move(done), checked] { done(checked); });
  ChooseEmpty();
  if (request.last_step && finished_steps_ >= *request.last_step && !BeforeRunning()) {  // before it takes a pass that another goes on with
    return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  }
  auto run = std::make_shared<RunState>();
  run->request = std::move(request);
  run->value = std::move(value);
  run->done = std::move(done);
  if (!ResumePass(*run)) BeginPass(*run);
  runs_.push_back(std::move(run));
  Pump();
}

void CoordinatorCore::StopRun(uint64_t token) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  for (const auto& run : runs_) {
    if (run->request.token == token) run->stopped = true;
  }
  Pump();
}

int64_t CoordinatorCore::epoch() const {
  MutexLock lock(mu_);
  return epochs_;
}

int64_t CoordinatorCore::step() const {
  MutexLock lock(mu_);
  return finished_steps_;
}

void CoordinatorCore::SetLearningRateScale(double scale) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (std::isfinite(scale)) {
    learning_rate_scale_ = scale;
  } else {
    StoreError(absl::InvalidArgumentError(absl::StrCat("SetLearningRateScale: ", scale, " is no finite number; ", learning_rate_scale_, " stays")));
    Pump();
  }
}

bool CoordinatorCore::Idle() const { return queue_.empty() && waiting_schedules_.empty() && in_flight_ == 0 && !recovery_; }

// ---- iterators and runs ----

ResourceId CoordinatorCore::MakeIterator(std::string source, Nest args, bool leased) {
  CoreLock lock(mu_, outbox_);
  const std::optional<DataPass> unfinished = TakeUnfinished(source, args, leased);
  const ResourceId id = MakeIteratorLocked(std::move(source), std::move(args), leased, unfinished);
  iterators_.at(id).of_program = true;
  return id;
}

ResourceId CoordinatorCore::MakeIteratorLocked(std::string source, Nest args, bool leased, const std::optional<DataPass>& unfinished) {
  const ResourceId id(next_resource_++);
  Iterator iterator;
  iterator.make = {id, std::move(source), std::move(args), /*seed=*/0, leased, NumWorkers()};
  BeginIn(iterator, unfinished);
  if (const KnownSize* known = FindKnownSize(iterator.make)) iterator.book.SetHint(known->elements);
  SendToAll(iterator.make);
  iterators_.emplace(id, std::move(iterator));
  return id;
}

void CoordinatorCore::DropIterator(ResourceId iterator) {
  CoreLock lock(mu_, outbox_);
  DropIteratorLocked(iterator);
}

void CoordinatorCore::DropIteratorLocked(ResourceId iterator) {
  const auto found = iterators_.find(iterator);
  if (found == iterators_.end()) return;
  found->second.dropped = true;
  if (found->second.users > 0 || recovery_) return;  // steps that are run again may name it
  if (found->second.book.exhausted()) {
    KnownSize* known = FindKnownSize(found->second.make);
    if (known == nullptr) known = &known_sizes_.emplace_back(KnownSize{found->second.make.source, found->second.make.args});
    known->elements = *found->second.book.end();
    if (known_sizes_.size() > kMaxKnownSizes) known_sizes_.erase(known_sizes_.begin());
  }
  if (found->second.trains) ended_passes_.emplace_back(++pass_changes_, ProgressOf(iterator, found->second));
  if (!found->second.make.leased && EndedEverywhere(iterator)) WarnOfUnreadParts(found->second.make);
  iterators_.erase(found);
  for (auto& [index, worker] : workers_) worker.reads.erase(iterator);
  SendToAll(DropResource{iterator});
}

// A pass does not wait for workers that are away: some may never come. Nobody else reads their parts.
void CoordinatorCore::WarnOfUnreadParts(const MakeResource& make) {
  constexpr size_t kMostNames = 5;
  std::vector<std::string> away;
  for (int index = 0; index < make.num_workers && away.size() <= kMostNames; ++index) {
    const auto worker = workers_.find(index);
    const bool is_there = worker != workers_.end() && worker->second.state != Worker::State::kDialing && !worker->second.leaving;
    if (!is_there && (worker == workers_.end() || !worker->second.ReadingOf(make.iterator).ended)) away.push_back(absl::StrCat("worker ", index));
  }
  if (away.empty()) return;
  if (away.size() > kMostNames) away.back() = "others";
  const std::string text = absl::StrCat(
      "a pass over data source \"", make.source, "\" is over without ", absl::StrJoin(away, ", "), ", away at its end. With AutoShardPolicy::kAuto, ",
      "kFile or kData each worker has a part of its own, and nobody has read what was left of theirs. Start them, or use kLease, the default");
  static LogLimit* const limit = new LogLimit;
  outbox_.Add([text] {
    if (limit->Admit(text)) DIVVY_LOG(WARNING) << text;
  });
}

CoordinatorCore::KnownSize* CoordinatorCore::FindKnownSize(const MakeResource& make) {
  const auto found = std::find_if(known_sizes_.begin(), known_sizes_.end(),
                                  [&make](const KnownSize& known) { return known.source == make.source && BitwiseEqual(known.args, make.args); });
  return found == known_sizes_.end() ? nullptr : &*found;
}

void CoordinatorCore::UseIterators(const Step& step, int64_t change) {
  for (const ResourceId id : step.iterators) {
    const auto found = iterators_.find(id);
    if (found == iterators_.end()) continue;
    found->second.users += change;
    if (found->second.dropped) DropIteratorLocked(id);
  }
}

void CoordinatorCore::BeginPass(RunState& run) {
  std::optional<DataPass> unfinished;
  if (!run.request.step.read_only) unfinished = TakeUnfinished(run.request.source, run.request.source_args, run.request.leased);
  run.iterator = MakeIteratorLocked(run.request.source, run.request.source_args, run.request.leased, unfinished);
  run.finished_in_pass = unfinished ? unfinished->finished : 0;
}

// Whether the worker-side iterator has no element left for anybody who is there. A worker that is away decides nothing: it may be about to join, or never come.
bool CoordinatorCore::EndedEverywhere(ResourceId iterator) const {
  bool ended = false;
  for (const auto& [index, worker] : workers_) {
    if (worker.state == Worker::State::kDialing || worker.leaving || worker.ReadingOf(iterator).excluded) continue;
    if (!worker.ReadingOf(iterator).ended) return false;
    ended = true;
  }
  return ended;
}

// The number that data is cut for: a share for each index up to the last that counts.
int CoordinatorCore::NumWorkers() const {
  const auto number_of = [this](auto counts) DIVVY_REQUIRES(mu_) { return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), counts)); };
  const int served = number_of([](const auto& each) { return each.second.has_served; });
  const int expected = served > 0 ? served : number_of([this](const auto& each) DIVVY_REQUIRES(mu_) { return MayServe(each.second); });
  int number = 1;
  for (const auto& [index, worker] : workers_) {
    if (CountsForData(worker, served, expected)) number = index + 1;
  }
  return number;
}

// Whether one that is away may be about to serve. An index that somebody merely claims, again and again, is not waited for.
bool CoordinatorCore::MayServe(const Worker& worker) const {
  if (worker.has_served) return clock_.Elapsed() - worker.last_heard < kForgottenAfter;
  return clock_.Elapsed() - worker.known_since < kAboutToServe;
}

// A worker that the cluster's description names counts, whether it is there or not. Of the others those that have served, and those that have just registered
// and are about to: an index that somebody merely claims would leave a share of the data unread. Nor does one count whose index is far above the number of
// those that have served, unless it is the only one: the data would be cut into shares that nobody reads.
bool CoordinatorCore::CountsForData(const Worker& worker, int served, int expected) const {
  if (options_.worker_addresses.count(worker.index) > 0 || !RuleHolds(Rule::kPhantomsHaveNoShare)) return true;
  constexpr int kGaps = 16;  // indices that nobody has, of a job whose workers are not all there
  if (served > 1 && worker.index >= kGaps + 4 * served) return false;
  if (worker.state != Worker::State::kDialing) return true;
  return MayServe(worker) && (worker.has_served || worker.index < 2 * expected);
}

// Goes on in the pass in which the last loop with last_step stopped; one over other data ends that pass.
bool CoordinatorCore::ResumePass(RunState& run) {
  if (!run.request.last_step || !paused_pass_) return false;
  const PausedPass paused = *std::exchange(paused_pass_, std::nullopt);
  if (paused.source != run.request.source || !BitwiseEqual(paused.args, run.request.source_args)) {
    DropIteratorLocked(paused.iterator);
    return false;
  }
  run.iterator = paused.iterator;
  run.finished_in_pass = paused.finished;
  return true;
}

void CoordinatorCore::EndPass(const RunState& run) {
  if (!run.request.last_step) return DropIteratorLocked(run.iterator);
  if (paused_pass_) DropIteratorLocked(paused_pass_->iterator);  // of a loop that ran at the same time
  paused_pass_ = {run.request.source, run.request.source_args, run.iterator, run.finished_in_pass};
  ++pass_changes_;
}

bool CoordinatorCore::IsExhausted(ResourceId id) const {
  const auto found = iterators_.find(id);
  return found != iterators_.end() && found->second.make.leased ? found->second.book.exhausted() : EndedEverywhere(id);
}

// Whether the run wants another step now. At the end of a pass that is not the last, begins the next.
bool CoordinatorCore::RunMakesMore(RunState& run) {
  if (run.stopped) return false;
  const std::optional<int64_t> last = run.request.last_step;
  if (last && finished_steps_ + run.outstanding >= *last) return false;
  std::vector<ResourceId> read{run.iterator};
  CollectIterators(run.request.step.args, read);
  if (std::none_of(read.begin(), read.end(), [this](ResourceId id) DIVVY_REQUIRES(mu_) { return IsExhausted(id); })) return true;
  if (!last || run.outstanding > 0) return false;
  if (run.finished_in_pass == 0) {
    StoreError(absl::InvalidArgumentError(absl::StrCat("data source \"", run.request.source, "\" has no element: step ", *last, " cannot be reached")));
    return false;
  }
  DropIteratorLocked(run.iterator);
  BeginPass(run);
  return true;
}

std::shared_ptr<CoordinatorCore::Step> CoordinatorCore::NextOfRuns() {
  for (const auto& run : std::vector<std::shared_ptr<RunState>>(runs_.begin(), runs_.end())) {  // a run without data takes them all away
    if (!RunMakesMore(*run)) continue;
    auto step = std::make_shared<Step>();
    step->request = run->request.step;
    Nest::List args{Nest(PerWorkerHandle{run->iterator.value()})};
    if (const Nest::List* rest = step->request.args.list()) args.insert(args.end(), rest->begin(), rest->end());
    step->request.args = Nest(std::move(args));
    CollectIterators(step->request.args, step->iterators);  // the program's own, too
    step->run = run;
    return step;
  }
  return nullptr;
}

// ---- dispatch ----

void CoordinatorCore::Pump() {
  if (phase_ == Phase::kReplaying) return PumpReplay();
  if (phase_ != Phase::kRunning) return;
  if (draining_) {
    GiveUpWriteHold();  // the writes that wait are not begun any more, and the steps in flight are to finish
    CompleteRuns();     // a loop that is over counts as an epoch in the last checkpoint
    return DrainIfQuiet();
  }
  MaybeRaise();
  StoreState();
  MaybeCheckpoint();
  StartWrites();
  do AdmitSchedules();  // each dispatch may make room in the queue
  while (DispatchOne());
  StartWritesBehindSteps();
  CompleteRuns();
  CompleteWaiters();
  MaybeRaise();  // a run without data has stored an error meanwhile
  StoreState();
}

// Queues the steps that wait for room.
void CoordinatorCore::AdmitSchedules() {
  const auto has_room = [this]()
                            DIVVY_REQUIRES(mu_) { return options_.max_queued_steps <= 0 || static_cast<int64_t>(queue_.size()) < options_.max_queued_steps; };
  while (!waiting_schedules_.empty() && has_room() && !cancelling_) {
    WaitingSchedule waiting = std::move(waiting_schedules_.front());
    waiting_schedules_.pop_front();
    if (absl::Status refused = ClaimNumber(waiting.request); !refused.ok()) {
      outbox_.Add([accepted = std::move(waiting.accepted), refused = std::move(refused)] { accepted(refused); });
      continue;
    }
    auto step = std::make_shared<Step>();
    step->request = std::move(waiting.request);
    CollectIterators(step->request.args, step->iterators);
    step->result = std::move(waiting.result);
    UseIterators(*step, 1);
    queue_.push_back(std::move(step));
    outbox_.Add([accepted = std::move(waiting.accepted)] { accepted(absl::OkStatus()); });
  }
}

// While values are being brought to a variable that is made, no checkpoint can be cut that makes room in the log: the writes that bring them are let in.
bool CoordinatorCore::MayGiveId(IdFor what) const {
  const bool has_room = !log_.full() || what == IdFor::kFirstValues;
  return next_id_ - ids_acked_ < kMaxIdsAhead && next_id_ < durable_id_end_ && has_room && StateIsStored();
}

EntryId CoordinatorCore::GiveId() {
  if (next_id_ - ids_synced_ >= kSyncAfterIds) WantSync();
  if (durable_id_end_ - next_id_ < options_.id_block / 2 && !id_block_wanted_) {
    id_block_wanted_ = true;
    row_.id_block_end += options_.id_block;
    PutThen({row_}, [end = row_.id_block_end](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
      HitFailpoint(Failpoint::kIdBlockStored);
      core.durable_id_end_ = end;
      core.id_block_wanted_ = false;
      core.Pump();
    });
  }
  return EntryId(next_id_++);
}

// Whether the worker may be given a step that reads by this iterator. What it has said on opening it is heard first. One whose data has ended is passed over as
// long as another has some: then the step finds out for itself, for it may have something to do at the end.
bool CoordinatorCore::MayRead(const Worker& worker, ResourceId id) const {
  if (iterators_.count(id) == 0) return true;
  const Reading reading = worker.ReadingOf(id);
  if (!reading.opened) return false;
  if (reading.excluded) return iterators_.at(id).left_out.count(worker.index) == 0 && NobodyElseReads(id);
  return !reading.ended || EndedEverywhere(id);
}

// Whether all workers are excluded but for those that have been away for long: then a step meets the error there, and tells the program.
bool CoordinatorCore::NobodyElseReads(ResourceId id) const {
  return std::all_of(workers_.begin(), workers_.end(), [&](const auto& entry) DIVVY_REQUIRES(mu_) {
    const Worker& worker = entry.second;
    if (worker.state != Worker::State::kDialing) return worker.ReadingOf(id).excluded;
    const bool is_listed = options_.worker_addresses.count(worker.index) > 0;  // it may be slow to start
    return is_listed ? clock_.Elapsed() - worker.last_heard >= kForgottenAfter : !MayServe(worker);
  });
}

// The ready worker with the most room for `step`, one that has returned it only where no other has room: else a worker that can run nothing, and so has always
// room, uses up the attempts of all steps. Null: there is none.
CoordinatorCore::Worker* CoordinatorCore::PickWorker(const Step& step) {
  Worker* best = nullptr;
  for (auto& [index, worker] : workers_) {
    if (worker.state != Worker::State::kReady || worker.leaving || !HasRoom(worker)) continue;
    const auto may_read = [this, &worker = worker](ResourceId id) DIVVY_REQUIRES(mu_) { return MayRead(worker, id); };
    if (!std::all_of(step.iterators.begin(), step.iterators.end(), may_read)) continue;
    const auto rank = [&step](const Worker& each) { return std::make_pair(step.returned_by.count(each.index), each.in_flight.size()); };
    if (best == nullptr || rank(worker) < rank(*best)) best = &worker;
  }
  return best;
}

// Whether no worker can run the step any more, since all have reached the end of one of its iterators.
bool CoordinatorCore::HasNoDataLeft(const Step& step) const {
  return std::any_of(step.iterators.begin(), step.iterators.end(), [this](ResourceId id) DIVVY_REQUIRES(mu_) { return EndedEverywhere(id); });
}

// A step that would be run again is cancelled also where an error waits for the call that raises it: that call would cancel it first of all.
StepFacts CoordinatorCore::FactsOf(const Step& step) const {
  return {step.attempt - step.forgiven,
          static_cast<uint32_t>(options_.max_step_attempts),
          cancelling_ || !error_.ok(),
          step.applied,
          step.replayed,
          RuleHolds(Rule::kDeviceLossesAreCounted) ? step.devices_lost.size() : 0};
}

// Positions for each leased iterator among the step's arguments. At the end of the data a step that the program has scheduled gets none, and runs all the same:
// it may have something to do then. False: a loop needs no such step.
bool CoordinatorCore::TakeLeases(Step& step, const Worker& worker) {
  if (const auto& once = step.request.once) step.leases.push_back({series_.at(once->series).id, once->number, 1});
  for (const ResourceId id : step.iterators) {
    const auto iterator = iterators_.find(id);
    if (iterator == iterators_.end()) continue;
    iterator->second.is_read = true;
    if (!iterator->second.make.leased) continue;
    const auto taken = iterator->second.book.Take(worker.index, worker.replicas);
    if (!taken && step.run != nullptr) return false;
    step.leases.push_back(taken ? InputLease{id, taken->first, taken->second} : InputLease{id, iterator->second.book.end().value_or(0), 0});
  }
  return true;
}

// Where a pass stands is in no server: the store knows that it is under way before its first positions are given.
void CoordinatorCore::NoteTraining(const Step& step) {
  for (const ResourceId id : step.iterators) {
    const auto iterator = iterators_.find(id);
    if (iterator == iterators_.end() || !iterator->second.make.leased || step.request.read_only) continue;
    pass_changes_ += !std::exchange(iterator->second.trains, true);
  }
  StoreState();
}

bool CoordinatorCore::DispatchOne() {
  const absl::Duration now = clock_.Elapsed();
  const auto next = std::find_if(queue_.begin(), queue_.end(), [now](const auto& queued) { return queued->not_before <= now; });
  const bool from_queue = next != queue_.end();
  std::shared_ptr<Step> step = from_queue ? *next : cancelling_ || queue_.size() > kMostPutOff ? nullptr : NextOfRuns();
  if (step == nullptr) return false;
  const bool first = step->id == EntryId();
  Worker* worker = PickWorker(*step);
  if (worker != nullptr && first) NoteTraining(*step);
  if (worker == nullptr || (first && (!MayGiveId() || ResizeWaits() || WaitsForWrites()))) return false;
  if (from_queue) queue_.erase(next);
  if (step->run != nullptr && first) {
    ++step->run->outstanding;
    UseIterators(*step, 1);
  }
  if (first && !TakeLeases(*step, *worker)) {
    Close(step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));  // gives back what it was to read of the others
    return true;
  }
  if (first) {
    step->id = GiveId();
    if (!step->request.read_only) step->ordinal = next_ordinal_++;
    step->learning_rate_scale = learning_rate_scale_;
    open_steps_.emplace(step->id, step);
    LogOpen(*step);
  }
  SendStep(step, *worker);
  return true;
}

// What the step was to read, and has not counted for, is given to others.
void CoordinatorCore::ReturnLeases(const Step& step) {
  for (const InputLease& lease : step.leases) {
    const auto iterator = iterators_.find(lease.iterator);
    if (iterator != iterators_.end() && lease.count > 0) iterator->second.book.GiveBack(lease.first, lease.count);
  }
}

void CoordinatorCore::SendStep(const std::shared_ptr<Step>& step, Worker& worker) {
  step->state = Step::State::kInFlight;
  step->worker = worker.index;
  if (!step->replayed) step->begun = log_.finishes();
  ++step->attempt;
  step->overran = false;
  step->refusal = absl::OkStatus();
  ++in_flight_;
  if (worker.in_flight.empty()) worker.run_time = absl::ZeroDuration();
  worker.in_flight.push_back(step);
  Dispatch dispatch;
  dispatch.step = step->id;
  dispatch.attempt = step->attempt;
  dispatch.ordinal = step->ordinal;
  dispatch.function = step->request.function;
  dispatch.args = step->request.args;
  dispatch.inputs = step->leases;
  dispatch.learning_rate_scale = step->learning_rate_scale;
  Send(worker, std::move(dispatch));
  if (kHasFailpoints) outbox_.Add([] { HitFailpoint(Failpoint::kDispatched); });
}

// ---- reports ----

void CoordinatorCore::OnReport(Worker& worker, Report report) {
  if (phase_ == Phase::kFailed) return;
  const auto found = std::find_if(worker.in_flight.begin(), worker.in_flight.end(),
                                  [&](const auto& step) { return step->id == report.step && step->attempt == report.attempt; });
  if (found == worker.in_flight.end()) return;
  const std::shared_ptr<Step> step = *found;
  worker.in_flight.erase(found);
  worker.run_time = absl::ZeroDuration();
  --in_flight_;
  max_staleness_ = std::max(max_staleness_, report.staleness);
  if (NoteEnds(worker, *step, report) && report.outcome == StepOutcome::kEndOfData) report.outcome = StepOutcome::kSystem;  // another worker has the data
  if (report.outcome == StepOutcome::kCancelled && !step->refusal.ok()) {
    report.outcome = StepOutcome::kFailed;
    report.error = step->refusal;
  }
  if (report.outcome == StepOutcome::kSystem && ReasonOf(report.error) == Reason::kDeviceLost) NoteDeviceLost(worker, *step, report.error);
  StepJudgement judgement = JudgeReport(FactsOf(*step), report.outcome, report.participants);
  if (judgement.rewind && report.outcome == StepOutcome::kOk && !RuleHolds(Rule::kRewindWhenReRunDiffers)) judgement = {StepVerdict::kFinish};
  if (judgement.verdict == StepVerdict::kFinish && keep_history_) KeepHistory(*step, report);
  if (judgement.verdict == StepVerdict::kRequeue && report.outcome != StepOutcome::kOk) {
    step->returned_by.insert(worker.index);
    PutOff(*step);
  }
  const std::string number = step->ordinal ? absl::StrCat(" ", *step->ordinal) : "";
  Settle(step, judgement, std::move(report.value), At(OfStep(report.error), absl::StrCat("step ", step->request.function, number, ", worker ", worker.index)));
  Pump();
}

// Each process counts once, whatever it says: one worker alone cannot have a step given up.
void CoordinatorCore::NoteDeviceLost(Worker& worker, Step& step, const absl::Status& why) {
  if (!step.devices_lost.insert(worker.incarnation).second) return;
  outbox_.Add([text = absl::StrCat("worker ", worker.index, " has lost a GPU in step ", step.request.function, ", which is run again: ", why.message())] {
    DIVVY_LOG(WARNING) << text;
  });
}

// The iterators that had nothing for the step, each by itself. Where the function says of none that it has ended, and of the step that it is over, that
// concerns all of them. True: the data goes on, and ends early at this worker alone.
bool CoordinatorCore::NoteEnds(Worker& worker, Step& step, const Report& report) {
  const bool of_all = report.outcome == StepOutcome::kEndOfData && (report.ended.empty() || !RuleHolds(Rule::kEndIsOfOneDataset));
  bool early = false;
  for (const ResourceId id : step.iterators) {
    const auto lease = std::find_if(step.leases.begin(), step.leases.end(), [id](const InputLease& each) { return each.iterator == id; });
    const auto ended = std::find_if(report.ended.begin(), report.ended.end(), [id](const EndedInput& each) { return each.iterator == id; });
    if (ended == report.ended.end() && !of_all) continue;
    if (lease == step.leases.end()) {
      worker.reads[id].ended = true;
      continue;
    }
    const auto iterator = iterators_.find(id);
    if (iterator == iterators_.end() || step.replayed) continue;
    const int64_t position = ended != report.ended.end() && ended->position ? *ended->position : lease->first;
    if (position < lease->first || position > lease->first + lease->count) continue;
    if (report.outcome == StepOutcome::kOk) {  // what a step that goes on has not read is for others, or beyond the end; and its own, in the log, too, no more
      iterator->second.book.GiveBack(position, lease->first + lease->count - position);
      lease->count = position - lease->first;
    }
    if (NoteEarlyEnd(worker, iterator->second, position)) {
      early = true;
      continue;
    }
    if (!iterator->second.elements) iterator->second.early_ends[worker.index] = position;  // early, if the data turns out to have more
    iterator->second.book.SetEnd(position, /*exact=*/position > lease->first);
  }
  return early;
}

// A worker whose data ends before that of most workers is left out. Where the data of most that are here does, its size was wrong. False: this is the end.
bool CoordinatorCore::NoteEarlyEnd(Worker& worker, Iterator& iterator, int64_t position) {
  if (!iterator.elements || position >= *iterator.elements || !RuleHolds(Rule::kOneWorkerEndsNoJob)) return false;
  iterator.early_ends[worker.index] = position;
  if (!MostHere([&iterator](const Worker& each) { return iterator.early_ends.count(each.index) > 0; })) {
    LeaveOut(worker, iterator);
    return true;
  }
  for (const auto& [index, end] : iterator.early_ends) {
    if (iterator.left_out.erase(index) > 0) workers_[index].reads[iterator.make.iterator].excluded = false;
    position = std::max(position, end);
  }
  iterator.elements = position;
  iterator.book.SetEnd(position, /*exact=*/true);
  return false;
}

// What Inspect tells of a finished step.
void CoordinatorCore::KeepHistory(const Step& step, const Report& report) {
  history_.finished[step.id] = report.participants;
  if (step.replayed) return;
  for (const InputLease& lease : step.leases) {
    int64_t count = lease.count;
    for (const EndedInput& ended : report.ended) {
      const int64_t position = ended.position.value_or(lease.first);
      if (ended.iterator == lease.iterator && position >= lease.first) count = std::min(count, position - lease.first);
    }
    if (count > 0) history_.finished_positions[lease.iterator].push_back({lease.first, count});
  }
}

// A step whose worker cannot run it now would use up its attempts in milliseconds. The first time it is tried again at once.
void CoordinatorCore::PutOff(Step& step) {
  const uint32_t tries = step.attempt - step.forgiven;
  if (tries < 2) return;
  const absl::Duration wait = std::min(kFirstPutOff * (1 << std::min<uint32_t>(tries - 2, 10)), kLongestPutOff);
  step.not_before = clock_.Elapsed() + wait;
  Later(wait, [](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.Pump(); });
}

void CoordinatorCore::Settle(const std::shared_ptr<Step>& step, const StepJudgement& judgement, Nest value, absl::Status error) {
  if (step->state == Step::State::kClosed) return;  // the job has failed, and its workers report on
  std::string why;
  if (judgement.rewind) {
    why = absl::StrCat("step ", step->request.function, " (", step->id.value(),
                       ") was half applied when its worker was lost, and running it again did not complete it (",
                       error.ok() ? "it touched other parameter servers" : error.message(), ")");
    if (!Replays()) return FailJob(MakeError(Reason::kPsLost, why + RemedyOfLoss()));
  }
  step->replayed ? SettleReplayed(step, judgement.verdict, error) : SettleAs(step, judgement.verdict, std::move(value), std::move(error));
  if (judgement.rewind) Rewind(std::move(why));
}

void CoordinatorCore::SettleAs(const std::shared_ptr<Step>& step, StepVerdict verdict, Nest value, absl::Status error) {
  switch (verdict) {
    case StepVerdict::kFinish:
      ++(step->request.read_only ? finished_reads_ : finished_steps_);
      LogFinished(*step);
      SettleNumber(*step, /*finished=*/true);
      if (step->run != nullptr) ++step->run->finished_in_pass;
      return Close(step, std::move(value));
    case StepVerdict::kEndOfData: return Close(step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));
    case StepVerdict::kCancel: return Close(step, Cancelled(step->request.function));
    case StepVerdict::kRequeue:
      step->state = Step::State::kQueued;
      step->worker = -1;
      queue_.push_front(step);
      return;
    case StepVerdict::kGiveUp:
      if (step->overran) {
        error = absl::DeadlineExceededError(absl::StrCat("step ", step->request.function, " was given up after ", step->attempt,
                                                         " attempts: the last ran longer than --step_deadline (", absl::FormatDuration(options_.step_deadline),
                                                         ")"));
      } else if (ReasonOf(error) == Reason::kNone) {
        error = MakeError(Reason::kStepGaveUp,
                          absl::StrCat("step ", step->request.function, " was given up after ", step->attempt, " attempts: ", error.message()));
      }
      [[fallthrough]];
    case StepVerdict::kFail: StoreError(error); return Close(step, error);
  }
}

void CoordinatorCore::Close(const std::shared_ptr<Step>& step, absl::StatusOr<Nest> result) {
  step->state = Step::State::kClosed;
  last_progress_ = clock_.Elapsed();
  open_steps_.erase(step->id);
  if (!result.ok()) log_.Forget(step->id);
  if (!result.ok()) SettleNumber(*step, /*finished=*/false);
  if (!result.ok() && !step->replayed && step->ordinal) lost_ids_.emplace_back(++lost_ordinals_, step->id);
  // At the end of one dataset what the step was to read of the others is read by another step; a life that goes on from a cut made before the error of a loop
  // is raised takes its pass up.
  const bool had_no_data = ReasonOf(result.status()) == Reason::kEndOfData;
  if (!result.ok() && (step->run != nullptr || had_no_data) && !step->replayed) ReturnLeases(*step);
  UseIterators(*step, -1);
  if (step->run != nullptr) {
    --step->run->outstanding;
    if (result.ok()) outbox_.Add([run = step->run, value = *result] { run->value(value); });
  }
  if (step->result) outbox_.Add([done = std::move(step->result), result = std::move(result)] { done(result); });
}

// ---- errors and cancellation ----

void CoordinatorCore::StoreError(absl::Status error) {
  if (!error_.ok()) return;
  error_ = std::move(error);
  // Who waits for steps is woken by the first error: the oldest of them raises it.
  if (joins_.empty() && runs_.empty()) return;
  for (StatusCallback& join : joins_) raisers_.push_back({join, [self = shared_from_this(), join] { self->Join(join); }, nullptr});
  for (const auto& run : runs_) {
    run->stopped = true;
    raisers_.push_back({run->done, [run] { run->done(Cancelled(run->request.step.function)); }, run});
  }
  joins_.clear();
  runs_.clear();
  StartCancelling();
}

void CoordinatorCore::StartCancelling() {
  if (cancelling_) return;
  cancelling_ = true;
  std::deque<std::shared_ptr<Step>> dirty;
  std::deque<std::shared_ptr<Step>> queued;
  queued.swap(queue_);
  for (const auto& step : queued) {
    if (step->applied.empty()) {
      Close(step, Cancelled(step->request.function));
    } else {
      dirty.push_back(step);  // some ps has applied it: it is carried through
    }
  }
  queue_ = std::move(dirty);
  for (auto& [index, worker] : workers_) {
    CancelSteps cancel;
    for (const auto& step : worker.in_flight) {
      if (step->applied.empty() && !step->replayed) cancel.steps.push_back(step->id);
    }
    if (!cancel.steps.empty()) Send(worker, std::move(cancel));
  }
}

void CoordinatorCore::MaybeRaise() {
  if (!cancelling_ || recovery_ || in_flight_ > 0 || !queue_.empty() || raisers_.empty()) return;
  cancelling_ = false;
  const absl::Status error = std::exchange(error_, absl::OkStatus());
  std::deque<Raiser> raisers;
  raisers.swap(raisers_);
  for (const Raiser& raiser : raisers) {
    if (raiser.run != nullptr) DropIteratorLocked(raiser.run->iterator);
  }
  outbox_.Add([raise = std::move(raisers.front().raise), error] { raise(error); });
  raisers.pop_front();
  for (Raiser& other : raisers) outbox_.Add([again = std::move(other.again)] { again(); });
}

void CoordinatorCore::CompleteRuns() {
  for (auto run = runs_.begin(); run != runs_.end();) {
    if ((*run)->outstanding > 0 || RunMakesMore(**run) || !error_.ok()) {
      if (!error_.ok()) return;  // StoreError has taken the runs away
      ++run;
      continue;
    }
    const bool whole = !std::exchange((*run)->stopped, true);
    if (whole && !(*run)->request.last_step && !(*run)->request.step.read_only) ++epochs_;
    EndPass(**run);
    outbox_.Add([done = std::move((*run)->done)] { done(absl::OkStatus()); });
    run = runs_.erase(run);
  }
}

void CoordinatorCore::CompleteWaiters() {
  if (joins_.empty() || !Idle()) return;
  for (StatusCallback& join : joins_) outbox_.Add([join = std::move(join)] { join(absl::OkStatus()); });
  joins_.clear();
}

}  // namespace divvy
