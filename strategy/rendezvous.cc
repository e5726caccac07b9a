#include "strategy/rendezvous.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/guarded.h"

namespace divvy::internal {

Rendezvous::Rendezvous(int num_replicas) : num_replicas_(num_replicas), round_(NewRound(num_replicas)) {}

std::shared_ptr<Rendezvous::Round> Rendezvous::NewRound(int num_replicas) {
  auto round = std::make_shared<Round>();
  round->arrivals.resize(num_replicas);
  return round;
}

absl::Status Rendezvous::Meet(int replica, Arrival arrival) {
  mu_.Lock();
  const std::shared_ptr<Round> round = round_;
  round->arrivals[replica] = std::move(arrival);
  if (++round->arrived == num_replicas_) {
    round_ = NewRound(num_replicas_);
    mu_.Unlock();
    absl::Status outcome = CarryOut(*round);  // nobody else touches the round: all others wait
    MutexLock lock(mu_);
    round->outcome = outcome;
    round->done = true;
    changed_.NotifyAll();
    return outcome;
  }
  absl::Status outcome = Await(*round, replica);
  mu_.Unlock();
  return outcome;
}

// A replica that gives up takes its arrival back: its payload ends with Meet, and it may come to this round again.
absl::Status Rendezvous::Await(Round& round, int replica) {
  absl::Status deserted;
  const auto has_ended = [&] {
    deserted = round.done ? absl::OkStatus() : Deserted(round, replica);
    return round.done || !deserted.ok();
  };
  const bool in_time = changed_.WaitFor(mu_, round.arrivals[replica]->timeout, has_ended);
  if (!in_time && round.arrived == num_replicas_) changed_.Wait(mu_, has_ended);  // it is being carried out
  if (round.done) return round.outcome;
  const absl::Status why = deserted.ok() ? Late(round, replica) : deserted;
  round.arrivals[replica].reset();
  --round.arrived;
  return why;
}

void Rendezvous::Leave(int replica, absl::Status status) {
  MutexLock lock(mu_);
  if (first_error_.ok()) first_error_ = status;
  left_.push_back({replica, std::move(status)});
  changed_.NotifyAll();
}

absl::Status Rendezvous::WaitForAll() {
  MutexLock lock(mu_);
  changed_.Wait(mu_, [this] { return static_cast<int>(left_.size()) == num_replicas_; });
  return first_error_;
}

// The first that left is the cause: others may have left because they waited for it in vain.
absl::Status Rendezvous::Deserted(const Round& round, int replica) const {
  if (left_.empty()) return absl::OkStatus();
  const Left& first = left_.front();
  if (!first.status.ok()) return first.status;
  return absl::FailedPreconditionError(absl::StrCat("replica ", replica, " waits in ", round.arrivals[replica]->call, ", but replica ", first.replica,
                                                    " has returned without it; all replicas must make the same collective calls"));
}

absl::Status Rendezvous::Late(const Round& round, int replica) const {
  std::vector<int> missing;
  for (int other = 0; other < num_replicas_; ++other) {
    if (!round.arrivals[other]) missing.push_back(other);
  }
  const Arrival& mine = *round.arrivals[replica];
  return absl::DeadlineExceededError(absl::StrCat("replica ", replica, " has waited ", absl::FormatDuration(mine.timeout), " in ", mine.call, " for replica ",
                                                  absl::StrJoin(missing, ", "), "; raise the timeout if they are only slow"));
}

absl::Status Rendezvous::Disagreement(const Round& round) const {
  const Arrival& first = *round.arrivals[0];
  for (int other = 1; other < num_replicas_; ++other) {
    const Arrival& arrival = *round.arrivals[other];
    if (arrival.call == first.call && *arrival.type == *first.type) continue;
    return absl::InvalidArgumentError(absl::StrCat("replica 0 calls ", first.call, " where replica ", other, " calls ", arrival.call,
                                                   arrival.call == first.call ? " with other types" : "",
                                                   "; all replicas must make the same collective calls in the same order"));
  }
  return absl::OkStatus();
}

absl::Status Rendezvous::CarryOut(Round& round) const {
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
