#include "tests/sim/cluster.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ps_server/core/memory_budget.h"
#include "variables/transfer_plan.h"

namespace divvy::sim {

// ---- starting ----

void Cluster::StartPs(int index, const std::string& address) {
  auto process = std::make_unique<Process>();
  process->index = index;
  process->node = network_.Boot(address);
  process->coordinator = SimDialer(*this, process->node).Coordinator();
  ParameterServerOptions options;
  options.index = index;
  options.incarnation = process->incarnation = Incarnation(random_.Next() | 1);
  options.address = address;
  options.record_history = true;
  options.max_commit_bytes = config_.commit_buffer_bytes;
  if (config_.tight_memory) options.memory_limit_bytes = kTightMemory;
  if (config_.checkpoints) {
    process->files =
        std::make_unique<ProcessFiles>(disk_, process->node->executor, ProcessFiles::Of::kPs);
    process->checkpoint_files = MakeBundleFiles(*process->files, kCheckpoints);
    options.checkpoint_files = process->checkpoint_files.get();
    options.slice_bytes = 32;
    options.snapshot_buffer_bytes = 64;
    options.clock = &process->slice_clock;
  }
  // Several blocks for each shard, so that pulls, fences and crashes fall between them, unless all
  // of a transfer is handled at once, as a live server does with small shards.
  options.block_bytes = 16;
  if (Random(MixSeeds(config_.seed, 8001)).Chance(0.75)) options.at_once_bytes = 0;
  if (Random(MixSeeds(config_.seed, 8002)).Chance(0.75)) options.least_lent_bytes = 0;
  Process* const raw = process.get();
  process->ps =
      *ParameterServerCore::Start(options, *process->node->executor, process->coordinator,
                                  [this, raw](int code, const std::string&) { OnExit(raw, code); });
  process->node->core = process->ps;
  if (config_.commit_buffer_bytes > 0)
    process->node->commit_budget = std::make_shared<MemoryBudget>(config_.commit_buffer_bytes);
  if (static_cast<int>(ps_.size()) <= index) ps_.resize(index + 1);
  if (ps_[index] == nullptr || !ps_[index]->node->executor->alive()) ps_[index] = raw;
  if (lies_ && index == 0) raw->node->lies = std::make_shared<LyingServer>(0, when_.Next());
  processes_.push_back(std::move(process));
  Trace(absl::StrCat("boot ", address));
}

void Cluster::StartWorker(int index, int life) {
  auto process = std::make_unique<Process>();
  process->index = index;
  const std::string address = absl::StrCat("worker/", index, "/life", life);
  process->node = network_.Boot(address);
  NodeExecutor& executor = *process->node->executor;
  process->dialer = std::make_unique<SimDialer>(*this, process->node);
  process->coordinator = SimDialer(*this, process->node).Coordinator();
  process->runner = std::make_unique<ScriptedStepRunner>(executor);
  process->inputs = std::make_unique<ScriptedInputOpener>(executor);
  DefineScripts(*process);
  process->inputs->Define("known", {pass_elements_, absl::OkStatus(), absl::Milliseconds(5)});
  process->inputs->Define("unknown", {std::nullopt, absl::OkStatus(), absl::Milliseconds(5)});
  Loops::Define(config_, *process->inputs);
  process->inputs->Define(
      "left", {config_.seed % 2 == 0 ? std::optional<int64_t>(ElementsOf("left")) : std::nullopt,
               absl::OkStatus(), absl::Milliseconds(5)});
  process->inputs->Define("right", {std::nullopt, absl::OkStatus(), absl::Milliseconds(5)});
  WorkerOptions options;
  options.index = index;
  options.incarnation = Incarnation(random_.Next() | 1);
  options.address = address;
  options.seed = random_.Next();
  // With 0, every commit is planned and every pull assembled on the executor, while other events
  // happen.
  if (config_.seed % 2 == 0) options.at_once_bytes = 0;
  options.pulls = {config_.pipeline_depth};
  options.traces = &process->traces;
  const bool is_other = config_.other_replicas && !faults_stopped_ &&
                        Random(MixSeeds(config_.seed, 5000 + 100 * life + index)).Chance(0.4);
  options.replicas = process->replicas = is_other ? config_.replicas + 1 : config_.replicas;
  Process* const raw = process.get();
  process->worker = *WorkerCore::Start(
      options, executor, world_.clock(), *process->runner, *process->inputs, *process->dialer,
      process->coordinator.get(), [this, raw](int code, const std::string&) { OnExit(raw, code); });
  process->node->core = process->worker;
  workers_[index] = raw;
  processes_.push_back(std::move(process));
  Trace(absl::StrCat("boot ", address));
}

void Cluster::StartLying() {
  Trace("fault: ps 0 lies from now on");
  has_lied_ = lies_ = true;
  ps_[0]->node->lies = std::make_shared<LyingServer>(0, when_.Next());
}

// An operator has read which server ended the job, and restarts that server before the program.
void Cluster::StopLying() {
  lies_ = false;
  ++result_.ended_by_lies;
  network_.Kill(PsAddressOf(0));
  StartPs(0);
}

// The liar's index is above those of the job's workers, so the coordinator does not expect it.
void Cluster::StartLiar() {
  LyingWorker::Options options;
  options.index = config_.num_workers;
  options.address = absl::StrCat("worker/", options.index, "/liar");
  options.seed = MixSeeds(config_.seed, 8);
  options.says_done = config_.liar_says_done;
  options.says_failed = config_.liar_says_failed;
  options.says_applied = config_.liar_says_applied;
  options.only_refuses = config_.liar_only_refuses;
  for (int i = 0; i < config_.num_workers; ++i)
    options.addresses_of_others.push_back(absl::StrCat("worker/", i, "/life1"));
  liar_ = network_.Boot(options.address);
  const auto liar = std::make_shared<LyingWorker>(options, *this, liar_);
  liar_->core = liar_->stand_in = liar;
  liar->Start();
}

void Cluster::StartCoordinator(StoredJob stored) {
  const bool complete = stored.job.state == JobRow::State::kComplete;
  has_run_ = false;
  auto process = std::make_unique<Process>();
  process->node = network_.Boot(absl::StrCat("chief/0/life", ++life_));
  process->dialer = std::make_unique<SimDialer>(*this, process->node);
  process->store = std::make_unique<SimStore>(
      *process->node->executor, MixSeeds(config_.seed, 1000 + life_), std::move(stored));
  chief_ = process.get();
  processes_.push_back(std::move(process));
  ++result_.coordinators;
  Trace(absl::StrCat("boot ", chief_address()));
  CoordinatorOptions options;
  options.incarnation = chief_->incarnation = Incarnation(random_.Next() | 1);
  options.job_seed = config_.seed;
  if (config_.named_job) options.job = JobId(4711);
  options.traces = &chief_->traces;
  StopJoining();
  for (int i = 0; i < num_ps_; ++i)
    options.ps_addresses.push_back(config_.learn_addresses ? "" : PsAddressOf(i));
  options.min_workers = 1;
  if (config_.other_replicas || config_.liar) options.replicas_per_worker = config_.replicas;
  // Longer than all faults and the longest pause between two tries.
  options.ps_timeout = absl::Seconds(60);
  if (config_.trace) options.watchdog = absl::Minutes(1);
  options.step_deadline = config_.step_deadline;
  options.id_block = config_.id_block;
  options.max_step_attempts = config_.max_step_attempts;
  options.max_recoveries = config_.max_recoveries;
  options.rebalance = {-1e9, -1e9, /*needs_known_load=*/false};  // anything is better
  options.durability = config_.replay ? Durability::kReplay : Durability::kCheckpoint;
  options.redo_log_bytes = config_.redo_log_bytes;
  // Few or many steps wait at a worker, though none of the scripts is as short as live steps are.
  Random depth(MixSeeds(config_.seed, 8000));
  options.most_ahead = depth.Chance(0.5) ? options.queue_ahead : 16;
  options.ahead_time = depth.Chance(0.5) ? options.ahead_time : absl::Milliseconds(200);
  if (config_.checkpoints) {
    chief_->files = std::make_unique<ProcessFiles>(disk_, chief_->node->executor,
                                                   ProcessFiles::Of::kCoordinator);
    chief_->checkpoint_catalog = *OpenBundleCatalog(*chief_->files, kCheckpoints);
    options.checkpoints = chief_->checkpoint_catalog.get();
    options.checkpoint_every = absl::Milliseconds(700);
    options.keep_checkpoints = 2;
  }
  const int shards = 1 + static_cast<int>(random_.Below(num_ps_));  // other shards in each life
  options.partitioner = [shards](int) -> Partitioner { return FixedShardsPartitioner{shards}; };
  auto core = CoordinatorCore::Start(options, *chief_->node->executor, world_.clock(),
                                     *chief_->dialer, *chief_->store);
  if (!core.ok()) {
    if (IsReadFault(core.status())) {
      Trace(absl::StrCat("the coordinator does not start: ", core.status().message()));
      world_.PostAfter(absl::Milliseconds(500),
                       [this, life = life_, stored = chief_->store->LeftBehind()] {
                         if (life == life_ && !over_) StartCoordinator(stored);
                       });
      return;
    }
    // A store was lost and another job begun. Then the old job's coordinator woke and made a
    // checkpoint. An operator has to choose one of the two jobs.
    const bool two_jobs = ReasonOf(core.status()) == Reason::kWrongJob && lost_store_ &&
                          had_zombie_ && !config_.named_job;
    const bool had_ended = ReasonOf(core.status()) == Reason::kJobOver && complete;
    if (!two_jobs && !had_ended) Violation("X16", core.status().ToString());
    result_.job_lost |= two_jobs;
    // Tasks that have not learnt of the job's end will not learn of it any more.
    over_ = true;
    return;
  }
  core_ = chief_->chief = *core;
  const std::optional<CheckpointId> found = core_->Snapshot().newest_found;
  if (newest_ && (!found || *found < *newest_))
    Violation("X17", absl::StrCat(newest_->name(), " was committed, but is not found again"));
  core_->KeepHistory();
  chief_->node->core = core_;
  chief_down_ = chief_draining_ = calls_ = false;
  recoveries_ = 0;
  BeginModel();
  created_ = rounds_done_ = 0;
  passes_before_ = 0;
  asked_to_restore_ = restoring_ = false;
  pending_writes_.clear();
  reading_.reset();
  inherited_.clear();
  beside_.BeginLife(life_);
  loops_.BeginLife(life_);
  died_loading_.clear();
  has_loaded_ = must_adopt_ = false;
  Next();
}

// An operator changes the number of parameter servers.
void Cluster::FaultOfNumber() {
  if (is_resizing_ || chief_down_ || chief_draining_) return;
  const int drawn =
      std::max(1 + static_cast<int>(random_.Below(4)), config_.only_grow ? num_ps_ : 1);
  const int wanted = config_.rebalance ? num_ps_ : drawn;
  if (wanted == num_ps_) return Rebalance();
  Trace(absl::StrCat("fault: ", num_ps_, " parameter servers become ", wanted));
  is_resizing_ = true;
  for (int i = num_ps_; i < wanted; ++i) StartPs(i);
  core_->Resize(wanted, Mine([this, wanted](const absl::Status& status) {
                  Trace(absl::StrCat("resized to ", wanted, ": ", status.ToString()));
                  if (status.ok()) num_ps_ = wanted;
                  result_.resizes += status.ok();
                  StopJoining();
                }));
}

// An operator has the shards moved. The options of the coordinator accept any arrangement.
void Cluster::Rebalance() {
  Trace("fault: the shards are moved");
  is_resizing_ = true;
  core_->Rebalance(Mine([this](const absl::StatusOr<CoordinatorCore::Rebalanced>& done) {
    Trace(absl::StrCat("moved shards: ", done.status().ToString()));
    result_.rebalances += done.ok() && done->moved + done->cut > 0;
    result_.cuts += done.ok() && done->cut > 0;
    StopJoining();
  }));
}

// Kills servers that were to join and do not belong to the job.
void Cluster::StopJoining() {
  is_resizing_ = false;
  for (const auto& process : processes_) {
    if (process->ps != nullptr && process->index >= num_ps_ && process->node->executor->alive())
      network_.Kill(process->node->address);
  }
}

void Cluster::OnExit(Process* process, int code) {
  process->exit_code = code;
  Trace(absl::StrCat(process->node->address, " exits with ", code));
  result_.drained += code == 143;
  result_.refused += code == 78;
  result_.devices_lost += code == 138 && process->steps_without_device > 0;
  const bool may = code == 0 || (code == 138 && process->steps_without_device > 0) ||
                   (code == 78 && lost_store_) || (code == 143 && config_.drain) ||
                   (code == 78 && process->replicas != config_.replicas) ||
                   (has_lied_ && (code == 77 || code == 78)) ||
                   (code == 78 && (had_duplicate_ || config_.replace_workers || config_.resize));
  if (!may) Violation("X16", absl::StrCat(process->node->address, " exits with ", code));
  world_.Post([this, process] {
    Kill(*process);
    const CoordinatorSnapshot::Phase phase = core_->Snapshot().phase;
    // An exit with 0 may also follow a zombie's word; then the job has not ended.
    const bool ended = !chief_down_ && (phase == CoordinatorSnapshot::Phase::kEnding ||
                                        phase == CoordinatorSnapshot::Phase::kOver);
    if (over_ || (process->exit_code == 0 && ended)) return;
    process->worker != nullptr ? OnWorkerExit(*process) : OnPsExit(*process);
  });
}

// A little later the supervisor checks whether a process serves the index; an older life counts
// too.
void Cluster::OnWorkerExit(const Process& process) {
  const int index = process.index;
  for (const auto& other : processes_) {
    if (other->worker != nullptr && other->index == index && other->node->executor->alive())
      workers_[index] = other.get();
  }
  world_.PostAfter(absl::Seconds(2), [this, index] {
    if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
  });
}

void Cluster::OnPsExit(const Process& process) {
  const int index = process.index;
  for (const auto& other : processes_) {
    if (other->ps != nullptr && other->index == index && other->node->executor->alive())
      ps_[index] = other.get();
  }
  world_.PostAfter(absl::Seconds(2), [this, index, drained = process.exit_code == 143] {
    // FaultOfPs decides whether a drained one is restarted.
    if (!over_ && !drained && index < num_ps_ && !ps_[index]->node->executor->alive())
      StartPs(index);
  });
}

// With `late_workers` only one worker starts at once. If it is the last one, the workers before it
// join data that was divided without them.
void Cluster::StartWorkers() {
  Random random(MixSeeds(config_.seed, 49));
  const int first = random.Chance(0.3) ? config_.num_workers - 1 : 0;
  for (int i = 0; i < config_.num_workers; ++i) {
    if (!config_.late_workers || i == first) {
      StartWorker(i, ++newest_life_[i]);
      continue;
    }
    world_.PostAfter(absl::Milliseconds(static_cast<int64_t>(random.Below(8'000))), [this, i] {
      if (over_ || newest_life_[i] > 0) return;
      ++result_.late_workers;
      StartWorker(i, ++newest_life_[i]);
    });
  }
}

// ---- the run ----

SimResult Cluster::Run() {
  SetFailpointObserver(this);
  pass_elements_ = static_cast<int64_t>(random_.Below(120));
  for (int i = 0; i < config_.num_variables; ++i) {
    shapes_.push_back(Shape{1 + static_cast<int64_t>(random_.Below(7)),
                            1 + static_cast<int64_t>(random_.Below(3))});
  }
  if (config_.large) shapes_.back() = Shape{200, 3};
  BeginModel();
  FaultRates rates;
  rates.lose = config_.lose;
  rates.duplicate = config_.duplicate;
  rates.break_stream = config_.break_stream;
  rates.slow = config_.slow;
  rates.late = config_.late;
  network_.set_rates(rates);
  if (config_.slow_work) {
    network_.set_blocking([random = std::make_shared<Random>(MixSeeds(config_.seed, 4)), this] {
      if (faults_stopped_ || !random->Chance(0.3)) return absl::ZeroDuration();
      return absl::Milliseconds(
          static_cast<int64_t>(random->Below(random->Chance(0.2) ? 4'000 : 300)));
    });
  }
  StartCoordinator({});
  for (int i = 0; i < num_ps_; ++i) StartPs(i);
  StartWorkers();
  if (config_.liar) StartLiar();
  if (config_.lying_ps)
    world_.PostAfter(absl::Milliseconds(static_cast<int64_t>(when_.Below(20'000))), [this] {
      if (!over_) StartLying();
    });
  world_.Post([this] { MaybeFault(); });
  while (result_.violation.ok() && !over_ && world_.RunOne()) {
    ++result_.events;
    if (result_.events % 16 == 0) CheckAlways();
    if (now() > config_.fault_time + kPatience)
      Violation("X16",
                absl::StrCat("no end after ", absl::FormatDuration(now()), " of virtual time"));
  }
  if (result_.violation.ok() && !over_)
    Violation("X16", "nothing is left to happen, but the program has not ended");
  if (result_.violation.ok() && told_the_end_) {
    // Tasks that missed the Shutdown learn of the end when they register. A paused task does so
    // after its silence.
    world_.RunFor(absl::Seconds(30));
    CheckAtRest();
    for (int i = 0; i < static_cast<int>(core_->Inspect().ps.size()); ++i) {
      FindServingPs(i);
      const Process* const ps = ps_[i];
      if (ps_killed_ && !ps->node->executor->alive()) continue;  // killed in the job's last moment
      if (ps->exit_code != 0)
        Violation("X16", absl::StrCat("ps ", ps->index, " did not exit with 0 at the job's end"));
    }
  }
  result_.orders_not_judged = model_.cells.given_up();
  result_.loops = loops_.counts().loops, result_.loops_of_own_data = loops_.counts().own,
  result_.ends_handled = loops_.counts().handled_ends;
  result_.own_judged = loops_.counts().own_judged;
  result_.pulled_ahead = static_cast<int64_t>(pulled_ahead_.size());
  result_.beside_commits = static_cast<int64_t>(beside_commits_.size());
  result_.virtual_time = now();
  result_.trace_hash = MixSeeds(hash_, static_cast<uint64_t>(result_.events));
  if (liar_ != nullptr) liar_->executor->Kill(), liar_->core = liar_->stand_in = nullptr;
  for (const auto& process : processes_) {  // cores hold connections, which hold their nodes
    if (process->worker != nullptr) process->worker->Abandon();
    if (process->chief != nullptr) process->chief->Abandon();
    process->node->core = nullptr;
    process->node->executor->Kill();  // the destructors of the last tasks post nothing more
  }
  return std::move(result_);
}

SimResult RunSimulation(const SimConfig& config) { return Cluster(config).Run(); }

}  // namespace divvy::sim
