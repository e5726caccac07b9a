#include "rpc/channel.h"

#include "absl/strings/str_cat.h"
#include "cluster/task_address.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/channel_arguments.h"
#include "rpc/transport.h"

namespace divvy {
namespace {

void ReconnectSoon(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, 500);
}

// Detects connections whose peer disappeared without closing them. The pings are as rare as a
// server requires (server.cc).
void KeepAlive(grpc::ChannelArguments& arguments) {
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  // A Load may take minutes without sending a byte.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

// An address comes from a task that registered. It names a host or a socket, and must not use
// another of gRPC's schemes ("xds:", "ipv4:", "dns://SERVER/").
std::string TargetOf(const std::string& address) {
  return SocketPathOf(address) ? address : absl::StrCat("dns:///", address);
}

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  PrepareTransport();
  grpc::ChannelArguments arguments;
  ReconnectSoon(arguments);
  KeepAlive(arguments);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // The text of an error is sent twice: in the status and in its details.
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, 64 << 10);
  // gRPC would decompress a message before it checks the size (server.cc).
  arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  arguments.SetMaxReceiveMessageSize(32 << 20);
  return grpc::CreateCustomChannel(TargetOf(address), credentials, arguments);
}

}  // namespace divvy
