// The calls to parameter servers: checking which process answers, Attach, Load and Sync, and the
// treatment of servers that do not answer.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/refusals.h"
#include "coordinator/core/table_reports.h"
#include "protocol/request_check.h"

namespace divvy {
namespace {

// Longer than a ps takes to notice that no coordinator calls it.
constexpr absl::Duration kLeftAlone = absl::Seconds(10);

absl::Status OtherLayout(int ps, uint64_t loaded, uint64_t wanted) {
  return absl::InternalError(
      absl::StrCat("ps ", ps, " has loaded another layout of the variables (", absl::Hex(loaded),
                   ", not ", absl::Hex(wanted), "): run the same version of Divvy in every task"));
}

}  // namespace

// ---- attach and load ----

void CoordinatorCore::AttachPs(Ps& ps) {
  const auto* const attaching = phase_.Get<JobPhase::Attaching>();
  if (ps.attached || ps.client == nullptr || attaching == nullptr || !attaching->epoch_durable)
    return;
  ++ps.tries;
  CallPs(ps, PsAttachRequest{FenceFor(ps.incarnation), kOwnProtocol, ps.index},
         &CoordinatorCore::OnPsAttached);
}

void CoordinatorCore::OnPsAttached(Ps& ps, const absl::StatusOr<PsAttachReply>& reply) {
  if (ps.attached || !phase_.Is(Phase::kAttaching)) return;
  const Reason reason = ReasonOf(reply.status());
  // Another coordinator may have the same epoch because its store was lost, or because it attaches
  // at the same time. Then the higher epoch decides. In a rewind there is no doubt: the other
  // coordinator has taken over.
  if (reason == Reason::kStaleEpoch || reason == Reason::kSecondCoordinator) {
    const Epoch said = DetailOf(reply.status()).epoch;
    if (!IsPlausible(said, stored_.row().epoch) && RuleHolds(Rule::kEpochsArePlausible))
      return FailJob(ImplausibleEpoch(ps.index, ps.address, said));
    return recovery_.rewind() != nullptr ? FailJob(WithRemedy(reply.status())) : RestartEpoch(said);
  }
  // Another process answers. It has no state yet.
  if (reason == Reason::kWrongIncarnation) {
    ps.incarnation = Incarnation();
    ps.is_lost = true;
  }
  if (!reply.ok()) return RetryPs(ps, reply.status(), &CoordinatorCore::AttachPs);
  if (reply->without_checkpoints && options_.checkpoints != nullptr) {
    // This ps gets no calls for a while. So it registers again, and the reply contains the refusal.
    servers_.NoteSilent(ps, WithoutCheckpoints(ps.index, ps.address).message());
    return LaterAt(ps, kLeftAlone, &CoordinatorCore::AttachPs);
  }
  servers_.NoteAttached(ps);
  ps.incarnation = reply->incarnation;
  ps.max_commit_bytes = reply->max_commit_bytes;
  ps.attach_reply = *reply;
  ps.claim.reset();
  servers_.NoteAnswer(ps);
  MaybeLoad();
}

void CoordinatorCore::LoadPs(Ps& ps) {
  if (ps.ready || !phase_.Is(Phase::kLoading)) return;
  LoadRequest request;
  request.fence = FenceFor(ps.incarnation);
  request.layout_version = layout_plan_.layout()->version();
  request.layout_hash = layout_plan_.layout()->hash();
  request.horizon = MakeHorizon();
  if (origin_.is_adopting()) {
    request.from = LoadRequest::From::kKeep;
    request.expected_lineage = stored_.row().lineage;
    // The layout version that this ps has. Not every change of the layout touches every ps, so the
    // version may be older than the current one.
    request.layout_version = ps.attach_reply.layout_version;
    request.layout_hash = ps.attach_reply.layout_hash;
  } else if (checkpoint_maker_.newest()) {
    request.from = LoadRequest::From::kCheckpoint;
    request.checkpoint = *checkpoint_maker_.newest();
    request.job_seed = options_.job_seed;
    request.shards = layout_plan_.ToLoad(ps.index);
  }
  const uint64_t layout_hash = request.layout_hash;
  CallPs(ps, std::move(request), &CoordinatorCore::OnPsLoaded, layout_hash);
}

void CoordinatorCore::OnPsLoaded(Ps& ps, const absl::StatusOr<LoadReply>& reply,
                                 uint64_t layout_hash) {
  if (!phase_.Is(Phase::kLoading) || ps.ready) return;
  if (reply.ok() && !reply->loading && reply->layout_hash != layout_hash) {
    return OnPsLoaded(ps, OtherLayout(ps.index, reply->layout_hash, layout_hash), layout_hash);
  }
  if (!reply.ok()) {
    const Reason reason = ReasonOf(reply.status());
    if (recovery_.rewind() != nullptr &&
        (reason == Reason::kCheckpointCorrupt || reason == Reason::kCheckpointMissing))
      return FailBase(reply.status());
    if (FallBack(reply.status())) return;
    return RetryPs(ps, reply.status(), &CoordinatorCore::LoadPs);
  }
  servers_.NoteAnswer(ps);
  ps.loaded_bytes = reply->loaded_bytes;
  ps.bytes_to_load = reply->total_bytes;
  if (reply->loading) return LoadPs(ps);
  HitFailpoint(Failpoint::kLoadBetweenServers);
  ps.ready = true;
  if (servers_.AllReady()) MakeDeclared();
}

// ---- registration ----

absl::Status CoordinatorCore::AdmitPs(const RegisterRequest& request) {
  if (resizing_.Admit(request.index, request.address)) return absl::OkStatus();
  Ps& ps = servers_[request.index];
  if (!ps.attached) {
    // An address from TF_CONFIG that does not answer is replaced by the address that a process
    // registers with.
    if (ps.client == nullptr || (ps.silent_since && ps.address != request.address))
      servers_.Dial(ps, request.address);
    AttachPs(ps);
    return absl::OkStatus();
  }
  if (ps.incarnation == request.incarnation) return absl::OkStatus();
  if (!ps.claim || ps.claim->by != request.incarnation) {
    ps.claim = Claim{request.incarnation, request.address, clock_.Elapsed()};
    ProbePs(ps);
  }
  if (ps.claim->answered) return RunsAlready(request, ps.address);
  return MayRunAlready(request, ps.address);
}

// Asks the known process with a call that changes nothing: an Attach of the epoch that it is in.
void CoordinatorCore::ProbePs(Ps& ps) {
  CallPs(ps, PsAttachRequest{FenceFor(ps.incarnation), kOwnProtocol, ps.index},
         &CoordinatorCore::OnProbed, ps.incarnation);
}

void CoordinatorCore::ProbePsAgain(Ps& ps) {
  if (ps.claim && !ps.claim->answered) ProbePs(ps);
}

void CoordinatorCore::OnProbed(Ps& ps, const absl::StatusOr<PsAttachReply>& reply,
                               Incarnation asked) {
  if (ps.incarnation != asked || !ps.claim) return;
  const absl::Status& answer = reply.status();
  const Reason reason = ReasonOf(answer);
  // No process listens at the known address, and the new process now does. If the new one has
  // another address, one failed connection proves nothing.
  const bool refused =
      absl::IsUnavailable(answer) && reason == Reason::kNone && ps.claim->address == ps.address;
  if (reason == Reason::kWrongIncarnation || refused ||
      clock_.Elapsed() - ps.claim->since > options_.worker_silence)
    return PsGone(ps);
  // A process that is starting or ending does not give its incarnation.
  const bool lives = answer.ok() || (reason != Reason::kNone && reason != Reason::kNotReady);
  if (lives) {
    ps.claim->answered = true;
  } else {
    LaterAt(ps, absl::Milliseconds(200), &CoordinatorCore::ProbePsAgain);
  }
}

// If no server has state of this epoch yet, another process just takes the place of the former one.
void CoordinatorCore::PsGone(Ps& ps) {
  if (!BeforeRunning()) return PsLost(ps, "restarted");
  // A server that crashes at every load because its memory is too small must not be restarted for
  // ever.
  if ((recovery_.rewind() != nullptr || phase_.Is(Phase::kLoading)) &&
      RuleHolds(Rule::kLossWhileLoadingCounts)) {
    if (const absl::Status may = recovery_.CountRewind(
            absl::StrCat(ps.Text(), " restarted before it had loaded its variables"));
        !may.ok())
      return FailJob(may);
  }
  // MakeDeclared begins it again.
  if (phase_.Is(Phase::kLoading)) layout_changes_.CancelMakeAll();
  const bool was_loading = phase_.Is(Phase::kLoading);
  phase_.Reattach();
  ps.attached = ps.ready = false;
  ps.is_lost = true;
  ps.incarnation = Incarnation();
  if (ps.claim) servers_.Dial(ps, ps.claim->address);
  ps.claim.reset();
  if (origin_.is_adopting()) return TakeBackAdoption();
  // The lost process may have been told to load. If it still lives, its state must not be mistaken
  // for the state of the new process. A new epoch distinguishes the two.
  was_loading ? RestartEpoch(stored_.row().epoch) : AttachPs(ps);
}

// ---- the watch on parameter servers ----

std::optional<absl::Duration> CoordinatorCore::OnPsFailure(Ps& ps, const absl::Status& error) {
  if (phase_.IsFinal()) return std::nullopt;
  const Reason reason = ReasonOf(error);
  if (reason == Reason::kWrongIncarnation && !phase_.Is(Phase::kAttaching)) {
    PsGone(ps);
    return std::nullopt;
  }
  // A parameter server may not end the job: the program would treat this error as the end of its
  // own job.
  if (reason == Reason::kJobOver) {
    FailJob(absl::InternalError(
        absl::StrCat(ps.Text(), " answered that the job is over, and it is not: ", error.message(),
                     ". Start that parameter server again")));
    return std::nullopt;
  }
  if (!IsTransient(error) && reason != Reason::kWrongIncarnation) {
    FailJob(WithRemedy(error));
    return std::nullopt;
  }
  servers_.NoteSilent(ps, error.message());
  return ps.backoff.Next();
}

void CoordinatorCore::PsLost(Ps& ps, absl::string_view how) {
  if (phase_.IsEndCertain()) return;
  const std::string lost = absl::StrCat(ps.Text(), " ", how, ": the variables it held are gone");
  if (!Replays()) return FailJob(MakeError(Reason::kPsLost, lost + RemedyOfLoss()));
  if (ps.claim) servers_.Dial(ps, ps.claim->address);
  ps.claim.reset();
  ps.is_lost = true;
  ps.incarnation = Incarnation();
  Rewind(lost);
}

std::string CoordinatorCore::RemedyOfLoss() const {
  if (!checkpoint_maker_.newest())
    return options_.checkpoints == nullptr
               ? " and this job keeps no checkpoints (--checkpoint_dir). Start the program again."
               : ", and no checkpoint has been made yet. Start the program again.";
  return absl::StrCat(". Start the program again: it goes on from ",
                      checkpoint_maker_.newest()->name(), ", ", checkpoint_maker_.durable_steps(),
                      " steps, if it calls RestoreLatest.");
}

void CoordinatorCore::CheckPs(const Ps& ps, absl::Duration now) {
  if (!ps.silent_since || now - *ps.silent_since <= options_.ps_timeout) return;
  const std::string silence =
      absl::StrCat("did not answer for ", absl::ToInt64Seconds(now - *ps.silent_since), " s (",
                   ps.last_error, ")");
  if (!BeforeRunning() || recovery_.rewind() != nullptr)
    return FailJob(
        MakeError(Reason::kPsLost, absl::StrCat(ps.Text(), " ", silence, RemedyOfLoss())));
  FailJob(MakeError(
      Reason::kPsLost,
      absl::StrCat(ps.Text(), " ", silence, ". Start it, or give it longer with --ps_timeout")));
}

uint64_t CoordinatorCore::WantSync() {
  const uint64_t wanted = servers_.next_sync();
  std::optional<SyncRequest> sync;
  for (Ps& ps : servers_) {
    if (!MaySync(ps)) continue;
    if (!sync) sync = MakeSync();
    CallSync(ps, *sync);
  }
  return wanted;
}

bool CoordinatorCore::MaySync(Ps& ps) {
  if (!ps.ready || phase_.IsFinal()) return false;
  // OnSynced sends the next Sync when the one in flight is answered.
  if (ps.sync_outstanding) ps.sync_wanted = true;
  return !ps.sync_outstanding;
}

void CoordinatorCore::SendSync(Ps& ps) {
  if (MaySync(ps)) CallSync(ps, MakeSync());
}

void CoordinatorCore::CallSync(Ps& ps, SyncRequest request) {
  ps.sync_outstanding = true;
  request.fence = FenceFor(ps.incarnation);
  request.seq = servers_.TakeSync();
  ids_.Synced(request.seq, request.horizon.next);
  CallPs(ps, std::move(request), &CoordinatorCore::OnSynced);
}

SyncRequest CoordinatorCore::MakeSync() const {
  SyncRequest request;
  request.horizon = MakeHorizon();
  for (const auto& [session, worker] : workers_.Sessions()) {
    request.sessions.push_back(session);
    request.workers.push_back(worker);
  }
  for (const FenceWait& fence : workers_.fences()) {
    for (const auto& step : fence.steps) request.query.push_back(step->id);
  }
  return request;
}

void CoordinatorCore::OnSynced(Ps& ps, const absl::StatusOr<SyncReply>& reply) {
  ps.sync_outstanding = false;
  if (!reply.ok()) return RetryPs(ps, reply.status(), &CoordinatorCore::SendSync);
  servers_.NoteAnswer(ps);
  if (reply->draining && MayAttachWorkers()) return PsLost(ps, "was asked to end");
  ps.tables = reply->tables;
  ps.loads.Note(reply->loads, clock_.Elapsed());
  ps.memory_limit_bytes = reply->memory_limit_bytes;
  // Before the reply counts as an acknowledgement, so that a job does not end well with it.
  if (const absl::Status full = CheckRoom(*layout_plan_.layout(), ps.index, ps.tables); !full.ok())
    return FailJob(full);
  ps.acked_seq = std::max(ps.acked_seq, reply->seq);
  for (const FenceWait& fence : workers_.NoteFences(ps.index, servers_.size(), *reply))
    FinishFence(fence);
  ids_.Acked(servers_.Acked());
  if (ps.sync_wanted) {
    ps.sync_wanted = false;
    SendSync(ps);
  }
  if (phase_.Is(Phase::kEnding)) FinishEnding();
}

Horizon CoordinatorCore::MakeHorizon() const {
  Horizon horizon;
  horizon.next = recovery_.next();
  horizon.finished_steps =
      static_cast<uint64_t>(steps_.totals().finished_steps - recovery_.NumMissing());
  for (const auto& [id, step] : steps_.open()) {
    if (id < horizon.next &&
        (step->state == Step::State::kQueued || RuleHolds(Rule::kOpenContainsInFlight)))
      horizon.open.push_back(id);
  }
  for (const auto& [id, write] : writes_.open()) {
    if (id < horizon.next) horizon.open.push_back(id);
  }
  for (const auto& [lost, id] : steps_.lost_ids()) {
    if (id < horizon.next) horizon.open.push_back(id);
  }
  std::sort(horizon.open.begin(), horizon.open.end());
  if (RuleHolds(Rule::kHorizonHasPasses)) horizon.passes = passes_.ProgressNow(steps_.OpenLeases());
  return horizon;
}

}  // namespace divvy
