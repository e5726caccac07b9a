#include "strategy/rendezvous.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/guarded.h"

namespace divvy::internal {
namespace {

constexpr int64_t kLeft = std::numeric_limits<int64_t>::max();

}  // namespace

Rendezvous::Rendezvous(int num_replicas) : num_replicas_(num_replicas), met_(num_replicas) {}

absl::Status Rendezvous::Meet(int replica, Arrival arrival) {
  std::shared_ptr<Round> round;
  {
    MutexLock lock(mu_);
    round = NextOf(replica);
    // The meeting was given up before this replica arrived.
    if (round->done) return arrival.error.ok() ? round->outcome : arrival.error;
    round->arrivals[replica] = std::move(arrival);
    if (++round->arrived < num_replicas_) return Await(*round, replica);
  }
  // All other replicas wait, so only this thread uses the round.
  absl::Status outcome = RunRound(*round);
  MutexLock lock(mu_);
  return End(*round, std::move(outcome));
}

std::shared_ptr<Rendezvous::Round> Rendezvous::NextOf(int replica) {
  std::shared_ptr<Round>& next = rounds_[met_[replica]++];
  if (next == nullptr) next = std::make_shared<Round>(num_replicas_);
  const std::shared_ptr<Round> round = next;
  ForgetPassed();
  return round;
}

void Rendezvous::ForgetPassed() {
  rounds_.erase(rounds_.begin(), rounds_.lower_bound(*std::min_element(met_.begin(), met_.end())));
}

absl::Status Rendezvous::End(Round& round, absl::Status outcome) {
  round.outcome = std::move(outcome);
  round.done = true;
  changed_.NotifyAll();
  return round.outcome;
}

absl::Status Rendezvous::Await(Round& round, int replica) {
  const auto is_over = [&]() DIVVY_REQUIRES(mu_) { return round.done || !left_.empty(); };
  const bool in_time = changed_.WaitFor(mu_, round.arrivals[replica]->timeout, is_over);
  // All replicas have arrived, and another one carries the meeting out. So this one waits for the
  // result, although its timeout has passed.
  if (!in_time && round.arrived == num_replicas_) changed_.Wait(mu_, is_over);
  if (round.done) return round.outcome;
  return End(round, left_.empty() ? GivenUp(round, replica) : ReplicaHasLeft(round, replica));
}

void Rendezvous::Leave(int replica, absl::Status status) {
  MutexLock lock(mu_);
  if (first_error_.ok()) first_error_ = status;
  left_.push_back({replica, std::move(status)});
  met_[replica] = kLeft;
  ForgetPassed();
  changed_.NotifyAll();
}

absl::Status Rendezvous::WaitForAll() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this]() DIVVY_REQUIRES(mu_) {
    return static_cast<int>(left_.size()) == num_replicas_;
  });
  return first_error_;
}

// The first replica that left is the cause. Others may have left because they waited for that one.
absl::Status Rendezvous::ReplicaHasLeft(const Round& round, int replica) const {
  const Left& first = left_.front();
  if (!first.status.ok()) return first.status;
  return absl::FailedPreconditionError(absl::StrCat(
      "replica ", replica, " waits in ", round.arrivals[replica]->call, ", but replica ",
      first.replica, " has returned without it; all replicas must make the same collective calls"));
}

absl::Status Rendezvous::GivenUp(const Round& round, int replica) const {
  std::vector<int> missing;
  for (int other = 0; other < num_replicas_; ++other) {
    if (!round.arrivals[other]) missing.push_back(other);
  }
  const Arrival& mine = *round.arrivals[replica];
  return absl::DeadlineExceededError(
      absl::StrCat("replica ", replica, " has waited ", absl::FormatDuration(mine.timeout), " in ",
                   mine.call, " (collective call ", met_[replica], " of this Run) for replica ",
                   absl::StrJoin(missing, ", "),
                   ", so the call fails on all replicas; raise the timeout if they are only slow"));
}

absl::Status Rendezvous::Disagreement(const Round& round) const {
  const Arrival& first = *round.arrivals[0];
  for (int other = 1; other < num_replicas_; ++other) {
    const Arrival& arrival = *round.arrivals[other];
    if (arrival.call == first.call && *arrival.type == *first.type) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("replica 0 calls ", first.call, " where replica ", other, " calls ",
                     arrival.call, arrival.call == first.call ? " with other types" : "",
                     "; all replicas must make the same collective calls in the same order"));
  }
  return absl::OkStatus();
}

absl::Status Rendezvous::RunRound(Round& round) const {
  for (const std::optional<Arrival>& arrival : round.arrivals) {
    if (!arrival->error.ok()) return arrival->error;
  }
  absl::Status agreed = Disagreement(round);
  if (!agreed.ok()) return agreed;
  std::vector<void*> payloads;
  for (const std::optional<Arrival>& arrival : round.arrivals) payloads.push_back(arrival->payload);
  const Arrival& first = *round.arrivals[0];
  return Guarded<absl::Status>(first.call, [&] { return first.complete(payloads); });
}

}  // namespace divvy::internal
