// bazel run //bench:scale [-- --format=json]
//
// What a coordinator costs as the cluster grows: its core with 1 to 1,000 workers and 1 to 100
// parameter servers, in one thread, with peers that answer at once and do nothing. Time is that of
// the processor. The ceiling of each figure is the same figure of the smallest cluster: a
// coordinator that scales costs the same for each step, however many workers there are.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/testing/sim_executor.h"
#include "bench/rounds.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/store.h"
#include "optimizers/optimizer.h"
#include "protocol/clients.h"
#include "protocol/resumable_stream.h"
#include "ps_server/core/parameter_server_core.h"

ABSL_FLAG(int, steps, 20'000, "steps of each cluster");
ABSL_FLAG(int, variables, 10'000, "variables that are created");

namespace divvy::bench {
namespace {

// Microseconds of this thread's processor time.
double CpuNow() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

// Answers every call with OK.
class TrivialPs : public Sends<TrivialPs, ParameterClient> {
 public:
  TrivialPs(Executor& executor, int index) : executor_(executor), index_(index) {}
  template <typename Request>
  void Send(Request, ResultCallback<ReplyTo<Request>> done) {
    Answer(std::move(done), ReplyTo<Request>());
  }
  void Send(PsAttachRequest, ResultCallback<PsAttachReply> done) {
    PsAttachReply reply;
    reply.incarnation = Incarnation(100 + index_);
    Answer(std::move(done), std::move(reply));
  }
  void Send(LoadRequest request, ResultCallback<LoadReply> done) {
    Answer(std::move(done), LoadReply{false, 0, request.layout_hash});
  }
  void Send(SyncRequest request, ResultCallback<SyncReply> done) {
    SyncReply reply;
    reply.seq = request.seq;
    Answer(std::move(done), std::move(reply));
  }

 private:
  template <typename Reply>
  void Answer(ResultCallback<Reply> done, Reply reply) {
    executor_.PostAfter(absl::Milliseconds(1),
                        [done = std::move(done), reply = std::move(reply)] { done(reply); });
  }
  Executor& executor_;
  const int index_;
};

// Keeps its dispatches until the benchmark lets it report.
class TrivialWorker : public WorkerClient, public std::enable_shared_from_this<TrivialWorker> {
 public:
  TrivialWorker(Executor& executor, int index) : executor_(executor), index_(index) {}
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done) override {
    stream_.emplace(request.fence.session);
    WorkerAttachReply reply;
    reply.incarnation = Incarnation(1'000 + index_);
    executor_.Post([done = std::move(done), reply] { done(reply); });
  }
  void Call(ShutdownRequest, ResultCallback<ShutdownReply> done) override {
    executor_.Post([done = std::move(done)] { done(ShutdownReply()); });
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override {
    class Connection : public StreamConnection<ToWorker> {
     public:
      explicit Connection(std::weak_ptr<TrivialWorker> worker) : worker_(std::move(worker)) {}
      void Send(StreamFrame<ToWorker> frame) override {
        if (const auto worker = worker_.lock()) worker->Take(std::move(frame));
      }
      void Close() override {}

     private:
      const std::weak_ptr<TrivialWorker> worker_;
    };
    listener_ = std::move(listener);
    executor_.Post(
        [listener = listener_, resume = stream_->Connect()] { listener->OnFrame(resume); });
    return std::make_shared<Connection>(weak_from_this());
  }

  bool has_dispatch() const { return !dispatches_.empty(); }
  // Reports the oldest dispatch as done.
  void Finish() {
    Report report;
    report.step = dispatches_.front().step;
    report.attempt = dispatches_.front().attempt;
    dispatches_.pop_front();
    Say(std::move(report));
  }

 private:
  void Say(FromWorker message) {
    if (auto frame = stream_->Send(std::move(message))) listener_->OnFrame(*std::move(frame));
  }
  void Take(StreamFrame<ToWorker> frame) {
    std::vector<StreamFrame<FromWorker>> resend;
    std::optional<ToWorker> message;
    if (!stream_->Receive(std::move(frame), resend, message).ok() || !message) return;
    if (auto* const dispatch = std::get_if<Dispatch>(&*message))
      dispatches_.push_back(std::move(*dispatch));
    if (std::holds_alternative<Ping>(*message))
      executor_.Post([self = shared_from_this()] { self->Say(Pong()); });
  }

  Executor& executor_;
  const int index_;
  std::optional<ResumableStream<FromWorker, ToWorker>> stream_;
  std::shared_ptr<StreamListener<FromWorker>> listener_;
  std::deque<Dispatch> dispatches_;
};

class TrivialCluster : public Dialer {
 public:
  TrivialCluster(int num_ps, int num_workers) : store_(executor_) {
    CoordinatorOptions options;
    options.incarnation = Incarnation(1);
    for (int i = 0; i < num_ps; ++i) {
      ps_.push_back(std::make_shared<TrivialPs>(executor_, i));
      options.ps_addresses.push_back(absl::StrCat(i));
    }
    for (int i = 0; i < num_workers; ++i) {
      workers_.push_back(std::make_shared<TrivialWorker>(executor_, i));
      options.worker_addresses[i] = absl::StrCat(i);
    }
    core_ = *CoordinatorCore::Start(options, executor_, executor_.clock(), *this, store_);
    executor_.RunFor(absl::Seconds(3));
  }
  ~TrivialCluster() override { core_->Abandon(); }

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override {
    return ps_[Index(address)];
  }
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override {
    return workers_[Index(address)];
  }

  CoordinatorCore& core() { return *core_; }
  SimExecutor& executor() { return executor_; }
  std::vector<std::shared_ptr<TrivialWorker>>& workers() { return workers_; }

 private:
  static size_t Index(const std::string& address) {
    int index = 0;
    return absl::SimpleAtoi(address, &index) ? static_cast<size_t>(index) : 0;
  }

  SimExecutor executor_{1};
  MemoryStore store_;
  std::vector<std::shared_ptr<TrivialPs>> ps_;
  std::vector<std::shared_ptr<TrivialWorker>> workers_;
  std::shared_ptr<CoordinatorCore> core_;
};

struct Costs {
  double schedule_us = 0, step_us = 0, longest_tick_ms = 0, round_ms = 0;
};

void Schedule(TrivialCluster& cluster, int64_t& finished) {
  cluster.core().Schedule(
      {"bench/nothing", Nest()}, [&finished](const absl::StatusOr<Nest>&) { ++finished; },
      [](const absl::Status&) {});
}

Costs Measure(int num_ps, int num_workers) {
  TrivialCluster cluster(num_ps, num_workers);
  const int steps = std::max(absl::GetFlag(FLAGS_steps), 6 * num_workers);
  int64_t finished = 0;
  Costs costs;
  // More than the workers take; the rest is scheduled while no worker has room.
  for (int i = 0; i < 4 * num_workers; ++i) Schedule(cluster, finished);
  double begin = CpuNow();
  for (int i = 4 * num_workers; i < steps; ++i) Schedule(cluster, finished);
  costs.schedule_us = (CpuNow() - begin) / (steps - 4 * num_workers);
  // A round of Sync and Ping while every worker has steps: each task by itself, and all together.
  double longest = 0, round = 0;
  for (int i = 0; i < 4'000 && cluster.executor().clock().Elapsed() < absl::Seconds(6); ++i) {
    begin = CpuNow();
    if (!cluster.executor().RunOne()) break;
    const double took = CpuNow() - begin;
    longest = std::max(longest, took);
    round += took;
  }
  costs.longest_tick_ms = longest / 1e3;
  costs.round_ms = round / 1e3;
  begin = CpuNow();
  for (bool any = true; any;) {
    any = false;
    for (const auto& worker : cluster.workers()) {
      if (!worker->has_dispatch()) continue;
      worker->Finish();
      any = true;
    }
  }
  costs.step_us = (CpuNow() - begin) / static_cast<double>(std::max<int64_t>(finished, 1));
  if (finished != steps) std::fprintf(stderr, "only %d of %d steps\n", int(finished), steps);
  return costs;
}

// Microseconds for each of `count` variables, in the first tenth and in the last.
std::pair<double, double> CreateVariables(int count) {
  TrivialCluster cluster(2, 2);
  std::pair<double, double> cost;
  const int tenth = std::max(1, count / 10);
  double begin = CpuNow();
  for (int i = 0; i < count; ++i) {
    VariableSpec spec;
    spec.name = absl::StrCat("layer/", i);
    spec.shape = Shape{8, 8};
    bool done = false;
    cluster.core().CreateVariable(std::move(spec), std::nullopt,
                                  [&done](const absl::Status&) { done = true; });
    while (!done && cluster.executor().RunOne()) {
    }
    if (i + 1 == tenth) cost.first = (CpuNow() - begin) / tenth;
    if (i + 1 == count - tenth) begin = CpuNow();
  }
  cost.second = (CpuNow() - begin) / tenth;
  return cost;
}

// A parameter server's core with small variables, and requests that name all of them.
class SmallVariables {
 public:
  SmallVariables(int count, const Optimizer& optimizer) : count_(count), optimizer_(optimizer) {
    ParameterServerOptions options;
    options.incarnation = fence_.target;
    options.address = "ps";
    options.at_once_bytes = std::numeric_limits<int64_t>::max();
    core_ =
        *ParameterServerCore::Start(options, executor_, nullptr, [](int, const std::string&) {});
    Ask(PsAttachRequest{fence_});
    LoadRequest load;
    load.fence = fence_;
    load.horizon.next = EntryId(1);
    Ask(load);
    CreateShardsRequest create{fence_, 1, 1, 1, {}};
    for (int i = 0; i < count; ++i) {
      ShardSpec spec;
      spec.key.variable = VariableId(static_cast<uint32_t>(i) + 1);
      spec.name = absl::StrCat("layer/", i);
      spec.shape = spec.full_shape = Shape{8, 8};
      create.shards.push_back(spec);
      for (const SlotSpec& slot : SlotsOf(optimizer)) {
        ShardSpec of = spec;
        ++spec.key.slot;
        of.key = spec.key;
        of.name = absl::StrCat(spec.name, "/", spec.key.slot);
        of.dtype = slot.dtype();
        of.shape = of.full_shape = slot.ShapeFor(Shape{8, 8});
        create.shards.push_back(std::move(of));
      }
    }
    Ask(create);
  }

  void Commit() {
    CommitRequest request;
    request.fence = fence_;
    request.entry = EntryId(++entry_);
    const Tensor gradient = *Tensor::Zeros(DType::kFloat32, {8, 8});
    for (int i = 0; i < count_; ++i) {
      CommitPart part;
      part.shard.variable = VariableId(static_cast<uint32_t>(i) + 1);
      part.op = WriteOp::kGradient;
      part.values = gradient;
      part.optimizer = StepOf(optimizer_, 0);
      for (size_t slot = 1; slot <= SlotsOf(optimizer_).size(); ++slot)
        part.slots.push_back(static_cast<uint8_t>(slot));
      request.parts.push_back(std::move(part));
    }
    Ask(std::move(request));
  }
  void Pull() {
    PullRequest request{fence_, {}};
    for (int i = 0; i < count_; ++i)
      request.parts.push_back({{VariableId(static_cast<uint32_t>(i) + 1), 0, 0}, std::nullopt});
    Ask(std::move(request));
  }
  // Microseconds within the core, from the first call.
  double cost() const { return cost_; }

 private:
  template <typename Request>
  void Ask(Request request) {
    bool done = false;
    const double begin = CpuNow();
    core_->Call(std::move(request), [&done](const absl::StatusOr<ReplyTo<Request>>& reply) {
      done = true;
      if (!reply.ok()) std::fprintf(stderr, "%s\n", reply.status().ToString().c_str());
    });
    while (!done && executor_.RunOne()) {
    }
    cost_ = CpuNow() - begin;
  }

  const int count_;
  const Optimizer optimizer_;
  const Fence fence_{JobId(1), Epoch(1), Incarnation(7), kCoordinatorSession, Incarnation(3)};
  SimExecutor executor_{1};
  std::shared_ptr<ParameterServerCore> core_;
  uint64_t entry_ = 0;
  double cost_ = 0;
};

// Microseconds of a commit to `count` variables, and of a pull of them: the least of some.
std::pair<double, double> CommitAndPull(int count, const Optimizer& optimizer) {
  SmallVariables ps(count, optimizer);
  std::pair<double, double> least{1e12, 1e12};
  for (int i = 0; i < 20; ++i) {
    ps.Commit();
    least.first = std::min(least.first, ps.cost());
    ps.Pull();
    least.second = std::min(least.second, ps.cost());
  }
  return least;
}

// Shows how often a call that costs `us` fits into a second, beside one that costs `ceiling_us`.
void ShowCost(const std::string& what, double us, const std::string& ceiling, double ceiling_us,
              const Extras& extras = {}) {
  Show("scale", {what, ceiling, 1e6 / us, 1e6 / ceiling_us, ceiling_us / us}, {"per CPU-s"},
       extras);
}

void Run() {
  std::string smallest;
  Costs least;
  for (const auto& [ps, workers] :
       std::vector<std::pair<int, int>>{{1, 2}, {1, 100}, {100, 2}, {10, 1'000}, {100, 1'000}}) {
    const Costs costs = Measure(ps, workers);
    if (smallest.empty()) least = costs;
    const std::string cluster = absl::StrCat(ps, " ps, ", workers, " workers");
    ShowCost("Schedule, " + cluster, costs.schedule_us, smallest, least.schedule_us);
    ShowCost("a step, " + cluster, costs.step_us, smallest, least.step_us,
             {{"longest_task_ms", costs.longest_tick_ms}, {"round_ms", costs.round_ms}});
    if (smallest.empty()) smallest = cluster;
  }
  const auto [first, last] = CreateVariables(absl::GetFlag(FLAGS_variables));
  ShowCost("creating the last tenth of the variables", last, "the first tenth", first);
  const int variables = absl::GetFlag(FLAGS_variables);
  constexpr int kFew = 64;
  for (const Optimizer& optimizer : {Optimizer(Sgd{0.1}), Optimizer(Adam{0.1})}) {
    const auto [few, few_pulled] = CommitAndPull(kFew, optimizer);
    const auto [many, many_pulled] = CommitAndPull(variables, optimizer);
    const std::string all = absl::StrCat(" on a ps, each of ", variables, " variables"),
                      of_few = absl::StrCat("each of ", kFew);
    ShowCost(absl::StrCat("a commit of ", OptimizerName(optimizer), all), many / variables, of_few,
             few / kFew, {{"commit_ms", many / 1e3}});
    ShowCost(absl::StrCat("a pull beside ", OptimizerName(optimizer), all), many_pulled / variables,
             of_few, few_pulled / kFew, {{"pull_ms", many_pulled / 1e3}});
  }
}

}  // namespace
}  // namespace divvy::bench

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  divvy::bench::Run();
}
