#include "coordinator/service/task_poll.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

constexpr absl::Duration kEvery = absl::Seconds(5);
constexpr int64_t kMostCallsASecond = 40;
// Waits that are kept of a reply.
constexpr int kMostWaits = 4;

v1::Job JobOf(Role role) { return role == Role::kPs ? v1::PS : v1::WORKER; }

// A status that says why there is none.
v1::TaskStatus Without(Role role, int index, const std::string& state, absl::string_view why) {
  v1::TaskStatus status;
  status.set_job(JobOf(role));
  status.set_index(index);
  status.set_state(state);
  status.add_waits()->set_text(std::string(why));
  return status;
}

}  // namespace

void TaskPoll::Start() {
  AskAll();
  const auto tasks = static_cast<int64_t>(tasks_().size());
  const absl::Duration wait = std::max(kEvery, absl::Seconds(tasks) / kMostCallsASecond);
  executor_.PostAfter(wait, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->Start();
  });
}

void TaskPoll::AskAll() {
  const std::vector<Task> tasks = tasks_();
  std::vector<std::pair<Key, std::pair<std::string, Ask>>> calls;
  {
    MutexLock lock(mu_);
    std::set<Key> present;
    for (const Task& task : tasks) {
      const Key key{task.role, task.index};
      present.insert(key);
      const auto [found, is_new] = known_.try_emplace(key);
      Known& known = found->second;
      if (is_new || known.address != task.address) {
        known.address = task.address;
        known.ask = task.address.empty() ? nullptr : dial_(task);
        known.last = Without(task.role, task.index, task.address.empty() ? "away" : "unknown",
                             task.address.empty() ? "its registration" : "its first answer");
      }
      if (known.ask) calls.push_back({key, {known.address, known.ask}});
    }
    for (auto known = known_.begin(); known != known_.end();)
      known = present.count(known->first) > 0 ? std::next(known) : known_.erase(known);
  }
  for (const auto& [key, call] : calls)
    call.second([weak = weak_from_this(), key = key,
                 address = call.first](absl::StatusOr<v1::TaskStatus> answer) {
      if (const auto self = weak.lock()) self->OnAnswer(key, address, std::move(answer));
    });
}

void TaskPoll::OnAnswer(Key key, const std::string& address,
                        absl::StatusOr<v1::TaskStatus> answer) {
  MutexLock lock(mu_);
  const auto known = known_.find(key);
  if (known == known_.end() || known->second.address != address) return;
  const bool fits =
      answer.ok() && (key.first == Role::kPs ? answer->has_ps() : answer->has_worker());
  if (!fits) {
    known->second.last =
        Without(key.first, key.second, "no answer",
                answer.ok() ? "an answer of its role"
                            : absl::StrCat("an answer: ", answer.status().message()));
    return;
  }
  answer->set_job(JobOf(key.first));
  answer->set_index(key.second);
  answer->clear_findings();
  if (answer->has_ps()) answer->mutable_ps()->clear_tables();
  while (answer->waits_size() > kMostWaits) answer->mutable_waits()->RemoveLast();
  known->second.last = *std::move(answer);
}

std::vector<v1::TaskStatus> TaskPoll::Last() const {
  MutexLock lock(mu_);
  std::vector<v1::TaskStatus> last;
  for (const auto& [key, known] : known_) last.push_back(known.last);
  return last;
}

}  // namespace divvy
