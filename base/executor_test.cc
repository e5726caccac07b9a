#include "base/executor.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/outbox.h"
#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A counter with a lock. A test can wait until it reaches a number.
class Tally {
 public:
  void Add() {
    MutexLock lock(mu_);
    ++count_;
    changed_.NotifyAll();
  }
  void WaitFor(int count) {
    MutexLock lock(mu_);
    changed_.Wait(mu_, [&]() DIVVY_REQUIRES(mu_) { return count_ >= count; });
  }
  int count() {
    MutexLock lock(mu_);
    return count_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int count_ DIVVY_GUARDED_BY(mu_) = 0;
};

// ---- Real threads

TEST(ThreadPoolExecutorTest, EveryTaskRunsOnce) {
  Tally tally;
  ThreadPoolExecutor executor(3);
  for (int i = 0; i < 1000; ++i) executor.Post([&] { tally.Add(); });
  tally.WaitFor(1000);
  executor.Stop();
  EXPECT_EQ(tally.count(), 1000);
}

TEST(ThreadPoolExecutorTest, TasksRunAtTheSameTime) {
  Tally here;
  ThreadPoolExecutor executor(2);
  Tally met;
  for (int i = 0; i < 2; ++i) {
    executor.Post([&] {
      here.Add();
      here.WaitFor(2);  // only the other task can end this wait
      met.Add();
    });
  }
  met.WaitFor(2);
}

TEST(ThreadPoolExecutorTest, ATimerDoesNotRunBeforeItsTime) {
  Tally tally;
  ThreadPoolExecutor executor(1);
  const absl::Duration begun = Clock::Real().Elapsed();
  absl::Duration ran;
  executor.PostAfter(absl::Milliseconds(20), [&] {
    ran = Clock::Real().Elapsed();
    tally.Add();
  });
  tally.WaitFor(1);
  EXPECT_GE(ran - begun, absl::Milliseconds(20));
}

TEST(ThreadPoolExecutorTest, AnEarlierTimerOvertakesALaterOne) {
  Tally tally;
  ThreadPoolExecutor executor(1);
  executor.PostAfter(absl::Hours(1), [] { FAIL() << "an hour has not passed"; });
  executor.PostAfter(absl::Milliseconds(1), [&] { tally.Add(); });
  tally.WaitFor(1);
}

TEST(ThreadPoolExecutorTest, TimersThatNeverEndCanBeStopped) {
  ThreadPoolExecutor executor(1);
  executor.PostAfter(absl::InfiniteDuration(), [] { FAIL() << "never"; });
  executor.Stop();
}

TEST(ThreadPoolExecutorTest, BlockingTasksHaveThreadsOfTheirOwn) {
  Tally here, met;
  ThreadPoolExecutor executor(1);
  for (int i = 0; i < 5; ++i) {
    executor.PostBlocking("meet", [&] {
      here.Add();
      here.WaitFor(6);
      met.Add();
    });
  }
  executor.Post([&] { here.Add(); });  // a blocking task leaves the pool's only thread free
  met.WaitFor(5);
}

TEST(ThreadPoolExecutorTest, BackgroundTasksGiveWayAndLeaveTheirPriorityToNobody) {
  ThreadPoolExecutor executor(1);
  Tally tally;
  int background = 0, after = 0;
  const int ordinary = getpriority(PRIO_PROCESS, 0);
  executor.PostBackground("behind", [&] {
    background = getpriority(PRIO_PROCESS, 0);  // the nice value of this thread
    executor.PostBlocking("before", [&] {
      after = getpriority(PRIO_PROCESS, 0);
      tally.Add();
    });
  });
  tally.WaitFor(1);
  EXPECT_EQ(background, std::min(ordinary + 10, 19));
  EXPECT_EQ(after, ordinary);
}

TEST(ThreadPoolExecutorTest, AnIdleThreadForBlockingIsUsedAgain) {
  ThreadPoolExecutor executor(1);
  std::set<std::thread::id> threads;  // written by one task at a time
  for (int i = 1; i <= 50; ++i) {
    Tally ran;
    executor.PostBlocking("again", [&] {
      threads.insert(std::this_thread::get_id());
      ran.Add();
    });
    ran.WaitFor(1);
  }
  // Fewer than 50, not exactly 1: a thread may still be busy with its return when the next task
  // comes.
  EXPECT_LT(threads.size(), 50u);
}

TEST(ThreadPoolExecutorTest, TasksMayPostFurtherTasksOfEveryKind) {
  Tally tally;
  ThreadPoolExecutor executor(2);
  executor.Post([&] {
    executor.PostAfter(absl::Milliseconds(1), [&] {
      executor.PostBlocking("last", [&] { executor.Post([&] { tally.Add(); }); });
    });
  });
  tally.WaitFor(1);
}

TEST(ThreadPoolExecutorTest, AfterStopNothingRuns) {
  std::atomic<int> ran{0};
  ThreadPoolExecutor executor(2);
  executor.PostAfter(absl::Hours(1), [&] { ++ran; });
  executor.Stop();
  executor.Post([&] { ++ran; });
  executor.PostAfter(absl::ZeroDuration(), [&] { ++ran; });
  executor.PostBlocking("late", [&] { ++ran; });
  executor.Stop();
  EXPECT_EQ(ran, 0);
}

TEST(ThreadPoolExecutorTest, StopWaitsForWhatRuns) {
  Tally begun;
  std::atomic<bool> release{false}, ended{false};
  ThreadPoolExecutor executor(1);
  executor.PostBlocking("slow", [&] {
    begun.Add();
    while (!release) std::this_thread::yield();
    ended = true;
  });
  begun.WaitFor(1);
  std::thread releaser([&] { release = true; });
  executor.Stop();
  EXPECT_TRUE(ended);
  releaser.join();
}

// A reader of data may wait for a prefetch task, and reads by itself after that task was dropped.
TEST(ThreadPoolExecutorTest, ATaskThatRunsMayWaitForOneThatStopDrops) {
  Tally begun, dropped;
  ThreadPoolExecutor executor(1);
  executor.Post([&] {
    begun.Add();
    dropped.WaitFor(1);
  });
  begun.WaitFor(1);
  const auto tell = [&dropped](void*) { dropped.Add(); };
  executor.Post([held = std::shared_ptr<void>(nullptr, tell)] {});  // behind it, on the only thread
  executor.Stop();
  EXPECT_EQ(dropped.count(), 1);
}

TEST(ThreadPoolExecutorTest, StopDropsWhatTasksHold) {
  auto held = std::make_shared<int>(1);
  ThreadPoolExecutor executor(1);
  executor.PostAfter(absl::Hours(1), [held] {});
  executor.Stop();
  EXPECT_EQ(held.use_count(), 1);
}

TEST(SerialExecutorTest, TasksRunInOrderAndNeverTwoAtOnceOnManyThreads) {
  ThreadPoolExecutor executor(4);
  Tally done;
  std::vector<int> order;  // without a lock, because the serial executor runs one task at a time
  SerialExecutor serial(executor);
  for (int i = 0; i < 1000; ++i) {
    serial.Post([&order, &done, i] {
      order.push_back(i);
      done.Add();
    });
  }
  done.WaitFor(1000);
  executor.Stop();
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(order[i], i);
}

TEST(SerialExecutorTest, EachPostersTasksKeepTheirOrder) {
  ThreadPoolExecutor executor(2);
  Tally done;
  std::vector<std::vector<int>> orders(3);
  {
    SerialExecutor serial(executor);
    std::vector<std::thread> posters;
    for (int poster = 0; poster < 3; ++poster) {
      posters.emplace_back([&, poster] {
        for (int i = 0; i < 300; ++i) {
          serial.Post([&, poster, i] {
            orders[poster].push_back(i);
            done.Add();
          });
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  done.WaitFor(900);
  executor.Stop();
  for (const std::vector<int>& order : orders) {
    for (int i = 0; i < 300; ++i) ASSERT_EQ(order[i], i);
  }
}

// Like the call of a stream: the posted tasks hold the caller, and the caller holds the queue.
struct Caller {
  explicit Caller(Executor& executor) : order(executor) {}
  SerialExecutor order;
};

std::weak_ptr<Caller> PostThreeThatHoldTheirCaller(Executor& executor) {
  const auto caller = std::make_shared<Caller>(executor);
  for (int i = 0; i < 3; ++i)
    caller->order.Post([caller] { FAIL() << "nothing runs in this test"; });
  return caller;
}

TEST(SerialExecutorTest, TasksThatWaitGoWithAnExecutorThatDropsThem) {
  auto executor = std::make_unique<SimExecutor>(1);
  const std::weak_ptr<Caller> caller = PostThreeThatHoldTheirCaller(*executor);
  EXPECT_FALSE(caller.expired());
  executor = nullptr;
  EXPECT_TRUE(caller.expired());
}

TEST(SerialExecutorTest, TasksPostedToAStoppedExecutorGoAtOnce) {
  ThreadPoolExecutor executor(1);
  executor.Stop();
  EXPECT_TRUE(PostThreeThatHoldTheirCaller(executor).expired());
}

TEST(CondVarTest, AWaitOfMillionsOfYearsEndsWhenWhatItWaitsForIsThereAndNotBefore) {
  Mutex mu;
  CondVar changed;
  bool is_there = false;
  std::thread other;
  {
    MutexLock lock(mu);
    other = std::thread([&] {
      MutexLock held(mu);
      is_there = true;
      changed.NotifyAll();
    });
    EXPECT_TRUE(changed.WaitFor(mu, absl::Hours(1e12), [&] { return is_there; }));
  }
  other.join();
}

TEST(CondVarTest, WaitForGivesUpAfterItsTimeAndSaysSo) {
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  EXPECT_FALSE(never.WaitFor(mu, absl::Milliseconds(1), [] { return false; }));
  EXPECT_TRUE(never.WaitFor(mu, absl::Milliseconds(1), [] { return true; }));
  EXPECT_TRUE(never.WaitFor(mu, absl::InfiniteDuration(), [] { return true; }));
}

TEST(RealClockTest, ElapsedTimeNeverGoesBack) {
  absl::Duration before = Clock::Real().Elapsed();
  for (int i = 0; i < 1000; ++i) {
    const absl::Duration now = Clock::Real().Elapsed();
    ASSERT_GE(now, before);
    before = now;
  }
  EXPECT_GT(Clock::Real().WallTime(), absl::FromUnixSeconds(1600000000));
}

// ---- Virtual time

std::vector<int> OrderOfTen(uint64_t seed) {
  SimExecutor sim(seed);
  std::vector<int> order;
  for (int i = 0; i < 10; ++i) sim.Post([&order, i] { order.push_back(i); });
  sim.RunUntilIdle();
  return order;
}

TEST(SimExecutorTest, TheSeedChoosesTheOrderOfWhatIsDueTogether) {
  EXPECT_EQ(OrderOfTen(1), OrderOfTen(1));
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 20; ++seed) orders.insert(OrderOfTen(seed));
  EXPECT_EQ(orders.size(), 20u);
}

TEST(SimExecutorTest, TheClockMovesToEachTaskAndNeverPastOne) {
  SimExecutor sim(1);
  std::vector<int64_t> seconds;
  for (const int at : {30, 10, 20}) {
    sim.PostAfter(absl::Seconds(at),
                  [&] { seconds.push_back(absl::ToInt64Seconds(sim.clock().Elapsed())); });
  }
  EXPECT_EQ(sim.pending(), 3u);
  ASSERT_TRUE(sim.RunOne());
  EXPECT_THAT(seconds, ElementsAre(10));
  sim.RunUntilIdle();
  EXPECT_THAT(seconds, ElementsAre(10, 20, 30));
  EXPECT_FALSE(sim.RunOne());
  EXPECT_EQ(sim.clock().WallTime() - absl::UnixEpoch(), absl::Seconds(30));
}

TEST(SimExecutorTest, RunForRunsWhatIsDueAndEndsAtItsTime) {
  SimExecutor sim(1);
  int ran = 0;
  for (const int at : {1, 5, 6}) sim.PostAfter(absl::Seconds(at), [&] { ++ran; });
  sim.RunFor(absl::Seconds(5));
  EXPECT_EQ(ran, 2);
  EXPECT_EQ(sim.clock().Elapsed(), absl::Seconds(5));
  EXPECT_EQ(sim.pending(), 1u);
}

TEST(SimExecutorTest, WhatATaskPostsRunsAtTheSameMomentAndADelayInThePastIsNone) {
  SimExecutor sim(1);
  std::vector<absl::Duration> times;
  sim.PostAfter(absl::Seconds(7), [&] {
    sim.PostBlocking("now", [&] { times.push_back(sim.clock().Elapsed()); });
    sim.PostAfter(-absl::Seconds(3), [&] { times.push_back(sim.clock().Elapsed()); });
  });
  sim.RunUntilIdle();
  EXPECT_THAT(times, ElementsAre(absl::Seconds(7), absl::Seconds(7)));
}

TEST(SimExecutorTest, TheClockDoesNotGoBackToATaskThatIsLate) {
  SimExecutor sim(1);
  absl::Duration ran;
  sim.PostAfter(absl::Seconds(1), [&] { ran = sim.clock().Elapsed(); });
  sim.clock().Advance(absl::Seconds(60));
  sim.RunUntilIdle();
  EXPECT_EQ(ran, absl::Seconds(60));
}

TEST(SerialExecutorTest, KeepsItsOrderWhateverTheSeedAndLetsOthersIn) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    SimExecutor sim(seed);
    SerialExecutor a(sim), b(sim);
    std::vector<int> order_a, order_b;
    for (int i = 0; i < 5; ++i) {
      a.Post([&, i] { order_a.push_back(i); });
      b.Post([&, i] { order_b.push_back(i); });
    }
    // Each serial executor has posted one task to the executor, not five.
    EXPECT_EQ(sim.pending(), 2u);
    sim.RunUntilIdle();
    EXPECT_THAT(order_a, ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(order_b, ElementsAre(0, 1, 2, 3, 4));
  }
}

TEST(SerialExecutorTest, TasksThatWaitRunAfterItIsGone) {
  SimExecutor sim(1);
  std::vector<int> order;
  {
    SerialExecutor serial(sim);
    for (int i = 0; i < 3; ++i) serial.Post([&, i] { order.push_back(i); });
  }
  sim.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
}

TEST(SerialExecutorTest, ATaskMayPostToItsOwnQueue) {
  SimExecutor sim(1);
  SerialExecutor serial(sim);
  std::vector<int> order;
  serial.Post([&] {
    serial.Post([&] { order.push_back(2); });
    order.push_back(1);
  });
  sim.RunUntilIdle();
  EXPECT_THAT(order, ElementsAre(1, 2));
}

// ---- Outbox

TEST(OutboxTest, EffectsRunInTheOrderAdded) {
  Outbox outbox;
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) outbox.Add([&, i] { order.push_back(i); });
  EXPECT_THAT(order, IsEmpty());
  outbox.Drain();
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  outbox.Drain();
  EXPECT_EQ(order.size(), 3u);
}

TEST(OutboxTest, WhatAnEffectAddsRunsAfterWhatWasThereAlready) {
  Outbox outbox;
  std::vector<int> order;
  outbox.Add([&] {
    outbox.Add([&] { order.push_back(3); });
    outbox.Drain();  // returns at once, because a caller up the stack is draining
    order.push_back(1);
  });
  outbox.Add([&] { order.push_back(2); });
  outbox.Drain();
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

// A core in small: a lock, an outbox, and effects that call back into it.
class EchoCore {
 public:
  explicit EchoCore(std::vector<int>& seen) : seen_(seen) {}
  void OnMessage(int hops) {
    CoreLock lock(mu_, outbox_);
    ++messages_;
    outbox_.Add([this, hops] {
      seen_.push_back(hops);
      if (hops > 0) OnMessage(hops - 1);
    });
  }
  int messages() {
    MutexLock lock(mu_);
    return messages_;
  }

 private:
  Mutex mu_;
  Outbox outbox_;
  std::vector<int>& seen_;  // without a lock, because effects run one at a time
  int messages_ DIVVY_GUARDED_BY(mu_) = 0;
};

TEST(CoreLockTest, AnEffectMayCallItsCoreAgain) {
  std::vector<int> seen;
  EchoCore core(seen);
  core.OnMessage(3);
  EXPECT_THAT(seen, ElementsAre(3, 2, 1, 0));
}

TEST(CoreLockTest, EffectsOfManyThreadsRunOneAtATimeAndNoneIsLost) {
  std::vector<int> seen;
  EchoCore core(seen);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&core] {
      for (int n = 0; n < 250; ++n) core.OnMessage(1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(core.messages(), 2000);
  EXPECT_EQ(seen.size(), 2000u);
}

TEST(OutboxTest, WhatAnEffectHeldIsReleasedBeforeTheNextOneRuns) {
  Outbox outbox;
  auto held = std::make_shared<int>(1);
  std::vector<int64_t> counts;
  outbox.Add([copy = held] {});
  outbox.Add([&] { counts.push_back(held.use_count()); });
  outbox.Drain();
  EXPECT_THAT(counts, ElementsAre(1));
}

}  // namespace
}  // namespace divvy
