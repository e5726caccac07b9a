#include "coordinator/service/chief_task.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/executor.h"
#include "base/testing/notify_socket.h"
#include "coordinator/service/coordinator_status.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(ChiefTaskTest, OptionsThatMakeNoSenseAreRefusedBeforeAnythingIsMade) {
  for (const int replicas : {0, -1}) {
    ChiefTaskOptions options;
    options.setup.replicas_per_worker = replicas;
    // Opening this directory would fail, but the options are checked first.
    options.state_dir = "/dev/null/never";
    const absl::Status refused = ChiefTask::Start(options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("--replicas_per_worker is "), HasSubstr("--num_ps")));
  }
}

// systemd takes an exit with 0 before READY=1 for a failure, and starts the process again.
TEST(ChiefTaskTest, TheServiceManagerOfAJobThatHasEndedIsToldOfAStart) {
  ChiefTaskOptions options;
  options.state_dir = absl::StrCat(::testing::TempDir(), "/ended");
  options.task.role = Role::kChief;
  options.task.cluster.num_ps = 1;
  {
    ThreadPoolExecutor executor(1);
    auto store = SqliteStore::Open(options.state_dir, executor);
    ASSERT_TRUE(store.ok()) << store.status();
    StoreChange change;
    change.job.emplace();
    change.job->job = JobId(7);
    change.job->state = JobRow::State::kComplete;
    change.job->epoch = Epoch(1);
    Completion<absl::Status> put;
    (*store)->Put(std::move(change), [&put](absl::Status status) { put.Set(status); });
    const std::optional<absl::Status> done = put.Wait();
    ASSERT_TRUE(done && done->ok()) << *done;
    (*store)->Close();
    executor.Stop();
  }
  NotifySocket manager;
  const absl::Status over = ChiefTask::Start(options).status();
  EXPECT_EQ(ReasonOf(over), Reason::kJobOver) << over;
  EXPECT_EQ(ExitCodeOf(over), 0);
  EXPECT_EQ(manager.Received(), "READY=1\nSTATUS=the job has ended");
  EXPECT_EQ(manager.Received(), "") << "it never served, so it does not stop";
}

TEST(CoordinatorStatusTest, NamesTheJobAndTheEpoch) {
  CoordinatorSnapshot snapshot;
  snapshot.job = JobId(7);
  snapshot.epoch_id = Epoch(3);
  const v1::TaskStatus status = CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {});
  EXPECT_EQ(status.job_id(), 7u);
  EXPECT_EQ(status.epoch(), 3u);
}

TEST(CoordinatorStatusTest, TellsHowFarLongWorkIs) {
  using Work = CoordinatorSnapshot::Work;
  CoordinatorSnapshot snapshot;
  EXPECT_FALSE(CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {}).coordinator().has_work());
  snapshot.work = Work{Work::Kind::kCheckpoint, 1 << 20, 4 << 20, absl::Milliseconds(999)};
  EXPECT_FALSE(CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {}).coordinator().has_work());
  snapshot.work = Work{Work::Kind::kRestore, 1 << 20, 4 << 20, absl::Seconds(2)};
  const v1::CoordinatorStatus::Work work =
      CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {}).coordinator().work();
  EXPECT_EQ(work.text(), "restore 25 % of 4 MiB, 6.0 s left");
  EXPECT_EQ(work.done(), 1 << 20);
  EXPECT_EQ(work.total(), 4 << 20);
  EXPECT_EQ(work.since_ns(), 2'000'000'000);
}

TEST(CoordinatorStatusTest, TellsWhatTheJobHasReached) {
  CoordinatorSnapshot snapshot;
  v1::TaskStatus status = CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {});
  EXPECT_EQ(status.coordinator().goodput(), 1) << "no step has run";
  EXPECT_EQ(status.coordinator().checkpoints().last_success_ns(), 0);
  EXPECT_FALSE(status.coordinator().has_loss());
  snapshot.runs = 8;
  snapshot.counted_runs = 6;
  snapshot.checkpoints.made = 2;
  snapshot.checkpoints.failing = true;
  snapshot.checkpoints.last_success = absl::FromUnixSeconds(7);
  status = CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {/*examples=*/640, /*loss=*/0.5});
  EXPECT_EQ(status.coordinator().goodput(), 0.75);
  EXPECT_EQ(status.coordinator().examples(), 640);
  EXPECT_EQ(status.coordinator().loss(), 0.5);
  EXPECT_EQ(status.coordinator().checkpoints().made(), 2);
  EXPECT_TRUE(status.coordinator().checkpoints().failing());
  EXPECT_EQ(status.coordinator().checkpoints().last_success_ns(), 7'000'000'000);
  // Later the same checkpoint has the same time.
  snapshot.at += absl::Seconds(9);
  EXPECT_EQ(CoordinatorTaskStatus(CoordinatorOptions(), snapshot, {})
                .coordinator()
                .checkpoints()
                .last_success_ns(),
            7'000'000'000);
}

TEST(CoordinatorStatusTest, AnOperatorsSaveDoesNotDecideForAProgramThatHasNotBegun) {
  using Phase = CoordinatorSnapshot::Phase;
  CoordinatorSnapshot snapshot;
  snapshot.phase = Phase::kChoosing;
  EXPECT_EQ(ReasonOf(RefusalToSave(snapshot)), Reason::kNotReady);
  snapshot.phase = Phase::kOver;
  EXPECT_EQ(ReasonOf(RefusalToSave(snapshot)), Reason::kJobOver);
  for (const Phase phase :
       {Phase::kAttaching, Phase::kLoading, Phase::kRunning, Phase::kEnding, Phase::kFailed}) {
    snapshot.phase = phase;
    // The core answers such a call itself, perhaps with the error that ended the job.
    EXPECT_TRUE(RefusalToSave(snapshot).ok());
  }
}

TEST(CoordinatorStatusTest, TellsWhoDrainedItWhatIsDoneAndWhatIsSaved) {
  CoordinatorSnapshot snapshot;
  snapshot.finished_steps = 12;
  EXPECT_FALSE(DrainedForOperator(snapshot).has_checkpoint());
  snapshot.durable_steps = 10;
  snapshot.last_checkpoint = CheckpointId{Epoch(3), 4};
  const v1::DrainReply reply = DrainedForOperator(snapshot);
  EXPECT_EQ(reply.finished_steps(), 12);
  EXPECT_EQ(reply.durable_steps(), 10);
  EXPECT_EQ(reply.checkpoint().epoch(), 3u);
  EXPECT_EQ(reply.checkpoint().serial(), 4u);
}

}  // namespace
}  // namespace divvy
