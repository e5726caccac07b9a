#include "coordinator/core/write_queue.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/fake_step_host.h"
#include "coordinator/core/testing/parts_test.h"
#include "gtest/gtest.h"
#include "variables/dynamic_table.h"

namespace divvy {
namespace {

using coordinator_records::DirectWrite;

// A coordinator. The test answers for the parameter servers.
class FakeHost : public WriteQueue::Host, public FakeStepHost {
 public:
  bool MayBeginWrite() const override { return may_begin; }
  EntryId GiveId() override { return FakeStepHost::GiveId(); }
  bool MayHold() const override { return may_hold; }
  void OnWriteBegun(const DirectWrite& write) override { begun.push_back(write.id); }
  void SendCommit(int ps, const std::shared_ptr<DirectWrite>& write) override {
    sent.emplace_back(ps, write);
  }

  bool may_hold = true;
  std::vector<EntryId> begun;
  std::vector<std::pair<int, std::shared_ptr<DirectWrite>>> sent;
};

class WriteQueueTest : public StepsTest<FakeHost> {
 protected:
  WriteQueueTest() : queue_(clock_, outbox_, workers_, steps_, host_) { Advance(absl::Minutes(1)); }
  void BeginStep() {
    steps_.Schedule(
        {"step", Nest()}, [](const absl::StatusOr<Nest>&) {}, [](const absl::Status&) {});
    steps_.DispatchAll();
    ASSERT_FALSE(steps_.open().empty());
  }
  // Makes a write to these servers. The result has the write's status once the write is answered.
  std::shared_ptr<std::optional<absl::Status>> Write(const std::vector<int>& servers) {
    auto answer = std::make_shared<std::optional<absl::Status>>();
    WriteQueue::CommitPlan plan;
    for (const int ps : servers) plan[ps].emplace_back();
    queue_.Add(std::move(plan), [answer](const absl::Status& done) { *answer = done; });
    queue_.Start();
    return answer;
  }
  // Every server answers the writes that were sent to it.
  void Apply() {
    for (const auto& [ps, write] : std::exchange(host_.sent, {})) {
      if (queue_.OnCommitted(ps, *write)) queue_.Answer(*write);
    }
    outbox_.Drain();
  }
  uint64_t Hold() const { return uint64_t{1} << 63 | 1; }

  WriteQueue queue_;
};

TEST_F(WriteQueueTest, WithoutOpenStepsAWriteIsAppliedAtOnceAndAnsweredWhenAllServersHaveIt) {
  const auto write = Write({0, 2});
  ASSERT_EQ(host_.sent.size(), 2u);
  EXPECT_EQ(host_.begun, std::vector<EntryId>{EntryId(1)});
  const std::optional<CommitRequest> request = queue_.RequestFor(2, *host_.sent[1].second);
  ASSERT_TRUE(request);
  EXPECT_EQ(request->participants, 2);
  EXPECT_EQ(request->kind, EntryKind::kWrite);
  EXPECT_FALSE(queue_.OnCommitted(0, *host_.sent[0].second));
  EXPECT_FALSE(*write);
  Apply();
  EXPECT_EQ(*write, absl::OkStatus());
  EXPECT_TRUE(queue_.open().empty());
}

TEST_F(WriteQueueTest, BesideAnOpenStepItWaitsUntilAllWorkersHold) {
  AddWorker(0), AddWorker(1);
  BeginStep();
  Write({0});
  ASSERT_TRUE(queue_.IsHold(Hold()));
  EXPECT_EQ(queue_.WaitsFor()->worker, 0);
  queue_.OnHeld(0);
  queue_.Start();
  EXPECT_TRUE(host_.sent.empty());
  queue_.OnHeld(1);
  queue_.Start();
  EXPECT_EQ(host_.sent.size(), 1u);
  EXPECT_FALSE(queue_.MaybeEndHold()) << "the write is under way";
  Apply();
  EXPECT_TRUE(queue_.MaybeEndHold());
  EXPECT_FALSE(queue_.is_holding());
}

TEST_F(WriteQueueTest, AWriteThatComesWhileOthersAreAppliedWaitsForTheNextHold) {
  AddWorker(0);
  BeginStep();
  Write({0});
  queue_.OnHeld(0);
  queue_.Start();
  Write({0});
  EXPECT_EQ(host_.sent.size(), 1u);
  Apply();
  ASSERT_TRUE(queue_.MaybeEndHold());
  queue_.Start();
  EXPECT_TRUE(queue_.IsHold(Hold() + 1));
}

TEST_F(WriteQueueTest, AHoldThatWorkersDoNotAnswerIsGivenUpAndTriedAgain) {
  Worker& worker = AddWorker(0);
  BeginStep();
  Write({0});
  clock_.AdvanceTo(clock_.Elapsed() + WorkerSet::kLongestHold + absl::Seconds(1));
  queue_.CheckHold(clock_.Elapsed());
  EXPECT_FALSE(queue_.is_holding());
  queue_.Start();
  EXPECT_FALSE(queue_.is_holding()) << "the next hold comes after a pause";
  clock_.AdvanceTo(clock_.Elapsed() + WorkerSet::kTryHoldAgain);
  worker.in_flight[0]->applied = {{0, 2}};
  queue_.Start();
  EXPECT_FALSE(queue_.is_holding()) << "a step is half applied";
  worker.in_flight[0]->applied.clear();
  queue_.Start();
  EXPECT_TRUE(queue_.is_holding());
}

TEST_F(WriteQueueTest, AWorkerThatJoinsIsWaitedForToo) {
  AddWorker(0);
  BeginStep();
  Write({0});
  queue_.HoldIfOthersAre(AddWorker(1));
  queue_.OnHeld(0);
  EXPECT_EQ(queue_.WaitsFor()->worker, 1);
  queue_.OnHeld(1);
  EXPECT_FALSE(queue_.WaitsFor());
}

TEST_F(WriteQueueTest, StepsAndWritesTakeTurns) {
  Write({0});
  EXPECT_TRUE(queue_.MakesStepsWait()) << "a write is under way that holds no worker";
  Write({0});
  EXPECT_EQ(host_.sent.size(), 1u) << "the second write lets the step go first";
  Apply();
  EXPECT_FALSE(queue_.MakesStepsWait());
  queue_.StartBehindSteps();
  EXPECT_EQ(host_.sent.size(), 1u);
}

TEST_F(WriteQueueTest, RowsOfTablesGoByOneWriteAtATime) {
  VariableLayout table;
  table.id = VariableId(1);
  table.spec = DynamicTable("t", {.width = 1, .eviction = EvictBelowNorm{1}});
  table.offsets = {0, kTableBuckets};
  table.ps = {0};
  const auto layout = Layout::Empty()->With(table);
  for (int pass = 1; pass <= 2; ++pass) {
    for (int i = 0; i < 3; ++i) queue_.AddEviction(*layout, absl::Hours(pass), Epoch(1));
    queue_.Start();
    EXPECT_FALSE(queue_.has_waiting());
    ASSERT_EQ(queue_.open().size(), 1u);
    EXPECT_EQ(queue_.open().begin()->second->commits.at(0).parts[0].op, WriteOp::kEvict);
    Apply();
    EXPECT_TRUE(queue_.open().empty());
    queue_.AddEviction(*layout, absl::Hours(pass) + absl::Milliseconds(100), Epoch(1));
    EXPECT_FALSE(queue_.has_waiting()) << "it is not time for the next one yet";
  }
}

TEST_F(WriteQueueTest, AReplayedWriteAnswersWhoeverWaitsForIt) {
  const auto write = Write({0, 1});
  // The servers have rewound.
  host_.sent.clear();
  queue_.Replay(EntryId(1), {{0, {CommitPart()}}, {1, {CommitPart()}}}, 0);
  queue_.Replay(EntryId(9), {{0, {CommitPart()}}}, /*tick=*/77);
  EXPECT_EQ(queue_.open().size(), 2u);
  EXPECT_EQ(host_.sent.size(), 3u);
  Apply();
  EXPECT_EQ(*write, absl::OkStatus());
  EXPECT_TRUE(queue_.open().empty());
}

TEST_F(WriteQueueTest, WhenTheJobFailsEachWriteIsAnswered) {
  const auto open = Write({0});
  host_.may_begin = false;
  const auto waiting = Write({0});
  std::vector<Task> calls;
  const absl::Status error = absl::DataLossError("gone");
  queue_.FailAll(error, calls);
  for (const Task& call : calls) call();
  EXPECT_EQ(*open, error);
  EXPECT_EQ(*waiting, error);
  for (const auto& [structure, size] : queue_.Sizes()) EXPECT_EQ(size, 0) << structure;
}

TEST_F(WriteQueueTest, WhenTheJobFailsOpenWritesAreAnsweredBeforeThoseThatWait) {
  std::vector<std::string> answered;
  const auto add = [&](const std::string& name) {
    queue_.Add({{0, {{}}}}, [&answered, name](const absl::Status&) { answered.push_back(name); });
    queue_.Start();
  };
  add("open");
  host_.may_begin = false;
  add("first that waits");
  add("second that waits");
  std::vector<Task> calls;
  queue_.FailAll(absl::DataLossError("gone"), calls);
  for (const Task& call : calls) call();
  EXPECT_EQ(answered, (std::vector<std::string>{"open", "first that waits", "second that waits"}));
}

}  // namespace
}  // namespace divvy
