// Another number of parameter servers, while the job goes on.
//
//   1. GATHERING   those that are to join register; until all have, nothing changes
//   2. QUIET       no step begins; those in flight end, and so do writes, reads and layout changes
//   3. SAVING      a checkpoint: now it holds all there is, and the redo log is empty
//   4. the servers that leave are told to end; a new epoch begins, in which the others, and those that join, load the checkpoint, each what is its by a new
//      layout: a recovery with nothing to run again
//
// A server that is lost meanwhile, an error of a step: each is what it always is, and the resize goes on when it is over. A disk that fails the checkpoint ends
// it: the number stays, and steps run again.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

constexpr int kMostServers = 65'535;

absl::Status NotNow(absl::string_view why) { return absl::FailedPreconditionError(absl::StrCat("the number of parameter servers stays: ", why)); }

}  // namespace

void CoordinatorCore::Resize(int num_ps, StatusCallback done) {
  Event event(*this);
  if (abandoned_) return;
  if (const absl::Status may = MayResize(num_ps); !may.ok()) return outbox_.Add([done = std::move(done), may] { done(may); });
  if (num_ps == servers_.size()) return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  resizing_.emplace();
  resizing_->num_ps = num_ps;
  resizing_->since = clock_.Elapsed();
  resizing_->done = std::move(done);
  for (int index = servers_.size(); index < num_ps; ++index) resizing_->joining[index] = "";
}

absl::Status CoordinatorCore::MayResize(int num_ps) const {
  RETURN_IF_ERROR(phase_.error());
  if (num_ps < 1 || num_ps > kMostServers) return absl::InvalidArgumentError(absl::StrCat("a job has 1 to ", kMostServers, " parameter servers, not ", num_ps));
  if (options_.checkpoints == nullptr) return NotNow("they hand their variables on by a checkpoint, and this job has no --checkpoint_dir");
  if (IsDraining() || phase_.Is(Phase::kEnding) || phase_.Is(Phase::kOver)) return NotNow("the job is about to end");
  if (resizing_) return NotNow(absl::StrCat("the job is on its way to ", resizing_->num_ps, " of them already"));
  return absl::OkStatus();
}

// A server beyond those there are. Nullopt: nobody waits for it.
std::optional<absl::Status> CoordinatorCore::AdmitJoiningPs(const RegisterRequest& request) {
  if (!resizing_) return std::nullopt;
  const auto joining = resizing_->joining.find(request.index);
  if (joining == resizing_->joining.end()) return std::nullopt;
  joining->second = request.address;
  return absl::OkStatus();
}

// Whether what changes the servers' state has to wait. First values that a program brings are let through: a cut waits for them.
bool CoordinatorCore::ResizeWaits() const {
  if (!resizing_ || stored_.awaits_values() || !phase_.Is(Phase::kRunning)) return false;
  for (const auto& [index, address] : resizing_->joining) {
    if (address.empty()) return false;
  }
  return true;
}

bool CoordinatorCore::ResizeIsQuiet() const {
  return ResizeWaits() && steps_.in_flight() == 0 && steps_.open().empty() && writes_.open().empty() && !writes_.has_waiting() && open_reads_.empty() &&
         !layout_changes_.is_changing();
}

// Whether the servers hold exactly what the checkpoint does. First values that the program brings are let through while it is written (ResizeWaits), and with
// them steps.
bool CoordinatorCore::NothingSince(const CheckpointMaker::Cut& cut) const {
  if (!RuleHolds(Rule::kResizeFromAWholeCut)) return true;
  return cut.next_id == ids_.next() && cut.state.layout->version() == layout_plan_.layout()->version();
}

void CoordinatorCore::CancelResize(const absl::Status& why) {
  if (!resizing_) return;
  Resizing resizing = *std::exchange(resizing_, std::nullopt);
  outbox_.Add([done = std::move(resizing.done), why] { done(why); });
  for (auto& again : resizing.deferred) outbox_.Add(std::move(again));
}

// The way is barred. Servers that have joined for it register again, are told that they are not of this cluster, and end for good.
void CoordinatorCore::FailResize(const absl::Status& why) {
  std::string remedy = "Mend this, and ask again";
  if (const auto& joined = resizing_->joining; !joined.empty()) {
    const int first = joined.begin()->first, last = joined.rbegin()->first;
    const std::string who = first == last ? absl::StrCat(first, " again (it ends") : absl::StrCat(first, " to ", last, " again (they end");
    remedy = absl::StrCat("Mend this, start ps ", who, ", for nobody waits for ", first == last ? "it" : "them", " now), and ask again");
  }
  CancelResize(WithMessage(why, absl::StrCat("the number of parameter servers stays ", servers_.size(), ": ", why.message(), ". ", remedy)));
}

// Who does not come is not waited for without end.
void CoordinatorCore::CheckResize(absl::Duration now) {
  if (!resizing_ || now - resizing_->since <= options_.ps_timeout) return;
  for (const auto& [index, address] : resizing_->joining) {
    if (!address.empty()) continue;
    return CancelResize(absl::UnavailableError(absl::StrCat("ps ", index, " has not registered for ", absl::FormatDuration(now - resizing_->since),
                                                            " (--ps_timeout): start it, with --task_type=ps --task_index=", index,
                                                            " and --coordinator_address, and ask again. Nothing has been changed")));
  }
}

// The checkpoint that holds everything has been committed. One of its variables may not be cut for that number: then all stays as it is.
void CoordinatorCore::ChangeServers(const JobState& saved) {
  const std::vector<Ps> before = servers_.all();
  servers_.Resize(resizing_->num_ps, resizing_->joining, stored_.row().epoch.value() << 20);
  layout_plan_.SetNumPs(resizing_->num_ps);
  if (const absl::Status placed = layout_plan_.PlaceAnew(saved, NewIds()); !placed.ok()) {
    servers_.Restore(before);
    layout_plan_.SetNumPs(servers_.size());
    FailResize(placed);
    return layout_changes_.StartNext();  // that waited for it
  }
  for (size_t index = static_cast<size_t>(servers_.size()); index < before.size(); ++index) {
    outbox_.Add([client = before[index].client, request = ShutdownRequest{FenceFor(before[index].incarnation), 0}] {
      client->Shutdown(request, [](const absl::StatusOr<ShutdownReply>&) {});  // one that does not hear it is refused when it registers
    });
  }
  Resizing resizing = *std::exchange(resizing_, std::nullopt);
  const std::string text = absl::StrCat("the job goes on with ", servers_.size(), " parameter servers instead of ", before.size());
  outbox_.Add([text] { DIVVY_LOG(INFO) << text; });
  when_running_.push_back(std::move(resizing.done));
  for (auto& again : resizing.deferred) when_running_.push_back([again = std::move(again)](const absl::Status&) { again(); });
  GoBack(text);
}

}  // namespace divvy
