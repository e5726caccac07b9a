#include "tests/sim/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "tests/sim/visits.h"

namespace divvy::sim {

void Cluster::BeginPass() {
  Model::Pass pass;
  pass.source = random_.Chance(0.5) ? "known" : "unknown";
  Random random(MixSeeds(MixSeeds(config_.seed, 6'000), static_cast<uint64_t>(Tick())));
  if (random.Chance(0.5))
    pass.args = Nest(*Tensor::Zeros(DType::kInt64, Shape{static_cast<int64_t>(random.Below(100))}));
  pass.epoch = core_->epoch();
  pass.begun = ticks_;
  model_.pass = std::move(pass);
}

void Cluster::RunPass() {
  if (!model_.pass) BeginPass();
  RunRequest request;
  request.step = {"work", Nest(), false};
  request.source = model_.pass->source;
  request.source_args = model_.pass->args;
  request.token = next_token_++;
  Trace(absl::StrCat("program: runs a pass over ", *pass_elements_, " elements, ", request.source,
                     ", ", model_.pass->visited.size(), " steps of it done"));
  passes_before_ = core_->Inspect().finished_positions.size();
  calls_ = true;
  beside_.Start();
  core_->Run(request, Mine([this](const Nest& value) { Finished(value); }),
             Mine([this](const absl::Status& status) { OnPassOver(status); }));
  if (config_.stop_runs && when_.Chance(0.3)) StopSometime(request.token);
}

void Cluster::OnPassOver(const absl::Status& status) {
  CheckPass(*pass_elements_, status.ok());
  if (EndsTheJob(status)) return OnRaised(status, "Run");  // the next life continues the pass
  model_.pass->visited = Visited();
  model_.pass->failed = !status.ok();
  model_.last_pass = std::exchange(model_.pass, std::nullopt);
  if (!status.ok()) return OnRaised(status, "Run");
  Trace("program: the pass is over");
  EndRound();
}

// Runs loops that no later life continues.
void Cluster::RunLoops() {
  const int64_t first_tag = std::exchange(next_tag_, next_tag_ + Loops::kTags);
  scheduled_[first_tag] = Tick();
  calls_ = true;
  beside_.Start();
  loops_.Run(
      first_tag, [this](const Nest& value) { Finished(value); },
      Mine([this](const absl::Status& status) {
        if (!status.ok()) return OnRaised(status, "Run");
        EndRound();
      }));
}

void Cluster::StopSometime(uint64_t token) {
  After(absl::Milliseconds(static_cast<int64_t>(when_.Below(when_.Chance(0.5) ? 50 : 5'000))),
        [this, token] {
          if (!model_.pass || token + 1 != next_token_) return;
          Trace("program: stops its loop");
          ++result_.stopped_runs;
          model_.pass->stopped = true;
          core_->StopRun(token);
        });
}

// The positions (first, count) that steps of the running pass have read, in this life of the
// program and in earlier ones.
std::vector<std::pair<int64_t, int64_t>> Cluster::Visited() const {
  std::vector<std::pair<int64_t, int64_t>> visited = model_.pass->visited;
  const auto of_this_life = core_->Inspect().finished_positions;
  if (of_this_life.size() <= passes_before_) return visited;
  const auto& latest = of_this_life.rbegin()->second;
  visited.insert(visited.end(), latest.begin(), latest.end());
  return visited;
}

// The wire refuses a higher number of workers, and the share of a worker that does not exist would
// never be read.
void Cluster::OnToWorker(Epoch sender, const ToWorker& message) {
  if (const auto* dispatch = std::get_if<Dispatch>(&message))
    ticks_of_steps_[{sender, dispatch->step}] = dispatch->tick;
  const auto* make = std::get_if<MakeResource>(&message);
  if (make != nullptr) loops_.OnMake(*make);
  const int most = 4 * (config_.num_workers + 4);  // a liar registers a few indices beside its own
  if (make != nullptr && make->num_workers > most)
    Violation("X10",
              absl::StrCat("data is cut for ", make->num_workers, " workers, of which few exist"));
}

// The majority of the workers that have opened the data decides where it ends. With fewer than two
// honest ones, the liar decides.
void Cluster::OnFalseEnd() {
  const auto has_opened = [epoch = core_->Snapshot().epoch_id](const auto& entry) {
    const Process& process = *entry.second;
    const WorkerSnapshot seen = process.worker->Inspect();
    return process.node->executor->alive() && !process.node->executor->paused() && seen.attached &&
           seen.epoch == epoch && !process.inputs->open().empty();
  };
  liar_was_believed_ |= std::count_if(workers_.begin(), workers_.end(), has_opened) < 2;
}

void Cluster::CheckPass(int64_t elements, bool complete) {
  const std::vector<int> times = TimesRead(Visited(), elements);
  // Any worker that reaches the end reports it.
  const bool end_is_told = config_.liar && (model_.pass->source == "unknown" || liar_was_believed_);
  const bool some_may_be_skipped =
      !complete || end_is_told || model_.pass->uncertain || model_.pass->stopped ||
      (StepsMayFail() &&
       !model_.pass->visited.empty());  // skipped by a step that failed in an earlier life
  for (int64_t p = 0; p < elements; ++p) {
    if (times[p] > 1 || (!some_may_be_skipped && times[p] == 0))
      Violation("X10",
                absl::StrCat("position ", p, " of the pass was visited ", times[p], " times"));
  }
}

// The store learns that a pass is over after the program does. A life that still finds the pass
// there continues it, and reports its end to the program once more.
void Cluster::AdoptPass() {
  const absl::StatusOr<StoredJob> stored = chief_->store->Load();
  // Other passes in the store may be of earlier lives. No life continues those.
  const auto is_stored = [&stored](const std::optional<Model::Pass>& pass) {
    if (!pass || !stored.ok() || !stored->state) return false;
    const std::vector<DataPass>& data = stored->state->state.data;
    return std::any_of(data.begin(), data.end(), [&pass](const DataPass& each) {
      return each.in_loop && each.source == pass->source && BitwiseEqual(each.args, pass->args);
    });
  };
  const bool has_last = is_stored(model_.last_pass);
  // The pass has ended, but the program was not told.
  if (!has_last && !is_stored(model_.pass) && model_.pass && model_.pass->stopped)
    model_.pass.reset();
  if (!has_last) return;
  if (!model_.pass || model_.pass->epoch > core_->epoch()) {
    model_.pass = model_.last_pass;
  } else {
    model_.pass->uncertain = model_.last_pass->failed && model_.pass->visited.empty();
  }
}

}  // namespace divvy::sim
