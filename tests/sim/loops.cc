#include "tests/sim/loops.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/sim/visits.h"

namespace divvy::sim {
namespace {

// The functions of steps that end with their data, and of steps that continue without it.
constexpr char kEnds[] = "loop", kGoesOn[] = "loop_on";
// The data sources: one of known size, one of unknown size, and one that is divided among the
// workers.
constexpr char kKnown[] = "loop/known", kUnknown[] = "loop/unknown", kOwn[] = "loop/own";
constexpr int64_t kTagsOfLoop = Loops::kTags / 2;

int64_t ElementsOf(const SimConfig& config, const std::string& source) {
  Random random(MixSeeds(MixSeeds(config.seed, 9), HashText(source)));
  const int64_t least = source == kOwn ? 40 : 1;  // enough for a share of every worker
  return least + static_cast<int64_t>(random.Below(60));
}

ResourceId IteratorOf(const StepCall& call) {
  return ResourceId((*call.args.list())[0].handle()->id);
}

}  // namespace

void Loops::Define(const SimConfig& config, ScriptedInputOpener& inputs) {
  const absl::Duration time = absl::Milliseconds(5);
  inputs.Define(kKnown, {ElementsOf(config, kKnown), absl::OkStatus(), time});
  inputs.Define(kUnknown, {std::nullopt, absl::OkStatus(), time});
  ScriptedInputOpener::Source own{ElementsOf(config, kOwn), absl::OkStatus(), time};
  own.is_cut = true;
  inputs.Define(kOwn, own);
}

void Loops::BeginLife(int life) {
  life_ = life;
  loops_.clear();
  made_.clear();
  taken_.clear();
  shares_.clear();
  left_ = 0;
}

bool Loops::IsOf(const StepCall& call) {
  return call.function == kEnds || call.function == kGoesOn;
}

int64_t Loops::TagOf(const StepCall& call) {
  const int64_t first = *(*call.args.list())[1].tensor()->scalar<int64_t>();
  const auto nth =
      call.inputs.empty() ? static_cast<int64_t>(call.step.value()) : call.inputs[0].first;
  return first + nth % kTagsOfLoop;
}

// ---- the program ----

Loops::Loop Loops::Draw(int64_t first_tag) {
  Random random(MixSeeds(MixSeeds(config_.seed, 48), static_cast<uint64_t>(++drawn_)));
  Loop loop;
  RunRequest& request = loop.request;
  request.step = {random.Chance(0.4) ? kGoesOn : kEnds, Nest(Nest::List{Nest(first_tag)}), false};
  request.leased = !config_.own_data || random.Chance(0.5);
  request.source = !request.leased ? kOwn : random.Chance(0.5) ? kKnown : kUnknown;
  request.token = next_token_++;
  const bool to_step = random.Chance(0.3);
  if (to_step)
    request.last_step = site_.core().step() + 1 + static_cast<int64_t>(random.Below(100));
  // A loop to a given step begins where the previous one in this life of the program stopped.
  loop.args = to_step ? 0 : drawn_;
  request.source_args = Nest(Nest::List{Nest(int64_t{life_}), Nest(loop.args)});
  ++counts_.loops, counts_.own += !request.leased;
  return loop;
}

void Loops::Run(int64_t first_tag, std::function<void(const Nest&)> value,
                std::function<void(const absl::Status&)> done) {
  done_ = std::move(done);
  loops_.clear();
  const bool two = site_.random().Chance(0.4);
  for (int i = 0; i <= static_cast<int>(two); ++i)
    loops_.push_back(std::make_shared<Loop>(Draw(first_tag + i * kTagsOfLoop)));
  left_ = static_cast<int>(loops_.size());
  for (const auto& loop : std::vector<std::shared_ptr<Loop>>(loops_)) {
    const RunRequest& request = loop->request;
    site_.Tell(
        absl::StrCat("program: runs a loop over ", request.source, ", ", request.step.function,
                     request.last_step ? absl::StrCat(", to step ", *request.last_step) : ""));
    site_.core().Run(
        request,
        [alive = site_.Alive(), value](const Nest& result) {
          if (alive()) value(result);
        },
        [this, alive = site_.Alive(), loop](const absl::Status& status) {
          if (alive()) OnOver(loop, status);
        });
    if (config_.stop_runs && site_.random().Chance(0.3)) StopSometime(loop);
  }
}

void Loops::StopSometime(const std::shared_ptr<Loop>& loop) {
  site_.After(absl::Milliseconds(static_cast<int64_t>(site_.random().Below(3'000))), [this, loop] {
    loop->stopped = true;
    site_.core().StopRun(loop->request.token);
  });
}

void Loops::OnOver(const std::shared_ptr<Loop>& loop, const absl::Status& status) {
  loop->status = status;
  site_.Tell(absl::StrCat("program: the loop over ", loop->request.source,
                          " is over: ", status.ToString()));
  if (site_.EndsProgram(status)) return;
  Check(*loop);
  if (--left_ > 0) return;
  const auto failed = std::find_if(loops_.begin(), loops_.end(),
                                   [](const auto& each) { return !each->status.ok(); });
  std::exchange(done_, nullptr)(failed == loops_.end() ? absl::OkStatus() : (*failed)->status);
}

// ---- what is checked ----

bool Loops::MayFail() const {
  return config_.failing_steps || config_.changing_steps || config_.max_step_attempts < 1000 ||
         config_.lose_devices || config_.liar || config_.lying_ps;
}

void Loops::Check(const Loop& loop) {
  const RunRequest& request = loop.request;
  const bool whole = loop.status.ok() && !loop.stopped && !request.last_step;
  if (request.last_step && loop.status.ok() && !loop.stopped &&
      site_.core().step() < *request.last_step)
    site_.Violated("X10", absl::StrCat("a loop to step ", *request.last_step, " is over at step ",
                                       site_.core().step()));
  if (request.leased) return CheckLeased(loop, whole && !MayFail());
  // Only without faults is every worker there, and none begins its share a second time.
  const bool calm = config_.fault_rate == 0 && config_.lose == 0 && config_.break_stream == 0 &&
                    config_.slow == 0 && config_.late == 0;
  if (whole && calm && !MayFail()) CheckOwn(loop);
}

void Loops::CheckLeased(const Loop& loop, bool complete) {
  auto positions = site_.core().Inspect().finished_positions;
  const int64_t elements = ElementsOf(config_, loop.request.source);
  for (const ResourceId iterator : IteratorsOf(loop)) {
    const std::vector<int> times = TimesRead(positions[iterator], elements);
    for (int64_t p = 0; p < elements; ++p) {
      if (times[p] > 1 || (complete && times[p] == 0))
        site_.Violated("X10", absl::StrCat("element ", p, " of ", elements, " of a loop over ",
                                           loop.request.source, " was read ", times[p], " times"));
    }
  }
}

// Checks that each worker that has read of its share has read all of it, and that no element was
// read twice.
void Loops::CheckOwn(const Loop& loop) {
  ++counts_.own_judged;
  const int64_t elements = ElementsOf(config_, kOwn);
  for (const ResourceId iterator : IteratorsOf(loop)) {
    const int shares = shares_[iterator];
    std::set<int64_t> read;
    for (const auto& [whose, taken] : taken_) {
      const int worker = whose.second;
      if (whose.first != iterator) continue;
      for (const int64_t element : taken) {
        if (!read.insert(element).second)
          site_.Violated(
              "X10", absl::StrCat("element ", element, " of the workers' own data was read twice"));
      }
      const int64_t share = (elements - worker + shares - 1) / shares;
      if (static_cast<int64_t>(taken.size()) != share)
        site_.Violated("X10", absl::StrCat("worker ", worker, " has read ", taken.size(),
                                           " of the ", share, " elements of its share"));
    }
  }
}

// ---- the workers ----

void Loops::OnMake(const MakeResource& make) {
  const Nest::List* args = make.args.list();
  // Data of another life, such as a zombie's, is not recorded.
  if (!absl::StartsWith(make.source, "loop/") || args == nullptr ||
      *(*args)[0].tensor()->scalar<int64_t>() != life_)
    return;
  made_[{make.source, *(*args)[1].tensor()->scalar<int64_t>()}].insert(make.iterator);
  shares_[make.iterator] = make.num_workers;
}

bool Loops::Take(int worker, ScriptedInputOpener& inputs, const StepCall& call, bool again,
                 std::vector<script::Move>& moves) {
  const ResourceId iterator = IteratorOf(call);
  const auto open = inputs.open();
  const auto found = open.find(iterator);
  const bool is_own = call.inputs.empty();
  if (is_own && found != open.end() && worker >= found->second.num_workers) {
    moves.push_back(script::Fail{absl::FailedPreconditionError(
        absl::StrCat("worker ", worker, " came after the data had been cut"))});
    return true;
  }
  if (is_own) {
    const std::optional<int64_t> element = inputs.Next(iterator);
    if (element) taken_[{iterator, worker}].push_back(*element);
    if (element) return true;
    moves.push_back(script::Ended{{iterator, std::nullopt}});
  } else {
    const InputLease& lease = call.inputs[0];
    const int64_t elements = found == open.end() ? 0 : ElementsOf(config_, found->second.source);
    const int64_t there = ElementsAt(lease, elements);
    if (there == lease.count && there > 0) return true;
    moves.push_back(script::Ended{{iterator, lease.first + there}});
    if (there > 0) return true;
  }
  // A second run of a step may find its data at the end, because the first run has taken the
  // element. It can succeed without one.
  const bool goes_on = call.function == kGoesOn || (is_own && again);
  counts_.handled_ends += goes_on;
  return goes_on;
}

}  // namespace divvy::sim
