#include "coordinator/core/step_queue.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/fake_step_host.h"
#include "coordinator/core/testing/parts_test.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using coordinator_records::Step;

class StepQueueTest : public StepsTest<FakeStepHost> {
 protected:
  StepQueueTest() {
    options_.queue_ahead = 1;
    passes_.BeginEpoch(Epoch(1));
  }
  struct Outcome {
    std::optional<absl::Status> accepted, result;
  };
  std::shared_ptr<Outcome> Schedule(const std::string& function) {
    auto outcome = std::make_shared<Outcome>();
    steps_.Schedule(
        {function, Nest()},
        [outcome](const absl::StatusOr<Nest>& result) { outcome->result = result.status(); },
        [outcome](const absl::Status& accepted) { outcome->accepted = accepted; });
    Pump();
    return outcome;
  }
  std::shared_ptr<Outcome> Join() {
    auto outcome = std::make_shared<Outcome>();
    const StatusCallback done = [outcome](const absl::Status& status) { outcome->result = status; };
    if (!steps_.EndsWithError(done, [] {})) steps_.Join(done, [] {});
    Pump();
    return outcome;
  }
  // Does what the coordinator does after each event.
  void Pump() {
    steps_.MaybeRaise();
    steps_.DispatchAll();
    steps_.CompleteRuns();
    steps_.CompleteJoins();
    steps_.MaybeRaise();
    outbox_.Drain();
  }
  // The worker's first step ends.
  void Finish(Worker& worker, StepOutcome outcome = StepOutcome::kOk,
              absl::Status error = absl::OkStatus(), std::vector<int> participants = {}) {
    ASSERT_FALSE(worker.in_flight.empty());
    Report report;
    report.step = worker.in_flight.front()->id;
    report.attempt = worker.in_flight.front()->attempt;
    report.outcome = outcome;
    report.error = std::move(error);
    report.participants = std::move(participants);
    steps_.OnReport(worker, std::move(report));
    Pump();
  }
  // As Finish; the step has taken so long.
  void FinishAfter(Worker& worker, absl::Duration took, StepOutcome outcome = StepOutcome::kOk) {
    ASSERT_FALSE(worker.in_flight.empty());
    Report report;
    report.step = worker.in_flight.front()->id;
    report.attempt = worker.in_flight.front()->attempt;
    report.outcome = outcome;
    report.took = took;
    steps_.OnReport(worker, std::move(report));
    Pump();
  }
  // Steps of `function` that each took so long.
  void Teach(Worker& worker, const std::string& function, absl::Duration took) {
    for (int i = 0; i < 8; ++i) {
      Schedule(function);
      FinishAfter(worker, took);
    }
  }
  // The worker is lost, and every ps has acknowledged the fence. `applied`: ps -> the number of
  // participants that the step named.
  void Lose(Worker& worker, const std::map<int, int>& applied = {}) {
    for (const auto& step : workers_.EndSession(worker)) {
      step->state = Step::State::kFencing;
      step->applied = applied;
      steps_.OnFenced(step, worker.index);
    }
    Pump();
  }
};

TEST_F(StepQueueTest, AStepIsDispatchedInTheOrderOfItsIdToTheWorkerWithTheMostRoom) {
  Worker &first = AddWorker(0), &second = AddWorker(1);
  const auto one = Schedule("one"), two = Schedule("two");
  ASSERT_EQ(first.in_flight.size(), 1u);
  ASSERT_EQ(second.in_flight.size(), 1u);
  EXPECT_EQ(first.in_flight[0]->id, EntryId(1));
  EXPECT_EQ(second.in_flight[0]->ordinal, 1);
  EXPECT_EQ(steps_.in_flight(), 2);
  Finish(second);
  EXPECT_FALSE(one->result);
  EXPECT_EQ(two->result, absl::OkStatus());
  EXPECT_EQ(steps_.totals().finished_steps, 1);
  EXPECT_EQ(steps_.NumClosedOrdinals(), 1);
  EXPECT_EQ(host_.finished, std::vector<EntryId>{EntryId(2)});
}

TEST_F(StepQueueTest, TheTimesOfAStepAreKeptWithWhatTheCoordinatorKnows) {
  TraceLog traces;
  options_.traces = &traces;
  const auto outcome = Schedule("train");
  Advance(absl::Milliseconds(20));
  Worker& worker = AddWorker(4);
  Pump();
  ASSERT_EQ(worker.in_flight.size(), 1u);
  EXPECT_EQ(worker.in_flight[0]->trace_over, absl::ZeroDuration());
  Advance(absl::Milliseconds(50));
  Report report;
  report.step = worker.in_flight[0]->id;
  report.attempt = 1;
  report.took = absl::Milliseconds(30);
  report.trace.emplace().reported = absl::Milliseconds(40);
  steps_.OnReport(worker, std::move(report));
  Pump();
  ASSERT_EQ(traces.Last().size(), 1u);
  const TracedStep run = traces.Last()[0];
  EXPECT_EQ(run.function, "train");
  EXPECT_EQ(run.worker, 4);
  EXPECT_EQ(run.ordinal, 0);
  EXPECT_EQ(run.outcome, StepOutcome::kOk);
  EXPECT_EQ(run.queued, absl::Milliseconds(20));
  EXPECT_EQ(run.total, absl::Milliseconds(50));
  ASSERT_TRUE(run.parts.has_value());
  EXPECT_EQ(run.parts->reported, absl::Milliseconds(40));
}

TEST_F(StepQueueTest, AnAttemptWhoseWorkerWasLostIsKeptAndSoIsTheNextOne) {
  TraceLog traces;
  options_.traces = &traces;
  Worker& worker = AddWorker(0);
  Schedule("train");
  Advance(absl::Seconds(7));
  Worker& other = AddWorker(1);
  Lose(worker);
  ASSERT_EQ(traces.Last().size(), 1u);
  EXPECT_FALSE(traces.Last()[0].outcome.has_value());
  EXPECT_FALSE(traces.Last()[0].parts.has_value());
  EXPECT_EQ(traces.Last()[0].total, absl::Seconds(7));
  ASSERT_EQ(other.in_flight.size(), 1u);
  Report report;
  report.step = other.in_flight[0]->id;
  report.attempt = 2;
  report.trace.emplace();
  steps_.OnReport(other, std::move(report));
  Pump();
  ASSERT_EQ(traces.Last().size(), 2u);
  EXPECT_EQ(traces.Last()[1].attempt, 2u);
  EXPECT_EQ(traces.Last()[1].step, traces.Last()[0].step);
}

// A worker that lies about its times does not make its steps the slowest of all, and a step whose
// messages took long is slow although its worker was fast.
TEST_F(StepQueueTest, AStepIsAsSlowAsTheCoordinatorSawIt) {
  TraceLog traces;
  options_.traces = &traces;
  Worker& worker = AddWorker(0);
  for (const absl::Duration claimed : {absl::Hours(1), absl::Nanoseconds(1)}) {
    Schedule("train");
    ASSERT_EQ(worker.in_flight.size(), 1u);
    Report report;
    report.step = worker.in_flight[0]->id;
    report.attempt = 1;
    report.took = claimed;
    if (claimed == absl::Hours(1)) report.trace.emplace();
    Advance(claimed == absl::Hours(1) ? absl::Milliseconds(2) : absl::Milliseconds(5));
    steps_.OnReport(worker, std::move(report));
    Pump();
  }
  const std::vector<TracedStep> slowest = traces.Slowest(clock_.Elapsed());
  ASSERT_EQ(slowest.size(), 2u);
  EXPECT_EQ(slowest[0].ordinal, 1);
  EXPECT_EQ(slowest[0].outcome, StepOutcome::kOk);
  EXPECT_FALSE(slowest[0].parts.has_value());
}

TEST_F(StepQueueTest, AFastStepThatIsNotSampledIsNotKept) {
  TraceLog traces;
  options_.traces = &traces;
  Worker& worker = AddWorker(0);
  // The first one is sampled. After 33, the slowest of this minute are known.
  for (int i = 0; i < 34; ++i) {
    Schedule("train");
    Advance(absl::Microseconds(i == 33 ? 1 : 2));
    FinishAfter(worker, absl::Nanoseconds(1));
  }
  EXPECT_EQ(traces.Slowest(clock_.Elapsed()).size(), 32u);
  EXPECT_EQ(traces.Slowest(clock_.Elapsed()).back().total, absl::Microseconds(2));
}

TEST_F(StepQueueTest, AQueueThatIsFullCountsAsWaitingAndARetryCountsFromItsReturn) {
  TraceLog traces(absl::ZeroDuration());
  options_.traces = &traces;
  options_.max_queued_steps = 1;
  const auto one = Schedule("one"), two = Schedule("two");
  ASSERT_FALSE(two->accepted) << "the queue is full";
  Advance(absl::Milliseconds(20));
  Worker& worker = AddWorker(0);
  Pump();
  ASSERT_EQ(worker.in_flight.size(), 2u);
  Advance(absl::Milliseconds(3));
  // The first attempt of step one is lost, and so is that of step two.
  Worker& other = AddWorker(1);
  Lose(worker);
  ASSERT_FALSE(other.in_flight.empty());
  while (!other.in_flight.empty()) Finish(other);
  std::map<std::pair<uint64_t, uint32_t>, absl::Duration> queued;
  for (const TracedStep& run : traces.Last()) queued[{run.step.value(), run.attempt}] = run.queued;
  EXPECT_EQ((queued[{1, 1}]), absl::Milliseconds(20));
  EXPECT_EQ((queued[{2, 1}]), absl::Milliseconds(20)) << "it waited for room in the queue";
  EXPECT_EQ((queued[{1, 2}]), absl::ZeroDuration()) << "not the attempt before";
}

TEST_F(StepQueueTest, AStepThatHadNotBegunWhenItsWorkerWasLostLeavesNoTrace) {
  TraceLog traces;
  options_.traces = &traces;
  Worker& worker = AddWorker(0);
  Schedule("one");
  Schedule("two");
  ASSERT_EQ(worker.in_flight.size(), 2u) << "one slot, and one step that waits";
  workers_.Fence(worker, "it is silent", 1);
  for (const auto& step : workers_.fences().front().steps) steps_.OnFenced(step, worker.index);
  ASSERT_EQ(traces.Last().size(), 1u);
  EXPECT_EQ(traces.Last()[0].function, "one");
  EXPECT_TRUE(traces.Slowest(clock_.Elapsed()).empty());
}

TEST_F(StepQueueTest, AStepThatIsGivenBackBeforeItBeganLeavesNoTrace) {
  TraceLog traces;
  options_.traces = &traces;
  Worker& worker = AddWorker(0);
  Schedule("one");
  Advance(absl::Seconds(1));
  FinishAfter(worker, absl::ZeroDuration(), StepOutcome::kCancelled);
  EXPECT_TRUE(traces.Last().empty());
  EXPECT_TRUE(traces.Slowest(clock_.Elapsed()).empty());
}

TEST_F(StepQueueTest, WithoutALogNoStepIsTraced) {
  Worker& worker = AddWorker(0);
  Schedule("train");
  ASSERT_EQ(worker.in_flight.size(), 1u);
  EXPECT_FALSE(worker.in_flight[0]->trace_over.has_value());
}

TEST_F(StepQueueTest, AStepBeyondTheLimitIsAcceptedWhenThereIsRoom) {
  options_.max_queued_steps = 1;
  const auto one = Schedule("one"), two = Schedule("two");
  EXPECT_EQ(one->accepted, absl::OkStatus());
  EXPECT_FALSE(two->accepted);
  EXPECT_EQ(steps_.num_queued(), 2);
  AddWorker(0);
  Pump();
  EXPECT_EQ(two->accepted, absl::OkStatus());
}

TEST_F(StepQueueTest, NoStepBeginsUnlessTheCoordinatorLetsIt) {
  Worker& worker = AddWorker(0);
  host_.may_begin = false;
  Schedule("step");
  EXPECT_TRUE(worker.in_flight.empty());
  EXPECT_EQ(host_.given, 0u);
  host_.may_begin = true;
  Pump();
  EXPECT_EQ(worker.in_flight.size(), 1u);
}

TEST_F(StepQueueTest, AStepThatAWorkerReturnsIsRunByAnotherUnderTheSameId) {
  Worker& first = AddWorker(0);
  const auto step = Schedule("step");
  Worker& second = AddWorker(1);
  Finish(first, StepOutcome::kSystem, absl::UnavailableError("it drains"));
  ASSERT_EQ(second.in_flight.size(), 1u);
  EXPECT_EQ(second.in_flight[0]->id, EntryId(1));
  EXPECT_EQ(second.in_flight[0]->attempt, 2u);
  Finish(second);
  EXPECT_EQ(step->result, absl::OkStatus());
}

// A worker that cannot run anything, for example because its disk is full, answers at once. The
// others compute.
TEST_F(StepQueueTest, AWorkerThatReturnsEveryStepDoesNotUseUpTheirAttempts) {
  Worker &sound = AddWorker(0), &broken = AddWorker(1);
  std::vector<std::shared_ptr<Outcome>> outcomes;
  for (int i = 0; i < 40; ++i) outcomes.push_back(Schedule("step"));
  int returned = 0;
  absl::Duration busy;
  while (!steps_.is_idle()) {
    for (; !broken.in_flight.empty(); ++returned)
      Finish(broken, StepOutcome::kSystem, absl::UnavailableError("the disk is full"));
    Advance(absl::Milliseconds(50));
    Pump();
    busy += absl::Milliseconds(50);
    if (busy < absl::Seconds(2) || sound.in_flight.empty()) continue;
    Finish(sound);
    busy = absl::ZeroDuration();
  }
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome->result, absl::OkStatus());
  EXPECT_LT(returned, 30);
  // Once it can run steps again, it gets as many as the others.
  Schedule("step");
  Advance(absl::Seconds(10));
  for (int i = 0; i < 3; ++i) Schedule("step");
  Pump();
  EXPECT_EQ(broken.in_flight.size(), 2u);
  Finish(broken);
  EXPECT_EQ(broken.returned, 0);
}

TEST_F(StepQueueTest, AStepThatAWorkerReturnedTwiceWaitsForOneThatComputes) {
  Worker& broken = AddWorker(0);
  const auto step = Schedule("step");
  Worker& sound = AddWorker(1);
  options_.queue_ahead = 0;
  Schedule("long");
  ASSERT_EQ(sound.in_flight.size(), 1u);
  for (int i = 0; i < 2; ++i) Finish(broken, StepOutcome::kSystem);
  Advance(absl::Seconds(10));
  Pump();
  EXPECT_TRUE(broken.in_flight.empty());
  // Other steps do not wait behind it.
  const auto other = Schedule("other");
  ASSERT_EQ(broken.in_flight.size(), 1u);
  Finish(broken);
  EXPECT_EQ(other->result, absl::OkStatus());
  EXPECT_TRUE(broken.in_flight.empty());
  Finish(sound);
  Finish(sound);
  EXPECT_EQ(step->result, absl::OkStatus());
}

TEST_F(StepQueueTest, AStepDoesNotWaitForEverForAWorkerThatComputes) {
  Worker& first = AddWorker(0);
  const auto step = Schedule("step");
  Worker& stuck = AddWorker(1);
  options_.queue_ahead = 0;
  Schedule("for ever");
  ASSERT_EQ(stuck.in_flight.size(), 1u);
  for (int i = 0; i < 2; ++i) Finish(first, StepOutcome::kSystem);
  Advance(absl::Minutes(2));
  Pump();
  ASSERT_EQ(first.in_flight.size(), 1u);
  Finish(first);
  EXPECT_EQ(step->result, absl::OkStatus());
}

TEST_F(StepQueueTest, AStepGoesToTheWorkerThatReturnedItLeastOften) {
  options_.queue_ahead = 0;
  Worker& first = AddWorker(0);
  Schedule("step");
  for (int i = 0; i < 2; ++i) {
    Finish(first, StepOutcome::kSystem);
    Advance(absl::Seconds(10));
    Pump();
  }
  Finish(first, StepOutcome::kSystem);
  Worker& second = AddWorker(1);
  for (int i = 0; i < 2; ++i) {
    Advance(absl::Seconds(10));
    Pump();
    ASSERT_EQ(second.in_flight.size(), 1u) << i;
    Finish(second, StepOutcome::kSystem);
  }
}

TEST_F(StepQueueTest, ANewProcessOfAWorkerHasReturnedNothing) {
  options_.queue_ahead = 0;
  Worker& worker = AddWorker(0);
  Schedule("step");
  AddWorker(1).leaving = true;
  for (int i = 0; i < 2; ++i) Finish(worker, StepOutcome::kSystem);
  EXPECT_TRUE(steps_.Rests(worker));
  const Step& step = *steps_.open().begin()->second;
  EXPECT_EQ(step.returned_by.at(worker.incarnation), 2);
  EXPECT_EQ(step.returned_by.count(Incarnation(4711)), 0u);
}

// What many steps in flight report at one moment is one failure.
TEST_F(StepQueueTest, StepsThatAWorkerReturnsWhileItRestsDoNotLengthenTheRest) {
  options_.queue_ahead = 30;
  Worker& worker = AddWorker(0);
  for (int i = 0; i < 20; ++i) Schedule("step");
  while (!worker.in_flight.empty()) Finish(worker, StepOutcome::kSystem);
  EXPECT_EQ(worker.returned, 2);
  Advance(absl::Milliseconds(101));
  EXPECT_FALSE(steps_.Rests(worker));
  // A step that fails by itself has run.
  Pump();
  Finish(worker, StepOutcome::kFailed, absl::InvalidArgumentError("no such column"));
  EXPECT_EQ(worker.returned, 0);
}

TEST_F(StepQueueTest, TheFirstErrorCancelsItsBatchAndIsRaisedOnce) {
  options_.queue_ahead = 0;
  Worker& worker = AddWorker(0);
  const auto bad = Schedule("bad"), queued = Schedule("queued");
  const auto join = Join();
  Finish(worker, StepOutcome::kFailed, absl::InvalidArgumentError("no such column"));
  ASSERT_TRUE(bad->result && queued->result && join->result);
  EXPECT_EQ(bad->result->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReasonOf(*queued->result), Reason::kBatchCancelled);
  EXPECT_EQ(join->result->code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Join()->result, absl::OkStatus()) << "the next batch";
  EXPECT_EQ(steps_.lost_ordinals(), 1) << "one of the steps had an ordinal";
  ASSERT_EQ(steps_.lost_ids().size(), 1u);
  steps_.NoteStored(1);
  EXPECT_TRUE(steps_.lost_ids().empty());
}

TEST_F(StepQueueTest, AStepOfALostWorkerIsRunAgainUnlessItIsHalfAppliedElsewhere) {
  Schedule("step");
  Worker& first = AddWorker(0);
  Pump();
  Worker& second = AddWorker(1);
  Lose(first, {{0, 2}});
  EXPECT_TRUE(steps_.IsHalfApplied());
  ASSERT_EQ(second.in_flight.size(), 1u);
  Finish(second, StepOutcome::kOk, absl::OkStatus(), {1});
  EXPECT_EQ(host_.rewinds.size(), 1u) << "the attempt touched other servers than the lost one";
}

TEST_F(StepQueueTest, AHalfAppliedStepThatNobodyCanUndoIsNotSettled) {
  host_.can_rewind = false;
  const auto step = Schedule("step");
  Worker& first = AddWorker(0);
  Pump();
  Worker& second = AddWorker(1);
  Lose(first, {{0, 2}});
  Finish(second, StepOutcome::kOk, absl::OkStatus(), {1});
  EXPECT_TRUE(host_.rewinds.empty());
  EXPECT_FALSE(step->result);
}

TEST_F(StepQueueTest, AfterARewindOpenStepsGoFirstAndTheirAttemptsDoNotCount) {
  Worker& worker = AddWorker(0);
  Schedule("open");
  worker.in_flight.clear();
  steps_.Rewind();
  EXPECT_EQ(steps_.in_flight(), 0);
  Schedule("later");
  worker.in_flight.clear();
  steps_.Rewind();
  steps_.Resume();
  Pump();
  ASSERT_EQ(worker.in_flight.size(), 2u);
  EXPECT_EQ(worker.in_flight[0]->id, EntryId(1));
  EXPECT_EQ(worker.in_flight[0]->forgiven, 1u);
  EXPECT_EQ(worker.in_flight[1]->id, EntryId(2));
}

TEST_F(StepQueueTest, AStepThatIsRunAgainIsSettledByTheCoordinator) {
  Worker& worker = AddWorker(0);
  const auto step = std::make_shared<Step>();
  step->id = EntryId(7);
  step->replayed = true;
  steps_.BeginReplayed(step);
  steps_.Send(step, worker);
  Finish(worker);
  const std::vector<std::pair<EntryId, StepVerdict>> told = {{EntryId(7), StepVerdict::kFinish}};
  EXPECT_EQ(host_.replayed, told);
  EXPECT_EQ(steps_.totals().finished_steps, 0) << "a replayed step does not count a second time";
  steps_.EndReplayed(*step);
  EXPECT_TRUE(steps_.open().empty());
}

TEST_F(StepQueueTest, AStepWhoseSlotsCannotBeMadeFailsWithThatError) {
  Worker& worker = AddWorker(0);
  const auto step = Schedule("step");
  steps_.Refuse(1, EntryId(1), absl::ResourceExhaustedError("another worker's"));
  steps_.Refuse(0, EntryId(1), absl::ResourceExhaustedError("ps 0 is full"));
  Finish(worker, StepOutcome::kCancelled);
  ASSERT_TRUE(step->result);
  EXPECT_EQ(step->result->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(step->result->message().find("ps 0 is full"), absl::string_view::npos);
}

TEST_F(StepQueueTest, WhenTheJobFailsEverybodyWhoWaitsIsTold) {
  options_.max_queued_steps = 1;
  AddWorker(0).slots = 0;
  const auto in_flight = Schedule("in flight"), queued = Schedule("queued"),
             waiting = Schedule("waiting");
  const auto join = Join();
  auto loop = std::make_shared<Outcome>();
  steps_.Run(
      {{"loop"}, "clicks", Nest()}, [](const Nest&) {},
      [loop](const absl::Status& done) { loop->result = done; });
  std::vector<Task> calls;
  const absl::Status error = absl::DataLossError("gone");
  steps_.FailAll(error, calls);
  EXPECT_FALSE(join->result) << "the caller runs the completions, without the lock";
  for (const Task& call : calls) call();
  for (const auto& told :
       {in_flight->result, queued->result, waiting->accepted, join->result, loop->result})
    EXPECT_EQ(told, error);
  EXPECT_TRUE(steps_.is_idle());
  for (const auto& [structure, size] : steps_.Sizes()) EXPECT_EQ(size, 0) << structure;
}

TEST_F(StepQueueTest, WhenTheJobFailsTheCallerDropsTheCompletionsToo) {
  options_.max_queued_steps = 1;
  AddWorker(0);
  // Some completions hold the coordinator. They must not be destroyed while its lock is held.
  auto handle = std::make_shared<int>();
  const std::weak_ptr<int> held = handle;
  for (int i = 0; i < 5; ++i) {
    steps_.Schedule(
        {"step", Nest()}, [handle](const absl::StatusOr<Nest>&) {},
        [handle](const absl::Status&) {});
  }
  Pump();
  steps_.Join([](const absl::Status&) {}, [handle] {});
  steps_.StoreError(absl::DataLossError("a step"));
  EXPECT_TRUE(steps_.EndsWithError([](const absl::Status&) {}, [handle] {}));
  outbox_.Drain();
  const int64_t holders = handle.use_count();
  handle.reset();
  std::vector<Task> calls;
  steps_.FailAll(absl::DataLossError("gone"), calls);
  EXPECT_EQ(held.use_count(), holders - 1) << "FailAll has destroyed no completion";
  calls.clear();
  EXPECT_TRUE(held.expired());
}

TEST_F(StepQueueTest, ATickIsAMinuteInWhichTheJobRan) {
  AddWorker(0);
  Schedule("step");
  EXPECT_EQ((*workers_.all()[0].in_flight.front()).tick, 0u);
  Finish(workers_.all()[0]);
  EXPECT_TRUE(steps_.has_trained());
  Advance(absl::Minutes(5));
  // Another life of the coordinator, long after the last step of the one before.
  steps_.RestoreState({10, 0, 10, 0, /*tick=*/100});
  EXPECT_EQ(steps_.tick(), 100u);
  Advance(absl::Seconds(150));
  steps_.NoteTime();
  EXPECT_EQ(steps_.tick(), 102u);
  EXPECT_FALSE(steps_.has_trained());
}

// The store has the minute before an entry is dated by it, so both must see the same one.
TEST_F(StepQueueTest, AMinuteThatPassesWithinAnEventDatesNoneOfItsSteps) {
  AddWorker(0);
  Schedule("first");
  Advance(absl::Minutes(1));
  EXPECT_EQ(steps_.tick(), 0u);
  Schedule("second");
  EXPECT_EQ(workers_.all()[0].in_flight.back()->tick, 0u);
  steps_.NoteTime();
  Finish(workers_.all()[0]);
  Schedule("third");
  EXPECT_EQ(workers_.all()[0].in_flight.back()->tick, 1u);
}

// ---- depth by time ----

TEST_F(StepQueueTest, AsManyShortStepsWaitAtAWorkerAsAreExpectedToTakeTheTime) {
  Worker& worker = AddWorker(0);
  Teach(worker, "short", absl::Microseconds(100));
  for (int i = 0; i < 100; ++i) Schedule("short");
  EXPECT_EQ(worker.in_flight.size(), 20u) << "2 ms of 0.1 ms each";
  FinishAfter(worker, absl::Microseconds(100));
  EXPECT_EQ(worker.in_flight.size(), 20u);
}

TEST_F(StepQueueTest, NoMoreThanMostAheadWaitAtAWorker) {
  Worker& worker = AddWorker(0);
  Teach(worker, "empty", absl::Nanoseconds(1));
  for (int i = 0; i < 100; ++i) Schedule("empty");
  EXPECT_EQ(worker.in_flight.size(), 1u + 64u);
}

TEST_F(StepQueueTest, LongAndUnknownStepsWaitOnlyUpToQueueAhead) {
  Worker& worker = AddWorker(0);
  Teach(worker, "long", absl::Milliseconds(5));
  for (int i = 0; i < 5; ++i) Schedule("long");
  EXPECT_EQ(worker.in_flight.size(), 2u);
  Worker& other = AddWorker(1);
  for (int i = 0; i < 9; ++i) Schedule("unknown");
  EXPECT_EQ(other.in_flight.size(), 2u);
}

TEST_F(StepQueueTest, StepsThatFailAtOnceDoNotCountAsShort) {
  Worker& worker = AddWorker(0);
  for (int i = 0; i < 8; ++i) {
    Schedule("cancelled");
    FinishAfter(worker, absl::Nanoseconds(1), StepOutcome::kEndOfData);
  }
  for (int i = 0; i < 9; ++i) Schedule("cancelled");
  EXPECT_EQ(worker.in_flight.size(), 2u);
}

TEST_F(StepQueueTest, AWorkerWithLongStepsDoesNotKeepShortOnesFromTheOthers) {
  Worker &slow = AddWorker(0), &fast = AddWorker(1);
  slow.leaving = true;
  Teach(fast, "short", absl::Microseconds(100));
  fast.leaving = true;
  slow.leaving = false;
  for (int i = 0; i < 2; ++i) Schedule("unknown");
  fast.leaving = false;
  for (int i = 0; i < 30; ++i) Schedule("short");
  EXPECT_EQ(slow.in_flight.size(), 2u);
  EXPECT_EQ(fast.in_flight.size(), 20u);
}

TEST_F(StepQueueTest, StepsBehindOneThatLastsAreGivenBackWithoutAnAttempt) {
  Worker& worker = AddWorker(0);
  Teach(worker, "short", absl::Microseconds(100));
  for (int i = 0; i < 10; ++i) Schedule("short");
  ASSERT_EQ(worker.in_flight.size(), 10u);
  steps_.RecallWaiting(worker);
  const std::shared_ptr<Step> third = worker.in_flight[2];
  EXPECT_FALSE(worker.in_flight[1]->recalled);
  EXPECT_TRUE(third->recalled);
  worker.leaving = true;  // so that it stays in the queue
  Report report;
  report.step = third->id;
  report.attempt = third->attempt;
  report.outcome = StepOutcome::kCancelled;
  steps_.OnReport(worker, std::move(report));
  EXPECT_EQ(worker.in_flight.size(), 9u);
  EXPECT_EQ(third->state, Step::State::kQueued);
  EXPECT_EQ(third->attempt - third->forgiven, 0u);
  EXPECT_TRUE(third->returned_by.empty());
}

TEST_F(StepQueueTest, TheOldestStepIsTheOneThatWasQueuedFirstOfThoseThatHaveNotEnded) {
  EXPECT_EQ(steps_.oldest_since(), std::nullopt);
  const absl::Duration begin = clock_.Elapsed();
  Worker& worker = AddWorker(0);
  Schedule("one");
  Advance(absl::Seconds(3));
  Schedule("two");
  Advance(absl::Seconds(3));
  Schedule("three");
  EXPECT_EQ(steps_.oldest_since(), begin);
  Finish(worker);
  EXPECT_EQ(steps_.oldest_since(), begin + absl::Seconds(3));
  Finish(worker);
  Finish(worker);
  EXPECT_EQ(steps_.oldest_since(), std::nullopt);
}

TEST_F(StepQueueTest, ARunThatIsRepeatedDoesNotCount) {
  Worker& worker = AddWorker(0);
  const auto step = Schedule("step");
  Finish(worker, StepOutcome::kSystem, absl::UnavailableError("it drains"));
  EXPECT_EQ(steps_.num_runs(), 1);
  EXPECT_EQ(steps_.num_counted_runs(), 0);
  Finish(worker);
  EXPECT_EQ(step->result, absl::OkStatus());
  EXPECT_EQ(steps_.num_runs(), 2);
  EXPECT_EQ(steps_.num_counted_runs(), 1);
}

TEST_F(StepQueueTest, ACancelledStepIsARunIfItHadBegun) {
  Worker& worker = AddWorker(0);
  Schedule("step");
  FinishAfter(worker, absl::ZeroDuration(), StepOutcome::kCancelled);
  EXPECT_EQ(steps_.num_runs(), 0);
  // A step is recalled too late: it has begun.
  Schedule("step");
  ASSERT_FALSE(worker.in_flight.empty());
  worker.in_flight.front()->recalled = true;
  FinishAfter(worker, absl::Nanoseconds(1), StepOutcome::kCancelled);
  EXPECT_EQ(steps_.num_runs(), 1);
}

}  // namespace
}  // namespace divvy
