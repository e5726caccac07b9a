#include "coordinator/core/worker_set.h"

#include <algorithm>
#include <utility>

#include "base/breakable.h"

namespace divvy {
namespace {

// A worker that has served, and has been away for so long, is not expected any more.
constexpr absl::Duration kForgottenAfter = absl::Minutes(10);
// A worker that has registered serves within this time, or is not expected any more.
constexpr absl::Duration kAboutToServe = absl::Seconds(30);

}  // namespace

void WorkerSet::Send(Worker& worker, ToWorker message) {
  if (closed_ || worker.stream == nullptr) return;
  if (auto frame = worker.stream->Send(std::move(message))) outbox_.Add([to = worker.connection, frame = *std::move(frame)] { to->Send(frame); });
}

void WorkerSet::SendToAll(const ToWorker& message) {
  for (auto& [index, worker] : workers_) Send(worker, message);
}

int WorkerSet::NumShares() const {
  const auto number_of = [this](auto counts) { return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), counts)); };
  const int served = number_of([](const auto& each) { return each.second.has_served; });
  const int expected = served > 0 ? served : number_of([this](const auto& each) { return MayServe(each.second); });
  int number = 1;
  for (const auto& [index, worker] : workers_) {
    if (CountsForData(worker, served, expected)) number = index + 1;
  }
  return number;
}

// Whether a worker that is away may be about to serve. An index that a task merely claims, again and
// again, is not waited for.
bool WorkerSet::MayServe(const Worker& worker) const {
  if (worker.has_served) return clock_.Elapsed() - worker.last_heard < kForgottenAfter;
  return clock_.Elapsed() - worker.known_since < kAboutToServe;
}

// A worker that the cluster's description names counts, whether it is there or not. Of the others, those
// count that have served, or have just registered and are about to serve. An index that a task merely
// claims would leave a share of the data unread. A worker does not count either if its index is far above
// the number of those that have served, unless it is the only one: its share, and many below it, would be
// read by nobody.
bool WorkerSet::CountsForData(const Worker& worker, int served, int expected) const {
  if (options_.worker_addresses.count(worker.index) > 0 || !RuleHolds(Rule::kPhantomsHaveNoShare)) return true;
  constexpr int kGaps = 16;  // indices that nobody has, of a job whose workers are not all there
  if (served > 1 && worker.index >= kGaps + 4 * served) return false;
  if (worker.state != Worker::State::kDialing) return true;
  return MayServe(worker) && (worker.has_served || worker.index < 2 * expected);
}

bool WorkerSet::MostHere(const std::function<bool(const Worker&)>& says) const {
  int here = 0, saying = 0;
  for (const auto& [index, worker] : workers_) {
    if (worker.state == Worker::State::kDialing) continue;
    ++here;
    saying += says(worker);
  }
  return 2 * saying > here;
}

// A worker that the cluster's description names may be slow to start.
bool WorkerSet::IsGoneForLong(const Worker& worker) const {
  const bool is_listed = options_.worker_addresses.count(worker.index) > 0;
  return is_listed ? clock_.Elapsed() - worker.last_heard >= kForgottenAfter : !MayServe(worker);
}

}  // namespace divvy
