// The inside of the simulated cluster: its processes, its program, its faults, and the state that
// the invariants are checked against. Its parts are
//
//   sim_cluster.cc      starting processes, and the run
//   cluster_steps.cc    step functions: what they do, and what they check as they read
//   cluster_program.cc  the program: rounds of steps, passes, writes, the end
//   beside.h            the calls that the program makes while a round runs
//   cluster_tables.cc   the dynamic table, and its evictions
//   cluster_passes.cc   passes over data, and which positions they have visited
//   cluster_readers.cc  steps that read two datasets by iterators that the program made
//   loops.h             the program's other loops
//   cluster_cuts.cc     the state that a life of the program continues from: checkpoints, and what
//                       the parameter servers hold
//   cluster_faults.cc   the faults
//   lying_worker.h      a worker that sends false messages
//   lying_server.h      a parameter server that sends false answers
//   cluster_judge.cc    the checks that need the whole cluster
//   order_judge.h, applied_record.h, table_model.h   the checks that do not
#ifndef DIVVY_TESTS_SIM_CLUSTER_H_
#define DIVVY_TESTS_SIM_CLUSTER_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/random.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/ticking_clock.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/step_rules.h"
#include "protocol/trace_log.h"
#include "ps_server/checkpoint/bundle_files.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/sim/applied_record.h"
#include "tests/sim/beside.h"
#include "tests/sim/loops.h"
#include "tests/sim/lying_server.h"
#include "tests/sim/lying_worker.h"
#include "tests/sim/order_judge.h"
#include "tests/sim/program_site.h"
#include "tests/sim/sim_clients.h"
#include "tests/sim/sim_cluster.h"
#include "tests/sim/sim_files.h"
#include "tests/sim/sim_network.h"
#include "tests/sim/sim_store.h"
#include "tests/sim/table_model.h"
#include "worker/core/testing/scripted_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy::sim {

constexpr absl::Duration kLongestRecovery = absl::Seconds(110);  // 60 s of them are ps_timeout
constexpr absl::Duration kPatience = absl::Minutes(5), kDrainTimeout = absl::Seconds(25);

constexpr char kCheckpoints[] = "/checkpoints";
constexpr auto kNoValues = ParameterServerCore::Detail::kWithoutValues;

inline std::string PsAddressOf(int index) { return absl::StrCat("ps/", index); }

// The part of a step that assigns rows of the variable "assigned", beside its deltas. The assigned
// value is the step's id, so no value occurs twice.
constexpr int64_t kAssignedRows = 8, kAssignedWidth = 2;
struct Assignment {
  bool reads_whole = false;     // reads the whole variable before it assigns
  int64_t first = 0, last = 0;  // the rows that it assigns: none, one, or all
};
inline const Shape& AssignedShape() {
  static const Shape shape{kAssignedRows, kAssignedWidth};
  return shape;
}

// ---- the cluster ----

// A session, and the state of the parameter servers during it.
using ServersState = std::tuple<Epoch, SessionId, Epoch, int64_t, CoordinatorSnapshot::Phase>;

// One life of a process. It is kept until the end of the run, because late tasks refer to it.
struct Process {
  // Makes a slice of a parameter server's checkpoint take time to write.
  TickingClock slice_clock{absl::Milliseconds(1)};
  // Of a worker or the coordinator.
  TraceLog traces;
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
  // For a worker whose GPU has failed: how many steps have run without the GPU, including the step
  // in which it failed.
  int steps_without_device = 0;
  // For a worker, at the start of a step: the values that had finished by then, and the earlier
  // training steps of the session that were not known to have finished.
  struct Begun {
    std::vector<std::vector<int64_t>> finished;
    std::set<EntryId> own;
  };
  std::pair<Epoch, SessionId> session;
  std::deque<Begun> floors;
  // What the first attempts of its training steps add, under one state of the servers: `own_begun`
  // for steps that have begun, `own_done` for steps that the worker has reported.
  ServersState own_in;
  std::map<EntryId, std::vector<Delta>> own_begun, own_done;
  // A lower bound for each row that the session reads, by variable and row: the value that it last
  // read, and what its finished steps have added since.
  using Rows = std::map<std::pair<int, int64_t>, int64_t>;
  Rows seen;
  std::map<EntryId, Rows> written;  // what `seen` becomes when this step has finished
  // Values of "assigned", by row, in this session and under this state of the servers: `replaced`
  // by a finished step of the session, and `to_be_replaced` by a step that is not reported yet.
  using Replaced = std::set<std::pair<int64_t, int64_t>>;
  ServersState assigned_in;
  Replaced replaced;
  std::map<EntryId, Replaced> to_be_replaced;
};

class Cluster : public SimSite, public ProgramSite, public FailpointObserver {
 public:
  explicit Cluster(const SimConfig& config)
      : config_(config),
        world_(config.seed),
        network_(world_, MixSeeds(config.seed, 1)),
        random_(MixSeeds(config.seed, 2)),
        beside_(config_, *this),
        loops_(config_, *this) {}

  ~Cluster() override { SetFailpointObserver(nullptr); }

  SimResult Run();

  void OnFailpoint(Failpoint point) override;
  absl::Duration PayloadTime() override { return network_.PayloadDelay() + config_.payload_time; }
  void OnWaits() override { ++result_.waits; }
  void OnSnapshot(const Node& from, CheckpointId checkpoint) override;
  void OnMarked(const Node& from, CheckpointId checkpoint) override;
  void OnReported(const Node& from, SessionId session, EntryId step) override;
  void OnCommitAnswered(const absl::Status& status) override {
    result_.commits_given_up += absl::IsDeadlineExceeded(status);
  }
  void OnCommit(const CommitRequest& request) override;
  void OnApplied(const Node& ps, const CommitRequest& request) override;
  void OnLoad(const Node& ps, const LoadRequest& request) override;
  void OnCreateShards(const Node& ps, const CreateShardsRequest& request) override;
  void OnToWorker(Epoch sender, const ToWorker& message) override;
  void OnAttach(const Node& worker, const WorkerAttachRequest& request) override;
  void OnFalselyDone(EntryId step) override { falsely_done_.insert(step); }
  void OnFalseEnd() override;
  void Violation(absl::string_view rule, const std::string& what) override {
    if (!result_.violation.ok() || (has_lied_ && IsOfValues(rule))) return;
    result_.violation = absl::InternalError(absl::StrCat(rule, ": ", what));
    Trace(absl::StrCat("VIOLATION ", rule, ": ", what));
  }
  Network& network() override { return network_; }
  const std::string& chief_address() const override { return chief_->node->address; }
  void Trace(absl::string_view text) override {
    hash_ = MixSeeds(hash_, HashText(text));
    hash_ = MixSeeds(hash_, static_cast<uint64_t>(absl::ToInt64Nanoseconds(now())));
    if (config_.trace)
      result_.trace.push_back(absl::StrFormat("%9.3f  %s", absl::ToDoubleSeconds(now()), text));
  }

  // For the parts of the program (ProgramSite).
  CoordinatorCore& core() override { return *core_; }
  Random& random() override { return random_; }
  bool may_fault() const override { return !faults_stopped_; }
  std::function<bool()> Alive() override {
    return [this, life = life_] {
      return life == life_ && !over_ && !chief_down_ && chief_->node->executor->alive();
    };
  }
  void After(absl::Duration delay, std::function<void()> then) override;
  void Write(DirectWrite write, std::function<void()> then) override;
  const std::vector<std::vector<int64_t>>& values() const override { return model_.values; }
  bool EndsProgram(const absl::Status& error) override {
    const bool ends = EndsTheJob(error);
    if (ends) JobLost(error);
    return ends;
  }
  void Violated(absl::string_view rule, const std::string& what) override { Violation(rule, what); }
  void Tell(absl::string_view text) override { Trace(text); }

 private:
  absl::Duration now() { return world_.clock().Elapsed(); }

  // starting
  void StartPs(int index, const std::string& address);
  void StartPs(int index) { StartPs(index, PsAddressOf(index)); }
  void StartWorkers();
  void StartWorker(int index, int life);
  void StartLiar();
  void StartLying();
  void StopLying();
  void StartCoordinator(StoredJob stored);
  // A worker or a ps exits by itself. The supervisor restarts it unless the exit is final.
  void OnExit(Process* process, int code);
  void OnWorkerExit(const Process& process);
  void OnPsExit(const Process& process);
  void DefineScripts(Process& process);

  // step bodies
  std::vector<Delta> DeltasOf(int64_t tag, uint32_t attempt) const;
  Assignment AssignmentOf(int64_t tag) const;
  ServersState StateOf(const Process& process);
  void ReadAssigned(Process& process, const WorkerSnapshot& runner, const StepCall& call,
                    bool check, std::vector<script::Move>& moves);
  void Assign(const StepCall& call, std::vector<script::Move>& moves) const;
  void CheckAssigned(const Tensor& values);
  // CellChangeOf: the change that a step makes to a cell. LateGradientOf: the gradient that it
  // gives to an optimizer whose slots are made on demand. Both are nullopt for most steps.
  struct CellChange {
    int64_t cell = 0;
    CellOp op;
  };
  std::optional<CellChange> CellChangeOf(int64_t tag, EntryId step) const;
  static void StageCellChange(const CellChange& change, std::vector<script::Move>& moves);
  std::optional<int64_t> LateGradientOf(int64_t tag) const;
  VariableSpec TableSpec() const;
  TableModel NewTable() const;
  // The keys of the table that a step writes to. They do not depend on the attempt.
  std::vector<int64_t> TableKeysOf(int64_t tag) const;
  // Reads some keys of the table, which makes no row, and writes to others.
  void UseTable(int64_t tag, bool writes, std::vector<script::Move>& moves) const;
  // The minute by which the step dates rows (Dispatch::tick).
  uint32_t TickOf(const StepCall& call, Epoch epoch);
  static bool LateIsMomentum(int64_t tag) { return tag % 2 == 0; }  // else Adagrad
  std::vector<script::Move> Body(Process& process, const StepCall& call);
  using Floors = std::vector<std::vector<int64_t>>;
  void BeginInSession(Process& process, const WorkerSnapshot& runner);
  static const Process::Begun& BegunBefore(const Process& process, int steps_back);
  Floors FloorWithOwn(const Process& process, int steps_back) const;
  void ReadWhole(Process& process, int64_t tag, int variable, std::vector<script::Move>& moves);
  script::Compute CheckRows(Process& process, int64_t tag, int variable, std::vector<int64_t> ids,
                            size_t nth);
  void ReadRows(Process& process, const StepCall& call, bool check,
                std::vector<script::Move>& moves);
  void AssignBeforeReport(const Node& worker, EntryId step);
  void RememberWritten(Process& process, EntryId step, const std::vector<Delta>& deltas);
  int64_t TagOf(const StepCall& call) const;
  bool StepFails(int64_t tag, uint32_t attempt) const;
  bool LosesDevice(Process& process, const StepCall& call, EntryId step);
  bool StepsMayFail() const {
    return config_.failing_steps || config_.max_step_attempts < 1000 || config_.lose_devices ||
           config_.liar_says_failed;
  }
  bool IsReadOnly(int64_t tag) const;
  static bool IsOfPass(const StepCall& call) {
    return call.function == "work" && !call.inputs.empty();
  }
  script::Return Answer(const StepCall& call, int64_t tick) const;

  // The program. It lives and dies with its coordinator. Mine() drops callbacks of an earlier life.
  template <typename Body>
  auto Mine(Body body) {
    return [this, life = life_, body](auto&&... args) {
      if (life == life_ && !over_ && chief_->node->executor->alive())
        body(std::forward<decltype(args)>(args)...);
    };
  }
  void Next() {
    world_.Post(Mine([this] { Act(); }));
  }
  void Act();
  void BeginRound();
  void CreateNext();
  struct Declaration {
    VariableSpec spec;
    std::optional<Colocation> with = {};
  };
  std::vector<Declaration> Declarations() const;
  std::vector<std::string> BroughtNames() const;
  void ClaimBrought(std::vector<std::string> names);
  void Restore();
  void CheckLastCheckpoint();
  void OnRestored(int64_t steps);
  void OnAdopted(int64_t steps);
  void RememberPast();
  void RememberLeftBehind(const StoredJob& stored, bool simple);
  void LookBeforeLoad(const LoadRequest& request);
  bool MustAdopt();
  void AdoptPass();
  int64_t AddUnreported(const std::map<EntryId, std::set<int>>& applied);
  // A part of an eviction: buckets [first, end) at the minute `now`.
  struct Eviction {
    uint32_t now = 0;
    int64_t first = 0, end = 0;
    friend bool operator<(const Eviction& a, const Eviction& b) {
      return std::tie(a.now, a.first, a.end) < std::tie(b.now, b.first, b.end);
    }
  };
  // An entry as the simulation saw it: a run of a step when it began, or a direct write when it was
  // sent.
  struct Ran {
    int64_t tag = 0;
    double learning_rate_scale = 1;
    int64_t serial = 0;  // not 0: the entry is a direct write
    int64_t ordinal = -1;
    int64_t positions = 0;  // of the pass, leased to the step
    uint32_t tick = 0;      // of the step's first dispatch
    // What an eviction names.
    std::set<Eviction> evictions = {};
  };
  std::optional<Ran> RanAs(EntryId id);
  void ForgetRunsOfLaterEpochs();
  void CheckNames(Incarnation ps, Epoch lineage, const std::vector<ShardSpec>& shards);
  std::vector<StagedWrite> StagedWritesOf(const DirectWrite& write) const;
  std::map<EntryId, std::set<int>> AppliedNow();
  void ScheduleSome();
  void EndRound();
  void AssignAtRest();
  void BeginPass();
  void RunPass();
  void OnPassOver(const absl::Status& status);
  void StopSometime(uint64_t token);
  void ScheduleAll(std::vector<StepRequest> requests, std::function<void()> accepted);
  void JoinThen(std::function<void()> then);
  int64_t ElementsOf(const std::string& source) const;
  void RunLoops();
  void ReadTwo();
  StepRequest ReadRequest(const std::string& function, const std::vector<ResourceId>& iterators);
  void ReadTheRest();
  void EndReading();
  void DropReading();
  void CheckRead(ResourceId iterator, int64_t elements, bool complete);
  bool TakeInputs(Process& process, const StepCall& call, std::vector<script::Move>& moves) const;
  void WriteSome();
  void ReadAll();
  void OnRaised(const absl::Status& error, absl::string_view call);
  void Finished(const Nest& value);
  void CountStep(const Ran& ran, uint32_t attempt, EntryId step);
  void CountWrite(const DirectWrite& write);
  int64_t Tick() { return ++ticks_; }
  int64_t BegunAt(int64_t tag) const;
  void CheckCells(const Tensor& values);
  void OnEviction(const CommitRequest& request);
  void Evict(EntryId id, const Eviction& eviction);
  void SettleEviction(const CoordinatorCore::Inspection& truth);
  void TakeBackEviction(const std::map<EntryId, std::set<int>>& applied);
  void CheckTable(const Tensor& values);
  void CheckTableRows(int serving);
  void CheckBrought();
  void LoseWhatWasRead();
  void AddTo(Floors& values, const std::vector<Delta>& deltas) const;
  void ApplyAssignment(int64_t tag, EntryId step);
  void EndProgram();
  void JobLost(const absl::Status& error);
  bool IsExpected(const absl::Status& error) const;
  bool EndsTheJob(const absl::Status& error) const;
  bool IsUnsureCommit(const absl::Status& error) const;
  bool IsStoreFault(const absl::Status& error) const;
  bool IsReadFault(const absl::Status& error) const;
  bool IsTooManyRecoveries(const absl::Status& error) const;
  bool IsGivenUp(const absl::Status& error) const;
  bool NamesLiar(const absl::Status& error) const;
  static bool IsOfValues(absl::string_view rule);
  bool JudgesReads() const { return !config_.changing_steps && !config_.lying_ps; }

  // faults and checks
  void MaybeFault();
  void StopFaults();
  void Fault();
  void FaultOfWorker(int index, Process& worker, uint64_t kind, absl::Duration while_away);
  void FaultOfPs(absl::Duration while_away);
  void FaultOfCoordinator(absl::Duration while_away);
  void PausePs(absl::Duration while_away);
  void SuspendMachine(absl::Duration while_away);
  void CutForAWhile(const std::string& from, const std::string& to, absl::Duration while_away);
  void DrainCoordinator();
  void LosePower();
  void FaultOfDisk();
  void FaultOfNumber();
  void Rebalance();
  void DieLoading(const Node& ps, Incarnation target);
  void StopJoining();
  void DrainWorker(Process& worker);
  void StartDuplicate();
  void Kill(const Process& process);
  void FinishKill(Process& process);
  // The coordinator's process has died, or continues as a zombie. Another one is started.
  void ReplaceCoordinator(absl::Duration after, bool zombie);
  void RestartTasks();
  void CheckAlways();
  void CheckRecovery();
  void CheckTraces();
  void CheckAtRest();
  void CheckPlaces();
  bool FindServingPs(int index);
  std::vector<uint64_t> AppliedSeqs() const;
  std::vector<std::pair<int64_t, int64_t>> Visited() const;
  void CheckPass(int64_t elements, bool complete);
  void CheckSlots(const Process& ps, const ParameterServerSnapshot& seen);
  Process* LiveWorker(int index);

  void BeginModel() {
    model_ = Model();
    if (config_.table) model_.table = NewTable();
    for (const Shape& shape : shapes_) model_.values.emplace_back(shape.num_elements(), 0);
  }

  const SimConfig config_;
  SimExecutor world_;
  Network network_;
  Random random_;
  SimResult result_;
  std::set<std::tuple<const Process*, SessionId, EntryId>> pulled_ahead_, beside_commits_;
  uint64_t hash_ = 0;

  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Process*> ps_;
  std::map<int, Process*> workers_;  // the newest life of each
  std::map<int, int> newest_life_;
  std::shared_ptr<Node> liar_;
  // Whether a parameter server has lied so far, and whether it lies now.
  bool has_lied_ = false, lies_ = false;
  // The steps that the lying worker has reported as finished without running them.
  std::set<EntryId> falsely_done_;
  // The lying worker's end of the data was accepted: fewer than two other workers had opened it.
  bool liar_was_believed_ = false;
  Process* chief_ = nullptr;  // the newest life of the coordinator
  int life_ = 0;              // the number of that life
  bool chief_down_ = true, chief_draining_ = false;
  // The coordinator's core.
  std::shared_ptr<CoordinatorCore> core_;
  // The highest entry id of earlier lives whose store was kept.
  uint64_t ids_of_the_past_ = 0;

  std::vector<Shape> shapes_;
  // What the variables hold, as far as the program knows.
  struct Model {
    // By variable: the values that the finished steps and writes add up to.
    std::vector<std::vector<int64_t>> values;
    // By row of "assigned": every value that a finished step has assigned. The row holds the last
    // one, but which one was last is not known.
    std::map<int64_t, std::set<int64_t>> assigned;
    int64_t adam_commits = 0, steps = 0;
    OrderJudge cells;
    TableModel table;
    // The evictions that `table` includes. An eviction comes to each server by itself.
    std::map<EntryId, std::set<Eviction>> evictions;
    // The newest of them, and the rows before it, until its end is known.
    struct Undecided {
      EntryId eviction;
      TableModel before;
    };
    std::optional<Undecided> undecided;
    // The slots of the variable "late".
    double late_momentum = 0, late_adagrad = 0;
    // Variables that were created with values, and the serial of those values.
    std::map<std::string, int64_t> brought;
    // The number of finished rounds when the program last set its program state.
    int rounds = 0;
    // The newest program state.
    std::string program_state;
    // Every program state so far, with the value of `effects` at that time.
    std::vector<std::pair<std::string, int64_t>> told;
    // The number of steps and writes that the program saw finish.
    int64_t effects = 0;
    // The entry ids of those steps.
    std::set<EntryId> reported;
    // The ordinals of those steps.
    std::set<int64_t> ordinals;
    struct Pass {
      std::string source;
      Nest args;          // of the source
      int64_t epoch = 0;  // coordinator.epoch() before the pass
      int64_t begun = 0;  // the tick at which it began
      // Positions (first, count) of steps that finished before this life of the program.
      std::vector<std::pair<int64_t, int64_t>> visited;
      bool failed = false;     // the program received an error
      bool uncertain = false;  // it may continue a pass that failed, or begin anew
      bool stopped = false;    // by StopRun, unless it had ended before
    };
    std::optional<Pass> pass;       // the running pass
    std::optional<Pass> last_pass;  // the newest pass whose end the program knows
  };
  Model model_;
  struct Cut {
    std::optional<Model> model;  // none: a zombie's cut, whose program is not modelled
    std::vector<uint64_t> applied_seqs;
    // The core that made the cut. A job that begins anew after the loss of its store has another
    // core, and may use the same checkpoint ids.
    const void* by = nullptr;
  };
  // What the program of a coordinator knew when that coordinator was replaced, by the lineage of
  // the servers' state. Without a model: that program was not followed.
  struct Past {
    std::optional<Model> model;
    std::map<int64_t, DirectWrite> writes;
  };
  std::map<Epoch, Past> past_;
  // The state in which a killed coordinator left the servers, if its successor has no reason to
  // load a checkpoint.
  struct LeftBehind {
    std::vector<Incarnation> ps;
    Epoch lineage;
    uint64_t layout_version = 0;
  };
  std::optional<LeftBehind> left_behind_;
  // In this life of the coordinator.
  bool has_loaded_ = false, must_adopt_ = false, has_run_ = false;
  // By server and lineage: the newest layout version that the server has received.
  std::map<std::pair<Incarnation, Epoch>, uint64_t> told_layouts_;
  // The writes of this life that have no answer yet, by serial.
  std::map<int64_t, DirectWrite> pending_writes_;
  int64_t next_serial_ = 1, ticks_ = 0;
  std::map<int64_t, int64_t> scheduled_;        // tag -> tick
  std::map<EntryId, std::set<int>> inherited_;  // applied in earlier lives and adopted by this one
  Epoch inherited_lineage_;                     // the lineage in which they were adopted
  // By entry id and the epoch in which the entry was run or sent: after the loss of a store, ids
  // are given again.
  std::map<JobId, std::map<std::pair<EntryId, Epoch>, Ran>> ran_;
  AppliedRecord applied_;
  Beside beside_;
  Loops loops_;
  // The incarnations of parameter servers that were gone when the program called EndJob.
  std::set<uint64_t> gone_at_end_;
  InMemoryFileSystem disk_;
  std::map<CheckpointId, Cut> cuts_;
  std::optional<CheckpointId> newest_;  // of the committed checkpoints
  bool asked_to_restore_ = false;       // this life's program has called RestoreLatest
  bool restoring_ = false;              // and has no answer yet
  int created_ = 0, rounds_done_ = 0, outstanding_ = 0;
  size_t passes_before_ = 0;  // passes that this life finished before the running one
  uint64_t next_token_ = 1;   // of a loop
  // The minute of each step's newest dispatch. Coordinators of two epochs may give one id to two
  // steps, and a dispatch of the older one may arrive last.
  std::map<std::pair<Epoch, EntryId>, uint32_t> ticks_of_steps_;
  // Grows when an eviction changes the model.
  int64_t table_changes_ = 0;
  // Draws the program's pauses.
  Random pauses_{MixSeeds(config_.seed, 10)};
  // How many GPUs each entry has broken.
  std::map<std::pair<EntryId, Epoch>, int> devices_broken_by_;
  // Draws the times of faults off the grid, and when loops are stopped.
  Random when_{MixSeeds(config_.seed, 6)};
  struct Reading {
    ResourceId left, right;
    int64_t visited = 0;  // elements of `left` before the newest batch
    int batches = 0;      // batches of `left` alone
  };
  std::optional<Reading> reading_;
  int num_ps_ = config_.num_ps;  // of the job; a resize changes it
  bool is_resizing_ = false;
  // The cut at which a variable was created.
  std::optional<CheckpointId> created_at_;
  // How many more servers are to die while they load.
  int deaths_to_come_ = 0;
  // How often each ps has died while loading, in this life of the coordinator.
  std::map<int, int> died_loading_;
  int64_t next_tag_ = 1;
  bool over_ = false, faults_stopped_ = false, ps_killed_ = false;
  // `names_`: the variable's name for each shard key, at each server and in each lineage of its
  // state. `sessions_`: the worker that each session belongs to, while the store is kept.
  std::map<std::tuple<Incarnation, Epoch, ShardKey>, std::string> names_;
  std::map<std::tuple<JobId, SessionId>, std::string> sessions_;
  std::optional<absl::Duration> not_running_since_;
  int64_t rewinds_before_ = 0;  // when the job was last seen running
  // The progress of the job's recovery at the last check.
  struct RecoveryProgress {
    int64_t rewinds = 0;
    std::optional<int64_t> steps_to_replay;
    friend bool operator!=(const RecoveryProgress& a, const RecoveryProgress& b) {
      return a.rewinds != b.rewinds || a.steps_to_replay != b.steps_to_replay;
    }
  };
  RecoveryProgress recovery_seen_;
  bool told_the_end_ = false;  // EndJob has returned while the coordinator lived
  bool calls_ = false;         // the program waits for an answer
  bool had_zombie_ = false, lost_store_ = false, had_duplicate_ = false;
  int duplicates_ = 0;
  std::set<int> killed_ps_;
  // What has been counted of this life of the coordinator.
  int64_t recoveries_ = 0;
  std::optional<int64_t> pass_elements_;
};

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_CLUSTER_H_
