#include "rpc/grpc_log.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "grpc/support/log.h"

namespace divvy {
namespace {

void LogOne(gpr_log_func_args* args) {
  if (args->severity != GPR_LOG_SEVERITY_ERROR) return;
  Log({Severity::kWarning, args->file, args->line, absl::StrCat("gRPC: ", args->message)});
}

}  // namespace

void RouteGrpcLog() {
  gpr_set_log_function(LogOne);
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
}

}  // namespace divvy
