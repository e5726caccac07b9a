// `divvyctl health` and --check_health: a probe for containers.
#ifndef DIVVY_RPC_HEALTH_CHECK_H_
#define DIVVY_RPC_HEALTH_CHECK_H_

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace divvy {

struct HealthOptions {
  std::string address;  // "host:port"
  std::string service;  // empty: the task as a whole
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  absl::Duration connect_timeout = absl::Seconds(1);
  absl::Duration rpc_timeout = absl::Seconds(1);
};

// Calls grpc.health.v1.Health once and prints one line with the result. Blocks at most for the two
// timeouts. Returns the exit codes of grpc_health_probe: 0 serving, 2 no connection, 3 the call
// failed, 4 not serving (1, bad arguments, is left to the caller).
int CheckHealth(const HealthOptions& options);

}  // namespace divvy

#endif  // DIVVY_RPC_HEALTH_CHECK_H_
