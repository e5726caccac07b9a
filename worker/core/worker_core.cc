#include "worker/core/worker_core.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exit_codes.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "protocol/error.h"

namespace divvy {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
// After so many messages without a frame in the other direction, an acknowledgement is sent.
// Otherwise the coordinator would keep the messages until the next Pong.
constexpr uint64_t kAcknowledgeEvery = 64;
// A worker with a broken stream that has heard nothing for this long is cut off. A coordinator that
// lives opens a new stream sooner.
constexpr absl::Duration kCutOff = absl::Seconds(2);

}  // namespace

absl::Status WorkerOptions::Validate() const {
  std::vector<std::string> problems;
  if (index < 0) problems.push_back(absl::StrCat("index is ", index, ", must be >= 0"));
  if (incarnation == Incarnation())
    problems.push_back(
        "incarnation is 0: give each process life a number of its own (EntropySeed)");
  if (address.empty())
    problems.push_back(
        "address is empty: give the one at which the coordinator can dial this worker");
  if (replicas < 1) problems.push_back(absl::StrCat("replicas is ", replicas, ", must be >= 1"));
  if (at_once_bytes < 0)
    problems.push_back(absl::StrCat("at_once_bytes is ", at_once_bytes, ", must be >= 0"));
  if (max_value_bytes < 1)
    problems.push_back(absl::StrCat("max_value_bytes is ", max_value_bytes, ", must be >= 1"));
  for (std::string& problem : pulls.Problems()) problems.push_back(std::move(problem));
  const std::pair<const char*, absl::Duration> waits[] = {
      {"register_every", register_every},
      {"coordinator_silence", coordinator_silence},
      {"--orphan_timeout", orphan_timeout},
      {"--drain_timeout", drain_timeout}};
  for (const auto& [name, wait] : waits) {
    if (wait <= absl::ZeroDuration())
      problems.push_back(absl::StrCat(name, " is ", absl::FormatDuration(wait), ", must be > 0"));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("worker options: ", absl::StrJoin(problems, "; ")));
}

// Receives the frames of one connection. Does not keep the core alive.
class WorkerCore::Listener : public StreamListener<ToWorker> {
 public:
  Listener(std::weak_ptr<WorkerCore> core, uint64_t connection)
      : core_(std::move(core)), connection_(connection) {}
  void OnFrames(std::vector<StreamFrame<ToWorker>> frames) override {
    if (const auto core = core_.lock()) core->OnFrames(connection_, std::move(frames));
  }
  void OnBroken() override {
    if (const auto core = core_.lock()) core->OnBroken(connection_);
  }

 private:
  const std::weak_ptr<WorkerCore> core_;
  const uint64_t connection_;
};

// ---- life ---------------------------------------------------------------------------------------

WorkerCore::WorkerCore(WorkerOptions options, Executor& executor, Clock& clock, StepRunner& runner,
                       InputOpener& inputs, Dialer& dialer, OnExit on_exit)
    : options_(std::move(options)),
      executor_(executor),
      clock_(clock),
      runner_(runner),
      inputs_(inputs),
      dialer_(dialer),
      on_exit_(std::move(on_exit)),
      last_contact_(clock.Elapsed()) {}

WorkerCore::~WorkerCore() { Abandon(); }

absl::StatusOr<std::shared_ptr<WorkerCore>> WorkerCore::Start(
    WorkerOptions options, Executor& executor, Clock& clock, StepRunner& runner,
    InputOpener& inputs, Dialer& dialer, CoordinatorClient* coordinator, OnExit on_exit) {
  RETURN_IF_ERROR(options.Validate());
  std::shared_ptr<WorkerCore> core(new WorkerCore(std::move(options), executor, clock, runner,
                                                  inputs, dialer, std::move(on_exit)));
  CoreLock lock(core->mu_, core->outbox_);
  if (coordinator != nullptr) {
    const WorkerOptions& own = core->options_;
    Registrar::Options registration{
        {Role::kWorker, own.index, own.incarnation, own.address, own.replicas, own.cluster,
         kOwnProtocol, own.build, own.program},
        own.register_every,
        own.seed};
    const std::shared_ptr<CoordinatorClient> borrowed(std::shared_ptr<void>(), coordinator);
    core->registrar_ =
        Registrar::Create(std::move(registration), borrowed, executor,
                          [weak = core->weak_from_this()](int exit_code, std::string why) {
                            if (const auto self = weak.lock())
                              self->OnJobOver(exit_code, std::move(why));
                          });
  }
  core->RegisterIfWanted();
  core->ScheduleTick();
  return core;
}

void WorkerCore::ScheduleTick() {
  outbox_.Add([this, weak = weak_from_this()] {
    executor_.PostAfter(kTick, [weak] {
      if (const auto core = weak.lock()) core->Tick();
    });
  });
}

void WorkerCore::Tick() {
  CoreLock lock(mu_, outbox_);
  if (over_) return;
  const absl::Duration now = clock_.Elapsed();
  if (now - last_contact_ >= options_.orphan_timeout) {
    return End(exit_codes::kTryAgain,
               absl::StrCat("no coordinator has been heard for ",
                            absl::FormatDuration(options_.orphan_timeout), " (--orphan_timeout)"));
  }
  if (shutdown_code_ && now - shutdown_since_ >= options_.drain_timeout)
    return End(*shutdown_code_, "");
  RegisterIfWanted();
  EndIfDrained();
  if (!over_) ScheduleTick();
}

bool WorkerCore::Silent() const {
  return session_ != nullptr &&
         clock_.Elapsed() - session_->last_heard >= options_.coordinator_silence;
}

// The worker registers while it has no session, and while the coordinator of its session is silent:
// the coordinator may need the worker's address, or may have restarted and not know the worker.
void WorkerCore::RegisterIfWanted() {
  if (registrar_ == nullptr) return;
  const bool wanted = (session_ == nullptr || Silent()) && !over_ && !draining_ && !shutdown_code_;
  outbox_.Add([registrar = registrar_, wanted] {
    wanted ? registrar->OnDetached() : registrar->OnAttached();
  });
}

void WorkerCore::OnJobOver(int exit_code, std::string why) {
  CoreLock lock(mu_, outbox_);
  End(exit_code, std::move(why));
}

void WorkerCore::Drain() {
  CoreLock lock(mu_, outbox_);
  if (over_) return;
  BeginDrain(exit_codes::kDrained, "asked to end");
  EndIfDrained();
}

void WorkerCore::BeginDrain(int exit_code, std::string why) {
  if (draining_) return;
  draining_ = Ending{exit_code, std::move(why), /*can_compute=*/true, clock_.Elapsed()};
  if (session_ != nullptr) Send(Draining{});
}

// A draining worker ends when it has no work left and the coordinator has acknowledged its reports.
// It also ends when the coordinator cannot be heard: then the session will be fenced without it.
void WorkerCore::EndIfDrained() {
  if (over_) return;
  const bool committing = session_ != nullptr && session_->committing;
  if (shutdown_code_ && !committing) return End(*shutdown_code_, "");
  if (!draining_) return;
  const bool idle =
      session_ == nullptr || (!session_->live && !committing && session_->queue.empty() &&
                              session_->stream.unacknowledged() == 0);
  // A commit to an unreachable ps is waited for, too. Without a coordinator the wait has a limit,
  // because nobody can dispatch the step again.
  const bool patient = committing && clock_.Elapsed() - draining_->since < options_.drain_timeout;
  if (idle || (Unheard() && !patient)) End(draining_->exit_code, draining_->why);
}

// If the worker is cut off for this long, the coordinator is gone or counts this worker as lost.
// Then other workers run the steps whose reports the coordinator has not received.
bool WorkerCore::Unheard() const {
  const bool cut_off = session_ != nullptr && !session_->connection &&
                       clock_.Elapsed() - session_->last_heard >= kCutOff;
  return Silent() || cut_off;
}

void WorkerCore::End(int exit_code, std::string why) {
  if (over_) return;
  over_ = true;
  EndSession();
  registrar_ = nullptr;
  outbox_.Add([on_exit = std::exchange(on_exit_, nullptr), exit_code, why = std::move(why)] {
    if (on_exit) on_exit(exit_code, why);
  });
}

void WorkerCore::Abandon() {
  // The session and its connections are destroyed after the lock has been released.
  std::shared_ptr<Session> session;
  std::map<uint64_t, std::shared_ptr<StreamConnection<FromWorker>>> connections;
  {
    MutexLock lock(mu_);
    over_ = true;
    registrar_ = nullptr;
    on_exit_ = nullptr;
    session.swap(session_);
    connections.swap(connections_);
  }
  // Otherwise the step's thread could wait for ever.
  if (session != nullptr && session->live) session->live->transaction->Cancel();
}

// ---- sessions -----------------------------------------------------------------------------------

ReceiverState WorkerCore::Receiver() const {
  return {Role::kWorker, options_.index, options_.incarnation,
          known_.job,    known_.epoch,   known_.coordinator,
          true};
}

absl::Status WorkerCore::CheckFence(const Fence& fence, CallKind call) const {
  return CheckRequest(fence, Receiver(), call);
}

absl::Status WorkerCore::ApplyFlags(const WorkerAttachRequest& request) {
  if (!options_.apply_program_flags || applied_flags_ == request.program_flags)
    return absl::OkStatus();
  // Changing the flags is safe: a step of an older session that still runs can no longer commit.
  const absl::Status applied = options_.apply_program_flags(request.program_flags);
  if (applied.ok()) {
    applied_flags_ = request.program_flags;
    return applied;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "worker ", options_.index, " cannot take the program's flags from the coordinator: ",
      applied.message(), ". Run the same program in every task"));
}

absl::Status WorkerCore::CheckAttach(const WorkerAttachRequest& request) const {
  if (over_ || shutdown_code_ || draining_)
    return MakeError(Reason::kJobOver, absl::StrCat("worker ", options_.index, " is ending"));
  RETURN_IF_ERROR(CheckFence(request.fence, CallKind::kAttach));
  RETURN_IF_ERROR(CheckProtocol(request.protocol, Receiver()));
  RETURN_IF_ERROR(CheckIndex(request.index, Receiver()));
  if (request.fence.session == kCoordinatorSession || request.layout == nullptr) {
    return MakeError(Reason::kInvalid, absl::StrCat("worker ", options_.index,
                                                    ": the Attach request has no worker's session, "
                                                    "or no layout"));
  }
  const bool same_epoch = request.fence.epoch == known_.epoch && known_.session != SessionId();
  const bool live = session_ != nullptr && session_->stream.session() == request.fence.session;
  if (!same_epoch || request.fence.session > known_.session || live) return absl::OkStatus();
  return MakeError(Reason::kSessionFenced,
                   absl::StrCat("session ", request.fence.session.value(), " of worker ",
                                options_.index, " has ended"));
}

void WorkerCore::Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::StatusOr<WorkerAttachReply> reply =
      WorkerAttachReply{options_.incarnation, options_.replicas, 1, options_.program};
  absl::Status refused = CheckAttach(request);
  refused.Update(refused.ok() ? ApplyFlags(request) : absl::OkStatus());
  if (!refused.ok()) {
    reply = std::move(refused);
  } else {
    last_contact_ = clock_.Elapsed();
    const bool again = session_ != nullptr && request.fence.epoch == known_.epoch &&
                       request.fence.session == session_->stream.session();
    if (!again) BeginSession(std::move(request));
  }
  outbox_.Add([done = std::move(done), reply = std::move(reply)] { done(reply); });
}

void WorkerCore::BeginSession(WorkerAttachRequest request) {
  EndSession();
  known_ = request.fence;
  known_.target = Incarnation();
  auto links = std::make_shared<SessionLinks>();
  links->fence = known_;
  for (const PsAddress& ps : request.view)
    links->ps[ps.index] = {dialer_.ParameterServerAt(ps.address, ps.index), ps.incarnation,
                           ps.max_commit_bytes};
  session_ = std::make_shared<Session>(request.fence.session);
  session_->links = std::move(links);
  session_->layout = std::move(request.layout);
  session_->job_seed = request.job_seed;
  session_->last_heard = clock_.Elapsed();
  RegisterIfWanted();  // stops registering
}

// Drops everything of the session. Its commits in flight may still arrive: they are fenced, or the
// next attempt's commits are recognised as duplicates of them.
void WorkerCore::EndSession() {
  if (session_ == nullptr) return;
  DropPrefetched();
  const std::shared_ptr<Session> session = std::exchange(session_, nullptr);
  if (session->live)
    outbox_.Add([transaction = session->live->transaction] { transaction->Cancel(); });
  for (const ResourceId iterator : session->resources)
    outbox_.Add([this, iterator] { inputs_.Close(iterator); });
  const auto node = session->connection ? connections_.extract(*session->connection)
                                        : decltype(connections_)::node_type();
  if (!node.empty()) outbox_.Add([closed = node.mapped()] { closed->Close(); });
}

void WorkerCore::OnSessionOver(const std::weak_ptr<Session>& session, const absl::Status& why) {
  CoreLock lock(mu_, outbox_);
  if (session_ == nullptr || session.lock() != session_) return;
  SessionOver(why);
  EndIfDrained();
}

// A parameter server said that this session, or this process, may not make requests any more.
void WorkerCore::SessionOver(const absl::Status& why) {
  const Reason reason = ReasonOf(why);
  if (IsFinal(reason)) return End(*ExitCodeOf(reason), std::string(why.message()));
  EndSession();
  RegisterIfWanted();
}

void WorkerCore::Call(ShutdownRequest request, ResultCallback<ShutdownReply> done) {
  CoreLock lock(mu_, outbox_);
  absl::Status refused =
      over_ || shutdown_code_ ? absl::OkStatus() : CheckFence(request.fence, CallKind::kOther);
  outbox_.Add([done = std::move(done), refused] {
    if (refused.ok()) return done(ShutdownReply());
    done(refused);
  });
  if (!refused.ok() || over_ || shutdown_code_) return;
  shutdown_code_ = request.exit_code;
  shutdown_since_ = clock_.Elapsed();
  if (session_ != nullptr) {
    DropPrefetched();
    for (const QueuedStep& step : session_->queue) {
      if (step.reads_ahead) ForgetData(step.dispatch);
    }
    session_->queue.clear();
  }
  EndIfDrained();
}

// ---- the Steps stream ---------------------------------------------------------------------------

std::shared_ptr<StreamListener<ToWorker>> WorkerCore::Accept(
    std::shared_ptr<StreamConnection<FromWorker>> connection) {
  CoreLock lock(mu_, outbox_);
  const uint64_t id = next_connection_++;
  connections_.emplace(id, std::move(connection));
  return std::make_shared<Listener>(weak_from_this(), id);
}

// Whether the frame belongs to the live session. The first frame of a connection binds the
// connection to the session, and the session's previous connection is closed.
bool WorkerCore::BindConnection(uint64_t connection, const StreamFrame<ToWorker>& frame) {
  if (session_ == nullptr || frame.session != session_->stream.session() ||
      connections_.count(connection) == 0)
    return false;
  if (session_->connection == connection) return true;
  if (!frame.resume || (session_->connection && *session_->connection > connection)) return false;
  if (session_->connection) Disconnect(*session_->connection);
  session_->connection = connection;
  SendFrame(session_->stream.Connect());
  return true;
}

void WorkerCore::OnFrames(uint64_t connection, std::vector<StreamFrame<ToWorker>> frames) {
  CoreLock lock(mu_, outbox_);
  for (StreamFrame<ToWorker>& frame : frames) OnFrame(connection, std::move(frame));
}

void WorkerCore::OnFrame(uint64_t connection, StreamFrame<ToWorker> frame) {
  if (over_) return;
  if (!BindConnection(connection, frame)) return Disconnect(connection);
  if (Silent()) ForgetReads();  // variables may have changed a lot meanwhile
  last_contact_ = session_->last_heard = clock_.Elapsed();
  std::vector<StreamFrame<FromWorker>> resend;
  std::optional<ToWorker> message;
  const absl::Status received = session_->stream.Receive(std::move(frame), resend, message);
  for (StreamFrame<FromWorker>& kept : resend) SendFrame(std::move(kept));
  // Messages are missing: the coordinator opens another connection, and both sides resume.
  if (!received.ok()) return Disconnect(connection);
  if (message) {
    std::visit([this](auto&& content) DIVVY_REQUIRES(mu_) { Handle(std::move(content)); },
               *std::move(message));
    if (session_ != nullptr && ++session_->unanswered_messages >= kAcknowledgeEvery)
      SendFrame(session_->stream.Acknowledgement());
  }
  StartNext();
  EndIfDrained();
}

void WorkerCore::OnBroken(uint64_t connection) {
  CoreLock lock(mu_, outbox_);
  Disconnect(connection);
}

void WorkerCore::Disconnect(uint64_t connection) {
  if (session_ != nullptr && session_->connection == connection) {
    session_->connection.reset();
    session_->stream.Disconnect();
  }
  const auto node = connections_.extract(connection);
  if (!node.empty()) outbox_.Add([closed = node.mapped()] { closed->Close(); });
}

void WorkerCore::SendFrame(StreamFrame<FromWorker> frame) {
  session_->unanswered_messages = 0;
  const auto connection =
      session_->connection ? connections_.find(*session_->connection) : connections_.end();
  if (connection == connections_.end()) return;
  outbox_.Add([connection = connection->second, frame = std::move(frame)]() mutable {
    connection->Send(std::move(frame));
  });
}

void WorkerCore::Send(FromWorker message) {
  if (auto frame = session_->stream.Send(std::move(message))) SendFrame(*std::move(frame));
}

// ---- messages of the coordinator ----------------------------------------------------------------

void WorkerCore::Handle(LayoutUpdate message) {
  // After a replay the coordinator sends the layout again, only so that workers drop values that
  // they read during the replay. These are too old.
  ForgetReads();
  session_->layout = std::move(message.layout);
  if (session_->live && session_->live->state == WorkerSnapshot::Step::kNeedsSlots)
    CommitIfSlotsExist();
}

void WorkerCore::Handle(Dispatch message) {
  if (shutdown_code_) return;
  QueuedStep step{std::move(message), nullptr, {}, {}, false};
  // The step was in flight to this worker when the GPU was lost.
  if (draining_ && !draining_->can_compute) return GiveBack(std::move(step));
  step.arrived = clock_.Elapsed();
  session_->queue.push_back(std::move(step));
}

// A step that has not begun is reported as cancelled. Unless the coordinator is cancelling the
// step, it dispatches the step again.
void WorkerCore::GiveBack(QueuedStep step) {
  DropPrefetched(step);
  if (step.reads_ahead) ForgetData(step.dispatch);
  ++reported_;
  Send(Report{step.dispatch.step,
              step.dispatch.attempt,
              StepOutcome::kCancelled,
              Nest(),
              absl::OkStatus(),
              {},
              0});
}

void WorkerCore::Handle(CancelSteps message) {
  const auto named = [&](EntryId step) {
    return std::find(message.steps.begin(), message.steps.end(), step) != message.steps.end();
  };
  std::deque<QueuedStep> kept;
  for (QueuedStep& step : session_->queue) {
    named(step.dispatch.step) ? GiveBack(std::move(step)) : kept.push_back(std::move(step));
  }
  session_->queue = std::move(kept);
  if (session_->live && named(session_->live->dispatch.step)) CancelLive();
}

void WorkerCore::Handle(MakeResource message) {
  if (!session_->resources.insert(message.iterator).second) return;
  outbox_.Add([this, weak = weak_from_this(), session = std::weak_ptr<Session>(session_), message] {
    inputs_.Open(message, options_.index, message.num_workers, options_.replicas,
                 [weak, session, iterator = message.iterator](absl::StatusOr<OpenedInput> opened) {
                   if (const auto core = weak.lock())
                     core->OnOpened(session, iterator, std::move(opened));
                 });
  });
}

void WorkerCore::OnOpened(const std::weak_ptr<Session>& session, ResourceId iterator,
                          absl::StatusOr<OpenedInput> opened) {
  CoreLock lock(mu_, outbox_);
  if (session_ == nullptr || session.lock() != session_ || session_->resources.count(iterator) == 0)
    return;
  ResourceReady ready{iterator, opened.status(), std::nullopt, std::nullopt};
  if (opened.ok()) ready.elements = opened->elements, ready.first = opened->first;
  Send(std::move(ready));
}

void WorkerCore::Handle(DropResource message) {
  if (session_->resources.erase(message.iterator) == 0) return;
  outbox_.Add([this, iterator = message.iterator] { inputs_.Close(iterator); });
}

void WorkerCore::Handle(Ping) {
  // A drain may be complete, because the Ping has just acknowledged the sent messages. This is
  // checked first, because a Pong would again have to be acknowledged.
  EndIfDrained();
  if (over_) return;
  Pong pong;
  pong.running = session_->live ? 1 : 0;
  pong.committing = session_->committing ? 1 : 0;
  if (const std::optional<PsWait> longest = LongestWait()) {
    pong.blocked_on_ps = longest->ps;
    pong.blocked_for = clock_.Elapsed() - longest->since;
  }
  Send(pong);
}

std::optional<PsWait> WorkerCore::LongestWait() const {
  std::optional<PsWait> longest;
  if (session_->live) longest = session_->live->transaction->waiting();
  if (!session_->committing) return longest;
  for (const auto& [ps, commit] : session_->committing->commits) {
    if (!commit.answer && (!longest || commit.since < longest->since))
      longest = PsWait{ps, commit.since};
  }
  return longest;
}

void WorkerCore::Handle(Hold message) {
  session_->hold = message.number;
  session_->hold_answered = false;
  AnswerHold();
}

void WorkerCore::Handle(Release message) {
  if (session_->hold != message.number) return;
  session_->hold.reset();
  // The layout may have changed while the step was held.
  if (session_->live && session_->live->state == WorkerSnapshot::Step::kHeld) CommitIfSlotsExist();
}

// ---- for status pages and tests -----------------------------------------------------------------

WorkerSnapshot WorkerCore::Inspect() const {
  MutexLock lock(mu_);
  WorkerSnapshot snapshot;
  snapshot.job = known_.job;
  snapshot.epoch = known_.epoch;
  snapshot.reported = reported_;
  if (session_ == nullptr) return snapshot;
  snapshot.attached = true;
  snapshot.silent = Silent();
  snapshot.connected = session_->connection.has_value();
  snapshot.session = session_->stream.session();
  snapshot.layout_version = session_->layout->version();
  snapshot.resources = session_->resources;
  snapshot.unacknowledged = session_->stream.unacknowledged();
  snapshot.held = session_->hold.has_value();
  for (const QueuedStep& step : session_->queue) {
    snapshot.queued.push_back(step.dispatch.step);
    if (step.ahead != nullptr) snapshot.ahead.push_back(step.dispatch.step);
  }
  if (session_->committing) {
    snapshot.committing = session_->committing->dispatch.step;
    for (const auto& [ps, commit] : session_->committing->commits) {
      if (!commit.answer) snapshot.unanswered.push_back(ps);
    }
  }
  const std::optional<LiveStep>& newest = session_->live ? session_->live : session_->committing;
  if (!newest) return snapshot;
  snapshot.step = newest->state;
  snapshot.live = newest->dispatch.step;
  snapshot.live_function = newest->dispatch.function;
  snapshot.live_ordinal = newest->dispatch.ordinal;
  return snapshot;
}

uint64_t WorkerCore::StateHash() const {
  const WorkerSnapshot snapshot = Inspect();
  uint64_t hash = MixSeeds(snapshot.epoch.value(),
                           snapshot.attached ? snapshot.session.value() + uint64_t{1} : 0);
  const auto mix = [&hash](uint64_t value) { hash = MixSeeds(hash, value); };
  mix(snapshot.layout_version);
  mix(static_cast<uint64_t>(snapshot.step));
  mix(snapshot.live ? snapshot.live->value() : 0);
  mix(snapshot.committing ? snapshot.committing->value() : 0);
  mix(snapshot.queued.size());
  for (const EntryId step : snapshot.queued) mix(step.value());
  for (const int ps : snapshot.unanswered) mix(ps);
  mix(snapshot.resources.size());
  for (const ResourceId iterator : snapshot.resources) mix(iterator.value());
  mix(snapshot.unacknowledged);
  mix(snapshot.reported);
  MutexLock lock(mu_);
  mix(session_ != nullptr ? session_->stream.last_received() : 0);
  mix(session_ != nullptr && session_->hold ? *session_->hold + 1 : 0);
  mix(over_ ? 1 : shutdown_code_ ? 2 : draining_ ? 3 : 0);
  return hash;
}

}  // namespace divvy
