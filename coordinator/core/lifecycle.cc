// The life of a job: its epochs, the state that each epoch begins with, and the end.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cluster/same_view.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/refusals.h"
#include "coordinator/core/table_reports.h"
#include "protocol/request_check.h"

namespace divvy {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
// How long a ps with a new index may wait for the resize that it is to join.
constexpr absl::Duration kEarly = absl::Minutes(1);
// The largest number of indices that may wait in this way.
constexpr int kMaxEarly = 1'000;
// A step that runs longer is shown among the waits.
constexpr absl::Duration kLongStep = absl::Seconds(20);

std::string Seconds(absl::Duration duration) {
  return absl::StrCat(absl::ToInt64Seconds(duration), " s");
}

absl::Status CheckRow(const JobRow& row, const CoordinatorOptions& options) {
  if (row.state == JobRow::State::kNew) return absl::OkStatus();
  if (!CanBe(row.epoch)) {
    return absl::DataLossError(absl::StrCat(
        "the store says that epoch ", row.epoch.value(), " of job ", absl::Hex(row.job.value()),
        " has begun, which cannot be: run `divvyctl state repair DIR`. Or give an empty "
        "--state_dir, and find the job again with its former "
        "--job_name or --checkpoint_dir"));
  }
  if (options.job && *options.job != row.job) {
    return MakeError(Reason::kWrongJob,
                     absl::StrCat("the store holds job ", absl::Hex(row.job.value()),
                                  ", and --job_name makes it job ", absl::Hex(options.job->value()),
                                  ": give the --state_dir of that name, or an empty one"));
  }
  if (row.state == JobRow::State::kRunning) return absl::OkStatus();
  return JobHasEnded(
      row.exit_code,
      absl::StrCat("job ", absl::Hex(row.job.value()), " has ended",
                   row.exit_code == 0 ? "" : " with an error",
                   ": there is nothing left to do. To train on from its last checkpoint, give an "
                   "empty --state_dir; to run it again from the beginning, an empty "
                   "--checkpoint_dir as well"));
}

}  // namespace

namespace {

// Numbers that the checkpoint has used are not used again, even if the store in which they were
// recorded is lost.
void NumbersBeyond(const JobState& checkpoint, JobRow& row) {
  row.epoch = std::max(row.epoch, checkpoint.checkpoint.epoch);
  const auto& variables = checkpoint.layout->variables();
  if (!variables.empty())
    row.next_variable_id = std::max(row.next_variable_id, variables.last().id.value() + 1);
}

absl::Status CheckJobOf(const JobState& found, JobId own) {
  if (own == found.job) return absl::OkStatus();
  return MakeError(Reason::kWrongJob,
                   absl::StrCat("--checkpoint_dir holds ", found.checkpoint.name(), " of job ",
                                absl::Hex(found.job.value()), ", and this is job ",
                                absl::Hex(own.value()), ": give each job a directory of its own"));
}

// The newest checkpoint of this job. A store that has lost the job takes the job's id from the
// checkpoint.
absl::StatusOr<std::optional<JobState>> FindCheckpoint(const CoordinatorOptions& options,
                                                       JobRow& row) {
  if (options.checkpoints == nullptr) return std::optional<JobState>();
  ASSIGN_OR_RETURN(std::optional<JobState> found, options.checkpoints->Newest(std::nullopt));
  if (!found) return found;
  RETURN_IF_ERROR(CheckJobOf(
      *found, row.state == JobRow::State::kNew ? options.job.value_or(found->job) : row.job));
  row.job = found->job;
  NumbersBeyond(*found, row);
  return found;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CoordinatorCore>> CoordinatorCore::Start(
    CoordinatorOptions options, Executor& executor, Clock& clock, Dialer& dialer, Store& store) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(const StoredJob stored, store.Load());
  JobRow row = stored.job;
  RETURN_IF_ERROR(CheckRow(row, options));
  ASSIGN_OR_RETURN(std::optional<JobState> found, FindCheckpoint(options, row));
  if (row.job == JobId())
    row.job = options.job.value_or(JobId(MixSeeds(options.incarnation.value(), options.job_seed)));
  row.state = JobRow::State::kRunning;
  row.epoch = row.epoch.next();
  std::shared_ptr<CoordinatorCore> core(new CoordinatorCore(
      std::move(options), executor, clock, dialer, store, row, std::move(found), stored));
  Event event(*core);
  core->BeginEpoch();
  core->ScheduleTick();
  return core;
}

CoordinatorCore::CoordinatorCore(CoordinatorOptions options, Executor& executor, Clock& clock,
                                 Dialer& dialer, Store& store, JobRow row,
                                 std::optional<JobState> found, StoredJob stored)
    : options_(std::move(options)),
      executor_(executor),
      clock_(clock),
      dialer_(dialer),
      store_(store),
      began_(clock.Elapsed()),
      servers_(options_, clock, dialer),
      workers_(options_, clock, outbox_),
      said_of_peers_(clock, outbox_),
      passes_(options_, workers_, clock_, outbox_),
      layout_plan_(options_),
      layout_changes_(options_, outbox_, layout_plan_, workers_, *this),
      recovery_(options_, clock, outbox_, workers_, passes_, ids_, steps_, writes_, *this),
      steps_(options_, clock, outbox_, workers_, passes_, recovery_.log(), *this),
      writes_(clock, outbox_, workers_, steps_, *this),
      checkpoint_maker_(options_, clock, outbox_, store, workers_, *this),
      ids_(row.id_block_end, options_.id_block),
      stored_(stored, row, steps_, passes_, servers_),
      origin_(std::move(stored), std::move(found)),
      resizing_(options_.ps_timeout, outbox_) {
  if (options_.durability == Durability::kCheckpoint) recovery_.log().GiveUp();
  // BeginEpoch stores this before the first id is given.
  stored_.row().id_block_end += options_.id_block;
  passes_.BeginEpoch(stored_.row().epoch);
  servers_.Add(options_.ps_addresses);
  layout_plan_.SetNumPs(servers_.size());
}

void CoordinatorCore::BeginEpoch() {
  // The epoch and the id block are durable before any task hears of them.
  phase_.Get<JobPhase::Attaching>()->epoch_durable = false;
  HitFailpoint(Failpoint::kEpochBeforeStored);
  PutThen({stored_.row()},
          [epoch = stored_.row().epoch](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
            HitFailpoint(Failpoint::kEpochStored);
            // Otherwise another epoch has begun meanwhile.
            if (epoch != core.stored_.row().epoch) return;
            if (auto* const attaching = core.phase_.Get<JobPhase::Attaching>())
              attaching->epoch_durable = true;
            for (Ps& ps : core.servers_) core.AttachPs(ps);
            for (const auto& [index, address] : core.options_.worker_addresses) {
              if (core.workers_.all().count(index) == 0) core.KnownWorker(index, address);
            }
          });
}

// There are two reasons for a call: a task has obeyed a later epoch, and this coordinator has done
// nothing in its own epoch yet; or the current epoch is over.
void CoordinatorCore::RestartEpoch(Epoch above) {
  stored_.row().epoch = std::max(stored_.row().epoch, above).next();
  passes_.BeginEpoch(stored_.row().epoch);
  servers_.ForgetEpoch();
  BeginEpoch();
}

Task CoordinatorCore::Guarded(std::function<void(CoordinatorCore&)> body) {
  return [weak = weak_from_this(), body = std::move(body)] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    Event event(*self);
    if (!self->abandoned_) body(*self);
  };
}

void CoordinatorCore::PutThen(StoreChange change, std::function<void(CoordinatorCore&)> then) {
  store_.Put(std::move(change),
             [weak = weak_from_this(), then = std::move(then)](absl::Status stored) {
               const auto self = weak.lock();
               if (self == nullptr) return;
               self->Guarded([stored, then](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
                 stored.ok() ? then(core) : core.FailJob(stored);
               })();
             });
}

void CoordinatorCore::Later(absl::Duration delay, std::function<void(CoordinatorCore&)> body) {
  outbox_.Add([this, self = shared_from_this(), delay, task = Guarded(std::move(body))] {
    executor_.PostAfter(delay, task);
  });
}

Fence CoordinatorCore::FenceFor(Incarnation target, SessionId session) const {
  return Fence{stored_.row().job, stored_.row().epoch, options_.incarnation, session, target};
}

// ---- the state that an epoch begins with ----

void CoordinatorCore::MaybeLoad() {
  if (!phase_.Is(Phase::kAttaching)) return;
  if (static_cast<int>(workers_.all().size()) < options_.min_workers) return;
  if (!servers_.AllAttached()) return;
  if (!origin_.is_chosen()) NoteHeldByServers();
  if (!origin_.is_chosen() && options_.checkpoints != nullptr) return SearchCheckpoints();
  if (!origin_.is_chosen() && origin_.Restorable() != nullptr) return BeginChoosing();
  if (std::exchange(phase_.Get<JobPhase::Attaching>()->reload, false)) return ChooseCheckpoint();
  BeginLoading();
}

// Searches again, because no server obeys a former coordinator any more. Since this coordinator
// began, a former coordinator that still lived may have made checkpoints and removed older ones.
// From here on it can complete at most the checkpoint that it was about to commit. Two checkpoints
// are always kept, so the checkpoint found now stays.
void CoordinatorCore::SearchCheckpoints() {
  if (std::exchange(phase_.Get<JobPhase::Attaching>()->looking, true)) return;
  outbox_.Add([self = shared_from_this()] {
    self->executor_.PostBlocking("checkpoint", [self] {
      const auto newest = self->options_.checkpoints->Newest(std::nullopt);
      self->Guarded([newest](CoordinatorCore& core)
                        DIVVY_REQUIRES(core.mu_) { core.OnNewest(newest); })();
    });
  });
}

void CoordinatorCore::OnNewest(const absl::StatusOr<std::optional<JobState>>& newest) {
  auto* const attaching = phase_.Get<JobPhase::Attaching>();
  if (attaching == nullptr) return;
  attaching->looking = false;
  // A server has restarted. MaybeLoad is called again when it has attached.
  if (!servers_.AllAttached()) return;
  if (!newest.ok()) return FailJob(newest.status());
  if (const absl::Status ours =
          *newest ? CheckJobOf(**newest, stored_.row().job) : absl::OkStatus();
      !ours.ok())
    return FailJob(ours);
  origin_.SetFound(*newest);
  if (origin_.Restorable() == nullptr) return BeginLoading();
  const std::optional<JobState>& found = origin_.found();
  // A former coordinator, whose store is lost, has made the checkpoint.
  if (found && found->checkpoint.epoch >= stored_.row().epoch)
    return RestartEpoch(found->checkpoint.epoch);
  if (found) NumbersBeyond(*found, stored_.row());
  BeginChoosing();
}

// There is a state to continue with, and the program has not decided yet.
void CoordinatorCore::BeginChoosing() {
  phase_.Enter(JobPhase::Choosing());
  for (StatusCallback& done : std::exchange(when_running_, {}))
    outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  layout_changes_.DeclareAll();
  if (origin_.is_awaited()) return ChooseCheckpoint();
  if (layout_changes_.has_jobs() || !open_reads_.empty() || writes_.has_waiting() ||
      steps_.is_wanted() || checkpoint_maker_.is_asked_for())
    ChooseEmpty();
}

void CoordinatorCore::BeginLoading() {
  phase_.Enter(JobPhase::Loading{clock_.Elapsed()});
  origin_.SetChosen();
  if (!checkpoint_maker_.newest() && !origin_.is_adopting()) {
    layout_plan_.MakeAllDeclared();
    if (recovery_.rewind() == nullptr && origin_.is_stored() && origin_.Restorable() == nullptr) {
      outbox_.Add(
          [text = absl::StrCat("what the parameter servers hold is not adopted: ",
                               origin_.held().status().message(),
                               ". There is no checkpoint: the job begins anew (--checkpoint_dir, "
                               "--checkpoint_every)")] { DIVVY_LOG(WARNING) << text; });
    }
  }
  if (origin_.is_adopting()) return StoreAdoption();
  for (Ps& ps : servers_) LoadPs(ps);
}

void CoordinatorCore::FinishLoading() {
  if (!phase_.Is(Phase::kLoading)) return;
  // In a rewind, the servers' state is whole and of this lineage only after the replay.
  if (recovery_.rewind() != nullptr) return StartRunning();
  if (!origin_.is_adopting()) stored_.row().lineage = stored_.row().epoch;
  PutThen(stored_.Whole(*layout_plan_.layout()),
          [mark = stored_.MarkNow()](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
            core.NoteStored(mark);
            core.StartRunning();
          });
}

void CoordinatorCore::StartRunning() {
  if (!phase_.Is(Phase::kLoading) || layout_changes_.is_changing()) return;
  // A server that restarted while the lineage was stored is loaded first.
  if (!servers_.AllReady()) return;
  if (recovery_.rewind() != nullptr) return BeginReplay();
  phase_.Enter(JobPhase::Running());
  history_.lineage = stored_.row().lineage;
  if (origin_.is_adopting()) FinishAdopting();
  checkpoint_maker_.StartSchedule();
  WantSync();
  for (auto& [index, worker] : workers_.all()) {
    // No worker could attach before.
    worker.known_since = clock_.Elapsed();
    AttachWorker(worker);
  }
  for (auto& done : origin_.TakeWaiters())
    outbox_.Add([done = std::move(done), steps = steps_.totals().finished_steps] { done(steps); });
  ReleaseWaiters();
}

void CoordinatorCore::ReleaseWaiters() {
  for (StatusCallback& done : std::exchange(when_running_, {}))
    outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  SendReads();
  layout_changes_.StartNext();
}

void CoordinatorCore::WhenRunning(StatusCallback done) {
  Event event(*this);
  if (const absl::Status failed = phase_.error(); !failed.ok()) {
    outbox_.Add([done, failed] { done(failed); });
  } else if (recovery_.rewind() != nullptr || (BeforeRunning() && !phase_.Is(Phase::kChoosing))) {
    when_running_.push_back(std::move(done));
  } else {
    outbox_.Add([done] { done(absl::OkStatus()); });
  }
}

// ---- registration ----

void CoordinatorCore::Call(RegisterRequest request, ResultCallback<RegisterReply> done) {
  Event event(*this);
  absl::StatusOr<RegisterReply> reply =
      RegisterReply{stored_.row().job, stored_.row().epoch, phase_.exit_code()};
  if (!reply->over) {
    if (absl::Status refused = Admit(request); !refused.ok()) {
      // The refused task ends. Without this line, the coordinator's log would not say why the task
      // is missing.
      if (ReasonOf(refused) == Reason::kClusterMismatch)
        said_of_peers_.Warning(absl::StrCat("refused: ", refused.message()));
      reply = std::move(refused);
    }
  }
  HitFailpoint(Failpoint::kRegisterBeforeReply);
  outbox_.Add([done = std::move(done), reply = std::move(reply)] { done(reply); });
}

absl::Status CoordinatorCore::Admit(const RegisterRequest& request) {
  if (abandoned_ || IsDraining() || phase_.Is(Phase::kFailed))
    return MakeError(Reason::kNotReady, "the coordinator is about to end: wait for the next one");
  if (ComesBeforeItsResize(request)) return ComesBeforeResize(request, servers_.size());
  RETURN_IF_ERROR(CheckRegister(request));
  return request.role == Role::kPs ? AdmitPs(request) : AdmitWorker(request);
}

// A ps with an index above all servers may have been started shortly before the operator asks for a
// resize. If the job can be resized, the ps may wait.
bool CoordinatorCore::ComesBeforeItsResize(const RegisterRequest& request) {
  const int count = servers_.size();
  const bool may_join = request.role == Role::kPs && request.index >= count &&
                        request.index < count + kMaxEarly && request.protocol.Meets(kOwnProtocol);
  if (!may_join || !phase_.Is(Phase::kRunning) || options_.checkpoints == nullptr ||
      (resizing_.is_under_way() && resizing_.arrangement().empty()))
    return false;
  if (!servers_.MayComeEarly(request.index, kEarly)) return false;
  said_of_peers_.Warning(std::string(ComesBeforeResize(request, count).message()));
  return true;
}

absl::Status CoordinatorCore::CheckRegister(const RegisterRequest& request) {
  ReceiverState own;
  own.role = Role::kChief;
  own.epoch = stored_.row().epoch;
  RETURN_IF_ERROR(CheckProtocol(request.protocol, own));
  const bool known_job = request.role == Role::kPs || request.role == Role::kWorker;
  if (!known_job || request.index < 0 || request.address.empty() ||
      request.incarnation == Incarnation()) {
    return MakeError(
        Reason::kInvalid,
        "Register must name a ps or worker, its index from 0, its address and its incarnation");
  }
  const bool is_joining = request.role == Role::kPs && resizing_.IsJoining(request.index);
  if (request.role == Role::kPs && request.index >= servers_.size() && !is_joining) {
    return MakeError(
        Reason::kClusterMismatch,
        absl::StrCat(
            "ps ", request.index, " (", request.address,
            ") is not part of this cluster: the coordinator has ", servers_.size(),
            " parameter servers, numbered from 0. Make --num_ps, or the ps list of TF_CONFIG, the "
            "same in every task"));
  }
  if (request.role == Role::kWorker) {
    RETURN_IF_ERROR(CheckSameProgram(options_.program, options_.program_flags, request.program,
                                     request.index, request.address));
    RETURN_IF_ERROR(
        CheckSameView(options_.cluster, request.cluster, absl::StrCat("worker ", request.index)));
    // This check is last, so that a task that does not belong here has no vote.
    return workers_.CheckReplicas(request.index, request.address, request.replicas);
  }
  if (request.without_checkpoints && options_.checkpoints != nullptr) {
    return WithoutCheckpoints(request.index, request.address);
  }
  return CheckSameView(options_.cluster, request.cluster, TaskName(request.role, request.index));
}

void CoordinatorCore::Tick() {
  Event event(*this);
  if (abandoned_ || phase_.IsFinal()) return;
  const absl::Duration now = clock_.Elapsed();
  for (const Ps& ps : servers_) CheckPs(ps, now);
  if (MayAttachWorkers() || phase_.Is(Phase::kEnding)) WantSync();
  for (auto& [index, worker] : workers_.all()) CheckWorker(worker, now);
  steps_.NoteTime();
  checkpoint_maker_.CheckTime(now);
  writes_.CheckHold(now);
  const bool is_stuck = phase_.Is(Phase::kRunning) && !checkpoint_maker_.after_release();
  if (const absl::Status full = recovery_.CheckLog(now, is_stuck); !full.ok()) FailJob(full);
  if (const absl::Status late = resizing_.CheckTime(now); !late.ok()) resizing_.Cancel(late);
  RebalanceByItself(now);
  WatchProgress(now);
  EvictRows(now);
  ScheduleTick();
}

void CoordinatorCore::WatchProgress(absl::Duration now) {
  if (options_.watchdog <= absl::ZeroDuration()) return;
  if (Idle() && !steps_.has_runs()) steps_.NoteProgress(now);
  const absl::Duration stalled = now - steps_.last_progress();
  if (stalled < options_.watchdog) return;
  outbox_.Add([text = absl::StrCat("no step has finished for ", Seconds(stalled), " (--watchdog): ",
                                   DescribeTasks())] { DIVVY_LOG(WARNING) << text; });
  // The next warning comes after another --watchdog without progress.
  steps_.NoteProgress(now);
}

// One line that tells a person what the job waits for.
std::string CoordinatorCore::DescribeTasks() const {
  std::vector<std::string> parts = {
      absl::StrCat(steps_.num_queued(), " steps queued, ", steps_.in_flight(), " in flight")};
  for (const auto& [index, worker] : workers_.all()) {
    if (worker.in_flight.empty()) continue;
    const Step& first = *worker.in_flight.front();
    parts.push_back(
        absl::StrCat("worker ", index, " has step ", first.request.function, " (", first.id.value(),
                     "), attempt ", first.attempt,
                     worker.in_flight.size() > 1
                         ? absl::StrCat(", and ", worker.in_flight.size() - 1, " behind it")
                         : ""));
  }
  for (const FenceWait& fence : workers_.fences()) {
    if (!fence.steps.empty())
      parts.push_back(absl::StrCat(fence.steps.size(), " steps of worker ", fence.worker,
                                   ", which is lost, wait until every ps has confirmed the fence"));
  }
  for (const CoordinatorSnapshot::Wait& wait : Waits())
    parts.push_back(absl::StrCat(wait.text, " (for ", Seconds(wait.since), ")"));
  return absl::StrJoin(parts, "; ");
}

void CoordinatorCore::ScheduleTick() {
  outbox_.Add([this, weak = weak_from_this()] {
    executor_.PostAfter(kTick, [weak] {
      if (const auto self = weak.lock()) self->Tick();
    });
  });
}

// ---- the end ----

void CoordinatorCore::FailJob(absl::Status error) {
  if (phase_.IsFinal()) return;
  for (Task& call : TakeWaiters(error)) outbox_.Add(std::move(call));
  const JobPhase::Shutdowns* const shutdowns = phase_.shutdowns();
  phase_.Enter(JobPhase::Failed{std::move(error), phase_.exit_code(),
                                shutdowns != nullptr ? *shutdowns : JobPhase::Shutdowns()});
  workers_.DropFences();
  recovery_.FailAll();
  passes_.FailAll();
  TellDrained();
}

void CoordinatorCore::Fail(absl::Status why) {
  Event event(*this);
  FailJob(std::move(why));
}

void CoordinatorCore::Drain(std::function<void()> done) {
  Event event(*this);
  if (!when_drained_) when_drained_.emplace();
  resizing_.Cancel(Drained());
  when_drained_->push_back(std::move(done));
  if (phase_.IsFinal()) return TellDrained();
  // Nothing is in flight, and the servers have no state worth saving.
  if (recovery_.rewind() != nullptr) return FailJob(Drained());
  DrainIfQuiet();
}

absl::Status CoordinatorCore::Drained() {
  return MakeError(
      Reason::kJobOver,
      "the coordinator was asked to end: the steps in flight have finished, the queued "
      "steps have not begun");
}

void CoordinatorCore::DrainIfQuiet() {
  if (!IsDraining() || phase_.Is(Phase::kEnding) || phase_.Is(Phase::kOver) ||
      steps_.in_flight() > 0 || !writes_.open().empty())
    return;
  StoreState();
  // The next coordinator may adopt what the servers hold, so the store must be complete.
  if (phase_.Is(Phase::kRunning) && stored_.is_told() && !stored_.IsStored()) return;
  if (WantsLastCheckpoint()) return checkpoint_maker_.MaybeBegin();
  FailJob(Drained());
}

void CoordinatorCore::TellDrained() {
  if (!when_drained_) return;
  for (auto& done : std::exchange(*when_drained_, {})) outbox_.Add(std::move(done));
}

void CoordinatorCore::EndJob(int exit_code, StatusCallback done) {
  Event event(*this);
  if (const absl::Status failed = phase_.error(); !failed.ok())
    return outbox_.Add([done, failed] { done(failed); });
  // The program has used nothing, so the state stays as it is.
  if (phase_.Is(Phase::kChoosing)) {
    phase_.Enter(JobPhase::Ending{exit_code, std::move(done)});
    return StoreEnd();
  }
  if (BeforeRunning() || recovery_.rewind() != nullptr) {
    return when_running_.push_back([self = shared_from_this(), exit_code,
                                    done = std::move(done)](const absl::Status& running) {
      if (!running.ok()) return done(running);
      self->EndJob(exit_code, done);
    });
  }
  resizing_.Cancel(
      absl::FailedPreconditionError("parameter servers and shards stay as they are: the job ends"));
  phase_.Enter(JobPhase::Ending{exit_code, std::move(done)});
  checkpoint_maker_.WantFinal(options_.checkpoints != nullptr && options_.final_checkpoint &&
                              exit_code == 0);
  // This finds a ps that was lost since the last step finished.
  phase_.Get<JobPhase::Ending>()->seq = WantSync();
  if (!RuleHolds(Rule::kSyncBeforeComplete)) FinishEnding();
}

// REQUIRES: the job is ending.
void CoordinatorCore::FinishEnding() {
  auto& ending = *phase_.Get<JobPhase::Ending>();
  if (ending.seq == 0 || (RuleHolds(Rule::kSyncBeforeComplete) && !AllAcknowledged(ending.seq)))
    return;
  if (checkpoint_maker_.final_is_wanted()) return checkpoint_maker_.MaybeBegin();
  ending.seq = 0;
  StoreEnd();
}

// REQUIRES: the job is ending.
void CoordinatorCore::StoreEnd() {
  const int exit_code = phase_.Get<JobPhase::Ending>()->exit_code;
  stored_.row().state = exit_code == 0 ? JobRow::State::kComplete : JobRow::State::kFailed;
  stored_.row().exit_code = exit_code;
  PutThen({stored_.row()}, [exit_code](CoordinatorCore& core)
                               DIVVY_REQUIRES(core.mu_) { core.OnEndStored(exit_code); });
}

void CoordinatorCore::OnEndStored(int exit_code) {
  // Even if the job has failed, its end is durable, and its tasks are told.
  if (auto* const failed = phase_.Get<JobPhase::Failed>()) failed->exit_code = exit_code;
  if (auto* const ending = phase_.Get<JobPhase::Ending>()) ending->stored = true;
  if (auto* const shutdowns = phase_.shutdowns()) ShutDownTasks(*shutdowns, exit_code);
}

// Workers are told first: if a ps exited earlier, they would treat it as lost. Each call ends by
// its deadline. A task that the call does not reach learns of the end when it registers.
void CoordinatorCore::ShutDownTasks(JobPhase::Shutdowns& shutdowns, int exit_code) {
  const auto shut_down = [&](const auto& client, const Fence& fence) DIVVY_REQUIRES(mu_) {
    ++shutdowns.waiting;
    const auto told = [weak = weak_from_this()](const absl::StatusOr<ShutdownReply>&) {
      if (const auto self = weak.lock())
        self->Guarded([](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.OnShutDown(); })();
    };
    outbox_.Add([told, client, request = ShutdownRequest{fence, exit_code}] {
      client->Call(request, told);
    });
  };
  if (!shutdowns.ps_are_told) {
    for (const auto& [index, worker] : workers_.all()) {
      if (worker.state != Worker::State::kDialing)
        shut_down(worker.client, FenceFor(worker.incarnation, worker.session));
    }
    if (shutdowns.waiting > 0) return;
  }
  shutdowns.ps_are_told = true;
  for (const Ps& ps : servers_) shut_down(ps.client, FenceFor(ps.incarnation));
}

void CoordinatorCore::OnShutDown() {
  auto* const shutdowns = phase_.shutdowns();
  if (shutdowns == nullptr || --shutdowns->waiting > 0) return;
  if (!std::exchange(shutdowns->ps_are_told, true))
    return ShutDownTasks(*shutdowns, *phase_.exit_code());
  auto* const ending = phase_.Get<JobPhase::Ending>();
  // The job has failed meanwhile.
  if (ending == nullptr) return;
  outbox_.Add([done = std::move(ending->done)] { done(absl::OkStatus()); });
  phase_.Enter(JobPhase::Over{ending->exit_code});
  TellDrained();
}

void CoordinatorCore::Abandon() {
  // The waiting completions may hold this core. They are destroyed after the lock is released.
  std::vector<Task> waiters;
  std::optional<std::vector<std::function<void()>>> drained;
  std::vector<std::shared_ptr<Step>> in_flight;
  MutexLock lock(mu_);
  abandoned_ = true;
  // A handle of the program may outlive the objects that the connections use.
  workers_.Close();
  for (auto& [index, worker] : workers_.all()) {
    for (auto& step : std::exchange(worker.in_flight, {})) in_flight.push_back(std::move(step));
  }
  waiters = TakeWaiters(absl::OkStatus());
  drained.swap(when_drained_);
}

std::vector<Task> CoordinatorCore::TakeWaiters(const absl::Status& error) {
  std::vector<Task> calls;
  const auto take = [&](auto& waiters, auto tell) {
    for (auto& waiter : waiters)
      calls.push_back([waiter = std::move(waiter), tell, error] { tell(waiter, error); });
    waiters.clear();
  };
  const auto tell = [](const auto& done, const absl::Status& why) { done(why); };
  take(when_running_, tell);
  steps_.FailAll(error, calls);
  for (const auto& read : std::exchange(open_reads_, {}))
    calls.push_back([read, error] { read->done(error); });
  for (auto& done : origin_.TakeWaiters())
    calls.push_back([done = std::move(done), error] { done(error); });
  writes_.FailAll(error, calls);
  auto* ending = phase_.Get<JobPhase::Ending>();
  if (auto* const rewind = recovery_.rewind(); rewind != nullptr && rewind->ending)
    ending = &*rewind->ending;
  if (ending != nullptr && ending->done)
    calls.push_back([done = std::exchange(ending->done, nullptr), error] { done(error); });
  layout_changes_.FailAll(error, calls);
  checkpoint_maker_.FailAll(error, calls);
  resizing_.FailAll(error, calls);
  return calls;
}

// ---- status ----

std::vector<CoordinatorSnapshot::Wait> CoordinatorCore::Waits() const {
  std::vector<CoordinatorSnapshot::Wait> waits;
  const absl::Duration now = clock_.Elapsed();
  for (const Ps& ps : servers_) {
    if (ps.silent_since)
      waits.push_back({absl::StrCat(ps.Text(), ": ", ps.last_error), now - *ps.silent_since});
  }
  if (phase_.Is(Phase::kAttaching) &&
      static_cast<int>(workers_.all().size()) < options_.min_workers) {
    waits.push_back({absl::StrCat(workers_.all().size(), " of ", options_.min_workers,
                                  " workers (--min_workers) are known"),
                     now - began_});
  }
  for (const auto& [index, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady && !worker.leaving) {
      waits.push_back({absl::StrCat("worker ", index, " (", worker.address, ")",
                                    worker.last_error.empty() ? "" : ": ", worker.last_error),
                       now - worker.last_heard});
    } else if (worker.pong.blocked_on_ps) {
      waits.push_back({absl::StrCat("worker ", index, " waits for ps ", *worker.pong.blocked_on_ps),
                       worker.pong.blocked_for});
    } else if (worker.run_time >= kLongStep && !worker.in_flight.empty()) {
      waits.push_back(
          {absl::StrCat("step ", worker.in_flight.front()->request.function, " on worker ", index),
           worker.run_time});
    }
  }
  if (const auto hold = writes_.WaitsFor()) {
    waits.push_back(
        {absl::StrCat("a write of the program waits for the commit of worker ", hold->worker),
         now - hold->since});
  }
  if (const auto* const rewind = recovery_.rewind()) {
    waits.push_back(
        {absl::StrCat(rewind->steps_left, " steps are to be run again, for ", rewind->why),
         now - rewind->since});
  }
  std::sort(waits.begin(), waits.end(),
            [](const auto& a, const auto& b) { return a.since > b.since; });
  return waits;
}

JobId CoordinatorCore::job() const {
  MutexLock lock(mu_);
  return stored_.row().job;
}

uint64_t CoordinatorCore::TakeMaxStaleness() {
  MutexLock lock(mu_);
  return steps_.TakeMaxStaleness();
}

void CoordinatorCore::SampleSteps() {
  MutexLock lock(mu_);
  steps_.samples().Begin();
}

void CoordinatorCore::WantGradients() {
  MutexLock lock(mu_);
  steps_.samples().WantGradients();
}

std::map<int, WorkerSteps> CoordinatorCore::TakeWorkerSteps() {
  MutexLock lock(mu_);
  return steps_.samples().TakeWorkers();
}

GradientSample CoordinatorCore::TakeGradients() {
  MutexLock lock(mu_);
  return steps_.samples().TakeGradients();
}

std::map<uint64_t, int64_t> CoordinatorCore::TakeStaleness() {
  MutexLock lock(mu_);
  return steps_.samples().TakeStaleness();
}

std::optional<CoordinatorSnapshot::Work> CoordinatorCore::WorkNow() const {
  using Work = CoordinatorSnapshot::Work;
  const absl::Duration now = clock_.Elapsed();
  if (const auto* const loading = phase_.Get<JobPhase::Loading>()) {
    if (origin_.is_adopting() || !checkpoint_maker_.newest()) return std::nullopt;
    const auto [done, total] = servers_.Loaded();
    return Work{Work::Kind::kRestore, done, total, now - loading->since};
  }
  const auto* const rewind = recovery_.rewind();
  if (rewind != nullptr && phase_.Is(Phase::kReplaying))
    return Work{Work::Kind::kReplay, rewind->steps - recovery_.NumMissing(), rewind->steps,
                now - phase_.Get<JobPhase::Replaying>()->since};
  return checkpoint_maker_.work();
}

CoordinatorSnapshot CoordinatorCore::Snapshot() const {
  MutexLock lock(mu_);
  CoordinatorSnapshot snapshot;
  snapshot.phase = phase_.name();
  snapshot.job = stored_.row().job;
  snapshot.epoch_id = stored_.row().epoch;
  snapshot.finished_steps = steps_.totals().finished_steps;
  snapshot.finished_reads = steps_.totals().finished_reads;
  snapshot.queued = steps_.num_queued();
  snapshot.in_flight = steps_.in_flight();
  snapshot.lost_workers = workers_.num_lost();
  snapshot.num_ps = servers_.size();
  snapshot.num_workers = static_cast<int>(workers_.all().size());
  snapshot.ps_up = servers_.NumUp();
  for (const auto& [index, worker] : workers_.all())
    snapshot.workers_up += worker.state == Worker::State::kReady;
  if (const RunState* const first = steps_.first_run(); first != nullptr) {
    const RunState& run = *first;
    CoordinatorSnapshot::Progress progress;
    progress.read_only = run.request.step.read_only;
    progress.pass = steps_.totals().epochs;
    progress.done =
        run.request.last_step ? steps_.totals().finished_steps : passes_.FinishedIn(run.iterator);
    progress.total = run.request.last_step;
    const std::optional<int64_t> expected = passes_.ExpectedElements(run.iterator);
    if (!progress.total && expected && !workers_.all().empty()) {
      const auto here = std::find_if(
          workers_.all().begin(), workers_.all().end(),
          [](const auto& known) { return known.second.state != Worker::State::kDialing; });
      const int64_t per_step = here == workers_.all().end() ? 1 : here->second.replicas;
      // Any number, because a worker has reported it.
      const int64_t elements = *expected;
      progress.total = elements / per_step + (elements % per_step != 0 ? 1 : 0);
    }
    snapshot.progress = progress;
  }
  snapshot.tables = TablesNow(*layout_plan_.layout(), servers_);
  snapshot.waits = Waits();
  snapshot.work = WorkNow();
  snapshot.draining = IsDraining();
  snapshot.durable_steps = checkpoint_maker_.durable_steps();
  snapshot.last_checkpoint = checkpoint_maker_.newest();
  snapshot.checkpoint = checkpoint_maker_.current();
  if (origin_.found()) snapshot.newest_found = origin_.found()->checkpoint;
  snapshot.adopted_steps = origin_.adopted_steps();
  snapshot.longest_hold = checkpoint_maker_.longest_hold();
  snapshot.recoveries = recovery_.num_rewinds();
  snapshot.redo_log_entries = recovery_.log().size();
  snapshot.redo_log_bytes = recovery_.log().bytes();
  snapshot.at = clock_.Elapsed();
  if (const auto oldest = steps_.oldest_since()) snapshot.oldest_step = snapshot.at - *oldest;
  snapshot.worker_recoveries = workers_.num_recovered();
  snapshot.ps_recoveries = servers_.num_recovered();
  snapshot.replayed_steps = recovery_.num_replayed();
  snapshot.runs = steps_.num_runs() + workers_.num_lost_runs();
  snapshot.counted_runs = steps_.num_counted_runs();
  snapshot.fenced_sessions = workers_.num_fenced();
  snapshot.leased_positions = steps_.NumLeased();
  snapshot.checkpoints = checkpoint_maker_.stats();
  return snapshot;
}

std::vector<CoordinatorCore::KnownTask> CoordinatorCore::Tasks() const {
  MutexLock lock(mu_);
  std::vector<KnownTask> tasks;
  for (const Ps& ps : servers_) tasks.push_back({Role::kPs, ps.index, ps.address});
  for (const auto& [index, worker] : workers_.all())
    tasks.push_back({Role::kWorker, index, worker.address});
  return tasks;
}

std::vector<std::optional<BusiestVariable>> CoordinatorCore::BusiestOfServers() const {
  MutexLock lock(mu_);
  return BusiestVariables(*layout_plan_.layout(), servers_);
}

CoordinatorCore::Inspection CoordinatorCore::Inspect() const {
  MutexLock lock(mu_);
  Inspection inspection = history_;
  for (const auto& [id, step] : steps_.open()) inspection.open.push_back(id);
  for (const auto& [id, write] : writes_.open()) inspection.open.push_back(id);
  if (const auto* const rewind = recovery_.rewind())
    inspection.steps_to_replay = rewind->steps_left;
  inspection.idle =
      Idle() && writes_.open().empty() && !writes_.has_waiting() && !layout_changes_.has_jobs();
  for (const Ps& ps : servers_) inspection.ps.push_back(ps.incarnation);
  for (const auto& [index, worker] : workers_.all()) {
    if (worker.stream != nullptr)
      inspection.unacknowledged =
          std::max(inspection.unacknowledged, static_cast<int>(worker.stream->unacknowledged()));
  }
  return inspection;
}

}  // namespace divvy
