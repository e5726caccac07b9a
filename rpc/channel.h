// Connections to other tasks.
#ifndef DIVVY_RPC_CHANNEL_H_
#define DIVVY_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace divvy {

// Makes a channel to the task at `address` ("host:port" or "unix:/PATH"). The channel has a
// connection of its own, shared with no other channel. The first call opens the connection and does
// not wait for it: while there is no connection, calls fail with Unavailable. The channel retries a
// broken connection within a second, and looks the name up again, so it also finds a task that got
// another address. gRPC's own defaults take half a minute for that. Proxies set in the environment
// are ignored. Thread-safe; does not block.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace divvy

#endif  // DIVVY_RPC_CHANNEL_H_
