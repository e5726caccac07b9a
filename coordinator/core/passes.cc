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
void DropBeyondEnd(PassProgress& pass) {
  if (!pass.end) return;
  pass.unread.erase(pass.unread.lower_bound(*pass.end), pass.unread.end());
}

constexpr int64_t kMostNumber = int64_t{1} << 53;  // the wire's, of a position

// One that was dropped may still be here, for steps that are run again.
bool IsTraining(const coordinator_records::Iterator& iterator) { return iterator.trains && (!iterator.dropped || iterator.users > 0); }

}  // namespace

// Steps that are open at a cut are not in it: another life of the coordinator knows nothing of them, and gives what they read to others.
PassProgress CoordinatorCore::ProgressOf(ResourceId id, const Iterator& iterator) const {
  PassProgress pass;
  pass.iterator = id;
  pass.in_loop = RunOf(id) != nullptr;
  pass.of_program = iterator.of_program;
  pass.finished = FinishedInPass(id);
  iterator.book.Save(pass);
  for (const auto& [entry, step] : open_steps_) {
    for (const InputLease& lease : step->leases) {
      if (lease.iterator == id && lease.count > 0) pass.unread.emplace(lease.first, lease.count);
    }
  }
  if (iterator.elements) DropBeyondEnd(pass);  // else the end is one worker's word, and may turn out to be wrong
  return pass;
}

PassProgress CoordinatorCore::ProgressOf(const Series& series) {
  PassProgress pass;
  pass.iterator = series.id;
  pass.is_series = true;
  series.finished.Save(pass);
  return pass;
}

// All training passes, with those that have ended as long as the store may name them: whoever adopts what the servers hold learns that all of it was read.
std::vector<PassProgress> CoordinatorCore::ProgressNow() const {
  std::vector<PassProgress> passes;
  for (const auto& [id, iterator] : iterators_) {
    if (IsTraining(iterator)) passes.push_back(ProgressOf(id, iterator));
  }
  passes.insert(passes.end(), unfinished_passes_.begin(), unfinished_passes_.end());
  for (const auto& [change, pass] : ended_passes_) passes.push_back(pass);
  for (const auto& [name, series] : series_) passes.push_back(ProgressOf(series));
  return passes;
}

// What the servers need not say of passes and ordinals any more, for the store does.
void CoordinatorCore::NoteStored(const StoredMark& mark) {
  while (!ended_passes_.empty() && ended_passes_.front().first <= mark.pass_changes) ended_passes_.pop_front();
  while (!lost_ids_.empty() && lost_ids_.front().first <= mark.lost_ordinals) lost_ids_.pop_front();
}

// The passes that are not over, with what says which data each is of.
std::vector<DataPass> CoordinatorCore::PassesNow() const {
  std::vector<DataPass> passes;
  for (const auto& [id, iterator] : iterators_) {
    if (!IsTraining(iterator)) continue;
    DataPass pass;
    static_cast<PassProgress&>(pass) = ProgressOf(id, iterator);
    pass.source = iterator.make.source;
    pass.args = iterator.make.args;
    pass.seed = iterator.make.seed;
    passes.push_back(std::move(pass));
  }
  for (const auto& [name, series] : series_) {
    DataPass pass;
    static_cast<PassProgress&>(pass) = ProgressOf(series);
    pass.source = name;
    passes.push_back(std::move(pass));
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

// What most workers say of the size is worth more than an end that one of them came to, in this life of ours or in one before.
void CoordinatorCore::NoteElements(Iterator& iterator, int64_t elements) {
  if (iterator.elements == elements) return;
  const bool is_first = !std::exchange(iterator.elements, elements) && iterator.early_ends.empty();
  if (is_first && iterator.book.end_is_exact() && *iterator.book.end() != elements) {
    outbox_.Add(
        [text = absl::StrCat("data source \"", iterator.make.source, "\" has ", elements, " elements, and had ", *iterator.book.end(),
                             " when the checkpoint was made: positions in it no longer mean what they did, and some are read twice or not at all in this ",
                             "pass. Is the size of a batch another one?")] { DIVVY_LOG(WARNING) << text; });
  }
  iterator.book.SetSize(elements);
}

// Where a pass stopped, or at the front of the next one over the data.
void CoordinatorCore::BeginIn(Iterator& iterator, const std::optional<DataPass>& unfinished) {
  const std::string& source = iterator.make.source;
  iterator.make.seed = unfinished ? unfinished->seed : MixSeeds(MixSeeds(options_.job_seed, HashText(source)), static_cast<uint64_t>(passes_[source]++));
  iterator.book = unfinished ? LeaseBook(*unfinished) : LeaseBook();
  iterator.trains = unfinished.has_value();
  iterator.elements.reset();
}

// Which of the passes that were under way a program may go on with. A loop goes on with its own also when all is read: it counts as an epoch.
void CoordinatorCore::TakeUpPasses(const std::vector<DataPass>& passes) {
  unfinished_passes_.clear();
  for (auto& [name, series] : series_) series.finished = NumberSet();  // of a checkpoint that is not gone on from after all
  for (const DataPass& pass : passes) {
    if (pass.is_series) {
      series_[pass.source] = Series{pass.iterator, NumberSet(pass), {}};
      continue;
    }
    const bool has_unread = !pass.unread.empty() && (!pass.end || pass.unread.begin()->first < *pass.end);
    const bool has_more = has_unread || !pass.end || pass.next < *pass.end;
    const bool may_be_over = pass.of_program && !pass.end;
    if (pass.in_loop || (has_more && !may_be_over)) unfinished_passes_.push_back(pass);
  }
}

// ---- numbered steps ----

absl::Status CoordinatorCore::ClaimNumber(const StepRequest& request) {
  if (!request.once) return absl::OkStatus();
  const auto& [name, number] = *request.once;
  const std::string step = absl::StrCat("step ", number, " of series \"", name, "\"");
  if (name.empty() || number < 0 || number >= kMostNumber) {
    return absl::InvalidArgumentError(absl::StrCat(step, ": a series has a name, and numbers from 0 to 2^53"));
  }
  if (request.read_only) return absl::InvalidArgumentError(absl::StrCat(step, " is read-only: it leaves nothing that could be remembered"));
  const auto found = series_.try_emplace(name);
  Series& series = found.first->second;
  if (found.second) {
    series.id = ResourceId(next_resource_++);
    ++pass_changes_;  // the store knows of it before the first of its steps has an id
  }
  if (series.finished.Contains(number)) return absl::AlreadyExistsError(absl::StrCat(step, " has finished"));
  if (!series.scheduled.insert(number).second)
    return absl::FailedPreconditionError(absl::StrCat(step, " is queued or runs: join before you schedule it again"));
  return absl::OkStatus();
}

void CoordinatorCore::SettleNumber(const Step& step, bool finished) {
  if (!step.request.once || step.replayed) return;
  Series& series = series_[step.request.once->series];
  series.scheduled.erase(step.request.once->number);
  if (finished) series.finished.Add(step.request.once->number);
}

// The pass over this data that the checkpoint holds unfinished; each once.
std::optional<DataPass> CoordinatorCore::TakeUnfinished(const std::string& source, const Nest& args, bool leased) {
  const auto found = std::find_if(unfinished_passes_.begin(), unfinished_passes_.end(),
                                  [&](const DataPass& pass) { return leased && pass.source == source && BitwiseEqual(pass.args, args); });
  if (found == unfinished_passes_.end()) return std::nullopt;
  DataPass pass = std::move(*found);
  unfinished_passes_.erase(found);
  ++pass_changes_;
  return pass;
}

}  // namespace divvy
