#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"
#include "tests/sim/visits.h"

namespace divvy::sim {

// Steps that read two of the program's datasets, one of which ends before the other. Some steps
// handle the end ("read_on"), the others end with it ("read"). After them, steps read the longer
// dataset alone until its end. Then each of its elements must have been read once.

constexpr int64_t kMoreThanElements = 20, kMostBatches = 6;

int64_t Cluster::ElementsOf(const std::string& source) const {
  Random random(MixSeeds(config_.seed, 7));
  const auto left = static_cast<int64_t>(5 + random.Below(30)),
             right = static_cast<int64_t>(random.Below(10));
  return source == "left" ? left : right;
}

void Cluster::ReadTwo() {
  // No later life of the program continues such a pass.
  const Nest args(Nest::List{Nest(int64_t{life_}), Nest(Tick())});
  reading_ = Reading{core_->MakeIterator("left", args, /*leased=*/true),
                     core_->MakeIterator("right", args, /*leased=*/true), 0, 0};
  const std::string function = when_.Chance(0.5) ? "read_on" : "read";
  Trace(absl::StrCat("program: reads two datasets, ", function));
  beside_.Start();
  std::vector<StepRequest> requests;
  for (uint64_t n = 1 + when_.Below(20); n > 0; --n)
    requests.push_back(ReadRequest(function, {reading_->left, reading_->right}));
  ScheduleAll(std::move(requests), [this] { JoinThen([this] { ReadTheRest(); }); });
}

StepRequest Cluster::ReadRequest(const std::string& function,
                                 const std::vector<ResourceId>& iterators) {
  const int64_t tag = next_tag_++;
  scheduled_[tag] = Tick();
  Nest::List args{Nest(tag)};
  for (const ResourceId iterator : iterators)
    args.push_back(Nest(PerWorkerHandle{iterator.value()}));
  return {function, Nest(std::move(args)), /*read_only=*/false};
}

void Cluster::ReadTheRest() {
  const auto visited =
      static_cast<int64_t>(core_->Inspect().finished_positions[reading_->left].size());
  const bool nothing_new = reading_->batches > 0 && visited == reading_->visited;
  if (nothing_new || ++reading_->batches > kMostBatches) return EndReading();
  reading_->visited = visited;
  std::vector<StepRequest> requests;
  for (int64_t n = ElementsOf("left") + kMoreThanElements; n > 0; --n)
    requests.push_back(ReadRequest("read_on", {reading_->left}));
  ScheduleAll(std::move(requests), [this] { JoinThen([this] { ReadTheRest(); }); });
}

void Cluster::EndReading() {
  Trace("program: has read two datasets");
  ++result_.read_two;
  CheckRead(reading_->left, ElementsOf("left"),
            /*complete=*/!StepsMayFail() && !config_.changing_steps && !config_.liar);
  CheckRead(reading_->right, ElementsOf("right"), /*complete=*/false);
  DropReading();
  EndRound();
}

void Cluster::DropReading() {
  if (!reading_) return;
  core_->DropIterator(reading_->left);
  core_->DropIterator(reading_->right);
  reading_.reset();
}

void Cluster::CheckRead(ResourceId iterator, int64_t elements, bool complete) {
  const std::vector<int> times = TimesRead(core_->Inspect().finished_positions[iterator], elements);
  for (int64_t p = 0; p < elements; ++p) {
    if (times[p] > 1 || (complete && times[p] == 0)) {
      Violation("X10", absl::StrCat("element ", p, " of ", elements,
                                    " of a dataset of the program was read ", times[p], " times"));
    }
  }
}

// Plays a step's read of its leased positions. Returns false if one of the datasets has no element
// there and the step does not handle that.
bool Cluster::TakeInputs(Process& process, const StepCall& call,
                         std::vector<script::Move>& moves) const {
  const std::map<ResourceId, MakeResource> open = process.inputs->open();
  bool has_all = true;
  for (const InputLease& lease : call.inputs) {
    const auto found = open.find(lease.iterator);
    const int64_t elements = found == open.end() ? 0 : ElementsOf(found->second.source);
    const int64_t there = ElementsAt(lease, elements);
    if (there == lease.count && lease.count > 0) continue;
    moves.push_back(script::Ended{{lease.iterator, lease.first + there}});
    has_all &= there > 0;
  }
  return has_all || call.function == "read_on";
}

}  // namespace divvy::sim
