#include "coordinator/core/passes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/testing/parts_test.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using coordinator_records::Step;

class PassesTest : public PartsTest {
 protected:
  PassesTest() { passes_.BeginEpoch(Epoch(3)); }

  Worker& AddWorker(int index) {
    Worker& worker = PartsTest::AddWorker(index);
    worker.has_served = true;
    return worker;
  }
  void Open(const Worker& worker, ResourceId id, std::optional<int64_t> elements = std::nullopt) {
    EXPECT_EQ(passes_.NoteOpened(worker, {id, absl::OkStatus(), elements, std::nullopt}),
              absl::OkStatus());
  }
  static RunRequest LoopOver(std::string source, std::optional<int64_t> last_step = std::nullopt) {
    RunRequest loop;
    loop.source = std::move(source);
    loop.last_step = last_step;
    return loop;
  }
  static Step StepOver(ResourceId id) {
    Step step;
    step.iterators = {id};
    return step;
  }
  // A step that has its leases.
  Step Dispatched(ResourceId id, const Worker& worker) {
    Step step = StepOver(id);
    passes_.Use(step, 1);
    passes_.NoteTraining(step);
    EXPECT_TRUE(passes_.TakeLeases(step, worker));
    return step;
  }
};

TEST_F(PassesTest, NoTwoEpochsGiveTheSameId) {
  const ResourceId first = passes_.Make("clicks", Nest(), /*leased=*/true);
  passes_.BeginEpoch(Epoch(4));
  EXPECT_NE(passes_.Make("clicks", Nest(), true), first);
}

TEST_F(PassesTest, ADroppedIteratorStaysUntilItsLastStepIsClosed) {
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  const Step step = Dispatched(id, AddWorker(0));
  passes_.Drop(id);
  EXPECT_TRUE(passes_.Has(id));
  passes_.Use(step, -1);
  EXPECT_FALSE(passes_.Has(id));
}

TEST_F(PassesTest, ADroppedIteratorStaysWhileStepsAreRunAgain) {
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  passes_.BeginRewind();
  passes_.Drop(id);
  EXPECT_TRUE(passes_.Has(id));
  passes_.EndRewind();
  EXPECT_FALSE(passes_.Has(id));
}

TEST_F(PassesTest, ALoopGoesOnInThePassOfThePausedLoopOverTheSameData) {
  const RunRequest loop = LoopOver("clicks", 10);
  const ResourceId id = passes_.BeginLoop(loop);
  passes_.CountFinished(id);
  passes_.EndLoop(loop, id);
  EXPECT_EQ(passes_.BeginLoop(loop), id);
  EXPECT_EQ(passes_.FinishedIn(id), 1);
}

TEST_F(PassesTest, ALoopOverOtherDataEndsThePausedPass) {
  const RunRequest loop = LoopOver("clicks", 10);
  const ResourceId id = passes_.BeginLoop(loop);
  passes_.EndLoop(loop, id);
  EXPECT_NE(passes_.BeginLoop(LoopOver("views", 20)), id);
  EXPECT_FALSE(passes_.Has(id));
}

TEST_F(PassesTest, AnOpenStepsPositionsAreUnreadInACut) {
  const Worker& worker = AddWorker(0);
  const ResourceId id = passes_.BeginLoop(LoopOver("clicks"));
  const Step step = Dispatched(id, worker);
  const std::vector<PassProgress> open = passes_.ProgressNow(step.leases);
  ASSERT_EQ(open.size(), 1);
  EXPECT_TRUE(open[0].in_loop);
  EXPECT_EQ(open[0].unread.count(step.leases[0].first), 1);
  // The step has finished, so its positions are read.
  EXPECT_EQ(passes_.ProgressNow({})[0].unread.count(step.leases[0].first), 0);
}

TEST_F(PassesTest, ThePassThatTheStateHoldsIsTakenUpOnce) {
  DataPass pass;
  pass.source = "clicks";
  pass.seed = 77;
  pass.in_loop = true;
  pass.finished = 5;
  pass.next = 12;
  passes_.RestoreState({{"clicks", 2}}, {pass});
  EXPECT_EQ(passes_.FinishedIn(passes_.BeginLoop(LoopOver("clicks"))), 5);
  EXPECT_EQ(passes_.begun().at("clicks"), 2);
  EXPECT_EQ(passes_.FinishedIn(passes_.BeginLoop(LoopOver("clicks"))), 0);
  EXPECT_EQ(passes_.begun().at("clicks"), 3);
}

TEST_F(PassesTest, APassThatHasEndedIsToldUntilItIsStored) {
  const RunRequest loop = LoopOver("clicks");
  const ResourceId id = passes_.BeginLoop(loop);
  const Step step = Dispatched(id, AddWorker(0));
  passes_.CountFinished(id);
  passes_.Use(step, -1);
  passes_.EndLoop(loop, id);
  const std::vector<PassProgress> told = passes_.ProgressNow({});
  ASSERT_EQ(told.size(), 1);
  // A coordinator that adopts this state counts the epoch.
  EXPECT_TRUE(told[0].in_loop);
  EXPECT_EQ(told[0].finished, 1);
  passes_.NoteStored(passes_.changes());
  EXPECT_TRUE(passes_.ProgressNow({}).empty());
}

TEST_F(PassesTest, APassWhoseLoopHasFailedIsNoLoopsAnyMore) {
  const ResourceId id = passes_.BeginLoop(LoopOver("clicks"));
  const Step step = Dispatched(id, AddWorker(0));
  passes_.CountFinished(id);
  passes_.Use(step, -1);
  passes_.FailLoop(id);
  ASSERT_EQ(passes_.ProgressNow({}).size(), 1);
  EXPECT_FALSE(passes_.ProgressNow({})[0].in_loop);
  EXPECT_EQ(passes_.ProgressNow({})[0].finished, 0);
}

TEST_F(PassesTest, ReturnedPositionsAreGivenBeforeAnyOther) {
  const Worker& worker = AddWorker(0);
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  const Step lost = Dispatched(id, worker);
  EXPECT_NE(Dispatched(id, worker).leases[0].first, lost.leases[0].first);
  passes_.ReturnLeases(lost);
  EXPECT_EQ(Dispatched(id, worker).leases[0].first, lost.leases[0].first);
}

TEST_F(PassesTest, AWorkerReadsOnlyWhatItHasOpenedInItsSession) {
  const Worker& worker = AddWorker(0);
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  EXPECT_FALSE(passes_.MayRead(worker, id));
  Open(worker, id);
  EXPECT_TRUE(passes_.MayRead(worker, id));
  passes_.ForgetReadings(0);
  EXPECT_FALSE(passes_.MayRead(worker, id));
}

TEST_F(PassesTest, AWorkerWhoseDataEndsEarlyIsLeftOut) {
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  for (int index = 0; index < 3; ++index) AddWorker(index);
  for (int index = 0; index < 3; ++index) Open(workers_.all()[index], id, 100);
  const Worker& odd = workers_.all()[2];
  Step step = Dispatched(id, odd);
  Report report;
  report.outcome = StepOutcome::kEndOfData;
  EXPECT_TRUE(passes_.NoteEnds(odd, step, report));
  EXPECT_FALSE(passes_.MayRead(odd, id));
  EXPECT_TRUE(passes_.MayRead(workers_.all()[0], id));
  EXPECT_FALSE(passes_.IsExhausted(id));
}

TEST_F(PassesTest, ANumberIsClaimedOnceUntilItsStepHasFailed) {
  StepRequest request;
  request.once = StepNumber{"imports", 7};
  Step step;
  step.request = request;
  EXPECT_EQ(passes_.ClaimNumber(request), absl::OkStatus());
  EXPECT_TRUE(absl::IsFailedPrecondition(passes_.ClaimNumber(request)));
  passes_.SettleNumber(step, /*finished=*/false);
  EXPECT_EQ(passes_.ClaimNumber(request), absl::OkStatus());
  passes_.SettleNumber(step, /*finished=*/true);
  EXPECT_TRUE(absl::IsAlreadyExists(passes_.ClaimNumber(request)));
}

TEST_F(PassesTest, WorkersThatDisagreeInEqualNumbersAreToldToTheProgramOnce) {
  const ResourceId id = passes_.Make("clicks", Nest(), true);
  const Worker& first = AddWorker(0);
  const Worker& second = AddWorker(1);
  EXPECT_EQ(passes_.NoteOpened(first, {id, absl::OkStatus(), 100, std::nullopt}), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(
      passes_.NoteOpened(second, {id, absl::OkStatus(), 90, std::nullopt})));
  EXPECT_EQ(passes_.NoteOpened(second, {id, absl::OkStatus(), 90, std::nullopt}), absl::OkStatus());
}

}  // namespace
}  // namespace divvy
