#include "tests/sim/cluster.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy::sim {

void Cluster::AddTo(Floors& values, const std::vector<Delta>& deltas) const {
  for (const Delta& delta : deltas) {
    std::vector<int64_t>& elements = values[delta.variable];
    const int64_t width = shapes_[delta.variable].row_elements();
    if (delta.ids.empty()) {
      for (int64_t& element : elements) element += delta.amount;
    }
    for (const int64_t id : delta.ids) {
      for (int64_t i = 0; i < width; ++i) elements[id * width + i] += delta.amount;
    }
  }
}

void Cluster::ApplyAssignment(int64_t tag, EntryId step) {
  const Assignment assignment = AssignmentOf(tag);
  for (int64_t row = assignment.first; row < assignment.last; ++row)
    model_.assigned[row].insert(static_cast<int64_t>(step.value()));
}

// A value that none of our step functions returns was made up by the liar.
void Cluster::Finished(const Nest& value) {
  if (config_.liar &&
      (value.list() == nullptr || value.list()->size() != 6 || !value[0].tensor().ok())) {
    ++result_.falsely_done, ++model_.steps, ++model_.effects;
    return Trace("finished, as the liar says");
  }
  const auto number = [&value](size_t i) { return *value[i].tensor()->scalar<int64_t>(); };
  const int64_t tag = number(0), attempt = number(1);
  if (number(4) < 0) {
    ++result_.finished_reads;
  } else {
    ++result_.finished_steps;
    CountStep({tag, static_cast<double>(number(3)) / 4, 0, number(4), 0,
               static_cast<uint32_t>(number(5))},
              static_cast<uint32_t>(attempt), EntryId(static_cast<uint64_t>(number(2))));
  }
  Trace(absl::StrCat("finished step ", tag, " in attempt ", attempt));
}

void Cluster::CountStep(const Ran& ran, uint32_t attempt, EntryId step) {
  model_.reported.insert(step);
  if (!model_.ordinals.insert(ran.ordinal).second)
    Violation("X14", absl::StrCat("two steps that finished have the ordinal ", ran.ordinal));
  ++model_.adam_commits, ++model_.steps, ++model_.effects;
  AddTo(model_.values, DeltasOf(ran.tag, attempt));
  ApplyAssignment(ran.tag, step);
  if (const auto change = CellChangeOf(ran.tag, step))
    model_.cells.Finished({change->cell, change->op, BegunAt(ran.tag), Tick(), /*direct=*/false});
  model_.table.Step(TableKeysOf(ran.tag), ran.tick);
  if (const auto late = LateGradientOf(ran.tag)) {
    if (LateIsMomentum(ran.tag)) {
      model_.late_momentum -= ran.learning_rate_scale * static_cast<double>(*late);
    } else {
      model_.late_adagrad += static_cast<double>(*late * *late);
    }
  }
}

// Steps of a loop may be dispatched in any order, so all of them count from the start of the loop.
int64_t Cluster::BegunAt(int64_t tag) const {
  const auto after = scheduled_.upper_bound(tag);  // a loop's tags follow its first one
  if (tag > 0 && after != scheduled_.begin()) return std::prev(after)->second;
  return model_.pass ? model_.pass->begun : 0;
}

// The disk has failed at the one moment after which the coordinator cannot know whether the
// checkpoint exists. The next life looks for it.
bool Cluster::IsUnsureCommit(const absl::Status& error) const {
  return config_.disk_faults && absl::IsUnavailable(error) &&
         absl::StrContains(error.message(), "it is not known whether");
}

bool Cluster::IsStoreFault(const absl::Status& error) const {
  return config_.store_faults && absl::IsResourceExhausted(error) &&
         absl::StrContains(error.message(), "the store's disk");
}

// A life that cannot read the state to begin with ends, and its supervisor starts another.
bool Cluster::IsReadFault(const absl::Status& error) const {
  return config_.reads_fail && !has_run_ && absl::IsUnavailable(error) &&
         absl::StrContains(error.message(), "the disk is broken");
}

bool Cluster::IsTooManyRecoveries(const absl::Status& error) const {
  return config_.max_recoveries < 1000 && absl::IsInternal(error) &&
         absl::StrContains(error.message(), "--max_recoveries");
}

// A step has used up its attempts.
bool Cluster::IsGivenUp(const absl::Status& error) const {
  if (config_.lose_devices && absl::StrContains(error.message(), "was given up after") &&
      absl::StrContains(error.message(), "GPU:0 (simulated) is lost"))
    return true;
  return config_.max_step_attempts < 1000 &&
         (ReasonOf(error) == Reason::kStepGaveUp ||
          absl::StrContains(error.message(), "was given up after"));
}

// Rules about values: what they are, which steps have made them, and what was read. A lying server
// holds values, so these rules are not checked then.
bool Cluster::IsOfValues(absl::string_view rule) {
  return rule != "X7" && rule != "X14" && rule != "X16" && rule != "X17";
}

// The liar registers as several workers. All of them have a higher index than the honest ones.
bool Cluster::NamesLiar(const absl::Status& error) const {
  for (absl::string_view text = error.message();
       config_.liar && absl::StrContains(text, "worker ");) {
    text.remove_prefix(text.find("worker ") + 7);
    int index = 0;
    if (absl::SimpleAtoi(text.substr(0, text.find_first_not_of("0123456789")), &index) &&
        index >= config_.num_workers)
      return true;
  }
  return false;
}

// Whether no later call of this coordinator can succeed after this error.
bool Cluster::EndsTheJob(const absl::Status& error) const {
  if (has_lied_ && !error.ok()) return true;  // the program does not handle such errors
  const Reason reason = ReasonOf(error);
  return IsUnsureCommit(error) || IsStoreFault(error) || IsReadFault(error) ||
         IsTooManyRecoveries(error) || reason == Reason::kPsLost || reason == Reason::kStaleEpoch ||
         reason == Reason::kSecondCoordinator || reason == Reason::kWrongJob ||
         reason == Reason::kJobOver;
}

bool Cluster::IsExpected(const absl::Status& error) const {
  if (lies_ && (absl::StrContains(error.message(), "ps 0") ||
                absl::StrContains(error.message(), "half applied")))
    return true;
  if (IsUnsureCommit(error) || IsStoreFault(error) || IsReadFault(error) ||
      IsTooManyRecoveries(error) || (config_.liar_may_end_job && NamesLiar(error)))
    return true;
  if (config_.liar && NamesLiar(error) && absl::StrContains(error.message(), "half applied"))
    return true;  // the writes of its half-applied step cannot be taken back
  switch (ReasonOf(error)) {
    case Reason::kPsLost:
      return std::any_of(killed_ps_.begin(), killed_ps_.end(),
                         [&](int ps) {
                           return absl::StrContains(error.message(), absl::StrCat("ps ", ps));
                         }) ||
             had_duplicate_ ||
             (had_zombie_ && config_.learn_addresses &&
              absl::StrContains(error.message(), "not registered")) ||  // it obeys the zombie
             (config_.changing_steps && absl::StrContains(error.message(), "half applied")) ||
             IsGivenUp(error) ||
             (config_.changing_steps && config_.max_step_attempts < 1000 &&
              absl::StrContains(error.message(), "failed when it was run again"));
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator: return had_zombie_ || lost_store_;
    case Reason::kWrongJob:
      if (!lost_store_ || config_.named_job) return false;
      return (absl::StrContains(error.message(), "--state_dir") &&
              absl::StrContains(error.message(), "--job_name")) ||
             (had_zombie_ &&
              absl::StrContains(error.message(),
                                "--checkpoint_dir"));  // the zombie has made a checkpoint meanwhile
    case Reason::kJobOver: return chief_draining_;
    default: return false;
  }
}

void Cluster::JobLost(const absl::Status& error) {
  calls_ = false;
  if (chief_down_) return;  // another call has reported it already
  Trace(absl::StrCat("the coordinator ends: ", error.message()));
  if (!IsExpected(error)) Violation("X16", absl::StrCat("the job ended with ", error.ToString()));
  if (ReasonOf(error) == Reason::kJobOver) return;  // DrainCoordinator sees to it
  const bool for_good = ReasonOf(error) == Reason::kPsLost && ps_killed_ && !config_.restart_ps;
  if (lies_) StopLying();
  if (for_good || !config_.kill_coordinator) {
    result_.job_lost = over_ = true;
    return;
  }
  if (ReasonOf(error) == Reason::kWrongJob) RestartTasks();
  ReplaceCoordinator(absl::Milliseconds(500), /*zombie=*/false);
}

// An operator who reads that the tasks are of another job restarts all of them.
void Cluster::RestartTasks() {
  for (int i = 0; i < num_ps_; ++i) {
    network_.Kill(ps_[i]->node->address);
    StartPs(i);
  }
  for (const auto& [index, worker] : workers_) network_.Kill(worker->node->address);
  for (int i = 0; i < config_.num_workers; ++i) StartWorker(i, ++newest_life_[i]);
}

void Cluster::ReplaceCoordinator(absl::Duration after, bool zombie) {
  const StoredJob stored = chief_->store->LeftBehind();
  const bool lose = config_.lose_store && !faults_stopped_ && random_.Chance(0.4) &&
                    stored.job.state == JobRow::State::kRunning;
  const CoordinatorCore::Inspection past = core_->Inspect();
  RememberPast();
  RememberLeftBehind(stored, !zombie && !lose && !chief_->store->broken());
  if (zombie && !lose) chief_->store->TakeAway();
  for (const auto& [id, participants] : past.finished)
    ids_of_the_past_ = std::max(ids_of_the_past_, id.value());
  for (const EntryId id : past.open) ids_of_the_past_ = std::max(ids_of_the_past_, id.value());
  if (lose) ids_of_the_past_ = 0;
  chief_down_ = true;
  if (!zombie) {
    core_->Abandon();
    network_.Kill(chief_address());
  }
  had_zombie_ |= zombie;
  lost_store_ |= lose;
  Trace(absl::StrCat("the coordinator is started again", lose ? ", its store is lost" : ""));
  world_.PostAfter(after, [this, life = life_, stored = lose ? StoredJob() : stored] {
    if (life == life_ && !over_) StartCoordinator(stored);
  });
}

void Cluster::OnRaised(const absl::Status& error, absl::string_view call) {
  calls_ = false;
  if (EndsTheJob(error)) return JobLost(error);
  ++result_.failed_steps;
  result_.given_up += IsGivenUp(error);
  result_.raised_by_liar += NamesLiar(error);
  // A liar may report the end of data whose size is not known.
  const bool found_nothing = config_.liar && absl::StrContains(error.message(), "has no element");
  if (!config_.failing_steps && !config_.changing_steps && !IsGivenUp(error) && !NamesLiar(error) &&
      !found_nothing)
    Violation("X8", absl::StrCat(call, " raised ", error.ToString(), " although no step fails"));
  Trace(absl::StrCat(call, " raised: ", error.message()));
  DropReading();
  beside_.WhenDone([this] {
    // After any error nothing is in flight, and no ps holds anything of a failed or cancelled step.
    CheckAtRest();
    Next();
  });
}

void Cluster::Act() {
  if (over_ || !result_.violation.ok()) return;
  if (created_ < static_cast<int>(Declarations().size())) return CreateNext();
  if (config_.restore && !std::exchange(asked_to_restore_, true)) return Restore();
  // The pass was over, but its program did not learn that before it ended.
  if (model_.pass && core_->epoch() > model_.pass->epoch) {
    CheckPass(*pass_elements_, true);
    model_.pass.reset();
  }
  if (model_.pass) return RunPass();  // the previous life was in the middle of it
  model_.rounds = rounds_done_;
  model_.program_state = absl::StrCat(rounds_done_);
  model_.told.emplace_back(model_.program_state, model_.effects);
  core_->SetProgramState(model_.program_state);
  if (rounds_done_++ >= config_.rounds) return EndProgram();
  // Rows grow old, and a pass over the table goes on.
  if (config_.Evicts() && now() < config_.fault_time && pauses_.Chance(0.7)) {
    return After(absl::Milliseconds(static_cast<int64_t>(pauses_.Below(70'000))),
                 [this] { BeginRound(); });
  }
  BeginRound();
}

void Cluster::BeginRound() {
  if (config_.readers && when_.Chance(0.25)) return ReadTwo();
  if (config_.loops && when_.Chance(0.4)) return RunLoops();
  switch (random_.Below(4)) {
    case 0:
    case 1: return ScheduleSome();
    case 2: return RunPass();
    default: return WriteSome();
  }
}

std::vector<Cluster::Declaration> Cluster::Declarations() const {
  std::vector<Declaration> all;
  for (int i = 0; i < config_.num_variables; ++i)
    all.push_back({{absl::StrCat("v", i), shapes_[i], Zeros(), {}, DType::kInt64}});
  all.push_back({{"adam", {4}, Zeros(), Adam{0.001}}});
  if (config_.assigning_steps)
    all.push_back({{"assigned", AssignedShape(), Zeros(), {}, DType::kInt64}});
  if (config_.cells) all.push_back({{kCellsName, {kCells}, Zeros(), {}, DType::kInt64}});
  if (config_.table) all.push_back({TableSpec()});
  if (config_.slots_on_demand) {
    // Its gradients are small integers, which each format holds exactly.
    VariableSpec late{"late", {4}, Zeros()};
    late.wire = config_.late_wire;
    all.push_back({std::move(late)});
  }
  if (config_.colocated)
    all.push_back({{kNear, {2}, Zeros(), {}, DType::kInt64}, Colocation{kNearTo, 0}});
  return all;
}

std::vector<std::string> Cluster::BroughtNames() const {
  std::vector<std::string> names;
  for (const auto& [name, serial] : model_.brought) names.push_back(name);
  return names;
}

// Creates variables that an earlier life created. The state that this life continues from has them.
void Cluster::ClaimBrought(std::vector<std::string> names) {
  if (names.empty()) return ReadAll();
  const VariableSpec spec{names.back(), {kBroughtRows, kBroughtWidth}, Zeros(), {}, DType::kInt64};
  names.pop_back();
  core_->CreateVariable(spec, std::nullopt, Mine([this, names](const absl::Status& claimed) {
                          if (EndsTheJob(claimed)) return JobLost(claimed);
                          if (!claimed.ok()) return Violation("create", claimed.ToString());
                          ClaimBrought(names);
                        }));
}

void Cluster::CreateNext() {
  const Declaration next = Declarations()[created_++];
  calls_ = true;
  core_->CreateVariable(next.spec, next.with, Mine([this](absl::Status status) {
                          calls_ = false;
                          if (EndsTheJob(status)) return JobLost(status);
                          if (!status.ok()) return Violation("create", status.ToString());
                          Next();
                        }));
}

void Cluster::Restore() {
  calls_ = restoring_ = true;
  core_->RestoreLatest(Mine([this](const absl::StatusOr<int64_t>& steps) {
    calls_ = false;
    // After an error the program does not know which state the job has begun with.
    if (steps.ok()) restoring_ = false;
    if (EndsTheJob(steps.status())) return JobLost(steps.status());
    if (!steps.ok()) return Violation("RestoreLatest", steps.status().ToString());
    OnRestored(*steps);
  }));
}

void Cluster::OnRestored(int64_t steps) {
  if (has_lied_) return model_.pass.reset(), Next();
  ForgetRunsOfLaterEpochs();
  if (core_->Snapshot().adopted_steps) return OnAdopted(steps);
  if (must_adopt_)
    Violation("X21",
              "only the coordinator was lost, but the job continues from a checkpoint, or begins "
              "anew, instead of adopting what its servers hold");
  const std::optional<CheckpointId> from = core_->Snapshot().last_checkpoint;
  Trace(absl::StrCat("program: restored ", steps, " steps from ", from ? from->name() : "nothing"));
  if (!from) {
    if (steps != 0) Violation("X3", absl::StrCat(steps, " steps without a checkpoint"));
    // If the store was lost and the servers are new, ids and epochs begin anew.
    ran_[core_->job()].clear();
    return Next();
  }
  ++result_.restores;
  const auto cut = cuts_.find(*from);
  if (cut == cuts_.end()) return Violation("X3", absl::StrCat(from->name(), " was never cut"));
  if (!cut->second.model) {
    result_.job_lost = over_ = true;  // the state of a zombie's program
    return;
  }
  model_ = *cut->second.model;
  rounds_done_ = model_.rounds;
  if (steps != model_.steps)
    Violation("X3", absl::StrCat(from->name(), " has ", steps, " steps, but ", model_.steps,
                                 " had finished"));
  if (core_->program_state() != model_.program_state)
    Violation("X3", absl::StrCat("program state ", core_->program_state(), ", not ",
                                 model_.program_state));
  calls_ = true;
  ClaimBrought(BroughtNames());
}

void Cluster::ScheduleSome() {
  const int count = 1 + static_cast<int>(random_.Below(config_.batch));
  Trace(absl::StrCat("program: schedules ", count));
  std::vector<StepRequest> requests;
  for (int i = 0; i < count; ++i) {
    const int64_t tag = next_tag_++;
    scheduled_[tag] = Tick();
    requests.push_back({"work", Nest(Nest::List{Nest(tag)}), IsReadOnly(tag)});
  }
  beside_.Start();
  if (config_.assign_in_steps && config_.beside && random_.Chance(0.3)) AssignAtRest();
  ScheduleAll(std::move(requests), [this] { JoinThen([this] { EndRound(); }); });
}

// The round's steps have ended without an error.
void Cluster::EndRound() {
  calls_ = false;
  beside_.WhenDone([this] {
    CheckAtRest();
    ReadAll();
  });
}

// Assigns while no step is open. One server gets its part late: the steps that are scheduled next
// have had time to commit by then.
void Cluster::AssignAtRest() {
  if (!faults_stopped_)
    CutForAWhile(chief_address(), PsAddressOf(static_cast<int>(random_.Below(num_ps_))),
                 absl::Milliseconds(100));
  beside_.AssignCells();
}

void Cluster::ScheduleAll(std::vector<StepRequest> requests, std::function<void()> accepted) {
  struct Batch {
    size_t left;
    bool raised = false;
  };
  auto batch = std::make_shared<Batch>(Batch{requests.size()});
  calls_ = true;
  for (StepRequest& request : requests) {
    core_->Schedule(std::move(request), Mine([this](const absl::StatusOr<Nest>& value) {
                      if (value.ok()) Finished(*value);
                    }),
                    Mine([this, batch, accepted](const absl::Status& status) {
                      if (EndsTheJob(status)) return JobLost(status);
                      if (!status.ok() && !batch->raised) {
                        batch->raised = true;
                        ++result_.failed_steps;
                      }
                      if (--batch->left == 0) accepted();
                    }));
  }
}

void Cluster::JoinThen(std::function<void()> then) {
  core_->Join(Mine([this, then = std::move(then)](const absl::Status& status) {
    if (!status.ok()) return OnRaised(status, "Join");
    Trace("program: joined");
    then();
  }));
}

void Cluster::After(absl::Duration delay, std::function<void()> then) {
  world_.PostAfter(delay, [alive = Alive(), then = std::move(then)] {
    if (alive()) then();
  });
}

void Cluster::WriteSome() {
  DirectWrite write;
  for (Delta& delta : DeltasOf(1'000'000 + rounds_done_, 1)) {
    if (delta.ids.empty()) write.deltas.push_back(std::move(delta));
  }
  calls_ = true;
  Write(std::move(write), [this] { ReadAll(); });
}

void Cluster::Write(DirectWrite write, std::function<void()> then) {
  // The caller may be the program of a zombie. Its successor continues with the model as it was at
  // the replacement.
  if (chief_down_) return;
  write.serial = next_serial_++;
  write.begun = Tick();
  for (Delta& delta : write.deltas) delta.amount = write.serial * kWriteUnit;
  pending_writes_[write.serial] = write;
  Trace(absl::StrCat("program: writes ", write.serial));
  core_->Write(StagedWritesOf(write), Mine([this, serial = write.serial,
                                            then = std::move(then)](const absl::Status& status) {
                 if (EndsTheJob(status)) return JobLost(status);
                 if (!status.ok()) return Violation("write", status.ToString());
                 CountWrite(pending_writes_.extract(serial).mapped());
                 Trace(absl::StrCat("program: has written ", serial));
                 then();
               }));
}

std::vector<StagedWrite> Cluster::StagedWritesOf(const DirectWrite& write) const {
  std::vector<StagedWrite> writes;
  const int64_t value = write.serial * kWriteUnit;
  for (const Delta& delta : write.deltas) {
    const Shape& shape = shapes_[delta.variable];
    const std::vector<int64_t> amounts(shape.num_elements(), value);
    writes.push_back({absl::StrCat("v", delta.variable), WriteOp::kAdd,
                      *Tensor::Copy<int64_t>(shape, amounts), std::nullopt, std::nullopt});
  }
  if (!write.cells.empty()) {
    const bool all = write.cells.size() == kCells;
    StagedWrite cells{kCellsName,
                      all ? WriteOp::kAssign : WriteOp::kScatterUpdate,
                      {},
                      std::nullopt,
                      std::nullopt};
    cells.value = Tensor::Vector<int64_t>(
        absl::MakeConstSpan(std::vector<int64_t>(write.cells.size(), value)));
    if (!all) cells.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(write.cells));
    writes.push_back(std::move(cells));
  }
  if (!write.brought.empty()) {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < kBroughtRows * kBroughtWidth; ++i) values.push_back(value + i);
    writes.push_back({write.brought, WriteOp::kAssign,
                      *Tensor::Copy<int64_t>(Shape{kBroughtRows, kBroughtWidth}, values),
                      std::nullopt, std::nullopt});
  }
  return writes;
}

void Cluster::CountWrite(const DirectWrite& write) {
  AddTo(model_.values, write.deltas);
  const int64_t ended = Tick();
  for (const int64_t cell : write.cells)
    model_.cells.Finished(
        {cell, {0, write.serial * kWriteUnit}, write.begun, ended, /*direct=*/true});
  if (!write.brought.empty()) model_.brought[write.brought] = write.serial;
  model_.effects += !write.deltas.empty() || !write.cells.empty() || !write.brought.empty();
}

void Cluster::ReadAll() {
  calls_ = true;
  std::vector<VariableRead> reads;
  for (int i = 0; i < config_.num_variables; ++i)
    reads.push_back({absl::StrCat("v", i), std::nullopt});
  if (config_.cells) reads.push_back({kCellsName, std::nullopt});
  if (config_.table) reads.push_back({kTableName, Tensor::Vector<int64_t>(kTableKeys)});
  if (config_.assigning_steps) reads.push_back({"assigned", std::nullopt});
  // An eviction that is under way may come before the reads or after them.
  const bool judges_table = config_.table && JudgesReads() && core_->Inspect().open.empty();
  core_->Read(reads, Mine([this, judges_table, changes = table_changes_](
                              const absl::StatusOr<std::vector<Tensor>>& values) {
                if (!values.ok()) return OnRaised(values.status(), "Read");
                for (int i = 0; i < config_.num_variables; ++i) {
                  // The writes of a re-run step on a ps may come from either attempt, so no value
                  // is certain.
                  if (!JudgesReads()) continue;
                  const absl::Span<const int64_t> read = *(*values)[i].values<int64_t>();
                  if (!std::equal(read.begin(), read.end(), model_.values[i].begin(),
                                  model_.values[i].end())) {
                    Violation("X2", absl::StrCat("v", i, " is [", absl::StrJoin(read, " "),
                                                 "], but the finished steps add up to [",
                                                 absl::StrJoin(model_.values[i], " "), "]"));
                  }
                }
                if (config_.cells && JudgesReads()) CheckCells((*values)[config_.num_variables]);
                if (judges_table && table_changes_ == changes)
                  CheckTable((*values)[config_.num_variables + (config_.cells ? 1 : 0)]);
                if (config_.assigning_steps && JudgesReads()) CheckAssigned(values->back());
                CheckBrought();
              }));
}

void Cluster::CheckCells(const Tensor& values) {
  const absl::Span<const int64_t> read = *values.values<int64_t>();
  for (int64_t cell = 0; cell < kCells; ++cell) {
    if (model_.cells.Explains(cell, read[cell])) continue;
    Violation("X9", absl::StrCat("cell ", cell, " is ", read[cell],
                                 ", which no allowed order of the finished operations makes: ",
                                 model_.cells.TextOf(cell)));
  }
}

void Cluster::CheckBrought() {
  std::vector<VariableRead> reads;
  for (const auto& [name, serial] : model_.brought) reads.push_back({name, std::nullopt});
  core_->Read(
      reads,
      Mine([this, brought = model_.brought](const absl::StatusOr<std::vector<Tensor>>& values) {
        if (EndsTheJob(values.status())) return JobLost(values.status());
        if (!values.ok())
          return Violation("X2", absl::StrCat("a variable that was created with values: ",
                                              values.status().ToString()));
        size_t next = 0;
        for (const auto& [name, serial] : brought) {
          if (!JudgesReads()) break;
          const absl::Span<const int64_t> read = *(*values)[next++].values<int64_t>();
          for (size_t i = 0; i < read.size(); ++i) {
            if (read[i] != serial * kWriteUnit + static_cast<int64_t>(i)) {
              return Violation(
                  "X2", absl::StrCat(name, " is [", absl::StrJoin(read, " "),
                                     "], but it began with ", serial * kWriteUnit, " and so on"));
            }
          }
        }
        calls_ = false;
        LoseWhatWasRead();
        Next();
      }));
}

// Loses a server just after the program has seen one order of the finished operations.
void Cluster::LoseWhatWasRead() {
  const bool may_lose =
      config_.assign_in_steps && config_.kill_ps && config_.restart_ps && config_.replay;
  if (may_lose && !faults_stopped_ && now() < config_.fault_time && random_.Chance(0.3))
    FaultOfPs(absl::Milliseconds(300));
}

// At rest, each row has a value that a finished step has assigned, or 0 if none has.
void Cluster::CheckAssigned(const Tensor& values) {
  const absl::Span<const int64_t> read = *values.values<int64_t>();
  for (int64_t row = 0; row < kAssignedRows; ++row) {
    const std::set<int64_t>& assigned = model_.assigned[row];
    const int64_t value = read[row * kAssignedWidth];
    const bool whole =
        std::all_of(&read[row * kAssignedWidth], &read[row * kAssignedWidth] + kAssignedWidth,
                    [&](int64_t one) { return one == value; });
    if (whole && (assigned.empty() ? value == 0 : assigned.count(value) > 0)) continue;
    Violation("X2", absl::StrCat("row ", row, " of \"assigned\" begins with ", value,
                                 ", but finished steps have assigned [",
                                 absl::StrJoin(assigned, " "), "]"));
  }
}

void Cluster::EndProgram() {
  Trace("program: ends");
  if (config_.lose_at_worst && !faults_stopped_) FaultOfPs(absl::Seconds(1));
  gone_at_end_.clear();
  for (const auto& process : processes_) {
    if (process->ps != nullptr && !process->node->executor->alive())
      gone_at_end_.insert(process->incarnation.value());
  }
  calls_ = true;
  core_->EndJob(
      0, Mine([this](const absl::Status& status) {
        calls_ = false;
        if (EndsTheJob(status)) return JobLost(status);
        if (!status.ok()) Violation("X16", absl::StrCat("EndJob: ", status.ToString()));
        if (status.ok() && config_.checkpoints) CheckLastCheckpoint();
        for (const Incarnation life : core_->Inspect().ps) {
          if (gone_at_end_.count(life.value()) > 0)
            Violation("X2", "the job is called complete, but a server that was gone counts for it");
        }
        over_ = told_the_end_ = true;
      }));
}

}  // namespace divvy::sim
