// The rules of TensorFlow's ClusterCoordinator as its own tests state them, made exact where a step
// counts once. The same tests run on three clusters; the one that is linked is used
// (cluster_under_test.h).
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/captured_log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"
#include "strategy/coordinator.h"
#include "tests/coordinator/cluster_under_test.h"
#include "tests/coordinator/steps.h"

namespace divvy::rules {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CoordinatorRulesTest : public ::testing::Test {
 protected:
  // The connection of a killed process breaks at once.
  CoordinatorRulesTest() { options_.limits.reconnect_limit = absl::Milliseconds(100); }
  void Start(int num_ps, int num_workers) {
    options_.num_ps = num_ps;
    options_.num_workers = num_workers;
    auto cluster = MakeCluster(options_);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    AwaitWorkers(num_workers);
  }
  void TearDown() override { gate().Open(); }

  template <typename T>
  T Await(const Pending<T>& answer) {
    if (cluster_->WaitUntil([&answer] { return answer.ready(); })) return answer.value();
    ADD_FAILURE() << "no answer came" << WhatItDoes();
    return T(absl::DeadlineExceededError("no answer came"));
  }
  void AwaitAtGate(int arrived) {
    const bool met = cluster_->WaitUntil([arrived] { return gate().arrived() >= arrived; });
    ASSERT_TRUE(met) << gate().arrived() << " of " << arrived << " steps are at the gate"
                     << WhatItDoes();
  }
  void AwaitWorkers(int up) {
    const bool met = cluster_->WaitUntil(
        [this, up] { return cluster_->coordinator().Snapshot().workers_up == up; });
    ASSERT_TRUE(met) << "wanted " << up << " workers" << WhatItDoes();
  }

  std::string WhatItDoes() {
    const CoordinatorSnapshot now = cluster_->coordinator().Snapshot();
    std::string text = absl::StrCat("; ", now.workers_up, " workers are up, ", now.queued,
                                    " steps queued, ", now.in_flight, " in flight");
    for (const CoordinatorSnapshot::Wait& wait : now.waits) absl::StrAppend(&text, "; ", wait.text);
    return text;
  }

  // Schedules a step, which must be accepted.
  Pending<absl::StatusOr<Nest>> Schedule(const std::string& step, Nest::List args) {
    const Scheduled scheduled = cluster_->Schedule(step, std::move(args));
    const absl::Status accepted = Await(scheduled.accepted);
    EXPECT_TRUE(accepted.ok()) << step << ": " << accepted;
    return scheduled.result;
  }
  std::vector<Pending<absl::StatusOr<Nest>>> ScheduleMany(int times, const std::string& step,
                                                          const Nest& arg) {
    std::vector<Pending<absl::StatusOr<Nest>>> results;
    for (int i = 0; i < times; ++i) results.push_back(Schedule(step, {arg}));
    return results;
  }
  absl::Status TrySchedule(const std::string& step, Nest::List args) {
    return Await(cluster_->Schedule(step, std::move(args)).accepted);
  }
  absl::Status Join() { return Await(cluster_->Join()); }
  absl::StatusOr<bool> Done() { return Await(cluster_->Done()); }
  int64_t Counter() {
    const absl::StatusOr<int64_t> counter = Await(cluster_->Counter());
    EXPECT_TRUE(counter.ok()) << counter.status();
    return counter.value_or(-1);
  }
  Iterator MakeIterator(const BoundDataSource& source) {
    return cluster_->coordinator().CreatePerWorkerDataset(source)->MakeIterator();
  }

  ClusterOptions options_;
  std::unique_ptr<ClusterUnderTest> cluster_;
};

Nest Arg(int64_t n) { return Nest(n); }
Nest Arg(const char* text) { return Nest(text); }
Nest Arg(const Iterator& iterator) { return NestCodec<Iterator>::Encode(iterator); }
int64_t Number(const Nest& value) { return *value.tensor()->scalar<int64_t>(); }

// ---- counting, whoever dies ----

TEST_F(CoordinatorRulesTest, EveryScheduledStepCountsOnce) {
  Start(2, 2);
  ScheduleMany(200, kAdd, Arg(1));
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 200);
}

TEST_F(CoordinatorRulesTest, AWorkerKilledInTheMiddleOfAStepCostsNothing) {
  Start(2, 2);
  gate().Close();
  ScheduleMany(20, kAddAtGate, Arg(1));
  AwaitAtGate(2);
  cluster_->KillWorker(0);
  gate().Open();
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 20);
}

TEST_F(CoordinatorRulesTest, TwoWorkersKilledAtOnceCostNothing) {
  Start(2, 3);
  gate().Close();
  ScheduleMany(20, kAddAtGate, Arg(1));
  AwaitAtGate(3);
  cluster_->KillWorker(0);
  cluster_->KillWorker(2);
  gate().Open();
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 20);
}

TEST_F(CoordinatorRulesTest, AWorkerKilledAgainAndAgainCostsNothing) {
  Start(2, 2);
  int64_t scheduled = 0;
  for (int life = 0; life < 3; ++life) {
    gate().Close();
    scheduled += static_cast<int64_t>(ScheduleMany(10, kAddAtGate, Arg(1)).size());
    AwaitAtGate(2);
    cluster_->KillWorker(1);
    gate().Open();
    AwaitWorkers(1);
    cluster_->StartWorker(1);
    AwaitWorkers(2);
  }
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), scheduled);
}

TEST_F(CoordinatorRulesTest, WithAllWorkersGoneWorkWaitsForOneThatComesBack) {
  Start(1, 2);
  gate().Close();
  ScheduleMany(10, kAddAtGate, Arg(1));
  AwaitAtGate(2);
  cluster_->KillWorker(0);
  cluster_->KillWorker(1);
  gate().Open();
  const Pending<absl::Status> joined = cluster_->Join();
  AwaitWorkers(0);
  cluster_->LetThingsHappen();
  EXPECT_FALSE(joined.ready());
  EXPECT_FALSE(*Done());
  cluster_->StartWorker(1);
  EXPECT_TRUE(Await(joined).ok());
  EXPECT_EQ(Counter(), 10);
}

TEST_F(CoordinatorRulesTest, AResultStaysWhenItsWorkerHasDied) {
  Start(1, 1);
  const auto result = Schedule(kEcho, {Arg("kept")});
  ASSERT_TRUE(Join().ok());
  cluster_->KillWorker(0);
  AwaitWorkers(0);
  EXPECT_EQ(*Await(result)->text(), "kept");
}

TEST_F(CoordinatorRulesTest, AStepThatKeepsLosingItsWorkerIsGivenUp) {
  options_.limits.max_step_attempts = 2;
  Start(1, 1);
  gate().Close();
  const auto result = Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  cluster_->KillWorker(0);
  cluster_->StartWorker(0);
  AwaitAtGate(2);
  cluster_->KillWorker(0);
  const absl::Status lost = Await(result).status();
  EXPECT_EQ(ReasonOf(lost), Reason::kStepGaveUp) << lost;
  EXPECT_THAT(lost.message(), HasSubstr("2 attempts"));
  cluster_->StartWorker(0);
  EXPECT_EQ(Join(), lost);
  EXPECT_EQ(Counter(), 0);
}

// ---- parameter servers ----

// Checks that this error reports the loss of ps `index`.
void ExpectPsLost(const absl::Status& status, int index) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(ReasonOf(status), Reason::kPsLost) << status;
  EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("ps ", index)));
}

TEST_F(CoordinatorRulesTest, ALostParameterServerCostsTimeAndNothingElse) {
  Start(2, 2);
  for (int loss = 0; loss < 3; ++loss) {
    ScheduleMany(10, kAdd, Arg(1));
    ASSERT_TRUE(Join().ok());
    ScheduleMany(10, kAdd, Arg(1));
    cluster_->KillPs(loss % 2);
    cluster_->StartPs(loss % 2);
    ASSERT_TRUE(Join().ok());
    EXPECT_EQ(Counter(), 20 * (loss + 1));
  }
  EXPECT_GE(cluster_->coordinator().Snapshot().recoveries, 3);
  EXPECT_EQ(cluster_->coordinator().step(), 60);
}

TEST_F(CoordinatorRulesTest, AStepThatRunsWhenAParameterServerIsLostIsRunAgainAndCountsOnce) {
  Start(2, 1);
  gate().Close();
  const auto result = Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  cluster_->KillPs(1);
  cluster_->StartPs(1);
  ASSERT_TRUE(
      cluster_->WaitUntil([this] { return cluster_->coordinator().Snapshot().recoveries == 1; }));
  gate().Open();
  ASSERT_TRUE(Join().ok());
  EXPECT_TRUE(Await(result).ok());
  EXPECT_EQ(Counter(), 1);
}

TEST_F(CoordinatorRulesTest, ALogThatIsFullWithoutCheckpointsMakesTheNextLossTheEnd) {
  options_.limits.redo_log_bytes = 1'000;
  CapturedLog log;
  Start(1, 1);
  ScheduleMany(10, kAdd, Arg(1));
  ASSERT_TRUE(Join().ok());
  EXPECT_THAT(log.text(Severity::kWarning),
              HasSubstr("the redo log is full (--redo_log_bytes=1000)"));
  cluster_->KillPs(0);
  cluster_->StartPs(0);
  absl::Status raised;
  ASSERT_TRUE(cluster_->WaitUntil([&] { return !(raised = TrySchedule(kAdd, {Arg(1)})).ok(); }));
  ExpectPsLost(raised, 0);
}

// The rest of this part uses --durability=checkpoint.

TEST_F(CoordinatorRulesTest, ALostParameterServerWakesAJoinThatWaits) {
  options_.limits.durability = Durability::kCheckpoint;
  Start(2, 1);
  gate().Close();
  const auto result = Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  const Pending<absl::Status> joined = cluster_->Join();
  cluster_->KillPs(1);
  cluster_->StartPs(1);
  ExpectPsLost(Await(joined), 1);
  ExpectPsLost(Await(result).status(), 1);
}

TEST_F(CoordinatorRulesTest, ALostParameterServerIsRaisedByEveryCall) {
  options_.limits.durability = Durability::kCheckpoint;
  Start(2, 1);
  ASSERT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  cluster_->KillPs(1);
  cluster_->StartPs(1);
  absl::Status raised;
  ASSERT_TRUE(cluster_->WaitUntil([&] { return !(raised = TrySchedule(kAdd, {Arg(1)})).ok(); }));
  ExpectPsLost(raised, 1);
  ExpectPsLost(Join(), 1);
  ExpectPsLost(Done().status(), 1);
  ExpectPsLost(TrySchedule(kAdd, {Arg(1)}), 1);
}

TEST_F(CoordinatorRulesTest, ALostParameterServerIsToldAlsoWhileAWorkerIsAway) {
  options_.limits.durability = Durability::kCheckpoint;
  Start(2, 2);
  gate().Close();
  ScheduleMany(4, kAddAtGate, Arg(1));
  AwaitAtGate(2);
  cluster_->KillWorker(0);
  cluster_->KillPs(0);
  cluster_->StartPs(0);
  gate().Open();
  ExpectPsLost(Join(), 0);
}

TEST_F(CoordinatorRulesTest, APsThatStaysAwayIsLostAfterItsTimeout) {
  options_.limits.ps_timeout = absl::Seconds(2);
  Start(2, 1);
  cluster_->KillPs(0);
  const auto result = Schedule(kAdd, {Arg(1)});
  ExpectPsLost(Join(), 0);
  ExpectPsLost(Await(result).status(), 0);
}

TEST_F(CoordinatorRulesTest, APsThatComesBackEmptyIsALossAndNoVariableIsMissing) {
  options_.limits.durability = Durability::kCheckpoint;
  Start(1, 2);
  ASSERT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  cluster_->KillPs(0);
  cluster_->StartPs(0);
  // Either a worker or the coordinator calls the new life first. It makes no difference.
  const Scheduled step = cluster_->Schedule(kAdd, {Arg(1)});
  const absl::Status accepted = Await(step.accepted);
  const absl::Status failed = accepted.ok() ? Await(step.result).status() : accepted;
  ExpectPsLost(failed, 0);
  EXPECT_THAT(failed.message(), Not(HasSubstr("counter")));
  ExpectPsLost(Await(cluster_->Counter()).status(), 0);
}

TEST_F(CoordinatorRulesTest, APsThatIsAwayForAWhileIsWaitedForHoweverOften) {
  Start(2, 2);
  for (int blip = 0; blip < 5; ++blip) {  // if they counted as losses, the third would be fatal
    cluster_->CutPs(blip % 2);
    ScheduleMany(5, kAdd, Arg(1));
    const Pending<absl::Status> joined = cluster_->Join();
    ASSERT_TRUE(cluster_->WaitUntil([this] {
      return !cluster_->coordinator().Snapshot().waits.empty();
    })) << "the job must report what it waits for";
    EXPECT_FALSE(joined.ready());
    cluster_->HealPs(blip % 2);
    ASSERT_TRUE(Await(joined).ok());
  }
  EXPECT_EQ(Counter(), 25);
}

// ---- the queue ----

TEST_F(CoordinatorRulesTest, ScheduleWaitsForRoomInTheQueue) {
  options_.limits.max_queued_steps = 2;
  options_.limits.queue_ahead = options_.limits.most_ahead = 0;
  Start(1, 1);
  gate().Close();
  Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  ScheduleMany(2, kAddAtGate, Arg(1));
  const Scheduled third = cluster_->Schedule(kAddAtGate, {Arg(1)});
  ASSERT_TRUE(
      cluster_->WaitUntil([this] { return cluster_->coordinator().Snapshot().queued == 3; }));
  cluster_->LetThingsHappen();
  EXPECT_FALSE(third.accepted.ready());
  EXPECT_FALSE(*Done());
  gate().Open();
  EXPECT_TRUE(Await(third.accepted).ok());
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 4);
}

TEST_F(CoordinatorRulesTest, ALimitOfNoneLetsEveryScheduleReturnAtOnce) {
  options_.limits.max_queued_steps = 0;
  Start(1, 1);
  gate().Close();
  ScheduleMany(50, kAddAtGate, Arg(1));
  gate().Open();
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 50);
}

TEST_F(CoordinatorRulesTest, DataIsOpenedAheadOfStepsThatWereQueuedBefore) {
  Start(1, 1);
  gate().Close();
  ScheduleMany(10, kAddAtGate, Arg(1));
  AwaitAtGate(1);
  const int64_t before = TimesOpened(Numbers(5));
  const Iterator numbers = MakeIterator(Numbers(5));
  EXPECT_TRUE(cluster_->WaitUntil([before] { return TimesOpened(Numbers(5)) == before + 1; }));
  EXPECT_EQ(gate().arrived(), 1);
  EXPECT_EQ(cluster_->coordinator().step(), 0);
}

TEST_F(CoordinatorRulesTest, StepsAreScheduledFromSeveralThreadsWhileOthersJoin) {
  Start(2, 2);
  std::vector<Pending<absl::Status>> answers;
  for (int i = 0; i < 60; ++i) {
    // Each call is made without waiting for the one before.
    answers.push_back(cluster_->Schedule(kAdd, {Arg(1)}).accepted);
    if (i % 10 == 0) answers.push_back(cluster_->Join());
  }
  for (const auto& answer : answers) EXPECT_TRUE(Await(answer).ok());
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 60);
}

TEST_F(CoordinatorRulesTest, DoneTellsWhetherAStepWaitsOrRuns) {
  Start(1, 1);
  EXPECT_TRUE(*Done());
  gate().Close();
  Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  EXPECT_FALSE(*Done());
  gate().Open();
  ASSERT_TRUE(Join().ok());
  EXPECT_TRUE(*Done());
}

TEST_F(CoordinatorRulesTest, QueuedAndRunningStepsAndLostWorkersAreCounted) {
  options_.limits.queue_ahead = options_.limits.most_ahead = 0;
  Start(1, 2);
  gate().Close();
  ScheduleMany(5, kAddAtGate, Arg(1));
  AwaitAtGate(2);
  CoordinatorSnapshot now = cluster_->coordinator().Snapshot();
  EXPECT_EQ(now.queued, 3);
  EXPECT_EQ(now.in_flight, 2);
  EXPECT_EQ(now.lost_workers, 0);
  cluster_->KillWorker(0);
  AwaitWorkers(1);
  gate().Open();
  ASSERT_TRUE(Join().ok());
  now = cluster_->coordinator().Snapshot();
  EXPECT_EQ(now.queued, 0);
  EXPECT_EQ(now.in_flight, 0);
  EXPECT_EQ(now.finished_steps, 5);
  EXPECT_EQ(now.lost_workers, 1);
}

TEST_F(CoordinatorRulesTest, TheWatchdogSaysWhatEverybodyDoesWhenNoStepFinishes) {
  options_.limits.watchdog = absl::Milliseconds(500);
  Start(1, 1);
  CapturedLog log;
  cluster_->LetThingsHappen();
  EXPECT_EQ(log.text(Severity::kWarning), "") << "there is nothing to do";
  gate().Close();
  ScheduleMany(2, kAddAtGate, Arg(1));
  AwaitAtGate(1);
  ASSERT_TRUE(cluster_->WaitUntil([&log] {
    return absl::StrContains(log.text(Severity::kWarning), "no step has finished for ");
  }));
  EXPECT_THAT(log.text(Severity::kWarning),
              HasSubstr("0 steps queued, 2 in flight; worker 0 has step rules/add_at_gate (1), "
                        "attempt 1, and 1 behind it"));
  gate().Open();
  EXPECT_TRUE(Join().ok());
}

// ---- results ----

TEST_F(CoordinatorRulesTest, ResultsOfAnyShapeAreFetchedAndSoIsNothing) {
  Start(1, 2);
  const Nest nest{{"list", Nest(Nest::List{Arg(1), Arg("two"), Nest(Nest::List{})})},
                  {"tensor", Nest(Tensor::Vector<float>({1.5f, -2}))}};
  EXPECT_TRUE(BitwiseEqual(*Await(Schedule(kEcho, {nest})), nest));
  EXPECT_TRUE(BitwiseEqual(*Await(Schedule(kAdd, {Arg(1)})), Nest()));
}

// A remote value is no argument of a step: the program must fetch it first. This does not compile.
template <typename R, typename Arg, typename Value, typename = void>
constexpr bool kIsScheduledWith = false;
template <typename R, typename Arg, typename Value>
constexpr bool kIsScheduledWith<R, Arg, Value,
                                std::void_t<decltype(std::declval<Coordinator&>().Schedule(
                                    std::declval<const Step<R(Arg)>&>(), std::declval<Value>()))>> =
    true;
static_assert(kIsScheduledWith<int64_t, int64_t, int64_t>);
static_assert(kIsScheduledWith<void, Nest, Nest>);
static_assert(!kIsScheduledWith<int64_t, int64_t, RemoteValue<int64_t>>);
static_assert(!kIsScheduledWith<void, std::string, RemoteValue<std::string>>);
static_assert(!kIsScheduledWith<void, Nest, RemoteValue<Nest>>);
static_assert(!kIsScheduledWith<void, Iterator, PerWorkerDataset>);

// ---- errors ----

TEST_F(CoordinatorRulesTest, AnErrorIsRaisedOnceAndTheCoordinatorIsUsableAgain) {
  Start(2, 2);
  const auto failed = Schedule(kFail, {Arg("not today")});
  const absl::Status raised = Join();
  EXPECT_EQ(raised.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(raised.message(), HasSubstr("not today"));
  EXPECT_EQ(Await(failed).status(), raised);
  EXPECT_TRUE(Join().ok());
  EXPECT_TRUE(*Done());
  ScheduleMany(10, kAdd, Arg(1));
  EXPECT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 10) << "a failed step must leave no trace";
}

TEST_F(CoordinatorRulesTest, ScheduleJoinAndDoneAlikeRaiseTheError) {
  Start(1, 1);
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("told to Done")})).ok());
  EXPECT_THAT(Done().status().message(), HasSubstr("told to Done"));
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("told to Schedule")})).ok());
  EXPECT_THAT(TrySchedule(kAdd, {Arg(1)}).message(), HasSubstr("told to Schedule"));
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("told to Join")})).ok());
  EXPECT_THAT(Join().message(), HasSubstr("told to Join"));
  EXPECT_TRUE(Join().ok());
}

TEST_F(CoordinatorRulesTest, AScheduleThatRaisesQueuesNothing) {
  Start(1, 1);
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("no")})).ok());
  const Scheduled refused = cluster_->Schedule(kAdd, {Arg(1)});
  EXPECT_EQ(Await(refused.accepted).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(*Done());
  EXPECT_TRUE(Join().ok());
  EXPECT_FALSE(refused.result.ready());
  EXPECT_EQ(Counter(), 0);
}

TEST_F(CoordinatorRulesTest, TwoFailingStepsRaiseOneErrorAndEachKeepsItsOwn) {
  Start(1, 2);
  gate().Close();
  const auto one = Schedule(kFailAtGate, {Arg("one")}), two = Schedule(kFailAtGate, {Arg("two")});
  AwaitAtGate(2);
  gate().Open();
  EXPECT_THAT(Await(one).status().message(), HasSubstr("one"));
  EXPECT_THAT(Await(two).status().message(), HasSubstr("two"));
  EXPECT_FALSE(Join().ok());
  EXPECT_TRUE(Join().ok());
}

TEST_F(CoordinatorRulesTest, WithoutACallQueuedStepsGoOnAfterAnError) {
  Start(1, 1);
  ASSERT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  gate().Close();
  const auto failed = Schedule(kFailAtGate, {Arg("the second")});
  const auto later = ScheduleMany(3, kAdd, Arg(1));
  gate().Open();
  for (const auto& result : later) EXPECT_TRUE(Await(result).ok());
  EXPECT_FALSE(Await(failed).ok());
  EXPECT_THAT(Join().message(), HasSubstr("the second"));
  EXPECT_EQ(Counter(), 4);
}

TEST_F(CoordinatorRulesTest, TheCallThatRaisesCancelsWhatIsQueuedAndWaitsForWhatRuns) {
  options_.limits.queue_ahead = options_.limits.most_ahead = 0;
  Start(1, 2);
  gate().Close();
  const auto failed = Schedule(kFailAtGate, {Arg("no")});
  const auto rest = ScheduleMany(8, kAddAtGate, Arg(1));
  AwaitAtGate(2);
  const Pending<absl::Status> joined = cluster_->Join();
  gate().Open();
  EXPECT_THAT(Await(joined).message(), HasSubstr("no"));
  const CoordinatorSnapshot now = cluster_->coordinator().Snapshot();
  EXPECT_EQ(now.in_flight, 0);
  EXPECT_EQ(now.queued, 0);
  int64_t finished = 0;
  for (const auto& result : rest) {
    ASSERT_TRUE(result.ready());
    finished += result.value().ok();
    EXPECT_TRUE(result.value().ok() || ReasonOf(result.value().status()) == Reason::kBatchCancelled)
        << result.value().status();
  }
  EXPECT_EQ(Counter(), finished) << "a cancelled step is in no variable";
}

TEST_F(CoordinatorRulesTest, AScheduleMadeWhileAJoinWaitsBringsNoErrorOfItsOwn) {
  options_.limits.queue_ahead = options_.limits.most_ahead = 0;
  Start(1, 1);
  gate().Close();
  Schedule(kFailAtGate, {Arg("the only one")});
  AwaitAtGate(1);
  const Pending<absl::Status> joined = cluster_->Join();
  const Scheduled meanwhile = cluster_->Schedule(kAddAtGate, {Arg(1)});
  ASSERT_TRUE(
      cluster_->WaitUntil([this] { return cluster_->coordinator().Snapshot().queued == 1; }));
  gate().Open();
  EXPECT_THAT(Await(joined).message(), HasSubstr("the only one"));
  EXPECT_TRUE(Await(meanwhile.accepted).ok());
  EXPECT_EQ(ReasonOf(Await(meanwhile.result).status()), Reason::kBatchCancelled);
  EXPECT_TRUE(Join().ok()) << "a cancellation is not raised as a step's error";
  EXPECT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
}

TEST_F(CoordinatorRulesTest, AStepOfALostWorkerIsCancelledWhereAnErrorWaitsToBeRaised) {
  Start(1, 2);
  gate().Close();
  const auto on_lost_worker = Schedule(kAddAtGate, {Arg(1)});
  AwaitAtGate(1);
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("first")})).ok());
  for (int worker : {0, 1}) cluster_->KillWorker(worker);  // one of them has the step
  gate().Open();
  EXPECT_EQ(ReasonOf(Await(on_lost_worker).status()), Reason::kBatchCancelled)
      << Await(on_lost_worker).status();
  EXPECT_THAT(Join().message(), HasSubstr("first"));
  cluster_->StartWorker(0);
  EXPECT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  EXPECT_EQ(Counter(), 1);
}

// ---- data ----

TEST_F(CoordinatorRulesTest, EachWorkerIteratesOverTheWholeDatasetAndItsEndIsNoError) {
  Start(1, 2);
  const Iterator numbers = MakeIterator(Numbers(4));
  std::map<int64_t, std::vector<int64_t>> seen;  // by worker
  int ends = 0;
  // Each worker reaches its end once; after that, no worker has data left.
  for (int i = 0; i < 11; ++i) {
    const absl::StatusOr<Nest> value = Await(Schedule(kNext, {Arg(numbers)}));
    ASSERT_TRUE(value.ok() || IsEndOfData(value.status())) << value.status();
    ends += !value.ok();
    if (value.ok()) seen[Number((*value)[0])].push_back(Number((*value)[1]));
  }
  EXPECT_EQ(seen, (std::map<int64_t, std::vector<int64_t>>{{0, {0, 1, 2, 3}}, {1, {0, 1, 2, 3}}}));
  EXPECT_EQ(ends, 3);
  EXPECT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 8);
}

TEST_F(CoordinatorRulesTest, AnErrorOfASourceIsSilentUntilAStepUsesIt) {
  Start(1, 1);
  const int64_t before = TimesOpened(BrokenData());
  const Iterator broken = MakeIterator(BrokenData());
  ASSERT_TRUE(cluster_->WaitUntil([before] { return TimesOpened(BrokenData()) == before + 1; }));
  EXPECT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  EXPECT_TRUE(Join().ok());
  const absl::Status failed = Await(Schedule(kNext, {Arg(broken)})).status();
  EXPECT_EQ(failed.code(), absl::StatusCode::kDataLoss) << failed;
  EXPECT_THAT(failed.message(), HasSubstr("the file is broken"));
  EXPECT_EQ(Join(), failed);
  EXPECT_TRUE(Await(Schedule(kAdd, {Arg(1)})).ok());
  EXPECT_TRUE(Join().ok());
}

TEST_F(CoordinatorRulesTest, AnIteratorKeepsItsPositionThroughAnErrorAndTheCancellation) {
  Start(1, 1);
  const Iterator numbers = MakeIterator(Numbers(10));
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(numbers)})))[1]), i);
  ASSERT_FALSE(Await(Schedule(kFail, {Arg("no")})).ok());
  EXPECT_FALSE(Join().ok());
  EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(numbers)})))[1]), 3);
}

TEST_F(CoordinatorRulesTest, ADatasetBeginsAnewOnAWorkerThatCameBack) {
  Start(1, 1);
  const Iterator numbers = MakeIterator(Numbers(10));
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(numbers)})))[1]), i);
  gate().Close();
  const auto interrupted = Schedule(kNextAtGate, {Arg(numbers)});
  AwaitAtGate(1);
  cluster_->KillWorker(0);
  gate().Open();
  cluster_->StartWorker(0);
  EXPECT_EQ(Number((*Await(interrupted))[1]), 0);
  EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(numbers)})))[1]), 1);
  ASSERT_TRUE(Join().ok());
  EXPECT_EQ(Counter(), 5);
}

TEST_F(CoordinatorRulesTest, AnIteratorThatWasDroppedIsNotMadeAgain) {
  Start(1, 1);
  int64_t before = TimesOpened(Numbers(7));
  {
    const Iterator dropped = MakeIterator(Numbers(7));
    ASSERT_TRUE(cluster_->WaitUntil([&] { return TimesOpened(Numbers(7)) == before + 1; }));
  }
  const Iterator kept = MakeIterator(Numbers(7));
  EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(kept)})))[1]), 0);
  before = TimesOpened(Numbers(7));
  cluster_->KillWorker(0);
  cluster_->StartWorker(0);
  EXPECT_EQ(Number((*Await(Schedule(kNext, {Arg(kept)})))[1]), 0);
  EXPECT_EQ(TimesOpened(Numbers(7)), before + 1);
}

}  // namespace
}  // namespace divvy::rules
