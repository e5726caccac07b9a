#include "coordinator/service/task_poll.h"

#include <algorithm>
#include <cstddef>
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
// Of what is kept of a reply. An honest one has some hundred bytes.
constexpr size_t kMostBytes = 64 << 10;

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

// The part of the answer that is kept. An error says what is awaited instead.
absl::StatusOr<v1::TaskStatus> Checked(Role role, int index,
                                       absl::StatusOr<v1::TaskStatus> answer) {
  if (!answer.ok())
    return absl::UnavailableError(absl::StrCat("an answer: ", answer.status().message()));
  if (role == Role::kPs ? !answer->has_ps() : !answer->has_worker())
    return absl::InvalidArgumentError("an answer of its role");
  answer->set_job(JobOf(role));
  answer->set_index(index);
  answer->clear_findings();
  if (answer->has_ps()) answer->mutable_ps()->clear_tables();
  while (answer->waits_size() > kMostWaits) answer->mutable_waits()->RemoveLast();
  if (answer->ByteSizeLong() > kMostBytes)
    return absl::InvalidArgumentError(absl::StrCat(
        "an answer of at most ", kMostBytes, " bytes: the last one had ", answer->ByteSizeLong()));
  return answer;
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

std::vector<TaskPoll::Task> TaskPoll::Update(const std::vector<Task>& tasks) {
  std::vector<Task> moved;
  std::set<Key> present;
  for (const Task& task : tasks) {
    const Key key{task.role, task.index};
    present.insert(key);
    const auto [found, is_new] = known_.try_emplace(key);
    Known& known = found->second;
    if (!is_new && known.address == task.address) continue;
    known.address = task.address;
    known.ask = nullptr;
    known.last = Without(task.role, task.index, task.address.empty() ? "away" : "unknown",
                         task.address.empty() ? "its registration" : "its first answer");
    if (!task.address.empty()) moved.push_back(task);
  }
  for (auto known = known_.begin(); known != known_.end();)
    known = present.count(known->first) > 0 ? std::next(known) : known_.erase(known);
  return moved;
}

void TaskPoll::AskAll() {
  const std::vector<Task> tasks = tasks_();
  std::vector<Task> moved;
  {
    MutexLock lock(mu_);
    moved = Update(tasks);
  }
  std::vector<Ask> ways;
  for (const Task& task : moved) ways.push_back(dial_(task));
  std::vector<std::pair<Key, std::pair<std::string, Ask>>> calls;
  uint64_t round = 0;
  {
    MutexLock lock(mu_);
    for (size_t i = 0; i < moved.size(); ++i) {
      const auto known = known_.find({moved[i].role, moved[i].index});
      if (known != known_.end() && known->second.address == moved[i].address)
        known->second.ask = std::move(ways[i]);
    }
    round = ++rounds_;
    for (const auto& [key, known] : known_) {
      if (known.ask) calls.push_back({key, {known.address, known.ask}});
    }
  }
  for (const auto& [key, call] : calls)
    call.second([weak = weak_from_this(), key = key, address = call.first,
                 round](absl::StatusOr<v1::TaskStatus> answer) {
      if (const auto self = weak.lock()) self->OnAnswer(key, address, round, std::move(answer));
    });
}

void TaskPoll::OnAnswer(Key key, const std::string& address, uint64_t round,
                        absl::StatusOr<v1::TaskStatus> answer) {
  answer = Checked(key.first, key.second, std::move(answer));
  MutexLock lock(mu_);
  const auto known = known_.find(key);
  if (known == known_.end() || known->second.address != address) return;
  if (round < known->second.answered) return;
  known->second.answered = round;
  known->second.last = answer.ok()
                           ? *std::move(answer)
                           : Without(key.first, key.second, "no answer", answer.status().message());
}

std::vector<v1::TaskStatus> TaskPoll::Last() const {
  MutexLock lock(mu_);
  std::vector<v1::TaskStatus> last;
  for (const auto& [key, known] : known_) last.push_back(known.last);
  return last;
}

}  // namespace divvy
