// Changes the number of parameter servers, or where the shards lie (a rebalance), while the job
// goes on.
//
// 1. GATHERING: the servers that are to join register. Until all have, nothing changes. A rebalance
//    needs none.
// 2. QUIET: no step begins. Steps in flight, writes, reads and layout changes end.
// 3. SAVING: a checkpoint is made. It now holds the whole state, and the redo log is empty.
// 4. The servers that leave are told to exit. A new epoch begins, in which the remaining and the
//    new servers load the checkpoint, each its part of a new layout. This is a recovery with
//    nothing to replay.
//
// The loss of a server or the error of a step has its usual effect, and then the resize continues.
// If the checkpoint fails because of a disk, the resize ends: the number of servers stays, and
// steps run again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/load_reports.h"

namespace divvy {
namespace {

constexpr int kMostServers = 65'535;
// What the busiest server has at least to do, so that a job rebalances by itself: less is not worth
// the pause, however uneven it is.
constexpr double kLeastBytesPerSecond = 10e6;

}  // namespace

void CoordinatorCore::Resize(int num_ps, StatusCallback done) {
  Event event(*this);
  if (abandoned_) return;
  if (const absl::Status may = MayResize(num_ps); !may.ok())
    return outbox_.Add([done = std::move(done), may] { done(may); });
  if (num_ps == servers_.size())
    return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  resizing_.Begin(servers_.size(), num_ps, clock_.Elapsed(), std::move(done));
}

absl::Status CoordinatorCore::MayResize(int num_ps) const {
  RETURN_IF_ERROR(phase_.error());
  if (num_ps < 1 || num_ps > kMostServers)
    return absl::InvalidArgumentError(
        absl::StrCat("a job has 1 to ", kMostServers, " parameter servers, not ", num_ps));
  return MayChangeServers("the number of parameter servers stays", "a resize");
}

absl::Status CoordinatorCore::MayChangeServers(absl::string_view what_stays,
                                               absl::string_view change) const {
  RETURN_IF_ERROR(phase_.error());
  const auto not_now = [what_stays](absl::string_view why) {
    return absl::FailedPreconditionError(absl::StrCat(what_stays, ": ", why));
  };
  if (options_.checkpoints == nullptr)
    return not_now(
        absl::StrCat(change, " needs a checkpoint, and this job has no --checkpoint_dir"));
  if (IsDraining() || phase_.Is(Phase::kEnding) || phase_.Is(Phase::kOver))
    return not_now("the job is about to end");
  if (!resizing_.is_under_way()) return absl::OkStatus();
  const std::string under_way = resizing_.arrangement().empty()
                                    ? absl::StrCat("a resize to ", resizing_.goal())
                                    : "a rebalance";
  return not_now(
      absl::StrCat(under_way, " is under way already: wait until it is over, and ask again"));
}

void CoordinatorCore::Rebalance(ResultCallback<Rebalanced> done) {
  Event event(*this);
  if (abandoned_) return;
  if (const absl::Status may = MayChangeServers("the shards stay where they are", "a rebalance");
      !may.ok())
    return outbox_.Add([done = std::move(done), may] { done(may); });
  BeginRebalance(std::move(done));
}

void CoordinatorCore::RebalanceByItself(absl::Duration now) {
  if (options_.rebalancing != Rebalancing::kAuto || !phase_.Is(Phase::kRunning) ||
      !resizing_.schedule().WantsLook(now) || !MayChangeServers("", "").ok())
    return;
  const LoadReport load = LoadNow(*layout_plan_.layout(), servers_);
  const Balance balance = BalanceOf(*layout_plan_.layout(), load.shards, servers_.size());
  const bool counts = load.is_known && balance.busiest_bytes_per_second >= kLeastBytesPerSecond;
  if (!resizing_.schedule().Note(counts ? balance.imbalance : 1, now)) return;
  BeginRebalance([](const absl::StatusOr<Rebalanced>& done) {
    if (!done.ok())
      DIVVY_LOG(WARNING) << "--rebalance=auto: " << done.status().message();
    else if (done->changed)
      DIVVY_LOG(INFO) << "--rebalance=auto: the load of the busiest parameter server was "
                      << done->before << " times the mean, and is expected to be " << done->after;
  });
}

void CoordinatorCore::BeginRebalance(ResultCallback<Rebalanced> done) {
  LoadReport load = LoadNow(*layout_plan_.layout(), servers_);
  ArrangeOptions options = options_.rebalance;
  options.room = std::move(load.room);
  if (options.needs_known_load && (!load.is_known || !phase_.Is(Phase::kRunning)))
    return outbox_.Add([done = std::move(done)] {
      done(MakeError(Reason::kNotReady,
                     "the shards stay where they are: the load of the parameter servers is not "
                     "known yet; try again 10 seconds after steps have begun to run"));
    });
  std::optional<Arrangement> better = layout_plan_.Arrange(load.shards, options);
  if (!better) {
    const double imbalance =
        BalanceOf(*layout_plan_.layout(), load.shards, servers_.size()).imbalance;
    return outbox_.Add([done = std::move(done), imbalance] {
      done(Rebalanced{false, imbalance, imbalance, 0, 0});
    });
  }
  const Rebalanced result{true, better->before, better->after, better->moved, better->cut};
  resizing_.BeginRebalance(servers_.size(), clock_.Elapsed(), std::move(better->ps),
                           [done = std::move(done), result](const absl::Status& status) {
                             status.ok() ? done(result) : done(status);
                           });
}

// Writes of first values do not wait, because a cut waits for them.
bool CoordinatorCore::ResizeWaits() const {
  return resizing_.is_under_way() && resizing_.HaveAllJoined() && !stored_.awaits_values() &&
         phase_.Is(Phase::kRunning);
}

bool CoordinatorCore::ResizeIsQuiet() const {
  return ResizeWaits() && steps_.in_flight() == 0 && steps_.open().empty() &&
         writes_.open().empty() && !writes_.has_waiting() && open_reads_.empty() &&
         !layout_changes_.is_changing();
}

// While a checkpoint is written, the program may create a variable and write its first values.
// Steps run in the meantime (ResizeWaits), so the servers may hold a later state than the
// checkpoint.
bool CoordinatorCore::IsUnchangedSince(const CheckpointMaker::Cut& cut) const {
  if (!RuleHolds(Rule::kResizeFromAWholeCut)) return true;
  return cut.next_id == ids_.next() &&
         cut.state.layout->version() == layout_plan_.layout()->version();
}

// If a variable of the checkpoint cannot be cut for the new number of servers, nothing changes.
void CoordinatorCore::ChangeServers(const JobState& saved) {
  const std::vector<Ps> before = servers_.all();
  servers_.Resize(resizing_.goal(), resizing_.joining(), stored_.row().epoch.value() << 20);
  layout_plan_.SetNumPs(resizing_.goal());
  if (const absl::Status placed = layout_plan_.PlaceAnew(saved, NewIds(), resizing_.arrangement());
      !placed.ok()) {
    servers_.Restore(before);
    layout_plan_.SetNumPs(servers_.size());
    resizing_.Refuse(servers_.size(), placed);
    // Layout changes have waited for the resize.
    return layout_changes_.StartNext();
  }
  for (size_t index = static_cast<size_t>(servers_.size()); index < before.size(); ++index) {
    outbox_.Add([client = before[index].client,
                 request = ShutdownRequest{FenceFor(before[index].incarnation), 0}] {
      // A server that the call does not reach is refused when it registers.
      client->Call(request, [](const absl::StatusOr<ShutdownReply>&) {});
    });
  }
  const std::string text = resizing_.arrangement().empty()
                               ? absl::StrCat("the job goes on with ", servers_.size(),
                                              " parameter servers instead of ", before.size())
                               : "the job goes on with its shards arranged by load";
  Resizing::Waiting waiting = resizing_.Complete();
  outbox_.Add([text] { DIVVY_LOG(INFO) << text; });
  when_running_.push_back(std::move(waiting.done));
  for (Task& again : waiting.deferred)
    when_running_.push_back([again = std::move(again)](const absl::Status&) { again(); });
  StartRewind(text);
}

}  // namespace divvy
