// The program's calls and the servers' answers about layout changes (layout_changes.h).
#include <utility>

#include "coordinator/core/coordinator_core.h"

namespace divvy {

std::shared_ptr<const Layout> CoordinatorCore::layout() const {
  MutexLock lock(mu_);
  return layout_plan_.layout();
}

void CoordinatorCore::CreateVariable(VariableSpec spec, std::optional<Colocation> with,
                                     StatusCallback done) {
  Event event(*this);
  if (abandoned_) return;
  absl::Status valid = phase_.error();
  if (valid.ok()) valid = Validate(spec);
  if (!valid.ok()) return outbox_.Add([done, valid] { done(valid); });
  const VariableId id = NewVariableId();
  layout_changes_.AwaitNumber(id, std::move(done));
  PutThen({stored_.row()},
          [spec = std::move(spec), with = std::move(with), id](CoordinatorCore& core)
              DIVVY_REQUIRES(core.mu_) { core.layout_changes_.NumberStored(spec, with, id); });
}

// A resize waits for the steps in flight. So layout changes may begin as long as steps are in
// flight, because these steps may need them.
bool CoordinatorCore::MayChangeLayout() const {
  if (ResizeWaits() && steps_.in_flight() == 0) return false;
  return MayAttachWorkers() && !checkpoint_maker_.holding();
}

void CoordinatorCore::CreateShardsAt(int ps) { SendShards(servers_[ps]); }

void CoordinatorCore::SendShards(Ps& ps) {
  std::optional<CreateShardsRequest> request = layout_changes_.CreateRequestFor(ps.index);
  if (!request) return;
  request->fence = FenceFor(ps.incarnation);
  CallPs(ps, *std::move(request), &CoordinatorCore::OnShards);
}

void CoordinatorCore::OnShards(Ps& ps, const absl::StatusOr<LayoutReply>& answer) {
  if (!layout_changes_.AwaitsCreated()) return;
  const Reason reason = ReasonOf(answer.status());
  const bool is_refused = reason == Reason::kMemoryLimit || reason == Reason::kInvalid;
  if (!answer.ok() && !is_refused)
    return RetryPs(ps, answer.status(), &CoordinatorCore::SendShards);
  servers_.NoteAnswer(ps);
  layout_changes_.OnCreated(ps.index, answer.status());
}

void CoordinatorCore::DeleteShardsAt(int ps) { SendUndo(servers_[ps]); }

void CoordinatorCore::SendUndo(Ps& ps) {
  std::optional<DeleteShardsRequest> request = layout_changes_.DeleteRequestFor(ps.index);
  if (!request) return;
  request->fence = FenceFor(ps.incarnation);
  CallPs(ps, *std::move(request), &CoordinatorCore::OnUndone);
}

void CoordinatorCore::OnUndone(Ps& ps, const absl::StatusOr<LayoutReply>& answer) {
  if (!layout_changes_.AwaitsDeleted()) return;
  if (!answer.ok()) return RetryPs(ps, answer.status(), &CoordinatorCore::SendUndo);
  layout_changes_.OnDeleted(ps.index);
}

void CoordinatorCore::OnShardsMade(uint64_t version, const LayoutChanges::Shards& shards) {
  recovery_.log().AddShards(version, shards);
  recovery_.GiveUpFullLog();
}

}  // namespace divvy
