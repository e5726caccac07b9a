#include "tests/sim/sim_cluster.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/testing/in_memory_file_system.h"
#include "cluster/transfer_plan.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/core/coordinator_core.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/sim/sim_clients.h"
#include "tests/sim/sim_files.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_store.h"
#include "worker/core/testing/scripted_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy::sim {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(5), kDrainTimeout = absl::Seconds(25);

constexpr char kCheckpoints[] = "/checkpoints";

constexpr int kReplicas = 1;  // of a worker as it should be

std::string PsAddressOf(int index) { return absl::StrCat("ps/", index); }

// Integer weights that a step adds to the rows of variables: a pure function of the seed, the step's tag and (changing steps) the attempt.
struct Delta {
  int variable = 0;
  std::vector<int64_t> ids;  // empty: the whole variable
  int64_t amount = 1;        // added to each element, once for each id
};

// What a step assigns to "assigned", beside its deltas: its id, so that no value comes twice.
constexpr int64_t kAssignedRows = 8, kAssignedWidth = 2;
struct Assignment {
  bool reads_whole = false;     // before it
  int64_t first = 0, last = 0;  // the rows assigned: none, one, or all
};
const Shape& AssignedShape() {
  static const Shape shape{kAssignedRows, kAssignedWidth};
  return shape;
}

// ---- the cluster ----

// A session, and the state of the servers under it.
using ServersState = std::tuple<Epoch, SessionId, Epoch, int64_t, CoordinatorSnapshot::Phase>;

// One process life. Kept to the end of the run, so that what late tasks refer to is there.
struct Process {
  std::shared_ptr<Node> node;
  std::unique_ptr<SimDialer> dialer;
  std::shared_ptr<CoordinatorClient> coordinator;
  std::unique_ptr<ScriptedStepRunner> runner;
  std::unique_ptr<ScriptedInputOpener> inputs;
  std::shared_ptr<ParameterServerCore> ps;
  std::shared_ptr<WorkerCore> worker;
  std::unique_ptr<SimStore> store;
  std::unique_ptr<ProcessFiles> files;
  std::unique_ptr<CheckpointFiles> checkpoint_files;
  std::unique_ptr<CheckpointCatalog> checkpoint_catalog;
  std::shared_ptr<CoordinatorCore> chief;
  int index = 0;
  Incarnation incarnation;
  int replicas = 1;  // of a worker
  std::optional<int> exit_code;
  // Of a worker: what had finished when the newest steps of its session began.
  std::pair<Epoch, SessionId> session;
  std::deque<std::vector<std::vector<int64_t>>> floors;
  // And what a row that the session reads is at least: what it has read of it, and what its finished steps have added since. By variable and row.
  using Rows = std::map<std::pair<int, int64_t>, int64_t>;
  Rows seen;
  std::map<EntryId, Rows> written;  // what `seen` becomes when this step has finished
  int64_t rows_reused = 0;          // in its session, when one last looked
  // Of "assigned", in this session and under this state of the servers: values by row that a finished step of it has replaced, and those that an unreported
  // one will have.
  using Replaced = std::set<std::pair<int64_t, int64_t>>;
  ServersState assigned_in;
  Replaced replaced;
  std::map<EntryId, Replaced> to_be_replaced;
};

class Cluster : public SimSite, public FailpointObserver {
 public:
  explicit Cluster(const SimConfig& config)
      : config_(config), world_(config.seed), network_(world_, MixSeeds(config.seed, 1)), random_(MixSeeds(config.seed, 2)) {}

  ~Cluster() override { SetFailpointObserver(nullptr); }

  SimResult Run();

  void OnFailpoint(Failpoint point) override;
  absl::Duration PayloadTime() override { return network_.PayloadDelay() + config_.payload_time; }
  void OnWaits() override { ++result_.waits; }
  void OnSnapshot(const Node& from, CheckpointId checkpoint) override;
  void OnMarked(const Node& from, CheckpointId checkpoint) override;
  void OnReported(const Node& from, SessionId session, EntryId step) override;
  void OnCommitAnswered(const absl::Status& status) override { result_.commits_given_up += absl::IsDeadlineExceeded(status); }
  void Violation(absl::string_view rule, const std::string& what) override {
    if (!result_.violation.ok()) return;
    result_.violation = absl::InternalError(absl::StrCat(rule, ": ", what));
    Trace(absl::StrCat("VIOLATION ", rule, ": ", what));
  }
  Network& network() override { return network_; }
  const std::string& chief_address() const override { return chief_->node->address; }
  void Trace(absl::string_view text) override {
    hash_ = MixSeeds(hash_, HashText(text));
    hash_ = MixSeeds(hash_, static_cast<uint64_t>(absl::ToInt64Nanoseconds(now())));
    if (config_.trace) result_.trace.push_back(absl::StrFormat("%9.3f  %s", absl::ToDoubleSeconds(now()), text));
  }

 private:
  absl::Duration now() { return world_.clock().Elapsed(); }

  // starting
  void StartPs(int index, const std::string& address);
  void StartPs(int index) { StartPs(index, PsAddressOf(index)); }
  void StartWorker(int index, int life);
  void StartCoordinator(StoredJob stored);
  // A worker or ps ends by itself; the supervisor starts it again where that makes sense.
  void OnExit(Process* process, int code);
  void OnWorkerExit(const Process& process);
  void OnPsExit(const Process& process);
  void DefineScripts(Process& process);

  // step bodies
  std::vector<Delta> DeltasOf(int64_t tag, uint32_t attempt) const;
  Assignment AssignmentOf(int64_t tag) const;
  ServersState StateOf(const Process& process);
  void ReadAssigned(Process& process, const StepCall& call, bool check, std::vector<script::Move>& moves);
  void Assign(const StepCall& call, std::vector<script::Move>& moves) const;
  void CheckAssigned(const Tensor& values);
  int NumVariables() const { return config_.num_variables + 1 + (config_.assigning_steps ? 1 : 0); }
  std::vector<script::Move> Body(Process& process, const StepCall& call);
  using Floors = std::vector<std::vector<int64_t>>;
  void BeginInSession(Process& process, const WorkerSnapshot& runner);
  static const Floors& FloorOf(const Process& process, int steps_back);
  script::Compute CheckRows(Process& process, int64_t tag, int variable, std::vector<int64_t> ids, size_t nth);
  void ReadRows(Process& process, const StepCall& call, bool check, std::vector<script::Move>& moves);
  void RememberWritten(Process& process, EntryId step, const std::vector<Delta>& deltas);
  int64_t TagOf(const StepCall& call) const;
  bool StepFails(int64_t tag, uint32_t attempt) const;

  // the program: it lives and dies with its coordinator. What comes for an earlier life is dropped.
  template <typename Body>
  auto Mine(Body body) {
    return [this, life = life_, body](auto&&... args) {
      if (life == life_ && !over_ && chief_->node->executor->alive()) body(std::forward<decltype(args)>(args)...);
    };
  }
  void Next() {
    world_.Post(Mine([this] { Act(); }));
  }
  void Act();
  void CreateNext();
  void Restore();
  void CheckLastCheckpoint();
  void OnRestored(int64_t steps);
  void OnAdopted(int64_t steps);
  void RememberPast();
  int64_t AddUnreported(const std::map<EntryId, std::set<int>>& applied);
  std::optional<int64_t> TagOfStep(EntryId id);
  uint64_t HighestId() const;
  std::map<EntryId, std::set<int>> AppliedNow();
  void ScheduleSome();
  void RunPass();
  void WriteSome();
  void ReadAll();
  void CallJoin();
  void OnRaised(const absl::Status& error, absl::string_view call);
  void Finished(const Nest& value);
  void Apply(const std::vector<Delta>& deltas);
  void ApplyAssignment(int64_t tag, EntryId step);
  void EndProgram();
  void JobLost(const absl::Status& error);
  bool IsExpected(const absl::Status& error) const;
  bool EndsTheJob(const absl::Status& error) const;
  bool IsUnsureCommit(const absl::Status& error) const;
  bool IsStoreFault(const absl::Status& error) const;

  // faults and checks
  void MaybeFault();
  void StopFaults();
  void Fault();
  void FaultOfWorker(int index, Process& worker, uint64_t kind, absl::Duration while_away);
  void FaultOfPs(absl::Duration while_away);
  void FaultOfCoordinator(absl::Duration while_away);
  void CutForAWhile(const std::string& from, const std::string& to, absl::Duration while_away);
  void DrainCoordinator();
  void LosePower();
  void FaultOfDisk();
  void FaultOfNumber();
  void StopJoining();
  void DrainWorker(Process& worker);
  void StartDuplicate();
  void FinishKill(Process& process);
  // The coordinator's process is gone, or goes on unseen as a zombie: another is started.
  void ReplaceCoordinator(absl::Duration after, bool zombie);
  void RestartTasks();
  void CheckAlways();
  void CheckAtRest();
  bool FindServingPs(int index);
  std::vector<uint64_t> AppliedSeqs() const;
  std::vector<std::pair<int64_t, int64_t>> Visited() const;
  void CheckPass(int64_t elements, bool complete);
  Process* LiveWorker(int index);

  void BeginModel() {
    model_ = Model();
    for (const Shape& shape : shapes_) model_.values.emplace_back(shape.num_elements(), 0);
  }

  const SimConfig config_;
  SimExecutor world_;
  Network network_;
  Random random_;
  SimResult result_;
  std::set<std::tuple<const Process*, SessionId, EntryId>> pulled_ahead_;
  uint64_t hash_ = 0;

  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Process*> ps_;
  std::map<int, Process*> workers_;  // the newest life of each
  std::map<int, int> newest_life_;
  Process* chief_ = nullptr;  // the newest life of the coordinator
  int life_ = 0;              // of it
  bool chief_down_ = true, chief_draining_ = false;
  std::shared_ptr<CoordinatorCore> core_;  // its core
  uint64_t ids_of_the_past_ = 0;           // the highest id of earlier lives whose store was kept

  std::vector<Shape> shapes_;
  // What the variables hold, as the program knows it.
  struct Model {
    std::vector<std::vector<int64_t>> values;       // by variable: what finished steps and writes have made of it
    std::map<int64_t, std::set<int64_t>> assigned;  // by row of "assigned": what finished steps have assigned; the last of them is there, whichever that was
    int64_t adam_commits = 0, steps = 0;
    int rounds = 0;                                     // of the program, when it last told its state
    std::string program_state;                          // that it told
    std::vector<std::pair<std::string, int64_t>> told;  // all that it has told, and `effects` then
    int64_t effects = 0;                                // steps and writes that the program saw finished
    std::set<EntryId> reported;                         // those steps
    struct Pass {
      std::string source;
      int64_t epoch = 0;                                 // of the coordinator, before it
      std::vector<std::pair<int64_t, int64_t>> visited;  // positions, of steps that finished before this life of the program
    };
    std::optional<Pass> pass;  // under way
  };
  Model model_;
  struct Cut {
    std::optional<Model> model;  // none: of a zombie, whose program nobody follows
    std::vector<uint64_t> applied_seqs;
    const void* by = nullptr;  // the core that cut it: a job that begins anew, its store lost, counts from the beginning
  };
  struct PendingWrite {
    std::vector<Delta> deltas;
    uint64_t above = 0;  // its id is
  };
  // What the program of a coordinator knew when that was replaced, by the lineage of the servers' state. None: nobody followed that program.
  struct Past {
    std::optional<Model> model;
    std::optional<PendingWrite> write;
  };
  std::map<Epoch, Past> past_;
  std::optional<PendingWrite> pending_write_;
  std::map<EntryId, std::set<int>> inherited_;                          // applied by earlier lives: what was adopted
  Epoch inherited_lineage_;                                             // of it
  std::map<JobId, std::map<std::pair<EntryId, Epoch>, int64_t>> tags_;  // of steps, by the epoch they were run in: a store that is lost has its ids given again
  std::set<uint64_t> gone_at_end_;                                      // lives of parameter servers, when the program called EndJob
  InMemoryFileSystem disk_;
  std::map<CheckpointId, Cut> cuts_;
  std::optional<CheckpointId> newest_;  // that was committed
  bool asked_to_restore_ = false;       // by this life's program
  bool restoring_ = false;              // and it has not been answered
  int created_ = 0, rounds_done_ = 0, outstanding_ = 0;
  size_t passes_before_ = 0;     // of this life, the one under way
  int num_ps_ = config_.num_ps;  // of the job; a person may change it
  bool is_resizing_ = false;
  int64_t next_tag_ = 1;
  bool over_ = false, faults_stopped_ = false, ps_killed_ = false;
  bool told_the_end_ = false;  // by EndJob, while the coordinator lived
  bool calls_ = false;         // the program waits for an answer
  bool had_zombie_ = false, lost_store_ = false, had_duplicate_ = false;
  int duplicates_ = 0;
  std::set<int> killed_ps_;
  int64_t recoveries_ = 0;  // of this life of the coordinator, as far as counted
  std::optional<int64_t> pass_elements_;
};

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
  if (config_.checkpoints) {
    process->files = std::make_unique<ProcessFiles>(disk_, process->node->executor, ProcessFiles::Of::kPs);
    process->checkpoint_files = MakeBundleFiles(*process->files, kCheckpoints);
    options.checkpoint_files = process->checkpoint_files.get();
    options.slice_bytes = 32;
    options.snapshot_buffer_bytes = 64;
  }
  options.block_bytes = 16;  // several blocks a shard, so that pulls, fences and crashes fall between them
  Process* const raw = process.get();
  process->ps =
      *ParameterServerCore::Start(options, *process->node->executor, process->coordinator, [this, raw](int code, const std::string&) { OnExit(raw, code); });
  process->node->core = process->ps;
  if (config_.commit_buffer_bytes > 0) process->node->commit_budget = std::make_shared<MemoryBudget>(config_.commit_buffer_bytes);
  if (static_cast<int>(ps_.size()) <= index) ps_.resize(index + 1);
  if (ps_[index] == nullptr || !ps_[index]->node->executor->alive()) ps_[index] = raw;
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
  WorkerOptions options;
  options.index = index;
  options.incarnation = Incarnation(random_.Next() | 1);
  options.address = address;
  options.seed = random_.Next();
  options.pulls = {config_.pipeline_depth, config_.row_cache_bytes, config_.row_cache_staleness};
  const bool is_other = config_.other_replicas && !faults_stopped_ && Random(MixSeeds(config_.seed, 5000 + 100 * life + index)).Chance(0.4);
  options.replicas = process->replicas = is_other ? kReplicas + 1 : kReplicas;
  Process* const raw = process.get();
  process->worker = *WorkerCore::Start(options, executor, world_.clock(), *process->runner, *process->inputs, *process->dialer, process->coordinator.get(),
                                       [this, raw](int code, const std::string&) { OnExit(raw, code); });
  process->node->core = process->worker;
  workers_[index] = raw;
  processes_.push_back(std::move(process));
  Trace(absl::StrCat("boot ", address));
}

void Cluster::StartCoordinator(StoredJob stored) {
  const bool complete = stored.job.state == JobRow::State::kComplete;
  auto process = std::make_unique<Process>();
  process->node = network_.Boot(absl::StrCat("chief/0/life", ++life_));
  process->dialer = std::make_unique<SimDialer>(*this, process->node);
  process->store = std::make_unique<SimStore>(*process->node->executor, MixSeeds(config_.seed, 1000 + life_), std::move(stored));
  chief_ = process.get();
  processes_.push_back(std::move(process));
  ++result_.coordinators;
  Trace(absl::StrCat("boot ", chief_address()));
  CoordinatorOptions options;
  options.incarnation = Incarnation(random_.Next() | 1);
  options.job_seed = config_.seed;
  if (config_.named_job) options.job = JobId(4711);
  StopJoining();
  for (int i = 0; i < num_ps_; ++i) options.ps_addresses.push_back(config_.learn_addresses ? "" : PsAddressOf(i));
  options.min_workers = 1;
  if (config_.other_replicas) options.replicas_per_worker = kReplicas;
  options.ps_timeout = absl::Seconds(40);     // beyond any cut that heals
  options.step_deadline = absl::Minutes(10);  // longer than the simulation's patience: it may hide no report that is lost
  options.id_block = config_.id_block;
  options.max_step_attempts = options.max_recoveries = 1000;  // loss after loss is no error here
  options.durability = config_.replay ? Durability::kReplay : Durability::kCheckpoint;
  options.redo_log_bytes = config_.redo_log_bytes;
  if (config_.checkpoints) {
    chief_->files = std::make_unique<ProcessFiles>(disk_, chief_->node->executor, ProcessFiles::Of::kCoordinator);
    chief_->checkpoint_catalog = *OpenBundleCatalog(*chief_->files, kCheckpoints);
    options.checkpoints = chief_->checkpoint_catalog.get();
    options.checkpoint_every = absl::Milliseconds(700);
    options.keep_checkpoints = 2;
  }
  const int shards = 1 + static_cast<int>(random_.Below(num_ps_));  // another cut in each life
  options.partitioner = [shards](int) -> Partitioner { return FixedShardsPartitioner{shards}; };
  auto core = CoordinatorCore::Start(options, *chief_->node->executor, world_.clock(), *chief_->dialer, *chief_->store);
  if (!core.ok()) {
    // A store was lost, another job begun, and the old one's coordinator woke and made a checkpoint: a person has to say which of the two goes on.
    const bool two_jobs = ReasonOf(core.status()) == Reason::kWrongJob && lost_store_ && had_zombie_ && !config_.named_job;
    const bool had_ended = ReasonOf(core.status()) == Reason::kJobOver && complete;
    if (!two_jobs && !had_ended) Violation("X16", core.status().ToString());
    result_.job_lost |= two_jobs;
    over_ = true;  // those that were not told of an end then are not told any more
    return;
  }
  core_ = chief_->chief = *core;
  const std::optional<CheckpointId> found = core_->Snapshot().newest_found;
  if (newest_ && (!found || *found < *newest_)) Violation("X17", absl::StrCat(newest_->name(), " was committed, and is not found again"));
  core_->KeepHistory();
  chief_->node->core = core_;
  chief_down_ = chief_draining_ = calls_ = false;
  recoveries_ = 0;
  BeginModel();
  created_ = rounds_done_ = 0;
  passes_before_ = 0;
  asked_to_restore_ = restoring_ = false;
  pending_write_.reset();
  inherited_.clear();
  Next();
}

// A person changes the number of parameter servers.
void Cluster::FaultOfNumber() {
  if (is_resizing_ || chief_down_ || chief_draining_) return;
  const int wanted = 1 + static_cast<int>(random_.Below(4));
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

// Who was to join, and is not of the job.
void Cluster::StopJoining() {
  is_resizing_ = false;
  for (const auto& process : processes_) {
    if (process->ps != nullptr && process->index >= num_ps_ && process->node->executor->alive()) network_.Kill(process->node->address);
  }
}

void Cluster::OnExit(Process* process, int code) {
  process->exit_code = code;
  Trace(absl::StrCat(process->node->address, " exits with ", code));
  result_.drained += code == 143;
  result_.refused += code == 78;
  const bool may = code == 0 || (code == 78 && lost_store_) || (code == 143 && config_.drain) || (code == 78 && process->replicas != kReplicas) ||
                   (code == 78 && (had_duplicate_ || config_.replace_workers || config_.resize));
  if (!may) Violation("X16", absl::StrCat(process->node->address, " exits with ", code));
  world_.Post([this, process] {
    network_.Kill(process->node->address);
    const CoordinatorSnapshot::Phase phase = core_->Snapshot().phase;
    const bool ended = !chief_down_ && (phase == CoordinatorSnapshot::Phase::kEnding || phase == CoordinatorSnapshot::Phase::kOver);  // else a zombie said so
    if (over_ || (process->exit_code == 0 && ended)) return;
    process->worker != nullptr ? OnWorkerExit(*process) : OnPsExit(*process);
  });
}

// The supervisor looks a little later whether the index is served, if need be by an older life.
void Cluster::OnWorkerExit(const Process& process) {
  const int index = process.index;
  for (const auto& other : processes_) {
    if (other->worker != nullptr && other->index == index && other->node->executor->alive()) workers_[index] = other.get();
  }
  world_.PostAfter(absl::Seconds(2), [this, index] {
    if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
  });
}

void Cluster::OnPsExit(const Process& process) {
  const int index = process.index;
  for (const auto& other : processes_) {
    if (other->ps != nullptr && other->index == index && other->node->executor->alive()) ps_[index] = other.get();
  }
  world_.PostAfter(absl::Seconds(2), [this, index, drained = process.exit_code == 143] {
    if (!over_ && !drained && index < num_ps_ && !ps_[index]->node->executor->alive()) StartPs(index);  // of a drained one FaultOfPs says what becomes
  });
}

// ---- step bodies ----

int64_t Cluster::TagOf(const StepCall& call) const {
  if (!call.inputs.empty()) return -1 - call.inputs[0].first;  // a position of the pass
  return *(*call.args.list())[0].tensor()->scalar<int64_t>();
}

std::vector<Delta> Cluster::DeltasOf(int64_t tag, uint32_t attempt) const {
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 77));
  if (config_.changing_steps && attempt > 1 && random.Chance(0.3)) random = Random(MixSeeds(MixSeeds(config_.seed, tag), attempt));
  std::vector<Delta> deltas;
  const int touched = static_cast<int>(random.Below(config_.num_variables + 1));  // none, too
  for (int i = 0; i < touched; ++i) {
    Delta delta;
    delta.variable = static_cast<int>(random.Below(config_.num_variables));
    delta.amount = 1 + static_cast<int64_t>(random.Below(5));
    if (random.Chance(0.5)) {
      const int64_t rows = shapes_[delta.variable].dim(0);
      for (uint64_t n = 1 + random.Below(3); n > 0; --n) delta.ids.push_back(static_cast<int64_t>(random.Below(rows)));
    }
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

bool Cluster::StepFails(int64_t tag, uint32_t attempt) const {
  if (config_.failing_steps && MixSeeds(MixSeeds(config_.seed, tag), 5) % 29 == 0) return true;  // on every attempt
  return config_.changing_steps && attempt > 1 && MixSeeds(MixSeeds(config_.seed, tag), 6 + attempt) % 11 == 0;
}

void Cluster::BeginInSession(Process& process, const WorkerSnapshot& runner) {
  if (process.session != std::pair(runner.epoch, runner.session)) process.floors.clear(), process.seen.clear(), process.written.clear();
  process.session = {runner.epoch, runner.session};
  process.floors.push_back(model_.values);
  constexpr size_t kLongestAgo = 8;
  if (process.floors.size() > kLongestAgo) process.floors.pop_front();
}

// The session's next step begins behind this word: it is to see what this one has written.
void Cluster::OnReported(const Node& from, SessionId session, EntryId step) {
  for (const auto& process : processes_) {
    if (process->node.get() != &from || process->session.second != session) continue;
    auto replaced = process->to_be_replaced.extract(step);
    if (!replaced.empty() && process->assigned_in == StateOf(*process)) {
      result_.rows_replaced += static_cast<int64_t>(replaced.mapped().size());
      process->replaced.merge(replaced.mapped());
    }
    const auto written = process->written.extract(step);
    if (written.empty()) continue;
    for (const auto& [row, value] : written.mapped()) process->seen[row] = std::max(process->seen[row], value);
  }
}

// What had finished when the step so many before the newest of its session began, or the first one.
const Cluster::Floors& Cluster::FloorOf(const Process& process, int steps_back) {
  const size_t newest = process.floors.size() - 1;
  return process.floors[newest - std::min(newest, static_cast<size_t>(steps_back))];
}

// Of the n-th read, of a variable's rows: each is at least what it was in the oldest state that may be read, and what this session has read or written before.
script::Compute Cluster::CheckRows(Process& process, int64_t tag, int variable, std::vector<int64_t> ids, size_t nth) {
  const std::vector<int64_t> floor = FloorOf(process, config_.rows_may_miss.value_or(config_.row_cache_staleness))[variable];
  return {[this, &process, tag, variable, ids = std::move(ids), floor, nth, session = process.session](const script::Reads& reads) {
    if (reads.size() != nth || process.session != session) return std::vector<StagedWrite>();
    const int64_t width = shapes_[variable].row_elements();
    const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
    for (size_t i = 0; i < ids.size(); ++i) {
      const int64_t value = values[i * width], least = floor[ids[i] * width];
      int64_t& seen = process.seen[{variable, ids[i]}];
      if (value < least) Violation("X9", absl::StrCat("step ", tag, " read ", value, " where ", least, " had finished (v", variable, ", row ", ids[i], ")"));
      if (value < seen)
        Violation("X11", absl::StrCat("step ", tag, " read ", value, " where its session has seen ", seen, " (v", variable, ", row ", ids[i], ")"));
      seen = std::max(seen, value);
    }
    return std::vector<StagedWrite>();
  }};
}

void Cluster::ReadRows(Process& process, const StepCall& call, bool check, std::vector<script::Move>& moves) {
  const int64_t tag = TagOf(call);
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 2000 + call.attempt));
  auto reads =
      static_cast<size_t>(std::count_if(moves.begin(), moves.end(), [](const script::Move& move) { return std::holds_alternative<script::Read>(move); }));
  for (uint64_t n = random.Below(3); n > 0; --n) {
    const int variable = static_cast<int>(random.Below(config_.num_variables));
    std::vector<int64_t> ids;
    for (uint64_t i = 1 + random.Below(3); i > 0; --i) ids.push_back(static_cast<int64_t>(random.Below(shapes_[variable].dim(0))));
    moves.push_back(script::Read{{{absl::StrCat("v", variable), Tensor::Vector<int64_t>(absl::MakeConstSpan(ids))}}});
    ++reads;
    if (check) moves.push_back(CheckRows(process, tag, variable, std::move(ids), reads));
  }
}

// What the step has read is from before its own writes.
void Cluster::RememberWritten(Process& process, EntryId step, const std::vector<Delta>& deltas) {
  Process::Rows after = process.seen;
  for (const Delta& delta : deltas) {
    for (auto& [row, value] : after) {
      if (row.first != delta.variable) continue;
      value += delta.amount * (delta.ids.empty() ? 1 : std::count(delta.ids.begin(), delta.ids.end(), row.second));
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
  return random.Chance(0.2) ? Assignment{assignment.reads_whole, 0, kAssignedRows} : Assignment{assignment.reads_whole, row, row + 1};
}

// Within one of these a value that was replaced does not come again. A coordinator that goes back runs steps again beside each other.
ServersState Cluster::StateOf(const Process& process) {
  const WorkerSnapshot worker = process.worker->Inspect();
  const CoordinatorSnapshot chief = core_->Snapshot();
  return {worker.epoch, worker.session, core_->Inspect().lineage, chief.recoveries, chief.phase};
}

// Reads all rows, in one of two ways; `check`: and remembers what its assign will replace. That is sure of a first attempt only: another may have been applied
// before it was read.
void Cluster::ReadAssigned(Process& process, const StepCall& call, bool check, std::vector<script::Move>& moves) {
  if (process.assigned_in != StateOf(process)) process.replaced.clear(), process.to_be_replaced.clear();
  process.assigned_in = StateOf(process);
  const Assignment assignment = AssignmentOf(TagOf(call));
  VariableRead read{"assigned", std::nullopt};
  if (!assignment.reads_whole) read.ids = Tensor::Vector<int64_t>({0, 1, 2, 3, 4, 5, 6, 7});
  const auto before =
      static_cast<size_t>(std::count_if(moves.begin(), moves.end(), [](const script::Move& move) { return std::holds_alternative<script::Read>(move); }));
  moves.push_back(script::Read{{std::move(read)}});
  if (!check) return;
  moves.push_back(script::Compute{
      [this, &process, call, assignment, nth = before + 1, begun_in = process.assigned_in, replaced = process.replaced](const script::Reads& reads) {
        if (reads.size() != nth || begun_in != StateOf(process)) return std::vector<StagedWrite>();
        const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
        Process::Replaced will_be;
        for (int64_t row = 0; row < kAssignedRows; ++row) {
          const int64_t value = values[row * kAssignedWidth];
          if (replaced.count({row, value}) > 0) {
            Violation("X11", absl::StrCat("step ", TagOf(call), " read ", value, " in row ", row, " of \"assigned\", which its session has replaced"));
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
  if (process.replicas != kReplicas) Violation("X19", absl::StrCat("step ", tag, " runs on a worker of ", process.replicas, " replicas"));
  const WorkerSnapshot runner = process.worker->Inspect();
  tags_[runner.job][{call.step, runner.epoch}] = tag;
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 1000 + call.attempt));
  std::vector<script::Move> moves;
  BeginInSession(process, runner);
  if (!call.inputs.empty() && pass_elements_ && call.inputs[0].first >= *pass_elements_) return {script::RunOut{}};
  result_.reruns += call.attempt > 1;
  if (random.Chance(0.1)) moves.push_back(script::IgnoreCancel{});
  // The model is of this life's program, and what is run again after a rewind reads what there was then.
  const CoordinatorSnapshot chief = core_->Snapshot();
  const bool of_the_past = runner.epoch != chief.epoch_id || chief.phase != CoordinatorSnapshot::Phase::kRunning;
  const bool two_worlds = lost_store_ && (had_duplicate_ || had_zombie_);  // a job that began anew beside tasks of the old one may count the same epochs
  if (random.Chance(0.5) && !config_.changing_steps && !of_the_past && !two_worlds) {
    const int variable = static_cast<int>(random.Below(config_.num_variables));
    moves.push_back(script::Read{{{absl::StrCat("v", variable), std::nullopt}}});
    moves.push_back(script::Compute{[this, tag, variable, floor = FloorOf(process, config_.may_miss.value_or(config_.pipeline_depth - 1))[variable]](
                                        const script::Reads& reads) -> absl::StatusOr<std::vector<StagedWrite>> {
      HitFailpoint(Failpoint::kStepPulled);
      if (reads.empty()) return std::vector<StagedWrite>();  // cancelled while it read, and goes on all the same
      const absl::Span<const int64_t> values = *reads.back()[0].values<int64_t>();
      for (size_t i = 0; i < values.size(); ++i) {
        if (values[i] < floor[i])
          Violation("X9", absl::StrCat("step ", tag, " read ", values[i], " where ", floor[i], " had finished (v", variable, "[", i, "])"));
      }
      return std::vector<StagedWrite>();
    }});
  }
  const bool reads_rows = config_.row_cache_bytes > 0 && !config_.changing_steps && !two_worlds;
  if (reads_rows) ReadRows(process, call, /*check=*/!of_the_past, moves);
  if (config_.assigning_steps) ReadAssigned(process, call, /*check=*/!config_.changing_steps && !of_the_past && !two_worlds && !lost_store_, moves);
  moves.push_back(script::Take{absl::Microseconds(static_cast<int64_t>(random.Below(random.Chance(0.05) ? 3'000'000 : 5'000)))});
  if (random.Chance(0.02) && call.attempt < 3) return moves.push_back(script::LoseInput{}), moves;
  if (StepFails(tag, call.attempt)) return moves.push_back(script::Fail{absl::InvalidArgumentError(absl::StrCat("step ", tag, " fails"))}), moves;
  for (const Delta& delta : DeltasOf(tag, call.attempt)) {
    const Shape& shape = shapes_[delta.variable];
    StagedWrite write;
    write.variable = absl::StrCat("v", delta.variable);
    write.op = delta.ids.empty() ? WriteOp::kAdd : WriteOp::kScatterAdd;
    const Shape value_shape = delta.ids.empty() ? shape : shape.WithRows(static_cast<int64_t>(delta.ids.size()));
    const std::vector<int64_t> amounts(value_shape.num_elements(), delta.amount);
    write.value = *Tensor::Copy<int64_t>(value_shape, amounts);
    if (!delta.ids.empty()) write.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(delta.ids));
    moves.push_back(script::Stage{std::move(write)});
  }
  Assign(call, moves);
  if (reads_rows && !of_the_past && call.attempt == 1) {  // another may read what one before it has committed
    moves.push_back(script::Compute{[this, &process, step = call.step, deltas = DeltasOf(tag, call.attempt)](const script::Reads&) {
      RememberWritten(process, step, deltas);
      return std::vector<StagedWrite>();
    }});
  }
  StagedWrite gradient;
  gradient.variable = "adam";
  gradient.op = WriteOp::kGradient;
  gradient.value = *Tensor::Copy<float>(Shape{4}, {1, 2, 3, 4});
  moves.push_back(script::Stage{std::move(gradient)});
  moves.push_back(script::Return{[tag, attempt = call.attempt, id = call.step](const script::Reads&) {
    return Nest(Nest::List{Nest(tag), Nest(static_cast<int64_t>(attempt)), Nest(static_cast<int64_t>(id.value()))});
  }});
  return moves;
}

void Cluster::DefineScripts(Process& process) {
  process.runner->Define("work", [this, &process](const StepCall& call) { return Body(process, call); });
}

// ---- the program ----

void Cluster::Apply(const std::vector<Delta>& deltas) {
  for (const Delta& delta : deltas) {
    std::vector<int64_t>& values = model_.values[delta.variable];
    const int64_t width = shapes_[delta.variable].row_elements();
    if (delta.ids.empty()) {
      for (int64_t& value : values) value += delta.amount;
    }
    for (const int64_t id : delta.ids) {
      for (int64_t i = 0; i < width; ++i) values[id * width + i] += delta.amount;
    }
  }
}

void Cluster::ApplyAssignment(int64_t tag, EntryId step) {
  const Assignment assignment = AssignmentOf(tag);
  for (int64_t row = assignment.first; row < assignment.last; ++row) model_.assigned[row].insert(static_cast<int64_t>(step.value()));
}

void Cluster::Finished(const Nest& value) {
  const int64_t tag = *value[0].tensor()->scalar<int64_t>();
  const int64_t attempt = *value[1].tensor()->scalar<int64_t>();
  ++result_.finished_steps;
  ++model_.adam_commits;
  ++model_.steps;
  ++model_.effects;
  const EntryId step(static_cast<uint64_t>(*value[2].tensor()->scalar<int64_t>()));
  model_.reported.insert(step);
  Apply(DeltasOf(tag, static_cast<uint32_t>(attempt)));
  ApplyAssignment(tag, step);
  Trace(absl::StrCat("finished step ", tag, " in attempt ", attempt));
}

// The disk has failed in the one moment in which nobody can know whether a checkpoint is there: the next life looks.
bool Cluster::IsUnsureCommit(const absl::Status& error) const {
  return config_.disk_faults && absl::IsUnavailable(error) && absl::StrContains(error.message(), "nobody knows");
}

bool Cluster::IsStoreFault(const absl::Status& error) const {
  return config_.store_faults && absl::IsResourceExhausted(error) && absl::StrContains(error.message(), "the store's disk");
}

// The errors that no later call of this coordinator survives.
bool Cluster::EndsTheJob(const absl::Status& error) const {
  const Reason reason = ReasonOf(error);
  return IsUnsureCommit(error) || IsStoreFault(error) || reason == Reason::kPsLost || reason == Reason::kStaleEpoch || reason == Reason::kSecondCoordinator ||
         reason == Reason::kWrongJob || reason == Reason::kJobOver;
}

bool Cluster::IsExpected(const absl::Status& error) const {
  if (IsUnsureCommit(error) || IsStoreFault(error)) return true;
  switch (ReasonOf(error)) {
    case Reason::kPsLost:
      return std::any_of(killed_ps_.begin(), killed_ps_.end(), [&](int ps) { return absl::StrContains(error.message(), absl::StrCat("ps ", ps)); }) ||
             had_duplicate_ || (had_zombie_ && config_.learn_addresses && absl::StrContains(error.message(), "not registered")) ||  // it still hears the zombie
             (config_.changing_steps && absl::StrContains(error.message(), "half applied"));
    case Reason::kStaleEpoch:
    case Reason::kSecondCoordinator: return had_zombie_ || lost_store_;
    case Reason::kWrongJob:
      return lost_store_ && !config_.named_job && absl::StrContains(error.message(), "--state_dir") && absl::StrContains(error.message(), "--job_name");
    case Reason::kJobOver: return chief_draining_;
    default: return false;
  }
}

void Cluster::JobLost(const absl::Status& error) {
  calls_ = false;
  if (chief_down_) return;  // said to another call already
  Trace(absl::StrCat("the coordinator ends: ", error.message()));
  if (!IsExpected(error)) Violation("X16", absl::StrCat("the job ended with ", error.ToString()));
  if (ReasonOf(error) == Reason::kJobOver) return;  // its drain says when
  const bool for_good = ReasonOf(error) == Reason::kPsLost && ps_killed_ && !config_.restart_ps;
  if (for_good || !config_.kill_coordinator) {
    result_.job_lost = over_ = true;
    return;
  }
  if (ReasonOf(error) == Reason::kWrongJob) RestartTasks();
  ReplaceCoordinator(absl::Milliseconds(500), /*zombie=*/false);
}

// What a person does who reads of another job's tasks: starts all of them again.
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
  const bool lose = config_.lose_store && !faults_stopped_ && random_.Chance(0.4) && stored.job.state == JobRow::State::kRunning;
  const CoordinatorCore::Inspection past = core_->Inspect();
  RememberPast();
  if (zombie && !lose) chief_->store->TakeAway();
  for (const auto& [id, participants] : past.finished) ids_of_the_past_ = std::max(ids_of_the_past_, id.value());
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
  if (!config_.failing_steps && !config_.changing_steps) Violation("X8", absl::StrCat(call, " raised ", error.ToString(), " though no step fails"));
  Trace(absl::StrCat(call, " raised: ", error.message()));
  CheckAtRest();  // whatever was raised: nothing is in flight, and nothing of what failed or was cancelled is anywhere
  Next();
}

void Cluster::Act() {
  if (over_ || !result_.violation.ok()) return;
  if (created_ < NumVariables()) return CreateNext();
  if (config_.restore && !std::exchange(asked_to_restore_, true)) return Restore();
  if (model_.pass && core_->epoch() > model_.pass->epoch) {  // it was over, and its program has not been told any more
    CheckPass(*pass_elements_, true);
    model_.pass.reset();
  }
  if (model_.pass) return RunPass();  // that the life before was in the middle of
  model_.rounds = rounds_done_;
  model_.program_state = absl::StrCat(rounds_done_);
  model_.told.emplace_back(model_.program_state, model_.effects);
  core_->SetProgramState(model_.program_state);
  if (rounds_done_++ >= config_.rounds) return EndProgram();
  switch (random_.Below(4)) {
    case 0:
    case 1: return ScheduleSome();
    case 2: return RunPass();
    default: return WriteSome();
  }
}

void Cluster::CreateNext() {
  VariableSpec spec;
  if (created_ == config_.num_variables) {
    spec = {"adam", {4}, Zeros(), Adam{0.001}};
  } else if (created_ > config_.num_variables) {
    spec = {"assigned", AssignedShape(), Zeros(), {}, DType::kInt64};
  } else {
    spec = {absl::StrCat("v", created_), shapes_[created_], Zeros(), {}, DType::kInt64};
  }
  ++created_;
  calls_ = true;
  core_->CreateVariable(spec, std::nullopt, Mine([this](absl::Status status) {
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
    if (steps.ok()) restoring_ = false;  // else the program does not know what the job has begun with
    if (EndsTheJob(steps.status())) return JobLost(steps.status());
    if (!steps.ok()) return Violation("RestoreLatest", steps.status().ToString());
    OnRestored(*steps);
  }));
}

void Cluster::OnRestored(int64_t steps) {
  if (core_->Snapshot().adopted_steps) return OnAdopted(steps);
  const std::optional<CheckpointId> from = core_->Snapshot().last_checkpoint;
  Trace(absl::StrCat("program: restored ", steps, " steps from ", from ? from->name() : "nothing"));
  if (!from) {
    if (steps != 0) Violation("X3", absl::StrCat(steps, " steps, and no checkpoint"));
    tags_[core_->job()].clear();  // where the store was lost and the servers are new, ids and epochs are counted anew
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
  if (steps != model_.steps) Violation("X3", absl::StrCat(from->name(), " has ", steps, " steps, of ", model_.steps, " that had finished"));
  if (core_->program_state() != model_.program_state) Violation("X3", absl::StrCat("program state ", core_->program_state(), ", not ", model_.program_state));
  calls_ = true;
  ReadAll();
}

// ---- what the servers hold ----

// A life whose program has not been told what it goes on with has the knowledge of what that was made from.
void Cluster::RememberPast() {
  const CoordinatorCore::Inspection truth = core_->Inspect();
  const CoordinatorSnapshot seen = core_->Snapshot();
  if (restoring_ && seen.adopted_steps) return;
  Past past{model_, pending_write_};
  if (model_.pass) past.model->pass->visited = Visited();
  const auto cut = restoring_ && seen.last_checkpoint ? cuts_.find(*seen.last_checkpoint) : cuts_.end();
  if (cut != cuts_.end()) past.model = cut->second.model;
  past_[truth.lineage != Epoch() ? truth.lineage : seen.epoch_id] = std::move(past);  // it may have loaded all, and not begun
}

std::optional<int64_t> Cluster::TagOfStep(EntryId id) {
  const auto& tags = tags_[core_->job()];
  const auto after = tags.upper_bound({id, core_->Snapshot().epoch_id});
  if (after == tags.begin() || std::prev(after)->first.first != id) return std::nullopt;
  const bool of_another_life = std::prev(after)->first.second < core_->Inspect().lineage;  // whose store is lost
  return of_another_life ? std::nullopt : std::optional<int64_t>(std::prev(after)->second);
}

uint64_t Cluster::HighestId() const {
  const CoordinatorCore::Inspection truth = core_->Inspect();
  uint64_t highest = truth.finished.empty() ? 0 : truth.finished.rbegin()->first.value();
  for (const EntryId id : truth.open) highest = std::max(highest, id.value());
  return highest;
}

// By id, at the servers that the coordinator counts on.
std::map<EntryId, std::set<int>> Cluster::AppliedNow() {
  std::map<EntryId, std::set<int>> applied;
  for (int i = 0; i < static_cast<int>(core_->Inspect().ps.size()); ++i) {
    FindServingPs(i);
    for (const auto& [id, times] : ps_[i]->ps->Inspect().history) applied[id].insert(i);
  }
  return applied;
}

// What has been applied, and the program that began it was not told of: those steps count, and so does its last write. Returns how many they are.
int64_t Cluster::AddUnreported(const std::map<EntryId, std::set<int>>& applied) {
  int64_t added = 0;
  std::optional<PendingWrite> write = std::exchange(pending_write_, std::nullopt);
  for (const auto& [id, where] : applied) {
    if (const std::optional<int64_t> tag = TagOfStep(id)) {
      if (!model_.reported.insert(id).second) continue;
      ++model_.steps, ++model_.adam_commits, ++model_.effects, ++added;
      Apply(DeltasOf(*tag, 1));
      ApplyAssignment(*tag, id);
    } else if (write && id.value() > write->above) {
      Apply(write->deltas);
      ++model_.effects, ++added;
      write.reset();
    }
  }
  return added;
}

// All that a checkpoint would have to have, and in addition what had finished since.
void Cluster::OnAdopted(int64_t steps) {
  ++result_.adoptions, ++result_.restores;
  inherited_lineage_ = core_->Inspect().lineage;
  const auto past = past_.find(inherited_lineage_);
  if (past == past_.end()) return Violation("X3", "what was adopted is of no coordinator's life");
  if (!past->second.model) {
    result_.job_lost = over_ = true;  // the state of a zombie's program
    return;
  }
  model_ = *past->second.model;
  pending_write_ = past->second.write;
  inherited_ = AppliedNow();
  const int64_t unreported = AddUnreported(inherited_);
  Trace(absl::StrCat("program: adopted ", steps, " steps, with ", unreported, " entries that nobody had been told of"));
  if (steps != model_.steps) Violation("X3", absl::StrCat("adopted ", steps, " steps, of ", model_.steps, " that are whole"));
  const std::string told = core_->program_state();
  // What was told after it need not be stored as long as nothing has begun since.
  while (!model_.told.empty() && model_.told.back().first != told) {
    if (model_.effects > model_.told.back().second) {
      Violation("X3", absl::StrCat("adopted program state \"", told, "\", and steps that began after \"", model_.told.back().first, "\" was told"));
    }
    model_.told.pop_back();
  }
  model_.program_state = told;
  model_.rounds = told.empty() ? 0 : std::stoi(told);
  rounds_done_ = model_.rounds;
  if (config_.lose_at_worst && !faults_stopped_) {
    world_.PostAfter(absl::Milliseconds(static_cast<int64_t>(random_.Below(300))), Mine([this] {
                       if (!faults_stopped_) FaultOfPs(absl::Seconds(1));
                     }));
  }
  calls_ = true;
  ReadAll();
}

// ---- checkpoints ----

void Cluster::CheckLastCheckpoint() {
  const auto last = core_->Snapshot().last_checkpoint;
  const auto cut = last ? cuts_.find(*last) : cuts_.end();
  if (cut == cuts_.end()) return Violation("X3", "the job has ended without a checkpoint");
  if (cut->second.model->values != model_.values) Violation("X3", absl::StrCat(last->name(), " is the last, and has not all that was finished"));
}

std::vector<uint64_t> Cluster::AppliedSeqs() const {
  std::vector<uint64_t> seqs;
  for (const Incarnation life : core_->Inspect().ps) {  // those that the coordinator counts on, whoever else serves their index
    for (const auto& process : processes_) {
      if (process->ps != nullptr && process->incarnation == life) seqs.push_back(process->ps->Inspect().applied_seq);
    }
  }
  return seqs;
}

// The first request of a checkpoint leaves the coordinator in the event of the cut: what has finished before has been told to the program.
void Cluster::OnSnapshot(const Node& from, CheckpointId checkpoint) {
  Cut& cut = cuts_[checkpoint];
  if (cut.by == from.core.get()) return;
  cut = Cut();
  cut.by = from.core.get();
  cut.applied_seqs = AppliedSeqs();
  if (from.core != core_) return;
  cut.model = model_;
  cut.model->reported.clear();  // who loads it counts ids anew, where the store is lost
  if (model_.pass) cut.model->pass->visited = Visited();
}

void Cluster::OnMarked(const Node& from, CheckpointId checkpoint) {
  if (from.core != core_ || core_->Snapshot().checkpoint != checkpoint || chief_down_) return;
  if (AppliedSeqs() != cuts_[checkpoint].applied_seqs) Violation("X13", absl::StrCat("a commit was applied while ", checkpoint.name(), " was cut"));
}

void Cluster::ScheduleSome() {
  const int count = 1 + static_cast<int>(random_.Below(30));
  Trace(absl::StrCat("program: schedules ", count));
  struct Batch {
    int left;
    bool raised = false;
  };
  auto batch = std::make_shared<Batch>(Batch{count});
  calls_ = true;
  for (int i = 0; i < count; ++i) {
    const int64_t tag = next_tag_++;
    StepRequest request{"work", Nest(Nest::List{Nest(tag)}), false};
    core_->Schedule(request, Mine([this](const absl::StatusOr<Nest>& value) {
                      if (value.ok()) Finished(*value);
                    }),
                    Mine([this, batch](const absl::Status& accepted) {
                      if (EndsTheJob(accepted)) return JobLost(accepted);
                      if (!accepted.ok() && !batch->raised) {
                        batch->raised = true;
                        ++result_.failed_steps;
                      }
                      if (--batch->left == 0) CallJoin();
                    }));
  }
}

void Cluster::CallJoin() {
  core_->Join(Mine([this](const absl::Status& status) {
    if (!status.ok()) return OnRaised(status, "Join");
    Trace("program: joined");
    CheckAtRest();
    ReadAll();
  }));
}

void Cluster::RunPass() {
  if (!model_.pass) model_.pass = Model::Pass{random_.Chance(0.5) ? "known" : "unknown", core_->epoch(), {}};
  RunRequest request;
  request.step = {"work", Nest(), false};
  request.source = model_.pass->source;
  Trace(absl::StrCat("program: runs a pass over ", *pass_elements_, " elements, ", request.source, ", ", model_.pass->visited.size(), " steps of it done"));
  passes_before_ = core_->Inspect().finished_positions.size();
  calls_ = true;
  core_->Run(request, Mine([this](const Nest& value) { Finished(value); }), Mine([this](const absl::Status& status) {
               CheckPass(*pass_elements_, status.ok());
               model_.pass.reset();
               if (!status.ok()) return OnRaised(status, "Run");
               calls_ = false;
               Trace("program: the pass is over");
               CheckAtRest();
               Next();
             }));
}

void Cluster::WriteSome() {
  const std::vector<Delta> deltas = DeltasOf(1'000'000 + rounds_done_, 1);
  std::vector<StagedWrite> writes;
  for (const Delta& delta : deltas) {
    if (!delta.ids.empty()) continue;
    StagedWrite write;
    write.variable = absl::StrCat("v", delta.variable);
    write.op = WriteOp::kAdd;
    const std::vector<int64_t> amounts(shapes_[delta.variable].num_elements(), delta.amount);
    write.value = *Tensor::Copy<int64_t>(shapes_[delta.variable], amounts);
    writes.push_back(std::move(write));
  }
  std::vector<Delta> whole;
  for (const Delta& delta : deltas) {
    if (delta.ids.empty()) whole.push_back(delta);
  }
  Trace("program: writes");
  calls_ = true;
  if (!whole.empty()) pending_write_ = PendingWrite{whole, HighestId()};
  core_->Write(std::move(writes), Mine([this, whole](const absl::Status& status) {
                 if (!status.ok()) return OnRaised(status, "Write");
                 pending_write_.reset();
                 Apply(whole);
                 model_.effects += !whole.empty();
                 ReadAll();
               }));
}

void Cluster::ReadAll() {
  std::vector<VariableRead> reads;
  for (int i = 0; i < config_.num_variables; ++i) reads.push_back({absl::StrCat("v", i), std::nullopt});
  if (config_.assigning_steps) reads.push_back({"assigned", std::nullopt});
  core_->Read(
      reads, Mine([this](const absl::StatusOr<std::vector<Tensor>>& values) {
        if (!values.ok()) return OnRaised(values.status(), "Read");
        for (int i = 0; i < config_.num_variables; ++i) {
          const absl::Span<const int64_t> read = *(*values)[i].values<int64_t>();
          if (config_.changing_steps) continue;  // what a ps holds of a re-run step may come from either attempt: no figure is promised
          if (!std::equal(read.begin(), read.end(), model_.values[i].begin(), model_.values[i].end())) {
            Violation("X2", absl::StrCat("v", i, " is [", absl::StrJoin(read, " "), "], the finished steps make [", absl::StrJoin(model_.values[i], " "), "]"));
          }
        }
        if (config_.assigning_steps && !config_.changing_steps) CheckAssigned(values->back());
        calls_ = false;
        Next();
      }));
}

// At rest: each row is what one finished step has assigned, or 0 where none has.
void Cluster::CheckAssigned(const Tensor& values) {
  const absl::Span<const int64_t> read = *values.values<int64_t>();
  for (int64_t row = 0; row < kAssignedRows; ++row) {
    const std::set<int64_t>& assigned = model_.assigned[row];
    const int64_t value = read[row * kAssignedWidth];
    const bool whole = std::all_of(&read[row * kAssignedWidth], &read[row * kAssignedWidth] + kAssignedWidth, [&](int64_t one) { return one == value; });
    if (whole && (assigned.empty() ? value == 0 : assigned.count(value) > 0)) continue;
    Violation("X2", absl::StrCat("row ", row, " of \"assigned\" begins with ", value, ", and what finished has assigned [", absl::StrJoin(assigned, " "), "]"));
  }
}

void Cluster::EndProgram() {
  Trace("program: ends");
  if (config_.lose_at_worst && !faults_stopped_) FaultOfPs(absl::Seconds(1));
  gone_at_end_.clear();
  for (const auto& process : processes_) {
    if (process->ps != nullptr && !process->node->executor->alive()) gone_at_end_.insert(process->incarnation.value());
  }
  calls_ = true;
  core_->EndJob(0, Mine([this](const absl::Status& status) {
                  calls_ = false;
                  if (EndsTheJob(status)) return JobLost(status);
                  if (!status.ok()) Violation("X16", absl::StrCat("EndJob: ", status.ToString()));
                  if (status.ok() && config_.checkpoints) CheckLastCheckpoint();
                  for (const Incarnation life : core_->Inspect().ps) {
                    if (gone_at_end_.count(life.value()) > 0) Violation("X2", "the job is called complete, and a server that was gone has its state");
                  }
                  over_ = told_the_end_ = true;
                }));
}

// ---- faults ----

Process* Cluster::LiveWorker(int index) {
  const auto found = workers_.find(index);
  return found != workers_.end() && found->second->node->executor->alive() ? found->second : nullptr;
}

void Cluster::FaultOfWorker(int index, Process& worker, uint64_t kind, absl::Duration while_away) {
  const std::string address = worker.node->address;
  if (kind < 25 && config_.kill_workers) {
    Trace(absl::StrCat("fault: kills ", address));
    network_.Kill(address);
    world_.PostAfter(while_away, [this, index] {
      if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
    });
  } else if (kind < 45 && config_.pause_workers) {
    Trace(absl::StrCat("fault: stops ", address));
    worker.node->executor->Pause();
    world_.PostAfter(while_away, [&worker] { worker.node->executor->Resume(); });
  } else if (kind < 55 && config_.replace_workers && !faults_stopped_) {
    Trace(absl::StrCat("fault: replaces ", address, ", which goes on as a zombie"));
    if (random_.Chance(0.5)) {  // cut off from the coordinator alone, it goes on with what it has
      network_.BreakStreams(address);
      network_.Cut(address, chief_address());
      network_.Cut(chief_address(), address);
      world_.PostAfter(while_away, [this, address, chief = chief_address()] { network_.Heal(address, chief), network_.Heal(chief, address); });
    } else {
      worker.node->executor->Pause();
      world_.PostAfter(while_away, [&worker] { worker.node->executor->Resume(); });
    }
    world_.PostAfter(while_away + absl::Seconds(3), [this, index, address] {
      network_.Kill(address);
      if (!over_ && LiveWorker(index) == nullptr) StartWorker(index, ++newest_life_[index]);
    });
    StartWorker(index, ++newest_life_[index]);
  } else if (kind < 60 && config_.drain) {
    DrainWorker(worker);
  } else if (kind < 85 && config_.cut_links) {
    const std::string other = random_.Chance(0.5) ? chief_address() : PsAddressOf(static_cast<int>(random_.Below(num_ps_)));
    const std::string from = random_.Chance(0.5) ? other : address, to = from == other ? address : other;
    const bool both = random_.Chance(0.5);
    Trace(absl::StrCat("fault: cuts ", from, both ? " <-> " : " -> ", to));
    network_.Cut(from, to);
    if (both) network_.Cut(to, from);
    world_.PostAfter(while_away, [this, from, to] { network_.Heal(from, to), network_.Heal(to, from); });
  } else if (kind >= 90) {
    Trace(absl::StrCat("fault: breaks the streams of ", address));
    network_.BreakStreams(address);
  }
}

void Cluster::FaultOfPs(absl::Duration while_away) {
  const int index = static_cast<int>(random_.Below(num_ps_));
  Process* const ps = ps_[index];
  if (!ps->node->executor->alive()) return;
  ps_killed_ = true;
  killed_ps_.insert(index);
  if (config_.drain && random_.Chance(0.4)) {
    Trace(absl::StrCat("fault: SIGTERM to ", ps->node->address));
    ps->node->executor->Post([ps] { ps->ps->Drain(); });
    world_.PostAfter(kDrainTimeout, [this, ps] {
      if (ps->node->executor->alive()) network_.Kill(ps->node->address);
    });
  } else {
    Trace(absl::StrCat("fault: kills ", ps->node->address));
    network_.Kill(ps->node->address);
  }
  if (!config_.restart_ps) return;
  world_.PostAfter(while_away, [this, ps, index] {
    if (ps->node->executor->alive()) network_.Kill(ps->node->address);
    if (!over_ && index < num_ps_) StartPs(index);
  });
  if (!config_.replay || faults_stopped_ || !random_.Chance(0.3)) return;
  world_.PostAfter(while_away + absl::Milliseconds(static_cast<int64_t>(random_.Below(500))), [this] {
    if (!over_ && !faults_stopped_) FaultOfPs(absl::Milliseconds(300));  // while the job goes back, or forward again
  });
}

void Cluster::CutForAWhile(const std::string& from, const std::string& to, absl::Duration while_away) {
  network_.Cut(from, to);
  world_.PostAfter(while_away, [this, from, to] { network_.Heal(from, to); });
}

void Cluster::FaultOfCoordinator(absl::Duration while_away) {
  if (chief_down_ || chief_draining_) return;
  if (config_.drain && random_.Chance(0.3)) return DrainCoordinator();
  const bool zombie = config_.zombie_coordinator && random_.Chance(0.5);
  const bool stopped = zombie && random_.Chance(0.5);  // else it goes on as if nothing were; no ps can tell it
  Trace(absl::StrCat("fault: ", stopped ? "stops " : zombie ? "forgets " : "kills ", chief_address()));
  if (stopped) {
    Process* const chief = chief_;
    chief->node->executor->Pause();
    world_.PostAfter(while_away, [chief] { chief->node->executor->Resume(); });
  } else if (zombie) {
    for (int i = 0; i < num_ps_; ++i) CutForAWhile(chief_address(), PsAddressOf(i), while_away);
  }
  ReplaceCoordinator(absl::Milliseconds(static_cast<int64_t>(random_.Below(3'000))), zombie);
}

void Cluster::DrainCoordinator() {
  Trace(absl::StrCat("fault: SIGTERM to ", chief_address()));
  chief_draining_ = true;
  core_->Drain(Mine([this] {
    ++result_.drained;
    world_.PostAfter(absl::Milliseconds(1), Mine([this] {  // a call made at the very moment has its answer by then
                       if (chief_down_) return;
                       if (calls_ && chief_->node->executor->alive() && !chief_->node->executor->paused())
                         Violation("X16", "the coordinator has drained, and a call of the program still waits");
                       ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);
                     }));
  }));
  world_.PostAfter(kDrainTimeout, Mine([this] {
                     if (!chief_down_) ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);  // the supervisor has no more patience
                   }));
}

// The machine that they all run on.
void Cluster::LosePower() {
  Trace("fault: the power goes");
  ++result_.power_losses;
  for (const auto& process : processes_) {
    if (process->node->executor->alive()) network_.Kill(process->node->address);
  }
  disk_.Crash();
  for (int i = 0; i < num_ps_; ++i) StartPs(i);
  for (int i = 0; i < config_.num_workers; ++i) StartWorker(i, ++newest_life_[i]);
  ReplaceCoordinator(absl::Milliseconds(static_cast<int64_t>(random_.Below(1'000))), /*zombie=*/false);
}

void Cluster::FaultOfDisk() {
  constexpr FileOperation kOperations[] = {FileOperation::kOpenForWrite, FileOperation::kAppend, FileOperation::kSync, FileOperation::kRename,
                                           FileOperation::kSyncDirectory};
  const FileOperation operation = kOperations[random_.Below(std::size(kOperations))];
  Trace(absl::StrCat("fault: an operation of the disk fails, of kind ", static_cast<int>(operation)));
  disk_.FailNext(operation, "checkpoints", absl::DataLossError("the disk is broken"));
}

void Cluster::DrainWorker(Process& worker) {
  Trace(absl::StrCat("fault: SIGTERM to ", worker.node->address));
  worker.node->executor->Post([core = worker.worker] { core->Drain(); });
  world_.PostAfter(kDrainTimeout, [this, &worker] {
    if (worker.exit_code || !worker.node->executor->alive()) return;
    if (faults_stopped_) Violation("X16", absl::StrCat(worker.node->address, " did not drain"));
    network_.Kill(worker.node->address);
    OnWorkerExit(worker);
  });
}

// A mistake of a person: the index is served already.
void Cluster::StartDuplicate() {
  had_duplicate_ = true;
  if (random_.Chance(0.5)) {
    const int index = static_cast<int>(random_.Below(config_.num_workers));
    Trace(absl::StrCat("fault: starts worker ", index, " a second time"));
    StartWorker(index, ++newest_life_[index]);
  } else {
    const int index = static_cast<int>(random_.Below(num_ps_));
    Trace(absl::StrCat("fault: starts ps ", index, " a second time"));
    StartPs(index, absl::StrCat(PsAddressOf(index), "/second", ++duplicates_));
  }
}

void Cluster::Fault() {
  ++result_.faults;
  const int index = static_cast<int>(random_.Below(config_.num_workers));
  const absl::Duration while_away = absl::Milliseconds(static_cast<int64_t>(random_.Below(9'000)));
  const uint64_t kind = random_.Below(100);
  if (kind >= 85 && kind < 90) {
    const std::string ps = PsAddressOf(static_cast<int>(random_.Below(num_ps_))), chief = chief_address();
    Trace(absl::StrCat("fault: cuts ", chief, " -> ", ps));
    CutForAWhile(chief, ps, while_away);
  } else if (Process* const worker = LiveWorker(index); worker != nullptr) {
    FaultOfWorker(index, *worker, kind, while_away);
  }
  const bool again = config_.replay && config_.restart_ps;
  if (config_.kill_ps && (!ps_killed_ || again) && result_.finished_steps > 20 && random_.Chance(0.2)) FaultOfPs(while_away);
  if (config_.kill_coordinator && random_.Chance(0.05)) FaultOfCoordinator(while_away);
  if (config_.duplicates && random_.Chance(0.1)) StartDuplicate();
  if (config_.disk_faults && random_.Chance(0.2)) FaultOfDisk();
  if (config_.store_faults && random_.Chance(0.1) && !chief_down_) {
    Trace("fault: the store's disk fails");
    chief_->store->Break();
  }
  if (config_.resize && random_.Chance(0.1)) FaultOfNumber();
  if (config_.power_loss && random_.Chance(0.03) && !chief_down_ && !chief_draining_) LosePower();
}

// A process comes to a named moment, within its own task or within a call of the program, which is the coordinator's.
void Cluster::OnFailpoint(Failpoint point) {
  const int64_t hit = ++result_.hits[static_cast<size_t>(point)];
  if (config_.kill_at != point || config_.kill_at_hit != hit || faults_stopped_ || over_) return;
  const auto runs = [](const std::unique_ptr<Process>& process) { return process->node->executor->running(); };
  const auto running = std::find_if(processes_.begin(), processes_.end(), runs);
  Process* const victim = running == processes_.end() ? chief_ : running->get();
  Trace(absl::StrCat("fault: kills ", victim->node->address, " at ", FailpointName(point)));
  ++result_.killed_at_points;
  victim->node->executor->Kill();  // nothing leaves it any more; its connections break when the task is over
  world_.Post([this, victim] { FinishKill(*victim); });
}

void Cluster::FinishKill(Process& process) {
  network_.Kill(process.node->address);
  if (process.worker != nullptr) return OnWorkerExit(process);
  if (process.ps == nullptr) {
    if (&process == chief_ && !chief_down_) return ReplaceCoordinator(absl::Milliseconds(300), /*zombie=*/false);
    return process.chief->Abandon();  // a zombie
  }
  ps_killed_ = true;
  killed_ps_.insert(process.index);
  world_.PostAfter(absl::Seconds(1), [this, index = process.index] {
    if (!over_ && !ps_[index]->node->executor->alive()) StartPs(index);
  });
}

void Cluster::MaybeFault() {
  if (over_ || faults_stopped_ || !result_.violation.ok()) return;
  if (now() > config_.fault_time) return StopFaults();
  if (random_.Chance(config_.fault_rate)) Fault();
  world_.PostAfter(absl::Milliseconds(10), [this] { MaybeFault(); });
}

void Cluster::StopFaults() {
  faults_stopped_ = true;
  Trace("faults stop");
  network_.HealAll();
  network_.set_rates(FaultRates());
  disk_.FailNothingMore();
  for (const auto& process : processes_) {
    if (process->node->executor->paused()) process->node->executor->Resume();
    const bool zombie = (process->worker != nullptr && workers_[process->index] != process.get()) ||
                        (process->ps != nullptr && ps_[process->index] != process.get()) ||
                        (process->chief != nullptr && (chief_ != process.get() || chief_down_));
    if (!zombie || !process->node->executor->alive()) continue;
    network_.Kill(process->node->address);
    if (process->chief != nullptr) process->chief->Abandon();
  }
  for (int i = 0; i < config_.num_workers; ++i) {
    if (LiveWorker(i) == nullptr) StartWorker(i, ++newest_life_[i]);
  }
}

// ---- checks ----

void Cluster::CheckAlways() {
  std::map<EntryId, std::set<uint32_t>> admissible;  // sessions that could still have an id applied
  for (Process* ps : ps_) {
    if (ps == nullptr || !ps->node->executor->alive()) continue;
    const ParameterServerSnapshot seen = ps->ps->Inspect();
    for (const auto& [id, times] : seen.history) {
      if (times > 1) Violation("X1", absl::StrCat("ps ", ps->index, " applied id ", id.value(), " ", times, " times"));
    }
    if (seen.remembered.size() > 32'768 + 16) Violation("X7", absl::StrCat("ps ", ps->index, " remembers ", seen.remembered.size(), " ids"));
    for (const auto& process : processes_) {
      if (process->worker == nullptr || !process->node->executor->alive()) continue;
      const WorkerSnapshot worker = process->worker->Inspect();
      for (const EntryId step : worker.ahead) pulled_ahead_.emplace(process.get(), worker.session, step);
      const int64_t before = std::exchange(process->rows_reused, worker.rows.later_hits);
      result_.rows_reused += process->rows_reused - (process->rows_reused < before ? 0 : before);
      if (!worker.attached || !worker.live || worker.epoch != seen.epoch || worker.job != seen.job) continue;
      if (std::count(seen.sessions.begin(), seen.sessions.end(), worker.session) > 0) admissible[*worker.live].insert(worker.session.value());
    }
  }
  for (const auto& [id, sessions] : admissible) {
    if (sessions.size() > 1) Violation("X5", absl::StrCat("id ", id.value(), " may be applied by sessions ", absl::StrJoin(sessions, " and ")));
  }
  if (const auto last = core_->Snapshot().last_checkpoint; last && (!newest_ || *newest_ < *last)) {
    newest_ = last;
    ++result_.checkpoints;
  }
  const CoordinatorSnapshot seen = core_->Snapshot();
  if (seen.redo_log_bytes > config_.redo_log_bytes + 10'000) Violation("X7", absl::StrCat("the redo log has ", seen.redo_log_bytes, " bytes"));
  result_.rewinds += seen.recoveries - std::exchange(recoveries_, seen.recoveries);
  const CoordinatorCore::Inspection truth = core_->Inspect();
  if (truth.unacknowledged > 1024) Violation("X7", "more than 1,024 unacknowledged messages");
  if (chief_down_) return;
  for (const EntryId id : truth.open) {
    if (id.value() <= ids_of_the_past_) Violation("X14", absl::StrCat("id ", id.value(), " was given by an earlier life of the coordinator"));
  }
}

// Of two processes of one index: the one whose state the coordinator counts on.
bool Cluster::FindServingPs(int index) {
  const Epoch lineage = core_->Inspect().lineage;
  const Incarnation life = core_->Inspect().ps[index];
  for (const std::unique_ptr<Process>& process : processes_) {
    if (process->ps == nullptr || process->index != index || process->incarnation != life) continue;
    ps_[index] = process.get();
    return process->ps->Inspect().lineage == lineage;
  }
  return false;
}

void Cluster::CheckAtRest() {
  const CoordinatorCore::Inspection truth = core_->Inspect();
  if (!truth.open.empty() || truth.recovering) return;  // a direct write of another round is under way, or the state is not there again
  const int serving = static_cast<int>(truth.ps.size());
  for (int i = 0; i < serving; ++i) {
    if (!FindServingPs(i)) return;  // lost, or another coordinator's by now: this one will learn it
  }
  std::map<EntryId, std::set<int>> applied = AppliedNow();
  for (const auto& [id, where] : inherited_) {
    if (truth.lineage != inherited_lineage_) break;  // all has been loaded since
    if (applied[id] != where) Violation("X2", absl::StrCat("id ", id.value(), " was adopted, and its servers are others now"));
    applied.erase(id);
  }
  for (const auto& [id, participants] : truth.finished) {
    const std::set<int> wanted(participants.begin(), participants.end());
    if (applied[id] != wanted) {
      Violation("X2", absl::StrCat("id ", id.value(), " finished on ps ", absl::StrJoin(wanted, " "), " but is applied on ", absl::StrJoin(applied[id], " ")));
    }
    applied.erase(id);
  }
  for (const auto& [id, where] : applied) Violation("X8", absl::StrCat("id ", id.value(), " did not finish but is applied on ps ", absl::StrJoin(where, " ")));
  for (int i = 0; i < serving; ++i) {
    Process* const ps = ps_[i];
    const ParameterServerSnapshot seen = ps->ps->Inspect();
    for (const auto& [key, shard] : seen.shards) {
      if (shard.value.dtype() != DType::kInt32) continue;  // the only int32 values are Adam's row counts
      const absl::Span<const int32_t> counts = *shard.value.values<int32_t>();
      for (const int32_t t : counts) {
        if (t != model_.adam_commits) Violation("X12", absl::StrCat("ps ", ps->index, ": Adam's t is ", t, " after ", model_.adam_commits, " commits"));
      }
    }
  }
}

// What steps of the pass under way have read, in this life of the program and those before.
std::vector<std::pair<int64_t, int64_t>> Cluster::Visited() const {
  std::vector<std::pair<int64_t, int64_t>> visited = model_.pass->visited;
  const auto of_this_life = core_->Inspect().finished_positions;
  if (of_this_life.size() <= passes_before_) return visited;
  const auto& latest = of_this_life.rbegin()->second;
  visited.insert(visited.end(), latest.begin(), latest.end());
  return visited;
}

void Cluster::CheckPass(int64_t elements, bool complete) {
  std::vector<int> times(elements, 0);
  for (const auto& [first, count] : Visited()) {
    for (int64_t p = first; p < std::min(first + count, elements); ++p) ++times[p];
  }
  const bool some_may_be_skipped = !complete || (config_.failing_steps && !model_.pass->visited.empty());  // by a step that failed in an earlier life
  for (int64_t p = 0; p < elements; ++p) {
    if (times[p] > 1 || (!some_may_be_skipped && times[p] == 0))
      Violation("X10", absl::StrCat("position ", p, " of the pass was visited ", times[p], " times"));
  }
}

SimResult Cluster::Run() {
  SetFailpointObserver(this);
  pass_elements_ = static_cast<int64_t>(random_.Below(120));
  for (int i = 0; i < config_.num_variables; ++i) {
    shapes_.push_back(Shape{1 + static_cast<int64_t>(random_.Below(7)), 1 + static_cast<int64_t>(random_.Below(3))});
  }
  BeginModel();
  FaultRates rates;
  rates.lose = config_.lose;
  rates.duplicate = config_.duplicate;
  rates.break_stream = config_.break_stream;
  rates.slow = config_.slow;
  rates.late = config_.late;
  network_.set_rates(rates);
  StartCoordinator({});
  for (int i = 0; i < num_ps_; ++i) StartPs(i);
  for (int i = 0; i < config_.num_workers; ++i) StartWorker(i, ++newest_life_[i]);
  world_.Post([this] { MaybeFault(); });
  while (result_.violation.ok() && !over_ && world_.RunOne()) {
    ++result_.events;
    if (result_.events % 16 == 0) CheckAlways();
    if (now() > config_.fault_time + kPatience) Violation("X16", absl::StrCat("no end after ", absl::FormatDuration(now()), " of virtual time"));
  }
  if (result_.violation.ok() && !over_) Violation("X16", "nothing is left to happen, but the program has not ended");
  if (result_.violation.ok() && told_the_end_) {
    world_.RunFor(absl::Seconds(15));  // tasks that missed the Shutdown learn of the end when they register
    CheckAtRest();
    for (int i = 0; i < static_cast<int>(core_->Inspect().ps.size()); ++i) {
      FindServingPs(i);
      const Process* const ps = ps_[i];
      if (ps_killed_ && !ps->node->executor->alive()) continue;  // in the job's last moment
      if (ps->exit_code != 0) Violation("X16", absl::StrCat("ps ", ps->index, " did not exit with 0"));
    }
  }
  result_.pulled_ahead = static_cast<int64_t>(pulled_ahead_.size());
  result_.virtual_time = now();
  result_.trace_hash = MixSeeds(hash_, static_cast<uint64_t>(result_.events));
  for (const auto& process : processes_) {  // cores hold connections, and those their nodes
    if (process->worker != nullptr) process->worker->Abandon();
    if (process->chief != nullptr) process->chief->Abandon();
    process->node->core = nullptr;
  }
  return std::move(result_);
}

}  // namespace

SimConfig ConfigOf(uint64_t seed) {
  Random random(MixSeeds(seed, 42));
  SimConfig config;
  config.seed = seed;
  config.num_ps = 1 + static_cast<int>(random.Below(3));
  config.num_workers = 1 + static_cast<int>(random.Below(4));
  config.num_variables = 1 + static_cast<int>(random.Below(4));
  config.rounds = 2 + static_cast<int>(random.Below(5));
  const bool calm = random.Chance(0.1);
  const auto rate = [&](double most) { return calm || random.Chance(0.3) ? 0 : most * random.Uniform(); };
  config.lose = rate(0.03);
  config.duplicate = rate(0.1);
  config.break_stream = rate(0.01);
  config.slow = rate(0.2);
  config.fault_rate = rate(0.05);
  config.failing_steps = random.Chance(0.3);
  config.changing_steps = random.Chance(0.15);
  config.kill_ps = random.Chance(0.1);
  config.restart_ps = random.Chance(0.7);
  config.kill_coordinator = random.Chance(0.3);
  config.zombie_coordinator = random.Chance(0.5);
  config.lose_store = random.Chance(0.3);
  config.named_job = random.Chance(0.5);
  config.drain = random.Chance(0.3);
  config.duplicates = random.Chance(0.15);
  config.learn_addresses = random.Chance(0.3);
  if (random.Chance(0.5)) config.commit_buffer_bytes = 2'000;
  config.late = rate(0.005);
  if (random.Chance(0.5)) config.id_block = 4 + random.Below(60);
  config.checkpoints = random.Chance(0.6);
  config.restore = random.Chance(0.8);
  config.disk_faults = random.Chance(0.3);
  config.power_loss = config.kill_coordinator && random.Chance(0.3);
  config.replay = random.Chance(0.8);
  if (config.replay && random.Chance(0.5)) config.kill_ps = config.restart_ps = true;
  if (random.Chance(0.5)) config.redo_log_bytes = 10'000 + static_cast<int64_t>(random.Below(40'000));
  config.resize = config.checkpoints && random.Chance(0.25);
  config.lose_at_worst = config.replay && config.restart_ps && random.Chance(0.2);
  config.store_faults = config.kill_coordinator && random.Chance(0.3);
  if (random.Chance(0.3)) config.pipeline_depth = 2 + static_cast<int>(random.Below(2));
  if (random.Chance(0.3)) {
    config.row_cache_bytes = 200 + static_cast<int64_t>(random.Below(4'000));
    config.row_cache_staleness = static_cast<int>(random.Below(5));
  }
  config.assigning_steps = random.Chance(0.3);
  return config;
}

SimResult RunSimulation(const SimConfig& config) { return Cluster(config).Run(); }

}  // namespace divvy::sim
