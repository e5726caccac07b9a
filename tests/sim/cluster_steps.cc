#include "tests/sim/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/sim/visits.h"

namespace divvy::sim {

int64_t Cluster::TagOf(const StepCall& call) const {
  if (Loops::IsOf(call)) return Loops::TagOf(call);
  if (IsOfPass(call)) return -1 - call.inputs[0].first;  // a position
  return *(*call.args.list())[0].tensor()->scalar<int64_t>();
}

std::vector<Delta> Cluster::DeltasOf(int64_t tag, uint32_t attempt) const {
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 77));
  if (config_.changing_steps && attempt > 1 && random.Chance(0.3))
    random = Random(MixSeeds(MixSeeds(config_.seed, tag), attempt));
  std::vector<Delta> deltas;
  const int touched = static_cast<int>(random.Below(config_.num_variables + 1));  // may be none
  for (int i = 0; i < touched; ++i) {
    Delta delta;
    delta.variable = static_cast<int>(random.Below(config_.num_variables));
    delta.amount = 1 + static_cast<int64_t>(random.Below(5));
    if (random.Chance(0.5)) {
      const int64_t rows = shapes_[delta.variable].dim(0);
      for (uint64_t n = 1 + random.Below(3); n > 0; --n)
        delta.ids.push_back(static_cast<int64_t>(random.Below(rows)));
    }
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

bool Cluster::StepFails(int64_t tag, uint32_t attempt) const {
  // Fails on every attempt.
  if (config_.failing_steps && MixSeeds(MixSeeds(config_.seed, tag), 5) % 29 == 0) return true;
  return config_.changing_steps && attempt > 1 &&
         MixSeeds(MixSeeds(config_.seed, tag), 6 + attempt) % 11 == 0;
}

// A lost GPU fails every later step of its process. A few steps may still come: if their session
// has ended meanwhile, the coordinator does not hear their reports.
bool Cluster::LosesDevice(Process& process, const StepCall& call, EntryId step) {
  if (!config_.lose_devices) return false;
  const uint64_t draw = MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(TagOf(call))), 9);
  const bool breaks = !faults_stopped_ && ((config_.breaking_steps && draw % 61 == 0) ||
                                           (call.attempt == 1 && draw % 37 == 1));
  if (!breaks && process.steps_without_device == 0) return false;
  constexpr int kMostUnheard = 6;
  if (++process.steps_without_device > kMostUnheard) {
    Violation("X16", absl::StrCat(process.node->address, " has lost its GPU, but has been given ",
                                  process.steps_without_device - 1, " steps since"));
  }
  const int broken = ++devices_broken_by_[{step, process.session.first}];
  if (broken > static_cast<int>(kMostDevicesLost) + kMostUnheard) {
    Violation("X16",
              absl::StrCat("step ", TagOf(call), " is run again, although it has cost the GPUs of ",
                           broken - 1, " workers"));
  }
  Trace(absl::StrCat(process.node->address, " has lost its GPU in step ", TagOf(call)));
  return true;
}

void Cluster::BeginInSession(Process& process, const WorkerSnapshot& runner) {
  if (process.session != std::pair(runner.epoch, runner.session))
    process.floors.clear(), process.seen.clear(), process.written.clear();
  process.session = {runner.epoch, runner.session};
  if (process.own_in != StateOf(process)) process.own_begun.clear(), process.own_done.clear();
  process.own_in = StateOf(process);
  Process::Begun begun{model_.values, {}};
  for (const auto& [step, deltas] : process.own_begun) {
    if (model_.reported.count(step) == 0) begun.own.insert(step);
  }
  process.floors.push_back(std::move(begun));
  constexpr size_t kLongestAgo = 8;
  if (process.floors.size() > kLongestAgo) process.floors.pop_front();
}

// The worker has reported the step. Steps of its session that begin from now on see the step's
// writes. A step that has begun already (--pipeline_depth) may not see them.
void Cluster::OnReported(const Node& from, SessionId session, EntryId step) {
  AssignBeforeReport(from, step);
  for (const auto& process : processes_) {
    if (process->node.get() != &from || process->session.second != session) continue;
    if (const auto own = process->own_begun.find(step); own != process->own_begun.end())
      process->own_done.insert(*own);
    auto replaced = process->to_be_replaced.extract(step);
    if (!replaced.empty() && process->assigned_in == StateOf(*process)) {
      result_.rows_replaced += static_cast<int64_t>(replaced.mapped().size());
      process->replaced.merge(replaced.mapped());
    }
    const auto written = process->written.extract(step);
    if (written.empty()) continue;
    for (const auto& [row, value] : written.mapped())
      process->seen[row] = std::max(process->seen[row], value);
  }
}

// The step has committed. The program assigns after it, and has the answer before it learns that
// the step has finished.
void Cluster::AssignBeforeReport(const Node& worker, EntryId step) {
  if (!config_.assign_in_steps || !beside_.open() || chief_down_ || faults_stopped_ ||
      !random_.Chance(0.3))
    return;
  const std::optional<Ran> ran = RanAs(step);
  if (!ran || ran->serial != 0 || !CellChangeOf(ran->tag, step)) return;
  network_.SlowNext(worker.address, chief_address(), absl::Milliseconds(50));
  world_.Post([this, alive = Alive()] {
    if (alive() && beside_.open()) beside_.AssignCells();
  });
}

// The record of the step that began `steps_back` steps before the session's newest one; of the
// session's oldest recorded step if there are fewer.
const Process::Begun& Cluster::BegunBefore(const Process& process, int steps_back) {
  const size_t newest = process.floors.size() - 1;
  return process.floors[newest - std::min(newest, static_cast<size_t>(steps_back))];
}

// The lower bound of BegunBefore, and in addition what earlier steps of the same session have
// added.
Cluster::Floors Cluster::FloorWithOwn(const Process& process, int steps_back) const {
  const Process::Begun& oldest = BegunBefore(process, steps_back);
  Floors floor = oldest.finished;
  for (const EntryId step : oldest.own) {
    if (const auto done = process.own_done.find(step); done != process.own_done.end())
      AddTo(floor, done->second);
  }
  return floor;
}

void Cluster::ReadWhole(Process& process, int64_t tag, int variable,
                        std::vector<script::Move>& moves) {
  const int steps_back = config_.may_miss.value_or(config_.pipeline_depth - 1);
  moves.push_back(script::Read{{{absl::StrCat("v", variable), std::nullopt}}});
  moves.push_back(script::Compute{
      [this, &process, tag, variable, begun_in = process.own_in,
       floor = BegunBefore(process, steps_back).finished[variable],
       with_own = FloorWithOwn(process, steps_back)[variable]](const script::Reads& reads) {
        HitFailpoint(Failpoint::kStepPulled);
        // The step was cancelled while it read, and ignores that.
        if (reads.empty()) return std::vector<StagedWrite>();
        const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
        const std::vector<int64_t>& least = begun_in == StateOf(process) ? with_own : floor;
        for (size_t i = 0; i < values.size(); ++i) {
          if (values[i] < least[i]) {
            Violation("X9", absl::StrCat("step ", tag, " read ", values[i], " although ", least[i],
                                         " had finished (v", variable, "[", i, "])"));
          }
        }
        return std::vector<StagedWrite>();
      }});
}

// Checks the n-th read of a step, which reads rows. Each row is at least what it was in the oldest
// state that may be read, and at least what this session has read or written before.
script::Compute Cluster::CheckRows(Process& process, int64_t tag, int variable,
                                   std::vector<int64_t> ids, size_t nth) {
  const std::vector<int64_t> floor = BegunBefore(process, 0).finished[variable];
  return {[this, &process, tag, variable, ids = std::move(ids), floor, nth,
           session = process.session](const script::Reads& reads) {
    if (reads.size() != nth || process.session != session) return std::vector<StagedWrite>();
    const int64_t width = shapes_[variable].row_elements();
    const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t value = values[i * width], least = floor[ids[i] * width];
      int64_t& seen = process.seen[{variable, ids[i]}];
      if (value < least)
        Violation("X9", absl::StrCat("step ", tag, " read ", value, " although ", least,
                                     " had finished (v", variable, ", row ", ids[i], ")"));
      if (value < seen)
        Violation("X11", absl::StrCat("step ", tag, " read ", value, " after its session has read ",
                                      seen, " (v", variable, ", row ", ids[i], ")"));
      seen = std::max(seen, value);
      ++result_.rows_read;
    }
    return std::vector<StagedWrite>();
  }};
}

void Cluster::ReadRows(Process& process, const StepCall& call, bool check,
                       std::vector<script::Move>& moves) {
  const int64_t tag = TagOf(call);
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 2000 + call.attempt));
  auto reads =
      static_cast<size_t>(std::count_if(moves.begin(), moves.end(), [](const script::Move& move) {
        return std::holds_alternative<script::Read>(move);
      }));
  for (uint64_t n = random.Below(3); n > 0; --n) {
    const int variable = static_cast<int>(random.Below(config_.num_variables));
    std::vector<int64_t> ids;
    for (uint64_t i = 1 + random.Below(3); i > 0; --i)
      ids.push_back(static_cast<int64_t>(random.Below(shapes_[variable].dim(0))));
    moves.push_back(script::Read{
        {{absl::StrCat("v", variable), Tensor::Vector<int64_t>(absl::MakeConstSpan(ids))}}});
    ++reads;
    if (check) moves.push_back(CheckRows(process, tag, variable, std::move(ids), reads));
  }
}

// Remembers the rows as they are after the step. The step has read them before its own writes.
void Cluster::RememberWritten(Process& process, EntryId step, const std::vector<Delta>& deltas) {
  Process::Rows after = process.seen;
  for (const Delta& delta : deltas) {
    for (auto& [row, value] : after) {
      if (row.first != delta.variable) continue;
      value += delta.amount *
               (delta.ids.empty() ? 1 : std::count(delta.ids.begin(), delta.ids.end(), row.second));
    }
  }
  process.written[step] = std::move(after);
}

Assignment Cluster::AssignmentOf(int64_t tag) const {
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 3000));
  Assignment assignment;
  assignment.reads_whole = random.Chance(0.5);
  const auto row = static_cast<int64_t>(random.Below(kAssignedRows));
  if (!config_.assigning_steps || !random.Chance(0.5)) return assignment;
  return random.Chance(0.2) ? Assignment{assignment.reads_whole, 0, kAssignedRows}
                            : Assignment{assignment.reads_whole, row, row + 1};
}

// While this state lasts, a replaced value does not come back. A recovery changes the state,
// because it replays steps that may overlap.
ServersState Cluster::StateOf(const Process& process) {
  const WorkerSnapshot worker = process.worker->Inspect();
  const CoordinatorSnapshot chief = core_->Snapshot();
  return {worker.epoch, worker.session, core_->Inspect().lineage, chief.recoveries, chief.phase};
}

// Reads all rows of "assigned", whole or by row. With `check`, the step also remembers the values
// that its assign will replace. That is certain only at a first attempt: for a later one, an
// earlier attempt may have been applied before the read.
void Cluster::ReadAssigned(Process& process, const WorkerSnapshot& runner, const StepCall& call,
                           bool check, std::vector<script::Move>& moves) {
  if (process.assigned_in != StateOf(process))
    process.replaced.clear(), process.to_be_replaced.clear();
  process.assigned_in = StateOf(process);
  Assignment assignment = AssignmentOf(TagOf(call));
  if (!call.ordinal) assignment.last = assignment.first;  // a read-only step assigns nothing
  VariableRead read{"assigned", std::nullopt};
  if (!assignment.reads_whole) read.ids = Tensor::Vector<int64_t>({0, 1, 2, 3, 4, 5, 6, 7});
  const auto before =
      static_cast<size_t>(std::count_if(moves.begin(), moves.end(), [](const script::Move& move) {
        return std::holds_alternative<script::Read>(move);
      }));
  moves.push_back(script::Read{{std::move(read)}});
  if (!check) return;
  Process::Replaced gone = process.replaced;
  const auto committing = runner.committing ? process.to_be_replaced.find(*runner.committing)
                                            : process.to_be_replaced.end();
  // A step does not miss the assigns of the step that is committing either.
  if (committing != process.to_be_replaced.end())
    gone.insert(committing->second.begin(), committing->second.end());
  moves.push_back(script::Compute{[this, &process, call, assignment, nth = before + 1,
                                   begun_in = process.assigned_in,
                                   replaced = std::move(gone)](const script::Reads& reads) {
    if (reads.size() != nth || begun_in != StateOf(process)) return std::vector<StagedWrite>();
    const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
    Process::Replaced will_be;
    for (int64_t row = 0; row < kAssignedRows; ++row) {
      const int64_t value = values[row * kAssignedWidth];
      if (replaced.count({row, value}) > 0) {
        Violation("X11", absl::StrCat("step ", TagOf(call), " read ", value, " in row ", row,
                                      " of \"assigned\", although its session has replaced it"));
      }
      if (row >= assignment.first && row < assignment.last) will_be.emplace(row, value);
    }
    if (call.attempt == 1) process.to_be_replaced[call.step] = std::move(will_be);
    return std::vector<StagedWrite>();
  }});
}

void Cluster::Assign(const StepCall& call, std::vector<script::Move>& moves) const {
  const Assignment assignment = AssignmentOf(TagOf(call));
  const int64_t rows = assignment.last - assignment.first;
  if (rows == 0) return;
  StagedWrite write;
  write.variable = "assigned";
  write.op = rows == kAssignedRows ? WriteOp::kAssign : WriteOp::kScatterUpdate;
  const std::vector<int64_t> values(rows * kAssignedWidth, static_cast<int64_t>(call.step.value()));
  write.value = *Tensor::Copy<int64_t>(AssignedShape().WithRows(rows), values);
  if (rows == 1) write.ids = Tensor::Vector<int64_t>({assignment.first});
  moves.push_back(script::Stage{std::move(write)});
}

std::vector<script::Move> Cluster::Body(Process& process, const StepCall& call) {
  const int64_t tag = TagOf(call);
  if (process.replicas != config_.replicas)
    Violation("X19",
              absl::StrCat("step ", tag, " runs on a worker of ", process.replicas, " replicas"));
  const WorkerSnapshot runner = process.worker->Inspect();
  const InputLease lease = IsOfPass(call) ? call.inputs[0] : InputLease{};
  const int64_t positions = ElementsAt(lease, *pass_elements_);
  const bool again = call.attempt > 1 || RanAs(call.step).has_value();
  const uint32_t tick = TickOf(call, runner.epoch);
  ran_[runner.job][{call.step, runner.epoch}] = {
      tag, call.learning_rate_scale, 0, call.ordinal.value_or(-1), positions, tick};
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 1000 + call.attempt));
  std::vector<script::Move> moves;
  Trace(absl::StrCat(process.node->address, " runs step ", tag, call.ordinal ? "" : ", read-only"));
  BeginInSession(process, runner);
  if (IsOfPass(call) && positions == 0) return {script::RunOut{}};
  const bool has_data = Loops::IsOf(call)
                            ? loops_.Take(process.index, *process.inputs, call, again, moves)
                            : IsOfPass(call) || TakeInputs(process, call, moves);
  if (!has_data) return moves.push_back(script::RunOut{}), moves;
  if (positions < lease.count) moves.push_back(script::Ended{{lease.iterator, *pass_elements_}});
  result_.reruns += call.attempt > 1;
  if (random.Chance(0.1)) moves.push_back(script::IgnoreCancel{});
  // The model is that of the current life of the program. A step that is replayed after a rewind
  // reads older values.
  const CoordinatorSnapshot chief = core_->Snapshot();
  const bool of_the_past =
      runner.epoch != chief.epoch_id || chief.phase != CoordinatorSnapshot::Phase::kRunning;
  // A part of the first attempt may have been applied.
  if (call.attempt > 1) process.own_begun.erase(call.step);
  if (call.ordinal && call.attempt == 1 && !of_the_past)
    process.own_begun.emplace(call.step, DeltasOf(tag, call.attempt));
  // A job that began anew beside tasks of the old one may use the same epochs.
  const bool two_worlds = lost_store_ && (had_duplicate_ || had_zombie_);
  if (random.Chance(0.5) && JudgesReads() && !of_the_past && !two_worlds) {
    ReadWhole(process, tag, static_cast<int>(random.Below(config_.num_variables)), moves);
  }
  const bool reads_rows = config_.reads_rows &&
                          (config_.pipeline_depth == 1 || config_.rows_at_any_depth) &&
                          JudgesReads() && !two_worlds;
  if (reads_rows) ReadRows(process, call, /*check=*/!of_the_past, moves);
  if (config_.assigning_steps)
    ReadAssigned(process, runner, call,
                 /*check=*/JudgesReads() && !of_the_past && !two_worlds && !lost_store_, moves);
  if (config_.table) UseTable(tag, call.ordinal.has_value(), moves);
  const bool long_for_assign =
      config_.assign_in_steps && CellChangeOf(tag, call.step) && random.Chance(0.5);
  if (long_for_assign)
    moves.push_back(script::Take{absl::Milliseconds(static_cast<int64_t>(random.Below(400)))});
  moves.push_back(script::Take{absl::Microseconds(
      static_cast<int64_t>(random.Below(random.Chance(0.05) ? 3'000'000 : 5'000)))});
  const bool comes_again = Loops::IsOf(call);  // the same tag runs in each pass of its loop
  if (config_.long_steps && !comes_again && call.attempt == 1 &&
      MixSeeds(MixSeeds(config_.seed, tag), 8) % 50 == 0) {
    ++result_.overran;
    moves.push_back(script::Take{2 * config_.step_deadline});
  }
  if (random.Chance(0.02) && call.attempt < 3) return moves.push_back(script::LoseInput{}), moves;
  if (LosesDevice(process, call, call.step))
    return moves.push_back(
               script::Fail{MakeError(Reason::kDeviceLost, "GPU:0 (simulated) is lost")}),
           moves;
  if (StepFails(tag, call.attempt))
    return moves.push_back(
               script::Fail{absl::InvalidArgumentError(absl::StrCat("step ", tag, " fails"))}),
           moves;
  if (!call.ordinal) return moves.push_back(Answer(call, tick)), moves;
  for (const Delta& delta : DeltasOf(tag, call.attempt)) {
    const Shape& shape = shapes_[delta.variable];
    StagedWrite write;
    write.variable = absl::StrCat("v", delta.variable);
    write.op = delta.ids.empty() ? WriteOp::kAdd : WriteOp::kScatterAdd;
    const Shape value_shape =
        delta.ids.empty() ? shape : shape.WithRows(static_cast<int64_t>(delta.ids.size()));
    const std::vector<int64_t> amounts(value_shape.num_elements(), delta.amount);
    write.value = *Tensor::Copy<int64_t>(value_shape, amounts);
    if (!delta.ids.empty()) write.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(delta.ids));
    moves.push_back(script::Stage{std::move(write)});
  }
  Assign(call, moves);
  if (const auto change = CellChangeOf(tag, call.step)) StageCellChange(*change, moves);
  if (const auto late = LateGradientOf(tag)) {
    const Optimizer optimizer =
        LateIsMomentum(tag) ? Optimizer(Momentum{1.0, 1}) : Optimizer(Adagrad{0.001, 0});
    const std::vector<float> values(4, static_cast<float>(*late));
    moves.push_back(
        script::Stage{{"late", WriteOp::kGradient, *Tensor::Copy<float>(Shape{4}, values),
                       std::nullopt, optimizer}});
  }
  // Another step may read what an earlier one has committed.
  if (reads_rows && !of_the_past && call.attempt == 1) {
    moves.push_back(script::Compute{[this, &process, step = call.step,
                                     deltas = DeltasOf(tag, call.attempt)](const script::Reads&) {
      RememberWritten(process, step, deltas);
      return std::vector<StagedWrite>();
    }});
  }
  StagedWrite gradient;
  gradient.variable = "adam";
  gradient.op = WriteOp::kGradient;
  gradient.value = *Tensor::Copy<float>(Shape{4}, {1, 2, 3, 4});
  moves.push_back(script::Stage{std::move(gradient)});
  moves.push_back(Answer(call, tick));
  return moves;
}

// The result that the program receives, from the attempt that counted.
script::Return Cluster::Answer(const StepCall& call, int64_t tick) const {
  const std::vector<int64_t> numbers = {TagOf(call),
                                        static_cast<int64_t>(call.attempt),
                                        static_cast<int64_t>(call.step.value()),
                                        static_cast<int64_t>(4 * call.learning_rate_scale),
                                        call.ordinal.value_or(-1),
                                        tick};
  return {[numbers](const script::Reads&) {
    Nest::List list;
    for (const int64_t number : numbers) list.push_back(Nest(number));
    return Nest(std::move(list));
  }};
}

bool Cluster::IsReadOnly(int64_t tag) const {
  return config_.read_only_steps && tag > 0 && MixSeeds(MixSeeds(config_.seed, tag), 9) % 6 == 0;
}

std::optional<Cluster::CellChange> Cluster::CellChangeOf(int64_t tag, EntryId step) const {
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 4000));
  if (!config_.cells || !random.Chance(config_.cell_rate)) return std::nullopt;
  CellChange change;
  change.cell = static_cast<int64_t>(random.Below(kCells));
  const uint64_t kind = random.Below(4);
  change.op = {kind == 0 ? 0 : kind == 1 ? -1 : 1, static_cast<int64_t>(step.value())};
  return change;
}

void Cluster::StageCellChange(const CellChange& change, std::vector<script::Move>& moves) {
  const auto stage = [&](WriteOp op, int64_t value) {
    moves.push_back(script::Stage{{kCellsName, op, Tensor::Vector<int64_t>({value}),
                                   Tensor::Vector<int64_t>({change.cell}), std::nullopt}});
  };
  if (change.op.scale == -1) stage(WriteOp::kScatterMul, -1);
  stage(change.op.scale == 0 ? WriteOp::kScatterUpdate : WriteOp::kScatterAdd, change.op.add);
}

std::optional<int64_t> Cluster::LateGradientOf(int64_t tag) const {
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 4001));
  if (!config_.slots_on_demand || !random.Chance(0.2)) return std::nullopt;
  return 1 + static_cast<int64_t>(random.Below(3));
}

void Cluster::DefineScripts(Process& process) {
  for (const char* function : {"work", "read", "read_on", "loop", "loop_on"}) {
    process.runner->Define(function,
                           [this, &process](const StepCall& call) { return Body(process, call); });
  }
}

}  // namespace divvy::sim
