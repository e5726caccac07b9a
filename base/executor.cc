#include "base/executor.h"

#include <pthread.h>

#include <atomic>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace divvy {

// One mutex for everything: tasks are coarse (blocks of a shard, messages), so it is never the bottleneck (bench:embedded_steps).
struct ThreadPoolExecutor::State {
  struct BlockingTask {
    std::string name;
    Task task;
  };

  Mutex mu;
  CondVar work;      // for the pool's threads
  CondVar timer;     // for the timer thread
  CondVar blocking;  // for idle threads of PostBlocking
  bool stopped DIVVY_GUARDED_BY(mu) = false;
  std::deque<Task> ready DIVVY_GUARDED_BY(mu);
  std::multimap<absl::Duration, Task> timers DIVVY_GUARDED_BY(mu);  // by Clock::Elapsed()
  std::deque<BlockingTask> blocking_tasks DIVVY_GUARDED_BY(mu);
  int idle_blocking DIVVY_GUARDED_BY(mu) = 0;
  std::vector<std::thread> threads;  // changed before Stop only, by the constructor
  std::vector<std::thread> blocking_threads DIVVY_GUARDED_BY(mu);

  void RunPool();
  void RunTimers();
  void RunBlocking();
};

void ThreadPoolExecutor::State::RunPool() {
  while (true) {
    Task task;
    {
      MutexLock lock(mu);
      work.Wait(mu, [this]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return stopped || !ready.empty(); });
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
    const absl::Duration now = Clock::Real().Elapsed();
    while (!timers.empty() && timers.begin()->first <= now) {
      ready.push_back(std::move(timers.begin()->second));
      timers.erase(timers.begin());
      work.NotifyOne();
    }
    const absl::Duration first = timers.empty() ? absl::InfiniteDuration() : timers.begin()->first;
    timer.WaitFor(mu, first - now, [this, first]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return stopped || (!timers.empty() && timers.begin()->first < first); });
  }
}

void ThreadPoolExecutor::State::RunBlocking() {
  mu.Lock();
  while (true) {
    ++idle_blocking;
    blocking.Wait(mu, [this]() DIVVY_NO_THREAD_SAFETY_ANALYSIS { return stopped || !blocking_tasks.empty(); });
    --idle_blocking;
    if (stopped) return mu.Unlock();
    BlockingTask task = std::move(blocking_tasks.front());
    blocking_tasks.pop_front();
    mu.Unlock();
    pthread_setname_np(pthread_self(), task.name.substr(0, 15).c_str());  // 15: the kernel's limit
    task.task();
    task.task = nullptr;
    mu.Lock();
  }
}

ThreadPoolExecutor::ThreadPoolExecutor(int num_threads) : state_(std::make_unique<State>()) {
  for (int i = 0; i < num_threads; ++i) state_->threads.emplace_back([state = state_.get()] { state->RunPool(); });
  state_->threads.emplace_back([state = state_.get()] { state->RunTimers(); });
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
  MutexLock lock(state_->mu);
  if (state_->stopped) return;
  state_->blocking_tasks.push_back({std::move(name), std::move(task)});
  if (state_->idle_blocking < static_cast<int>(state_->blocking_tasks.size())) {
    state_->blocking_threads.emplace_back([state = state_.get()] { state->RunBlocking(); });
  } else {
    state_->blocking.NotifyOne();
  }
}

void ThreadPoolExecutor::Stop() {
  std::deque<Task> ready;
  std::multimap<absl::Duration, Task> timers;
  std::deque<State::BlockingTask> blocking_tasks;
  std::vector<std::thread> blocking_threads;
  {
    MutexLock lock(state_->mu);
    state_->stopped = true;
    ready.swap(state_->ready);
    timers.swap(state_->timers);
    blocking_tasks.swap(state_->blocking_tasks);
    blocking_threads.swap(state_->blocking_threads);
    state_->work.NotifyAll();
    state_->timer.NotifyAll();
    state_->blocking.NotifyAll();
  }
  for (std::thread& thread : state_->threads) thread.join();
  state_->threads.clear();
  for (std::thread& thread : blocking_threads) thread.join();
}

// Tasks often hold, through their owner, the queue they wait in: only the executor, which is stopped in the end, breaks that circle. So what stands before the
// executor holds the queue, and where it goes without having run, the tasks behind it go too.
struct SerialExecutor::Queue : std::enable_shared_from_this<SerialExecutor::Queue> {
  class Turn {
   public:
    explicit Turn(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
    ~Turn() {
      if (queue_ != nullptr) queue_->Drop();
    }
    void Run() { std::exchange(queue_, nullptr)->RunOne(); }

   private:
    std::shared_ptr<Queue> queue_;  // null: it has run
  };

  explicit Queue(Executor& executor) : executor(executor) {}
  Executor& executor;
  Mutex mu;
  std::deque<Task> tasks DIVVY_GUARDED_BY(mu);
  bool running DIVVY_GUARDED_BY(mu) = false;  // a turn stands before the executor, or runs

  // REQUIRES: `mu` is not held, for an executor that is stopped drops the turn here and now.
  void PostTurn() {
    executor.Post([turn = std::make_shared<Turn>(shared_from_this())] { turn->Run(); });
  }

  // Runs one task, then posts itself again: a busy queue does not keep a pool thread from the others.
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
    std::deque<Task> dropped;  // goes after the lock: what the tasks hold may post
    MutexLock lock(mu);
    dropped.swap(tasks);
    running = false;
  }
};

SerialExecutor::SerialExecutor(Executor& executor) : queue_(std::make_shared<Queue>(executor)) {}

void SerialExecutor::Post(Task task) {
  const std::shared_ptr<Queue> queue = queue_;  // this may be gone before the turn is posted
  {
    MutexLock lock(queue->mu);
    queue->tasks.push_back(std::move(task));
    if (std::exchange(queue->running, true)) return;
  }
  queue->PostTurn();
}

}  // namespace divvy
