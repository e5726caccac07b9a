// What a replica brings to a meeting of all replicas (strategy/rendezvous.h).
#ifndef DIVVY_STRATEGY_ARRIVAL_H_
#define DIVVY_STRATEGY_ARRIVAL_H_

#include <functional>
#include <string>
#include <typeinfo>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace divvy::internal {

class Rendezvous;

// Given the payloads of all replicas in order, fills in what each takes home. Runs on the thread
// of the replica that arrives last.
using CompleteMeeting = std::function<absl::Status(absl::Span<void* const> payloads)>;

// What one replica brings, and what it wants in return.
struct Arrival {
  // "AllReduce SUM": what all must agree on
  std::string call;
  // Of *payload: what all must agree on, too.
  const std::type_info* type = nullptr;
  // lives until Meet returns; touched by `complete` alone meanwhile
  void* payload = nullptr;
  // replica 0's is the one that runs
  CompleteMeeting complete;
  // Why this replica has nothing to bring; `complete` then does not run.
  absl::Status error;
  // How long this replica waits for the others.
  absl::Duration timeout = absl::InfiniteDuration();
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_ARRIVAL_H_
