// Another number of parameter servers, while the job goes on.
//
//   1. GATHERING   those that are to join register; until all have, nothing changes
//   2. QUIET       no step begins; those in flight end, and so do writes, reads and layout changes
//   3. SAVING      a checkpoint: now it holds all there is, and the redo log is empty
//   4. the servers that leave are told to end; a new epoch begins, in which the others, and those
//      that join, load the checkpoint, each what is its by a new layout: a recovery with nothing to
//      run again
//
// A server that is lost meanwhile, an error of a step: each is what it always is, and the resize
// goes on when it is over. A disk that fails the checkpoint ends it: the number stays, and steps
// run again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

constexpr int kMostServers = 65'535;

absl::Status NotNow(absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("the number of parameter servers stays: ", why));
}

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
  if (options_.checkpoints == nullptr)
    return NotNow(
        "they hand their variables on by a checkpoint, and this job has no --checkpoint_dir");
  if (IsDraining() || phase_.Is(Phase::kEnding) || phase_.Is(Phase::kOver))
    return NotNow("the job is about to end");
  if (resizing_.is_under_way())
    return NotNow(absl::StrCat("the job is on its way to ", resizing_.goal(), " of them already"));
  return absl::OkStatus();
}

// Whether what changes the servers' state has to wait. First values that a program brings are let
// through: a cut waits for them.
bool CoordinatorCore::ResizeWaits() const {
  return resizing_.is_under_way() && resizing_.HaveAllJoined() && !stored_.awaits_values() &&
         phase_.Is(Phase::kRunning);
}

bool CoordinatorCore::ResizeIsQuiet() const {
  return ResizeWaits() && steps_.in_flight() == 0 && steps_.open().empty() &&
         writes_.open().empty() && !writes_.has_waiting() && open_reads_.empty() &&
         !layout_changes_.is_changing();
}

// Whether the servers hold exactly what the checkpoint does. First values that the program brings
// are let through while it is written (ResizeWaits), and with them steps.
bool CoordinatorCore::NothingSince(const CheckpointMaker::Cut& cut) const {
  if (!RuleHolds(Rule::kResizeFromAWholeCut)) return true;
  return cut.next_id == ids_.next() &&
         cut.state.layout->version() == layout_plan_.layout()->version();
}

// The checkpoint that holds everything has been committed. One of its variables may not be cut for
// that number: then all stays as it is.
void CoordinatorCore::ChangeServers(const JobState& saved) {
  const std::vector<Ps> before = servers_.all();
  servers_.Resize(resizing_.goal(), resizing_.joining(), stored_.row().epoch.value() << 20);
  layout_plan_.SetNumPs(resizing_.goal());
  if (const absl::Status placed = layout_plan_.PlaceAnew(saved, NewIds()); !placed.ok()) {
    servers_.Restore(before);
    layout_plan_.SetNumPs(servers_.size());
    resizing_.Refuse(servers_.size(), placed);
    return layout_changes_.StartNext();  // that waited for it
  }
  for (size_t index = static_cast<size_t>(servers_.size()); index < before.size(); ++index) {
    outbox_.Add([client = before[index].client,
                 request = ShutdownRequest{FenceFor(before[index].incarnation), 0}] {
      // One that does not hear it is refused when it registers.
      client->Call(request, [](const absl::StatusOr<ShutdownReply>&) {});
    });
  }
  Resizing::Waiting waiting = resizing_.Complete();
  const std::string text = absl::StrCat("the job goes on with ", servers_.size(),
                                        " parameter servers instead of ", before.size());
  outbox_.Add([text] { DIVVY_LOG(INFO) << text; });
  when_running_.push_back(std::move(waiting.done));
  for (Task& again : waiting.deferred)
    when_running_.push_back([again = std::move(again)](const absl::Status&) { again(); });
  GoBack(text);
}

}  // namespace divvy
