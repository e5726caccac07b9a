#include "coordinator/core/checkpoint_maker.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

// A catalog that is never called, because the host commits.
class NoCatalog : public CheckpointCatalog {
 public:
  absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId>) override {
    return std::optional<JobState>();
  }
  absl::Status Commit(const JobState&, const std::vector<std::vector<SavedSlice>>&) override {
    return absl::OkStatus();
  }
  absl::Status Collect(int, CheckpointId, CheckpointId, std::vector<CheckpointId>&) override {
    return absl::OkStatus();
  }
  absl::Status Export(CheckpointId, const std::string&, const ExportOptions&) override {
    return absl::OkStatus();
  }
};

// A coordinator with two parameter servers, for which the test answers.
class FakeHost : public CheckpointMaker::Host {
 public:
  bool MayCut() const override { return may_cut; }
  bool HasOpenWrites() const override { return has_open_writes; }
  bool NeedsCheckpoint() const override { return false; }
  bool AwaitsCheckpoint() const override { return false; }
  bool IsRunning() const override { return true; }
  bool IsDraining() const override { return false; }
  CheckpointId Name() override { return {Epoch(1), ++named}; }
  CheckpointMaker::Cut CutNow(CheckpointId id) override {
    ++cuts;
    CheckpointMaker::Cut cut;
    cut.num_ps = 2;
    cut.state.checkpoint = id;
    cut.state.finished_steps = 40;
    return cut;
  }
  void SendSnapshots(CheckpointId) override { ++rounds; }
  void PollAgain(int, CheckpointId) override { ++looks; }
  void Commit(const JobState& state, std::vector<std::vector<SavedSlice>>) override {
    committing = state.checkpoint;
  }
  void Collect(CheckpointId base, CheckpointId) override { collected_bases.push_back(base); }
  void OnWorkContinues() override { ++resumed; }
  void MoveBase(const JobState& state) override { base = state.checkpoint; }
  void Persist(StoreChange) override {}
  void OnSaved(const CheckpointMaker::Cut&) override { ++saved; }
  void OnDiskFailure(const absl::Status& why) override { disk_failure = why; }
  void FailJob(absl::Status error) override { job_error = std::move(error); }

  bool may_cut = true, has_open_writes = false;
  uint64_t named = 0;
  int cuts = 0, rounds = 0, looks = 0, resumed = 0, saved = 0;
  std::optional<CheckpointId> committing, base;
  std::vector<CheckpointId> collected_bases;
  absl::Status disk_failure, job_error;
};

class CheckpointMakerTest : public testing::Test {
 protected:
  CheckpointMakerTest() : executor_(1), store_(executor_), workers_(Options(), clock_, outbox_) {
    maker_ = std::make_unique<CheckpointMaker>(options_, clock_, outbox_, store_, workers_, host_);
  }

  const CoordinatorOptions& Options() {
    options_.checkpoints = &catalog_;
    return options_;
  }
  void Advance(absl::Duration time) { clock_.AdvanceTo(clock_.Elapsed() + time); }
  CheckpointId Serial(uint64_t serial) const { return {Epoch(1), serial}; }
  void Ask() {
    maker_->Want([this](absl::StatusOr<CheckpointId> saved) { saved_ = std::move(saved); });
    maker_->MaybeBegin();
  }
  static SnapshotReply Done() {
    SnapshotReply reply;
    reply.done = true;
    return reply;
  }
  // Both servers answer.
  void Answer() {
    for (int ps = 0; ps < 2; ++ps) maker_->OnSnapshot(ps, Done());
    outbox_.Drain();
  }
  void Commit(const absl::Status& status) {
    maker_->OnCommitted(*host_.committing, status);
    outbox_.Drain();
  }
  void AddReadyWorker(int index) {
    WorkerSet::Worker& worker = workers_.all()[index];
    worker.index = index;
    workers_.SetReady(worker);
  }

  CoordinatorOptions options_;
  NoCatalog catalog_;
  SimClock clock_;
  Outbox outbox_;
  SimExecutor executor_;
  MemoryStore store_;
  WorkerSet workers_;
  FakeHost host_;
  std::unique_ptr<CheckpointMaker> maker_;
  absl::StatusOr<CheckpointId> saved_ = absl::UnknownError("not answered");
};

TEST_F(CheckpointMakerTest, MakesNoneUntilOneIsDue) {
  maker_->MaybeBegin();
  EXPECT_FALSE(maker_->current());
}

TEST_F(CheckpointMakerTest, OneThatIsAskedForIsCutMarkedWrittenAndCommitted) {
  Ask();
  maker_->OnNamed(Serial(1));
  EXPECT_TRUE(maker_->holding());
  Answer();  // marked
  EXPECT_TRUE(maker_->after_release());
  EXPECT_EQ(host_.resumed, 1);
  Answer();  // written
  ASSERT_EQ(host_.committing, Serial(1));
  Commit(absl::OkStatus());
  EXPECT_EQ(saved_.value(), Serial(1));
  EXPECT_EQ(maker_->newest(), Serial(1));
  EXPECT_EQ(maker_->durable_steps(), 40);
  EXPECT_EQ(host_.base, Serial(1));
  EXPECT_EQ(host_.saved, 1);
}

TEST_F(CheckpointMakerTest, TellsHowMuchOfItIsWritten) {
  Ask();
  maker_->OnNamed(Serial(1));
  EXPECT_FALSE(maker_->work());
  for (int ps = 0; ps < 2; ++ps) maker_->OnSnapshot(ps, SnapshotReply{false, 0, {}, 100});
  ASSERT_TRUE(maker_->work());
  EXPECT_EQ(maker_->work()->kind, CoordinatorSnapshot::Work::Kind::kCheckpoint);
  EXPECT_EQ(maker_->work()->done, 0);
  EXPECT_EQ(maker_->work()->total, 200);
  Advance(absl::Seconds(2));
  maker_->OnSnapshot(0, SnapshotReply{false, 30, {}, 100});
  maker_->OnSnapshot(1, SnapshotReply{true, 100, {}, 100});
  EXPECT_EQ(maker_->work()->done, 130);
  EXPECT_EQ(maker_->work()->since, absl::Seconds(2));
  maker_->OnSnapshot(0, SnapshotReply{true, 100, {}, 100});
  EXPECT_EQ(maker_->work()->done, 200) << "it is being committed";
  Commit(absl::OkStatus());
  EXPECT_FALSE(maker_->work());
}

TEST_F(CheckpointMakerTest, TheCutWaitsForWorkersAndForWrites) {
  AddReadyWorker(0);
  host_.has_open_writes = true;
  Ask();
  maker_->OnNamed(Serial(1));
  EXPECT_EQ(host_.cuts, 0);
  maker_->OnHeld(0, 1);
  EXPECT_EQ(host_.cuts, 0);
  host_.has_open_writes = false;
  maker_->MaybeCut();
  EXPECT_EQ(host_.cuts, 1);
}

TEST_F(CheckpointMakerTest, AWorkerThatComesOrGoesEndsTheHoldAndAnotherIsTriedASecondLater) {
  AddReadyWorker(0);
  Ask();
  maker_->OnNamed(Serial(1));
  maker_->WorkersChanged();
  EXPECT_FALSE(maker_->current());
  EXPECT_EQ(host_.resumed, 1);
  maker_->MaybeBegin();
  EXPECT_FALSE(maker_->current());
  Advance(absl::Seconds(1));
  maker_->MaybeBegin();
  EXPECT_EQ(maker_->current(), Serial(2));
  // The call waits for the second checkpoint.
  EXPECT_TRUE(absl::IsUnknown(saved_.status()));
}

TEST_F(CheckpointMakerTest, AHoldEndsAfterFiveSeconds) {
  AddReadyWorker(0);
  Ask();
  maker_->OnNamed(Serial(1));
  Advance(absl::Seconds(5));
  maker_->CheckTime(clock_.Elapsed());
  EXPECT_TRUE(maker_->holding());
  Advance(absl::Milliseconds(1));
  maker_->CheckTime(clock_.Elapsed());
  EXPECT_FALSE(maker_->holding());
}

TEST_F(CheckpointMakerTest, AFailureOfTheDiskIsToldToThoseThatWait) {
  Ask();
  maker_->OnNamed(Serial(1));
  Answer();
  Answer();
  Commit(absl::DataLossError("full"));
  EXPECT_EQ(ReasonOf(saved_.status()), Reason::kDisk);
  EXPECT_EQ(ReasonOf(host_.disk_failure), Reason::kDisk);
  EXPECT_FALSE(maker_->newest());
}

TEST_F(CheckpointMakerTest, ADiskThatFailsTheLastCheckpointForLongEndsTheJob) {
  maker_->WantFinal(true);
  Advance(options_.checkpoint_stall_timeout + absl::Seconds(1));
  maker_->MaybeBegin();
  maker_->OnNamed(Serial(1));
  Answer();
  Answer();
  Commit(absl::DataLossError("full"));
  EXPECT_EQ(ReasonOf(host_.job_error), Reason::kDisk);
}

TEST_F(CheckpointMakerTest, AnAnswerOfTheRoundBeforeIsOfNoUse) {
  Ask();
  maker_->OnNamed(Serial(1));
  EXPECT_TRUE(maker_->Awaits(0, Serial(1), /*waited=*/false));
  EXPECT_FALSE(maker_->Awaits(0, Serial(1), true));
  EXPECT_FALSE(maker_->RequestFor(0, Serial(1))->wait);
  Answer();
  EXPECT_FALSE(maker_->Awaits(0, Serial(1), false));
  EXPECT_TRUE(maker_->RequestFor(0, Serial(1))->wait);
  EXPECT_FALSE(maker_->RequestFor(0, Serial(2)));
}

TEST_F(CheckpointMakerTest, WhoWaitsForADroppedOneIsAnsweredByTheNext) {
  Ask();
  maker_->OnNamed(Serial(1));
  maker_->Drop();
  Advance(absl::Seconds(1));
  maker_->MaybeBegin();
  maker_->OnNamed(Serial(2));
  Answer();
  Answer();
  Commit(absl::OkStatus());
  EXPECT_EQ(saved_.value(), Serial(2));
}

TEST_F(CheckpointMakerTest, AJobThatFailsTakesAllCompletionsAway) {
  Ask();
  maker_->OnNamed(Serial(1));
  std::vector<Task> calls;
  maker_->FailAll(absl::AbortedError("over"), calls);
  ASSERT_EQ(calls.size(), 1);
  calls[0]();
  EXPECT_TRUE(absl::IsAborted(saved_.status()));
  EXPECT_FALSE(maker_->current());
}

TEST_F(CheckpointMakerTest, CountsAndMeasuresThoseThatAreMadeAndThoseThatFail) {
  MetricsRegistry registry;
  CoordinatorMetrics metrics(registry);
  options_.metrics = &metrics;
  Ask();
  Advance(absl::Seconds(1));
  maker_->OnNamed(Serial(1));
  Advance(absl::Seconds(2));
  Answer();  // marked: the hold took 2 s
  Advance(absl::Seconds(4));
  Answer();  // written
  EXPECT_EQ(maker_->stats().made, 0);
  Commit(absl::OkStatus());
  EXPECT_EQ(maker_->stats().made, 1);
  EXPECT_EQ(maker_->stats().last_success, clock_.WallTime());
  EXPECT_EQ(maker_->stats().last_took, absl::Seconds(7));
  EXPECT_EQ(maker_->stats().held, absl::Seconds(2));
  EXPECT_EQ(metrics.checkpoint_duration_seconds.sum(), 7);
  EXPECT_EQ(metrics.checkpoint_stall_seconds.sum(), 2);

  Advance(absl::Minutes(5));
  Ask();
  maker_->OnNamed(Serial(2));
  maker_->OnSnapshot(0, absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(maker_->stats().made, 1);
  EXPECT_EQ(maker_->stats().failed, 1);
  EXPECT_TRUE(maker_->stats().failing);

  Advance(absl::Minutes(5));
  Ask();
  maker_->OnNamed(Serial(3));
  Advance(absl::Seconds(6));
  maker_->CheckTime(clock_.Elapsed());
  EXPECT_EQ(maker_->stats().failed, 1) << "a hold that takes too long is no fault of a disk";
  EXPECT_EQ(maker_->stats().held, absl::Seconds(8));
  EXPECT_TRUE(maker_->stats().failing) << "nothing shows that the disk is well again";
}

TEST_F(CheckpointMakerTest, ACheckpointThatIsMadeEndsTheFailure) {
  Ask();
  maker_->OnNamed(Serial(1));
  maker_->OnSnapshot(0, absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(maker_->stats().failing);
  Advance(absl::Minutes(5));
  Ask();
  maker_->OnNamed(Serial(2));
  Answer();  // marked
  Answer();  // written
  Commit(absl::OkStatus());
  EXPECT_FALSE(maker_->stats().failing);
}

// A rewind drops an attempt without giving it up.
TEST_F(CheckpointMakerTest, AHoldThatARewindEndsCountsOnce) {
  MetricsRegistry registry;
  CoordinatorMetrics metrics(registry);
  options_.metrics = &metrics;
  Ask();
  maker_->OnNamed(Serial(1));
  Advance(absl::Seconds(2));
  maker_->Drop();
  EXPECT_EQ(maker_->stats().held, absl::Seconds(2));
  EXPECT_EQ(metrics.checkpoint_stall_seconds.sum(), 2);
  maker_->Drop();
  EXPECT_EQ(maker_->stats().held, absl::Seconds(2)) << "nothing is left to drop";
}

}  // namespace
}  // namespace divvy
