#include "coordinator/core/worker_set.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "coordinator/core/refusals.h"
#include "coordinator/core/session_numbers.h"

namespace divvy {
namespace {

// A worker that has served is not expected to return after it has been away for so long.
constexpr absl::Duration kForgottenAfter = absl::Minutes(10);
// A worker that has registered is expected to serve within this time.
constexpr absl::Duration kAboutToServe = absl::Seconds(30);

}  // namespace

void WorkerSet::Send(Worker& worker, ToWorker message) {
  if (closed_ || worker.stream == nullptr) return;
  const bool is_layout = std::holds_alternative<LayoutUpdate>(message);
  if (std::exchange(worker.layout_is_old, false) && !is_layout) Send(worker, LayoutUpdate{layout_});
  if (auto frame = worker.stream->Send(std::move(message)))
    outbox_.Add([to = worker.connection, frame = *std::move(frame)] { to->Send(frame); });
}

void WorkerSet::SendToAll(const ToWorker& message) {
  for (auto& [index, worker] : workers_) Send(worker, message);
}

void WorkerSet::SendSoon(std::shared_ptr<const Layout> layout) {
  layout_ = std::move(layout);
  for (auto& [index, worker] : workers_) worker.layout_is_old = true;
}

void WorkerSet::SendLayout() {
  for (auto& [index, worker] : workers_) {
    if (worker.layout_is_old) Send(worker, LayoutUpdate{layout_});
  }
}

// ---- who gets steps ----

void WorkerSet::SetJoining(Worker& worker) {
  num_recovered_ += std::exchange(worker.is_lost, false);
  by_load_.erase(LoadOf(worker));
  num_joining_ += worker.state != Worker::State::kJoining;
  worker.state = Worker::State::kJoining;
}

void WorkerSet::SetReady(Worker& worker) {
  num_joining_ -= worker.state == Worker::State::kJoining;
  worker.state = Worker::State::kReady;
  by_load_.insert(LoadOf(worker));
}

void WorkerSet::AddInFlight(Worker& worker, std::shared_ptr<coordinator_records::Step> step) {
  const bool is_listed = by_load_.erase(LoadOf(worker)) > 0;
  worker.expected += step->expected;
  worker.in_flight.push_back(std::move(step));
  if (is_listed) by_load_.insert(LoadOf(worker));
}

void WorkerSet::RemoveInFlight(Worker& worker, const coordinator_records::Step& step) {
  const bool is_listed = by_load_.erase(LoadOf(worker)) > 0;
  worker.expected -= step.expected;
  const auto found = std::find_if(worker.in_flight.begin(), worker.in_flight.end(),
                                  [&step](const auto& each) { return each.get() == &step; });
  worker.in_flight.erase(found);
  if (is_listed) by_load_.insert(LoadOf(worker));
}

// ---- sessions ----

// A Steps stream names only its session. Another coordinator of this job, with another epoch, may
// still live, and its streams must not be mistaken for those of this coordinator. So epochs that
// are close to each other have different sessions (session_numbers.h).
SessionId WorkerSet::NextSession(Epoch epoch) {
  SessionId session = kCoordinatorSession;
  while (session == kCoordinatorSession)
    session =
        SessionOf(RuleHolds(Rule::kSessionsOfEpochsDiffer) ? epoch : Epoch(), next_session_++);
  return session;
}

std::map<SessionId, int> WorkerSet::Sessions() const {
  std::map<SessionId, int> sessions;
  for (const auto& [index, worker] : workers_) {
    if (worker.state != Worker::State::kDialing) sessions.emplace(worker.session, index);
  }
  return sessions;
}

std::vector<std::shared_ptr<coordinator_records::Step>> WorkerSet::EndSession(Worker& worker) {
  by_load_.erase(LoadOf(worker));
  num_joining_ -= worker.state == Worker::State::kJoining;
  // From now on Sessions() does not have the worker's session.
  worker.state = Worker::State::kDialing;
  worker.stream = nullptr;
  worker.broken_since.reset();
  worker.claim.reset();
  worker.run_time = worker.expected = absl::ZeroDuration();
  if (worker.connection != nullptr)
    outbox_.Add([connection = std::exchange(worker.connection, nullptr)] { connection->Close(); });
  worker.connection_number = 0;
  return std::exchange(worker.in_flight, {});
}

void WorkerSet::Fence(Worker& worker, absl::string_view why, uint64_t seq) {
  num_lost_ += worker.leaving ? 0 : 1;
  worker.is_lost = worker.is_lost || !worker.leaving;
  ++num_fenced_;
  FenceWait fence;
  fence.worker = worker.index;
  fence.seq = seq;
  fence.steps = EndSession(worker);
  for (const auto& step : fence.steps) step->state = coordinator_records::Step::State::kFencing;
  // Steps that had not begun there are not to be blamed for the loss, and their times tell nothing.
  const size_t begun = std::min(static_cast<size_t>(worker.slots), fence.steps.size());
  for (size_t i = begun; i < fence.steps.size(); ++i) {
    ++fence.steps[i]->forgiven;
    fence.steps[i]->trace_over.reset();
  }
  num_lost_runs_ += static_cast<int64_t>(begun);
  worker.last_error = std::string(why);
  fences_.push_back(std::move(fence));
}

std::vector<WorkerSet::FenceWait> WorkerSet::NoteFences(int ps, size_t num_ps,
                                                        const SyncReply& reply) {
  std::vector<FenceWait> complete;
  for (auto fence = fences_.begin(); fence != fences_.end();) {
    if (reply.seq >= fence->seq && fence->acked.insert(ps).second) {
      for (const RememberedEntry& entry : reply.applied) {
        for (const auto& step : fence->steps) {
          if (step->id == entry.id) step->applied[ps] = entry.participants;
        }
      }
    }
    if (fence->acked.size() == num_ps) {
      complete.push_back(std::move(*fence));
      fence = fences_.erase(fence);
    } else {
      ++fence;
    }
  }
  return complete;
}

// ---- which workers may serve ----

absl::Status WorkerSet::CheckReplicas(int index, const std::string& address, int replicas) {
  const WorkerReplicas own{index, address, replicas};
  if (options_.replicas_per_worker > 0)
    return replicas == options_.replicas_per_worker
               ? absl::OkStatus()
               : UnwantedReplicas(own, options_.replicas_per_worker);
  replica_claims_[index] = replicas;
  const std::vector<Worker*> others = WithOtherReplicas(index, replicas);
  if (others.empty()) return absl::OkStatus();
  const WorkerReplicas first{others[0]->index, others[0]->address, others[0]->replicas};
  const auto votes = [this](int number) {
    return std::count_if(replica_claims_.begin(), replica_claims_.end(),
                         [number](const auto& claim) { return claim.second == number; });
  };
  const bool all_have_spoken =
      !options_.worker_addresses.empty() &&
      std::all_of(workers_.begin(), workers_.end(),
                  [this](const auto& known) { return replica_claims_.count(known.first) > 0; });
  const auto lead = votes(replicas) - votes(first.replicas);
  if (lead < 0 || (lead == 0 && all_have_spoken)) return OtherReplicas(own, first);
  return lead == 0 ? OtherReplicasYet(own, first) : absl::OkStatus();
}

std::vector<WorkerSet::Worker*> WorkerSet::WithOtherReplicas(int index, int replicas) {
  std::vector<Worker*> others;
  for (auto& [there, worker] : workers_) {
    if (there != index && worker.state != Worker::State::kDialing && worker.replicas != replicas)
      others.push_back(&worker);
  }
  return others;
}

void WorkerSet::CompareBuild(const Worker& worker, const std::string& build) {
  const std::string& own = options_.program.build;
  const bool is_other = !own.empty() && !build.empty() && own != build;
  if (!is_other || std::exchange(other_build_told_, true)) return;
  outbox_.Add([text = absl::StrCat(
                   "worker ", worker.index, " (", worker.address,
                   ") runs another build of the program (", build, ") than the coordinator (", own,
                   "): its steps may compute other results. Deploy one binary to all tasks")] {
    DIVVY_LOG(WARNING) << text;
  });
}

bool WorkerSet::MustYield(const Worker& refused) {
  const absl::Duration now = clock_.Elapsed();
  const auto serves = [](const auto& each) { return each.second.state != Worker::State::kDialing; };
  if (std::any_of(workers_.begin(), workers_.end(), serves)) {
    unserved_since_.reset();
  } else if (!unserved_since_) {
    unserved_since_ = now;
  }
  if (!RuleHolds(Rule::kOneWorkerEndsNoJob)) return true;
  const bool all = std::all_of(workers_.begin(), workers_.end(),
                               [](const auto& each) { return each.second.serves_another; });
  // A single worker that is not listed may just be the first one to register.
  const bool are_all_there =
      workers_.size() > 1 || options_.worker_addresses.count(refused.index) > 0;
  return unserved_since_ &&
         now - *unserved_since_ >=
             (all && are_all_there ? options_.worker_silence : options_.ps_timeout);
}

// ---- numbers of workers ----

int WorkerSet::NumShares() const {
  const auto number_of = [this](auto counts) {
    return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), counts));
  };
  const int served = number_of([](const auto& each) { return each.second.has_served; });
  const int expected =
      served > 0 ? served : number_of([this](const auto& each) { return MayServe(each.second); });
  int number = 1;
  for (const auto& [index, worker] : workers_) {
    if (CountsForData(worker, served, expected)) number = index + 1;
  }
  return number;
}

// known_since does not change when a task registers again. So an index that a task only claims
// again and again is not waited for.
bool WorkerSet::MayServe(const Worker& worker) const {
  if (worker.has_served) return clock_.Elapsed() - worker.last_heard < kForgottenAfter;
  return clock_.Elapsed() - worker.known_since < kAboutToServe;
}

// A worker that TF_CONFIG names always counts, present or not. Another worker counts if it has
// served, or if it has just registered and is about to serve. An index that a task only claims does
// not count, because its share of the data would stay unread. A worker with an index far above the
// number of workers that have served does not count either, unless it is the only one: the shares
// between the other workers and this one would stay unread.
bool WorkerSet::CountsForData(const Worker& worker, int served, int expected) const {
  if (options_.worker_addresses.count(worker.index) > 0 || !RuleHolds(Rule::kPhantomsHaveNoShare))
    return true;
  // So many indices may be unused, because some workers of the job are not present.
  constexpr int kGaps = 16;
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

// A worker that TF_CONFIG names is waited for longer, because it may be slow to start.
bool WorkerSet::IsGoneForLong(const Worker& worker) const {
  const bool is_listed = options_.worker_addresses.count(worker.index) > 0;
  return is_listed ? clock_.Elapsed() - worker.last_heard >= kForgottenAfter : !MayServe(worker);
}

std::map<std::string, int64_t> WorkerSet::Sizes() const {
  return {{"fences", static_cast<int64_t>(fences_.size())},
          {"replicas, by worker", static_cast<int64_t>(replica_claims_.size())}};
}

}  // namespace divvy
