#include "rpc/unary_handler.h"

#include "base/status_macros.h"

namespace divvy {

absl::Status CheckUnaryCall(const grpc::CallbackServerContext& context, absl::string_view method) {
  RETURN_IF_ERROR(Authorize(*context.auth_context(), method));
  const gpr_timespec deadline = context.raw_deadline();
  // gRPC aborts if the clock types differ.
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) >= 0) {
    return MakeError(Reason::kInvalid, "the call has no deadline: set one");
  }
  return absl::OkStatus();
}

}  // namespace divvy
