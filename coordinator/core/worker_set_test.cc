#include "coordinator/core/worker_set.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/captured_log.h"
#include "base/testing/sim_executor.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using coordinator_records::Step;
using coordinator_records::Worker;

class WorkerSetTest : public testing::Test {
 protected:
  WorkerSetTest() : workers_(options_, clock_, outbox_) { Advance(absl::Hours(1)); }

  void Advance(absl::Duration time) { clock_.AdvanceTo(clock_.Elapsed() + time); }
  Worker& AddWorker(int index, int replicas = 1) {
    Worker& worker = workers_.all()[index];
    worker.index = index;
    workers_.SetReady(worker);
    worker.session = workers_.NextSession(Epoch(3));
    worker.replicas = replicas;
    return worker;
  }
  absl::Status CheckReplicas(int index, int replicas) {
    return workers_.CheckReplicas(index, "there", replicas);
  }
  static SyncReply Reply(uint64_t seq, std::vector<RememberedEntry> applied = {}) {
    SyncReply reply;
    reply.seq = seq;
    reply.applied = std::move(applied);
    return reply;
  }

  CoordinatorOptions options_;
  SimClock clock_;
  Outbox outbox_;
  WorkerSet workers_;
};

TEST_F(WorkerSetTest, NoTwoSessionsHaveOneNumberAndNoneHasTheCoordinatorsOwn) {
  std::set<SessionId> given;
  for (int i = 0; i < 100'000; ++i)
    EXPECT_TRUE(given.insert(workers_.NextSession(Epoch(1))).second) << i;
  EXPECT_EQ(given.count(kCoordinatorSession), 0u);
}

TEST_F(WorkerSetTest, TheStepsOfALostWorkerGoOnWhenEachServerHasAcknowledged) {
  Worker& worker = AddWorker(0);
  const auto step = std::make_shared<Step>();
  step->id = EntryId(5);
  worker.in_flight = {step};
  EXPECT_EQ(workers_.Sessions().size(), 1u);
  workers_.Fence(worker, "it is silent", 7);
  EXPECT_TRUE(workers_.Sessions().empty());
  EXPECT_EQ(step->state, Step::State::kFencing);
  EXPECT_EQ(worker.last_error, "it is silent");
  EXPECT_EQ(workers_.num_lost(), 1);

  RememberedEntry applied;
  applied.id = EntryId(5);
  applied.participants = 2;
  EXPECT_TRUE(workers_.NoteFences(0, 2, Reply(6)).empty()) << "an answer to an older Sync";
  EXPECT_TRUE(workers_.NoteFences(0, 2, Reply(7, {applied})).empty());
  EXPECT_TRUE(workers_.NoteFences(0, 2, Reply(8)).empty()) << "ps 1 has not answered";
  const auto complete = workers_.NoteFences(1, 2, Reply(8));
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].steps, std::vector<std::shared_ptr<Step>>{step});
  EXPECT_EQ(step->applied, (std::map<int, int>{{0, 2}}));
  EXPECT_TRUE(workers_.fences().empty());
}

TEST_F(WorkerSetTest, AWorkerThatLeavesIsNotCountedAsLost) {
  Worker& worker = AddWorker(0);
  worker.leaving = true;
  workers_.Fence(worker, "it left", 1);
  EXPECT_EQ(workers_.num_lost(), 0);
  EXPECT_EQ(workers_.num_fenced(), 1);
  EXPECT_EQ(workers_.fences().size(), 1u);
  workers_.SetJoining(worker);
  EXPECT_EQ(workers_.num_recovered(), 0);
}

TEST_F(WorkerSetTest, AWorkerThatIsLostAndJoinsAgainHasRecoveredOnce) {
  Worker& worker = AddWorker(0);
  worker.in_flight = {std::make_shared<Step>(), std::make_shared<Step>()};
  workers_.Fence(worker, "it is silent", 1);
  EXPECT_EQ(workers_.num_recovered(), 0);
  EXPECT_EQ(workers_.num_lost_runs(), 1) << "it has one slot, and the other step had not begun";
  workers_.SetJoining(worker);
  workers_.SetReady(worker);
  EXPECT_EQ(workers_.num_recovered(), 1);
  // A rewind ends sessions without a loss.
  workers_.EndSession(worker);
  workers_.SetJoining(worker);
  EXPECT_EQ(workers_.num_recovered(), 1);
}

TEST_F(WorkerSetTest, MostWorkersDecideHowManyReplicasFit) {
  AddWorker(0, 2);
  EXPECT_EQ(CheckReplicas(0, 2), absl::OkStatus());
  EXPECT_EQ(ReasonOf(CheckReplicas(1, 1)), Reason::kNotReady) << "one against one";
  EXPECT_EQ(CheckReplicas(2, 1), absl::OkStatus());
  ASSERT_EQ(workers_.WithOtherReplicas(2, 1).size(), 1u);
  EXPECT_EQ(workers_.WithOtherReplicas(2, 1)[0]->index, 0);
  CheckReplicas(3, 2).IgnoreError();
  CheckReplicas(4, 2).IgnoreError();
  EXPECT_EQ(ReasonOf(CheckReplicas(1, 1)), Reason::kClusterMismatch) << "two against three";
}

TEST_F(WorkerSetTest, ANumberOfReplicasThatIsGivenIsNotVotedOn) {
  options_.replicas_per_worker = 2;
  EXPECT_EQ(CheckReplicas(0, 2), absl::OkStatus());
  for (int index = 1; index < 4; ++index)
    EXPECT_EQ(ReasonOf(CheckReplicas(index, 1)), Reason::kClusterMismatch);
}

TEST_F(WorkerSetTest, AnotherBuildIsWarnedOfOnce) {
  options_.program.build = "own";
  const CapturedLog log;
  for (const char* build : {"", "own", "other", "third"})
    workers_.CompareBuild(AddWorker(0), build);
  outbox_.Drain();
  ASSERT_EQ(log.lines().size(), 1u);
  EXPECT_EQ(log.Count("another build of the program (other) than the coordinator (own)"), 1);
}

TEST_F(WorkerSetTest, TheCoordinatorGivesWayWhenAllWorkersServeAnotherForAWhile) {
  options_.worker_addresses = {{0, "zero"}, {1, "one"}};
  Worker &first = AddWorker(0), &second = AddWorker(1);
  first.state = Worker::State::kDialing;
  first.serves_another = true;
  EXPECT_FALSE(workers_.MustYield(first)) << "the other worker serves";
  second.state = Worker::State::kDialing;
  EXPECT_FALSE(workers_.MustYield(first));
  Advance(options_.worker_silence);
  EXPECT_FALSE(workers_.MustYield(first)) << "the other worker has not refused this coordinator";
  second.serves_another = true;
  EXPECT_TRUE(workers_.MustYield(second));
  workers_.NoteServed();
  EXPECT_FALSE(workers_.MustYield(first));
  second.serves_another = false;
  Advance(options_.ps_timeout);
  EXPECT_TRUE(workers_.MustYield(first)) << "the other worker stays away";
}

// ---- load ----

TEST_F(WorkerSetTest, ReadyWorkersAreListedByTheirStepsInFlight) {
  using Load = std::pair<int, int>;
  Worker &first = AddWorker(0), &second = AddWorker(1);
  EXPECT_EQ(workers_.by_load(), (std::set<Load>{{-1, 0}, {-1, 1}}));
  const auto step = std::make_shared<coordinator_records::Step>();
  step->expected = absl::Milliseconds(1);
  workers_.AddInFlight(first, step);
  EXPECT_EQ(workers_.by_load(), (std::set<Load>{{0, 0}, {-1, 1}}));
  EXPECT_EQ(first.expected, absl::Milliseconds(1));
  workers_.RemoveInFlight(first, *step);
  EXPECT_EQ(first.expected, absl::ZeroDuration());
  workers_.EndSession(second);
  EXPECT_EQ(workers_.by_load(), (std::set<Load>{{-1, 0}}));
}

TEST_F(WorkerSetTest, CountsTheWorkersThatJoin) {
  Worker& worker = AddWorker(0);
  EXPECT_EQ(workers_.num_joining(), 0);
  workers_.EndSession(worker);
  workers_.SetJoining(worker);
  EXPECT_EQ(workers_.num_joining(), 1);
  EXPECT_TRUE(workers_.by_load().empty());
  workers_.SetReady(worker);
  EXPECT_EQ(workers_.num_joining(), 0);
  workers_.EndSession(worker);
  workers_.SetJoining(worker);
  workers_.EndSession(worker);
  EXPECT_EQ(workers_.num_joining(), 0);
}

TEST_F(WorkerSetTest, OnlyTheStepThatRanIsBlamedForTheLossOfItsWorker) {
  Worker& worker = AddWorker(0);
  std::vector<std::shared_ptr<coordinator_records::Step>> steps;
  for (int i = 0; i < 3; ++i) {
    steps.push_back(std::make_shared<coordinator_records::Step>());
    steps.back()->attempt = 1;
    workers_.AddInFlight(worker, steps.back());
  }
  workers_.Fence(worker, "it is silent", 1);
  EXPECT_EQ(steps[0]->forgiven, 0u);
  EXPECT_EQ(steps[1]->forgiven, 1u);
  EXPECT_EQ(steps[2]->forgiven, 1u);
}

}  // namespace
}  // namespace divvy
