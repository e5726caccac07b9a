// Where passes over leased data stand: in every cut, so that a job that goes on from it reads each element of a pass once.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/random.h"
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
  std::vector<DataPass> passes;
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
    const bool may_be_over = iterator.of_program && !pass.end;  // the program may have read all of it, and only it knows
    if (RunOf(id) != nullptr || (HasMore(pass) && !may_be_over))
      passes.push_back(std::move(pass));  // a run counts as an epoch when it is told that the pass is over
  }
  passes.insert(passes.end(), unfinished_passes_.begin(), unfinished_passes_.end());  // taken up in their order
  return passes;
}

// The loop of the program that reads by it; one that has failed as long as the program has not been told.
const CoordinatorCore::RunState* CoordinatorCore::RunOf(ResourceId iterator) const {
  for (const auto& run : runs_) {
    if (run->iterator == iterator) return run.get();
  }
  for (const Raiser& raiser : raisers_) {
    if (raiser.run != nullptr && raiser.run->iterator == iterator) return raiser.run.get();
  }
  return nullptr;
}

int64_t CoordinatorCore::FinishedInPass(ResourceId iterator) const {
  if (const RunState* run = RunOf(iterator)) return run->finished_in_pass;
  return paused_pass_ && paused_pass_->iterator == iterator ? paused_pass_->finished : 0;
}

// Iterators that the program made before it asked for the checkpoint, and nobody has read of: no worker has heard of them yet.
void CoordinatorCore::ResumeIterators() {
  for (auto& [id, iterator] : iterators_) {
    BeginIn(iterator, TakeUnfinished(iterator.make.source, iterator.make.args, iterator.make.leased));
  }
}

void CoordinatorCore::NoteElements(Iterator& iterator, int64_t elements) {
  const bool knew = iterator.book.end_is_exact();
  if (knew && *iterator.book.end() != elements) {
    outbox_.Add(
        [text = absl::StrCat("data source \"", iterator.make.source, "\" has ", elements, " elements, and had ", *iterator.book.end(),
                             " when the checkpoint was made: positions in it no longer mean what they did, and some are read twice or not at all in this ",
                             "pass. Is the size of a batch another one?")] { DIVVY_LOG(WARNING) << text; });
  }
  iterator.book.SetEnd(elements, /*exact=*/true);
}

// Where a pass stopped, or at the front of the next one over the data.
void CoordinatorCore::BeginIn(Iterator& iterator, const std::optional<DataPass>& unfinished) {
  const std::string& source = iterator.make.source;
  iterator.make.seed = unfinished ? unfinished->seed : MixSeeds(MixSeeds(options_.job_seed, HashText(source)), static_cast<uint64_t>(passes_[source]++));
  if (unfinished) iterator.book = LeaseBook(*unfinished), iterator.trains = true;
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
