// A replica's part in a collective of all replicas (strategy/rendezvous.h).
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

// Computes each replica's result from the payloads of all replicas, in replica order, and stores it
// in the payload. Runs on the thread of the replica that arrives last.
using CompleteMeeting = std::function<absl::Status(absl::Span<void* const> payloads)>;

// One replica's arguments and result.
struct Arrival {
  // The collective, such as "AllReduce SUM". All replicas must give the same.
  std::string call;
  // The type of *payload. All replicas must give the same.
  const std::type_info* type = nullptr;
  // Must live until Meet returns. Until then only `complete` uses it.
  void* payload = nullptr;
  // Only replica 0's function is called.
  CompleteMeeting complete;
  // Not OK: this replica has no value, for this reason. `complete` is then not called, and every
  // replica gets the error.
  absl::Status error;
  // The longest time that this replica waits for the others.
  absl::Duration timeout = absl::InfiniteDuration();
};

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_ARRIVAL_H_
