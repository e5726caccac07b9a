// Asks a server for its health, as a probe does.
#ifndef DIVVY_RPC_TESTING_HEALTH_CLIENT_H_
#define DIVVY_RPC_TESTING_HEALTH_CLIENT_H_

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "proto/health.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/time.h"

namespace divvy {

// The health that the server on this port of 127.0.0.1 reports for `service`. nullopt: the server
// does not know the service, or cannot be reached within 20 s. Blocks.
inline std::optional<grpc::health::v1::HealthCheckResponse::ServingStatus> HealthOf(
    int port, const std::string& service) {
  const auto channel =
      MakeChannel(absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials());
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(absl::Seconds(20)));
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status =
      grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
  if (!status.ok()) return std::nullopt;
  return response.status();
}

}  // namespace divvy

#endif  // DIVVY_RPC_TESTING_HEALTH_CLIENT_H_
