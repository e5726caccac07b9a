// The calls that are allowed in each context: TensorFlow's state machine of scopes, replicas and
// merge functions.
#include "strategy/context.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/distribute.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "partitioners/partitioner.h"
#include "strategy/step.h"
#include "strategy/strategy_options.h"
#include "strategy/testing/test_strategy.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

const VariableSpec kSpec{"w", {2}};
const VariableSpec kThere{
    "there", {2}, Zeros(), std::nullopt, DType::kFloat32, VariableAggregation::kOnlyFirstReplica};

Tensor Two() { return Tensor::Vector<float>({1, 1}); }

// ---- every entry point in every state -----------------------------------------------------------

// One letter each, as in Entry::legal.
struct State {
  char letter;
  const char* name;
};
const State kStates[] = {
    {'o', "outside every scope"},
    {'c', "in the scope, on the coordinator"},
    {'s', "in a step function"},
    {'d', "in a DataSource function"},
    {'r', "in a replica function"},
    {'m', "in a merge function"},
    {'h', "in a context made by hand"},
    {'x', "in another strategy's scope"},
    {'y', "in another strategy's replica function"},
    {'!', "in a scope that must not be entered"},
};

// The objects of the calls. The replica is Run's, or one that was made by hand and is entered in
// state 'h' only.
struct Cast {
  Strategy& strategy;
  const Variable& variable;  // "there"
  ReplicaContext& replica;
  WorkerContext& worker;
};
using Probe = std::function<absl::Status(ReplicaContext&)>;

class Environment : public StepEnvironment {
 public:
  explicit Environment(Strategy& strategy) : strategy_(strategy) {}
  Strategy& strategy() override { return strategy_; }
  int worker_index() const override { return 1; }
  absl::StatusOr<std::optional<PerReplica<Nest>>> Next(PerWorkerHandle) override {
    return std::optional<PerReplica<Nest>>(std::vector<Nest>(strategy_.num_replicas_in_sync()));
  }
  bool cancelled() const override { return false; }

 private:
  Strategy& strategy_;
};

absl::Status InScope(Strategy& strategy, ReplicaContext& by_hand, const Probe& probe) {
  auto scope = strategy.Scope();
  EXPECT_TRUE(scope.status().ok());
  return probe(by_hand);
}

absl::Status InStep(Strategy& strategy, ReplicaContext& by_hand, const Probe& probe) {
  Environment environment(strategy);
  const RegisteredStep step{"probe", StepKind::kTraining, 0, "",
                            [&](WorkerContext&, const Nest&) -> absl::StatusOr<Nest> {
                              RETURN_IF_ERROR(probe(by_hand));
                              return Nest();
                            }};
  return RunStep(step, environment, Nest()).status();
}

absl::Status InDataSource(Strategy& strategy, ReplicaContext& by_hand, const Probe& probe) {
  InputContext context;
  context.num_replicas_in_sync = strategy.num_replicas_in_sync();
  const internal::InputScope data(context, AutoShardPolicy::kLease);
  return InScope(strategy, by_hand, probe);
}

absl::Status InMerge(Strategy& strategy, const Probe& probe) {
  return strategy
      .Run([&](ReplicaContext& replica) {
        return replica.MergeCall([&](Strategy&) { return probe(replica); }).status();
      })
      .status();
}

absl::Status InWrongScope(Strategy& strategy, Strategy& other, const Probe& probe) {
  const auto enter = [&](ReplicaContext& replica) {
    auto scope = other.Scope();
    EXPECT_EQ(scope.status().code(), absl::StatusCode::kFailedPrecondition);
    return probe(replica);
  };
  return strategy.Run(enter).status();
}

absl::Status ByHand(ReplicaContext& by_hand, const Probe& probe) {
  absl::StatusOr<Entered> entered = by_hand.Enter();
  RETURN_IF_ERROR(entered);
  return probe(by_hand);
}

absl::Status CallIn(char state, Strategy& strategy, Strategy& other, const Probe& probe) {
  ReplicaContext by_hand(strategy, 0);
  const auto with_by_hand = [&](ReplicaContext&) { return probe(by_hand); };
  switch (state) {
    case 'c': return InScope(strategy, by_hand, probe);
    case 's': return InStep(strategy, by_hand, probe);
    case 'd': return InDataSource(strategy, by_hand, probe);
    case 'r': return strategy.Run(probe).status();
    case 'm': return InMerge(strategy, probe);
    case 'h': return ByHand(by_hand, probe);
    case 'x': return InScope(other, by_hand, probe);
    case 'y': return other.Run(with_by_hand).status();
    case '!': return InWrongScope(strategy, other, probe);
    default: return probe(by_hand);
  }
}

struct Entry {
  std::string name;
  // The letters of the states in which the call is legal.
  std::string legal;
  // The replacement that the error names, if the state is one of `advised`.
  std::string advice;
  std::string advised;
  std::function<absl::Status(const Cast&)> call;
};

// The call uses the values of all replicas, or creates an object that all replicas see. It is legal
// inside and outside a scope, as in TensorFlow's default context.
Entry Cross(std::string name, std::string advice, std::function<absl::Status(const Cast&)> call) {
  return {std::move(name), "ocsdm", std::move(advice), "rhy", std::move(call)};
}
// The call belongs to one replica. A context made by hand cannot take part in collectives if there
// are several replicas.
Entry OfReplica(std::string name, std::string advice,
                std::function<absl::Status(const Cast&)> call) {
  return {std::move(name), "rh", std::move(advice), "ocsdmxy", std::move(call)};
}
// The call returns a value, a property, or a handle that knows its strategy.
Entry Anywhere(std::string name, std::function<absl::Status(const Cast&)> call) {
  return {std::move(name), "ocsdrmhxy!", "", "", std::move(call)};
}
// The call reaches the parameter servers for the current context. It is illegal in a scope that may
// not be entered.
Entry Reaching(std::string name, std::function<absl::Status(const Cast&)> call) {
  return {std::move(name), "ocsdrmhxy", "", "", std::move(call)};
}

PerReplica<Tensor> OneForEach(const Cast& cast) {
  return PerReplica<Tensor>(
      std::vector<Tensor>(cast.strategy.num_replicas_in_sync(), Tensor::Vector<float>({1})));
}
absl::Status Expect(bool condition) {
  return condition ? absl::OkStatus() : absl::InternalError("it answered something else");
}

std::vector<Entry> CrossReplicaEntries() {
  const auto nothing = [](ReplicaContext&) { return absl::OkStatus(); };
  return {
      Cross("Scope", "MergeCall", [](const Cast& c) { return c.strategy.Scope().status(); }),
      Cross("Run", "plain call", [=](const Cast& c) { return c.strategy.Run(nothing).status(); }),
      Cross("Reduce", "AllReduce",
            [](const Cast& c) {
              return c.strategy.Reduce(ReduceOp::kSum, OneForEach(c), kNoAxis).status();
            }),
      Cross("Reduce of a plain value", "AllReduce",
            [](const Cast& c) {
              return c.strategy.Reduce(ReduceOp::kSum, Nest(1.0f), kNoAxis).status();
            }),
      Cross("Gather", "AllGather",
            [](const Cast& c) { return c.strategy.Gather(OneForEach(c), 0).status(); }),
      Cross("Gather of a plain value", "AllGather",
            [](const Cast& c) { return c.strategy.Gather(Tensor::Scalar(1.0f), 0).status(); }),
      Cross(
          "DistributeValuesFromFunction", "own value",
          [](const Cast& c) {
            return c.strategy.DistributeValuesFromFunction([](ValueContext) { return 1; }).status();
          }),
      Cross("strategy.CreateVariable", "coordinator",
            [](const Cast& c) { return c.strategy.CreateVariable(kSpec).status(); }),
      Cross(
          "extended.ReduceTo", "AllReduce",
          [](const Cast& c) {
            return c.strategy.extended().ReduceTo(ReduceOp::kSum, OneForEach(c), Device{}).status();
          }),
      Cross("extended.BatchReduceTo", "AllReduce",
            [](const Cast& c) {
              return c.strategy.extended()
                  .BatchReduceTo<Tensor>(ReduceOp::kSum, {{OneForEach(c), Device{}}})
                  .status();
            }),
      Cross("extended.Update", "Assign",
            [](const Cast& c) {
              return c.strategy.extended().Update(c.variable, Variable::Scatter::kAdd, Nest(Two()));
            }),
      {"extended.ColocateVarsWith", "csdm", "on the coordinator", "rhy",
       [](const Cast& c) { return c.strategy.extended().ColocateVarsWith(c.variable).status(); }},
      {"DistributeDataset", "d", "DataSource function", "ocsrmhy",
       [](const Cast& c) {
         return c.strategy.DistributeDataset(Dataset::FromTensorSlices(Nest(Two())).Batch(2))
             .status();
       }},
      {"DistributeDatasetsFromFunction", "d", "DataSource function", "ocsrmhy",
       [](const Cast& c) {
         const auto batches = [](const InputContext&) -> absl::StatusOr<Dataset> {
           return Dataset::FromTensorSlices(Nest(Two())).Batch(1);
         };
         return c.strategy.DistributeDatasetsFromFunction(batches).status();
       }},
      Cross("worker.Next", "batch that Run gave",
            [](const Cast& c) { return c.worker.Next(Iterator(PerWorkerHandle{1})).status(); }),
      Cross(
          "worker.NextOrEnd", "batch that Run gave",
          [](const Cast& c) { return c.worker.NextOrEnd(Iterator(PerWorkerHandle{1})).status(); }),
  };
}

std::vector<Entry> ReplicaEntries() {
  const auto merge = [](Strategy&) { return absl::OkStatus(); };
  return {
      OfReplica("AllReduce", "strategy.Reduce",
                [](const Cast& c) { return c.replica.AllReduce(ReduceOp::kSum, 1.0f).status(); }),
      OfReplica("AllReduce of a list", "strategy.Reduce",
                [](const Cast& c) {
                  return c.replica
                      .AllReduce(ReduceOp::kSum, std::vector<Tensor>{Two()}, CommunicationOptions{})
                      .status();
                }),
      OfReplica(
          "AllReduce of a Var", "strategy.Reduce",
          [](const Cast& c) { return c.replica.AllReduce(ReduceOp::kSum, Var(Two())).status(); }),
      OfReplica("AllGather", "strategy.Gather",
                [](const Cast& c) { return c.replica.AllGather(Two(), 0).status(); }),
      OfReplica("AllGather of a nest", "strategy.Gather",
                [](const Cast& c) {
                  return c.replica.AllGather(Nest{{"a", Two()}}, 0).status();
                }),
      OfReplica("AllGather of a Var", "strategy.Gather",
                [](const Cast& c) { return c.replica.AllGather(Var(Two()), 0).status(); }),
      OfReplica("MergeCall", "call the function directly",
                [=](const Cast& c) { return c.replica.MergeCall(merge).status(); }),
      OfReplica("ApplyGradients", "given to Run",
                [](const Cast& c) { return c.replica.ApplyGradients(Gradients()); }),
      OfReplica(
          "ApplyGradients with an optimizer", "given to Run",
          [](const Cast& c) { return c.replica.ApplyGradients(Gradients(), Optimizer(Sgd{0.1})); }),
  };
}

// A context made by hand reads without a collective.
std::vector<Entry> ReadingEntries() {
  const auto read = [](const Cast& c) {
    ReadRequest request;
    request.name = "there";
    return c.replica.Read(absl::MakeSpan(&request, 1));
  };
  const auto tape = [](const Cast& c) {
    GradientTape tape(c.replica);
    return tape.Read("there").status();
  };
  return {
      OfReplica("replica.Read", "variable.Read", read),
      OfReplica("replica.ReadAll", "variable.Read",
                [](const Cast& c) { return c.replica.ReadAll({kThere}).status(); }),
      OfReplica("tape.Read", "variable.Read", tape),
      {"ReplicaContext::Current", "orhy", "strategy.Run", "csdmx",
       [](const Cast&) { return ReplicaContext::Current().status(); }},
      {"Enter", "ocsdrmh", "another strategy's context", "xy",
       [](const Cast& c) { return c.replica.Enter().status(); }},
      {"CreateVariable", "csdmx", "", "",
       [](const Cast&) { return CreateVariable(kSpec).status(); }},
      Reaching("FindVariable",
               [](const Cast& c) { return c.strategy.FindVariable("there").status(); }),
      Reaching("variable.Read", [](const Cast& c) { return c.variable.Read().status(); }),
      Reaching("variable.Slice", [](const Cast& c) { return c.variable.Slice(0, 1).status(); }),
      Reaching("variable.At", [](const Cast& c) { return c.variable.At({-1}).status(); }),
      Reaching(
          "variable.Rows",
          [](const Cast& c) { return c.variable.Rows(Tensor::Vector<int64_t>({1})).status(); }),
      Reaching("variable.Assign", [](const Cast& c) { return c.variable.Assign(Two()); }),
      Reaching("variable.AssignAdd", [](const Cast& c) { return c.variable.AssignAdd(Two()); }),
      Reaching("variable.AssignSub", [](const Cast& c) { return c.variable.AssignSub(Two()); }),
      Reaching("variable.ScatterRows",
               [](const Cast& c) {
                 return c.variable.ScatterRows(
                     Variable::Scatter::kMax,
                     IndexedSlices{Tensor::Vector<int64_t>({1}), Tensor::Vector<float>({3}), 2});
               }),
  };
}

std::vector<Entry> IndifferentEntries() {
  return {
      Anywhere("ReplicaContext's constructor",
               [](const Cast& c) {
                 return Expect(&ReplicaContext(c.strategy, 0).strategy() == &c.strategy);
               }),
      Anywhere("replica_id_in_sync_group",
               [](const Cast& c) {
                 return Expect(c.replica.replica_id_in_sync_group() <
                               c.strategy.num_replicas_in_sync());
               }),
      Anywhere("replica.num_replicas_in_sync",
               [](const Cast& c) {
                 return Expect(c.replica.num_replicas_in_sync() ==
                               c.strategy.num_replicas_in_sync());
               }),
      Anywhere("replica.device and devices",
               [](const Cast& c) {
                 return Expect(c.replica.device() == Device{} &&
                               c.replica.devices()[0] ==
                                   "/job:worker/replica:0/task:1/device:CPU:0");
               }),
      Anywhere("replica.step and seed",
               [](const Cast& c) {
                 return Expect(c.replica.step() == 7 && c.replica.seed() == c.replica.seed());
               }),
      Anywhere("replica.Local",
               [](const Cast& c) {
                 return Expect(c.replica.Local<int>("n", [] { return std::make_unique<int>(3); }) ==
                               3);
               }),
      Anywhere("worker.step, seed, worker_index, cancelled",
               [](const Cast& c) {
                 return Expect(c.worker.step() == 7 && c.worker.seed() == 11 &&
                               c.worker.worker_index() == 1 && !c.worker.cancelled());
               }),
      Anywhere("worker.Local",
               [](const Cast& c) {
                 return Expect(c.worker.Local<int>("n", [] { return std::make_unique<int>(4); }) ==
                               4);
               }),
      Anywhere("strategy.num_replicas_in_sync",
               [](const Cast& c) { return Expect(c.strategy.num_replicas_in_sync() >= 1); }),
      Anywhere("cluster_resolver",
               [](const Cast& c) {
                 return Expect(c.strategy.cluster_resolver()->task_type() == "worker");
               }),
      Anywhere(
          "extended.worker_devices",
          [](const Cast& c) { return Expect(!c.strategy.extended().worker_devices().empty()); }),
      Anywhere("extended.parameter_devices",
               [](const Cast& c) {
                 return Expect(c.strategy.extended().parameter_devices().size() == 2);
               }),
      Anywhere("LocalResults",
               [](const Cast& c) {
                 return Expect(c.strategy.LocalResults(PerReplica<int>({4, 5})) ==
                               std::vector<int>{4, 5});
               }),
      Anywhere("LocalResults of a variable",
               [](const Cast& c) {
                 return Expect(c.strategy.LocalResults(c.variable)[0].spec().name == "there");
               }),
      Anywhere("PerReplica", [](const Cast&) { return Expect(PerReplica<int>({7})[0] == 7); }),
      Anywhere("ValueContext",
               [](const Cast&) {
                 return Expect(ValueContext{2, 4}.num_replicas_in_sync == 4);
               }),
      Anywhere("ParseReduceOp",
               [](const Cast&) { return Expect(*ParseReduceOp("sum") == ReduceOp::kSum); }),
      Anywhere("ParseCommunicationImplementation",
               [](const Cast&) { return ParseCommunicationImplementation("ring").status(); }),
      Anywhere("MergeOptions",
               [](const Cast&) { return Expect(MergeOptions({5}, {}).bytes_per_pack == 5); }),
      Anywhere("InputContext",
               [](const Cast&) { return Expect(*InputContext().GetPerReplicaBatchSize(8) == 8); }),
      Anywhere("a partitioner",
               [](const Cast&) { return MinSizePartitioner{}({2}, DType::kFloat32).status(); }),
      Anywhere("runner::ParameterServerStrategy",
               [](const Cast&) {
                 return Expect(runner::ParameterServerStrategy().partitioner != nullptr);
               }),
      Anywhere("Tensor::To", [](const Cast&) { return Two().To(Device{}).status(); }),
  };
}

// Makes one call in one state and compares the result with the table.
void Check(const Entry& entry, const State& state, int replicas) {
  SCOPED_TRACE(testing::Message() << entry.name << " " << state.name << ", " << replicas
                                  << " replicas");
  TestStrategy strategy(replicas), other(1);
  const absl::StatusOr<Variable> variable = strategy->CreateVariable(kThere);
  ASSERT_TRUE(variable.ok() && other->CreateVariable(kThere).ok());
  Environment environment(*strategy);
  WorkerContext worker(environment);
  const absl::Status status = CallIn(state.letter, *strategy, *other, [&](ReplicaContext& replica) {
    return entry.call({*strategy, *variable, replica, worker});
  });
  if (entry.legal.find(state.letter) != std::string::npos) {
    EXPECT_TRUE(status.ok()) << status;
    return;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  const bool advised = entry.advised.find(state.letter) != std::string::npos;
  EXPECT_THAT(status.message(), HasSubstr(advised ? entry.advice : ""));
  EXPECT_THAT(status.message(),
              HasSubstr(state.letter == '!' ? "Scope was called inside a replica function" : ""));
}

void CheckAll(const std::vector<Entry>& entries, int replicas) {
  for (const Entry& entry : entries) {
    for (const State& state : kStates) Check(entry, state, replicas);
  }
}

class EntryPointTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Replicas, EntryPointTest, testing::Values(1, 2));

TEST_P(EntryPointTest, ThatHandlesAllReplicasIsRefusedInsideOneAndNamesTheCallToUse) {
  CheckAll(CrossReplicaEntries(), GetParam());
}

TEST_P(EntryPointTest, ThatBelongsToOneReplicaIsRefusedElsewhereAndNamesTheCallToUse) {
  std::vector<Entry> entries = ReplicaEntries();
  for (Entry& entry : entries) {
    if (GetParam() > 1) entry.legal = "r", entry.advised = "ocsdmxy";
  }
  CheckAll(entries, GetParam());
}

TEST_P(EntryPointTest, ThatReadsOrWritesVariablesWorksOnBehalfOfWhatIsCurrent) {
  std::vector<Entry> entries = ReadingEntries();
  for (Entry& entry : entries) {
    // assigns of several replicas are combined
    const bool meets = entry.name.rfind("variable.Assign", 0) == 0;
    if (meets && GetParam() > 1)
      entry.legal = "ocsdrmxy", entry.advice = "made by hand", entry.advised = "h";
  }
  CheckAll(entries, GetParam());
}

TEST_P(EntryPointTest, ThatIsAValueOrAPropertyAnswersAnywhere) {
  CheckAll(IndifferentEntries(), GetParam());
}

TEST(ContextTest, EveryStateHasItsStrategyItsReplicaAndItsSide) {
  for (const State& state : kStates) {
    SCOPED_TRACE(state.name);
    TestStrategy strategy(1), other(1);
    const bool mine = std::string("csdrmh").find(state.letter) != std::string::npos,
               others = std::string("xy").find(state.letter) != std::string::npos;
    const bool in_replica = std::string("orhy").find(state.letter) != std::string::npos;
    const absl::Status status =
        CallIn(state.letter, *strategy, *other, [&](ReplicaContext& replica) -> absl::Status {
          if (state.letter == '!') return ReplicaContext::Current().status();
          EXPECT_EQ(&Strategy::Current(), mine     ? &*strategy
                                          : others ? &*other
                                                   : &internal::DefaultStrategy());
          EXPECT_EQ(InCrossReplicaContext(), !in_replica);
          const absl::StatusOr<ReplicaContext*> current = ReplicaContext::Current();
          EXPECT_EQ(current.ok(), in_replica);
          EXPECT_TRUE(!in_replica || (*current == &replica) == mine);
          EXPECT_TRUE(!in_replica || &(*current)->strategy() == &Strategy::Current());
          return absl::OkStatus();
        });
    EXPECT_EQ(status.ok(), state.letter != '!');
  }
}

TEST(ContextTest, ScopesOfOneStrategyNestAndEnd) {
  TestStrategy strategy(1);
  EXPECT_FALSE(InCrossReplicaContext());
  EXPECT_EQ(&Strategy::Current(), &internal::DefaultStrategy());
  {
    auto outer = strategy->Scope();
    auto inner = strategy->Scope();
    EXPECT_TRUE(inner.status().ok());
    EXPECT_TRUE(InCrossReplicaContext());
    EXPECT_EQ(&Strategy::Current(), &*strategy);
  }
  EXPECT_FALSE(InCrossReplicaContext());
}

TEST(ContextTest, AMovedScopeEndsOnceAndInAnyOrder) {
  TestStrategy strategy(1);
  std::optional<StrategyScope> kept;
  {
    auto first = strategy->Scope();
    auto second = strategy->Scope();
    kept.emplace(std::move(first));
  }
  EXPECT_EQ(&Strategy::Current(), &*strategy);
  kept.reset();
  EXPECT_EQ(&Strategy::Current(), &internal::DefaultStrategy());
}

TEST(ContextTest, EveryCallInsideAnIllegalScopeFailsWithTheScopesError) {
  TestStrategy strategy(1), other(1);
  auto scope = strategy->Scope();
  auto wrong = other->Scope();
  ASSERT_EQ(wrong.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(wrong.status().message(), HasSubstr("another strategy's scope"));
  EXPECT_EQ(CreateVariable(kSpec).status(), wrong.status());
  EXPECT_EQ(strategy->Run([](ReplicaContext&) { return absl::OkStatus(); }).status(),
            wrong.status());
  EXPECT_EQ(ReplicaContext::Current().status(), wrong.status());
}

TEST(ContextTest, VariablesAreColocatedInTheScopeOfThatAndInThoseInside) {
  TestStrategy strategy(1);
  auto scope = strategy->Scope();
  const absl::StatusOr<Variable> first = CreateVariable(kThere);
  ASSERT_TRUE(first.ok());
  const auto colocation = [] { return internal::CurrentContext().colocation; };
  {
    const absl::StatusOr<StrategyScope> with = strategy->extended().ColocateVarsWith(*first);
    ASSERT_TRUE(with.ok() && with->status().ok());
    EXPECT_EQ(colocation()->variable, "there");
    EXPECT_EQ(colocation()->shard, 0);
    auto inner = strategy->Scope();
    EXPECT_TRUE(colocation().has_value());
    EXPECT_TRUE(CreateVariable({"beside", {2}}).ok());
  }
  EXPECT_FALSE(colocation().has_value());
  EXPECT_TRUE(CreateVariable({"elsewhere", {2}}).ok());
  ASSERT_TRUE(strategy.store().ColocationOf("beside").has_value());
  EXPECT_EQ(strategy.store().ColocationOf("beside")->variable, "there");
  EXPECT_FALSE(strategy.store().ColocationOf("elsewhere").has_value());
}

TEST(ContextTest, ColocationIsRefusedWithAForeignVariableAndWithAShardThatIsNotThere) {
  TestStrategy strategy(1, /*job=*/1), other(1, /*job=*/2);
  const absl::StatusOr<Variable> mine = strategy->CreateVariable(kThere),
                                 foreign = other->CreateVariable(kThere);
  ASSERT_TRUE(mine.ok() && foreign.ok());
  // The check that the strategy is current comes before all checks of the variable.
  EXPECT_EQ(strategy->extended().ColocateVarsWith(*foreign).status().code(),
            absl::StatusCode::kFailedPrecondition);
  auto scope = strategy->Scope();
  EXPECT_EQ(strategy->extended().ColocateVarsWith(*foreign).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(strategy->extended().ColocateVarsWith(*mine, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(strategy->extended().ColocateVarsWith(*mine, 0).ok());
}

TEST(ContextTest, CreateVariableOutsideAScopeNamesTheFix) {
  const absl::Status status = CreateVariable(kSpec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("enter strategy.Scope() first"));
}

TEST(DefaultStrategyTest, HasOneReplicaAndNoVariables) {
  Strategy& strategy = Strategy::Current();
  EXPECT_EQ(strategy.num_replicas_in_sync(), 1);
  EXPECT_EQ(strategy.cluster_resolver(), nullptr);
  EXPECT_EQ(strategy.extended().worker_devices(), std::vector<Device>{Device{}});
  EXPECT_TRUE(strategy.extended().parameter_devices().empty());
  EXPECT_EQ(strategy.CreateVariable(kSpec).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(strategy.FindVariable("w").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DefaultStrategyTest, ItsCollectivesAreTheIdentityAndMergeCallRunsAtOnce) {
  absl::StatusOr<ReplicaContext*> replica = ReplicaContext::Current();
  ASSERT_TRUE(replica.ok());
  EXPECT_EQ((*replica)->replica_id_in_sync_group(), 0);
  EXPECT_EQ(*(*replica)->AllReduce(ReduceOp::kMean, int64_t{3}), 3);
  EXPECT_EQ((*replica)->AllGather(Tensor::Vector<float>({1, 2}), 0)->shape(), Shape({2}));
  const absl::StatusOr<int> merged = (*replica)->MergeCall(
      [](Strategy& strategy, const PerReplica<int>& values) -> absl::StatusOr<int> {
        EXPECT_TRUE(InCrossReplicaContext());
        EXPECT_EQ(&strategy, &internal::DefaultStrategy());
        return values.size() * 100 + values[0];
      },
      5);
  EXPECT_EQ(*merged, 105);
  EXPECT_EQ((*replica)->ApplyGradients(Gradients()).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*replica)->devices(),
            std::vector<std::string>{"/job:localhost/replica:0/task:0/device:CPU:0"});
}

TEST(DefaultStrategyTest, GatheringGivesAnyValueBack) {
  ReplicaContext& replica = **ReplicaContext::Current();
  EXPECT_EQ(*replica.AllGather(Tensor::Scalar(2.0f), 5)->scalar<float>(), 2);
  EXPECT_EQ(*replica.AllGather(Var(Tensor::Scalar(3.0f)), 5).Value()->scalar<float>(), 3);
  EXPECT_EQ(
      *Strategy::Current().Gather(PerReplica<Tensor>({Tensor::Scalar(4.0f)}), 5)->scalar<float>(),
      4);
}

TEST(DefaultStrategyTest, ItsScopeChangesNothing) {
  auto scope = Strategy::Current().Scope();
  EXPECT_TRUE(scope.status().ok());
  EXPECT_FALSE(InCrossReplicaContext());
  EXPECT_TRUE(ReplicaContext::Current().ok());
  TestStrategy strategy(1);
  EXPECT_TRUE(strategy->Scope().status().ok());
}

TEST(DefaultStrategyTest, RunCallsInPlaceAndReduceGivesTheValueBack) {
  Strategy& strategy = Strategy::Current();
  const auto result =
      strategy.Run([](ReplicaContext& replica,
                      int x) -> absl::StatusOr<int> { return x + replica.num_replicas_in_sync(); },
                   4);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)[0], 5);
  EXPECT_EQ(*strategy.Reduce(ReduceOp::kMean, *result, kNoAxis), 5);
}

TEST(ReplicaContextTest, MadeByHandIsCurrentWhileEntered) {
  TestStrategy strategy(2);
  ReplicaContext replica(*strategy, 1);
  {
    absl::StatusOr<Entered> entered = replica.Enter();
    ASSERT_TRUE(entered.ok());
    EXPECT_EQ(*ReplicaContext::Current(), &replica);
    const absl::Status lonely = replica.AllReduce(ReduceOp::kSum, 1.0f).status();
    EXPECT_EQ(lonely.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(lonely.message(), HasSubstr("made by hand"));
  }
  EXPECT_NE(*ReplicaContext::Current(), &replica);
  EXPECT_EQ(ReplicaContext(*strategy, 2).Enter().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReplicaContext(*strategy, -1).Enter().status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(ReplicaContextTest, NamesItsDeviceInTensorFlowsForm) {
  StrategyParts parts;
  parts.resolver = EmbeddedClusterResolver(1, 3, "worker", 2);
  parts.replica_devices = {Device{Device::Kind::kGpu, 0}, Device{Device::Kind::kGpu, 1}};
  Strategy worker(parts);
  EXPECT_EQ(ReplicaContext(worker, 1).devices(),
            std::vector<std::string>{"/job:worker/replica:0/task:2/device:GPU:1"});
  EXPECT_EQ(ReplicaContext(worker, 1).device(), (Device{Device::Kind::kGpu, 1}));
  parts.resolver = EmbeddedClusterResolver(1, 3);
  parts.replica_devices = {Device{}};
  Strategy chief(parts);
  EXPECT_EQ(ReplicaContext(chief, 0).devices(),
            std::vector<std::string>{"/job:chief/replica:0/task:0/device:CPU:0"});
}

TEST(ReplicaContextTest, KnowsWhereItRunsAndItsSeedDependsOnTheReplica) {
  TestStrategy strategy(2);
  const auto seen = strategy->Run(
      [](ReplicaContext& replica) -> absl::StatusOr<std::pair<std::string, uint64_t>> {
        EXPECT_EQ(replica.step(), 7);
        return std::make_pair(replica.devices()[0], replica.seed());
      });
  ASSERT_TRUE(seen.ok());
  EXPECT_EQ((*seen)[0].first, "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_EQ((*seen)[1].first, "/job:worker/replica:0/task:1/device:CPU:0");
  EXPECT_NE((*seen)[0].second, (*seen)[1].second);
}

TEST(ReplicaContextTest, LocalObjectsAreKeptByReplicaKeyAndType) {
  TestStrategy strategy(2);
  const auto count = [](ReplicaContext& replica) -> absl::StatusOr<int> {
    int& calls = replica.Local<int>("calls", [] { return std::make_unique<int>(0); });
    replica.Local<std::string>("calls",
                               [] { return std::make_unique<std::string>("another object"); });
    return calls += 1 + replica.replica_id_in_sync_group();
  };
  ASSERT_TRUE(strategy->Run(count).ok());
  const auto second = strategy->Run(count);
  EXPECT_EQ(second->values(), (std::vector<int>{2, 4}));
}

TEST(StrategyExtendedTest, NamesTheDevices) {
  TestStrategy strategy(2);
  EXPECT_EQ(strategy->extended().worker_devices(), (std::vector<Device>{Device{}, Device{}}));
  EXPECT_EQ(strategy->extended().parameter_devices(),
            (std::vector<std::string>{"/job:ps/replica:0/task:0/device:CPU:0",
                                      "/job:ps/replica:0/task:1/device:CPU:0"}));
}

}  // namespace
}  // namespace divvy
