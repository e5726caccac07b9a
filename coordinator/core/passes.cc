#include "coordinator/core/passes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/breakable.h"
#include "base/random.h"
#include "protocol/error.h"

namespace divvy {
namespace {

// The largest position that the wire format allows.
constexpr int64_t kMostNumber = int64_t{1} << 53;
constexpr size_t kMaxKnownSizes = 256;

// Removes the unread positions at or beyond the end.
void DropBeyondEnd(PassProgress& pass) {
  if (!pass.end) return;
  pass.unread.erase(pass.unread.lower_bound(*pass.end), pass.unread.end());
}

}  // namespace

Passes::Iterator* Passes::Find(ResourceId id) {
  const auto found = iterators_.find(id);
  return found == iterators_.end() ? nullptr : &found->second;
}

const Passes::Iterator* Passes::Find(ResourceId id) const {
  const auto found = iterators_.find(id);
  return found == iterators_.end() ? nullptr : &found->second;
}

Passes::Reading Passes::ReadingOf(int worker, ResourceId id) const {
  const auto of_worker = readings_.find(worker);
  if (of_worker == readings_.end()) return Reading();
  const auto found = of_worker->second.find(id);
  return found == of_worker->second.end() ? Reading() : found->second;
}

// ---- iterators ----

ResourceId Passes::Make(std::string source, Nest args, bool leased) {
  const std::optional<DataPass> unfinished = TakeUnfinished(source, args, leased);
  const ResourceId id = MakeWith(std::move(source), std::move(args), leased, unfinished);
  iterators_.at(id).of_program = true;
  return id;
}

ResourceId Passes::MakeWith(std::string source, Nest args, bool leased,
                            const std::optional<DataPass>& unfinished) {
  const ResourceId id(next_resource_++);
  Iterator iterator;
  iterator.make = {id,     std::move(source),   std::move(args), /*seed=*/0,
                   leased, workers_.NumShares()};
  BeginIn(iterator, unfinished);
  if (const KnownSize* known = FindKnownSize(iterator.make)) iterator.book.SetHint(known->elements);
  workers_.SendToAll(iterator.make);
  iterators_.emplace(id, std::move(iterator));
  return id;
}

void Passes::Drop(ResourceId id) {
  Iterator* const iterator = Find(id);
  if (iterator == nullptr) return;
  iterator->dropped = true;
  if (iterator->users > 0 || rewinding_) {
    iterator->in_loop = false;
    iterator->finished = 0;
    return;
  }
  RememberSize(*iterator);
  // No open step reads from the iterator.
  if (iterator->trains) ended_.emplace_back(++changes_, ProgressOf(id, *iterator, {}));
  if (!iterator->make.leased && EndedEverywhere(id)) WarnOfUnreadParts(iterator->make);
  iterators_.erase(id);
  for (auto& [worker, readings] : readings_) readings.erase(id);
  workers_.SendToAll(DropResource{id});
}

void Passes::RememberSize(const Iterator& iterator) {
  if (!iterator.book.exhausted()) return;
  KnownSize* known = FindKnownSize(iterator.make);
  if (known == nullptr)
    known = &known_sizes_.emplace_back(KnownSize{iterator.make.source, iterator.make.args});
  known->elements = *iterator.book.end();
  if (known_sizes_.size() > kMaxKnownSizes) known_sizes_.erase(known_sizes_.begin());
}

// A pass does not wait for workers that are away, because some may never come. No other worker
// reads their parts.
void Passes::WarnOfUnreadParts(const MakeResource& make) {
  constexpr size_t kMostNames = 5;
  std::vector<std::string> away;
  for (int index = 0; index < make.num_workers && away.size() <= kMostNames; ++index) {
    const auto worker = workers_.all().find(index);
    const bool is_known = worker != workers_.all().end();
    const bool is_there =
        is_known && worker->second.state != Worker::State::kDialing && !worker->second.leaving;
    if (!is_there && (!is_known || !ReadingOf(index, make.iterator).ended))
      away.push_back(absl::StrCat("worker ", index));
  }
  if (away.empty()) return;
  if (away.size() > kMostNames) away.back() = "others";
  said_.Warning(
      absl::StrCat("a pass over data source \"", make.source, "\" is over without ",
                   absl::StrJoin(away, ", "), ", away at its end. With AutoShardPolicy::kAuto, ",
                   "kFile or kData each worker reads a part of its own, and the rest of these "
                   "workers' parts was not read. Start them, or use kLease, the default"));
}

Passes::KnownSize* Passes::FindKnownSize(const MakeResource& make) {
  const auto found =
      std::find_if(known_sizes_.begin(), known_sizes_.end(), [&make](const KnownSize& known) {
        return known.source == make.source && BitwiseEqual(known.args, make.args);
      });
  return found == known_sizes_.end() ? nullptr : &*found;
}

void Passes::Use(const Step& step, int64_t change) {
  for (const ResourceId id : step.iterators) {
    Iterator* const iterator = Find(id);
    if (iterator == nullptr) continue;
    iterator->users += change;
    if (iterator->dropped) Drop(id);
  }
}

void Passes::EndRewind() {
  rewinding_ = false;
  std::vector<ResourceId> dropped;
  for (const auto& [id, iterator] : iterators_) {
    if (iterator.dropped) dropped.push_back(id);
  }
  for (const ResourceId id : dropped) Drop(id);
}

// ---- loops ----

ResourceId Passes::BeginLoop(const RunRequest& loop) {
  const std::optional<ResourceId> paused = TakePaused(loop);
  return paused ? *paused : BeginPass(loop);
}

ResourceId Passes::BeginPass(const RunRequest& loop) {
  std::optional<DataPass> unfinished;
  if (!loop.step.read_only) unfinished = TakeUnfinished(loop.source, loop.source_args, loop.leased);
  const ResourceId id = MakeWith(loop.source, loop.source_args, loop.leased, unfinished);
  Iterator& iterator = iterators_.at(id);
  iterator.in_loop = true;
  iterator.finished = unfinished ? unfinished->finished : 0;
  return id;
}

std::optional<ResourceId> Passes::TakePaused(const RunRequest& loop) {
  if (!loop.last_step || !paused_) return std::nullopt;
  const ResourceId id = *std::exchange(paused_, std::nullopt);
  Iterator* const iterator = Find(id);
  if (iterator == nullptr) return std::nullopt;
  if (iterator->make.source == loop.source && BitwiseEqual(iterator->make.args, loop.source_args)) {
    iterator->in_loop = true;
    return id;
  }
  iterator->finished = 0;
  Drop(id);
  return std::nullopt;
}

ResourceId Passes::NextPass(const RunRequest& loop, ResourceId over) {
  Drop(over);
  return BeginPass(loop);
}

void Passes::EndLoop(const RunRequest& loop, ResourceId id) {
  if (!loop.last_step) return Drop(id);
  // Another loop, which ran at the same time, may have been paused already.
  if (paused_) Drop(*paused_);
  if (Iterator* const iterator = Find(id)) iterator->in_loop = false;
  paused_ = id;
  ++changes_;
}

void Passes::FailLoop(ResourceId id) {
  if (Iterator* const iterator = Find(id)) {
    iterator->in_loop = false;
    iterator->finished = 0;
  }
  Drop(id);
}

void Passes::CountFinished(ResourceId id) {
  if (Iterator* const iterator = Find(id)) ++iterator->finished;
}

int64_t Passes::FinishedIn(ResourceId id) const {
  const Iterator* const iterator = Find(id);
  return iterator == nullptr ? 0 : iterator->finished;
}

// ---- dispatch ----

// A worker that is away does not count, because it may join soon or never.
bool Passes::EndedEverywhere(ResourceId id) const {
  bool ended = false;
  for (const auto& [index, worker] : workers_.all()) {
    if (worker.state == Worker::State::kDialing || worker.leaving || ReadingOf(index, id).excluded)
      continue;
    if (!ReadingOf(index, id).ended) return false;
    ended = true;
  }
  return ended;
}

bool Passes::IsExhausted(ResourceId id) const {
  const Iterator* const iterator = Find(id);
  return iterator != nullptr && iterator->make.leased ? iterator->book.exhausted()
                                                      : EndedEverywhere(id);
}

bool Passes::HasNoDataLeft(const Step& step) const {
  return std::any_of(step.iterators.begin(), step.iterators.end(),
                     [this](ResourceId id) { return EndedEverywhere(id); });
}

bool Passes::MayRead(const Worker& worker, ResourceId id) const {
  const Iterator* const iterator = Find(id);
  if (iterator == nullptr) return true;
  const Reading reading = ReadingOf(worker.index, id);
  if (!reading.opened) return false;
  if (reading.excluded) return iterator->left_out.count(worker.index) == 0 && IsSoleReader(id);
  return !reading.ended || EndedEverywhere(id);
}

// Whether every present worker is excluded and every absent worker has been away for long. A step
// then gets the error of the data, so the error reaches the program.
bool Passes::IsSoleReader(ResourceId id) const {
  return std::all_of(workers_.all().begin(), workers_.all().end(), [&](const auto& entry) {
    const Worker& worker = entry.second;
    return worker.state != Worker::State::kDialing ? ReadingOf(worker.index, id).excluded
                                                   : workers_.IsGoneForLong(worker);
  });
}

void Passes::NoteTraining(const Step& step) {
  if (step.request.read_only) return;
  for (const ResourceId id : step.iterators) {
    Iterator* const iterator = Find(id);
    if (iterator != nullptr && iterator->make.leased)
      changes_ += !std::exchange(iterator->trains, true);
  }
}

bool Passes::TakeLeases(Step& step, const Worker& worker) {
  if (const auto& once = step.request.once)
    step.leases.push_back({series_.at(once->series).id, once->number, 1});
  for (const ResourceId id : step.iterators) {
    Iterator* const iterator = Find(id);
    if (iterator == nullptr) continue;
    iterator->is_read = true;
    if (!iterator->make.leased) continue;
    const auto taken = iterator->book.Take(worker.index, worker.replicas);
    if (!taken && step.run != nullptr) return false;
    step.leases.push_back(taken ? InputLease{id, taken->first, taken->second}
                                : InputLease{id, iterator->book.end().value_or(0), 0});
  }
  return true;
}

void Passes::ReturnLeases(const Step& step) {
  for (const InputLease& lease : step.leases) {
    Iterator* const iterator = Find(lease.iterator);
    if (iterator != nullptr && lease.count > 0) iterator->book.GiveBack(lease.first, lease.count);
  }
}

bool Passes::NoteEnds(const Worker& worker, Step& step, const Report& report) {
  const bool of_all = report.outcome == StepOutcome::kEndOfData &&
                      (report.ended.empty() || !RuleHolds(Rule::kEndIsOfOneDataset));
  bool early = false;
  for (const ResourceId id : step.iterators) {
    const bool is_named = std::any_of(report.ended.begin(), report.ended.end(),
                                      [id](const EndedInput& each) { return each.iterator == id; });
    if (!is_named && !of_all) continue;
    const auto lease = std::find_if(step.leases.begin(), step.leases.end(),
                                    [id](const InputLease& each) { return each.iterator == id; });
    if (lease == step.leases.end()) {
      ReadingAt(worker.index, id).ended = true;
      continue;
    }
    Iterator* const iterator = Find(id);
    if (iterator != nullptr && !step.replayed)
      early |= NoteEnd(worker.index, *iterator, *lease, report);
  }
  return early;
}

// An iterator had no more elements for a step that held `lease`. If the step finished anyway, the
// positions that it has not read go to other steps, or lie beyond the end. They do not belong to
// the step any more, nor to its entry in the redo log.
bool Passes::NoteEnd(int worker, Iterator& iterator, InputLease& lease, const Report& report) {
  const auto ended =
      std::find_if(report.ended.begin(), report.ended.end(),
                   [&](const EndedInput& each) { return each.iterator == lease.iterator; });
  const int64_t position =
      ended != report.ended.end() && ended->position ? *ended->position : lease.first;
  if (position < lease.first || position > lease.first + lease.count) return false;
  const bool has_read = position > lease.first;
  if (report.outcome == StepOutcome::kOk) {
    iterator.book.GiveBack(position, lease.first + lease.count - position);
    lease.count = position - lease.first;
  }
  if (NoteEarlyEnd(worker, iterator, position)) return true;
  // The end may prove to be too early, when the size of the data becomes known.
  if (!iterator.elements) iterator.early_ends[worker] = position;
  iterator.book.SetEnd(position, /*exact=*/has_read);
  return false;
}

// A worker whose data ends before that of most workers is left out. If the data of most present
// workers ends there, the known size was wrong. False: this is the end of the data.
bool Passes::NoteEarlyEnd(int worker, Iterator& iterator, int64_t position) {
  if (!iterator.elements || position >= *iterator.elements || !RuleHolds(Rule::kOneWorkerEndsNoJob))
    return false;
  iterator.early_ends[worker] = position;
  if (!workers_.MostHere(
          [&iterator](const Worker& each) { return iterator.early_ends.count(each.index) > 0; })) {
    LeaveOut(worker, iterator);
    return true;
  }
  for (const auto& [index, end] : iterator.early_ends) {
    TakeBackIn(index, iterator);
    position = std::max(position, end);
  }
  iterator.elements = position;
  iterator.book.SetEnd(position, /*exact=*/true);
  return false;
}

// ---- numbered steps ----

absl::Status Passes::ClaimNumber(const StepRequest& request) {
  if (!request.once) return absl::OkStatus();
  const auto& [name, number] = *request.once;
  const std::string step = absl::StrCat("step ", number, " of series \"", name, "\"");
  if (name.empty() || number < 0 || number >= kMostNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat(step, ": a series must have a name, and its numbers must be from 0 to 2^53"));
  }
  if (request.read_only)
    return absl::InvalidArgumentError(
        absl::StrCat(step, " is read-only: only a training step can have a number"));
  const auto [found, is_new] = series_.try_emplace(name);
  Series& series = found->second;
  if (is_new) {
    series.id = ResourceId(next_resource_++);
    // The series is in the store before the first of its steps gets an id.
    ++changes_;
  }
  if (series.finished.Contains(number))
    return absl::AlreadyExistsError(absl::StrCat(step, " has finished"));
  if (!series.scheduled.insert(number).second)
    return absl::FailedPreconditionError(
        absl::StrCat(step, " is queued or runs: join before you schedule it again"));
  return absl::OkStatus();
}

void Passes::SettleNumber(const Step& step, bool finished) {
  if (!step.request.once || step.replayed) return;
  Series& series = series_[step.request.once->series];
  series.scheduled.erase(step.request.once->number);
  if (finished) series.finished.Add(step.request.once->number);
}

// ---- workers ----

void Passes::IntroduceTo(Worker& joining) {
  const int shares = workers_.NumShares();
  for (auto& [id, iterator] : iterators_) {
    if (iterator.make.leased || (iterator.is_read && RuleHolds(Rule::kReadDataKeepsItsCut)))
      continue;
    if (std::exchange(iterator.make.num_workers, shares) == shares) continue;
    for (auto& [index, worker] : workers_.all()) {
      if (index == joining.index) continue;
      readings_[index].erase(id);
      workers_.Send(worker, DropResource{id});
      workers_.Send(worker, iterator.make);
    }
  }
  for (const auto& [id, iterator] : iterators_) workers_.Send(joining, iterator.make);
}

void Passes::WorkerGone(int worker) {
  for (auto& [id, iterator] : iterators_) iterator.book.WorkerGone(worker);
}

absl::Status Passes::NoteOpened(const Worker& worker, const ResourceReady& ready) {
  Iterator* const found = Find(ready.iterator);
  if (found == nullptr) return absl::OkStatus();
  Iterator& iterator = *found;
  ReadingAt(worker.index, ready.iterator).opened = true;
  if (!ready.error.ok()) {
    NoteUnopened(worker.index, iterator, ready.error);
    return absl::OkStatus();
  }
  if (!iterator.make.leased) return absl::OkStatus();
  if (!RuleHolds(Rule::kOneWorkerEndsNoJob)) {
    if (ready.elements) NoteElements(iterator, *ready.elements);
    return absl::OkStatus();
  }
  iterator.agreement.Note(worker.index, {ready.first, ready.elements});
  const auto elements =
      RuleHolds(Rule::kSizeIsOfMost) ? iterator.agreement.elements() : ready.elements;
  if (elements && MostHaveOpened(ready.iterator)) {
    NoteElements(iterator, *elements);
  } else if (!elements && std::exchange(iterator.elements, std::nullopt)) {
    // The worker that reported the size does not have the same data as most workers.
    iterator.book.SetSize(std::nullopt);
  }
  return LeaveOutOdd(iterator);
}

// The size is used only after most workers have reported. Otherwise the first worker could report
// that the data is empty, and no loop over the data would begin.
bool Passes::MostHaveOpened(ResourceId id) const {
  return workers_.MostHere([&](const Worker& worker) {
    return ReadingOf(worker.index, id).opened;
  }) || !RuleHolds(Rule::kSizeIsOfMost);
}

// The size that most workers report overrides an end that one worker has reached, in this life of
// the coordinator or in an earlier one.
void Passes::NoteElements(Iterator& iterator, int64_t elements) {
  if (iterator.elements == elements) return;
  const bool is_first = !std::exchange(iterator.elements, elements) && iterator.early_ends.empty();
  if (is_first && iterator.book.end_is_exact() && *iterator.book.end() != elements) {
    said_.Warning(absl::StrCat("data source \"", iterator.make.source, "\" has ", elements,
                               " elements, and had ", *iterator.book.end(),
                               " when the checkpoint was made: positions in it no longer mean what "
                               "they did, and some are read twice or not at all in this ",
                               "pass. Has the batch size changed?"));
  }
  iterator.book.SetSize(elements);
}

// A worker whose data differs from that of most workers reads no more of the pass. If the two
// largest groups of workers have the same size, the program gets an error, because nothing shows
// which group is wrong.
absl::Status Passes::LeaveOutOdd(Iterator& iterator) {
  absl::Status difference;
  const std::set<int> odd = iterator.agreement.odd();
  const auto has_opened = [&](const auto& entry) {
    return entry.second.state == Worker::State::kDialing || iterator.agreement.Knows(entry.first) ||
           ReadingOf(entry.first, iterator.make.iterator).excluded;
  };
  if (!odd.empty() && !iterator.difference_told && iterator.agreement.tied() &&
      std::all_of(workers_.all().begin(), workers_.all().end(), has_opened)) {
    iterator.difference_told = true;
    difference = MarkUser(iterator.agreement.Difference(iterator.make.source));
  }
  for (const auto& [index, worker] : workers_.all()) {
    if (odd.count(index) > 0) {
      LeaveOut(index, iterator);
    } else if (iterator.early_ends.count(index) == 0) {
      TakeBackIn(index, iterator);
    }
  }
  return difference;
}

void Passes::LeaveOut(int worker, Iterator& iterator) {
  ReadingAt(worker, iterator.make.iterator).excluded = true;
  if (!iterator.left_out.insert(worker).second) return;
  said_.Warning(absl::StrCat("worker ", worker, " has other data of \"", iterator.make.source,
                             "\" than most workers, and reads no more of this pass. Give every "
                             "worker the same files, shuffle with input.seed, and ",
                             "shard nothing"));
}

void Passes::TakeBackIn(int worker, Iterator& iterator) {
  if (iterator.left_out.erase(worker) > 0)
    ReadingAt(worker, iterator.make.iterator).excluded = false;
}

// A worker that joined after the data was cut has no part of it until the next pass. If a worker
// cannot open leased data, the other workers read it; if no worker can, a step gets the error. If a
// worker cannot open a part of its own, the next step at that worker gets the error.
void Passes::NoteUnopened(int worker, const Iterator& iterator, const absl::Status& error) {
  const MakeResource& make = iterator.make;
  const bool is_late =
      !make.leased && worker >= make.num_workers && RuleHolds(Rule::kLateWorkerHasNoPart);
  if (!is_late && !make.leased) return;
  ReadingAt(worker, make.iterator).excluded = true;
  const std::string who = absl::StrCat("worker ", worker);
  if (is_late) {
    said_.Info(absl::StrCat(who, " has no part of data source \"", make.source,
                            "\" in this pass, which had been cut for ", make.num_workers,
                            " workers when it joined: it reads in the next pass"));
  } else {
    said_.Warning(absl::StrCat(who, " cannot open data source \"", make.source,
                               "\", so the other workers read it: ", error.message()));
  }
}

// ---- the state of the job ----

PassProgress Passes::ProgressOf(ResourceId id, const Iterator& iterator,
                                const std::vector<InputLease>& open) {
  PassProgress pass;
  pass.iterator = id;
  pass.in_loop = iterator.in_loop;
  pass.of_program = iterator.of_program;
  pass.finished = iterator.finished;
  iterator.book.Save(pass);
  for (const InputLease& lease : open) {
    if (lease.iterator == id && lease.count > 0) pass.unread.emplace(lease.first, lease.count);
  }
  // Without a size, the end is the report of one worker, and may prove to be wrong.
  if (iterator.elements) DropBeyondEnd(pass);
  return pass;
}

PassProgress Passes::ProgressOf(const Series& series) {
  PassProgress pass;
  pass.iterator = series.id;
  pass.is_series = true;
  series.finished.Save(pass);
  return pass;
}

std::vector<PassProgress> Passes::ProgressNow(const std::vector<InputLease>& open) const {
  std::vector<PassProgress> passes;
  for (const auto& [id, iterator] : iterators_) {
    if (iterator.is_training()) passes.push_back(ProgressOf(id, iterator, open));
  }
  passes.insert(passes.end(), unfinished_.begin(), unfinished_.end());
  for (const auto& [change, pass] : ended_) passes.push_back(pass);
  for (const auto& [name, series] : series_) passes.push_back(ProgressOf(series));
  return passes;
}

std::vector<DataPass> Passes::PassesNow(const std::vector<InputLease>& open) const {
  std::vector<DataPass> passes;
  for (const auto& [id, iterator] : iterators_) {
    if (!iterator.is_training()) continue;
    DataPass pass;
    static_cast<PassProgress&>(pass) = ProgressOf(id, iterator, open);
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
  // Passes of the same data are resumed in this order.
  passes.insert(passes.end(), unfinished_.begin(), unfinished_.end());
  return passes;
}

void Passes::NoteStored(int64_t changes) {
  while (!ended_.empty() && ended_.front().first <= changes) ended_.pop_front();
}

// The program may have made iterators before it asked for the checkpoint. No step has read from
// them, and no worker has them yet, so they begin where the state says.
void Passes::RestoreState(const std::map<std::string, int64_t>& begun,
                          const std::vector<DataPass>& passes) {
  for (const auto& [source, number] : begun) begun_[source] = std::max(begun_[source], number);
  TakeUpUnfinished(passes);
  for (auto& [id, iterator] : iterators_) {
    BeginIn(iterator,
            TakeUnfinished(iterator.make.source, iterator.make.args, iterator.make.leased));
  }
}

// Chooses the unfinished passes that a program may resume. A loop resumes its own pass even if
// everything has been read, because the pass then counts as an epoch.
void Passes::TakeUpUnfinished(const std::vector<DataPass>& passes) {
  unfinished_.clear();
  // The finished numbers may belong to a damaged checkpoint, which an older one replaces.
  for (auto& [name, series] : series_) series.finished = NumberSet();
  for (const DataPass& pass : passes) {
    if (pass.is_series) {
      series_[pass.source] = Series{pass.iterator, NumberSet(pass), {}};
      continue;
    }
    const bool has_unread =
        !pass.unread.empty() && (!pass.end || pass.unread.begin()->first < *pass.end);
    const bool has_more = has_unread || !pass.end || pass.next < *pass.end;
    const bool may_be_over = pass.of_program && !pass.end;
    if (pass.in_loop || (has_more && !may_be_over)) unfinished_.push_back(pass);
  }
}

// Begins where the pass stopped, or at the front of the next pass over the data.
void Passes::BeginIn(Iterator& iterator, const std::optional<DataPass>& unfinished) {
  const std::string& source = iterator.make.source;
  iterator.make.seed = unfinished ? unfinished->seed
                                  : MixSeeds(MixSeeds(options_.job_seed, HashText(source)),
                                             static_cast<uint64_t>(begun_[source]++));
  iterator.book = unfinished ? LeaseBook(*unfinished) : LeaseBook();
  iterator.trains = unfinished.has_value();
  iterator.elements.reset();
}

// Takes an unfinished pass over this data. Each pass is taken only once.
std::optional<DataPass> Passes::TakeUnfinished(const std::string& source, const Nest& args,
                                               bool leased) {
  const auto found =
      std::find_if(unfinished_.begin(), unfinished_.end(), [&](const DataPass& pass) {
        return leased && pass.source == source && BitwiseEqual(pass.args, args);
      });
  if (found == unfinished_.end()) return std::nullopt;
  DataPass pass = std::move(*found);
  unfinished_.erase(found);
  ++changes_;
  return pass;
}

std::vector<std::shared_ptr<const MakeResource>> Passes::Logged(const Step& step,
                                                                int64_t& new_bytes) {
  std::vector<std::shared_ptr<const MakeResource>> logged;
  for (const ResourceId id : step.iterators) {
    Iterator* const iterator = Find(id);
    if (iterator == nullptr) continue;
    if (iterator->logged == nullptr) {
      iterator->logged = std::make_shared<const MakeResource>(iterator->make);
      new_bytes += iterator->make.args.size_bytes();
    }
    logged.push_back(iterator->logged);
  }
  return logged;
}

std::optional<int64_t> Passes::ExpectedElements(ResourceId id) const {
  const Iterator* const iterator = Find(id);
  return iterator == nullptr ? std::nullopt : iterator->book.expected();
}

std::map<std::string, int64_t> Passes::Sizes() const {
  int64_t readings = 0, numbers = 0;
  for (const auto& [worker, of_worker] : readings_)
    readings += static_cast<int64_t>(of_worker.size());
  for (const auto& [name, series] : series_)
    numbers += static_cast<int64_t>(series.scheduled.size());
  const auto size = [](const auto& structure) { return static_cast<int64_t>(structure.size()); };
  return {
      {"iterators", size(iterators_)},
      {"iterators of workers", readings},
      {"known sizes of data", size(known_sizes_)},
      {"passes begun, by source", size(begun_)},
      {"passes that have ended", size(ended_)},
      {"scheduled numbers of series", numbers},
      {"series", size(series_)},
      {"unfinished passes", size(unfinished_)},
  };
}

}  // namespace divvy
