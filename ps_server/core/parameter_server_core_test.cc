#include "ps_server/core/parameter_server_core.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/half.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/testing/sim_executor.h"
#include "base/testing/ticking_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "protocol/testing/fake_coordinator.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;

constexpr Incarnation kPs{77}, kCoordinator{5};
constexpr JobId kJob{9};

// The answers to one request, in order. There should be one.
template <typename Reply>
struct Answers {
  std::vector<absl::StatusOr<Reply>> all;
  bool answered() const { return !all.empty(); }
  const absl::StatusOr<Reply>& one() const {
    EXPECT_EQ(all.size(), 1u);
    return all.front();
  }
  Reason reason() const { return ReasonOf(one().status()); }
};
template <typename Reply>
using AnswersOf = std::shared_ptr<Answers<Reply>>;

template <typename Reply>
ResultCallback<Reply> Into(const AnswersOf<Reply>& answers) {
  return [answers](absl::StatusOr<Reply> reply) { answers->all.push_back(std::move(reply)); };
}

ShardKey Key(uint32_t variable, int slot = 0, int part = 0) {
  return {VariableId(variable), static_cast<uint8_t>(slot), static_cast<uint16_t>(part)};
}

ShardSpec Spec(ShardKey key, Shape shape, DType dtype = DType::kInt64,
               Initializer initializer = Zeros()) {
  ShardSpec spec;
  spec.key = key;
  spec.name =
      absl::StrCat("v", key.variable.value(), key.slot == 0 ? "" : absl::StrCat("/slot", key.slot));
  spec.dtype = dtype;
  spec.shape = spec.full_shape = shape;
  spec.initializer = std::move(initializer);
  return spec;
}

CommitPart Part(WriteOp op, ShardKey key, Tensor values, std::vector<int64_t> rows = {}) {
  CommitPart part;
  part.shard = key;
  part.op = op;
  part.values = std::move(values);
  if (!rows.empty()) part.rows = Tensor::Vector<int64_t>(rows);
  return part;
}

template <typename T>
Tensor Filled(Shape shape, T value) {
  return *Tensor::Copy<T>(shape, std::vector<T>(static_cast<size_t>(shape.num_elements()), value));
}

template <typename T>
std::vector<T> ValuesOf(const Tensor& tensor) {
  const auto values = *tensor.values<T>();
  return {values.begin(), values.end()};
}

// A parameter server in virtual time, with functions to send requests. Functions that return a
// reply run all tasks first.
class Server {
 public:
  explicit Server(uint64_t seed = 1, ParameterServerOptions options = InTasks(),
                  std::shared_ptr<CoordinatorClient> coordinator = nullptr)
      : executor(seed) {
    options.incarnation = kPs;
    options.address = "embedded:ps/0";
    options.record_history = true;
    core = *ParameterServerCore::Start(
        options, executor, std::move(coordinator),
        [this](int code, const std::string&) { exits.push_back(code); });
  }
  // So that a test can look at a commit or a read that is under way.
  static ParameterServerOptions InTasks() {
    ParameterServerOptions options;
    options.at_once_bytes = 0;
    return options;
  }
  static ParameterServerOptions SmallBlocks(int64_t bytes = 16) {
    ParameterServerOptions options = InTasks();
    options.block_bytes = bytes;
    return options;
  }

  Fence fence(uint32_t session = 0) const {
    return {kJob, epoch, kCoordinator, SessionId(session), kPs};
  }

  AnswersOf<PsAttachReply> SendAttach() { return Send(PsAttachRequest{fence()}); }
  AnswersOf<LoadReply> SendLoad(LoadRequest request = {}) {
    request.fence = fence();
    return Send(std::move(request));
  }
  AnswersOf<SyncReply> SendSync(uint64_t seq, std::vector<SessionId> sessions, Horizon horizon = {},
                                std::vector<EntryId> query = {}) {
    return Send(
        SyncRequest{fence(), seq, std::move(horizon), std::move(sessions), std::move(query), {}});
  }
  AnswersOf<LayoutReply> SendCreate(std::vector<ShardSpec> shards, uint64_t version = 1) {
    return Send(CreateShardsRequest{fence(), version, version * 10, 3, std::move(shards)});
  }
  AnswersOf<LayoutReply> SendDelete(std::vector<ShardKey> shards, uint64_t version = 2) {
    return Send(DeleteShardsRequest{fence(), version, version * 10, std::move(shards)});
  }
  AnswersOf<CommitReply> SendCommit(uint64_t entry, std::vector<CommitPart> parts,
                                    uint32_t session = 0) {
    CommitRequest request;
    request.fence = fence(session);
    request.entry = EntryId(entry);
    request.parts = std::move(parts);
    return Send(std::move(request));
  }
  AnswersOf<PullReply> SendPull(std::vector<PullPart> parts) {
    return Send(PullRequest{fence(), std::move(parts)});
  }
  AnswersOf<ShutdownReply> SendShutdown(int code) { return Send(ShutdownRequest{fence(), code}); }

  template <typename Request>
  AnswersOf<ReplyTo<Request>> Send(Request request) {
    auto answers = std::make_shared<Answers<ReplyTo<Request>>>();
    core->Call(std::move(request), Into<ReplyTo<Request>>(answers));
    return answers;
  }
  template <typename Reply>
  AnswersOf<Reply> Done(AnswersOf<Reply> answers) {
    executor.RunUntilIdle();
    EXPECT_EQ(answers->all.size(), 1u) << "answered exactly once";
    return answers;
  }

  // Makes the server READY in the current epoch, without shards.
  void Begin() {
    EXPECT_TRUE(Done(SendAttach())->one().ok());
    EXPECT_TRUE(Done(SendLoad())->one().ok());
  }
  // As Begin, with one shard: int64 zeros, `rows` rows of two elements. With SmallBlocks each row
  // is a block.
  void BeginWithRows(int64_t rows) {
    Begin();
    EXPECT_TRUE(Done(SendCreate({Spec(Key(1), Shape{rows, 2})}))->one().ok());
  }
  CommitPart AddOne(int64_t rows, uint32_t variable = 1) {
    return Part(WriteOp::kAdd, Key(variable), Filled<int64_t>({rows, 2}, 1));
  }
  // Runs tasks until a commit is half applied: some blocks have its writes and some do not.
  void RunIntoACommit() {
    do ASSERT_TRUE(executor.RunOne());
    while (core->Inspect().running == 0 || Sum(1) == 0);
    ASSERT_EQ(core->Inspect().running, 1u);
  }
  int64_t Sum(uint32_t variable) const {
    const ParameterServerSnapshot snapshot = core->Inspect();
    int64_t sum = 0;
    for (int64_t value : ValuesOf<int64_t>(snapshot.shards.at(Key(variable)).value)) sum += value;
    return sum;
  }
  Reason CommitReason(uint64_t entry, std::vector<CommitPart> parts, uint32_t session = 0) {
    return Done(SendCommit(entry, std::move(parts), session))->reason();
  }

  SimExecutor executor;
  Epoch epoch{1};
  std::vector<int> exits;
  std::shared_ptr<ParameterServerCore> core;
};

Horizon Closing(uint64_t next, std::vector<EntryId> open = {}) {
  return {EntryId(next), std::move(open), 0};
}

// ---- options ------------------------------------------------------------------------------------

TEST(ParameterServerOptionsTest, ReportEveryProblemAtOnce) {
  ParameterServerOptions options;
  options.index = -1;
  options.memory_limit_bytes = 0;
  options.block_bytes = 0;
  options.at_once_bytes = -1;
  const absl::Status status = options.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  for (const char* part : {"index is -1", "incarnation is 0", "address is empty",
                           "memory_limit_bytes is 0", "block_bytes is 0", "at_once_bytes is -1"}) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << part;
  }
}

// ---- request check and states ------------------------------------------------------------------

TEST(RequestCheckOfAPsTest, IsAskedByEveryCall) {
  Server ps;
  ps.BeginWithRows(1);
  struct Case {
    Reason reason;
    std::function<void(Fence&)> change;
  };
  const std::vector<Case> cases = {
      {Reason::kWrongJob, [](Fence& f) { f.job = JobId(1); }},
      {Reason::kWrongIncarnation, [](Fence& f) { f.target = Incarnation(1); }},
      {Reason::kStaleEpoch, [](Fence& f) { f.epoch = Epoch(0); }},
      {Reason::kSecondCoordinator, [](Fence& f) { f.coordinator = Incarnation(1); }}};
  const uint64_t before = ps.core->StateHash();
  EXPECT_EQ(ps.Done(ps.Send(PsAttachRequest{ps.fence(), kOwnProtocol, 61}))->reason(),
            Reason::kWrongIncarnation);
  for (const Case& wrong : cases) {
    Fence fence = ps.fence();
    wrong.change(fence);
    const Reason reason = wrong.reason;
    EXPECT_EQ(ps.Done(ps.Send(PsAttachRequest{fence}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(LoadRequest{fence, {}, {}, 0, 0, {}, {}, 0, {}}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(SyncRequest{fence, 9, {}, {}, {}, {}}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(CreateShardsRequest{fence, 9, 9, 0, {}}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(DeleteShardsRequest{fence, 9, 9, {Key(1)}}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(PullRequest{fence, {{Key(1), {}}}}))->reason(), reason);
    EXPECT_EQ(ps.Done(ps.Send(ShutdownRequest{fence, 1}))->reason(), reason);
    CommitRequest commit;
    commit.fence = fence;
    commit.entry = EntryId(1);
    commit.parts = {ps.AddOne(1)};
    EXPECT_EQ(ps.Done(ps.Send(commit))->reason(), reason);
  }
  EXPECT_EQ(ps.core->StateHash(), before);
  EXPECT_TRUE(ps.exits.empty());
}

TEST(RequestCheckOfAPsTest, AHigherEpochMustAttachFirst) {
  Server ps;
  ps.BeginWithRows(1);
  ps.epoch = Epoch(2);
  EXPECT_EQ(ps.CommitReason(1, {ps.AddOne(1)}), Reason::kNotAttached);
  EXPECT_EQ(ps.Done(ps.SendSync(1, {}))->reason(), Reason::kNotAttached);
}

TEST(PsStateTest, EmptyTakesNothingButAttachAndLoad) {
  Server ps;
  const auto attach = ps.Done(ps.SendAttach());
  ASSERT_TRUE(attach->one().ok());
  EXPECT_EQ(attach->one()->state, PsState::kEmpty);
  EXPECT_EQ(attach->one()->incarnation, kPs);
  EXPECT_EQ(ps.CommitReason(1, {}), Reason::kNotReady);
  EXPECT_EQ(ps.Done(ps.SendPull({}))->reason(), Reason::kNotReady);
  EXPECT_EQ(ps.Done(ps.SendSync(1, {}))->reason(), Reason::kNotReady);
  EXPECT_EQ(ps.Done(ps.SendCreate({}))->reason(), Reason::kNotReady);
  EXPECT_EQ(ps.Done(ps.SendDelete({}))->reason(), Reason::kNotReady);
}

TEST(PsStateTest, LoadEmptyMakesItReadyWithTheGivenHorizonAndLineage) {
  Server ps;
  ps.epoch = Epoch(4);
  ps.Done(ps.SendAttach());
  LoadRequest load;
  load.horizon = Closing(100);
  load.layout_hash = 12;
  const auto reply = ps.Done(ps.SendLoad(load));
  ASSERT_TRUE(reply->one().ok());
  EXPECT_EQ(reply->one()->layout_hash, 12u);
  const ParameterServerSnapshot now = ps.core->Inspect();
  EXPECT_EQ(now.state, PsState::kReady);
  EXPECT_EQ(now.lineage, Epoch(4));
  EXPECT_EQ(now.horizon.next, EntryId(100));
  EXPECT_EQ(ps.CommitReason(99, {}), Reason::kStepClosed);
}

// Layout versions of a new lineage start with its first variable. If a server kept the higher
// version of the previous lineage, it would report to an adopting coordinator a layout change that
// never happened.
TEST(PsStateTest, TheLayoutIsThatOfTheLastLoadAlsoWhereItsVersionIsLower) {
  Server ps;
  ps.BeginWithRows(1);
  ASSERT_TRUE(ps.Done(ps.SendCreate({Spec(Key(2), Shape{1, 2})}, /*version=*/7))->one().ok());
  ps.epoch = Epoch(2);
  ASSERT_TRUE(ps.Done(ps.SendAttach())->one().ok());
  LoadRequest load;
  load.layout_version = 2;
  load.layout_hash = 4711;
  const auto loaded = ps.Done(ps.SendLoad(load));
  ASSERT_TRUE(loaded->one().ok());
  EXPECT_EQ(loaded->one()->layout_hash, 4711u);
  ps.epoch = Epoch(3);
  const auto attached = ps.Done(ps.SendAttach());
  EXPECT_EQ(attached->one()->layout_version, 2u);
  EXPECT_EQ(attached->one()->layout_hash, 4711u);
}

TEST(PsStateTest, LoadInAReadyEpochDoesNothing) {
  Server ps;
  ps.BeginWithRows(2);
  ps.Done(ps.SendCommit(1, {ps.AddOne(2)}));
  const uint64_t before = ps.core->StateHash();
  LoadRequest load;
  load.horizon = Closing(50);
  EXPECT_TRUE(ps.Done(ps.SendLoad(load))->one().ok());
  EXPECT_EQ(ps.core->StateHash(), before);
}

TEST(PsStateTest, TellsHowMuchEachPartOfAShardIsUsed) {
  ParameterServerOptions options = Server::InTasks();
  options.memory_limit_bytes = 1'000'000;
  Server ps(1, options);
  ps.BeginWithRows(32);  // rows of 16 bytes
  ASSERT_TRUE(ps.Done(ps.SendCreate({Spec(Key(2), Shape{32, 2}), Spec(Key(3), Shape{3, 2})}, 2))
                  ->one()
                  .ok());
  EXPECT_TRUE(ps.Done(ps.SendCommit(1, {ps.AddOne(32)}))->one().ok());
  PullPart rows, whole;
  rows.shard = whole.shard = Key(2);
  rows.rows = Tensor::Vector<int64_t>({31, 0, 31, 2});
  EXPECT_TRUE(ps.Done(ps.SendPull({rows, whole}))->one().ok());
  const auto sync = ps.Done(ps.SendSync(1, {}));
  ASSERT_TRUE(sync->one().ok());
  EXPECT_EQ(sync->one()->memory_limit_bytes, 1'000'000);
  const std::vector<SyncReply::Load>& loads = sync->one()->loads;
  ASSERT_EQ(loads.size(), 2u);  // nobody used the third
  EXPECT_EQ(loads[0].shard, Key(1));
  EXPECT_EQ(loads[0].bytes, std::vector<uint64_t>(16, 32));
  EXPECT_EQ(loads[1].shard, Key(2));
  // A row that is named costs its 16 bytes and 64.
  std::vector<uint64_t> used(16, 32);
  used[0] += 80, used[1] += 80, used[15] += 160;
  EXPECT_EQ(loads[1].bytes, used);
}

TEST(PsStateTest, TellsOfManyShardsTheBusiest) {
  Server ps;
  ps.Begin();
  std::vector<ShardSpec> specs;
  std::vector<CommitPart> parts;
  for (uint32_t i = 1; i <= 300; ++i) {
    specs.push_back(Spec(Key(i), Shape{static_cast<int64_t>(i), 2}));
    parts.push_back(ps.AddOne(static_cast<int64_t>(i), i));
  }
  ASSERT_TRUE(ps.Done(ps.SendCreate(specs))->one().ok());
  ASSERT_TRUE(ps.Done(ps.SendCommit(1, parts))->one().ok());
  const auto sync = ps.Done(ps.SendSync(1, {}));
  ASSERT_TRUE(sync->one().ok());
  EXPECT_EQ(sync->one()->loads.size(), 256u);
  for (const SyncReply::Load& load : sync->one()->loads)
    EXPECT_GT(load.shard.variable.value(), 44u);
  // Then the least busy one is used alone.
  ASSERT_TRUE(ps.Done(ps.SendCommit(2, {ps.AddOne(1, 1)}))->one().ok());
  const auto next = ps.Done(ps.SendSync(2, {}));
  ASSERT_TRUE(next->one().ok());
  EXPECT_EQ(std::count_if(next->one()->loads.begin(), next->one()->loads.end(),
                          [](const SyncReply::Load& load) { return load.shard == Key(1); }),
            1);
}

TEST(PsStateTest, AttachOfAHigherEpochFreezesAndTellsThePicture) {
  Server ps;
  ps.BeginWithRows(2);
  ps.Done(ps.SendSync(1, {SessionId(1)}, Closing(3)));
  CommitRequest commit;
  commit.fence = ps.fence(1);
  commit.entry = EntryId(7);
  commit.participants = 2;
  commit.kind = EntryKind::kWrite;
  commit.parts = {ps.AddOne(2)};
  ps.Done(ps.Send(commit));
  ps.epoch = Epoch(2);
  const auto attach = ps.Done(ps.SendAttach());
  ASSERT_TRUE(attach->one().ok());
  const PsAttachReply& reply = *attach->one();
  EXPECT_EQ(reply.state, PsState::kFrozen);
  EXPECT_EQ(reply.lineage, Epoch(1));
  EXPECT_EQ(reply.layout_version, 1u);
  EXPECT_EQ(reply.layout_hash, 10u);
  EXPECT_EQ(reply.horizon.next, EntryId(3));
  EXPECT_EQ(reply.memory_bytes, 32);
  ASSERT_EQ(reply.remembered.size(), 1u);
  EXPECT_EQ(reply.remembered[0].id, EntryId(7));
  EXPECT_EQ(reply.remembered[0].participants, 2);
  EXPECT_EQ(reply.remembered[0].kind, EntryKind::kWrite);
  EXPECT_EQ(ps.CommitReason(8, {ps.AddOne(2)}), Reason::kNotReady);
  EXPECT_TRUE(ps.core->Inspect().sessions.empty());
}

TEST(PsStateTest, FrozenIsKeptOrCleared) {
  for (const bool keep : {true, false}) {
    Server ps;
    ps.BeginWithRows(2);
    ps.Done(ps.SendCommit(1, {ps.AddOne(2)}));
    ps.epoch = Epoch(2);
    ps.Done(ps.SendAttach());
    LoadRequest load;
    load.from = keep ? LoadRequest::From::kKeep : LoadRequest::From::kEmpty;
    load.expected_lineage = Epoch(1);
    load.layout_version = 1;
    load.layout_hash = 10;
    EXPECT_TRUE(ps.Done(ps.SendLoad(load))->one().ok());
    const ParameterServerSnapshot now = ps.core->Inspect();
    EXPECT_EQ(now.state, PsState::kReady);
    EXPECT_EQ(now.lineage, keep ? Epoch(1) : Epoch(2));
    EXPECT_EQ(now.shards.size(), keep ? 1u : 0u);
    EXPECT_EQ(now.applied_seq, keep ? 1u : 0u);
    EXPECT_EQ(now.remembered.size(), keep ? 1u : 0u);
    EXPECT_EQ(now.memory_bytes, keep ? 32 : 0);
  }
}

TEST(PsStateTest, KeepIsRefusedForAnotherLineageOrLayoutAndWhenEmpty) {
  Server ps;
  LoadRequest keep;
  keep.from = LoadRequest::From::kKeep;
  ps.Done(ps.SendAttach());
  EXPECT_EQ(ps.Done(ps.SendLoad(keep))->reason(), Reason::kInvalid);
  ps.BeginWithRows(2);
  ps.epoch = Epoch(2);
  ps.Done(ps.SendAttach());
  keep.layout_hash = 10;
  keep.expected_lineage = Epoch(2);
  EXPECT_EQ(ps.Done(ps.SendLoad(keep))->reason(), Reason::kInvalid);
  keep.layout_hash = 11;
  keep.expected_lineage = Epoch(1);
  EXPECT_EQ(ps.Done(ps.SendLoad(keep))->reason(), Reason::kInvalid);
  EXPECT_EQ(ps.core->Inspect().state, PsState::kFrozen);
}

TEST(PsStateTest, AHorizonWithUnsortedOpenIdsIsInvalid) {
  Server ps;
  ps.Begin();
  EXPECT_EQ(ps.Done(ps.SendSync(1, {}, Closing(9, {EntryId(5), EntryId(3)})))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.Done(ps.SendSync(1, {}, Closing(9, {EntryId(9)})))->reason(), Reason::kInvalid);
  EXPECT_EQ(ps.core->Inspect().horizon.next, EntryId(0));
}

// ---- commits: once ------------------------------------------------------------------------------

TEST(CommitTest, CountsOnceWhateverAttemptBringsIt) {
  Server ps;
  ps.BeginWithRows(2);
  const auto first = ps.Done(ps.SendCommit(1, {ps.AddOne(2)}));
  ASSERT_TRUE(first->one().ok());
  EXPECT_FALSE(first->one()->duplicate);
  EXPECT_EQ(first->one()->applied_seq, 1u);
  EXPECT_EQ(first->one()->versions, std::vector<uint64_t>{1});
  const auto second = ps.Done(ps.SendCommit(1, {ps.AddOne(2)}));
  ASSERT_TRUE(second->one().ok());
  EXPECT_TRUE(second->one()->duplicate);
  EXPECT_TRUE(second->one()->versions.empty());
  EXPECT_EQ(ps.Sum(1), 4);
  EXPECT_EQ(ps.core->Inspect().history, (std::map<EntryId, int>{{EntryId(1), 1}}));
}

TEST(CommitTest, ARetryDuringTheApplyWaitsForItAndIsADuplicate) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(20);
  const auto first = ps.SendCommit(1, {ps.AddOne(20)});
  ps.RunIntoACommit();
  const auto second = ps.SendCommit(1, {ps.AddOne(20)});
  EXPECT_FALSE(second->answered());
  ps.executor.RunUntilIdle();
  EXPECT_FALSE(first->one()->duplicate);
  EXPECT_TRUE(second->one()->duplicate);
  EXPECT_EQ(ps.Sum(1), 40);
}

TEST(CommitTest, ClosedEntriesAreForgottenAtSyncAndRefused) {
  Server ps;
  ps.BeginWithRows(2);
  for (uint64_t entry : {1, 2, 3}) ps.Done(ps.SendCommit(entry, {ps.AddOne(2)}));
  const auto sync =
      ps.Done(ps.SendSync(1, {}, Closing(3, {EntryId(2)}), {EntryId(1), EntryId(2), EntryId(8)}));
  ASSERT_TRUE(sync->one().ok());
  ASSERT_EQ(sync->one()->applied.size(), 1u);
  EXPECT_EQ(sync->one()->applied[0].id, EntryId(2));
  EXPECT_EQ(sync->one()->applied_seq, 3u);
  const auto remembered = ps.core->Inspect().remembered;
  ASSERT_EQ(remembered.size(), 2u);
  EXPECT_EQ(remembered[0].id, EntryId(2));
  EXPECT_EQ(remembered[1].id, EntryId(3));
  EXPECT_EQ(ps.CommitReason(1, {ps.AddOne(2)}), Reason::kStepClosed);
  EXPECT_TRUE(ps.Done(ps.SendCommit(2, {ps.AddOne(2)}))->one()->duplicate);
  EXPECT_EQ(ps.Sum(1), 12);
}

TEST(CommitTest, OfManyEntriesOnlyThoseNotClosedAreRemembered) {
  Server ps;
  ps.BeginWithRows(1);
  for (uint64_t entry = 1; entry <= 1000; ++entry) {
    ps.SendCommit(entry, {ps.AddOne(1)});
    if (entry % 10 != 0) continue;
    ps.executor.RunUntilIdle();
    ps.Done(ps.SendSync(entry, {}, Closing(entry + 1, {EntryId(entry)})));
    EXPECT_LE(ps.core->Inspect().remembered.size(), 11u);
  }
  EXPECT_EQ(ps.Sum(1), 2000);
}

TEST(CommitTest, NeedsItsSessionInTheSet) {
  Server ps;
  ps.BeginWithRows(1);
  EXPECT_EQ(ps.CommitReason(1, {ps.AddOne(1)}, 4), Reason::kSessionFenced);
  ps.Done(ps.SendSync(1, {SessionId(4)}));
  EXPECT_EQ(ps.CommitReason(1, {ps.AddOne(1)}, 4), Reason::kNone);
  ps.Done(ps.SendSync(2, {}));
  EXPECT_EQ(ps.CommitReason(2, {ps.AddOne(1)}, 4), Reason::kSessionFenced);
  EXPECT_EQ(ps.CommitReason(2, {ps.AddOne(1)}, 0), Reason::kNone)
      << "the coordinator's own session";
  EXPECT_EQ(ps.Sum(1), 4);
}

TEST(CommitTest, TheSessionIsAskedBeforeTheHorizonAndThatBeforeTheTable) {
  Server ps;
  ps.BeginWithRows(1);
  ps.Done(ps.SendCommit(1, {ps.AddOne(1)}));
  EXPECT_EQ(ps.CommitReason(1, {}, 4), Reason::kSessionFenced);
  LoadRequest load;
  ps.Done(ps.SendSync(1, {SessionId(4)}, Closing(2)));
  EXPECT_EQ(ps.CommitReason(1, {}, 4), Reason::kStepClosed);
}

TEST(CommitTest, AnAppliedEntryIsADuplicateWhateverItsParts) {
  Server ps;
  ps.BeginWithRows(1);
  ps.Done(ps.SendCommit(1, {ps.AddOne(1)}));
  EXPECT_TRUE(ps.Done(ps.SendCommit(1, {}))->one()->duplicate)
      << "duplicates are detected before the parts are checked";
}

TEST(CommitTest, WithoutEntryOrParticipantsIsInvalid) {
  Server ps;
  ps.BeginWithRows(1);
  EXPECT_EQ(ps.CommitReason(0, {ps.AddOne(1)}), Reason::kInvalid);
  CommitRequest request;
  request.fence = ps.fence();
  request.entry = EntryId(1);
  request.participants = 0;
  request.parts = {ps.AddOne(1)};
  EXPECT_EQ(ps.Done(ps.Send(request))->reason(), Reason::kInvalid);
}

TEST(CommitTest, IsAllOrNothing) {
  Server ps;
  ps.BeginWithRows(2);
  const uint64_t before = ps.core->StateHash();
  EXPECT_EQ(
      ps.CommitReason(1, {ps.AddOne(2), Part(WriteOp::kAdd, Key(1), Filled<int64_t>({3, 2}, 1))}),
      Reason::kBadCommit);
  EXPECT_EQ(
      ps.CommitReason(1, {ps.AddOne(2), Part(WriteOp::kAdd, Key(8), Filled<int64_t>({2, 2}, 1))}),
      Reason::kUnknownShard);
  EXPECT_EQ(ps.core->StateHash(), before);
  EXPECT_EQ(ps.CommitReason(1, {ps.AddOne(2), ps.AddOne(2)}), Reason::kNone)
      << "a refused entry may come again";
  EXPECT_EQ(ps.Sum(1), 8);
}

TEST(CommitTest, RefusalsNameTheServerAndTheEntry) {
  Server ps;
  ps.BeginWithRows(2);
  const absl::Status status =
      ps.Done(ps.SendCommit(6, {Part(WriteOp::kAdd, Key(1), Filled<float>({2, 2}, 1))}))
          ->one()
          .status();
  const ErrorDetail detail = DetailOf(status);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(detail.role, Role::kPs);
  EXPECT_EQ(detail.entry, EntryId(6));
  EXPECT_EQ(detail.epoch, Epoch(1));
  EXPECT_EQ(status.message(),
            "ps 0: add to v1, part 0: values are float32 [2, 2], and must be int64 [2, 2]");
}

// ---- fences -------------------------------------------------------------------------------------

TEST(FenceTest, SyncWaitsForARunningApplyOfARemovedSession) {
  Server ps(3, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.Done(ps.SendSync(1, {SessionId(1)}));
  const auto commit = ps.SendCommit(1, {ps.AddOne(30)}, 1);
  ps.RunIntoACommit();
  const auto sync = ps.SendSync(2, {}, {}, {EntryId(1)});
  const auto again = ps.SendSync(2, {}, {}, {EntryId(1)});
  const auto older = ps.SendSync(1, {SessionId(1)});
  EXPECT_FALSE(sync->answered());
  EXPECT_FALSE(again->answered());
  EXPECT_FALSE(older->answered()) << "an older number is answered, and acts as the newest";
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(commit->one().ok());
  ASSERT_EQ(sync->one()->applied.size(), 1u)
      << "the running commit counts, and the Sync reply lists it";
  EXPECT_EQ(again->one()->applied.size(), 1u);
  EXPECT_EQ(older->one()->seq, 1u);
  EXPECT_TRUE(ps.core->Inspect().sessions.empty());
  EXPECT_EQ(ps.Sum(1), 60);
}

TEST(FenceTest, SyncDoesNotWaitForSessionsThatStay) {
  Server ps(3, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.Done(ps.SendSync(1, {SessionId(1)}));
  ps.SendCommit(1, {ps.AddOne(30)}, 1);
  ps.RunIntoACommit();
  EXPECT_TRUE(ps.SendSync(2, {SessionId(1), SessionId(2)})->one().ok());
}

TEST(FenceTest, WhatWaitsForAShardIsRefusedAtItsTurn) {
  Server ps(3, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.Done(ps.SendSync(1, {SessionId(1), SessionId(2)}));
  const auto running = ps.SendCommit(1, {ps.AddOne(30)}, 1);
  ps.RunIntoACommit();
  const auto waiting = ps.SendCommit(2, {ps.AddOne(30)}, 2);
  EXPECT_EQ(ps.core->Inspect().queued, 1u);
  const auto sync = ps.SendSync(2, {SessionId(1)}, {}, {EntryId(2)});
  EXPECT_TRUE(sync->one()->applied.empty())
      << "it will never be applied, so the fence need not wait";
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(running->one().ok());
  EXPECT_EQ(waiting->reason(), Reason::kSessionFenced);
  EXPECT_EQ(ps.Sum(1), 60);
}

TEST(FenceTest, ARerunThatMetTheRefusedAttemptTakesItsPlace) {
  Server ps(3, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.Done(ps.SendSync(1, {SessionId(1), SessionId(2)}));
  ps.SendCommit(1, {ps.AddOne(30)}, 1);
  ps.RunIntoACommit();
  const auto lost = ps.SendCommit(2, {ps.AddOne(30)}, 2);
  ps.SendSync(2, {SessionId(1), SessionId(3)});
  const auto rerun = ps.SendCommit(2, {ps.AddOne(30)}, 3);
  EXPECT_FALSE(rerun->answered());
  ps.executor.RunUntilIdle();
  EXPECT_EQ(lost->reason(), Reason::kSessionFenced);
  ASSERT_TRUE(rerun->one().ok());
  EXPECT_FALSE(rerun->one()->duplicate);
  EXPECT_EQ(ps.Sum(1), 120);
  EXPECT_EQ(ps.core->Inspect().history.at(EntryId(2)), 1);
}

TEST(FenceTest, AnEntryThatClosesWhileItWaitsIsRefusedAtItsTurn) {
  Server ps(3, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.SendCommit(5, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const auto waiting = ps.SendCommit(2, {ps.AddOne(30)});
  ps.SendSync(1, {}, Closing(5));
  ps.executor.RunUntilIdle();
  EXPECT_EQ(waiting->reason(), Reason::kStepClosed);
  EXPECT_EQ(ps.Sum(1), 60);
}

TEST(FenceTest, AttachWaitsForRunningAppliesAndRefusesWhatWaits) {
  Server ps(5, Server::SmallBlocks());
  ps.BeginWithRows(30);
  const auto running = ps.SendCommit(1, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const auto waiting = ps.SendCommit(2, {ps.AddOne(30)});
  ps.epoch = Epoch(2);
  const auto attach = ps.SendAttach();
  EXPECT_FALSE(attach->answered());
  EXPECT_EQ(ps.SendLoad()->reason(), Reason::kNotReady) << "a Load that overtakes its Attach";
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(running->one().ok());
  EXPECT_EQ(waiting->reason(), Reason::kStaleEpoch);
  ASSERT_TRUE(attach->one().ok());
  ASSERT_EQ(attach->one()->remembered.size(), 1u);
  EXPECT_EQ(attach->one()->remembered[0].id, EntryId(1));
  EXPECT_EQ(ps.Sum(1), 60);
}

TEST(FenceTest, ANewerAttachOvertakesOneThatWaitsAndSyncsOfOldEpochs) {
  Server ps(5, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.Done(ps.SendSync(1, {SessionId(1)}));
  ps.SendCommit(1, {ps.AddOne(30)}, 1);
  ps.RunIntoACommit();
  const auto sync = ps.SendSync(2, {});
  ps.epoch = Epoch(2);
  const auto older = ps.SendAttach();
  ps.epoch = Epoch(3);
  const auto newer = ps.SendAttach();
  ps.executor.RunUntilIdle();
  EXPECT_EQ(sync->reason(), Reason::kStaleEpoch);
  EXPECT_EQ(older->reason(), Reason::kStaleEpoch);
  EXPECT_TRUE(newer->one().ok());
}

TEST(FenceTest, SyncNumbersBeginAgainInEachEpoch) {
  Server ps;
  ps.Begin();
  ps.Done(ps.SendSync(50, {SessionId(1)}));
  ps.Done(ps.SendSync(49, {SessionId(9)}));
  EXPECT_EQ(ps.core->Inspect().sessions, std::vector<SessionId>{SessionId(1)});
  ps.epoch = Epoch(2);
  ps.Begin();
  ps.Done(ps.SendSync(1, {SessionId(2)}));
  EXPECT_EQ(ps.core->Inspect().sessions, std::vector<SessionId>{SessionId(2)});
}

// ---- shards -------------------------------------------------------------------------------------

TEST(CreateShardsTest, MakesTheRowsOfItsPartOfTheWholeVariable) {
  Server whole, cut(2, Server::SmallBlocks());
  whole.Begin();
  cut.Begin();
  whole.Done(whole.SendCreate({Spec(Key(1), Shape{7, 3}, DType::kFloat32, GlorotUniform())}));
  std::vector<ShardSpec> parts;
  for (const auto& [part, first, rows] :
       {std::tuple<int, int64_t, int64_t>{0, 0, 3}, {1, 3, 2}, {2, 5, 2}}) {
    parts.push_back(Spec(Key(1, 0, part), Shape{rows, 3}, DType::kFloat32, GlorotUniform()));
    parts.back().full_shape = Shape{7, 3};
    parts.back().first_row = first;
  }
  cut.Done(cut.SendCreate(parts));
  std::vector<float> joined;
  for (const auto& [key, shard] : cut.core->Inspect().shards) {
    for (float value : ValuesOf<float>(shard.value)) joined.push_back(value);
  }
  EXPECT_EQ(joined, ValuesOf<float>(whole.core->Inspect().shards.at(Key(1)).value));
}

TEST(CreateShardsTest, AgainIsFineFromAnEqualSpecAndInvalidFromAnother) {
  Server ps;
  ps.BeginWithRows(2);
  ps.Done(ps.SendCommit(1, {ps.AddOne(2)}));
  const uint64_t before = ps.core->StateHash();
  EXPECT_TRUE(ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 2})}))->one().ok());
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 3})}))->reason(), Reason::kInvalid);
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 2}, DType::kInt64, Ones())}))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 2}, DType::kInt32)}))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.core->StateHash(), before);
}

TEST(CreateShardsTest, RefusesWhatItCannotMake) {
  Server ps;
  ps.BeginWithRows(2);
  const auto refused = [&](ShardSpec spec) {
    return ps.Done(ps.SendCreate({std::move(spec)}))->reason() == Reason::kInvalid;
  };
  ShardSpec spec = Spec(Key(2), Shape{4, 4}, DType::kFloat32);
  spec.first_row = 1;
  EXPECT_TRUE(refused(spec)) << "rows beyond the whole shape";
  EXPECT_TRUE(refused(Spec(Key(2), Shape{-1, 4}))) << "unknown rows";
  EXPECT_TRUE(refused(Spec(Key(2), Shape{4, 4}, DType::kString)));
  EXPECT_TRUE(refused(Spec(Key(2), Shape{4, 4}, DType::kFloat32, Orthogonal{})))
      << "the coordinator makes its values";
  EXPECT_TRUE(refused(Spec(Key(2), Shape{4, 4}, DType::kInt64, RandomNormal{})))
      << "a distribution that the dtype cannot hold";
  EXPECT_TRUE(refused(Spec(Key(2, 1), Shape{4, 4}))) << "a slot of no variable";
  EXPECT_TRUE(refused(Spec(Key(1, 1), Shape{3, 2}))) << "a slot with other rows";
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(3), Shape{1}), Spec(Key(3), Shape{1})}))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.core->Inspect().shards.size(), 1u);
}

TEST(CreateShardsTest, ChecksTheMemoryForAllBeforeItMakesOne) {
  ParameterServerOptions options;
  options.memory_limit_bytes = 100;
  Server ps(1, options);
  ps.Begin();
  const auto reply = ps.Done(ps.SendCreate({Spec(Key(1), Shape{10}), Spec(Key(2), Shape{3})}));
  EXPECT_EQ(reply->reason(), Reason::kMemoryLimit);
  EXPECT_NE(std::string(reply->one().status().message()).find("--memory_limit_bytes=100"),
            std::string::npos);
  EXPECT_TRUE(ps.core->Inspect().shards.empty());
  EXPECT_TRUE(
      ps.Done(ps.SendCreate({Spec(Key(1), Shape{10}), Spec(Key(2), Shape{2})}))->one().ok());
  EXPECT_EQ(ps.core->Inspect().memory_bytes, 96);
  ps.Done(ps.SendDelete({Key(1)}));
  EXPECT_EQ(ps.core->Inspect().memory_bytes, 16);
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(3), Shape{int64_t{1} << 59})}))->reason(),
            Reason::kMemoryLimit);
}

TEST(CreateShardsTest, TheLimitCountsWhatIsBeingMade) {
  ParameterServerOptions options = Server::SmallBlocks();
  options.memory_limit_bytes = 100;
  Server ps(1, options);
  ps.Begin();
  const auto first = ps.SendCreate({Spec(Key(1), Shape{10})});
  EXPECT_EQ(ps.SendCreate({Spec(Key(2), Shape{10})})->reason(), Reason::kMemoryLimit);
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(first->one().ok());
}

TEST(CreateShardsTest, OfAShardThatIsBeingMadeWaitsForIt) {
  Server ps(1, Server::SmallBlocks());
  ps.Begin();
  const auto first = ps.SendCreate({Spec(Key(1), Shape{50})});
  const auto second = ps.SendCreate({Spec(Key(1), Shape{50})});
  EXPECT_FALSE(second->answered());
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(first->one().ok());
  EXPECT_TRUE(second->one().ok());
  EXPECT_EQ(ps.core->Inspect().memory_bytes, 400);
}

TEST(CreateShardsTest, ANewEpochOrADeleteMeanwhileLeavesNothing) {
  for (const bool deleted : {true, false}) {
    Server ps(1, Server::SmallBlocks());
    ps.Begin();
    const auto create = ps.SendCreate({Spec(Key(1), Shape{50})});
    if (deleted) {
      EXPECT_TRUE(ps.SendDelete({Key(1)})->one().ok());
    } else {
      ps.epoch = Epoch(2);
      ps.SendAttach();
    }
    ps.executor.RunUntilIdle();
    EXPECT_EQ(create->reason(), deleted ? Reason::kInvalid : Reason::kStaleEpoch);
    EXPECT_TRUE(ps.core->Inspect().shards.empty());
    EXPECT_EQ(ps.core->Inspect().memory_bytes, 0);
  }
}

TEST(DeleteShardsTest, ALateCreateBringsNothingBack) {
  Server ps;
  ps.BeginWithRows(2);
  EXPECT_TRUE(ps.Done(ps.SendDelete({Key(1), Key(5)}))->one().ok()) << "absent shards are skipped";
  EXPECT_EQ(ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 2})}))->reason(), Reason::kInvalid);
  EXPECT_EQ(ps.core->Inspect().layout_version, 2u);
}

TEST(DeleteShardsTest, CommitsThatWaitForTheShardAreRefused) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(30);
  const auto running = ps.SendCommit(1, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const auto waiting = ps.SendCommit(2, {ps.AddOne(30)});
  ps.SendDelete({Key(1)});
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(running->one().ok());
  EXPECT_EQ(waiting->reason(), Reason::kUnknownShard);
}

// ---- reads --------------------------------------------------------------------------------------

TEST(PullTest, GivesWholeShardsAndRowsInTheOrderAsked) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(4);
  ps.Done(ps.SendCommit(1, {Part(WriteOp::kAssign, Key(1),
                                 *Tensor::Copy<int64_t>({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31}))}));
  const auto pull = ps.Done(ps.SendPull({{Key(1), {}},
                                         {Key(1), Tensor::Vector<int64_t>({3, 0, 3})},
                                         {Key(1), Tensor::Vector<int64_t>({})}}));
  ASSERT_TRUE(pull->one().ok());
  const auto& parts = pull->one()->parts;
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(ValuesOf<int64_t>(parts[0].values),
            (std::vector<int64_t>{0, 1, 10, 11, 20, 21, 30, 31}));
  EXPECT_EQ(ValuesOf<int64_t>(parts[1].values), (std::vector<int64_t>{30, 31, 0, 1, 30, 31}));
  EXPECT_EQ(parts[1].values.shape(), (Shape{3, 2}));
  EXPECT_EQ(parts[2].values.shape(), (Shape{0, 2}));
  EXPECT_EQ(parts[0].version, 1u);
  EXPECT_FALSE(parts[0].torn);
}

TEST(PullTest, RoundsFloatsIfAskedToAndTakesAGradientThatIsRounded) {
  Server ps(1, Server::SmallBlocks());
  ps.Begin();
  ASSERT_TRUE(ps.Done(ps.SendCreate({Spec(Key(1), Shape{5, 2}, DType::kFloat32, Constant{1}),
                                     Spec(Key(2), Shape{5, 2})}))
                  ->one()
                  .ok());
  const auto bits = [](float value) { return BFloat16Bits::FromFloat(value).bits; };
  Tensor gradient = *Tensor::Uninitialized(DType::kBFloat16, {5, 2});
  for (int i = 0; i < 10; ++i)
    gradient.fresh_data<BFloat16Bits>()[i] = BFloat16Bits::FromFloat(static_cast<float>(i));
  CommitPart part = Part(WriteOp::kGradient, Key(1), gradient);
  part.optimizer = StepOf(Sgd{0.01}, 0);
  EXPECT_EQ(ps.CommitReason(1, {part}), Reason::kNone);
  const auto pull = ps.Done(ps.SendPull({{Key(1), {}},
                                         {Key(1), {}, -1, /*as_bfloat16=*/true},
                                         {Key(1), Tensor::Vector<int64_t>({4, 0, 4}), -1, true}}));
  // A shard is named whole once.
  EXPECT_EQ(pull->reason(), Reason::kInvalid);
  const auto exact = ps.Done(ps.SendPull({{Key(1), {}}}));
  const auto rounded = ps.Done(ps.SendPull(
      {{Key(1), {}, -1, true}, {Key(1), Tensor::Vector<int64_t>({4, 0, 4}), -1, true}}));
  ASSERT_TRUE(exact->one().ok());
  ASSERT_TRUE(rounded->one().ok());
  const std::vector<float> floats = ValuesOf<float>(exact->one()->parts[0].values);
  const Tensor &whole = rounded->one()->parts[0].values, &rows = rounded->one()->parts[1].values;
  EXPECT_EQ(whole.dtype(), DType::kBFloat16);
  EXPECT_EQ(rows.shape(), (Shape{3, 2}));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FLOAT_EQ(floats[i], 1 - 0.01f * static_cast<float>(i));
    EXPECT_EQ(whole.data_as<BFloat16Bits>()[i].bits, bits(floats[i]));
  }
  const std::vector<int> order = {8, 9, 0, 1, 8, 9};
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(rows.data_as<BFloat16Bits>()[i].bits, bits(floats[order[i]]));

  EXPECT_EQ(ps.Done(ps.SendPull({{Key(2), {}, -1, true}}))->reason(), Reason::kInvalid);
  part.rows = Tensor::Vector<int64_t>({0, 1, 2, 3, 4});
  EXPECT_EQ(ps.CommitReason(2, {part}), Reason::kBadCommit);
  EXPECT_EQ(ps.CommitReason(3, {Part(WriteOp::kAdd, Key(1), gradient)}), Reason::kBadCommit);
}

TEST(PullTest, RefusesUnknownShardsAndRowsOutside) {
  Server ps;
  ps.BeginWithRows(4);
  EXPECT_EQ(ps.Done(ps.SendPull({{Key(2), {}}}))->reason(), Reason::kUnknownShard);
  EXPECT_EQ(ps.Done(ps.SendPull({{Key(1), Tensor::Vector<int64_t>({4})}}))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.Done(ps.SendPull({{Key(1), Tensor::Vector<int64_t>({-1})}}))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps.Done(ps.SendPull({{Key(1), Tensor::Vector<float>({1})}}))->reason(),
            Reason::kInvalid);
}

TEST(PullTest, AShardIsNamedWholeOnceInARequest) {
  Server ps;
  ps.BeginWithRows(4);
  const auto twice = ps.Done(ps.SendPull({{Key(1), {}}, {Key(1), {}}}));
  EXPECT_EQ(twice->reason(), Reason::kInvalid);
  EXPECT_NE(twice->one().status().message().find("named whole twice"), std::string::npos)
      << twice->one().status();
}

TEST(PullTest, TellsBeforehandWhatMemoryTheReplyTakes) {
  Server ps;
  ps.BeginWithRows(4);
  const auto bytes = [&](std::vector<PullPart> parts) {
    return ps.core->PullReplyBytes({ps.fence(), std::move(parts)});
  };
  EXPECT_EQ(bytes({{Key(1), {}}, {Key(1), Tensor::Vector<int64_t>({3, 0, 3})}}), (4 + 3) * 2 * 8);
  EXPECT_EQ(bytes({}), 0);
  EXPECT_EQ(bytes({{Key(2), {}}}), 0);
  EXPECT_EQ(bytes({{Key(1), {}}, {Key(1), {}}}), 0);
  EXPECT_EQ(ps.core->PullReplyBytes({Fence(), {{Key(1), {}}}}), 0);
  // Only the Pull checks the rows themselves.
  EXPECT_EQ(bytes({{Key(1), Tensor::Vector<int64_t>({4})}}), 2 * 8);
}

// A few bytes of row numbers could otherwise ask for much memory.
TEST(PullTest, RowsThatAreNamedAgainAndAgainHaveALimit) {
  ParameterServerOptions options;
  options.max_pull_bytes = 100;
  Server ps(1, options);
  ps.BeginWithRows(4);  // rows of two int64: 64 bytes
  const auto rows = [&](int64_t times) {
    return std::vector<PullPart>{{Key(1), Filled<int64_t>({times}, 3)}};
  };
  EXPECT_TRUE(ps.Done(ps.SendPull(rows(6)))->one().ok());
  const auto refused = ps.Done(ps.SendPull(rows(7)));
  EXPECT_EQ(refused->reason(), Reason::kInvalid);
  EXPECT_NE(
      refused->one().status().message().find("Name each row once, or raise --pull_buffer_bytes"),
      std::string::npos)
      << refused->one().status();
  EXPECT_EQ(ps.core->PullReplyBytes({ps.fence(), rows(7)}), 0);
}

TEST(PullTest, AllThatThereIsMayBeReadWhateverTheLimit) {
  ParameterServerOptions options;
  options.max_pull_bytes = 1;
  Server ps(1, options);
  ps.BeginWithRows(4);
  EXPECT_TRUE(ps.Done(ps.SendPull({{Key(1), {}}}))->one().ok());
}

TEST(FenceTest, WhoMayNotCommitLearnsItBeforeThePayloadIsSent) {
  Server ps;
  ps.BeginWithRows(4);
  ps.Done(ps.SendSync(1, {SessionId(3)}));
  EXPECT_TRUE(ps.core->CheckCommit(ps.fence(3), std::nullopt).ok());
  EXPECT_EQ(ReasonOf(ps.core->CheckCommit(ps.fence(4), std::nullopt)), Reason::kSessionFenced);
  EXPECT_TRUE(ps.core->CheckPull(ps.fence(4)).ok());
  EXPECT_EQ(ReasonOf(ps.core->CheckPull(Fence())), Reason::kWrongJob);
}

TEST(FenceTest, AWorkersCertificateCommitsInItsOwnSessionAlone) {
  Server ps;
  ps.BeginWithRows(4);
  ps.Done(ps.Send(SyncRequest{ps.fence(), 1, {}, {SessionId(3), SessionId(5)}, {}, {7, 0}}));
  EXPECT_TRUE(ps.core->CheckCommit(ps.fence(3), 7).ok());
  const absl::Status others = ps.core->CheckCommit(ps.fence(3), 0);
  EXPECT_EQ(ReasonOf(others), Reason::kNotAuthorized);
  EXPECT_NE(others.message().find("worker 0 may not commit in session 3, which is of worker 7"),
            std::string::npos)
      << others;
  // The certificate is the coordinator's, or there is no TLS.
  EXPECT_TRUE(ps.core->CheckCommit(ps.fence(3), std::nullopt).ok());
  // The Sync does not name the session's worker.
  ps.Done(ps.SendSync(2, {SessionId(3)}));
  EXPECT_TRUE(ps.core->CheckCommit(ps.fence(3), 0).ok());
}

TEST(PullTest, SaysTornWhenACommitLandedMeanwhile) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(30);
  ps.SendCommit(1, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const auto during = ps.SendPull({{Key(1), {}}});
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(during->one()->parts[0].torn);
  EXPECT_EQ(during->one()->parts[0].version, 0u);
  EXPECT_FALSE(ps.Done(ps.SendPull({{Key(1), {}}}))->one()->parts[0].torn);
}

TEST(PullTest, OfADyingEpochIsRefused) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(30);
  const auto pull = ps.SendPull({{Key(1), {}}});
  ps.epoch = Epoch(2);
  ps.SendAttach();
  ps.executor.RunUntilIdle();
  EXPECT_EQ(pull->reason(), Reason::kStaleEpoch);
}

// ---- the end ------------------------------------------------------------------------------------

TEST(ShutdownTest, LetsRunningAppliesEndAndExitsOnce) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(30);
  const auto running = ps.SendCommit(1, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const auto waiting = ps.SendCommit(2, {ps.AddOne(30)});
  const auto first = ps.SendShutdown(0), second = ps.SendShutdown(0);
  EXPECT_FALSE(first->answered());
  EXPECT_EQ(ps.CommitReason(3, {ps.AddOne(30)}), Reason::kNotReady);
  EXPECT_TRUE(running->one().ok());
  EXPECT_EQ(waiting->reason(), Reason::kNotReady);
  EXPECT_TRUE(first->one().ok());
  EXPECT_TRUE(second->one().ok());
  EXPECT_EQ(ps.exits, std::vector<int>{0});
  EXPECT_TRUE(ps.Done(ps.SendShutdown(0))->one().ok());
  EXPECT_TRUE(ps.Done(ps.SendSync(9, {}))->one()->draining);
  EXPECT_EQ(ps.exits, std::vector<int>{0});
}

TEST(KilledTest, TheLastHandleGoneNothingRunsAndNobodyIsAnswered) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(30);
  const auto commit = ps.SendCommit(1, {ps.AddOne(30)});
  ps.RunIntoACommit();
  const std::weak_ptr<ParameterServerCore> gone = ps.core;
  ps.core.reset();
  EXPECT_TRUE(gone.expired());
  ps.executor.RunUntilIdle();
  EXPECT_FALSE(commit->answered());
}

TEST(RegisterTest, GoesOnUntilAttachedAndBeginsAgainWhenNothingIsHeard) {
  SimExecutor executor(1);
  auto coordinator = std::make_shared<FakeCoordinator>(executor);
  coordinator->answer->job = kJob;
  ParameterServerOptions options;
  options.index = 3;
  options.incarnation = kPs;
  options.address = "embedded:ps/3";
  std::vector<int> exits;
  auto core = *ParameterServerCore::Start(
      options, executor, coordinator, [&](int code, const std::string&) { exits.push_back(code); });
  executor.RunFor(absl::Seconds(7));
  EXPECT_EQ(coordinator->seen.size(), 4u) << "at 0, 2, 4 and 6 s";
  EXPECT_EQ(coordinator->seen[0].role, Role::kPs);
  EXPECT_EQ(coordinator->seen[0].index, 3);
  EXPECT_EQ(coordinator->seen[0].address, "embedded:ps/3");
  EXPECT_TRUE(coordinator->seen[0].without_checkpoints);
  const Fence fence{kJob, Epoch(1), kCoordinator, SessionId(0), kPs};
  core->Call({fence}, [](const absl::StatusOr<PsAttachReply>& reply) {
    EXPECT_TRUE(reply.ok() && reply->without_checkpoints);
  });
  executor.RunFor(absl::Seconds(3));  // 10 s: the Attach was heard since the last look
  EXPECT_EQ(coordinator->seen.size(), 4u);
  executor.RunFor(absl::Seconds(6));  // 15 s: nothing was heard since
  EXPECT_EQ(coordinator->seen.size(), 5u);
  coordinator->answer->over = 1;
  executor.RunUntilIdle();
  EXPECT_EQ(exits, std::vector<int>{1});
}

// ---- Drain --------------------------------------------------------------------------------------

TEST(DrainTest, SaysSoInTheNextSyncReplyAndThenExits143) {
  Server ps;
  ps.BeginWithRows(1);
  ps.core->Drain();
  EXPECT_TRUE(ps.exits.empty());
  EXPECT_TRUE(ps.core->Inspect().draining);
  const auto synced = ps.SendSync(1, {});
  EXPECT_TRUE(synced->one()->draining);
  EXPECT_EQ(ps.exits, std::vector<int>{143});
  EXPECT_EQ(ReasonOf(ps.SendCommit(1, {ps.AddOne(1)})->one().status()), Reason::kNotReady);
  ps.core->Drain();
  ps.executor.RunUntilIdle();
  EXPECT_EQ(ps.exits, std::vector<int>{143});
}

TEST(DrainTest, LetsWhatIsBeingAppliedEndFirst) {
  Server ps(1, Server::SmallBlocks());
  ps.BeginWithRows(8);
  const auto commit = ps.SendCommit(1, {ps.AddOne(8)});
  ps.RunIntoACommit();
  ps.core->Drain();
  const auto synced = ps.SendSync(1, {});
  EXPECT_TRUE(ps.exits.empty());
  ps.executor.RunUntilIdle();
  EXPECT_TRUE(commit->one().ok());
  EXPECT_TRUE(synced->one()->draining);
  EXPECT_EQ(ps.exits, std::vector<int>{143});
}

TEST(DrainTest, WaitsForNobodyWhoDoesNotSync) {
  Server ps;
  ps.BeginWithRows(1);
  ps.core->Drain();
  ps.executor.RunFor(absl::Seconds(1.9));
  EXPECT_TRUE(ps.exits.empty());
  ps.executor.RunFor(absl::Seconds(0.2));
  EXPECT_EQ(ps.exits, std::vector<int>{143});
  Server empty;  // no job depends on its values
  empty.core->Drain();
  EXPECT_EQ(empty.exits, std::vector<int>{143});
}

TEST(ProtocolRangeTest, AnotherVersionIsRefusedAtAttach) {
  Server ps;
  const auto refused = ps.Done(
      ps.Send(PsAttachRequest{ps.fence(), {kOwnProtocol.newest + 1, kOwnProtocol.newest + 2}}));
  EXPECT_EQ(ReasonOf(refused->one().status()), Reason::kVersionMismatch);
  EXPECT_EQ(ps.core->Inspect().epoch, Epoch(0));
}

// ---- many requests at once ----------------------------------------------------------------------

// Delivers every request of a short life a second time, late. The answer is the same, and nothing
// changes.
TEST(IdempotencyTest, ASecondDeliveryOfAnyRequestChangesNothing) {
  Server ps;
  const auto twice = [&](const char* name, const std::function<bool()>& send) {
    EXPECT_TRUE(send()) << name;
    const uint64_t once = ps.core->StateHash();
    EXPECT_TRUE(send()) << name;
    EXPECT_EQ(ps.core->StateHash(), once) << name;
  };
  twice("Attach", [&] { return ps.Done(ps.SendAttach())->one().ok(); });
  twice("Load", [&] { return ps.Done(ps.SendLoad())->one().ok(); });
  twice("CreateShards", [&] {
    return ps.Done(ps.SendCreate({Spec(Key(1), Shape{2, 2}), Spec(Key(2), Shape{2, 2})}))
        ->one()
        .ok();
  });
  twice("Sync", [&] { return ps.Done(ps.SendSync(1, {SessionId(1)}, Closing(1)))->one().ok(); });
  twice("Commit", [&] { return ps.Done(ps.SendCommit(1, {ps.AddOne(2)}, 1))->one().ok(); });
  twice("Pull", [&] { return ps.Done(ps.SendPull({{Key(1), {}}}))->one().ok(); });
  twice("DeleteShards", [&] { return ps.Done(ps.SendDelete({Key(2)}))->one().ok(); });
  twice("Shutdown", [&] { return ps.Done(ps.SendShutdown(0))->one().ok(); });
}

// A model: int64 variables with rows of two elements.
using Model = std::map<uint32_t, std::vector<int64_t>>;

void ApplyToModel(const CommitPart& part, Model& model) {
  std::vector<int64_t>& variable = model[part.shard.variable.value()];
  const std::vector<int64_t> values = ValuesOf<int64_t>(part.values);
  std::vector<int64_t> rows;
  if (part.rows)
    rows = ValuesOf<int64_t>(*part.rows);
  else
    for (size_t row = 0; row < variable.size() / 2; ++row)
      rows.push_back(static_cast<int64_t>(row));
  for (size_t i = 0; i < rows.size() * 2; ++i) {
    int64_t& element = variable[static_cast<size_t>(rows[i / 2]) * 2 + i % 2];
    switch (part.op) {
      case WriteOp::kAssign:
      case WriteOp::kScatterUpdate: element = values[i]; break;
      case WriteOp::kAdd:
      case WriteOp::kScatterAdd: element += values[i]; break;
      case WriteOp::kScatterMul:
        element =
            static_cast<int64_t>(static_cast<uint64_t>(element) * static_cast<uint64_t>(values[i]));
        break;
      case WriteOp::kScatterMax: element = std::max(element, values[i]); break;
      default: ADD_FAILURE();
    }
  }
}

CommitPart RandomPart(Random& random, uint32_t variable, int64_t rows) {
  constexpr WriteOp kOps[] = {WriteOp::kAssign,     WriteOp::kAdd,        WriteOp::kScatterUpdate,
                              WriteOp::kScatterAdd, WriteOp::kScatterMul, WriteOp::kScatterMax};
  const size_t op = random.Below(6);
  const int64_t n = op < 2 ? rows : 1 + static_cast<int64_t>(random.Below(6));
  std::vector<int64_t> values, ids;
  for (int64_t i = 0; i < n * 2; ++i)
    values.push_back(static_cast<int64_t>(random.Below(100)) - 50);
  if (op >= 2)
    for (int64_t i = 0; i < n; ++i)
      ids.push_back(static_cast<int64_t>(random.Below(static_cast<uint64_t>(rows))));
  return Part(kOps[op], Key(variable), *Tensor::Copy<int64_t>({n, 2}, values), ids);
}

TEST(ConcurrentCommitsTest, EqualTheModelRunInTheOrderOfAppliedSeq) {
  constexpr int64_t kRows[] = {0, 5, 9, 1};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Random random(seed);
    Server ps(seed, Server::SmallBlocks(16 * (1 + seed % 3)));
    ps.Begin();
    std::vector<ShardSpec> specs;
    Model model;
    for (uint32_t v : {1, 2, 3}) {
      specs.push_back(Spec(Key(v), Shape{kRows[v], 2}));
      model[v].resize(static_cast<size_t>(kRows[v]) * 2);
    }
    ps.Done(ps.SendCreate(specs));
    std::vector<std::vector<CommitPart>> commits;
    std::vector<std::vector<AnswersOf<CommitReply>>> answers;
    for (uint64_t entry = 1; entry <= 12; ++entry) {
      std::vector<CommitPart> parts;
      for (uint64_t i = 0, n = 1 + random.Below(4); i < n; ++i) {
        const uint32_t variable = 1 + static_cast<uint32_t>(random.Below(3));
        parts.push_back(RandomPart(random, variable, kRows[variable]));
      }
      commits.push_back(parts);
      answers.emplace_back();
      for (uint64_t i = 0, n = 1 + random.Below(2); i < n; ++i) {  // some arrive twice
        answers.back().push_back(ps.SendCommit(entry, parts));
        for (uint64_t run = random.Below(8); run > 0; --run) ps.executor.RunOne();
      }
    }
    ps.executor.RunUntilIdle();
    std::map<uint64_t, size_t> order;
    for (size_t i = 0; i < commits.size(); ++i) {
      for (const auto& answer : answers[i]) {
        ASSERT_TRUE(answer->one().ok()) << answer->one().status();
        if (!answer->one()->duplicate) order[answer->one()->applied_seq] = i;
      }
    }
    ASSERT_EQ(order.size(), commits.size()) << "each exactly once";
    for (const auto& [seq, i] : order) {
      for (const CommitPart& part : commits[i]) ApplyToModel(part, model);
    }
    const ParameterServerSnapshot now = ps.core->Inspect();
    for (uint32_t v : {1, 2, 3})
      ASSERT_EQ(ValuesOf<int64_t>(now.shards.at(Key(v)).value), model[v]);
    for (const auto& [id, count] : now.history) ASSERT_EQ(count, 1) << id;
    ASSERT_EQ(now.queued + now.running, 0u);
  }
}

TEST(ConcurrentReadsTest, AreNeverTornWithinABlockAndNeverGoBack) {
  constexpr int64_t kRows = 12;  // blocks of 2 rows of 2
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    Server ps(seed, Server::SmallBlocks(32));
    ps.BeginWithRows(kRows);
    std::vector<AnswersOf<PullReply>> pulls;
    for (uint64_t entry = 1; entry <= 10; ++entry) {
      ps.SendCommit(entry, {ps.AddOne(kRows), ps.AddOne(kRows)});
      for (int i = 0; i < 3; ++i) ps.executor.RunOne();
      pulls.push_back(ps.SendPull({{Key(1), {}}}));
    }
    ps.executor.RunUntilIdle();
    for (const auto& pull : pulls) {
      const PullPartReply& part = pull->one()->parts[0];
      const std::vector<int64_t> values = ValuesOf<int64_t>(part.values);
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_EQ(values[i], values[i / 4 * 4]) << "a block shows one state";
        ASSERT_EQ(values[i] % 2, 0) << "both parts of a commit or none";
        ASSERT_GE(values[i], static_cast<int64_t>(part.version) * 2);
        if (!part.torn) {
          ASSERT_EQ(values[i], static_cast<int64_t>(part.version) * 2);
        }
      }
    }
  }
}

// ---- checkpoints --------------------------------------------------------------------------------

// Checkpoints in memory: for each checkpoint, the rows of tensors by name.
class FakeFiles : public CheckpointFiles {
 public:
  struct Tensor {
    std::vector<char> bytes;
    int64_t row_bytes = 1;
  };
  using Checkpoint = std::map<std::string, Tensor>;

  absl::StatusOr<std::unique_ptr<CheckpointPart>> Create(CheckpointId checkpoint, int,
                                                         int) override {
    if (!create_error.ok()) return create_error;
    return std::unique_ptr<CheckpointPart>(std::make_unique<Part>(checkpoints[checkpoint], *this));
  }
  absl::StatusOr<std::unique_ptr<CheckpointValues>> Open(CheckpointId checkpoint) override {
    if (checkpoints.count(checkpoint) == 0) return absl::NotFoundError(checkpoint.name());
    return std::unique_ptr<CheckpointValues>(
        std::make_unique<Values>(checkpoints[checkpoint], *this));
  }

  std::map<CheckpointId, Checkpoint> checkpoints;
  absl::Status create_error, append_error, read_error;
  std::map<std::string, int64_t> read_bytes;  // by tensor
  std::function<void()> while_appending;      // called during an append

 private:
  class Part : public CheckpointPart {
   public:
    Part(Checkpoint& to, FakeFiles& files) : to_(to), files_(files) {}
    absl::Status Append(const ShardSpec& shard, int64_t first_row, int64_t rows,
                        const GivePieces& pieces) override {
      if (files_.while_appending) std::exchange(files_.while_appending, nullptr)();
      if (!files_.append_error.ok()) return files_.append_error;
      Tensor& tensor = to_[shard.name];
      tensor.row_bytes = shard.full_shape.row_elements() * DTypeSize(shard.dtype);
      // Of a table, the segments come in the order of their buckets.
      const int64_t before =
          shard.table ? static_cast<int64_t>(tensor.bytes.size()) / tensor.row_bytes : 0;
      tensor.bytes.resize(
          static_cast<size_t>((before + shard.full_shape.rows()) * tensor.row_bytes));
      auto at = tensor.bytes.begin() + (before + first_row) * tensor.row_bytes;
      slices_.push_back({shard.name, shard.dtype, shard.full_shape, first_row, rows, 0,
                         static_cast<uint64_t>(rows * tensor.row_bytes), 0});
      return pieces([&at](absl::Span<const char> piece) {
        at = std::copy(piece.begin(), piece.end(), at);
        return absl::OkStatus();
      });
    }
    absl::StatusOr<std::vector<SavedSlice>> Finish() override { return slices_; }

   private:
    Checkpoint& to_;
    FakeFiles& files_;
    std::vector<SavedSlice> slices_;
  };
  class Values : public CheckpointValues {
   public:
    Values(const Checkpoint& from, FakeFiles& files) : from_(from), files_(files) {}
    absl::Status Read(const ShardSpec& shard, int64_t first_row, absl::Span<char> out) override {
      if (!files_.read_error.ok()) return files_.read_error;
      const auto found = from_.find(shard.name);
      if (found == from_.end()) return absl::NotFoundError(shard.name);
      files_.read_bytes[shard.name] += static_cast<int64_t>(out.size());
      std::copy_n(found->second.bytes.begin() + first_row * found->second.row_bytes, out.size(),
                  out.begin());
      return absl::OkStatus();
    }
    absl::StatusOr<int64_t> Rows(const std::string& name) override {
      const auto found = from_.find(name);
      return found == from_.end()
                 ? 0
                 : static_cast<int64_t>(found->second.bytes.size()) / found->second.row_bytes;
    }

   private:
    const Checkpoint from_;
    FakeFiles& files_;
  };
};

constexpr CheckpointId kFirst{Epoch(1), 1}, kSecond{Epoch(1), 2};

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { ps_ = std::make_unique<Server>(1, Options()); }
  ParameterServerOptions Options() {
    ParameterServerOptions options = Server::SmallBlocks();
    options.slice_bytes = 32;
    options.checkpoint_files = &files_;
    options.clock = &stopped_clock_;
    return options;
  }
  AnswersOf<SnapshotReply> SendSnapshot(CheckpointId checkpoint, bool wait) {
    return ps_->Send(SnapshotRequest{ps_->fence(), checkpoint, 0, 2, wait});
  }
  AnswersOf<SnapshotReply> Save(CheckpointId checkpoint = kFirst) {
    EXPECT_TRUE(SendSnapshot(checkpoint, false)->one().ok());
    return ps_->Done(SendSnapshot(checkpoint, true));
  }
  AnswersOf<LoadReply> SendLoad(CheckpointId checkpoint, std::vector<ShardSpec> shards) {
    LoadRequest request;
    request.from = LoadRequest::From::kCheckpoint;
    request.checkpoint = checkpoint;
    request.job_seed = 3;  // as SendCreate
    request.shards = std::move(shards);
    return ps_->SendLoad(std::move(request));
  }
  std::vector<int64_t> Saved(CheckpointId checkpoint, const std::string& name) {
    const std::vector<char>& bytes = files_.checkpoints.at(checkpoint).at(name).bytes;
    std::vector<int64_t> values(bytes.size() / sizeof(int64_t));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  void NextEpoch() {
    ps_->epoch = ps_->epoch.next();
    EXPECT_TRUE(ps_->Done(ps_->SendAttach())->one().ok());
  }

  FakeFiles files_;
  SimClock stopped_clock_;
  std::unique_ptr<Server> ps_;
};

TEST_F(CheckpointTest, HoldsWhatWasThereWhenItWasMarkedWhateverIsCommittedMeanwhile) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    files_.checkpoints.clear();
    ps_ = std::make_unique<Server>(seed, Options());
    ps_->BeginWithRows(7);
    ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {ps_->AddOne(7)}))->one().ok());
    const auto marked = SendSnapshot(kFirst, false);
    ASSERT_TRUE(marked->one().ok()) << marked->one().status();
    EXPECT_FALSE(marked->one()->done);
    const auto later = ps_->SendCommit(2, {ps_->AddOne(7)});
    const auto written = ps_->Done(SendSnapshot(kFirst, true));
    ASSERT_TRUE(written->one().ok()) << written->one().status();
    EXPECT_TRUE(written->one()->done);
    EXPECT_EQ(written->one()->written_bytes, 7 * 16);
    EXPECT_EQ(written->one()->total_bytes, 7 * 16);
    EXPECT_EQ(written->one()->slices.size(), 4u);
    EXPECT_TRUE(later->one().ok());
    EXPECT_EQ(Saved(kFirst, "v1"), std::vector<int64_t>(14, 1));
    EXPECT_EQ(ps_->Sum(1), 28);
  }
}

TEST_F(CheckpointTest, CommitsWaitForTheMemoryOfCopiesAndGoOn) {
  ParameterServerOptions options = Options();
  options.snapshot_buffer_bytes = 1;
  ps_ = std::make_unique<Server>(3, options);
  ps_->BeginWithRows(20);
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  std::vector<AnswersOf<CommitReply>> commits;
  for (uint64_t entry = 1; entry <= 20; ++entry)
    commits.push_back(
        ps_->SendCommit(entry, {Part(WriteOp::kScatterAdd, Key(1), Filled<int64_t>({1, 2}, 1),
                                     {static_cast<int64_t>(entry) - 1})}));
  ps_->executor.RunUntilIdle();
  for (const auto& commit : commits) EXPECT_TRUE(commit->one().ok());
  EXPECT_EQ(Saved(kFirst, "v1"), std::vector<int64_t>(40, 0));
  EXPECT_EQ(ps_->Sum(1), 40);
}

TEST_F(CheckpointTest, TheWriterPausesWhileCommitsComeAndOnlySoLong) {
  TickingClock clock(absl::Milliseconds(5));
  ParameterServerOptions options = Options();
  options.clock = &clock;
  options.snapshot_share = 0.1;
  options.snapshot_pacing = absl::Milliseconds(100);
  ps_ = std::make_unique<Server>(3, options);
  ps_->BeginWithRows(12);
  uint64_t entry = 0;
  bool commits = false;
  std::vector<int64_t> times;  // of the slices, in ms
  std::function<void()> on_slice = [&] {
    files_.while_appending = on_slice;
    times.push_back(absl::ToInt64Milliseconds(ps_->executor.clock().Elapsed()));
    if (commits) ps_->SendCommit(++entry, {ps_->AddOne(12)});
  };
  files_.while_appending = on_slice;
  Save(kFirst);
  ASSERT_EQ(times.size(), 6u);
  EXPECT_EQ(times.back(), times.front()) << "nobody commits";
  times.clear();
  commits = true;
  Save(kSecond);
  ASSERT_EQ(times.size(), 6u);
  for (size_t i = 1; i < times.size(); ++i) times[i] -= times[0];
  times[0] = 0;
  EXPECT_EQ(times, (std::vector<int64_t>{0, 45, 90, 100, 100, 100}))
      << "5 ms are a tenth of the time, until it has paused for 100 ms";
  files_.while_appending = nullptr;
}

TEST_F(CheckpointTest, APauseEndsWhenACommitWaitsForTheMemoryOfCopies) {
  TickingClock clock(absl::Milliseconds(5));
  ParameterServerOptions options = Options();
  options.clock = &clock;
  options.snapshot_buffer_bytes = 1;
  ps_ = std::make_unique<Server>(3, options);
  ps_->BeginWithRows(12);
  uint64_t entry = 0;
  std::vector<absl::Duration> times;  // of the slices
  std::function<void()> on_slice = [&] {
    files_.while_appending = on_slice;
    times.push_back(ps_->executor.clock().Elapsed());
    // The first may begin, and keeps copies. The second waits for them to be written.
    for (int i = 0; i < 2; ++i) ps_->SendCommit(++entry, {ps_->AddOne(12)});
  };
  files_.while_appending = on_slice;
  Save(kFirst);
  ASSERT_EQ(times.size(), 6u);
  EXPECT_EQ(times.back(), times.front()) << "nothing waits while a commit does";
  EXPECT_EQ(ps_->Sum(1), static_cast<int64_t>(entry) * 12 * 2);
  files_.while_appending = nullptr;
}

// Each commit alone may begin, because nothing is kept yet. Both at once would keep twice the
// bound.
TEST_F(CheckpointTest, CommitsThatRunAtOnceShareTheMemoryOfCopies) {
  ParameterServerOptions options = Options();
  options.snapshot_buffer_bytes = 1;
  ps_ = std::make_unique<Server>(3, options);
  ps_->Begin();
  ASSERT_TRUE(ps_->Done(ps_->SendCreate({Spec(Key(1), Shape{20, 2}), Spec(Key(2), Shape{20, 2})}))
                  ->one()
                  .ok());
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  const auto first = ps_->SendCommit(1, {ps_->AddOne(20, 1)}),
             second = ps_->SendCommit(2, {ps_->AddOne(20, 2)});
  size_t most = 0;
  while (ps_->executor.RunOne()) most = std::max(most, ps_->core->Inspect().running);
  EXPECT_EQ(most, 1u);
  EXPECT_TRUE(first->one().ok());
  EXPECT_TRUE(second->one().ok());
  EXPECT_EQ(Saved(kFirst, "v2"), std::vector<int64_t>(40, 0));
}

TEST_F(CheckpointTest, AskedAgainItTellsTheSameAndWritesNothing) {
  ps_->BeginWithRows(3);
  ASSERT_TRUE(Save()->one().ok());
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {ps_->AddOne(3)}))->one().ok());
  const auto again = ps_->Done(SendSnapshot(kFirst, false));
  ASSERT_TRUE(again->one().ok());
  EXPECT_TRUE(again->one()->done);
  EXPECT_EQ(Saved(kFirst, "v1"), std::vector<int64_t>(6, 0));
}

TEST_F(CheckpointTest, WaitsForNoLongerThanHalfASecondAndThenSaysHowFarItIs) {
  ps_->BeginWithRows(100);
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  const auto waiting = SendSnapshot(kFirst, true);
  EXPECT_FALSE(waiting->answered());
  ps_->executor.RunUntilIdle();
  EXPECT_TRUE(waiting->one()->done);
}

TEST_F(CheckpointTest, IsRefusedWhileCommitsRunAndWhenALaterOneWasAskedFor) {
  ps_->BeginWithRows(10);
  const auto commit = ps_->SendCommit(1, {ps_->AddOne(10)});
  ps_->RunIntoACommit();
  EXPECT_EQ(SendSnapshot(kFirst, false)->reason(), Reason::kNotReady);
  ps_->executor.RunUntilIdle();
  ASSERT_TRUE(Save(kSecond)->one().ok());
  EXPECT_EQ(SendSnapshot(kFirst, false)->reason(), Reason::kInvalid);
}

TEST_F(CheckpointTest, ADiskThatFailsFailsThisCheckpointAndNotTheNext) {
  ps_->BeginWithRows(10);
  files_.append_error = absl::ResourceExhaustedError("no space");
  EXPECT_TRUE(SendSnapshot(kFirst, false)->one().ok()) << "marked: nothing has been written yet";
  EXPECT_EQ(ps_->Done(SendSnapshot(kFirst, true))->reason(), Reason::kDisk);
  EXPECT_EQ(ps_->Done(SendSnapshot(kFirst, true))->reason(), Reason::kDisk)
      << "the part has failed for good";
  files_.append_error = absl::OkStatus();
  EXPECT_TRUE(Save(kSecond)->one().ok());
}

TEST_F(CheckpointTest, WithoutADirectoryEveryTaskIsNamedWhatItLacks) {
  ParameterServerOptions options = Server::SmallBlocks();
  ps_ = std::make_unique<Server>(1, options);
  ps_->BeginWithRows(1);
  const auto refused = SendSnapshot(kFirst, false);
  EXPECT_EQ(refused->reason(), Reason::kDisk);
  EXPECT_NE(refused->one().status().message().find("--checkpoint_dir"), absl::string_view::npos);
}

TEST_F(CheckpointTest, AnotherEpochGivesASnapshotUpAndFreezesTheState) {
  ps_->BeginWithRows(10);
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  const auto waiting = SendSnapshot(kFirst, true);
  NextEpoch();
  EXPECT_EQ(waiting->reason(), Reason::kNotReady);
  EXPECT_EQ(ps_->core->Inspect().state, PsState::kFrozen);
}

TEST_F(CheckpointTest, AnotherEpochAnswersWhoWaitsForASlowDiskOnce) {
  ps_->BeginWithRows(10);
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  const auto waiting = SendSnapshot(kFirst, true);
  files_.while_appending = [this] {
    ps_->epoch = ps_->epoch.next();
    ps_->SendAttach();
    // Also the answer that was due after half a second.
    ps_->executor.RunFor(absl::Seconds(1));
  };
  ps_->executor.RunUntilIdle();
  EXPECT_EQ(waiting->reason(), Reason::kNotReady);
}

TEST_F(CheckpointTest, CommitsThatWaitForTheMemoryOfCopiesAreRefusedByAnotherEpoch) {
  ParameterServerOptions options = Options();
  options.snapshot_buffer_bytes = 1;
  ps_ = std::make_unique<Server>(3, options);
  ps_->BeginWithRows(20);
  ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
  AnswersOf<CommitReply> waits;
  files_.while_appending = [&] {
    ps_->Done(ps_->SendCommit(1, {ps_->AddOne(20)}));
    waits = ps_->SendCommit(2, {ps_->AddOne(20)});
    ps_->executor.RunFor(absl::Seconds(1));
    EXPECT_FALSE(waits->answered());
    ps_->epoch = ps_->epoch.next();
    ps_->SendAttach();
    EXPECT_EQ(waits->reason(), Reason::kStaleEpoch);
  };
  ps_->executor.RunUntilIdle();
  EXPECT_EQ(ps_->core->Inspect().queued, 0u);
}

TEST_F(CheckpointTest, LoadsItsOwnRowsOfWhatOthersCutOtherwise) {
  ps_->BeginWithRows(10);
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {Part(WriteOp::kScatterAdd, Key(1),
                                                 *Tensor::Copy<int64_t>({3, 2}, {1, 2, 3, 4, 5, 6}),
                                                 {0, 4, 9})}))
                  ->one()
                  .ok());
  ASSERT_TRUE(Save()->one().ok());
  NextEpoch();
  ShardSpec middle = Spec(Key(8), Shape{3, 2});
  middle.name = "v1";
  middle.full_shape = Shape{10, 2};
  middle.first_row = 3;
  const auto loaded = ps_->Done(SendLoad(kFirst, {middle}));
  ASSERT_TRUE(loaded->one().ok()) << loaded->one().status();
  EXPECT_FALSE(loaded->one()->loading);
  EXPECT_EQ(loaded->one()->total_bytes, 3 * 16);
  EXPECT_EQ(loaded->one()->loaded_bytes, loaded->one()->total_bytes);
  const ParameterServerSnapshot now = ps_->core->Inspect();
  EXPECT_EQ(now.state, PsState::kReady);
  EXPECT_EQ(now.lineage, ps_->epoch);
  ASSERT_EQ(now.shards.size(), 1u);
  EXPECT_EQ(ValuesOf<int64_t>(now.shards.at(Key(8)).value),
            std::vector<int64_t>({0, 0, 3, 4, 0, 0}));
  EXPECT_EQ(now.memory_bytes, 3 * 16);
}

TEST_F(CheckpointTest, WhatCannotBeLoadedLeavesItEmptyAndAnotherMayBeTried) {
  ps_->BeginWithRows(4);
  ASSERT_TRUE(Save()->one().ok());
  NextEpoch();
  EXPECT_EQ(ps_->Done(SendLoad(kSecond, {Spec(Key(1), Shape{4, 2})}))->reason(),
            Reason::kCheckpointMissing);
  files_.read_error = absl::DataLossError("a bit is wrong");
  EXPECT_EQ(ps_->Done(SendLoad(kFirst, {Spec(Key(1), Shape{4, 2})}))->reason(),
            Reason::kCheckpointCorrupt);
  files_.read_error = absl::UnavailableError("cannot read it: the device failed (EIO)");
  EXPECT_EQ(ps_->Done(SendLoad(kFirst, {Spec(Key(1), Shape{4, 2})}))->reason(), Reason::kNotReady)
      << "not damaged: the coordinator asks again";
  EXPECT_EQ(ps_->core->Inspect().state, PsState::kEmpty);
  EXPECT_EQ(ps_->core->Inspect().memory_bytes, 0);
  files_.read_error = absl::OkStatus();
  EXPECT_TRUE(ps_->Done(SendLoad(kFirst, {Spec(Key(1), Shape{4, 2})}))->one().ok());
}

TEST_F(CheckpointTest, WhileItLoadsNothingElseIsDoneAndAnotherEpochEndsIt) {
  ps_->BeginWithRows(40);
  ASSERT_TRUE(Save()->one().ok());
  NextEpoch();
  const auto loading = SendLoad(kFirst, {Spec(Key(1), Shape{40, 2})});
  EXPECT_EQ(ps_->core->Inspect().state, PsState::kLoading);
  EXPECT_EQ(ps_->SendPull({{Key(1), {}}})->reason(), Reason::kNotReady);
  EXPECT_EQ(SendLoad(kSecond, {})->reason(), Reason::kInvalid);
  NextEpoch();
  EXPECT_EQ(loading->reason(), Reason::kNotReady);
  EXPECT_EQ(ps_->core->Inspect().state, PsState::kEmpty);
}

TEST_F(CheckpointTest, WhatDoesNotFitIntoMemoryIsRefusedBeforeItIsRead) {
  ParameterServerOptions options = Options();
  options.memory_limit_bytes = 100;
  ps_ = std::make_unique<Server>(1, options);
  ps_->BeginWithRows(4);
  ASSERT_TRUE(Save()->one().ok());
  NextEpoch();
  EXPECT_EQ(ps_->Done(SendLoad(kFirst, {Spec(Key(1), Shape{400, 2})}))->reason(),
            Reason::kMemoryLimit);
  EXPECT_EQ(ps_->core->Inspect().state, PsState::kEmpty);
}

TEST(ThreadsTest, ManyClientsAtOnceGiveExactSums) {
  constexpr int kClients = 6, kCommits = 40;
  constexpr int64_t kRows = 64;
  ThreadPoolExecutor executor(4);
  ParameterServerOptions options = Server::SmallBlocks(64);
  options.incarnation = kPs;
  options.address = "embedded:ps/0";
  auto core = *ParameterServerCore::Start(options, executor, nullptr, nullptr);
  const Fence fence{kJob, Epoch(1), kCoordinator, SessionId(0), kPs};
  Mutex mu;
  CondVar changed;
  int waiting = 0;
  int failures = 0;
  const auto begin = [&] {
    MutexLock lock(mu);
    ++waiting;
  };
  const auto end = [&](bool ok) {
    MutexLock lock(mu);
    --waiting;
    failures += ok ? 0 : 1;
    changed.NotifyAll();
  };
  const auto wait = [&] {
    MutexLock lock(mu);
    changed.Wait(mu, [&] { return waiting == 0; });
  };
  const auto done = [&](auto reply) { end(reply.ok()); };
  begin(), core->Call(PsAttachRequest{fence}, done), wait();
  begin(),
      core->Call(LoadRequest{fence, LoadRequest::From::kEmpty, Epoch(), 0, 0, {}, {}, 0, {}}, done),
      wait();
  begin(),
      core->Call(
          CreateShardsRequest{
              fence, 1, 1, 0, {Spec(Key(1), Shape{kRows, 2}), Spec(Key(2), Shape{kRows, 2})}},
          done),
      wait();
  for (int client = 0; client < kClients; ++client) {
    begin();
    executor.PostBlocking("client", [&, client] {
      for (int i = 0; i < kCommits; ++i) {
        CommitRequest request;
        request.fence = fence;
        request.entry = EntryId(static_cast<uint64_t>(client * kCommits + i + 1));
        request.parts = {
            Part(WriteOp::kAdd, Key(1), Filled<int64_t>({kRows, 2}, 1)),
            Part(WriteOp::kScatterAdd, Key(2), Filled<int64_t>({2, 2}, 1), {0, kRows - 1})};
        for (int copy = 0; copy < 2; ++copy) begin(), core->Call(request, done);
        begin(), core->Call(
                     PullRequest{fence, {{Key(1), {}}, {Key(2), Tensor::Vector<int64_t>({0, 5})}}},
                     done);
        begin(), core->Call(SyncRequest{fence, static_cast<uint64_t>(i + 1), {}, {}, {}, {}}, done);
        if (i % 8 == 0) core->Inspect();
      }
      end(true);
    });
  }
  wait();
  EXPECT_EQ(failures, 0);
  const ParameterServerSnapshot now = core->Inspect();
  for (int64_t value : ValuesOf<int64_t>(now.shards.at(Key(1)).value))
    EXPECT_EQ(value, kClients * kCommits);
  EXPECT_EQ(ValuesOf<int64_t>(now.shards.at(Key(2)).value)[0], kClients * kCommits);
  EXPECT_EQ(now.applied_seq, uint64_t{kClients * kCommits});
  executor.Stop();
}

// ---- tables -------------------------------------------------------------------------------------

constexpr int64_t kWidth = 3;
const Adagrad kAdagrad{0.1};

// Buckets [first, end) of a table, as part number `part`.
ShardSpec TableSpec(int part, int64_t first, int64_t end, TableOptions options = {},
                    DType dtype = DType::kFloat32) {
  ShardSpec spec = Spec(Key(1, 0, part), Shape{end - first, kWidth}, dtype, RandomNormal{0, 0.1f});
  spec.full_shape = {kTableBuckets, kWidth};
  spec.first_row = first;
  spec.table = options;
  spec.optimizer = kAdagrad;
  return spec;
}

std::vector<int64_t> InOrder(std::vector<int64_t> keys) {
  std::sort(keys.begin(), keys.end(), [](int64_t a, int64_t b) { return KeyRank(a) < KeyRank(b); });
  return keys;
}
std::vector<int64_t> Keys(int64_t n) {
  std::vector<int64_t> keys = {0, -1, std::numeric_limits<int64_t>::min(),
                               std::numeric_limits<int64_t>::max()};
  for (int64_t i = 4; i < n; ++i) keys.push_back(i << 20);  // equal low bits
  return InOrder(keys);
}

CommitPart Gradients(const std::vector<int64_t>& keys, float value = 1, int part = 0) {
  CommitPart commit = Part(WriteOp::kGradient, Key(1, 0, part),
                           Filled<float>({static_cast<int64_t>(keys.size()), kWidth}, value), keys);
  commit.optimizer = StepOf(kAdagrad, 0);
  return commit;
}

class TableTest : public CheckpointTest {
 protected:
  void Begin(std::vector<ShardSpec> specs) {
    ps_->Begin();
    ASSERT_TRUE(ps_->Done(ps_->SendCreate(std::move(specs)))->one().ok());
  }
  std::vector<float> Pull(const std::vector<int64_t>& keys, int part = 0) {
    const auto reply = ps_->Done(ps_->SendPull({{Key(1, 0, part), Tensor::Vector<int64_t>(keys)}}));
    EXPECT_TRUE(reply->one().ok()) << reply->one().status();
    return reply->one().ok() ? ValuesOf<float>(reply->one()->parts[0].values)
                             : std::vector<float>();
  }
};

TEST_F(TableTest, ACommitMakesRowsAndAPullMakesNone) {
  Begin({TableSpec(0, 0, kTableBuckets, {AdmitAfter{2}})});
  const std::vector<int64_t> keys = Keys(50);
  const std::vector<float> initial = Pull(keys);
  EXPECT_NE(initial[0], initial[kWidth]) << "each key has its own initial value";
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {Gradients(keys)}))->one().ok());
  EXPECT_EQ(Pull(keys), initial) << "named once, so no key is admitted";
  for (int i = 0; i < 3; ++i) {
    // The same entry counts once.
    ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {Gradients(keys)}))->one().ok());
    EXPECT_EQ(Pull(keys), initial);
  }
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(2, {Gradients(keys)}))->one().ok());
  const std::vector<float> after = Pull(keys);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_LT(after[i], initial[i]);
}

// X20: what counts is the finished step that named the key, and not how often it wrote to it.
TEST_F(TableTest, AStepThatWritesTwiceToAKeyCountsOnce) {
  Begin({TableSpec(0, 0, kTableBuckets, {AdmitAfter{3}})});
  const std::vector<int64_t> keys = Keys(50), some = InOrder({keys[3], keys[7], keys[40]});
  const std::vector<float> initial = Pull(keys);
  const CommitPart add = Part(WriteOp::kScatterAdd, Key(1), Filled<float>({3, kWidth}, 1), some);
  for (uint64_t entry = 1; entry <= 2; ++entry) {
    ASSERT_EQ(ps_->CommitReason(entry, {Gradients(some), Gradients(keys), add}), Reason::kNone);
    EXPECT_EQ(Pull(keys), initial) << "two steps have named them, and not six";
  }
  // The third step applies all that it writes, in the given order.
  ASSERT_EQ(ps_->CommitReason(3, {Gradients(some), Gradients(keys), add}), Reason::kNone);
  const std::vector<float> after = Pull(keys);
  for (size_t i = 0; i < keys.size(); ++i) {
    const bool has_more = std::count(some.begin(), some.end(), keys[i]) > 0;
    for (size_t j = i * kWidth; j < (i + 1) * kWidth; ++j)
      EXPECT_EQ(after[j] > initial[j], has_more) << keys[i];
  }
}

// The values of a large row arrive in pieces, and are applied piece by piece.
TEST_F(TableTest, AFullPartEvictsNoKeyOfTheStepWhereverItIsNamed) {
  constexpr int64_t kWide = 16'384;
  std::vector<int64_t> keys;  // of bucket 0
  for (int64_t key = 0; keys.size() < 4; ++key) {
    if (BucketOf(MixKey(key)) == 0) keys.push_back(key);
  }
  keys = InOrder(keys);
  const auto rows_after = [&](int64_t max_rows) {
    ps_ = std::make_unique<Server>(1, Options());
    ShardSpec spec = TableSpec(0, 0, 1, {AdmitAlways(), {}, {}, max_rows});
    if (max_rows > 0) spec.table->eviction = EvictLeastRecent();
    spec.shape = {1, kWide};
    spec.full_shape = {kTableBuckets, kWide};
    Begin({spec});
    const auto gradients = [&](const std::vector<int64_t>& named) {
      CommitPart part = Gradients(named);
      const Tensor values = Filled<float>({static_cast<int64_t>(named.size()), kWide}, 1);
      auto arrived = std::make_shared<ScatteredTensor>(values.dtype(), values.shape());
      arrived->Add(
          absl::string_view(values.data_as<char>(), static_cast<size_t>(values.size_bytes())),
          std::make_shared<Tensor>(values));
      part.values = Tensor();
      part.arrived = std::move(arrived);
      return part;
    };
    uint32_t tick = 0;
    // keys[3] is the least recent one when the last step needs room for keys[0].
    for (const std::vector<int64_t>& named :
         {std::vector<int64_t>{keys[3]}, {keys[1], keys[2]}, {keys[0], keys[3]}}) {
      CommitRequest commit;
      commit.fence = ps_->fence();
      commit.tick = ++tick;
      commit.entry = EntryId(tick);
      commit.parts = {gradients(named)};
      const auto done = ps_->Done(ps_->Send(commit));
      EXPECT_TRUE(done->one().ok()) << done->one().status();
    }
    return Pull({keys[3]});
  };
  EXPECT_EQ(rows_after(3 * kTableBuckets), rows_after(0)) << "the row of keys[3] has stayed";
}

// bfloat16 rows travel as they are stored. Others are read exactly, so not as bfloat16.
TEST_F(TableTest, RowsStoredAsHalvesAreReadAsFloats) {
  const std::vector<int64_t> keys = Keys(60);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16}) {
    SCOPED_TRACE(DTypeName(dtype));
    ps_ = std::make_unique<Server>(1, Options());
    Begin({TableSpec(0, 0, kTableBuckets, {}, dtype)});
    for (uint64_t entry = 1; entry <= 5; ++entry)
      ASSERT_EQ(ps_->CommitReason(entry, {Gradients(keys, 0.3f)}), Reason::kNone);
    const std::vector<float> floats = Pull(keys);
    ASSERT_EQ(floats.size(), keys.size() * kWidth);
    PullPart half{Key(1), Tensor::Vector<int64_t>(keys)};
    half.as_bfloat16 = true;
    const auto reply = ps_->Done(ps_->SendPull({half}));
    if (dtype != DType::kBFloat16) {
      EXPECT_EQ(reply->reason(), Reason::kInvalid);
      continue;
    }
    ASSERT_TRUE(reply->one().ok()) << reply->one().status();
    const Tensor& values = reply->one()->parts[0].values;
    ASSERT_EQ(values.dtype(), DType::kBFloat16);
    for (size_t i = 0; i < floats.size(); ++i)
      EXPECT_EQ(values.data_as<BFloat16Bits>()[i].ToFloat(), floats[i]);
  }
  // A gradient is float32 whatever the table stores.
  CommitPart half = Gradients(keys);
  half.values = *Tensor::Zeros(DType::kBFloat16, half.values.shape());
  EXPECT_EQ(ps_->CommitReason(9, {half}), Reason::kBadCommit);
}

TEST_F(TableTest, ARestoreReadsEachKeyOnce) {
  Begin({TableSpec(0, 0, kTableBuckets)});
  ASSERT_EQ(ps_->CommitReason(1, {Gradients(Keys(400))}), Reason::kNone);
  ASSERT_TRUE(ps_->Done(SendSnapshot(kFirst, true))->one().ok());
  NextEpoch();
  ASSERT_TRUE(ps_->Done(SendLoad(kFirst, {TableSpec(0, 0, kTableBuckets)}))->one().ok());
  const int64_t bytes = 400 * static_cast<int64_t>(sizeof(int64_t));
  EXPECT_GE(files_.read_bytes["v1-keys"], bytes);
  EXPECT_LE(files_.read_bytes["v1-keys"], bytes + 200) << "and some to find the first one";
}

// A row is a key, a count and a minute of 8 bytes each, 3 values and their 3 slots.
TEST_F(TableTest, TheBytesOfACheckpointAreThoseOfTheRowsThatThereAre) {
  constexpr int64_t kRowBytes = 3 * 8 + 2 * kWidth * 4, kHalf = kTableBuckets / 2;
  Begin({TableSpec(0, 0, kTableBuckets)});
  ASSERT_EQ(ps_->CommitReason(1, {Gradients(Keys(400))}), Reason::kNone);
  const auto marked = SendSnapshot(kFirst, false);
  ASSERT_TRUE(marked->one().ok()) << marked->one().status();
  EXPECT_EQ(marked->one()->written_bytes, 0);
  EXPECT_EQ(marked->one()->total_bytes, 400 * kRowBytes);
  const auto later = ps_->SendCommit(2, {Gradients(InOrder({1, 2, 3}))});
  const auto written = ps_->Done(SendSnapshot(kFirst, true));
  ASSERT_TRUE(written->one().ok()) << written->one().status();
  EXPECT_EQ(written->one()->written_bytes, 400 * kRowBytes);
  EXPECT_EQ(written->one()->total_bytes, 400 * kRowBytes);
  int64_t rows = 0;
  for (const int part : {0, 1}) {
    NextEpoch();
    const auto loaded =
        ps_->Done(SendLoad(kFirst, {TableSpec(part, part * kHalf, (part + 1) * kHalf)}));
    ASSERT_TRUE(loaded->one().ok()) << loaded->one().status();
    EXPECT_GT(loaded->one()->total_bytes, 0);
    EXPECT_EQ(loaded->one()->loaded_bytes, loaded->one()->total_bytes);
    EXPECT_EQ(loaded->one()->total_bytes % kRowBytes, 0);
    rows += loaded->one()->total_bytes / kRowBytes;
  }
  EXPECT_EQ(rows, 400);
}

// Two servers read a checkpoint in which keys stand where they do not belong, or twice. No row may
// be lost in silence: one of them says so.
TEST_F(TableTest, ACheckpointWhoseKeysAreNotInOrderIsRefused) {
  constexpr int64_t kHalf = kTableBuckets / 2;
  Begin({TableSpec(0, 0, kTableBuckets)});
  ASSERT_EQ(ps_->CommitReason(1, {Gradients(Keys(100))}), Reason::kNone);
  ASSERT_TRUE(ps_->Done(SendSnapshot(kFirst, true))->one().ok());
  std::vector<char>& bytes = files_.checkpoints.at(kFirst).at("v1-keys").bytes;
  const std::vector<char> right = bytes;
  const auto keys = [&bytes](size_t i) { return bytes.begin() + static_cast<int64_t>(i) * 8; };
  Random random(3);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    bytes = right;
    const size_t a = random.Below(100), b = random.Below(100);
    if (a == b) continue;
    if (i % 2 == 0)
      std::swap_ranges(keys(a), keys(a) + 8, keys(b));
    else
      std::copy(keys(b), keys(b) + 8, keys(a));  // it is there twice
    int refused = 0;
    for (const int part : {0, 1}) {
      NextEpoch();
      const absl::Status status =
          ps_->Done(SendLoad(kFirst, {TableSpec(part, part * kHalf, (part + 1) * kHalf)}))
              ->one()
              .status();
      refused += !status.ok();
    }
    EXPECT_GT(refused, 0) << a << " " << b;
  }
}

TEST_F(TableTest, AnAssignmentGivesKeysTheirRowsAndCounts) {
  Begin({TableSpec(0, 0, kTableBuckets, {AdmitAfter{5}})});
  const std::vector<int64_t> keys = Keys(50);
  const auto n = static_cast<int64_t>(keys.size());
  const CommitPart rows = Part(WriteOp::kAssign, Key(1), Filled<float>({n, kWidth}, 7), keys),
                   counts = Part(WriteOp::kAssign, Key(1), Filled<int64_t>({n}, 40), keys);
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {rows, counts}))->one().ok());
  EXPECT_EQ(Pull(keys), std::vector<float>(keys.size() * kWidth, 7));
}

TEST_F(TableTest, WhatATableDoesNotTakeIsRefusedAndChangesNothing) {
  Begin({TableSpec(0, 0, kTableBuckets / 2)});
  std::vector<int64_t> keys, others;
  for (const int64_t key : Keys(50))
    (BucketOf(MixKey(key)) < kTableBuckets / 2 ? keys : others).push_back(key);
  const uint64_t before = ps_->core->StateHash();
  std::vector<int64_t> twice = {keys[0], keys[0]}, falling = {keys[1], keys[0]};
  CommitPart of_sgd = Gradients(keys);
  of_sgd.optimizer = StepOf(Sgd{0.1}, 0);
  CommitPart no_rows = Gradients(keys);
  no_rows.rows.reset();
  CommitPart narrow = Gradients(keys);
  narrow.values = Filled<float>({static_cast<int64_t>(keys.size()), kWidth - 1}, 1);
  const std::vector<CommitPart> bad = {
      Gradients(twice),
      Gradients(falling),
      Gradients(others),
      of_sgd,
      no_rows,
      narrow,
      Part(WriteOp::kAssign, Key(1), Filled<float>({kTableBuckets / 2, kWidth}, 1)),
      Part(WriteOp::kAssign, Key(1), Filled<float>({2, kWidth - 1}, 1), {keys[0], keys[1]}),
      Part(WriteOp::kAssign, Key(1), Filled<int64_t>({2, 1}, 1), {keys[0], keys[1]}),
      Part(WriteOp::kAssign, Key(1), Filled<int64_t>({1}, 1), {keys[0], keys[1]}),
      Part(WriteOp::kAssign, Key(1), Filled<int32_t>({1}, 1), {keys[0]}),
      Part(WriteOp::kScatterUpdate, Key(1), Filled<int64_t>({1}, 1), {keys[0]}),
      Part(WriteOp::kEvict, Key(1), Tensor(), {5, 0, kTableBuckets}),
      Part(WriteOp::kEvict, Key(1), Tensor(), {-5, 0, 7})};
  for (size_t i = 0; i < bad.size(); ++i)
    EXPECT_EQ(ps_->CommitReason(i + 1, {bad[i]}), Reason::kBadCommit) << i;
  for (const PullPart& pull :
       {PullPart{Key(1), std::nullopt}, PullPart{Key(1), Tensor::Vector<int64_t>(others)},
        PullPart{Key(1), Tensor::Vector<int64_t>(twice)}})
    EXPECT_EQ(ps_->Done(ps_->SendPull({pull}))->reason(), Reason::kInvalid);
  EXPECT_EQ(ps_->core->StateHash(), before);
  ShardSpec of_int = TableSpec(1, kTableBuckets / 2, kTableBuckets);
  of_int.dtype = DType::kInt64;
  of_int.initializer = Zeros();
  EXPECT_EQ(ps_->Done(ps_->SendCreate({of_int}))->reason(), Reason::kInvalid);
}

// Each history has three commits to one shard, so only the rows tell them apart.
TEST_F(TableTest, TheStateThatTestsLookAtHasTheRows) {
  struct Named {
    std::vector<int64_t> keys;
    uint32_t tick = 7;
    float gradient = 1;
  };
  const auto state_after = [&](std::vector<Named> steps) {
    ps_ = std::make_unique<Server>(1, Options());
    Begin({TableSpec(0, 0, kTableBuckets, {AdmitAfter{2}, EvictUnusedFor{absl::Minutes(1)}})});
    uint64_t entry = 0;
    for (const Named& step : steps) {
      CommitRequest commit;
      commit.fence = ps_->fence();
      commit.entry = EntryId(++entry);
      commit.tick = step.tick;
      commit.parts = {Gradients(step.keys, step.gradient)};
      EXPECT_TRUE(ps_->Done(ps_->Send(commit))->one().ok());
      const uint64_t once = ps_->core->StateHash();
      EXPECT_TRUE(ps_->Done(ps_->Send(commit))->one()->duplicate);
      EXPECT_EQ(ps_->core->StateHash(), once);
    }
    return ps_->core->StateHash();
  };
  const std::vector<int64_t> one = {1}, two = {2};
  std::vector<uint64_t> states = {
      state_after({{one}, {one}, {one}}),       state_after({{two}, {two}, {two}}),
      state_after({{one}, {one}, {two}}),       state_after({{one}, {one}, {one, 8}}),
      state_after({{one}, {one}, {one, 7, 2}}), state_after({{two}, {one}, {one}})};
  EXPECT_EQ(states[2], states[5]) << "the same rows, whatever the order of the steps";
  states.pop_back();
  std::sort(states.begin(), states.end());
  EXPECT_EQ(std::unique(states.begin(), states.end()), states.end());

  state_after({{one, 5}, {one, 4}, {two, 9}});
  const TableImage rows = *ps_->core->Inspect().shards.at(Key(1)).rows;
  EXPECT_EQ(rows.keys, one);
  EXPECT_EQ(rows.counts, std::vector<int64_t>{2});
  EXPECT_EQ(rows.ticks, std::vector<int64_t>{5});
  std::vector<float> values(rows.values.size() / sizeof(float));
  std::memcpy(values.data(), rows.values.data(), rows.values.size());
  EXPECT_EQ(values, Pull(one));
  EXPECT_EQ(rows.waiting.keys, two);
  EXPECT_EQ(rows.waiting.ticks, std::vector<int64_t>{9});
  EXPECT_FALSE(
      ps_->core->Inspect(ParameterServerCore::Detail::kWithoutValues).shards.at(Key(1)).rows);
}

Tensor Int64s(const std::vector<int64_t>& values) { return Tensor::Vector<int64_t>(values); }

PullPart Asking(PullWant want, std::optional<Tensor> keys, int part = 0) {
  PullPart pull{Key(1, 0, part), std::move(keys)};
  pull.want = want;
  return pull;
}

TEST_F(TableTest, TellsTheRecordsOfKeysAndItsStatistics) {
  TableOptions options;
  options.max_rows = 30;
  Begin({TableSpec(0, 0, kTableBuckets, options)});
  const std::vector<int64_t> keys = Keys(20), some = InOrder({keys[2], keys[7]});
  CommitRequest commit;
  commit.fence = ps_->fence();
  for (const uint64_t entry : {1, 2, 2}) {  // an attempt that comes twice counts once
    commit.entry = EntryId(entry);
    commit.tick = static_cast<uint32_t>(100 * entry);
    commit.parts = {Gradients(entry == 1 ? keys : some)};
    ASSERT_TRUE(ps_->Done(ps_->Send(commit))->one().ok());
  }
  std::vector<int64_t> asked = Keys(40);
  const std::vector<PullPart> parts = {Asking(PullWant::kValues, Int64s(asked)),
                                       Asking(PullWant::kRecords, Int64s(asked)),
                                       Asking(PullWant::kStats, std::nullopt)};
  EXPECT_EQ(ps_->core->PullReplyBytes({ps_->fence(), parts}), 40 * kWidth * 4 + 40 * 16 + 48);
  const auto reply = ps_->Done(ps_->SendPull(parts));
  ASSERT_TRUE(reply->one().ok()) << reply->one().status();
  const Tensor &records = reply->one()->parts[1].values, &stats = reply->one()->parts[2].values;
  ASSERT_EQ(records.shape(), (Shape{40, 2}));
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto has = [&](const std::vector<int64_t>& all) {
      return std::find(all.begin(), all.end(), asked[i]) != all.end();
    };
    const int64_t count = has(some) ? 2 : has(keys) ? 1 : -1;
    EXPECT_EQ(ValuesOf<int64_t>(records)[2 * i], count) << asked[i];
    EXPECT_EQ(ValuesOf<int64_t>(records)[2 * i + 1], std::max<int64_t>(0, count) * 100);
  }
  ASSERT_EQ(stats.shape(), (Shape{1, 6}));
  // rows, waiting, bytes, admitted, refused, evicted
  EXPECT_THAT(ValuesOf<int64_t>(stats), ElementsAre(20, 0, Gt(20 * kWidth * 4), 20, 0, 0));

  // A full table counts what it refuses, and every answer to a Sync has these numbers.
  std::vector<int64_t> many;
  for (int64_t key = 1000; key < 1100; ++key) many.push_back(key);
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(3, {Gradients(InOrder(many))}))->one().ok());
  const auto synced = ps_->Done(ps_->SendSync(1, {}));
  ASSERT_TRUE(synced->one().ok());
  ASSERT_EQ(synced->one()->tables.size(), 1u);
  EXPECT_EQ(synced->one()->tables[0].shard, Key(1));
  const TablePartStats told = synced->one()->tables[0].stats;
  EXPECT_EQ(told.rows, 30);
  EXPECT_EQ(told.admitted, 30);
  EXPECT_EQ(told.refused, 90);
  EXPECT_EQ(ps_->core->Inspect().tables.at("v1"), told);
  EXPECT_EQ(ps_->core->PartsOfTable("v1").size(), 1u);
  EXPECT_TRUE(ps_->core->PartsOfTable("v2").empty());
}

TEST_F(TableTest, WhatHasNoRecordsOrStatisticsSaysSo) {
  Begin({TableSpec(0, 0, kTableBuckets), Spec(Key(2), Shape{3, 2})});
  PullPart plain_records{Key(2), Int64s({0})}, plain_stats{Key(2), std::nullopt};
  plain_records.want = PullWant::kRecords;
  plain_stats.want = PullWant::kStats;
  PullPart rounded = Asking(PullWant::kRecords, Int64s({1}));
  rounded.as_bfloat16 = true;
  const std::vector<std::vector<PullPart>> bad = {
      {plain_records},
      {plain_stats},
      {rounded},
      {Asking(PullWant::kStats, Int64s({1}))},
      {Asking(PullWant::kRecords, std::nullopt)},
      {Asking(PullWant::kRecords, Int64s({1, 1}))},
      {Asking(PullWant::kStats, std::nullopt), Asking(PullWant::kStats, std::nullopt)}};
  for (size_t i = 0; i < bad.size(); ++i)
    EXPECT_EQ(ps_->Done(ps_->SendPull(bad[i]))->reason(), Reason::kInvalid) << i;
  EXPECT_THAT(std::string(ps_->Done(ps_->SendPull({plain_records}))->one().status().message()),
              HasSubstr("only a dynamic table has records"));
}

TEST_F(TableTest, TakesOtherOptionsAndKeepsItsRows) {
  TableOptions options;
  options.max_rows = 10;
  Begin({TableSpec(0, 0, kTableBuckets, options)});
  const std::vector<int64_t> keys = Keys(30);
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(1, {Gradients(keys)}))->one().ok());
  const auto stats = [&] { return ps_->core->Inspect().tables.at("v1"); };
  EXPECT_EQ(stats().rows, 10);
  EXPECT_EQ(stats().refused, 20);
  options.max_rows = 25;
  options.eviction = EvictUnusedFor{absl::Minutes(10)};
  for (int i = 0; i < 2; ++i)  // a repeated request does nothing
    ASSERT_TRUE(
        ps_->Done(ps_->SendCreate({TableSpec(0, 0, kTableBuckets, options)}, 2))->one().ok());
  EXPECT_EQ(stats().rows, 10);
  EXPECT_EQ(stats().refused, 0) << "these were refused by other options";
  ASSERT_TRUE(ps_->Done(ps_->SendCommit(2, {Gradients(keys)}))->one().ok());
  EXPECT_EQ(stats().rows, 25);
  EXPECT_EQ(ps_->CommitReason(3, {Part(WriteOp::kEvict, Key(1), Tensor(), {10, 0, kTableBuckets})}),
            Reason::kNone);
  EXPECT_EQ(stats().rows, 0);
  // What is no option stays as it was made.
  const uint64_t before = ps_->core->StateHash();
  ShardSpec other = TableSpec(0, 0, kTableBuckets, options);
  other.optimizer = Adam{0.1};
  EXPECT_EQ(ps_->Done(ps_->SendCreate({other}, 3))->reason(), Reason::kInvalid);
  options.max_rows = -1;
  EXPECT_EQ(ps_->Done(ps_->SendCreate({TableSpec(0, 0, kTableBuckets, options)}, 3))->reason(),
            Reason::kInvalid);
  EXPECT_EQ(ps_->core->StateHash(), before);
}

// A checkpoint that is being written has the filter of its moment.
TEST_F(TableTest, OtherOptionsDoNotChangeACheckpointThatIsBeingWritten) {
  const TableOptions counting{AdmitAfter{2, 1 << 20}};
  const TableOptions others[] = {{AdmitAlways()}, {AdmitAfter{2}}, {AdmitAfter{2, 2 << 20}}};
  for (const TableOptions& other : others) {
    SCOPED_TRACE(&other - others);
    files_.checkpoints.clear();
    ps_ = std::make_unique<Server>(1, Options());
    Begin({TableSpec(0, 0, kTableBuckets, counting)});
    const std::vector<int64_t> keys = Keys(50);
    const std::vector<float> initial = Pull(keys);
    ASSERT_EQ(ps_->CommitReason(1, {Gradients(keys)}), Reason::kNone);
    ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
    const auto changed = ps_->SendCreate({TableSpec(0, 0, kTableBuckets, other)}, 2);
    ASSERT_TRUE(ps_->Done(SendSnapshot(kFirst, true))->one().ok());
    ASSERT_TRUE(changed->one().ok());
    NextEpoch();
    ASSERT_TRUE(
        ps_->Done(SendLoad(kFirst, {TableSpec(0, 0, kTableBuckets, counting)}))->one().ok());
    EXPECT_EQ(Pull(keys), initial);
    ASSERT_EQ(ps_->CommitReason(2, {Gradients(keys)}), Reason::kNone);
    EXPECT_NE(Pull(keys), initial) << "each was counted once before the checkpoint";
    EXPECT_EQ(ps_->core->Inspect().tables.at("v1").rows, 50);
  }
}

TEST_F(TableTest, AnEvictionForgetsTheRowsThatWereNotUsed) {
  Begin({TableSpec(0, 0, kTableBuckets, {AdmitAlways(), EvictUnusedFor{absl::Minutes(10)}})});
  const std::vector<int64_t> keys = Keys(100), used = {keys[3]};
  const std::vector<float> initial = Pull(keys);
  CommitRequest commit;
  commit.fence = ps_->fence();
  commit.entry = EntryId(1);
  commit.tick = 100;
  commit.parts = {Gradients(keys)};
  ASSERT_TRUE(ps_->Done(ps_->Send(commit))->one().ok());
  commit.entry = EntryId(2);
  commit.tick = 105;
  commit.parts = {Gradients(used)};
  ASSERT_TRUE(ps_->Done(ps_->Send(commit))->one().ok());
  const std::vector<float> before = Pull(keys);
  const auto evict = [&](uint64_t entry, int64_t now, int64_t first, int64_t end) {
    return ps_->CommitReason(entry, {Part(WriteOp::kEvict, Key(1), Tensor(), {now, first, end})});
  };
  EXPECT_EQ(evict(3, 109, 0, kTableBuckets), Reason::kNone);
  EXPECT_EQ(Pull(keys), before);
  EXPECT_EQ(evict(4, 110, 0, kTableBuckets / 2), Reason::kNone);
  EXPECT_EQ(evict(5, 110, kTableBuckets / 2, kTableBuckets), Reason::kNone);
  const std::vector<float> after = Pull(keys);
  for (size_t i = 0; i < keys.size() * kWidth; ++i)
    EXPECT_EQ(after[i], keys[i / kWidth] == used[0] ? before[i] : initial[i]) << i;
}

TEST_F(TableTest, ACheckpointHasTheRowsOfItsMomentAndAnyCutReadsThem) {
  const TableOptions rules[] = {{AdmitAlways()},
                                {AdmitAfter{2}},
                                {AdmitAfter{2, 1 << 20}},
                                {AdmitAlways(), EvictLeastRecent(), {}, 300, {}}};
  const DType dtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};
  for (const TableOptions& rule : rules) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      const DType dtype = dtypes[seed % 3];
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", rule ", &rule - rules, ", ", DTypeName(dtype)));
      files_.checkpoints.clear();
      ps_ = std::make_unique<Server>(seed, Options());
      Begin({TableSpec(0, 0, kTableBuckets, rule, dtype)});
      const std::vector<int64_t> keys = Keys(400), some = Keys(200);
      uint64_t entry = 0;
      for (int i = 0; i < 3; ++i)
        ASSERT_EQ(ps_->CommitReason(++entry, {Gradients(some, 1.0f + i)}), Reason::kNone);
      const std::vector<float> before = Pull(keys);
      ASSERT_TRUE(SendSnapshot(kFirst, false)->one().ok());
      std::vector<AnswersOf<CommitReply>> later;
      for (int i = 0; i < 3; ++i) later.push_back(ps_->SendCommit(++entry, {Gradients(keys)}));
      ASSERT_TRUE(ps_->Done(SendSnapshot(kFirst, true))->one().ok());
      for (const auto& commit : later) EXPECT_TRUE(commit->one().ok());
      EXPECT_NE(Pull(keys), before);
      // One part, then three, then one again.
      NextEpoch();
      const std::vector<std::vector<int64_t>> cuts = {
          {0, kTableBuckets}, {0, 1'000, 40'000, kTableBuckets}, {0, kTableBuckets}};
      for (const std::vector<int64_t>& cut : cuts) {
        std::vector<ShardSpec> specs;
        for (size_t part = 0; part + 1 < cut.size(); ++part)
          specs.push_back(TableSpec(static_cast<int>(part), cut[part], cut[part + 1], rule, dtype));
        const auto loaded = ps_->Done(SendLoad(kFirst, specs));
        ASSERT_TRUE(loaded->one().ok()) << loaded->one().status();
        std::vector<float> read;
        for (size_t part = 0; part + 1 < cut.size(); ++part) {
          std::vector<int64_t> own;
          for (const int64_t key : keys) {
            const int64_t bucket = BucketOf(MixKey(key));
            if (bucket >= cut[part] && bucket < cut[part + 1]) own.push_back(key);
          }
          for (const float value : Pull(own, static_cast<int>(part))) read.push_back(value);
        }
        EXPECT_EQ(read, before);
        NextEpoch();
      }
    }
  }
}

}  // namespace
}  // namespace divvy
