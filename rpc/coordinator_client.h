// The coordinator, over gRPC.
#ifndef DIVVY_RPC_COORDINATOR_CLIENT_H_
#define DIVVY_RPC_COORDINATOR_CLIENT_H_

#include <memory>

#include "absl/time/time.h"
#include "cluster/clients.h"
#include "grpcpp/channel.h"
#include "rpc/unary_call.h"

namespace divvy {

// A task that nobody listens to says so after this time, as a coordinator says for whom it waits:
// tasks are started in any order.
constexpr absl::Duration kSilentWait = absl::Seconds(5);

// As cluster/clients.h says. Register, which a task repeats until it is attached, tells its log why
// it does so once calls have failed for `silent_wait`: each cause once a minute. Thread-safe; may
// go while its calls are open.
std::shared_ptr<CoordinatorClient> MakeCoordinatorClient(
    CallEnvironment environment, const std::shared_ptr<grpc::Channel>& channel,
    absl::Duration silent_wait = kSilentWait);

}  // namespace divvy

#endif  // DIVVY_RPC_COORDINATOR_CLIENT_H_
