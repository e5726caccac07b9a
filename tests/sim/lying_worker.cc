#include "tests/sim/lying_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy::sim {
namespace {

constexpr size_t kRemembered = 20;  // messages of each kind that it may refer to later

template <typename T>
void Remember(std::deque<T>& all, T one) {
  all.push_back(std::move(one));
  if (all.size() > kRemembered) all.pop_front();
}

constexpr uint32_t kNobodysVariable = 1'000'000;  // in no layout, so commits to it are refused

}  // namespace

class LyingWorker::Listener : public StreamListener<ToWorker> {
 public:
  Listener(std::weak_ptr<LyingWorker> worker,
           std::shared_ptr<StreamConnection<FromWorker>> connection)
      : worker_(std::move(worker)), connection_(std::move(connection)) {}
  void OnFrames(std::vector<StreamFrame<ToWorker>> frames) override {
    const auto worker = worker_.lock();
    if (worker == nullptr) return;
    for (StreamFrame<ToWorker>& frame : frames) worker->OnFrame(connection_, std::move(frame));
  }
  void OnBroken() override {
    const auto worker = worker_.lock();
    if (worker != nullptr && worker->session_ != nullptr &&
        worker->session_->connection == connection_)
      worker->session_->stream.Disconnect();
  }

 private:
  const std::weak_ptr<LyingWorker> worker_;
  const std::shared_ptr<StreamConnection<FromWorker>> connection_;
};

LyingWorker::LyingWorker(Options options, SimSite& site, std::shared_ptr<Node> node)
    : options_(std::move(options)),
      site_(site),
      node_(std::move(node)),
      dialer_(site, node_),
      coordinator_(dialer_.Coordinator()),
      random_(options_.seed),
      any_(MixSeeds(options_.seed, 1)),
      incarnation_(random_.Next() | 1) {}

void LyingWorker::Later(absl::Duration delay, std::function<void()> what) {
  node_->executor->PostAfter(delay, [weak = weak_from_this(), what = std::move(what)] {
    if (weak.lock() != nullptr) what();
  });
}

void LyingWorker::Act() {
  if (attached_ == std::nullopt || random_.Chance(0.3)) Register();
  if (random_.Chance(0.5)) Say(AnyWord());
  if (random_.Chance(0.3)) AskServer();
  Later(absl::Milliseconds(20 + static_cast<int64_t>(random_.Below(1'000))), [this] { Act(); });
}

// ---- registration ----

void LyingWorker::Register() {
  RegisterRequest request{Role::kWorker, options_.index, incarnation_, options_.address};
  if (random_.Chance(0.4)) {
    const auto other = any_.Make<RegisterRequest>();
    if (random_.Chance(0.3)) request.index += static_cast<int>(random_.Below(4));
    if (random_.Chance(0.3)) request.incarnation = other.incarnation;
    if (random_.Chance(0.2)) request.address = other.address;
    if (random_.Chance(0.2) && !options_.addresses_of_others.empty()) {
      request.address =
          options_.addresses_of_others[random_.Below(options_.addresses_of_others.size())];
    }
    if (random_.Chance(0.3)) {  // claims to be a task that does not exist
      request.index += static_cast<int>(random_.Below(65'536 - request.index));
      request.address = other.address;
    }
    if (random_.Chance(0.2)) request.replicas = other.replicas;
    if (random_.Chance(0.1)) request.cluster = other.cluster;
    if (random_.Chance(0.1)) request.protocol = other.protocol;
    if (random_.Chance(0.1)) request.program = other.program;
    if (random_.Chance(0.1)) incarnation_ = any_.MakeId<Incarnation>();
  }
  coordinator_->Call(request, [](const absl::StatusOr<RegisterReply>&) {});
}

// Refuses for any reason, with an old epoch, a future one, or one that cannot be.
absl::Status LyingWorker::Refusal() {
  ErrorDetail detail;
  constexpr Reason kOften[] = {Reason::kStaleEpoch, Reason::kWrongJob, Reason::kSecondCoordinator};
  detail.reason = random_.Chance(0.5)
                      ? kOften[random_.Below(std::size(kOften))]
                      : static_cast<Reason>(random_.Below(static_cast<uint64_t>(kLastReason) + 1));
  detail.role = Role::kWorker;
  detail.index = options_.index;
  const uint64_t now = attached_ ? attached_->fence.epoch.value() : 0;
  detail.epoch = random_.Chance(0.5) ? any_.MakeId<Epoch>()
                                     : Epoch(now + random_.Below(5) - std::min<uint64_t>(now, 2));
  if (random_.Chance(0.2)) detail.entry = any_.MakeId<EntryId>();
  detail.user = random_.Chance(0.1);
  return MakeError(detail, absl::StrCat("worker ", options_.index, ": so it says"));
}

void LyingWorker::Attach(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) {
  attached_ = request;
  if (options_.only_refuses || random_.Chance(0.3)) {
    if (random_.Chance(0.1)) return;  // never answers
    return Later(
        absl::Milliseconds(static_cast<int64_t>(random_.Below(random_.Chance(0.1) ? 900 : 20))),
        [done, refusal = Refusal()] { done(refusal); });
  }
  WorkerAttachReply reply{incarnation_};
  if (random_.Chance(0.3)) {
    const auto other = any_.Make<WorkerAttachReply>();
    if (random_.Chance(0.5)) reply.incarnation = other.incarnation;
    if (random_.Chance(0.5)) reply.slots = other.slots;
    if (random_.Chance(0.1)) reply.replicas = other.replicas;
    if (random_.Chance(0.1)) reply.program = other.program;
  }
  session_ = std::make_unique<Session>(request.fence.session);
  servers_.clear();
  for (const PsAddress& ps : request.view) servers_[ps.index] = dialer_.ParameterServer(ps.address);
  done(std::move(reply));
}

// ---- the Steps stream ----

std::shared_ptr<StreamListener<ToWorker>> LyingWorker::Accept(
    std::shared_ptr<StreamConnection<FromWorker>> connection) {
  return std::make_shared<Listener>(weak_from_this(), std::move(connection));
}

void LyingWorker::OnFrame(const std::shared_ptr<StreamConnection<FromWorker>>& connection,
                          StreamFrame<ToWorker> frame) {
  if (session_ == nullptr || frame.session != session_->stream.session()) return;
  if (session_->connection != connection) {
    session_->connection = connection;
    connection->Send(session_->stream.Connect());
  }
  std::vector<StreamFrame<FromWorker>> resend;
  std::optional<ToWorker> message;
  const absl::Status received = session_->stream.Receive(std::move(frame), resend, message);
  for (StreamFrame<FromWorker>& kept : resend) connection->Send(std::move(kept));
  if (!received.ok()) return connection->Close();
  if (message) AnswerTo(*message);
}

void LyingWorker::AnswerTo(const ToWorker& message) {
  if (const auto* dispatch = std::get_if<Dispatch>(&message)) {
    given_.insert(dispatch->step);
    for (const InputLease& lease : dispatch->inputs) {
      site_.Trace(absl::StrCat(options_.address, " is given step ", dispatch->step.value(),
                               " with ", lease.count, " positions from ", lease.first));
    }
    Remember(steps_, *dispatch);
    SayLater(ReportOf(*dispatch), /*never=*/0.05);
  } else if (const auto* make = std::get_if<MakeResource>(&message)) {
    Remember(iterators_, make->iterator);
    SayLater(ReadyOf(make->iterator), /*never=*/0.05);
  } else if (const auto* hold = std::get_if<Hold>(&message)) {
    Remember(holds_, hold->number);
    SayLater(Held{random_.Chance(0.8) ? hold->number : any_.Number()}, /*never=*/0.2);
  } else if (std::holds_alternative<Ping>(message)) {
    SayLater(any_.Make<Pong>(), /*never=*/0.1);
  } else if (const auto* cancel = std::get_if<CancelSteps>(&message)) {
    for (const Dispatch& step : steps_) {
      if (std::count(cancel->steps.begin(), cancel->steps.end(), step.step) > 0)
        SayLater(ReportOf(step), /*never=*/0.2);
    }
  }
}

void LyingWorker::SayLater(FromWorker word, double never) {
  if (random_.Chance(never)) return;
  const absl::Duration delay =
      absl::Milliseconds(static_cast<int64_t>(random_.Below(random_.Chance(0.1) ? 4'000 : 20)));
  if (random_.Chance(0.1)) Later(2 * delay, [this, word] { Say(word); });  // sends it twice
  Later(delay, [this, word = std::move(word)] { Say(word); });
}

void LyingWorker::Say(FromWorker word) {
  if (session_ == nullptr || session_->connection == nullptr) return;
  if (std::holds_alternative<ResourceReady>(word)) site_.OnFalseEnd();
  if (auto* report = std::get_if<Report>(&word)) {
    std::string ended;
    for (const EndedInput& end : report->ended)
      absl::StrAppend(&ended, " ", end.position.value_or(-1));
    site_.Trace(absl::StrCat(options_.address, " says of step ", report->step.value(), ", attempt ",
                             report->attempt, ": outcome ", static_cast<int>(report->outcome),
                             ended.empty() ? "" : ", ends at", ended));
    if (report->outcome == StepOutcome::kOk && given_.count(report->step) > 0)
      site_.OnFalselyDone(report->step);
    if (report->outcome == StepOutcome::kEndOfData || !report->ended.empty()) site_.OnFalseEnd();
  }
  std::optional<StreamFrame<FromWorker>> frame = session_->stream.Send(std::move(word));
  if (!frame) return;
  if (random_.Chance(0.01)) frame->acknowledged = any_.Number();
  if (random_.Chance(0.01)) frame->number = any_.Number() | 1;
  if (random_.Chance(0.01)) frame->session = any_.MakeId<SessionId>();
  session_->connection->Send(*std::move(frame));
}

// ---- false messages ----

// An earlier attempt may have been half applied. A report that the step will not be completed would
// then end a job that does not replay, so such reports are not made without `says_applied`.
StepOutcome LyingWorker::AnyOutcome(uint32_t attempt) {
  const uint64_t kind = random_.Below(100);
  if (!options_.says_applied && attempt > 1)
    return kind < 50 ? StepOutcome::kCancelled : StepOutcome::kSystem;
  if (options_.says_done && kind < 30) return StepOutcome::kOk;
  if (options_.says_failed && kind < 40) return StepOutcome::kFailed;
  return kind < 60   ? StepOutcome::kCancelled
         : kind < 80 ? StepOutcome::kEndOfData
                     : StepOutcome::kSystem;
}

Report LyingWorker::ReportOf(const Dispatch& dispatch) {
  auto report = any_.Make<Report>();
  report.step = dispatch.step;
  if (random_.Chance(0.9)) report.attempt = dispatch.attempt;
  report.outcome = AnyOutcome(dispatch.attempt);
  if (report.outcome != StepOutcome::kOk) report.value = Nest();
  report.error = report.outcome == StepOutcome::kOk ? absl::OkStatus() : Refusal();
  report.participants.clear();
  for (uint64_t n = options_.says_applied ? random_.Below(3) : 0; n > 0; --n)
    report.participants.push_back(random_.Chance(0.9) ? static_cast<int>(random_.Below(4))
                                                      : any_.Index());
  for (const InputLease& lease : dispatch.inputs) {
    if (random_.Chance(0.5)) continue;
    EndedInput ended{lease.iterator, std::nullopt};
    if (random_.Chance(0.9))
      ended.position = random_.Chance(0.8)
                           ? lease.first + static_cast<int64_t>(random_.Below(lease.count + 1))
                           : any_.Count();
    report.ended.push_back(ended);
  }
  return report;
}

// A report on a step of its own, on another worker's step, or on a step that does not exist yet.
Report LyingWorker::AnyReport() {
  if (!steps_.empty() && random_.Chance(0.7)) return ReportOf(steps_[random_.Below(steps_.size())]);
  auto report = any_.Make<Report>();
  if (!steps_.empty())
    report.step = EntryId(steps_.back().step.value() + random_.Below(6) -
                          std::min<uint64_t>(2, steps_.back().step.value()));
  if (random_.Chance(0.5)) report.attempt = 1;
  const bool of_its_own = given_.count(report.step) > 0;
  if (of_its_own) report.outcome = StepOutcome::kSystem;
  if (report.outcome != StepOutcome::kOk) report.error = Refusal();
  return report;
}

ResourceReady LyingWorker::ReadyOf(ResourceId iterator) {
  auto ready = any_.Make<ResourceReady>();
  ready.iterator = iterator;
  if (random_.Chance(0.8)) ready.error = absl::OkStatus();
  if (random_.Chance(0.5)) ready.elements = static_cast<int64_t>(random_.Below(60));
  return ready;
}

// Slots that honest steps use, and impossible ones.
NeedSlots LyingWorker::AnySlots() {
  auto need = any_.Make<NeedSlots>();
  if (!steps_.empty() && random_.Chance(0.7)) need.step = steps_[random_.Below(steps_.size())].step;
  for (auto& [variable, optimizer] : need.slots) {
    if (random_.Chance(0.5)) continue;
    constexpr const char* kNames[] = {"late", "adam", "v0", "cells"};
    variable = kNames[random_.Below(std::size(kNames))];
    optimizer = random_.Chance(0.5) ? Optimizer(Momentum{1.0, 1}) : Optimizer(Adagrad{0.001, 0});
  }
  return need;
}

FromWorker LyingWorker::AnyWord() {
  const uint64_t kind = random_.Below(100);
  if (kind < 40) return AnyReport();
  if (kind < 60)
    return ReadyOf(iterators_.empty() || random_.Chance(0.3)
                       ? any_.MakeId<ResourceId>()
                       : iterators_[random_.Below(iterators_.size())]);
  if (kind < 70) return AnySlots();
  if (kind < 80) return any_.Make<Pong>();
  if (kind < 98)
    return Held{holds_.empty() || random_.Chance(0.3) ? any_.Number()
                                                      : holds_[random_.Below(holds_.size())]};
  return Draining{};
}

// ---- requests to parameter servers ----

Fence LyingWorker::AnyFence(Incarnation target) {
  Fence fence = attached_->fence;
  fence.target = target;
  if (random_.Chance(0.5)) return fence;
  const auto other = any_.Make<Fence>();
  if (random_.Chance(0.2)) fence.job = other.job;
  if (random_.Chance(0.2))
    fence.epoch = random_.Chance(0.5) ? other.epoch : Epoch(fence.epoch.value() + 1);
  if (random_.Chance(0.2)) fence.coordinator = other.coordinator;
  if (random_.Chance(0.5))
    fence.session =
        random_.Chance(0.5)
            ? other.session
            : SessionId(fence.session.value() + 1 - static_cast<uint32_t>(random_.Below(3)));
  if (random_.Chance(0.2)) fence.target = other.target;
  return fence;
}

void LyingWorker::AskServer() {
  if (!attached_ || attached_->view.empty()) return;
  const PsAddress& ps = attached_->view[random_.Below(attached_->view.size())];
  const auto client = servers_.find(ps.index);
  if (client == servers_.end()) return;
  if (random_.Chance(0.5)) {
    auto pull = any_.Make<PullRequest>();
    pull.fence = AnyFence(ps.incarnation);
    return client->second->Call(std::move(pull), [](const absl::StatusOr<PullReply>&) {});
  }
  auto commit = any_.Make<CommitRequest>();
  commit.fence = AnyFence(ps.incarnation);
  commit.kind = EntryKind::kStep;
  if (!steps_.empty() && random_.Chance(0.8))
    commit.entry = steps_[random_.Below(steps_.size())].step;
  commit.participants = std::max(1, commit.participants);
  if (commit.parts.empty()) commit.parts.push_back(any_.Make<CommitPart>());
  for (CommitPart& part : commit.parts)
    part.shard.variable = VariableId(kNobodysVariable + static_cast<uint32_t>(random_.Below(3)));
  client->second->Call(std::move(commit), [](const absl::StatusOr<CommitReply>&) {});
}

}  // namespace divvy::sim
