// Where passes over leased data stand: in every cut, so that a job that goes on from it reads each element of a pass once.
#include <algorithm>
#include <utility>

#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

// Positions at or beyond the end are nobody's.
void DropBeyondEnd(DataPass& pass) {
  if (!pass.end) return;
  pass.unread.erase(pass.unread.lower_bound(*pass.end), pass.unread.end());
}

bool HasMore(const DataPass& pass) { return !pass.unread.empty() || !pass.end || pass.next < *pass.end; }

}  // namespace

// Steps that are open at a cut are not in it: another life of the coordinator knows nothing of them, and gives what they read to others.
std::vector<DataPass> CoordinatorCore::PassesNow() const {
  std::vector<DataPass> passes = unfinished_passes_;
  for (const auto& [id, iterator] : iterators_) {
    if (!iterator.trains) continue;
    DataPass pass;
    pass.source = iterator.make.source;
    pass.args = iterator.make.args;
    pass.seed = iterator.make.seed;
    pass.finished = FinishedInPass(id);
    iterator.book.Save(pass);
    for (const auto& [entry, step] : open_steps_) {
      for (const InputLease& lease : step->leases) {
        if (lease.iterator == id) pass.unread.emplace(lease.first, lease.count);
      }
    }
    DropBeyondEnd(pass);
    const bool of_a_run = std::any_of(runs_.begin(), runs_.end(), [id = id](const auto& run) { return run->iterator == id; });
    if (of_a_run || HasMore(pass)) passes.push_back(std::move(pass));  // a run counts as an epoch when it is told that the pass is over
  }
  return passes;
}

int64_t CoordinatorCore::FinishedInPass(ResourceId iterator) const {
  for (const auto& run : runs_) {
    if (run->iterator == iterator) return run->finished_in_pass;
  }
  return paused_pass_ && paused_pass_->iterator == iterator ? paused_pass_->finished : 0;
}

// The pass over this data that the checkpoint holds unfinished; each once.
std::optional<DataPass> CoordinatorCore::TakeUnfinished(const std::string& source, const Nest& args, bool leased) {
  const auto found = std::find_if(unfinished_passes_.begin(), unfinished_passes_.end(),
                                  [&](const DataPass& pass) { return leased && pass.source == source && BitwiseEqual(pass.args, args); });
  if (found == unfinished_passes_.end()) return std::nullopt;
  DataPass pass = std::move(*found);
  unfinished_passes_.erase(found);
  return pass;
}

}  // namespace divvy
