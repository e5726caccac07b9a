#include "rpc/health_check.h"

#include "absl/strings/str_cat.h"
#include "base/terminal.h"
#include "proto/health.grpc.pb.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/time.h"

namespace divvy {
namespace {

namespace health = grpc::health::v1;

constexpr int kServing = 0, kNoConnection = 2, kCallFailed = 3, kNotServing = 4;

int Say(int code, absl::string_view text) {
  WriteStandardError(absl::StrCat("health: ", text, "\n"));
  return code;
}

}  // namespace

int CheckHealth(const HealthOptions& options) {
  const std::shared_ptr<grpc::Channel> channel = MakeChannel(options.address, options.credentials);
  const bool connected = channel->WaitForConnected(GrpcDeadline(options.connect_timeout));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(options.rpc_timeout));
  health::HealthCheckRequest request;
  request.set_service(options.service);
  health::HealthCheckResponse response;
  const grpc::Status status = health::Health::NewStub(channel)->Check(&context, request, &response);
  if (!connected && !status.ok()) {  // the call's error says why there is no connection
    return Say(kNoConnection,
               absl::StrCat("no connection within ", absl::FormatDuration(options.connect_timeout),
                            ": ", FromGrpc(status, options.address).message()));
  }
  const std::string who = options.service.empty()
                              ? options.address
                              : absl::StrCat(options.service, " at ", options.address);
  if (!status.ok())
    return Say(kCallFailed, absl::StrCat(who, ": ", FromGrpc(status, options.address).message()));
  if (response.status() != health::HealthCheckResponse::SERVING)
    return Say(kNotServing,
               absl::StrCat(who, ": ",
                            health::HealthCheckResponse::ServingStatus_Name(response.status())));
  return Say(kServing, absl::StrCat(who, ": SERVING"));
}

}  // namespace divvy
