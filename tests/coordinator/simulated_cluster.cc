// The three cores in one thread, in virtual time.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "ps_server/core/parameter_server_core.h"
#include "tests/coordinator/cluster_under_test.h"
#include "tests/coordinator/steps.h"
#include "tests/sim/sim_clients.h"
#include "worker/core/data_input_opener.h"
#include "worker/core/testing/scripted_step_runner.h"
#include "worker/core/worker_core.h"

// Step bodies of killed processes are never resumed and hold references to themselves, so they leak
// here. In a real cluster the memory goes with the process.
extern "C" int __lsan_is_turned_off() { return 1; }

namespace divvy::rules {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(10);

void IgnoreExit(int, const std::string&) {}
std::string PsAddress(int index) { return absl::StrCat("ps/", index); }

// A worker's data. A script must not block, so before it reads it asks here whether the data is
// open.
class WatchedInputs : public InputOpener {
 public:
  explicit WatchedInputs(Executor& executor) : inputs_(executor) {}
  void Open(const MakeResource& resource, int worker_index, int num_workers, int replicas,
            ResultCallback<OpenedInput> done) override {
    inputs_.Open(
        resource, worker_index, num_workers, replicas,
        [this, id = resource.iterator, done = std::move(done)](absl::StatusOr<OpenedInput> opened) {
          open_.insert(id);
          done(std::move(opened));
        });
  }
  void Close(ResourceId iterator) override {
    inputs_.Close(iterator);
    open_.insert(iterator);
  }
  void ReadAhead(const InputLease& positions) override { inputs_.ReadAhead(positions); }
  void ForgetAhead(const InputLease& positions) override { inputs_.ForgetAhead(positions); }
  bool MayRead(ResourceId iterator) const { return open_.count(iterator) > 0; }
  absl::StatusOr<std::vector<Nest>> Read(ResourceId iterator) {
    return inputs_.Read(iterator, std::nullopt, 1);
  }

 private:
  DataInputOpener inputs_;
  std::set<ResourceId> open_;
};

// One life of a process. It is kept until the end, because late tasks refer to it.
struct Process {
  std::shared_ptr<sim::Node> node;
  std::unique_ptr<sim::SimDialer> dialer;
  std::shared_ptr<CoordinatorClient> to_coordinator;
  std::unique_ptr<ScriptedStepRunner> runner;
  std::unique_ptr<WatchedInputs> inputs;
  std::unique_ptr<MemoryStore> store;
  std::shared_ptr<ParameterServerCore> ps;
  std::shared_ptr<WorkerCore> worker;
  std::shared_ptr<CoordinatorCore> chief;
};

// ---- the steps of steps.h, as scripts ----

using Moves = std::vector<script::Move>;

script::Stage AddMove(int num_ps, int64_t n) {
  StagedWrite write;
  write.variable = "counter";
  write.op = WriteOp::kAdd;
  write.value = Tensor::Vector<int64_t>(std::vector<int64_t>(num_ps, n));
  return script::Stage{std::move(write)};
}

int64_t NumberIn(const StepCall& call) {
  return *(*call.args.list())[0].tensor()->scalar<int64_t>();
}
script::Fail FailMove(const StepCall& call) {
  return {absl::InvalidArgumentError(*(*call.args.list())[0].text())};
}

Moves PassGate() {
  const auto arrive = [](const script::Reads&) -> absl::StatusOr<std::vector<StagedWrite>> {
    gate().Arrive();
    return std::vector<StagedWrite>();
  };
  return {script::Compute{arrive}, script::Until{[] { return gate().open(); }}};
}

Moves Next(WatchedInputs& inputs, int worker, int num_ps, const StepCall& call) {
  const ResourceId iterator((*call.args.list())[0].handle()->id);
  const auto number = std::make_shared<Nest>();
  const auto read = [&inputs, iterator,
                     number](const script::Reads&) -> absl::StatusOr<std::vector<StagedWrite>> {
    ASSIGN_OR_RETURN(const std::vector<Nest> elements, inputs.Read(iterator));
    if (elements.empty()) return EndOfData("the numbers have ended");
    *number = elements[0];
    return std::vector<StagedWrite>();
  };
  const auto value = [worker, number](const script::Reads&) {
    return Nest(Nest::List{Nest(static_cast<int64_t>(worker)), *number});
  };
  return {script::Until{[&inputs, iterator] { return inputs.MayRead(iterator); }},
          script::Compute{read}, AddMove(num_ps, 1), script::Return{value}};
}

Moves After(Moves first, Moves second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void DefineSteps(ScriptedStepRunner& runner, WatchedInputs& inputs, int worker, int num_ps) {
  const auto add = [num_ps](const StepCall& call) {
    return Moves{AddMove(num_ps, NumberIn(call))};
  };
  const auto fail = [num_ps](const StepCall& call) {
    return Moves{AddMove(num_ps, 1'000'000), FailMove(call)};
  };
  const auto next = [&inputs, worker, num_ps](const StepCall& call) {
    return Next(inputs, worker, num_ps, call);
  };
  const auto echo = [](const StepCall& call) {
    return Moves{
        script::Return{[value = (*call.args.list())[0]](const script::Reads&) { return value; }}};
  };
  runner.Define(kAdd, add);
  runner.Define(kFail, fail);
  runner.Define(kEcho, echo);
  runner.Define(kNext, next);
  runner.Define(kAddAtGate, [add](const StepCall& call) { return After(PassGate(), add(call)); });
  runner.Define(kFailAtGate,
                [fail](const StepCall& call) { return After(PassGate(), fail(call)); });
  runner.Define(kNextAtGate,
                [next](const StepCall& call) { return After(PassGate(), next(call)); });
}

// ---- the cluster ----

class SimulatedCluster : public ClusterUnderTest, public sim::SimSite {
 public:
  explicit SimulatedCluster(const ClusterOptions& options)
      : options_(options),
        world_(options.limits.job_seed),
        network_(world_, options.limits.job_seed),
        random_(options.limits.job_seed) {}
  ~SimulatedCluster() override {
    for (const auto& process : processes_) {  // cores hold connections, which hold their nodes
      if (process->worker != nullptr) process->worker->Abandon();
      if (process->chief != nullptr) process->chief->Abandon();
      process->node->core = nullptr;
    }
  }

  absl::Status Start();

  Scheduled Schedule(const std::string& step, Nest::List args) override {
    const Promise<absl::Status> accepted;
    const Promise<absl::StatusOr<Nest>> result;
    const StepRequest request{step, Nest(std::move(args)), false};
    core().Schedule(
        request, [result](absl::StatusOr<Nest> value) { result.Set(std::move(value)); },
        [accepted](absl::Status status) { accepted.Set(std::move(status)); });
    return {accepted.pending(), result.pending()};
  }
  Pending<absl::Status> Join() override {
    const Promise<absl::Status> joined;
    core().Join([joined](absl::Status status) { joined.Set(std::move(status)); });
    return joined.pending();
  }
  Pending<absl::StatusOr<bool>> Done() override {
    const Promise<absl::StatusOr<bool>> done;
    core().Done([done](absl::StatusOr<bool> idle) { done.Set(std::move(idle)); });
    return done.pending();
  }
  Pending<absl::StatusOr<int64_t>> Counter() override {
    const Promise<absl::StatusOr<int64_t>> counter;
    core().Read({{"counter", std::nullopt}}, [counter](absl::StatusOr<std::vector<Tensor>> values) {
      counter.Set(values.ok() ? CommonElement((*values)[0])
                              : absl::StatusOr<int64_t>(values.status()));
    });
    return counter.pending();
  }
  BlockingCoordinator& coordinator() override { return *coordinator_; }

  void KillWorker(int index) override { network_.Kill(workers_[index]->node->address); }
  void StartWorker(int index) override;
  void KillPs(int index) override { network_.Kill(PsAddress(index)); }
  void StartPs(int index) override;
  void CutPs(int index) override {
    for (const auto& process : processes_)
      network_.Cut(process->node->address, PsAddress(index)),
          network_.Cut(PsAddress(index), process->node->address);
  }
  void HealPs(int) override { network_.HealAll(); }

  bool WaitUntil(const std::function<bool()>& condition) override {
    const absl::Duration end = world_.clock().Elapsed() + kPatience;
    while (!condition()) {
      if (world_.clock().Elapsed() > end || !world_.RunOne()) return false;
    }
    return true;
  }
  void LetThingsHappen() override { world_.RunFor(absl::Seconds(1)); }

 private:
  sim::Network& network() override { return network_; }
  const std::string& chief_address() const override { return chief_->node->address; }
  void Violation(absl::string_view rule, const std::string& what) override {
    ADD_FAILURE() << rule << ": " << what;
  }

  CoordinatorCore& core() { return *chief_->chief; }
  Process& NewProcess(const std::string& address);
  absl::Status StartCoordinator();
  absl::Status Await(const Pending<absl::Status>& answer) {
    return WaitUntil([&answer] { return answer.ready(); })
               ? answer.value()
               : absl::DeadlineExceededError("the cluster does not take steps");
  }

  const ClusterOptions options_;
  SimExecutor world_;
  sim::Network network_;
  Random random_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<int, Process*> workers_;
  int lives_ = 0;  // of workers; each life has an address of its own
  Process* chief_ = nullptr;
  std::unique_ptr<BlockingCoordinator> coordinator_;
};

Process& SimulatedCluster::NewProcess(const std::string& address) {
  processes_.push_back(std::make_unique<Process>());
  Process& process = *processes_.back();
  process.node = network_.Boot(address);
  process.dialer = std::make_unique<sim::SimDialer>(*this, process.node);
  process.to_coordinator = process.dialer->Coordinator();
  return process;
}

absl::Status SimulatedCluster::Start() {
  // Late and duplicated messages, but not so late that a task counts as lost.
  sim::FaultRates rates;
  rates.slow = 0.1 * random_.Uniform();
  rates.duplicate = 0.1 * random_.Uniform();
  network_.set_rates(rates);
  chief_ = &NewProcess("chief/0");
  for (int i = 0; i < options_.num_ps; ++i) StartPs(i);
  for (int i = 0; i < options_.num_workers; ++i) StartWorker(i);
  RETURN_IF_ERROR(StartCoordinator());
  const Promise<absl::Status> running, created;
  core().WhenRunning([running](absl::Status status) { running.Set(std::move(status)); });
  RETURN_IF_ERROR(Await(running.pending()));
  core().CreateVariable(CounterSpec(options_.num_ps), std::nullopt,
                        [created](absl::Status status) { created.Set(std::move(status)); });
  return Await(created.pending());
}

void SimulatedCluster::StartPs(int index) {
  Process& process = NewProcess(PsAddress(index));
  ParameterServerOptions options;
  options.index = index;
  options.incarnation = Incarnation(random_.Next() | 1);
  options.address = process.node->address;
  process.ps = *ParameterServerCore::Start(options, *process.node->executor, process.to_coordinator,
                                           IgnoreExit);
  process.node->core = process.ps;
}

void SimulatedCluster::StartWorker(int index) {
  Process& process = NewProcess(absl::StrCat("worker/", index, "/life", ++lives_));
  Executor& executor = *process.node->executor;
  process.runner = std::make_unique<ScriptedStepRunner>(executor);
  process.inputs = std::make_unique<WatchedInputs>(executor);
  DefineSteps(*process.runner, *process.inputs, index, options_.num_ps);
  WorkerOptions options;
  options.index = index;
  options.incarnation = Incarnation(random_.Next() | 1);
  options.address = process.node->address;
  options.seed = random_.Next();
  process.worker =
      *WorkerCore::Start(options, executor, world_.clock(), *process.runner, *process.inputs,
                         *process.dialer, process.to_coordinator.get(), IgnoreExit);
  process.node->core = process.worker;
  workers_[index] = &process;
}

absl::Status SimulatedCluster::StartCoordinator() {
  CoordinatorOptions options = options_.limits;
  options.incarnation = Incarnation(random_.Next() | 1);
  for (int i = 0; i < options_.num_ps; ++i) options.ps_addresses.push_back(PsAddress(i));
  options.min_workers = options_.num_workers;
  Executor& executor = *chief_->node->executor;
  chief_->store = std::make_unique<MemoryStore>(executor);
  ASSIGN_OR_RETURN(chief_->chief, CoordinatorCore::Start(options, executor, world_.clock(),
                                                         *chief_->dialer, *chief_->store));
  chief_->node->core = chief_->chief;
  coordinator_ =
      std::make_unique<BlockingCoordinator>(chief_->chief, executor, nullptr, 1, nullptr);
  return absl::OkStatus();
}

// Each repetition of a test (--gtest_repeat) gets another seed, in the same sequence every time. So
// a test that is run alone and repeated as often fails again.
uint64_t NextSeed() {
  static auto* const repetitions = new std::map<std::string, uint64_t>;
  const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  return MixSeeds(HashText(test), ++(*repetitions)[test]);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterUnderTest>> MakeCluster(const ClusterOptions& options) {
  ClusterOptions seeded = options;
  seeded.limits.job_seed = NextSeed();
  auto cluster = std::make_unique<SimulatedCluster>(seeded);
  RETURN_IF_ERROR(cluster->Start());
  return std::unique_ptr<ClusterUnderTest>(std::move(cluster));
}

}  // namespace divvy::rules
