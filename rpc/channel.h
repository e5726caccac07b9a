// Connections to other tasks.
#ifndef DIVVY_RPC_CHANNEL_H_
#define DIVVY_RPC_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/channel.h"
#include "grpcpp/security/credentials.h"

namespace divvy {

// A connection of its own to the task at `address` ("host:port"), shared with no other channel.
// Opened by the first call, which does not wait for it: while there is no connection, calls fail
// with Unavailable. A broken one is tried again within a second at most, also where the name has
// got another address meanwhile: gRPC's own defaults take half a minute for that. Thread-safe; does
// not block.
std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

}  // namespace divvy

#endif  // DIVVY_RPC_CHANNEL_H_
