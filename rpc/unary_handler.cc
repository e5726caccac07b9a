#include "rpc/unary_handler.h"

#include "base/status_macros.h"

namespace divvy {

absl::Status CheckUnaryCall(const grpc::CallbackServerContext& context, absl::string_view method) {
  RETURN_IF_ERROR(Authorize(*context.auth_context(), method));
  if (gpr_time_cmp(context.raw_deadline(), gpr_inf_future(GPR_CLOCK_REALTIME)) >= 0) {
    return MakeError(Reason::kInvalid, "the call has no deadline: set one");
  }
  return absl::OkStatus();
}

}  // namespace divvy
