#include "base/executor.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/memory_pool.h"

namespace divvy {
namespace {

// Added to the process' own nice value. A thread then gets a tenth of an ordinary thread's share.
constexpr int kBackgroundNice = 10;

// A job that computes takes its blocks again many times within it.
constexpr absl::Duration kKeptUnused = absl::Seconds(1);

}  // namespace

// One mutex guards everything. Tasks are coarse (blocks of a shard, messages), so the mutex is not
// the bottleneck (bench:embedded_steps).
struct ThreadPoolExecutor::State {
  struct BlockingTask {
    std::string name;
    Task task;
  };

  // PostBlocking and PostBackground have threads of their own, because a thread that has lowered
  // its priority may not raise it again.
  enum Urgency : int { kNormal, kBackground, kUrgencies };
  struct BlockingPool {
    CondVar work;  // for idle threads
    std::deque<BlockingTask> tasks;
    int idle = 0;    // idle threads
    int wanted = 0;  // threads that still have to be created
    std::vector<std::thread> threads;
  };

  Mutex mu;
  // Wakes the threads of Post.
  CondVar work;
  // Wakes the timer thread, which also creates the threads of the blocking pools.
  CondVar timer;
  bool stopped DIVVY_GUARDED_BY(mu) = false;
  std::deque<Task> ready DIVVY_GUARDED_BY(mu);
  std::multimap<absl::Duration, Task> timers DIVVY_GUARDED_BY(mu);  // by Clock::Elapsed()
  BlockingPool blocking[kUrgencies] DIVVY_GUARDED_BY(mu);
  std::vector<std::thread> threads;  // only the constructor and Stop change it

  void RunPool();
  void RunTimers();
  void PostBlocking(Urgency urgency, BlockingTask task);
  void MakeThreads() DIVVY_REQUIRES(mu);
  bool WantsThreads() const DIVVY_REQUIRES(mu) {
    return blocking[kNormal].wanted + blocking[kBackground].wanted > 0;
  }
  void RunBlocking(Urgency urgency);
};

void ThreadPoolExecutor::State::RunPool() {
  while (true) {
    Task task;
    {
      MutexLock lock(mu);
      work.Wait(mu, [this]() DIVVY_REQUIRES(mu) { return stopped || !ready.empty(); });
      if (stopped) return;
      task = std::move(ready.front());
      ready.pop_front();
    }
    task();
  }
}

void ThreadPoolExecutor::State::RunTimers() {
  MutexLock lock(mu);
  while (!stopped) {
    MakeThreads();
    const absl::Duration now = Clock::Real().Elapsed();
    while (!timers.empty() && timers.begin()->first <= now) {
      ready.push_back(std::move(timers.begin()->second));
      timers.erase(timers.begin());
      work.NotifyOne();
    }
    const absl::Duration first = timers.empty() ? absl::InfiniteDuration() : timers.begin()->first;
    timer.WaitFor(mu, first - now, [this, first]() DIVVY_REQUIRES(mu) {
      return stopped || WantsThreads() || (!timers.empty() && timers.begin()->first < first);
    });
  }
}

void ThreadPoolExecutor::State::PostBlocking(Urgency urgency, BlockingTask task) {
  MutexLock lock(mu);
  if (stopped) return;
  BlockingPool& pool = blocking[urgency];
  pool.tasks.push_back(std::move(task));
  if (pool.idle < static_cast<int>(pool.tasks.size())) {
    ++pool.wanted;
    timer.NotifyOne();
  } else {
    pool.work.NotifyOne();
  }
}

// Runs on the timer thread. A new thread inherits the priority of its creator, and a thread that
// posts may have a low one.
void ThreadPoolExecutor::State::MakeThreads() {
  for (const Urgency urgency : {kNormal, kBackground}) {
    BlockingPool& pool = blocking[urgency];
    for (; pool.wanted > 0; --pool.wanted)
      pool.threads.emplace_back([this, urgency] { RunBlocking(urgency); });
  }
}

void ThreadPoolExecutor::State::RunBlocking(Urgency urgency) {
  // On Linux the priority belongs to the thread, and 0 names the calling thread. The nice value is
  // capped at 19. A failure only costs speed.
  if (urgency == kBackground)
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kBackgroundNice);
  mu.Lock();
  BlockingPool& pool = blocking[urgency];
  while (true) {
    ++pool.idle;
    pool.work.Wait(mu,
                   [this, &pool]() DIVVY_REQUIRES(mu) { return stopped || !pool.tasks.empty(); });
    --pool.idle;
    if (stopped) return mu.Unlock();
    BlockingTask task = std::move(pool.tasks.front());
    pool.tasks.pop_front();
    mu.Unlock();
    // The kernel allows 15 characters.
    pthread_setname_np(pthread_self(), task.name.substr(0, 15).c_str());
    task.task();
    task.task = nullptr;
    mu.Lock();
  }
}

ThreadPoolExecutor::ThreadPoolExecutor(int num_threads) : state_(std::make_unique<State>()) {
  for (int i = 0; i < num_threads; ++i)
    state_->threads.emplace_back([state = state_.get()] { state->RunPool(); });
  state_->threads.emplace_back([state = state_.get()] { state->RunTimers(); });
  TrimMemory();
}

void ThreadPoolExecutor::TrimMemory() {
  MemoryPool::TrimAll(kKeptUnused);
  PostAfter(kKeptUnused, [this] { TrimMemory(); });
}

ThreadPoolExecutor::~ThreadPoolExecutor() { Stop(); }

void ThreadPoolExecutor::Post(Task task) {
  MutexLock lock(state_->mu);
  if (state_->stopped) return;
  state_->ready.push_back(std::move(task));
  state_->work.NotifyOne();
}

void ThreadPoolExecutor::PostAfter(absl::Duration delay, Task task) {
  const absl::Duration due = Clock::Real().Elapsed() + delay;
  MutexLock lock(state_->mu);
  if (state_->stopped) return;
  state_->timers.emplace(due, std::move(task));
  state_->timer.NotifyOne();
}

void ThreadPoolExecutor::PostBlocking(std::string name, Task task) {
  state_->PostBlocking(State::kNormal, {std::move(name), std::move(task)});
}
void ThreadPoolExecutor::PostBackground(std::string name, Task task) {
  state_->PostBlocking(State::kBackground, {std::move(name), std::move(task)});
}

void ThreadPoolExecutor::Stop() {
  std::deque<Task> ready;
  std::multimap<absl::Duration, Task> timers;
  std::deque<State::BlockingTask> blocking_tasks[State::kUrgencies];
  std::vector<std::thread> blocking_threads[State::kUrgencies];
  {
    MutexLock lock(state_->mu);
    state_->stopped = true;
    ready.swap(state_->ready);
    timers.swap(state_->timers);
    for (int urgency = 0; urgency < State::kUrgencies; ++urgency) {
      State::BlockingPool& pool = state_->blocking[urgency];
      blocking_tasks[urgency].swap(pool.tasks);
      blocking_threads[urgency].swap(pool.threads);
      pool.work.NotifyAll();
    }
    state_->work.NotifyAll();
    state_->timer.NotifyAll();
  }
  // Destroys the dropped tasks before it waits for running ones. A running task may wait for a
  // dropped one, and may learn of the drop only when that task's captures are destroyed.
  ready.clear();
  timers.clear();
  for (std::deque<State::BlockingTask>& tasks : blocking_tasks) tasks.clear();
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
  for (std::vector<std::thread>& threads : blocking_threads) {
    for (std::thread& thread : threads) thread.join();
  }
}

// The tasks in a queue often hold the queue through their owner. Only the executor breaks this
// cycle, because it is stopped in the end. So the Turn that is posted to the executor holds the
// queue. If it is destroyed without having run, the queue drops its tasks.
struct SerialExecutor::Queue : std::enable_shared_from_this<SerialExecutor::Queue> {
  class Turn {
   public:
    explicit Turn(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
    ~Turn() {
      if (queue_ != nullptr) queue_->Drop();
    }
    void Run() { std::exchange(queue_, nullptr)->RunOne(); }

   private:
    std::shared_ptr<Queue> queue_;  // null after it has run
  };

  explicit Queue(Executor& executor) : executor(executor) {}
  Executor& executor;
  Mutex mu;
  std::deque<Task> tasks DIVVY_GUARDED_BY(mu);
  bool running DIVVY_GUARDED_BY(mu) = false;  // a Turn is posted or running

  // REQUIRES: `mu` is not held, because a stopped executor destroys the Turn within Post.
  void PostTurn() {
    executor.Post([turn = std::make_shared<Turn>(shared_from_this())] { turn->Run(); });
  }

  // Runs one task and then posts itself again, so that a busy queue does not occupy a thread of the
  // pool.
  void RunOne() {
    Task task;
    {
      MutexLock lock(mu);
      task = std::move(tasks.front());
      tasks.pop_front();
    }
    task();
    task = nullptr;
    if (MoreWait()) PostTurn();
  }
  bool MoreWait() {
    MutexLock lock(mu);
    running = !tasks.empty();
    return running;
  }
  void Drop() {
    // Destroyed after the lock is released, because destroying captures may call Post.
    std::deque<Task> dropped;
    MutexLock lock(mu);
    dropped.swap(tasks);
    running = false;
  }
};

SerialExecutor::SerialExecutor(Executor& executor) : queue_(std::make_shared<Queue>(executor)) {}

void SerialExecutor::Post(Task task) {
  // A task that runs on another thread may destroy this object before PostTurn is called.
  const std::shared_ptr<Queue> queue = queue_;
  {
    MutexLock lock(queue->mu);
    queue->tasks.push_back(std::move(task));
    if (std::exchange(queue->running, true)) return;
  }
  queue->PostTurn();
}

}  // namespace divvy
