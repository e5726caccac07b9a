// What the other tasks of the job say of themselves, for the coordinator's page.
#ifndef DIVVY_COORDINATOR_SERVICE_TASK_POLL_H_
#define DIVVY_COORDINATOR_SERVICE_TASK_POLL_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "coordinator/core/coordinator_core.h"
#include "proto/divvy.pb.h"
#include "protocol/clients.h"

namespace divvy {

// Asks every task for its status, again and again. A reply decides nothing, so it may be anything.
// Thread-safe; no method blocks.
class TaskPoll : public std::enable_shared_from_this<TaskPoll> {
 public:
  using Task = CoordinatorCore::KnownTask;
  // Asks one task: calls its argument once, or drops it.
  using Ask = std::function<void(ResultCallback<v1::TaskStatus>)>;
  // Makes the way to a task at its address. Called when the address is new, without a lock.
  using Dial = std::function<Ask(const Task& task)>;

  // REQUIRES: `executor` outlives this; `tasks` does not block.
  TaskPoll(std::function<std::vector<Task>()> tasks, Dial dial, Executor& executor)
      : tasks_(std::move(tasks)), dial_(std::move(dial)), executor_(executor) {}

  // Begins to ask every task, at once and then every 5 s, as long as this exists. Many tasks are
  // asked less often, so that no more than 40 calls a second are made.
  void Start();
  // Asks all tasks once.
  void AskAll();
  // The last status of each task, in the order of `tasks`. Of a task that does not answer: a status
  // with the state "no answer" and the reason as what it waits for. Statuses have neither tasks nor
  // tables, and at most 64 KiB. An answer that is older than the last one is dropped.
  std::vector<v1::TaskStatus> Last() const;

 private:
  using Key = std::pair<Role, int>;
  struct Known {
    std::string address;
    Ask ask;
    v1::TaskStatus last;
    // The number of the round that `last` answers.
    uint64_t answered = 0;
  };
  // Takes over who is there and where. The result: the tasks whose address is new.
  std::vector<Task> Update(const std::vector<Task>& tasks) DIVVY_REQUIRES(mu_);
  void OnAnswer(Key key, const std::string& address, uint64_t round,
                absl::StatusOr<v1::TaskStatus> answer);

  const std::function<std::vector<Task>()> tasks_;
  const Dial dial_;
  Executor& executor_;
  mutable Mutex mu_;
  std::map<Key, Known> known_ DIVVY_GUARDED_BY(mu_);
  // How often all tasks have been asked.
  uint64_t rounds_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_TASK_POLL_H_
