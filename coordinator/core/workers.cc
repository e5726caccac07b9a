// Sessions, Steps streams and fences of workers.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/refusals.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// The largest number of slots that a worker may claim. A worker that claims more would get all
// steps.
constexpr int kMostSlots = 64;

}  // namespace

// Listens to one connection of one worker's Steps stream.
class CoordinatorCore::StepsListener : public StreamListener<FromWorker> {
 public:
  StepsListener(std::weak_ptr<CoordinatorCore> core, int worker, uint64_t connection)
      : core_(std::move(core)), worker_(worker), connection_(connection) {}
  void OnFrames(std::vector<StreamFrame<FromWorker>> frames) override {
    if (const auto core = core_.lock()) core->OnFrames(worker_, connection_, std::move(frames));
  }
  void OnBroken() override {
    if (const auto core = core_.lock()) core->OnBroken(worker_, connection_);
  }

 private:
  const std::weak_ptr<CoordinatorCore> core_;
  const int worker_;
  const uint64_t connection_;
};

// ---- registration ----

absl::Status CoordinatorCore::AdmitWorker(const RegisterRequest& request) {
  for (const auto& [index, worker] : workers_.all()) {
    const bool is_served = index != request.index && worker.address == request.address &&
                           worker.state != Worker::State::kDialing;
    if (is_served) return ServesAs(request, index);
  }
  const auto known = workers_.all().find(request.index);
  if (known != workers_.all().end() && known->second.state != Worker::State::kDialing &&
      known->second.incarnation != request.incarnation) {
    RETURN_IF_ERROR(ContestWorker(known->second, request));
  }
  Worker& worker = KnownWorker(request.index, request.address);
  MaybeLoad();
  // The worker has registered, so it is attached at once.
  worker.backoff.Reset();
  if (worker.state == Worker::State::kDialing) worker.last_heard = clock_.Elapsed();
  AttachWorker(worker);
  return absl::OkStatus();
}

absl::Status CoordinatorCore::CheckAttached(const Worker& worker, const WorkerAttachReply& reply) {
  RETURN_IF_ERROR(CheckSameProgram(options_.program, options_.program_flags, reply.program,
                                   worker.index, worker.address));
  const int replicas = std::max(1, reply.replicas);
  RETURN_IF_ERROR(workers_.CheckReplicas(worker.index, worker.address, replicas));
  for (Worker* const other : workers_.WithOtherReplicas(worker.index, replicas))
    LoseWorker(*other, "it has another number of replicas than most workers");
  workers_.CompareBuild(worker, reply.program.build);
  return absl::OkStatus();
}

absl::Status CoordinatorCore::ContestWorker(Worker& worker, const RegisterRequest& request) {
  if (worker.broken_since) {
    LoseWorker(worker, "another process registered in its place");
    return absl::OkStatus();
  }
  if (!worker.claim || worker.claim->by != request.incarnation) {
    worker.claim = Claim{request.incarnation, request.address, clock_.Elapsed()};
    worker.claim_pings = worker.pings;
    PingWorker(worker);
  }
  return worker.claim->answered ? RunsAlready(request, worker.address)
                                : MayRunAlready(request, worker.address);
}

void CoordinatorCore::PingWorker(Worker& worker) {
  ++worker.pings;
  workers_.Send(worker, Ping{});
}

CoordinatorCore::Worker& CoordinatorCore::KnownWorker(int index, const std::string& address) {
  Worker& worker = workers_.all()[index];
  if (worker.client == nullptr || worker.address != address) {
    if (worker.client != nullptr && worker.state != Worker::State::kDialing)
      LoseWorker(worker, "it registered at another address");
    // A known worker at another address is not a new worker.
    if (worker.client == nullptr) worker.known_since = clock_.Elapsed();
    worker.index = index;
    worker.address = address;
    worker.client = dialer_.WorkerAt(address, index);
    worker.attaching = false;
    // Answers from the former address are ignored.
    ++worker.tries;
    worker.last_heard = clock_.Elapsed();
    worker.backoff = Backoff(MixSeeds(options_.incarnation.value(), 1'000 + index));
  }
  return worker;
}

// ---- joining ----

void CoordinatorCore::AttachWorker(Worker& worker) {
  if (!MayAttachWorkers() || worker.attaching || worker.state != Worker::State::kDialing) return;
  worker.attaching = true;
  worker.leaving = false;
  const uint64_t attempt = ++worker.tries;
  const SessionId session = workers_.NextSession(stored_.row().epoch);
  WorkerAttachRequest request;
  request.fence = FenceFor(Incarnation(), session);
  for (const Ps& ps : servers_)
    request.view.push_back({ps.index, ps.address, ps.incarnation, ps.max_commit_bytes});
  request.layout = layout_plan_.layout();
  request.job_seed = options_.job_seed;
  request.program_flags = options_.program_flags;
  request.index = worker.index;
  outbox_.Add([self = shared_from_this(), index = worker.index, attempt, session,
               client = worker.client, request = std::move(request)] {
    client->Call(request, [weak = self->weak_from_this(), index, attempt,
                           session](absl::StatusOr<WorkerAttachReply> reply) {
      if (const auto self = weak.lock())
        self->OnWorkerAttached(index, attempt, session, std::move(reply));
    });
  });
}

void CoordinatorCore::AttachWorkerLater(Worker& worker) {
  Later(worker.backoff.Next(), [index = worker.index, attempt = worker.tries](
                                   CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
    if (Worker& worker = core.workers_.all()[index]; worker.tries == attempt)
      core.AttachWorker(worker);
  });
}

bool CoordinatorCore::ServesAnother(const absl::Status& refusal) const {
  const Reason reason = ReasonOf(refusal);
  if (reason == Reason::kWrongJob) return true;
  return (reason == Reason::kStaleEpoch || reason == Reason::kSecondCoordinator) &&
         (IsPlausible(DetailOf(refusal).epoch, stored_.row().epoch) ||
          !RuleHolds(Rule::kEpochsArePlausible));
}

// The refusal of one worker concerns only that worker: the coordinator waits for it and shows the
// refusal on the live line. If no worker serves this coordinator, and all known workers refuse it
// or stay away, the refusal concerns the job. The parameter servers know whether another
// coordinator has taken over, so they are asked at once.
bool CoordinatorCore::OnAttachRefused(Worker& worker, const absl::Status& refusal) {
  worker.serves_another = ServesAnother(refusal);
  if (!worker.serves_another) return false;
  WantSync();
  if (!workers_.MustYield(worker)) return false;
  YieldToOther(refusal);
  return true;
}

void CoordinatorCore::YieldToOther(const absl::Status& refusal) {
  if (ReasonOf(refusal) == Reason::kWrongJob) return FailJob(WithRemedy(refusal));
  // The workers have obeyed a later coordinator, or a coordinator whose store is lost and which may
  // have used the same epochs. The next start of this coordinator uses a higher epoch.
  JobRow row = stored_.row();
  row.epoch = std::max(row.epoch, DetailOf(refusal).epoch);
  store_.Put({row}, [weak = weak_from_this(), refusal](absl::Status) {
    if (const auto self = weak.lock()) {
      self->Guarded([refusal](CoordinatorCore& core)
                        DIVVY_REQUIRES(core.mu_) { core.FailJob(WithRemedy(refusal)); })();
    }
  });
}

void CoordinatorCore::OnWorkerAttached(int index, uint64_t attempt, SessionId session,
                                       absl::StatusOr<WorkerAttachReply> reply) {
  Event event(*this);
  Worker& worker = workers_.all()[index];
  if (abandoned_ || !MayAttachWorkers() || worker.tries != attempt) return;
  worker.attaching = false;
  // A worker that does not fit gets no more calls. So it registers again, and the reply contains
  // the refusal.
  const absl::Status joined = reply.ok() ? CheckAttached(worker, *reply) : reply.status();
  worker.last_error = std::string(joined.message());
  if (!joined.ok()) {
    if (!OnAttachRefused(worker, joined)) AttachWorkerLater(worker);
    return;
  }
  worker.serves_another = false;
  worker.has_served = true;
  workers_.NoteServed();
  worker.backoff.Reset();
  worker.claim.reset();
  worker.pings = worker.pongs = 0;
  if (worker.incarnation != reply->incarnation) {
    worker.returned = 0;
    worker.rests_until = absl::ZeroDuration();
  }
  worker.incarnation = reply->incarnation;
  worker.replicas = std::max(1, reply->replicas);
  worker.slots = std::clamp(reply->slots, 1, kMostSlots);
  worker.session = session;
  workers_.SetJoining(worker);
  worker.stream = std::make_unique<WorkerStream>(session);
  worker.layout_is_old = false;  // told below
  worker.last_heard = clock_.Elapsed();
  worker.pong = Pong();
  passes_.ForgetReadings(index);
  HitFailpoint(Failpoint::kSessionBeforeSync);
  worker.join_seq = WantSync();
  checkpoint_maker_.WorkersChanged();
  // The layout may have changed since the Attach was sent.
  workers_.Send(worker, LayoutUpdate{layout_plan_.layout()});
  passes_.IntroduceTo(worker);
  if (const auto* const rewind = recovery_.rewind()) {
    for (const auto& [id, make] : rewind->iterators) workers_.Send(worker, *make);
  }
  writes_.HoldIfOthersAre(worker);
  OpenSteps(worker);
}

// The result is true only if another worker has become ready, because the workers that were ready
// before have already been offered the queued steps.
bool CoordinatorCore::AdmitJoined() {
  if (workers_.num_joining() == 0) return false;
  bool admitted = false;
  for (auto& [index, worker] : workers_.all()) {
    if (worker.state != Worker::State::kJoining || !AllAcknowledged(worker.join_seq)) continue;
    workers_.SetReady(worker);
    admitted = true;
  }
  return admitted;
}

// ---- the Steps stream ----

void CoordinatorCore::OpenSteps(Worker& worker) {
  worker.connection_number = workers_.NextConnection();
  worker.connection = nullptr;
  const auto listener =
      std::make_shared<StepsListener>(weak_from_this(), worker.index, worker.connection_number);
  outbox_.Add([self = shared_from_this(), index = worker.index, number = worker.connection_number,
               client = worker.client, listener] {
    const auto connection = client->OpenSteps(listener);
    Event event(*self);
    Worker& worker = self->workers_.all()[index];
    if (self->abandoned_ || worker.connection_number != number || worker.stream == nullptr)
      return connection->Close();
    worker.connection = connection;
    connection->Send(worker.stream->Connect());
  });
}

// Frames that arrived together are one event: what they enable is looked for once.
void CoordinatorCore::OnFrames(int index, uint64_t connection,
                               std::vector<StreamFrame<FromWorker>> frames) {
  Event event(*this);
  for (StreamFrame<FromWorker>& frame : frames) OnFrame(index, connection, std::move(frame));
}

void CoordinatorCore::OnFrame(int index, uint64_t connection, StreamFrame<FromWorker> frame) {
  Worker& worker = workers_.all()[index];
  if (abandoned_ || worker.connection_number != connection || worker.stream == nullptr) return;
  // Nothing was sent to the worker on this connection, so there is nothing to answer.
  if (worker.connection == nullptr) return;
  std::vector<StreamFrame<ToWorker>> resend;
  std::optional<FromWorker> message;
  const absl::Status received = worker.stream->Receive(std::move(frame), resend, message);
  for (auto& again : resend)
    outbox_.Add([to = worker.connection, again = std::move(again)] { to->Send(again); });
  if (absl::IsDataLoss(received)) {
    outbox_.Add([to = worker.connection] { to->Close(); });
    worker.stream->Disconnect();
    worker.broken_since = worker.broken_since.value_or(clock_.Elapsed());
    return OpenSteps(worker);
  }
  if (!received.ok()) return;
  worker.last_heard = clock_.Elapsed();
  worker.broken_since.reset();
  if (message) HandleMessage(worker, *std::move(message));
}

void CoordinatorCore::OnBroken(int index, uint64_t connection) {
  Event event(*this);
  Worker& worker = workers_.all()[index];
  if (abandoned_ || worker.connection_number != connection || worker.stream == nullptr) return;
  worker.stream->Disconnect();
  const absl::Duration now = clock_.Elapsed();
  if (!worker.broken_since) worker.broken_since = now;
  if (worker.claim || now - *worker.broken_since >= options_.reconnect_limit)
    return LoseWorker(worker, "its Steps stream is broken");
  Later(absl::Milliseconds(100),
        [index, connection](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
          Worker& worker = core.workers_.all()[index];
          HitFailpoint(Failpoint::kStepsReconnect);
          if (worker.connection_number == connection && worker.stream != nullptr)
            core.OpenSteps(worker);
        });
}

void CoordinatorCore::HandleMessage(Worker& worker, FromWorker message) {
  if (auto* report = std::get_if<Report>(&message)) {
    if (!phase_.Is(Phase::kFailed)) steps_.OnReport(worker, std::move(*report));
  } else if (auto* ready = std::get_if<ResourceReady>(&message)) {
    if (absl::Status difference = passes_.NoteOpened(worker, *ready); !difference.ok())
      steps_.StoreError(std::move(difference));
  } else if (auto* wanted = std::get_if<NeedSlots>(&message)) {
    for (const auto& [variable, optimizer] : wanted->slots)
      layout_changes_.CreateSlots(variable, optimizer, RefusalOfSlots(worker.index, wanted->step));
  } else if (auto* pong = std::get_if<Pong>(&message)) {
    worker.pong = std::move(*pong);
    if (++worker.pongs > worker.claim_pings && worker.claim) worker.claim->answered = true;
  } else if (std::holds_alternative<Draining>(message)) {
    worker.leaving = true;
  } else if (const auto* held = std::get_if<Held>(&message)) {
    OnHeld(worker, held->number);
  }
}

// A step fails if its slots cannot be made. Its worker is told to drop the step, and the
// cancellation that it then reports becomes this error.
StatusCallback CoordinatorCore::RefusalOfSlots(int worker, EntryId id) {
  return [weak = weak_from_this(), worker, id](const absl::Status& made) {
    const auto self = weak.lock();
    if (made.ok() || self == nullptr) return;
    self->Guarded([worker, id, made](CoordinatorCore& core)
                      DIVVY_REQUIRES(core.mu_) { core.steps_.Refuse(worker, id, made); })();
  };
}

// ---- lost workers ----

// Time in which the worker waits for a ps does not count if that ps does not answer the coordinator
// either, because the wait ends when the ps returns. It counts half if the ps does answer the
// coordinator. The ps may be slow then, but the worker may also be cut off from the ps, or lie, and
// it must not keep the step for ever.
absl::Duration CoordinatorCore::Counted(const Pong& pong, absl::Duration passed) const {
  if (!pong.blocked_on_ps) return passed;
  const int ps = *pong.blocked_on_ps;
  if (ps < servers_.size() && !servers_.Serves(ps)) return absl::ZeroDuration();
  return passed / 2;
}

void CoordinatorCore::CheckWorker(Worker& worker, absl::Duration now) {
  if (worker.state == Worker::State::kDialing) return;
  if (now - worker.last_heard > options_.worker_silence)
    return LoseWorker(worker, absl::StrCat("it has sent nothing for ",
                                           absl::FormatDuration(now - worker.last_heard)));
  if (worker.broken_since && now - *worker.broken_since > options_.reconnect_limit)
    return LoseWorker(worker, "its Steps stream is broken");
  if (worker.leaving && worker.in_flight.empty()) return LoseWorker(worker, "it has left");
  worker.run_time = worker.in_flight.empty()
                        ? absl::ZeroDuration()
                        : worker.run_time + Counted(worker.pong, absl::Seconds(1));
  if (worker.run_time >= absl::Seconds(1)) steps_.RecallWaiting(worker);
  if (worker.run_time > options_.step_deadline + absl::Seconds(10))
    return LoseWorker(worker, "a step has run more than 10 s past --step_deadline");
  if (worker.run_time > options_.step_deadline) {
    worker.in_flight.front()->overran = true;
    workers_.Send(worker, CancelSteps{{worker.in_flight.front()->id}});
  }
  PingWorker(worker);
}

void CoordinatorCore::LoseWorker(Worker& worker, absl::string_view why) {
  if (worker.state == Worker::State::kDialing) return;
  workers_.Fence(worker, why, servers_.next_sync());
  passes_.WorkerGone(worker.index);
  // The Sync of the fence also asks the servers which steps of the worker they have applied.
  WantSync();
  if (!RuleHolds(Rule::kWaitForFence)) {
    const std::vector<FenceWait> fences = workers_.fences();
    workers_.DropFences();
    for (const FenceWait& fence : fences) FinishFence(fence);
  }
  if (!worker.leaving) AttachWorkerLater(worker);
  writes_.GiveUpHold();
  checkpoint_maker_.WorkersChanged();
}

void CoordinatorCore::FinishFence(const FenceWait& fence) {
  HitFailpoint(Failpoint::kFencedBeforeRequeue);
  // Each step goes to the head of the queue. Beginning with the last step keeps the order of
  // dispatch.
  for (auto step = fence.steps.rbegin(); step != fence.steps.rend(); ++step)
    steps_.OnFenced(*step, fence.worker);
}

}  // namespace divvy
