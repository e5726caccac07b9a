// Connections to other tasks.
#ifndef DIVVY_RPC_CHANNEL_H_
#define DIVVY_RPC_CHANNEL_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "rpc/credentials.h"

namespace divvy {

// A connection of its own to the task at `address`, which must prove to be a `role`. Opened by the first call. One that is broken is tried again within a second
// at most, also where the name has got another address: gRPC's own defaults take half a minute for that.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, absl::string_view role, const std::optional<TlsFiles>& tls);

}  // namespace divvy

#endif  // DIVVY_RPC_CHANNEL_H_
