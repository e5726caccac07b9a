#include "coordinator/core/recovery.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/testing/captured_log.h"
#include "coordinator/core/testing/fake_step_host.h"
#include "coordinator/core/testing/parts_test.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using coordinator_records::DirectWrite;
using coordinator_records::Step;

// A coordinator that gives replayed steps to the Recovery. The test answers for the servers.
class FakeHost : public FakeStepHost, public WriteQueue::Host, public Recovery::Host {
 public:
  void SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict,
                      const absl::Status& error) override {
    recovery->Settle(step, verdict, error);
  }

  bool MayBeginWrite() const override { return true; }
  EntryId GiveId() override { return FakeStepHost::GiveId(); }
  bool MayHold() const override { return true; }
  void OnWriteBegun(const DirectWrite&) override {}
  void SendCommit(int ps, const std::shared_ptr<DirectWrite>& write) override {
    sent.emplace_back(ps, write);
  }

  void OnReplayAdvanced() override { ++advanced; }
  void OnReplayFailed(const Step& step, const absl::Status&) override { failed.push_back(step.id); }

  Recovery* recovery = nullptr;
  std::vector<std::pair<int, std::shared_ptr<DirectWrite>>> sent;
  int advanced = 0;
  std::vector<EntryId> failed;
};

class RecoveryTest : public PartsTest {
 protected:
  RecoveryTest()
      : ids_(1, 1'000),
        recovery_(Options(), clock_, outbox_, workers_, passes_, ids_, steps_, writes_, host_),
        steps_(options_, clock_, outbox_, workers_, passes_, recovery_.log(), host_),
        writes_(clock_, outbox_, workers_, steps_, host_) {
    host_.recovery = &recovery_;
    Advance(absl::Hours(1));
  }

  const CoordinatorOptions& Options() {
    options_.redo_log_bytes = 10'000;
    options_.max_recoveries = 2;
    options_.queue_ahead = 5;
    options_.max_step_attempts = 2;
    return options_;
  }
  // Adds a finished step to the log that began when `begun` entries had finished.
  void LogStep(uint64_t id, uint64_t begun, int worker = 0) {
    recovery_.log().OpenStep(EntryId(id), 100);
    RedoLog::Step step;
    step.function = "step";
    step.worker = worker;
    recovery_.log().FinishStep(EntryId(id), std::move(step), begun);
  }
  void LogWrite(uint64_t id) {
    RedoLog::Write write;
    write.parts[0].emplace_back();
    recovery_.log().AddWrite(EntryId(id), std::move(write));
    recovery_.log().FinishWrite(EntryId(id));
  }
  void Rewind(std::optional<JobPhase::Ending> ending = std::nullopt) {
    while (ids_.next() < EntryId(10)) ids_.Give();
    recovery_.Begin("ps 1 restarted", std::move(ending));
    recovery_.Prepare();
  }
  void Finish(Worker& worker, StepOutcome outcome = StepOutcome::kOk) {
    Report report;
    report.step = worker.in_flight.front()->id;
    report.attempt = worker.in_flight.front()->attempt;
    report.outcome = outcome;
    report.error = outcome == StepOutcome::kOk ? absl::OkStatus()
                                               : absl::InternalError("it is another one today");
    steps_.OnReport(worker, std::move(report));
  }

  EntryIds ids_;
  FakeHost host_;
  Recovery recovery_;
  StepQueue steps_;
  WriteQueue writes_;
};

TEST_F(RecoveryTest, WithAnEmptyLogAllIsThereAtOnce) {
  EXPECT_EQ(recovery_.rewind(), nullptr);
  Rewind();
  ASSERT_NE(recovery_.rewind(), nullptr);
  EXPECT_EQ(recovery_.next(), EntryId(10));
  EXPECT_TRUE(recovery_.Replay());
  EXPECT_EQ(recovery_.End().why, "ps 1 restarted");
  EXPECT_EQ(recovery_.rewind(), nullptr);
}

TEST_F(RecoveryTest, AnEntryBeginsWhenAllThatHadFinishedBeforeItHaveFinishedAgain) {
  LogStep(1, 0), LogStep(2, 0), LogStep(3, 2);
  Worker& worker = AddWorker(0);
  Rewind();
  EXPECT_EQ(recovery_.NumMissing(), 3);
  EXPECT_FALSE(recovery_.Replay());
  EXPECT_EQ(worker.in_flight.size(), 2u) << "steps 1 and 2 overlapped; step 3 began after both";
  EXPECT_EQ(recovery_.next(), EntryId(3));
  EXPECT_EQ(recovery_.NumMissing(), 3);
  Finish(worker), Finish(worker);
  EXPECT_FALSE(recovery_.Replay());
  ASSERT_EQ(worker.in_flight.size(), 1u);
  EXPECT_EQ(worker.in_flight[0]->id, EntryId(3));
  EXPECT_EQ(recovery_.NumMissing(), 1);
  Finish(worker);
  EXPECT_TRUE(recovery_.Replay());
  EXPECT_EQ(host_.advanced, 3);
  EXPECT_TRUE(host_.failed.empty());
}

TEST_F(RecoveryTest, AWriteRunsAlone) {
  LogStep(1, 0), LogWrite(2), LogStep(3, 2);
  Worker& worker = AddWorker(0);
  Rewind();
  EXPECT_FALSE(recovery_.Replay());
  EXPECT_TRUE(host_.sent.empty()) << "step 1 is in flight";
  Finish(worker);
  EXPECT_FALSE(recovery_.Replay());
  ASSERT_EQ(host_.sent.size(), 1u);
  EXPECT_FALSE(recovery_.Replay());
  EXPECT_TRUE(worker.in_flight.empty()) << "the write is under way";
  ASSERT_TRUE(writes_.OnCommitted(0, *host_.sent[0].second));
  recovery_.OnWritten(EntryId(2));
  EXPECT_FALSE(recovery_.Replay());
  EXPECT_EQ(worker.in_flight.size(), 1u);
}

TEST_F(RecoveryTest, AReplayedStepWhoseWorkerIsLostIsRunElsewhereUntilItsAttemptsAreUsedUp) {
  LogStep(1, 0);
  Worker& first = AddWorker(0);
  Rewind();
  EXPECT_FALSE(recovery_.Replay());
  const auto step = first.in_flight.at(0);
  workers_.Fence(first, "it is silent", 1);
  steps_.OnFenced(step, 0);
  EXPECT_FALSE(recovery_.Replay()) << "no worker is present";
  Worker& second = AddWorker(1);
  EXPECT_FALSE(recovery_.Replay());
  ASSERT_EQ(second.in_flight.size(), 1u);
  Finish(second, StepOutcome::kFailed);
  EXPECT_EQ(host_.failed, std::vector<EntryId>{EntryId(1)});
}

TEST_F(RecoveryTest, ASecondLossBeginsAnewAndKeepsHowTheJobWasEnding) {
  LogStep(1, 0);
  Worker& worker = AddWorker(0);
  Rewind(JobPhase::Ending{3, nullptr});
  const absl::Duration since = recovery_.rewind()->since;
  EXPECT_FALSE(recovery_.Replay());
  Advance(absl::Minutes(1));
  workers_.EndSession(worker);
  steps_.Rewind();
  Rewind();
  EXPECT_EQ(recovery_.rewind()->since, since);
  EXPECT_EQ(recovery_.rewind()->ending->exit_code, 3);
  EXPECT_EQ(recovery_.NumMissing(), 1);
  EXPECT_EQ(recovery_.next(), EntryId(1));
}

TEST_F(RecoveryTest, TooManyLossesWithinTenMinutesAreAnError) {
  EXPECT_EQ(recovery_.CountRewind("one"), absl::OkStatus());
  Advance(absl::Minutes(9));
  EXPECT_EQ(recovery_.CountRewind("two"), absl::OkStatus());
  Advance(absl::Minutes(2));
  EXPECT_EQ(recovery_.CountRewind("three"), absl::OkStatus())
      << "the first rewind was more than 10 minutes ago";
  const absl::Status fourth = recovery_.CountRewind("four");
  EXPECT_EQ(fourth.code(), absl::StatusCode::kInternal);
  EXPECT_TRUE(absl::StrContains(fourth.message(), "--max_recoveries (2)"));
  EXPECT_EQ(recovery_.num_rewinds(), 4);
}

TEST_F(RecoveryTest, AFullLogIsGivenUpWhereNothingCanMakeRoomButNotWhileItIsNeeded) {
  const CapturedLog log;
  recovery_.log().OpenStep(EntryId(1), 20'000);
  Rewind();
  recovery_.GiveUpFullLog();
  EXPECT_TRUE(recovery_.log().kept());
  recovery_.End();
  recovery_.GiveUpFullLog();
  EXPECT_FALSE(recovery_.log().kept());
  outbox_.Drain();
  EXPECT_EQ(log.Count("--redo_log_bytes=10000"), 1);
}

TEST_F(RecoveryTest, ALogThatStaysFullIsAnErrorOfTheDisk) {
  recovery_.log().OpenStep(EntryId(1), 20'000);
  EXPECT_EQ(recovery_.CheckLog(clock_.Elapsed(), true), absl::OkStatus());
  Advance(options_.checkpoint_stall_timeout);
  EXPECT_EQ(recovery_.CheckLog(clock_.Elapsed(), false), absl::OkStatus())
      << "a checkpoint is being made";
  EXPECT_EQ(recovery_.CheckLog(clock_.Elapsed(), true), absl::OkStatus());
  Advance(options_.checkpoint_stall_timeout + absl::Seconds(1));
  EXPECT_EQ(ReasonOf(recovery_.CheckLog(clock_.Elapsed(), true)), Reason::kDisk);
}

}  // namespace
}  // namespace divvy
