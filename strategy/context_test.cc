#include "strategy/context.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategy/testing/test_strategy.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;

const VariableSpec kSpec{"w", {2}};

enum State { kDefault, kScope, kOtherScope, kReplica, kMerge, kWrongScope, kNumStates };
const char* const kStateNames[] = {"outside everything", "in the scope",        "in another strategy's scope",
                                   "in a replica",       "in a merge function", "in a scope that must not be"};

// `call` on a thread in `state`. The replica context it is given is that of the Run, or one made by hand that nobody entered.
absl::Status CallIn(State state, TestStrategy& strategy, const std::function<absl::Status(ReplicaContext&)>& call) {
  TestStrategy other(1);
  ReplicaContext by_hand(*strategy, 0);
  if (state == kDefault) return call(by_hand);
  if (state == kScope) {
    auto scope = strategy->Scope();
    return call(by_hand);
  }
  if (state == kOtherScope) {
    auto scope = other->Scope();
    return call(by_hand);
  }
  absl::Status status;
  const auto in_replica = [&](ReplicaContext& replica) -> absl::Status {
    if (state == kReplica) status = call(replica);
    if (state == kMerge) {
      return replica
          .MergeCall([&](Strategy&) {
            status = call(replica);
            return absl::OkStatus();
          })
          .status();
    }
    if (state == kWrongScope) {
      auto scope = other->Scope();
      EXPECT_EQ(scope.status().code(), absl::StatusCode::kFailedPrecondition);
      status = call(replica);
    }
    return absl::OkStatus();
  };
  EXPECT_TRUE(strategy->Run(in_replica).ok());
  return status;
}

struct Entry {
  std::string name;
  std::function<absl::Status(Strategy&, ReplicaContext&)> call;
  std::string legal;              // the states in which it is, one letter each: d s o r m
  std::string advice_in_replica;  // what its error says there
  std::string advice_in_cross_replica;
};

PerReplica<Tensor> OneTensor() { return PerReplica<Tensor>({Tensor::Vector<float>({1})}); }

std::vector<Entry> Entries() {
  const auto nothing = [](ReplicaContext&) { return absl::OkStatus(); };
  const auto merge = [](Strategy&) { return absl::OkStatus(); };
  return {
      {"Scope", [](Strategy& s, ReplicaContext&) { return s.Scope().status(); }, "dsm", "MergeCall", ""},
      {"Run", [=](Strategy& s, ReplicaContext&) { return s.Run(nothing).status(); }, "dsm", "plain call", ""},
      {"Reduce", [](Strategy& s, ReplicaContext&) { return s.Reduce(ReduceOp::kSum, OneTensor(), kNoAxis).status(); }, "dsm", "AllReduce", ""},
      {"Reduce of a plain value", [](Strategy& s, ReplicaContext&) { return s.Reduce(ReduceOp::kSum, Nest(1.0f), kNoAxis).status(); }, "dsm", "AllReduce", ""},
      {"Gather", [](Strategy& s, ReplicaContext&) { return s.Gather(OneTensor(), 0).status(); }, "dsm", "AllGather", ""},
      {"Gather of a plain value", [](Strategy& s, ReplicaContext&) { return s.Gather(Tensor::Scalar(1.0f), 0).status(); }, "dsm", "AllGather", ""},
      {"DistributeValuesFromFunction", [](Strategy& s, ReplicaContext&) { return s.DistributeValuesFromFunction([](ValueContext) { return 1; }).status(); },
       "dsm", "own value", ""},
      {"strategy.CreateVariable", [](Strategy& s, ReplicaContext&) { return s.CreateVariable(kSpec).status(); }, "dsm", "coordinator", ""},
      {"CreateVariable", [](Strategy&, ReplicaContext&) { return CreateVariable(kSpec).status(); }, "som", "coordinator", ""},
      {"FindVariable", [](Strategy& s, ReplicaContext&) { return s.FindVariable("there").status(); }, "dsorm", "", ""},
      {"ReduceTo", [](Strategy& s, ReplicaContext&) { return s.extended().ReduceTo(ReduceOp::kSum, OneTensor(), Device{}).status(); }, "dsm", "AllReduce", ""},
      {"BatchReduceTo",
       [](Strategy& s, ReplicaContext&) {
         return s.extended().BatchReduceTo<Tensor>(ReduceOp::kSum, {{OneTensor(), Device{}}}).status();
       },
       "dsm", "AllReduce", ""},
      {"Update",
       [](Strategy& s, ReplicaContext&) {
         return s.extended().Update(*s.FindVariable("there"), Variable::Scatter::kAdd, Nest(Tensor::Vector<float>({1, 1})));
       },
       "dsm", "Assign", ""},
      {"variable.Read", [](Strategy& s, ReplicaContext&) { return s.FindVariable("there")->Read().status(); }, "dsorm", "", ""},
      {"variable.Assign",
       [](Strategy& s, ReplicaContext&) {
         return s.FindVariable("there")->Assign(Tensor::Vector<float>({1, 1}));
       },
       "dsrm", "", ""},
      {"ReplicaContext::Current", [](Strategy&, ReplicaContext&) { return ReplicaContext::Current().status(); }, "dr", "", "strategy.Run"},
      {"Enter", [](Strategy&, ReplicaContext& r) { return r.Enter().status(); }, "dsrm", "", ""},
      {"AllReduce", [](Strategy&, ReplicaContext& r) { return r.AllReduce(ReduceOp::kSum, 1.0f).status(); }, "r", "", "strategy.Reduce"},
      {"AllGather", [](Strategy&, ReplicaContext& r) { return r.AllGather(Tensor::Vector<float>({1}), 0).status(); }, "r", "", "strategy.Gather"},
      {"MergeCall", [=](Strategy&, ReplicaContext& r) { return r.MergeCall(merge).status(); }, "r", "", "directly"},
      {"ApplyGradients", [](Strategy&, ReplicaContext& r) { return r.ApplyGradients(Gradients()); }, "r", "", "given to Run"},
      {"replica.ReadAll", [](Strategy&, ReplicaContext& r) { return r.ReadAll({}).status(); }, "r", "", "variable.Read"},
  };
}

TEST(ContextTest, EveryEntryPointKnowsInWhichStatesItIsLegalAndSaysWhatToCallInstead) {
  const std::string letters = "dsorm-";
  for (const Entry& entry : Entries()) {
    for (int state = 0; state < kNumStates; ++state) {
      SCOPED_TRACE(entry.name + " " + kStateNames[state]);
      TestStrategy strategy(1);
      ASSERT_TRUE(strategy->CreateVariable({"there", {2}}).ok());
      const absl::Status status = CallIn(static_cast<State>(state), strategy, [&](ReplicaContext& replica) {
        // A failed FindVariable would be dereferenced: the wrong scope is asked for the status alone.
        if (state == kWrongScope && (entry.name == "Update" || entry.name.rfind("variable.", 0) == 0)) return strategy->FindVariable("there").status();
        return entry.call(*strategy, replica);
      });
      // A handle works on behalf of the strategy that is current: the other one's store knows no such variable.
      if (state == kOtherScope && entry.name == "variable.Assign") continue;
      if (state == kOtherScope && entry.name == "variable.Read") continue;
      if (entry.legal.find(letters[state]) != std::string::npos) {
        EXPECT_TRUE(status.ok()) << status;
        continue;
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(status.message(), HasSubstr(state == kReplica ? entry.advice_in_replica : ""));
      EXPECT_THAT(status.message(), HasSubstr(state == kScope || state == kMerge ? entry.advice_in_cross_replica : ""));
    }
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
  EXPECT_EQ(strategy->Run([](ReplicaContext&) { return absl::OkStatus(); }).status(), wrong.status());
  EXPECT_EQ(ReplicaContext::Current().status(), wrong.status());
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
  EXPECT_EQ((*replica)->devices(), std::vector<std::string>{"/job:localhost/replica:0/task:0/device:CPU:0"});
}

TEST(DefaultStrategyTest, GatheringGivesAnyValueBack) {
  ReplicaContext& replica = **ReplicaContext::Current();
  EXPECT_EQ(*replica.AllGather(Tensor::Scalar(2.0f), 5)->scalar<float>(), 2);
  EXPECT_EQ(*replica.AllGather(Var(Tensor::Scalar(3.0f)), 5).Value()->scalar<float>(), 3);
  EXPECT_EQ(*Strategy::Current().Gather(PerReplica<Tensor>({Tensor::Scalar(4.0f)}), 5)->scalar<float>(), 4);
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
  const auto result = strategy.Run([](ReplicaContext& replica, int x) -> absl::StatusOr<int> { return x + replica.num_replicas_in_sync(); }, 4);
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
  EXPECT_EQ(ReplicaContext(*strategy, 2).Enter().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReplicaContext(*strategy, -1).Enter().status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ReplicaContextTest, KnowsWhereItRunsAndItsSeedDependsOnTheReplica) {
  TestStrategy strategy(2);
  const auto seen = strategy->Run([](ReplicaContext& replica) -> absl::StatusOr<std::pair<std::string, uint64_t>> {
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
    replica.Local<std::string>("calls", [] { return std::make_unique<std::string>("another object"); });
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
            (std::vector<std::string>{"/job:ps/replica:0/task:0/device:CPU:0", "/job:ps/replica:0/task:1/device:CPU:0"}));
}

}  // namespace
}  // namespace divvy
