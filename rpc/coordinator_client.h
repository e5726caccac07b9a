// The client of the coordinator, over gRPC.
#ifndef DIVVY_RPC_COORDINATOR_CLIENT_H_
#define DIVVY_RPC_COORDINATOR_CLIENT_H_

#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "protocol/clients.h"
#include "rpc/unary_call.h"

namespace divvy {

// A task that cannot reach its coordinator logs that after this time. Before it there is nothing to
// report, since the tasks of a job are started in any order.
constexpr absl::Duration kSilentWait = absl::Seconds(5);

// Makes the channel of one call. Thread-safe; does not block.
using ChannelMaker = std::function<std::shared_ptr<grpc::Channel>()>;

// Implements CoordinatorClient of protocol/clients.h. A task repeats Register until the coordinator
// has attached it. Once calls have failed for `silent_wait`, the client logs why the task still
// waits: each cause at most once a minute. Thread-safe; no call blocks. The client may be destroyed
// while calls are open: they still answer.
std::shared_ptr<CoordinatorClient> MakeCoordinatorClient(CallEnvironment environment,
                                                         ChannelMaker make_channel,
                                                         absl::Duration silent_wait = kSilentWait);

}  // namespace divvy

#endif  // DIVVY_RPC_COORDINATOR_CLIENT_H_
